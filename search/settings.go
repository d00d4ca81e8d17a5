package search

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// settingTypes is Go's type of each setting.
var settingTypes = sync.OnceValue(func() map[string]reflect.Type {
	out := map[string]reflect.Type{}
	addSettings(reflect.TypeFor[Config](), out)
	return out
})

func addSettings(t reflect.Type, out map[string]reflect.Type) {
	for f := range t.Fields() {
		if f.Anonymous {
			addSettings(f.Type, out)
		} else if name := f.Tag.Get("json"); name != "" && name != "-" {
			out[name] = f.Type
		}
	}
}

// Settings lists the names of all settings of a [Config], sorted. They are the same on every way in.
func Settings() []string { return slices.Sorted(maps.Keys(settingTypes())) }

// Apply changes settings by their names, each given as JSON. What they mean together is checked when a
// search begins. On an error nothing is changed.
func (c *Config) Apply(settings map[string]json.RawMessage) error {
	changed := *c
	var text []byte
	for name, value := range settings {
		if settingTypes()[name] == nil {
			return fmt.Errorf("%w: no setting %q; known: %s", ErrConfig, name, strings.Join(Settings(), ", "))
		}
		text = fmt.Appendf(text, ",%q:%s", name, value)
	}
	if len(text) == 0 {
		return nil
	}
	text[0] = '{'
	if err := json.Unmarshal(append(text, '}'), &changed); err != nil {
		return settingError(err, settings)
	}
	*c = changed
	return nil
}

// settingError names the setting that has no value of its type.
func settingError(err error, settings map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		kind := settingTypes()[name]
		if json.Unmarshal(settings[name], reflect.New(kind).Interface()) != nil {
			return fmt.Errorf("%w: %s=%s; want %v", ErrConfig, name, settings[name], kind.Kind())
		}
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}
