package wire

import (
	"encoding/json"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/envs"
)

var dtypes = map[envs.DType]pb.DType{
	envs.Float32: pb.DType_DTYPE_FLOAT32, envs.Float64: pb.DType_DTYPE_FLOAT64, envs.Int32: pb.DType_DTYPE_INT32,
	envs.Uint8: pb.DType_DTYPE_UINT8, envs.Bool: pb.DType_DTYPE_BOOL,
}

// Spec describes an environment.
func Spec(env *envs.Env) *pb.EnvSpec {
	s := env.Spec()
	out := &pb.EnvSpec{
		Id: s.ID, Version: int32(s.Version), Keywords: s.Keywords, Obs: arraySpecs(s.Obs), Info: arraySpecs(s.Info),
		NumActions: int32(s.NumActions), NumPlayers: int32(s.NumPlayers), NumOutcomes: int32(s.NumOutcomes),
		RewardLow: s.RewardLow, RewardHigh: s.RewardHigh, MaxEpisodeSteps: int32(s.MaxEpisodeSteps),
		GivenKeywords: Keywords(env.Keywords()), Masks: Masks(env), AnyAction: s.AnyAction,
		ComponentNames: s.Factorization.Names,
	}
	for _, n := range s.Factorization.Sizes {
		out.ComponentSizes = append(out.ComponentSizes, int32(n))
	}
	w, h := env.NewArena(0).FrameSize()
	out.FrameWidth, out.FrameHeight = int32(w), int32(h)
	if e, err := envs.Lookup(s.ID); err == nil {
		for _, k := range e.Keywords {
			out.KeywordDocs = append(out.KeywordDocs, &pb.KeywordDoc{Name: k.Name, Type: k.Kind, Default: k.Default,
				Doc: k.Doc})
		}
	}
	return out
}

// Keywords returns keywords as a message has them.
func Keywords(kw envs.Keywords) map[string]string {
	out := make(map[string]string, len(kw))
	for name, value := range kw {
		out[name] = string(value)
	}
	return out
}

// Env makes the environment that a message names. A keyword that is the path of a file of the other machine is
// refused.
func Env(id string, keywords map[string]string) (*envs.Env, error) {
	kw := envs.Keywords{}
	for name, value := range keywords {
		kw[name] = json.RawMessage(value)
	}
	if e, err := envs.Lookup(id); err == nil {
		if name := e.ReadsFile(kw); name != "" {
			return nil, Bad("keywords."+name, "is a file of the server, which can't be read here")
		}
	}
	return envs.Make(id, kw)
}

// Masks says that legal actions depend on the state.
func Masks(env *envs.Env) bool { return env.Capabilities().Masks && !env.Spec().AllLegal }

func arraySpecs(specs []envs.ArraySpec) (out []*pb.ArraySpec) {
	for _, a := range specs {
		s := &pb.ArraySpec{Name: a.Name, Dtype: dtypes[a.DType], Low: a.Low, High: a.High}
		for _, n := range a.Shape {
			s.Shape = append(s.Shape, int64(n))
		}
		out = append(out, s)
	}
	return out
}
