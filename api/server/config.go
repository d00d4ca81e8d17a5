package server

import (
	"crypto/tls"
	"log/slog"
	"runtime"
	"time"

	"github.com/azserve/azserve/api/wire"
	"go.opentelemetry.io/otel/trace"
)

// Config is a server's settings. The zero value of a field means its default.
type Config struct {
	Envs     []Env   // that may be used, the first being the default; none: all, and no default
	Models   []Model // evaluators of files, the first being the default; none: "uniform" is
	ModelDir string  // where models that are sent are kept; default: a temporary folder
	Files    bool    // keywords of environments may name files of this machine

	Threads int // that search and step, default: the CPUs

	// Bounds of what callers may ask for. What goes beyond is refused, with the bound in the message.
	MaxMessage     int           // bytes of a message in either direction; default 64 MiB
	MaxConcurrent  int           // searches and evaluations at a time; default 256
	MaxQueue       int           // that wait for their turn beside those; default 1024
	MaxNodes       int           // rows * (simulations + 1) of a search; default 2^20
	MaxSessions    int           // open at a time; default 4096
	MaxPools       int           // open at a time; default 1024
	MaxClientPools int           // of one client; default 64
	MaxStates      int           // of a pool, or of all searches in one environment; default 2^22
	MaxBytes       int64         // the same in bytes of states; default 4 GiB
	MaxEnvs        int           // environments of a pool; default 65536
	SessionIdle    time.Duration // that a session stays without a request; default 10 min
	Lease          time.Duration // that a pool stays without a call; default 60 s

	// Batches of evaluators.
	MaxBatch         int           // rows; default 256
	MaxWait          time.Duration // of a row for others; default 2 ms
	CacheBytes       int           // of evaluations, for each model in each environment; default 0: none
	Streams          int           // batches of a model in a file at a time; default: Threads
	EvaluatorTimeout time.Duration // of an attached evaluator for a batch; default 5 s
	EvaluatorGrace   time.Duration // that a search waits for an evaluator to attach; default 1 s

	// ConnectionAge is how long a connection lives before its client is asked to make another, so that clients spread
	// over new servers; streams go on to their end. Default 0: for ever.
	ConnectionAge time.Duration

	Grace time.Duration // that what is in progress gets when the server drains; default 30 s
	Delay time.Duration // between "not serving" and refusing calls, for balancers to notice; default 0

	TLS     *tls.Config // nil: plain text; see LoadTLS
	Tokens  *Tokens     // nil: everybody may do everything; see LoadTokens
	Log     *slog.Logger
	Tracing trace.TracerProvider // nil: no traces
}

// Env is an environment that may be used, with keywords as JSON values. Callers may not give others then.
type Env struct {
	ID       string
	Keywords map[string]string
}

// Model is an evaluator of a file under a name.
type Model struct {
	Name      string
	Evaluator string // as package evaluator/named has it
}

func (c Config) withDefaults() Config {
	def(&c.Threads, runtime.GOMAXPROCS(0))
	def(&c.MaxMessage, 64<<20)
	def(&c.MaxConcurrent, 256)
	def(&c.MaxQueue, 1024)
	def(&c.MaxNodes, 1<<20)
	def(&c.MaxSessions, 4096)
	def(&c.MaxPools, 1024)
	def(&c.MaxClientPools, 64)
	def(&c.MaxStates, 1<<22)
	def(&c.MaxBytes, 4<<30)
	def(&c.MaxEnvs, 1<<16)
	def(&c.Lease, time.Minute)
	def(&c.SessionIdle, 10*time.Minute)
	def(&c.MaxBatch, 256)
	def(&c.MaxWait, 2*time.Millisecond)
	def(&c.Streams, c.Threads)
	def(&c.EvaluatorTimeout, 5*time.Second)
	def(&c.EvaluatorGrace, time.Second)
	def(&c.Grace, 30*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func def[T comparable](x *T, value T) {
	var zero T
	if *x == zero {
		*x = value
	}
}

func (c *Config) validate() error {
	for _, x := range []struct {
		name  string
		value int64
		most  int64
	}{
		{"threads", int64(c.Threads), 1 << 16},
		{"max_message", int64(c.MaxMessage), 1<<31 - 1},
		{"max_concurrent", int64(c.MaxConcurrent), 1 << 20},
		{"max_queue", int64(c.MaxQueue), 1 << 20},
		{"max_nodes", int64(c.MaxNodes), 1 << 31},
		{"max_sessions", int64(c.MaxSessions), 1 << 20},
		{"max_pools", int64(c.MaxPools), 1 << 20},
		{"max_client_pools", int64(c.MaxClientPools), 1 << 20},
		{"max_states", int64(c.MaxStates), 1 << 24},
		{"max_bytes", c.MaxBytes, 1 << 62},
		{"max_envs", int64(c.MaxEnvs), 1 << 24},
		{"lease", int64(c.Lease), 1 << 62},
		{"session_idle", int64(c.SessionIdle), 1 << 62},
		{"max_batch", int64(c.MaxBatch), 1 << 20},
		{"streams", int64(c.Streams), 1 << 10},
	} {
		if x.value < 1 || x.value > x.most {
			return wire.Bad(x.name, "is %d; want 1 to %d", x.value, x.most)
		}
	}
	return nil
}
