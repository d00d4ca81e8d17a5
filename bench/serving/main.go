// Command serving measures the service against a bare grpc-go echo of the same bytes, in one process with it, and how
// busy a remote evaluator is kept. It writes lines of JSON, for bench.py.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
)

const env = "ConnectFour-v0"

func main() {
	seconds := flag.Float64("seconds", 1, "of each measurement")
	flag.Parse()
	if err := run(time.Duration(*seconds * float64(time.Second))); err != nil {
		fmt.Fprintln(os.Stderr, "serving:", err)
		os.Exit(1)
	}
}

// line is one measurement: times of a call in microseconds, or rates a second.
type line struct {
	What          string  `json:"what"`
	Ours          float64 `json:"ours"`
	OursP99       float64 `json:"ours_p99,omitempty"`
	Peer          float64 `json:"peer,omitempty"`
	PeerP99       float64 `json:"peer_p99,omitempty"`
	Unit          string  `json:"unit"`
	Request, Size int     `json:",omitempty"` // bytes of the request and of the answer
}

func say(l line) { _ = json.NewEncoder(os.Stdout).Encode(l) }

func run(each time.Duration) error {
	folder, err := os.MkdirTemp("", "azserve-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	for _, network := range []string{"tcp", "unix"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(folder, "s")
		}
		if err := calls(network, address, each); err != nil {
			return err
		}
	}
	return utilisation(each)
}

// serve starts a server of ours; target is for clients.
func serve(network, address string) (s *server.Server, target string, err error) {
	if s, err = server.New(server.Config{EvaluatorTimeout: time.Minute}); err != nil {
		return nil, "", err
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, "", err
	}
	go func() { _ = s.Serve(l) }() // ends with Close
	return s, targetOf(l), nil
}

func targetOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// request is a search of one position, with 32 simulations.
func request() *client.Request {
	return &client.Request{
		States: client.States{Env: client.Env{ID: env}, Games: []client.Game{{Actions: []int32{3, 3, 2}}}},
		Model:  "uniform",
	}
}

// calls measures round trips and throughput over one kind of socket.
func calls(network, address string, each time.Duration) error {
	s, target, err := serve(network, address)
	if err != nil {
		return err
	}
	defer s.Close()
	sizes := &sizes{}
	c, err := client.Dial(target, client.Config{Dial: []grpc.DialOption{grpc.WithStatsHandler(sizes)}})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	echoed, stop, err := echo(network, address+"e")
	if err != nil {
		return err
	}
	defer stop()
	p, err := c.Open(context.Background(), client.Env{ID: env}, pool.Config{NumEnvs: 64})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	works, err := ourCalls(c, p)
	if err != nil {
		return err
	}
	for _, w := range works {
		sizes.largest()
		if err := w.call(); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		in, out := sizes.largest()
		bare, err := newEcho(echoed, in, out)
		if err != nil {
			return err
		}
		l := line{What: w.name + ", " + network, Unit: "us", Request: in, Size: out}
		if l.Ours, l.OursP99, l.Peer, l.PeerP99, err = turns(w.call, bare.call, each); err != nil {
			return err
		}
		say(l)
		bare.close()
	}
	return throughput(network, target, echoed, each, sizes)
}

type work struct {
	name string
	call func() error
}

// ourCalls are the calls whose round trips are measured.
func ourCalls(c *client.Client, p *client.Pool) ([]work, error) {
	ctx := context.Background()
	n, spec := 64, p.Env().Spec()
	b := &pool.Batch{EnvID: make([]int32, n), Reward: make([]float32, n), Terminated: make([]bool, n)}
	if _, err := p.Reset(ctx, nil, nil, b); err != nil {
		return nil, err
	}
	states, err := p.Snapshot(ctx, nil)
	if err != nil {
		return nil, err
	}
	actions := make([]int32, n)
	steps := &statestore.Steps{Children: make([]int32, n), Reward: make([]float32, n)}
	moves := 0
	r := request()
	return []work{
		{"search, 1 row, 32 simulations", func() error { _, err := c.Search(ctx, r); return err }},
		{"step, 64 environments", func() error {
			for i := range actions {
				actions[i] = int32((moves + i) % spec.NumActions)
			}
			if moves++; moves%6 == 0 { // columns hold six
				_, err := p.Reset(ctx, nil, nil, b)
				return err
			}
			_, err := p.Step(ctx, actions, nil, b)
			return err
		}},
		{"simulate_batch, then release, 64 states", func() error {
			if err := p.Simulate(ctx, states, actions, steps); err != nil {
				return err
			}
			return p.Release(ctx, steps.Children)
		}},
	}, nil
}

// turns measures two calls in turn: medians and 99th percentiles, in microseconds.
func turns(ours, peer func() error, each time.Duration) (a50, a99, b50, b99 float64, err error) {
	var a, b []float64
	for end := time.Now().Add(2 * each); time.Now().Before(end); {
		for _, x := range []struct {
			call  func() error
			times *[]float64
		}{{ours, &a}, {peer, &b}} {
			for range 20 {
				began := time.Now()
				if err := x.call(); err != nil {
					return 0, 0, 0, 0, err
				}
				*x.times = append(*x.times, float64(time.Since(began).Nanoseconds())/1e3)
			}
		}
	}
	a50, a99 = quantiles(a)
	b50, b99 = quantiles(b)
	return a50, a99, b50, b99, nil
}

func quantiles(x []float64) (p50, p99 float64) {
	slices.Sort(x)
	return x[len(x)/2], x[len(x)*99/100]
}

// throughput measures calls a second of several clients, each with a connection of its own.
func throughput(network, target, echoed string, each time.Duration, sizes *sizes) error {
	for _, n := range []int{1, 8, 64} {
		var ours, peers []func() error
		var ends []func()
		for range n {
			c, err := client.Dial(target, client.Config{})
			if err != nil {
				return err
			}
			r := request()
			ours = append(ours, func() error { _, err := c.Search(context.Background(), r); return err })
			in, out := sizes.search()
			e, err := newEcho(echoed, in, out)
			if err != nil {
				return err
			}
			peers = append(peers, e.call)
			ends = append(ends, func() { _ = c.Close(); e.close() })
		}
		l := line{What: fmt.Sprintf("searches a second, %d clients, %s", n, network), Unit: "1/s"}
		for range 2 {
			a, err := rate(ours, each/2)
			if err != nil {
				return err
			}
			b, err := rate(peers, each/2)
			if err != nil {
				return err
			}
			l.Ours, l.Peer = max(l.Ours, a), max(l.Peer, b)
		}
		say(l)
		for _, end := range ends {
			end()
		}
	}
	return nil
}

// rate makes calls side by side, and returns how many a second.
func rate(calls []func() error, length time.Duration) (float64, error) {
	var count atomic.Int64
	var failed atomic.Value
	var done sync.WaitGroup
	began := time.Now()
	for _, call := range calls {
		done.Go(func() {
			for time.Since(began) < length {
				if err := call(); err != nil {
					failed.Store(err)
					return
				}
				count.Add(1)
			}
		})
	}
	done.Wait()
	if err, ok := failed.Load().(error); ok {
		return 0, err
	}
	return float64(count.Load()) / time.Since(began).Seconds(), nil
}

// device is an evaluator like one on a GPU: a batch takes its time, whatever is in it, and one is done at a time.
type device struct {
	mu   sync.Mutex
	busy time.Duration
	rows atomic.Int64
}

func (d *device) evaluate(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	time.Sleep(d.busy)
	clear(out.Logits)
	clear(out.Value)
	d.rows.Add(int64(in.N))
	return nil
}

// utilisation measures what share of an evaluator's peak 64 clients get, with 4 positions each.
func utilisation(each time.Duration) error {
	const clients, positions, batch = 64, 4, 64
	s, target, err := serve("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer s.Close()
	d := &device{busy: 10 * time.Millisecond}
	c, err := client.Dial(target, client.Config{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	attached := make(chan struct{})
	go func() {
		defer close(attached)
		_ = c.ServeEvaluator(ctx, client.Attach{Model: "device", Name: "device", MaxBatch: batch, InFlight: 3},
			evaluator.Func(d.evaluate))
	}()
	defer func() {
		cancel()
		<-attached
		_ = c.Close()
	}()
	var calls []func() error
	for k := range clients {
		c, err := client.Dial(target, client.Config{})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		r := &client.Request{States: client.States{Env: client.Env{ID: env}}, Model: "device", Seed: uint64(k)}
		for i := range positions {
			r.Games = append(r.Games, client.Game{Actions: []int32{int32(k % 7), int32(i), int32(k / 7 % 7)}})
		}
		calls = append(calls, func() error { _, err := c.Search(context.Background(), r); return err })
	}
	for end := time.Now().Add(5 * time.Second); d.rows.Load() == 0 && time.Now().Before(end); { // until it is attached
		_ = calls[0]()
	}
	d.rows.Store(0)
	began := time.Now()
	if _, err := rate(calls, max(2*each, 2*time.Second)); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	// The peak is what this sleep really gives: a full batch in the time that it takes here.
	timed := time.Now()
	for range 50 {
		time.Sleep(d.busy)
	}
	peak := batch / (time.Since(timed).Seconds() / 50)
	say(line{What: "remote evaluator, 64 clients", Ours: float64(d.rows.Load()) / took, Peer: peak, Unit: "rows/s"})
	return nil
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Name() string                  { return "raw" }
func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append((*v.(*[]byte))[:0], data...)
	return nil
}

// echo starts a bare gRPC server, whose one method answers with as many bytes as the first four of the request say.
func echo(network, address string) (target string, stop func(), err error) {
	if network == "tcp" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return "", nil, err
	}
	encoding.RegisterCodec(raw{})
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "bench.Echo", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: answer}},
	}, nil)
	go func() { _ = s.Serve(l) }() // ends with Stop
	return targetOf(l), s.Stop, nil
}

func answer(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var in []byte
	if err := decode(&in); err != nil {
		return nil, err
	}
	out := make([]byte, int(in[0])|int(in[1])<<8|int(in[2])<<16)
	return &out, nil
}

// echoClient calls a bare server.
type echoClient struct {
	conn    *grpc.ClientConn
	request []byte
}

func newEcho(target string, in, out int) (*echoClient, error) {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	request := make([]byte, max(in, 4))
	request[0], request[1], request[2] = byte(out), byte(out>>8), byte(out>>16)
	return &echoClient{conn, request}, nil
}

func (e *echoClient) call() error {
	var out []byte
	return e.conn.Invoke(context.Background(), "/bench.Echo/Call", &e.request, &out, grpc.ForceCodec(raw{}))
}

func (e *echoClient) close() { _ = e.conn.Close() }
