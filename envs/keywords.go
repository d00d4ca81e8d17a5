package envs

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// ErrKeyword is the kind of every error about an environment's keywords.
var ErrKeyword = errors.New("envs: bad keyword")

// Keywords are an environment's settings as JSON values, by name.
type Keywords map[string]json.RawMessage

// decode fills the fields of the struct that config points to; a field's `json` tag is its keyword.
// An unknown keyword, or a value of the wrong kind, is an error that names it and lists the known
// ones; config is then partly filled.
func (kw Keywords) decode(id string, config any) error {
	v := reflect.ValueOf(config).Elem()
	known := keywordNames(v.Type())
	for name, raw := range kw {
		i := indexOf(known, name)
		if i < 0 {
			return fmt.Errorf("%w: %s has no keyword %q; known: %s", ErrKeyword, id, name,
				orNone(known))
		}
		if err := json.Unmarshal(raw, v.Field(i).Addr().Interface()); err != nil {
			return fmt.Errorf("%w: %s: %s=%s: want %s (%w)", ErrKeyword, id, name, clip(string(raw)),
				v.Field(i).Type(), err)
		}
	}
	return nil
}

// keywordNames lists the keywords of a configuration struct in order of its fields.
func keywordNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
}

func indexOf(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return -1
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// clip shortens a value for an error message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// inRange is an error unless lo <= got <= hi.
func inRange(id, name string, got, lo, hi int) error {
	if got < lo || got > hi {
		return fmt.Errorf("%w: %s: %s=%d; want %d to %d", ErrKeyword, id, name, got, lo, hi)
	}
	return nil
}

// oneOf is an error unless got is among the values that are wanted.
func oneOf(id, name, got string, want ...string) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("%w: %s: %s=%q; want one of %q", ErrKeyword, id, name, got, want)
}
