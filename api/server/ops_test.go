package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// brittle is an environment whose code fails: action 1 panics.
type brittle struct{}

type brittleState struct{ Steps int32 }

func (brittle) Spec() envs.Spec {
	return envs.Spec{
		ID: "Brittle-v0", Version: 1, NumActions: 2, NumPlayers: 1, RewardLow: 0, RewardHigh: 1,
		Obs: []envs.ArraySpec{{Name: "steps", DType: envs.Float32, Low: []float64{0}, High: []float64{1e9}}},
	}
}

func (brittle) Reset(s *brittleState, _ uint64) { s.Steps = 0 }

func (brittle) Step(s *brittleState, action int32) envs.Outcome {
	if action == 1 && s.Steps == 0 {
		panic("the simulator fell over")
	}
	s.Steps++
	return envs.Outcome{Reward: 1, Terminated: s.Steps == 20}
}

func (brittle) Observe(s *brittleState, row envs.Row) { row.Float32(0)[0] = float32(s.Steps) }

func registerBrittle() {
	envs.MustRegister("Brittle-v0", envs.NewEntry("Falls over.", func(struct{}) (brittle, error) {
		return brittle{},
			nil
	}))
}

// TestPanics: the code of an environment or of an evaluator fails its own calls, by name, and the server lives.
func TestPanics(t *testing.T) {
	_, c := pair(t, server.Config{})
	p, err := c.Open(t.Context(), client.Env{ID: "Brittle-v0"}, pool.Config{NumEnvs: 3})
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	b := &pool.Batch{EnvID: make([]int32, 3), Failed: make([]bool, 3), Reward: make([]float32, 3)}
	_, err = p.Reset(t.Context(), nil, nil, b)
	require.NoError(t, err)
	n, err := p.Step(t.Context(), []int32{0, 1, 0}, nil, b)
	require.Equal(t, errcode.Panic, wire.From(err).Code, "%v", err)
	require.ErrorContains(t, err, "the simulator fell over")
	require.Equal(t, 3, n, "the others have their results")
	require.Equal(t, []bool{false, true, false}, b.Failed)
	_, err = p.Reset(t.Context(), []int32{1}, nil, b)
	require.NoError(t, err)

	cfg := config(connectFour(t), tree.AlphaZero, 8)
	search := func(env, model string) error {
		_, err := c.Search(t.Context(), &client.Request{
			States: client.States{Env: client.Env{ID: env}, Games: []client.Game{{}}}, Model: model, Config: &cfg,
		})
		return err
	}
	require.Equal(t, errcode.Panic, wire.From(search("Brittle-v0", "uniform")).Code)
	attach(t, c, client.Attach{Model: "m"}, evaluator.Func(func(context.Context, *evaluator.Batch,
		*evaluator.Output) error {
		panic("the device is gone")
	}))
	err = search(c4, "m")
	require.Equal(t, errcode.Evaluator, wire.From(err).Code, "%v", err)
	require.ErrorContains(t, err, "the device is gone")
	require.NoError(t, search(c4, "uniform"))
}

// TestHealthAndReflection: standard clients find out what there is, and what can be used.
func TestHealthAndReflection(t *testing.T) {
	s, c := pair(t, server.Config{})
	health := healthpb.NewHealthClient(c.Conn())
	status := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
		return r.Status
	}
	for _, service := range []string{"", "azserve.v1.Search", "azserve.v1.Envs", "model/uniform"} {
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, status(service), service)
	}
	require.Equal(t, healthpb.HealthCheckResponse_SERVICE_UNKNOWN, status("model/m"))
	stop := attach(t, c, client.Attach{Model: "m"}, evaluator.Func(seen))
	require.Eventually(t, func() bool { return status("model/m") == healthpb.HealthCheckResponse_SERVING },
		time.Second, time.Millisecond)
	_ = stop()
	require.Eventually(t, func() bool { return status("model/m") == healthpb.HealthCheckResponse_NOT_SERVING },
		time.Second, time.Millisecond)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(c.Conn()).ServerReflectionInfo(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}))
	m, err := stream.Recv()
	require.NoError(t, err)
	var names []string
	for _, x := range m.GetListServicesResponse().Service {
		names = append(names, x.Name)
	}
	require.Subset(t, names, []string{"azserve.v1.Envs", "azserve.v1.Search", "azserve.v1.Models", "azserve.v1.Admin"})
	cancel()

	require.True(t, s.Ready())
	watch, err := health.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	go s.Drain(context.Background())
	first, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, first.Status, "health says so before calls are refused")
	<-s.Drained()
	require.False(t, s.Ready())
}

// TestMetricsAndTraces: what was done is counted, and can be followed.
func TestMetricsAndTraces(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	s, c := pair(t, server.Config{Tracing: provider})
	cfg := config(connectFour(t), tree.Gumbel, 20)
	for range 3 {
		_, err := c.Search(t.Context(), &client.Request{
			States: client.States{Env: client.Env{ID: c4}, Games: games(2)}, Model: "uniform", Config: &cfg,
		})
		require.NoError(t, err)
	}
	_, err := c.Search(t.Context(), &client.Request{States: client.States{Env: client.Env{ID: "none"},
		Games: games(1)}})
	require.Error(t, err)
	page := httptest.NewServer(s.Metrics())
	defer page.Close()
	r, err := http.Get(page.URL)
	require.NoError(t, err)
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	for _, line := range []string{
		`azserve_calls_total{code="OK",method="/azserve.v1.Search/Run"} 3`,
		`azserve_calls_total{code="NotFound",method="/azserve.v1.Search/Run"} 1`,
		"azserve_simulations_total 120", "azserve_running 0", `azserve_model_ready{model="uniform"} 1`,
		`azserve_call_seconds_count{method="/azserve.v1.Search/Run"} 4`, "go_goroutines", "process_open_fds",
	} {
		require.Contains(t, string(text), line)
	}
	names := map[string]int{}
	for _, x := range spans.GetSpans() {
		names[x.Name]++
		if x.Name == "azserve.search" {
			require.True(t, x.Parent.IsValid(), "it hangs on the call's span")
		}
	}
	require.Equal(t, 3, names["azserve.search"])
	require.Equal(t, 4, names["azserve.queue"])
	require.Equal(t, 4, names["azserve.v1.Search/Run"])
	stats, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 120, stats.Simulations)
}

// network writes a network with random weights and returns its files.
func network(t *testing.T, env *envs.Env, seed uint64) map[string][]byte {
	cfg := gorgonia.DefaultConfig(env)
	cfg.Hidden = []int{8}
	net, err := gorgonia.NewNet(cfg, seed)
	require.NoError(t, err)
	defer net.Close()
	dir := t.TempDir()
	require.NoError(t, net.Save(dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, e := range entries {
		files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
	}
	return files
}

// TestModels: versions of a model come as files; searches use the active one; what is no model is refused.
func TestModels(t *testing.T) {
	folder := t.TempDir()
	_, c := pair(t, server.Config{Envs: []server.Env{{ID: c4}}, ModelDir: folder, CacheBytes: 1 << 20})
	env := connectFour(t)
	first, err := c.LoadModel(t.Context(), "net", "", network(t, env, 1), true)
	require.NoError(t, err)
	second, err := c.LoadModel(t.Context(), "net", "two", network(t, env, 2), false)
	require.NoError(t, err)
	require.Equal(t, "two", second)
	value := func() float32 {
		out, _, err := c.Evaluate(t.Context(), &client.States{Games: games(1)}, "net", 0)
		require.NoError(t, err)
		cfg := config(env, tree.AlphaZero, 10)
		r, err := c.Search(t.Context(), &client.Request{States: client.States{Games: games(1)}, Model: "net",
			Config: &cfg})
		require.NoError(t, err)
		require.Equal(t, out.Value[0], r.Raw[0])
		return out.Value[0]
	}
	a := value()
	require.NoError(t, c.Activate(t.Context(), "net", "two"))
	b := value()
	require.NotEqual(t, a, b)
	require.NoError(t, c.Activate(t.Context(), "net", first))
	require.Equal(t, a, value())
	models, err := c.Models(t.Context())
	require.NoError(t, err)
	found := false
	for _, m := range models {
		if m.Name == "net" {
			found = true
			require.Equal(t, []string{first, "two"}, m.Versions)
			require.Positive(t, m.Rows)
		}
	}
	require.True(t, found)
	for name, bad := range map[string]func() error{
		"no model": func() error {
			_, err := c.LoadModel(t.Context(), "x", "1",
				map[string][]byte{"config.json": []byte("{}")}, true)
			return err
		},
		"no files": func() error { _, err := c.LoadModel(t.Context(), "x", "1", nil, true); return err },
		"a way out": func() error {
			_, err := c.LoadModel(t.Context(), "../x", "1", network(t, env, 3),
				true)
			return err
		},
		"another way": func() error {
			_, err := c.LoadModel(t.Context(), "x", "..", network(t, env, 3),
				true)
			return err
		},
		"and another": func() error {
			_, err := c.LoadModel(t.Context(), "x", "1", map[string][]byte{"../../x": nil},
				true)
			return err
		},
		"same version": func() error {
			_, err := c.LoadModel(t.Context(), "net", "two", network(t, env, 3),
				true)
			return err
		},
		"built in": func() error {
			_, err := c.LoadModel(t.Context(), "uniform", "1", network(t, env, 3),
				true)
			return err
		},
		"no such one":   func() error { return c.Activate(t.Context(), "net", "three") },
		"no such model": func() error { return c.Activate(t.Context(), "x", "1") },
	} {
		require.Error(t, bad(), name)
	}
	var left []string
	require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, strings.TrimPrefix(path, folder+"/"))
		}
		return err
	}))
	for _, path := range left {
		require.Regexp(t, `^net/`, path, "refused models leave nothing behind")
	}
	require.Equal(t, a, value())

	// The next server has them too, the newest version of each active.
	_, again := pair(t, server.Config{Envs: []server.Env{{ID: c4}}, ModelDir: folder})
	out, _, err := again.Evaluate(t.Context(), &client.States{Games: games(1)}, "net", 0)
	require.NoError(t, err)
	require.Contains(t, []float32{a, b}, out.Value[0])
}
