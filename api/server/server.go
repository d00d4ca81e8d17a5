package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/pool"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// Server serves azserve.v1. Safe for concurrent use.
type Server struct {
	cfg        Config
	grpc       *grpc.Server
	healthOf   *health.Server
	workers    *pool.Workers
	benches    *benches
	pools      *pools
	registry   *registry
	admission  *admission
	metrics    *metrics
	tracer     trace.Tracer
	defaultEnv *envs.Env // nil where there is none
	began      time.Time

	work        atomic.Int64 // calls, and requests of streams, that are being answered
	sessions    atomic.Int64
	simulations atomic.Int64

	draining  atomic.Bool   // new calls are refused
	drain     chan struct{} // closed when streams that have nothing to do shall end
	drainOnce sync.Once
	drained   chan struct{} // closed when everything has ended
	closing   sync.WaitGroup
}

// New makes a server; Serve starts it. Models that are named by the configuration are opened, so that a bad one is an
// error here.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, began: time.Now(), drain: make(chan struct{}), drained: make(chan struct{})}
	var err error
	if s.workers, err = pool.NewWorkers(cfg.Threads); err != nil {
		return nil, err
	}
	s.benches = newBenches(&s.cfg, s.workers)
	s.admission = newAdmission(cfg.MaxConcurrent, cfg.MaxQueue)
	s.metrics = newMetrics(s)
	if s.registry, err = newRegistry(&s.cfg); err == nil {
		err = s.openFirst()
	}
	if err != nil {
		s.benches.close()
		s.workers.Close()
		return nil, err
	}
	s.pools = newPools(&s.cfg)
	tracing := cfg.Tracing
	if tracing == nil {
		tracing = noop.NewTracerProvider()
	}
	s.tracer = tracing.Tracer("github.com/azserve/azserve/api/server")
	s.serve()
	return s, nil
}

// openFirst makes the default environment, and opens all models for it.
func (s *Server) openFirst() (err error) {
	for i := range s.cfg.Envs {
		env, err := s.benches.make(&pb.EnvRef{Id: s.cfg.Envs[i].ID})
		if err != nil {
			return err
		}
		if i == 0 {
			s.defaultEnv = env
		}
	}
	if s.defaultEnv == nil {
		return nil
	}
	return s.registry.open(s.defaultEnv)
}

// serve makes the gRPC server. The defaults of grpc-go are for friends: unlimited streams, connections that live for
// ever, pings every two hours.
func (s *Server) serve() {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(s.cfg.MaxMessage), grpc.MaxSendMsgSize(s.cfg.MaxMessage), grpc.MaxConcurrentStreams(1024),
		grpc.MaxHeaderListSize(16 << 10), grpc.ConnectionTimeout(5 * time.Second), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second, MaxConnectionAge: s.cfg.ConnectionAge,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.InTapHandle(s.tap), grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
		grpc.StatsHandler(&connections{}),
	}
	if s.cfg.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.cfg.TLS)))
	}
	if s.cfg.Tracing != nil {
		options = append(options,
			grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(s.cfg.Tracing))))
	}
	s.grpc = grpc.NewServer(options...)
	pb.RegisterEnvsServer(s.grpc, &envService{Server: s})
	pb.RegisterSearchServer(s.grpc, &searchService{Server: s})
	pb.RegisterModelsServer(s.grpc, &modelService{Server: s})
	pb.RegisterAdminServer(s.grpc, &adminService{Server: s})
	s.metrics.methods = map[string]bool{}
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			s.metrics.methods["/"+service+"/"+m.Name] = true
		}
	}
	s.healthOf = health.NewServer()
	healthpb.RegisterHealthServer(s.grpc, s.healthOf)
	reflection.Register(s.grpc)
	s.health()
}

// health says what can be used: "" and the services as long as the server doesn't drain, and "model/NAME" while a
// model can evaluate.
func (s *Server) health() {
	if s.draining.Load() {
		return
	}
	for _, name := range []string{"", "azserve.v1.Envs", "azserve.v1.Search", "azserve.v1.Models", "azserve.v1.Admin"} {
		s.healthOf.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	for _, name := range s.registry.names() {
		status := healthpb.HealthCheckResponse_NOT_SERVING
		if s.registry.ready(name) {
			status = healthpb.HealthCheckResponse_SERVING
		}
		s.healthOf.SetServingStatus("model/"+name, status)
	}
}

// Ready says that the server isn't draining, and that its default model can evaluate.
func (s *Server) Ready() bool { return !s.draining.Load() && s.registry.ready(s.registry.first) }

// Listen opens an address: host:port, or unix:PATH. A socket that a dead server left is replaced; one that answers,
// or a file that is no socket, is an error.
func Listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	path = strings.TrimPrefix(path, "//")
	l, err := net.Listen("unix", path)
	if err == nil {
		return l, nil
	}
	info, statErr := os.Stat(path)
	if statErr != nil {
		return nil, err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is a file and no socket; want another path", path)
	}
	if c, dialErr := net.Dial("unix", path); dialErr == nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: another server listens there", path)
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// Serve answers calls on a listener until the server is closed. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Drain ends the server in good order, within the grace time: it says that it isn't serving, refuses new calls, lets
// what is in progress end, then closes. It returns when all has ended; ctx may end that sooner.
func (s *Server) Drain(ctx context.Context) {
	s.drainFor(s.cfg.Grace)
	select {
	case <-s.drained:
	case <-ctx.Done():
		s.grpc.Stop()
		<-s.drained
	}
}

// Drained is closed when a drain has ended: after that there is no server any more.
func (s *Server) Drained() <-chan struct{} { return s.drained }

func (s *Server) drainFor(grace time.Duration) {
	s.drainOnce.Do(func() {
		s.cfg.Log.Info("draining", "grace", grace)
		s.healthOf.Shutdown()
		s.closing.Go(func() { s.runDrain(grace) })
	})
}

func (s *Server) runDrain(grace time.Duration) {
	time.Sleep(s.cfg.Delay)
	s.draining.Store(true)
	close(s.drain)
	for end := time.Now().Add(grace); s.work.Load() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	s.finish()
}

// finish ends everything that is left.
func (s *Server) finish() {
	if n := s.work.Load(); n > 0 {
		s.cfg.Log.Warn("the grace time is over", "calls_cut_off", n)
	}
	s.admission.close()
	s.registry.cutOff()
	stopped := make(chan struct{})
	s.closing.Go(func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	})
	select {
	case <-stopped:
	case <-time.After(500 * time.Millisecond): // answers under way get that long
		s.grpc.Stop()
		<-stopped
	}
	s.pools.closeAll()
	s.registry.close()
	s.benches.close()
	s.workers.Close()
	s.cfg.Log.Info("stopped")
	close(s.drained)
}

// Close ends the server at once: calls in progress fail. A second call only waits.
func (s *Server) Close() {
	first := false
	s.drainOnce.Do(func() {
		first = true
		s.draining.Store(true)
		close(s.drain)
		s.healthOf.Shutdown()
	})
	s.grpc.Stop()
	if first {
		s.finish()
	}
	<-s.drained
	s.closing.Wait()
}
