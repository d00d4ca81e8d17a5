package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/evaluator/named"
	"github.com/azserve/azserve/pool"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace"
)

// serveFlags are the settings of a server.
type serveFlags struct {
	envFlags
	config                       server.Config
	envs, models, listen         []string
	tokens, cert, key, clientCA  string
	metrics, profile, logs       string
	logLevel, readyFile          string
	maxMessage, maxBytes, caches int // MiB
	traces                       bool
}

func newServe() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve searches, environments and models over gRPC",
		Long: `Serve searches, environments and models over gRPC (azserve.v1), with health, reflection and metrics.

Models are files (--model), or evaluators that attach (azserve.serve_evaluator in Python). SIGTERM or Ctrl-C
drains: the health service says NOT_SERVING, new calls are refused, what is in progress ends; a second one ends
the server at once.

A file of --tokens has a client a line: NAME ROLES TOKEN [RATE]. ROLES is client, evaluator or admin, or several
of them with commas; TOKEN the secret, or sha256:HASH; RATE is calls a second. Tokens and certificates are read
again when their files change.`,
		Example: "  azserve serve --env ConnectFour-v0 --model onnx:c4.onnx\n" +
			"  azserve serve --listen unix:/run/azserve.sock --listen :50051 --tokens tokens.txt --tls-cert cert.pem " +
			"--tls-key key.pem",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.ErrOrStderr()) },
	}
	f.add(cmd)
	fl, c := cmd.Flags(), &f.config
	fl.StringArrayVar(&f.envs, "env", nil,
		"environment that may be used, the first is the default; may be repeated; none: all. --env-arg is for the "+
			"only one")
	fl.StringArrayVar(&f.models, "model", nil,
		"model as [NAME=]EVALUATOR ("+named.Known+"), the first is the default; may be repeated")
	fl.StringVar(&c.ModelDir, "model-dir", "", "folder of models that clients send; default: a temporary one")
	fl.StringArrayVar(&f.listen, "listen", []string{"127.0.0.1:50051"},
		"address: HOST:PORT or unix:PATH; may be repeated")
	fl.StringVar(&f.tokens, "tokens", "",
		"file of the tokens that clients must have; none: everybody may do everything")
	fl.StringVar(&f.cert, "tls-cert", "", "certificate, PEM; with --tls-key: TLS 1.3")
	fl.StringVar(&f.key, "tls-key", "", "private key of the certificate, PEM")
	fl.StringVar(&f.clientCA, "tls-client-ca", "", "certificates, PEM, one of which must have signed a client's")
	fl.StringVar(&f.metrics, "metrics", "", "address of /metrics for Prometheus, and of /healthz; none: no such page")
	fl.StringVar(&f.profile, "pprof", "", "address of /debug/pprof; none: no such page. Keep it to yourself")
	fl.StringVar(&f.logs, "log", "text", "form of the log on standard error: text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug (every call), info, warn or error")
	fl.BoolVar(&f.traces, "traces", false, "send OpenTelemetry traces where OTEL_EXPORTER_OTLP_ENDPOINT says")
	fl.StringVar(&f.readyFile, "ready-file", "",
		"write the addresses to this file, one a line, when the server can be called")
	fl.IntVar(&f.maxMessage, "max-message", 64,
		"most MiB of a message in either direction; clients have a limit of their own")
	fl.IntVar(&c.MaxConcurrent, "max-concurrent", 256, "searches and evaluations at a time")
	fl.IntVar(&c.MaxQueue, "max-queue", 1024, "searches and evaluations that wait beside those; more are refused")
	fl.IntVar(&c.MaxNodes, "max-nodes", 1<<20, "most nodes of a search: rows * (simulations + 1)")
	fl.IntVar(&c.MaxSessions, "max-sessions", 4096, "search sessions that are open at a time")
	fl.IntVar(&c.MaxPools, "max-pools", 1024, "pools that are open at a time")
	fl.IntVar(&c.MaxClientPools, "max-client-pools", 64, "pools of one client")
	fl.IntVar(&c.MaxStates, "max-states", 1<<22, "states of a pool, and of all searches in one environment")
	fl.IntVar(&f.maxBytes, "max-bytes", 4096, "the same in MiB of states")
	fl.DurationVar(&c.SessionIdle, "session-idle", 10*time.Minute, "that a session stays without a request")
	fl.DurationVar(&c.Lease, "lease", time.Minute, "that a pool stays without a call of its client")
	fl.IntVar(&c.MaxBatch, "max-batch", 256, "rows of an evaluator's batch")
	fl.DurationVar(&c.MaxWait, "max-wait", 2*time.Millisecond, "that a row waits for others to fill a batch")
	fl.IntVar(&f.caches, "cache", 0, "MiB of evaluations to remember, for each model in each environment")
	fl.DurationVar(&c.EvaluatorTimeout, "evaluator-timeout", 5*time.Second,
		"that an attached evaluator has for a batch; a slower one is cut off")
	fl.DurationVar(&c.EvaluatorGrace, "evaluator-grace", time.Second,
		"that searches wait where no evaluator is attached")
	fl.DurationVar(&c.ConnectionAge, "connection-age", 0,
		"that a connection lives before its client makes another, to spread over new servers; 0: for ever")
	fl.DurationVar(&c.Grace, "grace", 30*time.Second, "that what is in progress gets when the server drains")
	fl.DurationVar(&c.Delay, "drain-delay", 0,
		"between NOT_SERVING and the first refused call, for balancers to notice")
	return cmd
}

func (f *serveFlags) run(ctx context.Context, w io.Writer) (err error) {
	if err := f.fill(w); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	stopTraces, err := f.trace(ctx)
	if err != nil {
		return err
	}
	defer stopTraces()
	s, err := server.New(f.config)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	defer s.Close()
	pages, err := f.pages(s)
	if err != nil {
		return err
	}
	defer pages()
	var listeners []net.Listener
	for _, address := range f.listen {
		l, err := server.Listen(address)
		if err != nil {
			return fmt.Errorf("--listen %s: %w", address, err)
		}
		listeners = append(listeners, l)
	}
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer s.Close()
	for _, l := range listeners {
		serving.Go(func() { failed <- s.Serve(l) })
	}
	if err := f.ready(listeners); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.Drained(): // somebody called Drain
		return nil
	case err := <-failed:
		return err
	}
	// The second signal ends it at once.
	again, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s.Drain(again)
	return nil
}

// fill makes the configuration of the flags.
func (f *serveFlags) fill(w io.Writer) (err error) {
	c := &f.config
	if c.Threads, err = pool.Threads(f.threads, 0); err != nil {
		return err
	}
	c.MaxMessage, c.MaxBytes, c.CacheBytes = f.maxMessage<<20, int64(f.maxBytes)<<20, f.caches<<20
	kw, err := keywords("env-arg", f.args)
	if err != nil {
		return err
	}
	if len(kw) > 0 && len(f.envs) != 1 {
		return fmt.Errorf("--env-arg with %d --env; want it with one", len(f.envs))
	}
	for _, id := range f.envs {
		e := server.Env{ID: id, Keywords: map[string]string{}}
		for name, value := range kw {
			e.Keywords[name] = string(value)
		}
		c.Envs = append(c.Envs, e)
	}
	for _, text := range f.models {
		name, evaluator, ok := strings.Cut(text, "=")
		if !ok || strings.ContainsAny(name, ":/?") { // the = is of a setting of the evaluator
			name, evaluator = "default", text
		}
		c.Models = append(c.Models, server.Model{Name: name, Evaluator: evaluator})
	}
	if c.Log, err = f.logger(w); err != nil {
		return err
	}
	if f.tokens != "" {
		if c.Tokens, err = server.LoadTokens(f.tokens); err != nil {
			return fmt.Errorf("--tokens: %w", err)
		}
	}
	switch {
	case f.cert != "" && f.key != "":
		if c.TLS, err = server.LoadTLS(f.cert, f.key, f.clientCA); err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
	case f.cert != "" || f.key != "" || f.clientCA != "":
		return errors.New("--tls-cert and --tls-key go together, and --tls-client-ca needs both")
	}
	return nil
}

func (f *serveFlags) logger(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %s; want debug, info, warn or error", f.logLevel)
	}
	options.Level = level
	switch f.logs {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log %s; want text or json", f.logs)
}

// trace sends traces if they are wanted; the standard variables of OpenTelemetry say where and how.
func (f *serveFlags) trace(ctx context.Context) (stop func(), err error) {
	if !f.traces {
		return func() {}, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	f.config.Tracing = provider
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			f.config.Log.Warn("traces were lost", "error", err)
		}
	}, nil
}

// pages serves metrics and profiles, each on its own address.
func (f *serveFlags) pages(s *server.Server) (stop func(), err error) {
	var servers []*http.Server
	var done sync.WaitGroup
	stop = func() {
		for _, h := range servers {
			_ = h.Close()
		}
		done.Wait()
	}
	serve := func(address string, pages *http.ServeMux) error {
		if address == "" {
			return nil
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		f.config.Log.Info("pages", "address", l.Addr().String())
		h := &http.Server{Handler: pages, ReadHeaderTimeout: 5 * time.Second}
		servers = append(servers, h)
		done.Go(func() { _ = h.Serve(l) }) // it ends with an error of its own, when it is closed
		return nil
	}
	metrics := http.NewServeMux()
	metrics.Handle("/metrics", s.Metrics())
	metrics.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.Ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, map[bool]string{true: "ok", false: "not ready"}[s.Ready()])
	})
	profile := http.NewServeMux()
	profile.HandleFunc("/debug/pprof/", pprof.Index)
	profile.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	profile.HandleFunc("/debug/pprof/profile", pprof.Profile)
	profile.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	profile.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if err = serve(f.metrics, metrics); err != nil {
		err = fmt.Errorf("--metrics: %w", err)
	} else if err = serve(f.profile, profile); err != nil {
		err = fmt.Errorf("--pprof: %w", err)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// ready says where the server is.
func (f *serveFlags) ready(listeners []net.Listener) error {
	var text strings.Builder
	for _, l := range listeners {
		address := l.Addr().String()
		if l.Addr().Network() == "unix" {
			address = "unix:" + address
		}
		f.config.Log.Info("serving", "address", address, "tls", f.config.TLS != nil, "tokens", f.config.Tokens != nil)
		text.WriteString(address + "\n")
	}
	if f.readyFile == "" {
		return nil
	}
	return os.WriteFile(f.readyFile, []byte(text.String()), 0o644)
}
