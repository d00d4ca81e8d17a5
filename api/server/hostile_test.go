package server_test

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// badTensors makes calls that make no sense, about a pool of four environments.
type badTensors struct {
	ctx  context.Context
	pool string
	ec   pb.EnvsClient
	sc   pb.SearchClient
	mc   pb.ModelsClient
}

func (b *badTensors) step(actions *pb.Tensor) error {
	_, err := b.ec.Step(b.ctx, &pb.SendRequest{Pool: b.pool, Actions: actions})
	return err
}

func (b *badTensors) reset(m *pb.ResetRequest) error {
	m.Pool = b.pool
	_, err := b.ec.Reset(b.ctx, m)
	return err
}

func (b *badTensors) open(m *pb.OpenRequest) error {
	m.Env = &pb.EnvRef{Id: c4}
	_, err := b.ec.Open(b.ctx, m)
	return err
}

func (b *badTensors) wait(seconds float64) error {
	_, err := b.ec.Recv(b.ctx, &pb.RecvRequest{Pool: b.pool, Timeout: &seconds})
	return err
}

func (b *badTensors) run(change func(m *pb.SearchRequest)) error {
	m := &pb.SearchRequest{Env: &pb.EnvRef{Id: c4}, Settings: &pb.SearchSettings{},
		Roots: &pb.SearchRequest_Moves{Moves: &pb.Games{Games: []*pb.Game{{}, {}}}}}
	change(m)
	_, err := b.sc.Run(b.ctx, m)
	return err
}

func (b *badTensors) look(obs ...*pb.Tensor) error {
	_, err := b.mc.Evaluate(b.ctx, &pb.EvaluateRequest{Env: &pb.EnvRef{Id: c4},
		Input: &pb.EvaluateRequest_Observations{Observations: &pb.Observations{Obs: obs}}})
	return err
}

// TestAbuseBadTensors: messages that are well formed and make no sense are refused with the field's name, for each
// reason of its own.
func TestAbuseBadTensors(t *testing.T) {
	log := &panicLog{}
	_, c := pair(t, server.Config{Log: slog.New(log), MaxNodes: 10_000})
	b := &badTensors{ctx: t.Context(), ec: pb.NewEnvsClient(c.Conn()), sc: pb.NewSearchClient(c.Conn()),
		mc: pb.NewModelsClient(c.Conn())}
	open, err := b.ec.Open(t.Context(), &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 4})
	require.NoError(t, err)
	b.pool = open.Pool
	require.NoError(t, b.reset(&pb.ResetRequest{}))
	i32, boolean, f64 := pb.DType_DTYPE_INT32, pb.DType_DTYPE_BOOL, pb.DType_DTYPE_FLOAT64
	four, nan := make([]byte, 16), math.NaN()
	board := func(shape ...int64) *pb.Tensor {
		return &pb.Tensor{Dtype: boolean, Shape: shape, Data: slices.Repeat([]byte{7}, 84), Name: "board"}
	}
	for path, errs := range map[string][]error{
		"actions": {
			b.step(tensor(pb.DType_DTYPE_FLOAT32, []int64{4}, four...)), b.step(tensor(99, []int64{4}, four...)),
			b.step(tensor(i32, []int64{-4}, four...)), b.step(tensor(i32, []int64{-2, -2}, four...)),
			b.step(tensor(i32, []int64{math.MinInt64}, four...)), b.step(tensor(i32, []int64{1 << 62, 4}, four...)),
			b.step(tensor(i32, []int64{1 << 32, 1 << 32}, four...)), b.step(tensor(i32, []int64{1 << 62})),
			b.step(tensor(i32, []int64{0, 1 << 62}, four...)), b.step(tensor(i32, []int64{1 << 30, 1 << 2}, four...)),
			b.step(tensor(i32, []int64{4}, four[:15]...)), b.step(tensor(i32, []int64{4}, append(four, 0)...)),
			b.step(tensor(i32, nil, four...)), b.step(tensor(i32, []int64{3}, four[:12]...)), b.step(nil),
		},
		"seeded":     {b.reset(&pb.ResetRequest{Seeded: tensor(boolean, []int64{4}, 0, 1, 7, 1)})},
		"seeds":      {b.reset(&pb.ResetRequest{Seeds: tensor(i32, []int64{4}, four...)})},
		"env_id":     {b.reset(&pb.ResetRequest{EnvId: tensor(i32, []int64{2, 2}, four...)})},
		"num_envs":   {b.open(&pb.OpenRequest{NumEnvs: math.MaxInt32}), b.open(&pb.OpenRequest{NumEnvs: -1})},
		"max_states": {b.open(&pb.OpenRequest{NumEnvs: 1, MaxStates: -1})},
		"max_bytes":  {b.open(&pb.OpenRequest{NumEnvs: 1, MaxBytes: math.MaxInt64})},
		"timeout":    {b.wait(nan), b.wait(-1), b.wait(math.Inf(1))},
		"time_limit": {
			b.run(func(m *pb.SearchRequest) { m.TimeLimit = wire.Vector([]float64{1, nan}) }),
			b.run(func(m *pb.SearchRequest) { m.TimeLimit = tensor(f64, []int64{2}, four[:8]...) }),
		},
		"fast": {b.run(func(m *pb.SearchRequest) { m.Fast = tensor(boolean, []int64{2}, 7, 0) })},
		"settings.num_simulations": {
			b.run(func(m *pb.SearchRequest) { m.Settings.NumSimulations = proto.Int64(math.MaxInt64) }),
			b.run(func(m *pb.SearchRequest) { m.Settings.NumSimulations = proto.Int64(math.MinInt64) }),
		},
		"observations.obs[0]": {b.look(board(1, 6, 7, 2)), b.look(board(-1, 6, 7, -2)), b.look(nil)},
		"observations.obs":    {b.look()},
	} {
		for i, err := range errs {
			require.Error(t, err, "%s, call %d", path, i)
			e := wire.From(wire.FromStatus(err))
			require.Equal(t, errcode.InvalidArgument, e.Code, "%s, call %d: %v", path, i, err)
			require.Equal(t, path, e.Path, "call %d: %v", i, err)
		}
	}
	log.requireNone(t)
	require.NoError(t, b.step(tensor(i32, []int64{4}, four...)))
}

// settingEnds are values of a kind of setting that are at its ends or beyond.
func settingEnds(kind protoreflect.Kind) (out []protoreflect.Value) {
	switch kind {
	case protoreflect.Int64Kind:
		for _, n := range []int64{math.MinInt64, -1, 0, 1 << 31, 1 << 40, math.MaxInt64 - 1, math.MaxInt64} {
			out = append(out, protoreflect.ValueOfInt64(n))
		}
	case protoreflect.FloatKind:
		for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 3e38, 1e-45} {
			out = append(out, protoreflect.ValueOfFloat32(float32(x)))
		}
	case protoreflect.StringKind:
		out = append(out, protoreflect.ValueOfString("x"), protoreflect.ValueOfString(`"],`))
	}
	return out
}

// TestAbuseSettings: numbers at their ends in the settings of a search are refused or searched with, without a panic
// and in no time.
func TestAbuseSettings(t *testing.T) {
	log := &panicLog{}
	_, c := pair(t, server.Config{Log: slog.New(log), MaxNodes: 10_000})
	sc := pb.NewSearchClient(c.Conn())
	fields := (&pb.SearchSettings{}).ProtoReflect().Descriptor().Fields()
	refused, searched := 0, 0
	for i := range fields.Len() {
		f := fields.Get(i)
		values := settingEnds(f.Kind())
		for _, policy := range []string{"gumbel", "alphazero", "muzero", "uct"} {
			for _, v := range values {
				m := &pb.SearchRequest{Env: &pb.EnvRef{Id: c4}, Settings: &pb.SearchSettings{Policy: &policy},
					Roots: &pb.SearchRequest_Moves{Moves: &pb.Games{Games: []*pb.Game{{}, {}}}}}
				m.Settings.ProtoReflect().Set(f, v)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				_, err := sc.Run(ctx, m)
				cancel()
				require.False(t, isPanic(err), "%s=%v with %s: %v", f.Name(), v, policy, err)
				if err == nil {
					searched++
					continue
				}
				code := status.Code(err)
				require.Equal(t, codes.InvalidArgument, code, "%s=%v with %s: %v", f.Name(), v, policy, err)
				refused++
			}
		}
	}
	t.Logf("%d settings refused, %d searched with", refused, searched)
	require.Greater(t, refused, 200)
	require.Positive(t, searched)
	log.requireNone(t)
}

// TestAbuseAmplification: what a request of a few KiB makes the server allocate is bounded, by a multiple of the
// largest message; and a bad request costs less than a good one.
func TestAbuseAmplification(t *testing.T) {
	const limit, most = 4 * mib, 64 * mib
	_, c := pair(t, server.Config{MaxMessage: limit, MaxBytes: most})
	ec, mc := pb.NewEnvsClient(c.Conn()), pb.NewModelsClient(c.Conn())
	env := &pb.EnvRef{Id: "BinPack-v0", Keywords: map[string]string{"max_num_items": "300", "obs_num_ems": "100"}}
	p, err := ec.Open(t.Context(), &pb.OpenRequest{Env: env, NumEnvs: 1})
	require.NoError(t, err)
	_, err = ec.Reset(t.Context(), &pb.ResetRequest{Pool: p.Pool})
	require.NoError(t, err)
	st, err := ec.Snapshot(t.Context(), &pb.EnvIds{Pool: p.Pool})
	require.NoError(t, err)
	const n = 2500
	many := tensor(pb.DType_DTYPE_INT32, []int64{n}, slices.Repeat(st.StateId.Data, n)...)
	none := tensor(pb.DType_DTYPE_INT32, []int64{n}, slices.Repeat([]byte{9, 9, 9, 9}, n)...)
	envIDs := wire.Vector(make([]int32, n))
	inPool := &pb.EvaluateRequest_PoolStates{PoolStates: &pb.PoolStates{Pool: p.Pool, StateId: many}}
	for name, call := range map[string]func() error{
		"Observe": func() error {
			_, err := ec.Observe(t.Context(), &pb.Rows{Pool: p.Pool, StateId: many})
			return err
		},
		"Observe environments": func() error {
			_, err := ec.Observe(t.Context(), &pb.Rows{Pool: p.Pool, EnvId: envIDs})
			return err
		},
		"Observe what isn't there": func() error {
			_, err := ec.Observe(t.Context(), &pb.Rows{Pool: p.Pool, StateId: none})
			return err
		},
		"SimulateBatch of what isn't there": func() error {
			_, err := ec.SimulateBatch(t.Context(), &pb.SimulateBatchRequest{Pool: p.Pool, StateId: none,
				Actions: wire.Vector(make([]int32, n))})
			return err
		},
		"Text": func() error {
			_, err := ec.Text(t.Context(), &pb.StateIds{Pool: p.Pool, StateId: many})
			return err
		},
		"Dump": func() error {
			_, err := ec.Dump(t.Context(), &pb.StateIds{Pool: p.Pool, StateId: many})
			return err
		},
		"Evaluate": func() error {
			_, err := mc.Evaluate(t.Context(), &pb.EvaluateRequest{Input: inPool})
			return err
		},
		"Open": func() error {
			_, err := ec.Open(t.Context(), &pb.OpenRequest{Env: env, NumEnvs: 5000})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			err := call()
			runtime.ReadMemStats(&after)
			allocated := float64(after.TotalAlloc-before.TotalAlloc) / mib
			t.Logf("%.0f MiB were allocated; the answer: %.150v", allocated, err)
			require.Less(t, allocated, float64(most/mib), "MiB for a request of a few KiB")
		})
	}
}

// TestAbuseLongTexts: an error doesn't repeat all of a long text. It travels twice, in headers, of which Python's
// client takes 8 KiB: one that is longer arrives as another error.
func TestAbuseLongTexts(t *testing.T) {
	_, c := pair(t, server.Config{})
	ec, sc, mc := pb.NewEnvsClient(c.Conn()), pb.NewSearchClient(c.Conn()), pb.NewModelsClient(c.Conn())
	p, err := ec.Open(t.Context(), &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 1})
	require.NoError(t, err)
	long := strings.Repeat("x", 100_000)
	run := func(change func(m *pb.SearchRequest)) error {
		m := &pb.SearchRequest{Env: &pb.EnvRef{Id: c4}, Settings: &pb.SearchSettings{},
			Roots: &pb.SearchRequest_Moves{Moves: &pb.Games{Games: []*pb.Game{{}}}}}
		change(m)
		_, err := sc.Run(t.Context(), m)
		return err
	}
	keyword := func(name, value string) error {
		_, err := ec.Describe(t.Context(), &pb.EnvRef{Id: c4, Keywords: map[string]string{name: value}})
		return err
	}
	for name, call := range map[string]func() error{
		"environment": func() error { _, err := ec.Describe(t.Context(), &pb.EnvRef{Id: long}); return err },
		"keyword":     func() error { return keyword(long, "1") },
		"value":       func() error { return keyword("rows", strings.Repeat("1", 100_000)) },
		"no JSON":     func() error { return keyword("rows", long) },
		"model":       func() error { return run(func(m *pb.SearchRequest) { m.Model = long }) },
		"policy":      func() error { return run(func(m *pb.SearchRequest) { m.Settings.Policy = &long }) },
		"pool": func() error {
			_, err := ec.Renew(t.Context(), &pb.PoolRef{Pool: long})
			return err
		},
		"autoreset": func() error {
			_, err := ec.Open(t.Context(), &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 1, Autoreset: long})
			return err
		},
		"shape": func() error {
			_, err := ec.Send(t.Context(), &pb.SendRequest{Pool: p.Pool, Actions: &pb.Tensor{
				Dtype: pb.DType_DTYPE_INT32, Shape: make([]int64, 100_000)}})
			return err
		},
		"name of an array": func() error {
			o := &pb.Observations{Obs: []*pb.Tensor{{Name: long}}}
			_, err := mc.Evaluate(t.Context(), &pb.EvaluateRequest{Env: &pb.EnvRef{Id: c4},
				Input: &pb.EvaluateRequest_Observations{Observations: o}})
			return err
		},
		"model to activate": func() error {
			_, err := mc.Activate(t.Context(), &pb.ActivateRequest{Name: long})
			return err
		},
		"version": func() error {
			_, err := mc.LoadModel(t.Context(), &pb.LoadModelRequest{Name: "m", Version: long})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			require.Error(t, err)
			e := wire.From(wire.FromStatus(err))
			t.Logf("code %d, path of %d bytes, text of %d: %.80s", e.Code, len(e.Path), len(e.Message), e.Message)
			require.Less(t, len(e.Path)+len(e.Message), 2048)
		})
	}
}
