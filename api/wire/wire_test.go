package wire_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/internal/fault"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// TestSettingsAreAllThere: the message has each setting of a search by its name, and no others.
func TestSettingsAreAllThere(t *testing.T) {
	var names []string
	fields := (&pb.SearchSettings{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	require.ElementsMatch(t, search.Settings(), names)
}

// TestSettings: there and back, all settings are what they were; what isn't set is the policy's default.
func TestSettings(t *testing.T) {
	env, err := envs.Make("ConnectFour-v0", nil)
	require.NoError(t, err)
	for _, policy := range tree.Policies {
		want := search.Default(policy, env.Spec())
		want.NumSimulations, want.LCB, want.FPU, want.Solve, want.MaxBytes = 77, 5, tree.FPUAbsolute, true, 12345
		m, err := wire.Settings(&want)
		require.NoError(t, err)
		got, err := wire.Config(m, env.Spec())
		require.NoError(t, err)
		require.Equal(t, want, got)
		name := string(policy)
		got, err = wire.Config(&pb.SearchSettings{Policy: &name}, env.Spec())
		require.NoError(t, err)
		require.Equal(t, search.Default(policy, env.Spec()), got)
	}
	nan := float32(math.NaN())
	_, err = wire.Config(&pb.SearchSettings{PbCInit: &nan}, env.Spec())
	require.ErrorIs(t, err, search.ErrConfig)
	require.ErrorContains(t, err, "pb_c_init")
}

// TestCodes: an error has one number in Go, on the wire and in Python.
func TestCodes(t *testing.T) {
	data, err := os.ReadFile("../../python/src/azserve/_errors.py")
	require.NoError(t, err)
	python := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^    (\d+): \w+,$`).FindAllSubmatch(data, -1) {
		n, err := strconv.Atoi(string(m[1]))
		require.NoError(t, err)
		python[n] = true
	}
	require.Equal(t, int(errcode.TooLarge), len(pb.ErrorCode_name)-1)
	for n := range int(errcode.TooLarge) {
		require.Contains(t, pb.ErrorCode_name, int32(n+1))
		require.True(t, python[n+1] || errcode.Code(n+1) == errcode.Other, "Python has no class for %d", n+1)
	}
	for code, text := range map[errcode.Code]string{
		errcode.StaleState: "STALE_STATE", errcode.Action: "ACTION", errcode.Evaluator: "EVALUATOR",
		errcode.CallOrder: "CALL_ORDER", errcode.Overloaded: "OVERLOADED", errcode.TooLarge: "TOO_LARGE",
	} {
		require.Equal(t, "ERROR_CODE_"+text, pb.ErrorCode(code).String())
	}
}

// TestErrors: over the wire an error keeps its kind, field, row and hint.
func TestErrors(t *testing.T) {
	for _, err := range []error{
		statestore.ErrStale, statestore.ErrBudget, search.ErrAction, search.ErrEvaluator, search.ErrConfig, pool.ErrBusy,
		envs.ErrUnknownEnv, envs.ErrBadState, envs.ErrNoFactors,
	} {
		here := wire.At("there", fmt.Errorf("%w: %w: it can't be", err, fault.RowError(7)))
		over := wire.FromStatus(wire.Status(here))
		require.ErrorIs(t, over, err)
		e := wire.From(over)
		require.Equal(t, "there", e.Path)
		require.Equal(t, 7, e.Row)
		require.Equal(t, errcode.Of(err), e.Code)
		require.ErrorContains(t, over, "it can't be")
	}
	busy := wire.New(errcode.Overloaded, "full")
	busy.RetryAfter = 30 * time.Millisecond
	e := wire.From(wire.FromStatus(wire.Status(busy)))
	require.True(t, e.Retryable())
	require.Equal(t, 30*time.Millisecond, e.RetryAfter)
	require.Len(t, status.Convert(wire.Status(busy)).Details(), 2, "azserve's error and google.rpc.RetryInfo")
	require.NoError(t, wire.Status(nil))
	require.NoError(t, wire.FromStatus(nil))
	require.Equal(t, errcode.Other, wire.From(errors.New("who knows")).Code)
}

func TestTensors(t *testing.T) {
	x := []float32{1, 2, 3, 4, 5, 6}
	got, err := wire.Read[float32]("x", wire.Of(x, 2, 3), wire.Any, 3)
	require.NoError(t, err)
	require.Equal(t, x, got)
	_, err = wire.Read[float32]("x", nil, 2)
	require.NoError(t, err)
	for name, bad := range map[string]*pb.Tensor{
		"another type":    wire.Of([]int32{1, 2, 3, 4, 5, 6}, 2, 3),
		"another shape":   wire.Of(x, 3, 2),
		"other dimension": wire.Of(x, 6),
		"few bytes":       {Dtype: pb.DType_DTYPE_FLOAT32, Shape: []int64{2, 3}, Data: make([]byte, 23)},
		"negative":        {Dtype: pb.DType_DTYPE_FLOAT32, Shape: []int64{-2, -3}, Data: make([]byte, 24)},
		"overflow":        {Dtype: pb.DType_DTYPE_FLOAT32, Shape: []int64{1 << 62, 3}, Data: make([]byte, 24)},
		"unknown type":    {Dtype: 99, Shape: []int64{2, 3}, Data: make([]byte, 24)},
	} {
		_, err := wire.Read[float32]("x.y", bad, wire.Any, 3)
		require.Equal(t, errcode.InvalidArgument, wire.From(err).Code, name)
		require.Equal(t, "x.y", wire.From(err).Path, name)
	}
	_, err = wire.Read[bool]("x", &pb.Tensor{Dtype: pb.DType_DTYPE_BOOL, Shape: []int64{2}, Data: []byte{1, 2}}, 2)
	require.ErrorContains(t, err, "want 0 or 1")
	odd := make([]byte, 25) // not aligned: it is copied
	odd[1] = 7
	ints, err := wire.Read[uint64]("x", &pb.Tensor{Dtype: pb.DType_DTYPE_UINT64, Shape: []int64{3}, Data: odd[1:]}, 3)
	require.NoError(t, err)
	require.Equal(t, []uint64{7, 0, 0}, ints)
}

func FuzzTensor(f *testing.F) {
	valid, _ := proto.Marshal(wire.Of([]float32{1, 2, 3, 4}, 2, 2))
	f.Add(valid)
	f.Fuzz(func(t *testing.T, data []byte) {
		var m pb.Tensor
		if proto.Unmarshal(data, &m) != nil {
			t.Skip()
		}
		if x, err := wire.Read[float32]("x", &m, wire.Any, wire.Any); err == nil {
			require.EqualValues(t, len(x), m.Shape[0]*m.Shape[1])
		}
		_, _ = wire.Read[bool]("x", &m, wire.Any)
		_, _ = wire.Read[uint64]("x", &m, wire.Any, 3, wire.Any)
	})
}
