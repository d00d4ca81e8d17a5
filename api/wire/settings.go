package wire

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Config returns the settings of a search: those that are set, and the policy's defaults. The fields of the message
// have the names of search.Config's settings, so nothing is written twice.
func Config(m *pb.SearchSettings, spec *envs.Spec) (search.Config, error) {
	policy := tree.Gumbel
	if m.GetPolicy() != "" {
		policy = tree.Policy(m.GetPolicy())
	}
	cfg := search.Default(policy, spec)
	given := map[string]json.RawMessage{}
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if number := v.Interface(); f.Kind() == protoreflect.FloatKind {
			given[string(f.Name())] = json.RawMessage(floatText(float32(v.Float())))
		} else if text, err := json.Marshal(number); err == nil {
			given[string(f.Name())] = text
		}
		return true
	})
	return cfg, At("settings", cfg.Apply(given))
}

// floatText writes a number so that search.Config.Apply says what is wrong with it if it isn't finite.
func floatText(x float32) string {
	text, err := json.Marshal(x)
	if err != nil {
		return fmt.Sprintf("%q", fmt.Sprint(x))
	}
	return string(text)
}

// Settings returns a search's settings as a message, all of them set.
func Settings(cfg *search.Config) (*pb.SearchSettings, error) {
	values := map[string]any{}
	collect(reflect.ValueOf(*cfg), values)
	text, err := json.Marshal(values)
	if err != nil {
		return nil, Bad("settings", "can't be sent: %v", err)
	}
	m := &pb.SearchSettings{}
	return m, protojson.Unmarshal(text, m)
}

func collect(v reflect.Value, values map[string]any) {
	for f, field := range v.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			collect(field, values)
		case name != "" && name != "-":
			values[name] = field.Interface()
		}
	}
}
