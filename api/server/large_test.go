package server_test

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// wide is an environment with large observations and many actions, as chess has them.
type wide struct{}

type wideState struct {
	Seed  uint64
	Moves int32
}

const (
	wideActions = 4672
	wideCells   = 19 * 19 * 119
	wideID      = "Wide-v0"
)

var registerWide = sync.OnceFunc(func() {
	envs.MustRegister(wideID, envs.NewEntry("Large observations, for tests.", func(struct{}) (wide, error) {
		return wide{}, nil
	}))
})

func (wide) Spec() envs.Spec {
	return envs.Spec{
		ID: wideID, Version: 1, NumActions: wideActions, NumPlayers: 1, RewardLow: -1, RewardHigh: 1,
		Obs: []envs.ArraySpec{{Name: "planes", DType: envs.Float32, Shape: []int{19, 19, 119}, Low: []float64{0},
			High: []float64{1}}},
	}
}

func (wide) Reset(s *wideState, seed uint64) { *s = wideState{Seed: seed} }

func (wide) Step(s *wideState, action int32) envs.Outcome {
	if s.Moves < 100 {
		s.Seed, s.Moves = s.Seed*31+uint64(action)+1, s.Moves+1
	}
	return envs.Outcome{Terminated: s.Moves == 100}
}

func (wide) Observe(s *wideState, row envs.Row) {
	x := s.Seed*2862933555777941757 + 3037000493
	for i, cells := 0, row.Float32(0); i < len(cells); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		cells[i] = float32(x>>56) / 256
	}
}

// wideBatch is what n games of one move each show, and what seen says of that.
func wideBatch(t testing.TB, n int) ([]client.Game, *evaluator.Batch, *evaluator.Output) {
	registerWide()
	env, err := envs.Make(wideID, nil)
	require.NoError(t, err)
	in := &evaluator.Batch{N: n, Spec: env.Spec(), Obs: envs.NewArrays(env.Spec().Obs, n)}
	games := make([]client.Game, n)
	for i := range games {
		games[i] = client.Game{Seed: uint64(i), Actions: []int32{int32(i)}}
		var s wideState
		wide{}.Reset(&s, games[i].Seed)
		wide{}.Step(&s, int32(i))
		wide{}.Observe(&s, envs.RowOf(in.Obs, i))
	}
	out := &evaluator.Output{Logits: make([]float32, n*wideActions), Value: make([]float32, n)}
	require.NoError(t, seen(t.Context(), in, out))
	return games, in, out
}

// requireSameOutput: to the last bit, without a page of numbers where it isn't.
func requireSameOutput(t testing.TB, want, got *evaluator.Output) {
	t.Helper()
	require.Len(t, got.Logits, len(want.Logits))
	require.Equal(t, want.Value, got.Value)
	require.True(t, slices.Equal(want.Logits, got.Logits), "logits")
}

// TestB37LargeMessages: observations and policies of chess, many rows at a time, arrive to the last bit with the
// settings that everybody has.
func TestB37LargeMessages(t *testing.T) {
	_, c := pair(t, server.Config{})
	registerWide()
	attach(t, c, client.Attach{Model: "m"}, evaluator.Func(seen))
	env := client.Env{ID: wideID}

	_, in, want := wideBatch(t, 64)
	require.Equal(t, 10_997_504, len(in.Obs[0].F32)*4)
	began := time.Now()
	got, _, err := c.EvaluateBatch(t.Context(), env, in, "m")
	require.NoError(t, err)
	t.Logf("64 observations in %v", time.Since(began))
	requireSameOutput(t, want, got)

	games, _, want := wideBatch(t, 1024)
	require.Equal(t, 19_136_512, len(want.Logits)*4)
	began = time.Now()
	got, _, err = c.Evaluate(t.Context(), &client.States{Env: env, Games: games}, "m", 0)
	require.NoError(t, err)
	t.Logf("1024 games in %v", time.Since(began))
	requireSameOutput(t, want, got)
}

// TestB37Limits: a limit that can't be is refused at the start; a message of exactly the limit passes, one byte more
// is an error that names the option, and costs nobody anything else.
func TestB37Limits(t *testing.T) {
	for _, n := range []int{-1, 1 << 31, math.MaxInt64} {
		_, err := server.New(server.Config{MaxMessage: n})
		require.Error(t, err, n)
		require.ErrorContains(t, err, "max_message")
		require.ErrorContains(t, err, strconv.Itoa(n))
		require.ErrorContains(t, err, strconv.Itoa(1<<31-1))
	}
	s, err := server.New(server.Config{MaxMessage: 1<<31 - 1})
	require.NoError(t, err)
	s.Close()

	_, at := start(t, server.Config{MaxMessage: mib})
	c, other := dial(t, at, client.Config{NoRetry: true}), dial(t, at, client.Config{NoRetry: true})
	check := checker(t, c, "uniform", evaluator.Uniform{})
	checkOther := checker(t, other, "uniform", evaluator.Uniform{})
	check()
	checkOther()
	stream, err := pb.NewEnvsClient(c.Conn()).Stream(t.Context()) // on the same connection, through it all
	require.NoError(t, err)
	exact := func(n int) *pb.EnvRef { // a message of n bytes, most of it a field that nobody knows
		m := &pb.EnvRef{Id: c4}
		rest := n - proto.Size(m)
		filler := make([]byte, rest-protowire.SizeTag(99)-protowire.SizeVarint(uint64(rest)))
		b := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), filler)
		m.ProtoReflect().SetUnknown(b)
		require.Equal(t, n, proto.Size(m))
		return m
	}
	ec := pb.NewEnvsClient(c.Conn())
	for range 5 {
		_, err = ec.Describe(t.Context(), exact(mib))
		require.NoError(t, err)
		_, err = ec.Describe(t.Context(), exact(mib+1))
		e := wire.From(wire.FromStatus(err))
		require.Equal(t, errcode.TooLarge, e.Code, "%v", err)
		require.ErrorContains(t, e, "max_message")
		check()
		checkOther()
		require.NoError(t, stream.Send(&pb.StreamRequest{}))
		m, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, pb.ErrorCode_ERROR_CODE_INVALID_ARGUMENT, m.GetError().GetCode())
	}
	t.Logf("the error: %v", wire.From(wire.FromStatus(func() error {
		_, err := ec.Describe(t.Context(), exact(mib+1))
		return err
	}())))
}

// TestB37LargeAnswers: an answer over the limit is an error of that call that names the option, and a batch for an
// evaluator over the limit doesn't cost the evaluator its place.
func TestB37LargeAnswers(t *testing.T) {
	_, c := pair(t, server.Config{MaxMessage: mib})
	games, _, want := wideBatch(t, 64)
	env := client.Env{ID: wideID}
	_, _, err := c.Evaluate(t.Context(), &client.States{Env: env, Games: games}, "uniform", 0)
	e := wire.From(err)
	require.Equal(t, errcode.TooLarge, e.Code, "%v", err)
	require.ErrorContains(t, e, "max_message")

	far, served := dial(t, c.Conn().Target(), client.Config{}), make(chan error, 1)
	go func() {
		a := client.Attach{Model: "m", MaxBatch: 256}
		served <- far.ServeEvaluator(context.Background(), a, evaluator.Func(seen))
	}()
	defer func() { // not by attach, which would wait for it to leave again if it was thrown out
		_ = far.Close()
		t.Logf("the evaluator ended: %v", <-served)
	}()
	require.Eventually(t, func() bool { return evaluators(t, c, "m") == 1 }, 5*time.Second, time.Millisecond)
	out, _, err := c.Evaluate(t.Context(), &client.States{Env: env, Games: games[:2]}, "m", 0)
	require.NoError(t, err)
	require.Equal(t, want.Value[:2], out.Value)
	// 2.7 MB go to the evaluator.
	out, _, err = c.Evaluate(t.Context(), &client.States{Env: env, Games: games[:16]}, "m", 0)
	t.Logf("16 rows of 172 kB each, with messages of 1 MiB: %v", err)
	require.EqualValues(t, 1, evaluators(t, c, "m"), "the evaluator stays")
	if err == nil {
		require.Equal(t, want.Value[:16], out.Value)
	} else {
		require.Equal(t, errcode.TooLarge, wire.From(err).Code, "%v", err)
	}
	checker(t, c, "m", evaluator.Func(seen))()
}
