package server_test

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/stretchr/testify/require"
)

// TestAbuseBounds: the bound of pools holds for calls at the same time too; a grace time that is no number doesn't
// end the server; evaluators that are refused leave no models behind.
func TestAbuseBounds(t *testing.T) {
	t.Run("pools at the same time", func(t *testing.T) {
		_, c := pair(t, server.Config{MaxClientPools: 4})
		ec := pb.NewEnvsClient(c.Conn())
		var opened, refused atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				_, err := ec.Open(t.Context(), &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 60_000})
				if err == nil {
					opened.Add(1)
				} else if wire.From(wire.FromStatus(err)).Code == errcode.Budget {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		t.Logf("%d opened, %d refused; 4 are allowed", opened.Load(), refused.Load())
		require.EqualValues(t, 64, opened.Load()+refused.Load())
		require.LessOrEqual(t, opened.Load(), int64(4))
	})
	t.Run("grace that is no number", func(t *testing.T) {
		_, c := pair(t, server.Config{})
		_, err := pb.NewAdminClient(c.Conn()).Drain(t.Context(), &pb.DrainRequest{Grace: math.NaN()})
		require.Equal(t, errcode.InvalidArgument, wire.From(wire.FromStatus(err)).Code, "%v", err)
		st, err := c.Stats(t.Context())
		require.NoError(t, err)
		require.False(t, st.Draining)
	})
	t.Run("evaluators that don't attach", func(t *testing.T) {
		_, c := pair(t, server.Config{})
		models, err := c.Models(t.Context())
		require.NoError(t, err)
		before := len(models)
		for i := range 100 {
			name := fmt.Sprint("model", i)
			err := c.ServeEvaluator(t.Context(), client.Attach{Model: name, MaxBatch: -1}, evaluator.Func(seen))
			require.ErrorContains(t, err, "max_batch=-1")
			require.Equal(t, errcode.InvalidArgument, wire.From(err).Code, "%v", err)
		}
		models, err = c.Models(t.Context())
		require.NoError(t, err)
		require.Len(t, models, before, "models of evaluators that were refused")
	})
}
