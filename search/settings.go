package search

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Settings lists the names of all settings of a [Config], sorted. They are the same on every way in.
func Settings() []string { return slices.Sorted(maps.Keys(settingTypes(reflect.TypeFor[Config]()))) }

// settingTypes returns Go's type of each setting.
func settingTypes(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range t.Fields() {
		if f.Anonymous {
			maps.Copy(out, settingTypes(f.Type))
		} else if name := f.Tag.Get("json"); name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
}

// Apply changes settings by their names, each given as JSON. What they mean together is checked when a
// search begins.
func (c *Config) Apply(settings map[string]json.RawMessage) error {
	types := settingTypes(reflect.TypeFor[Config]())
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		kind, ok := types[name]
		if !ok {
			return fmt.Errorf("%w: no setting %q; known: %s", ErrConfig, name, strings.Join(Settings(), ", "))
		}
		one, err := json.Marshal(map[string]json.RawMessage{name: settings[name]})
		if err != nil || json.Unmarshal(one, c) != nil {
			return fmt.Errorf("%w: %s=%s; want %v", ErrConfig, name, settings[name], kind.Kind())
		}
	}
	return nil
}
