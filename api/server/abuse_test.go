package server_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What the tests of abuse measure.

// panicLog counts the calls that failed with a panic, whoever made them.
type panicLog struct {
	mu    sync.Mutex
	count int
	first string
}

func (*panicLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *panicLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *panicLog) WithGroup(string) slog.Handler          { return l }

func (l *panicLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelError {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count++; l.count == 1 {
		r.Attrs(func(a slog.Attr) bool {
			text := a.String()
			l.first += text[:min(len(text), 1500)] + "\n"
			return true
		})
	}
	return nil
}

func (l *panicLog) requireNone(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Zero(t, l.count, "calls that failed with a panic; the first:\n%s", l.first)
}

// size is n, or a tenth of it in a short run.
func size(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// span is a time to measure in, or a tenth of it in a short run.
func span(d time.Duration) time.Duration {
	if testing.Short() {
		return d / 10
	}
	return d
}

// share is a bound on a ratio of two rates, which short measurements don't tell well.
func share(x float64) float64 {
	if testing.Short() {
		return x / 2
	}
	return x
}

const mib = 1 << 20

// heap is the bytes that live objects have.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// peakHeap watches the heap until stop is called, which returns the most that there was.
func peakHeap() (stop func() int64) {
	end, most := make(chan struct{}), make(chan int64, 1)
	go func() {
		var m runtime.MemStats
		peak := int64(0)
		for {
			select {
			case <-end:
				most <- peak
				return
			case <-time.After(20 * time.Millisecond):
				runtime.ReadMemStats(&m)
				peak = max(peak, int64(m.HeapAlloc))
			}
		}
	}()
	return func() int64 {
		close(end)
		return <-most
	}
}

// requireGoroutines: there are as few as before, 10 more at most, within 5 s.
func requireGoroutines(t testing.TB, before int) {
	t.Helper()
	began := time.Now()
	for runtime.NumGoroutine() > before+10 && time.Since(began) < 5*time.Second {
		time.Sleep(5 * time.Millisecond)
	}
	now := runtime.NumGoroutine()
	t.Logf("goroutines: %d before, %d after %v", before, now, time.Since(began).Round(time.Millisecond))
	if now > before+10 {
		stacks := make([]byte, mib)
		t.Fatalf("goroutines stay:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

func requireHeap(t testing.TB, before int64) {
	t.Helper()
	grown := heap() - before
	t.Logf("heap: %.1f MiB before, %+.1f MiB after", float64(before)/mib, float64(grown)/mib)
	require.Less(t, grown, int64(64*mib), "the heap has grown")
}

// checker searches the same again and again, and compares with a search in this process.
func checker(t testing.TB, c *client.Client, model string, ev evaluator.Evaluator) func() {
	cfg := config(connectFour(t), tree.Gumbel, 32)
	positions := games(10)
	want := local(t, connectFour(t), positions, ev, cfg, 11)
	return func() {
		t.Helper()
		got, err := c.Search(t.Context(), &client.Request{
			States: client.States{Env: client.Env{ID: c4}, Games: positions}, Model: model, Config: &cfg, Seed: 11,
		})
		require.NoError(t, err)
		requireSame(t, want, got)
	}
}

// HTTP/2 by hand.

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameContinuation = 9

	flagEndStream  = 1
	flagEndHeaders = 4
)

func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// literal is a header field that isn't indexed: HPACK in its simplest form. name 0 is one of the caller's own.
func literal(b []byte, name byte, own, value string) []byte {
	switch {
	case name == 0:
		b = append(append(b, 0, byte(len(own))), own...)
	case name < 15:
		b = append(b, name)
	default:
		b = append(b, 15, name-15)
	}
	return append(append(b, byte(len(value))), value...)
}

// callHeaders are the header fields of a call of gRPC.
func callHeaders(method string) []byte {
	b := []byte{0x83, 0x86} // POST, http
	b = literal(b, 4, "", method)
	b = literal(b, 1, "", "localhost")
	b = literal(b, 31, "", "application/grpc")
	return literal(b, 0, "te", "trailers")
}

// callBody is a message as gRPC frames it.
func callBody(m proto.Message) []byte {
	data := marshal(m)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

func marshal(m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}

// recorder keeps what a client writes to its connection.
type recorder struct {
	net.Conn
	mu   *sync.Mutex
	sent *[]byte
}

func (r recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	*r.sent = append(*r.sent, b...)
	r.mu.Unlock()
	return r.Conn.Write(b)
}

// record returns the bytes of a client that searches, opens a pool, steps it and closes it.
func record(t testing.TB, at string) []byte {
	var mu sync.Mutex
	var sent []byte
	c := dial(t, at, client.Config{NoRetry: true, Dial: []grpc.DialOption{grpc.WithContextDialer(
		func(ctx context.Context, at string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
			return recorder{conn, &mu, &sent}, err
		})}})
	checker(t, c, "uniform", evaluator.Uniform{})()
	p, err := c.Open(t.Context(), client.Env{ID: c4}, pool.Config{NumEnvs: 4})
	require.NoError(t, err)
	b := &pool.Batch{}
	_, err = p.Reset(t.Context(), nil, nil, b)
	require.NoError(t, err)
	_, err = p.Step(t.Context(), []int32{0, 1, 2, 3}, nil, b)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.NoError(t, c.Close())
	mu.Lock()
	defer mu.Unlock()
	require.Greater(t, len(sent), 500)
	require.True(t, strings.HasPrefix(string(sent), preface))
	return slices.Clone(sent)
}

// mutate returns bytes with some faults in them.
func mutate(r *rand.Rand, data []byte, from int) []byte {
	b := slices.Clone(data)
	for range 1 + r.IntN(4) {
		if len(b) <= from {
			return append(b, byte(r.Uint32()))
		}
		i := from + r.IntN(len(b)-from)
		switch r.IntN(6) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b[i] = byte(r.Uint32())
		case 2:
			b = b[:i]
		case 3:
			b = slices.Insert(b, i, randomBytes(r, 1+r.IntN(12))...)
		case 4: // the largest number that a varint can be
			b = slices.Insert(b, i, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)
		case 5:
			b = append(b, b[i:min(len(b), i+r.IntN(64))]...)
		}
	}
	return b
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// randomFrames is a preface, mostly a right one, and frames of all kinds and of none.
func randomFrames(r *rand.Rand) []byte {
	b := []byte(preface)
	if r.IntN(8) == 0 {
		b = mutate(r, b, 0)
	}
	if r.IntN(8) > 0 {
		b = appendFrame(b, frameSettings, 0, 0, nil)
	}
	for range 1 + r.IntN(12) {
		payload := randomBytes(r, r.IntN(200))
		kind, flags, stream := byte(r.IntN(12)), byte(r.Uint32()), uint32(r.IntN(12))
		switch r.IntN(4) {
		case 0:
			payload, kind, flags = callHeaders("/azserve.v1.Envs/Describe"), frameHeaders, flagEndHeaders
			stream |= 1
		case 1:
			kind, stream = frameData, 1
		}
		b = appendFrame(b, kind, flags, stream, payload)
		if r.IntN(10) == 0 { // a length that isn't its own
			b[len(b)-len(payload)-9+r.IntN(3)] = byte(r.Uint32())
		}
	}
	return b
}

// badConnections opens n connections that send what isn't HTTP/2 or gRPC, half of it nearly. Those that hang
// up the server must end.
func badConnections(t testing.TB, at string, valid []byte, n int) (answered, bytes int64) {
	var wg sync.WaitGroup
	var next, heard, read, hung atomic.Int64
	for w := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				data := randomFrames(r)
				if i%2 == 0 {
					data = mutate(r, valid, r.IntN(2)*len(preface))
				}
				conn, err := net.Dial("tcp", at)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = conn.Write(data) // the server may have closed it already
				// Every third hangs up at once; others give the server time to answer.
				wait := 5 * time.Millisecond
				if i%3 == 0 {
					wait = 10 * time.Second
					_ = conn.(*net.TCPConn).CloseWrite()
				}
				_ = conn.SetReadDeadline(time.Now().Add(wait))
				got, err := io.Copy(io.Discard, conn)
				if i%3 == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
					hung.Add(1)
				}
				if got > 40 { // more than the server's own settings
					heard.Add(1)
				}
				read.Add(got)
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	require.Zero(t, hung.Load(), "connections that the server didn't end")
	return heard.Load(), read.Load()
}

// Calls with bytes in place of messages.

// rawCodec sends bytes as they are, under the name of the codec that everybody has.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = slices.Clone(data)
	return nil
}

// randomMessage is well formed as far as protobuf goes, and means nothing.
func randomMessage(r *rand.Rand, depth int) (b []byte) {
	for range r.IntN(6) {
		n := protowire.Number(1 + r.IntN(16))
		switch kind := r.IntN(4); {
		case kind == 0:
			b = protowire.AppendTag(b, n, protowire.VarintType)
			b = protowire.AppendVarint(b, r.Uint64()>>r.IntN(64))
		case kind == 1:
			b = protowire.AppendTag(b, n, protowire.Fixed32Type)
			b = protowire.AppendFixed32(b, math.Float32bits(float32(math.NaN())))
		case kind == 2 && depth < 4:
			b = protowire.AppendTag(b, n, protowire.BytesType)
			b = protowire.AppendBytes(b, randomMessage(r, depth+1))
		default:
			b = protowire.AppendTag(b, n, protowire.BytesType)
			b = protowire.AppendBytes(b, randomBytes(r, r.IntN(20)))
		}
	}
	return b
}

// unaryMethods are those of all services.
func unaryMethods() (out []string) {
	for _, d := range []grpc.ServiceDesc{
		pb.Envs_ServiceDesc, pb.Search_ServiceDesc, pb.Models_ServiceDesc, pb.Admin_ServiceDesc,
	} {
		for _, m := range d.Methods {
			out = append(out, "/"+d.ServiceName+"/"+m.MethodName)
		}
	}
	return out
}

func tensor(d pb.DType, shape []int64, data ...byte) *pb.Tensor {
	return &pb.Tensor{Dtype: d, Shape: shape, Data: data}
}

// validCalls are good requests of every method, about a new pool of four environments with their states.
func validCalls(ctx context.Context, conn *grpc.ClientConn) (map[string]proto.Message, error) {
	ec := pb.NewEnvsClient(conn)
	open := &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 4, Record: true, Seeds: []uint64{1, 2, 3, 4}}
	p, err := ec.Open(ctx, open)
	if err != nil {
		return nil, err
	}
	ids := wire.Vector([]int32{0, 1, 2, 3})
	if _, err := ec.Reset(ctx, &pb.ResetRequest{Pool: p.Pool}); err != nil {
		return nil, err
	}
	states, err := ec.Snapshot(ctx, &pb.EnvIds{Pool: p.Pool})
	if err != nil {
		return nil, err
	}
	blobs, err := ec.Dump(ctx, states)
	if err != nil {
		return nil, err
	}
	h, second := states.StateId, 0.01
	rows := &pb.Rows{Pool: p.Pool, StateId: h}
	cfg := search.Default(tree.Gumbel, &envs.Spec{})
	settings, err := wire.Settings(&cfg)
	if err != nil {
		return nil, err
	}
	env := &pb.EnvRef{Id: c4, Keywords: map[string]string{"rows": "6"}}
	moves := &pb.SearchRequest_Moves{Moves: &pb.Games{Games: []*pb.Game{{Actions: []int32{1, 2}}, {}}}}
	inPool := &pb.EvaluateRequest_PoolStates{PoolStates: &pb.PoolStates{Pool: p.Pool, StateId: h}}
	return map[string]proto.Message{
		"Envs/List": &pb.ListEnvsRequest{}, "Envs/Describe": env, "Envs/Open": open,
		"Envs/Close": &pb.PoolRef{Pool: p.Pool}, "Envs/Renew": &pb.PoolRef{Pool: p.Pool},
		"Envs/Stats":         &pb.PoolRef{Pool: p.Pool},
		"Envs/AsyncReset":    &pb.ResetRequest{Pool: p.Pool, EnvId: ids, Seeds: wire.Vector([]uint64{1, 2, 3, 4})},
		"Envs/Send":          &pb.SendRequest{Pool: p.Pool, Actions: ids, EnvId: ids},
		"Envs/Recv":          &pb.RecvRequest{Pool: p.Pool, Timeout: &second},
		"Envs/Reset":         &pb.ResetRequest{Pool: p.Pool, EnvId: ids},
		"Envs/Step":          &pb.SendRequest{Pool: p.Pool, Actions: ids, EnvId: ids},
		"Envs/Snapshot":      &pb.EnvIds{Pool: p.Pool, EnvId: ids},
		"Envs/Restore":       &pb.RestoreRequest{Pool: p.Pool, EnvId: ids, StateId: h},
		"Envs/SimulateBatch": &pb.SimulateBatchRequest{Pool: p.Pool, StateId: h, Actions: ids},
		"Envs/Release":       states, "Envs/Dump": states, "Envs/Hash": states, "Envs/Text": states,
		"Envs/Load": &pb.LoadRequest{Pool: p.Pool, States: blobs.States}, "Envs/Observe": rows, "Envs/Render": rows,
		"Envs/QueryMask": &pb.QueryMaskRequest{Rows: rows, Prefix: tensor(pb.DType_DTYPE_INT32, []int64{4, 0}),
			PrefixLen: wire.Vector(make([]int32, 4)), Width: 7},
		"Envs/Replay":  &pb.ReplayRequest{Pool: p.Pool, EnvId: ids, Step: wire.Vector(make([]int32, 4))},
		"Envs/Actions": &pb.EnvIds{Pool: p.Pool, EnvId: ids},
		"Search/Run": &pb.SearchRequest{Env: env, Roots: moves, Settings: settings,
			Seeds: wire.Vector(make([]uint64, 2)), Simulations: wire.Vector([]int32{3, 4}),
			InvalidActions: wire.Of(make([]bool, 14), 2, 7)},
		"Models/List": &pb.ListModelsRequest{},
		"Models/LoadModel": &pb.LoadModelRequest{Name: "sent",
			Files: []*pb.File{{Name: "model.onnx", Data: []byte{8, 7}}}},
		"Models/Activate": &pb.ActivateRequest{Name: "sent", Version: "1"},
		"Models/Evaluate": &pb.EvaluateRequest{Input: inPool, Model: "rollout"},
		"Admin/Stats":     &pb.StatsRequest{}, "Admin/Drain": &pb.DrainRequest{Grace: -1},
	}, nil
}

// drains says that a request would rightly end the server, which is no fault.
func drains(method string, payload []byte) bool {
	m := &pb.DrainRequest{}
	return strings.HasSuffix(method, "/Drain") && proto.Unmarshal(payload, m) == nil &&
		!(m.Grace < 0 || m.Grace > 1e6)
}

// isPanic says that a call failed with a panic.
func isPanic(err error) bool {
	s, _ := status.FromError(err)
	return slices.ContainsFunc(s.Details(), func(d any) bool {
		m, ok := d.(*pb.Error)
		return ok && m.Code == pb.ErrorCode_ERROR_CODE_PANIC
	})
}

// twist sets a field of a message, or of one within it, to what it should not be.
func twist(r *rand.Rand, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	if fields.Len() == 0 {
		return
	}
	f := fields.Get(r.IntN(fields.Len()))
	switch {
	case r.IntN(8) == 0:
		m.Clear(f)
	case f.IsMap():
		m.Mutable(f).Map().Set(protoreflect.ValueOfString("rows").MapKey(), protoreflect.ValueOfString("7e99"))
	case f.IsList():
		list := m.Mutable(f).List()
		switch {
		case f.Message() != nil && list.Len() > 0 && r.IntN(3) > 0:
			twist(r, list.Get(r.IntN(list.Len())).Message())
		case f.Message() != nil:
			list.AppendMutable()
		case list.Len() > 0 && r.IntN(2) == 0:
			list.Set(r.IntN(list.Len()), badValue(r, f, list.Get(0)))
		default:
			list.Append(badValue(r, f, list.NewElement()))
		}
	case f.Message() != nil:
		twist(r, m.Mutable(f).Message())
	default:
		m.Set(f, badValue(r, f, m.Get(f)))
	}
}

// badValue is a value of a field's kind; texts and bytes may be nearly what they were.
func badValue(r *rand.Rand, f protoreflect.FieldDescriptor, was protoreflect.Value) protoreflect.Value {
	n := []int64{0, -1, 1, 2, 7, 1 << 20, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64,
		1 << 32}[r.IntN(11)]
	x := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 1e300, 5e-324}[r.IntN(7)]
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n > 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(9)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(x))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(x)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(mutate(r, was.Bytes(), 0))
	}
	text := []string{"", "x", "\x00", "../..", "Gomoku-v0", strings.Repeat("long", 500)}[r.IntN(6)]
	return protoreflect.ValueOfString(text)
}

// badPayload is nonsense for a method: bytes, a message without a meaning, or a good one with faults.
func badPayload(r *rand.Rand, valid proto.Message) []byte {
	switch r.IntN(6) {
	case 0:
		return randomBytes(r, r.IntN(200))
	case 1:
		return randomMessage(r, 0)
	case 2:
		return mutate(r, marshal(valid), 0)
	}
	m := proto.Clone(valid)
	for range 1 + r.IntN(3) {
		twist(r, m.ProtoReflect())
	}
	return marshal(m)
}

// badCalls makes n calls with bad payloads, and counts by gRPC's codes how they ended.
func badCalls(t testing.TB, at string, n int) map[codes.Code]int {
	var wg sync.WaitGroup
	var next atomic.Int64
	var mu sync.Mutex
	count, panicked := map[codes.Code]int{}, map[string]bool{}
	methods := unaryMethods()
	require.Len(t, methods, 31)
	for w := range 12 {
		c := dial(t, at, client.Config{NoRetry: true})
		defer c.Close()
		conn := c.Conn()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(w)))
			var valid map[string]proto.Message
			closed := false
			for made := 0; ; made++ {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				if made%100 == 0 || closed { // a new pool
					var err error
					if valid, err = validCalls(context.Background(), conn); err != nil {
						t.Error(err)
						return
					}
				}
				method := methods[r.IntN(len(methods))]
				payload := badPayload(r, valid[strings.TrimPrefix(method, "/azserve.v1.")])
				if closed = strings.HasSuffix(method, "/Close"); drains(method, payload) {
					continue
				}
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				var answer []byte
				err := conn.Invoke(ctx, method, &payload, &answer, grpc.ForceCodec(rawCodec{}))
				cancel()
				mu.Lock()
				if isPanic(err) && !panicked[method] {
					panicked[method] = true
					t.Errorf("%s failed with a panic: %v; payload %x", method, err, payload)
				}
				count[status.Code(err)]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return count
}

// badStreams makes n streams that begin well and go on badly.
func badStreams(t testing.TB, at string, n int) (answers int64) {
	moves := &pb.SearchRequest_Moves{Moves: &pb.Games{Games: []*pb.Game{{Actions: []int32{1, 2}}, {}}}}
	begin := &pb.Begin{Search: &pb.SearchRequest{Env: &pb.EnvRef{Id: c4}, Roots: moves}}
	first := map[string]proto.Message{
		"/azserve.v1.Search/Session": &pb.SessionRequest{Call: &pb.SessionRequest_Begin{Begin: begin}},
		"/azserve.v1.Envs/Stream": &pb.StreamRequest{Call: &pb.StreamRequest_Recv{
			Recv: &pb.RecvRequest{Pool: "x"}}},
		"/azserve.v1.Models/Attach": &pb.AttachRequest{Message: &pb.AttachRequest_Hello{
			Hello: &pb.Hello{Model: "evil", MaxBatch: 4}}},
	}
	second := map[string]proto.Message{
		"/azserve.v1.Search/Session": &pb.SessionRequest{Call: &pb.SessionRequest_Expand{Expand: &pb.Expand{
			Value: wire.Vector([]float32{1, 2})}}},
		"/azserve.v1.Envs/Stream": &pb.StreamRequest{Call: &pb.StreamRequest_Step{Step: &pb.SendRequest{Pool: "x",
			Actions: wire.Vector([]int32{1, 2})}}},
		"/azserve.v1.Models/Attach": &pb.AttachRequest{Message: &pb.AttachRequest_Answer{Answer: &pb.Answer{Id: 1,
			Value: wire.Vector([]float32{1, 2})}}},
	}
	c := dial(t, at, client.Config{NoRetry: true})
	defer c.Close()
	conn, r := c.Conn(), rand.New(rand.NewPCG(3, 3))
	methods := slices.Sorted(func(yield func(string) bool) {
		for m := range first {
			if !yield(m) {
				return
			}
		}
	})
	for i := range n {
		method := methods[i%len(methods)]
		good := marshal(first[method])
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
			grpc.ForceCodec(rawCodec{}))
		require.NoError(t, err)
		_ = stream.SendMsg(&good)
		for range 4 {
			bad := badPayload(r, second[method])
			_ = stream.SendMsg(&bad) // the server may have ended it; Recv says why
		}
		_ = stream.CloseSend()
		for {
			var answer []byte
			if err = stream.RecvMsg(&answer); err != nil {
				break
			}
			answers++
		}
		require.False(t, isPanic(err), "%s: %v", method, err)
		cancel()
	}
	return answers
}

// TestAbuseMalformed: bytes that are no HTTP/2, no gRPC and no messages fail alone: nothing panics, nothing is left
// over, and good searches go on.
func TestAbuseMalformed(t *testing.T) {
	log := &panicLog{}
	_, at := start(t, server.Config{
		Lease: 200 * time.Millisecond, MaxNodes: 20_000, MaxEnvs: 64, MaxStates: 20_000, Log: slog.New(log),
	})
	c := dial(t, at, client.Config{NoRetry: true})
	attach(t, c, client.Attach{Model: "m"}, evaluator.Func(seen))
	check := checker(t, c, "m", evaluator.Func(seen))
	check()
	valid := record(t, at)
	goroutines, before := runtime.NumGoroutine(), heap()

	n, began := size(3000), time.Now()
	answered, bytes := badConnections(t, at, valid, n)
	t.Logf("%d bad connections in %v: %d got an answer, %d bytes in all", n, time.Since(began), answered, bytes)
	require.Greater(t, answered, int64(n/20))
	check()

	n, began = size(7000), time.Now()
	count := badCalls(t, at, n)
	t.Logf("%d bad calls in %v: %v", n, time.Since(began), count)
	refused := count[codes.InvalidArgument] + count[codes.NotFound] + count[codes.FailedPrecondition]
	require.Greater(t, refused, n/10, "calls that got as far as a check of their own")
	require.Greater(t, count[codes.Internal], n/10, "payloads that are no messages")
	require.Less(t, count[codes.Unavailable]+count[codes.Unknown], n/20,
		"connections that were lost, and faults without a code")
	check()

	began = time.Now()
	answers := badStreams(t, at, size(600))
	t.Logf("%d bad streams in %v: %d answers", size(600), time.Since(began), answers)
	require.Greater(t, answers, int64(size(600)/3))
	check()

	require.Eventually(t, func() bool {
		st, err := c.Stats(t.Context())
		return err == nil && st.Pools == 0 && st.Sessions == 0 && st.Running == 0 && st.States == 0
	}, 5*time.Second, 10*time.Millisecond, "pools, sessions and states go")
	requireGoroutines(t, goroutines)
	requireHeap(t, before)
	log.requireNone(t)
}

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

// flood opens connections that send what next returns, n pieces in all, each connection on and on; those that the
// server ends are opened again. Answers are read, unless deaf is set. It returns how many pieces were sent, and on
// how many connections.
func flood(t testing.TB, at string, n int, deaf bool, next func(stream uint32) []byte) (sent, conns int64) {
	var wg sync.WaitGroup
	var pieces, opened atomic.Int64
	for range 4 {
		wg.Go(func() {
			for pieces.Load() < int64(n) {
				conn, err := net.Dial("tcp", at)
				if err != nil {
					t.Error(err)
					return
				}
				opened.Add(1)
				read := make(chan struct{})
				go func() {
					defer close(read)
					if !deaf {
						_, _ = io.Copy(io.Discard, conn)
					}
				}()
				_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second)) // a deaf one is stopped by the server
				out := appendFrame([]byte(preface), frameSettings, 0, 0, nil)
				for stream := uint32(1); pieces.Load() < int64(n) && stream < 1<<30; stream += 2 {
					if out = append(out, next(stream)...); len(out) > 4096 {
						if _, err = conn.Write(out); err != nil {
							break
						}
						out = out[:0]
					}
					pieces.Add(1)
				}
				_, _ = conn.Write(out)
				if !deaf { // until the server has done all of it
					_ = conn.(*net.TCPConn).CloseWrite()
					_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					<-read
				}
				_ = conn.Close()
				<-read
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return
				}
			}
		})
	}
	wg.Wait()
	return pieces.Load(), opened.Load()
}

// busy is a good client that searches until stop is called, which returns how often, and how long the longest took.
func busy(t testing.TB, check func()) (stop func() (n int, worst time.Duration)) {
	end := make(chan struct{})
	type outcome struct {
		n     int
		worst time.Duration
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() { done <- o }()
		for {
			select {
			case <-end:
				return
			default:
			}
			began := time.Now()
			check()
			o.n, o.worst = o.n+1, max(o.worst, time.Since(began))
		}
	}()
	return func() (int, time.Duration) {
		close(end)
		o := <-done
		return o.n, o.worst
	}
}

// TestAbuseRapidReset: calls that are begun and taken back at once, and floods of frames that have to be answered,
// neither stop a good client nor fill the memory.
func TestAbuseRapidReset(t *testing.T) {
	log := &panicLog{}
	_, at := start(t, server.Config{Log: slog.New(log), Lease: 200 * time.Millisecond})
	c := dial(t, at, client.Config{NoRetry: true})
	check := checker(t, c, "uniform", evaluator.Uniform{})
	check()
	games := slices.Repeat([]*pb.Game{{Actions: []int32{3}}}, 16)
	bodies := map[string][]byte{
		"/azserve.v1.Search/Run": callBody(&pb.SearchRequest{Env: &pb.EnvRef{Id: c4},
			Roots: &pb.SearchRequest_Moves{Moves: &pb.Games{Games: games}}}),
		"/azserve.v1.Envs/Open":      callBody(&pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 8}),
		"/azserve.v1.Envs/Stream":    callBody(&pb.StreamRequest{}),
		"/azserve.v1.Search/Session": callBody(&pb.SessionRequest{}),
	}
	methods := []string{"/azserve.v1.Search/Run", "/azserve.v1.Search/Run", "/azserve.v1.Envs/Stream",
		"/azserve.v1.Search/Session", "/azserve.v1.Envs/Open"}
	reset := func(stream uint32) []byte {
		method := methods[int(stream/2)%len(methods)]
		b := appendFrame(nil, frameHeaders, flagEndHeaders, stream, callHeaders(method))
		b = appendFrame(b, frameData, flagEndStream, stream, bodies[method])
		return appendFrame(b, frameReset, 0, stream, []byte{0, 0, 0, 8})
	}
	bare := func(stream uint32) []byte {
		b := appendFrame(nil, frameHeaders, flagEndHeaders, stream, callHeaders("/azserve.v1.Search/Run"))
		return appendFrame(b, frameReset, 0, stream, []byte{0, 0, 0, 8})
	}
	settings := func(stream uint32) []byte { // the window of streams
		return appendFrame(nil, frameSettings, 0, 0, []byte{0, 4, 0, 0, byte(stream >> 8), byte(stream)})
	}
	ping := func(stream uint32) []byte {
		return appendFrame(nil, framePing, 0, 0, binary.BigEndian.AppendUint64(nil, uint64(stream)))
	}
	endless := func(stream uint32) []byte { // header fields that never end
		if stream == 1 {
			return appendFrame(nil, frameHeaders, 0, 1, callHeaders("/azserve.v1.Search/Run"))
		}
		return appendFrame(nil, frameContinuation, 0, 1, literal(nil, 0, "x", strings.Repeat("y", 100)))
	}
	goroutines, before := runtime.NumGoroutine(), heap()
	for _, x := range []struct {
		name string
		n    int
		deaf bool
		next func(stream uint32) []byte
	}{
		{"calls with their message, reset", 20_000, false, reset}, {"calls without, reset", 20_000, false, bare},
		{"settings", 100_000, false, settings}, {"settings, deaf", 100_000, true, settings},
		{"pings", 100_000, false, ping}, {"pings, deaf", 100_000, true, ping},
		{"endless headers", 100_000, false, endless},
	} {
		stop, peak, began := busy(t, check), peakHeap(), time.Now()
		sent, conns := flood(t, at, size(x.n), x.deaf, x.next)
		took := time.Since(began)
		if took < 100*time.Millisecond {
			time.Sleep(100 * time.Millisecond)
		}
		n, worst := stop()
		most := peak() - before
		t.Logf("%s: %d on %d connections in %v; %d good searches, the longest %v; the heap grew by %.1f MiB at most",
			x.name, sent, conns, took, n, worst, float64(most)/mib)
		require.Positive(t, n, x.name)
		require.Less(t, worst, 3*time.Second, x.name)
		require.Less(t, most, int64(256*mib), x.name) // with what the collector has not freed yet
		require.GreaterOrEqual(t, sent, int64(size(x.n)/10), x.name)
	}
	check()
	requireGoroutines(t, goroutines)
	require.Eventually(t, func() bool {
		st, err := c.Stats(t.Context())
		return err == nil && st.Pools == 0 && st.Sessions == 0 && st.Running+st.Queued == 0
	}, 5*time.Second, 10*time.Millisecond)
	requireHeap(t, before)
	log.requireNone(t)
}

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

// cycle is what every environment of a script does again and again: a game of 7 moves that its first player wins.
const cycle = 7

// scriptActions are the actions of step k of each of n environments, which begin their columns at different places.
func scriptActions(k, n int) []int32 {
	out := make([]int32, n)
	for e := range out {
		out[e] = int32((e + k%2) % 7)
	}
	return out
}

// digest is a key of all that an answer says of its rows.
func digest(m *pb.RecvResponse) uint64 {
	h := fnv.New64a()
	rest := []*pb.Tensor{m.EnvId, m.Reward, m.Terminated, m.ToPlay, m.ElapsedStep, m.ActionMask}
	for _, t := range append(slices.Clone(m.Obs), rest...) {
		_, _ = h.Write(t.GetData())
	}
	for _, t := range m.FinalObs {
		_, _ = h.Write(t.GetData())
	}
	return h.Sum64()
}

// scriptAnswers are the answers to a cycle of steps, by a pool in this process.
func scriptAnswers(t testing.TB, n int) (out [cycle]uint64) {
	env := connectFour(t)
	p, err := pool.New(env, pool.Config{NumEnvs: n})
	require.NoError(t, err)
	defer p.Close()
	spec := env.Spec()
	b := &pool.Batch{EnvID: make([]int32, n), Obs: envs.NewArrays(spec.Obs, n), Mask: make([]bool, n*spec.NumActions),
		Reward: make([]float32, n), Terminated: make([]bool, n), Truncated: make([]bool, n), ToPlay: make([]int32, n),
		Elapsed: make([]int32, n), Final: envs.NewArrays(spec.Obs, n), Failed: make([]bool, n)}
	require.NoError(t, p.AsyncReset(nil, nil, nil))
	_, err = p.Recv(-1, b)
	require.NoError(t, err)
	ends := 0
	for k := range 2 * cycle {
		require.NoError(t, p.Send(scriptActions(k%cycle, n), nil))
		_, err = p.Recv(-1, b)
		require.NoError(t, err)
		m := &pb.RecvResponse{Obs: wire.Arrays(spec.Obs, b.Obs, n), EnvId: wire.Vector(b.EnvID),
			Reward: wire.Vector(b.Reward), Terminated: wire.Vector(b.Terminated), ToPlay: wire.Vector(b.ToPlay),
			ElapsedStep: wire.Vector(b.Elapsed), ActionMask: wire.Of(b.Mask, n, spec.NumActions)}
		if b.Done > 0 {
			require.Equal(t, n, b.Done)
			m.FinalObs = wire.Arrays(spec.Obs, b.Final, n)
			ends++
		}
		if k >= cycle {
			require.Equal(t, out[k-cycle], digest(m), "the cycle is none")
		}
		out[k%cycle] = digest(m)
	}
	require.Equal(t, 2, ends)
	sorted := out
	slices.Sort(sorted[:])
	require.Len(t, slices.Compact(sorted[:]), cycle, "the steps of a cycle look different")
	return out
}

// stepper steps a pool over a stream, with several requests under way.
type stepper struct {
	stream  pb.Envs_StreamClient
	pool    string
	n       int
	want    [cycle]uint64
	sent    atomic.Int64
	got     atomic.Int64
	stop    atomic.Bool // send nothing more
	deaf    atomic.Bool // read nothing
	failure atomic.Value
	done    sync.WaitGroup
}

// newStepper opens a pool on a connection of its own, and begins. window is how many requests are under way at most;
// with 0 it sends without end, and reads nothing.
func newStepper(t testing.TB, at string, n int, want [cycle]uint64, window int64) *stepper {
	c := dial(t, at, client.Config{NoRetry: true})
	ec := pb.NewEnvsClient(c.Conn())
	p, err := ec.Open(t.Context(), &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: int32(n)})
	require.NoError(t, err)
	_, err = ec.Reset(t.Context(), &pb.ResetRequest{Pool: p.Pool})
	require.NoError(t, err)
	s := &stepper{pool: p.Pool, n: n, want: want}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s.stream, err = ec.Stream(ctx)
	require.NoError(t, err)
	s.deaf.Store(window == 0)
	s.done.Go(func() { s.send(window) })
	s.done.Go(s.receive)
	return s
}

func (s *stepper) send(window int64) {
	defer func() { _ = s.stream.CloseSend() }()
	for k := 0; !s.stop.Load(); {
		if window > 0 && s.sent.Load()-s.got.Load() >= window {
			time.Sleep(20 * time.Microsecond)
			continue
		}
		step := &pb.SendRequest{Pool: s.pool, Actions: wire.Vector(scriptActions(k%cycle, s.n))}
		if err := s.stream.Send(&pb.StreamRequest{Call: &pb.StreamRequest_Step{Step: step}}); err != nil {
			s.failure.CompareAndSwap(nil, fmt.Errorf("send: %w", err))
			return
		}
		s.sent.Add(1)
		k++
	}
}

func (s *stepper) receive() {
	for k := 0; ; k++ {
		for s.deaf.Load() {
			time.Sleep(time.Millisecond)
		}
		m, err := s.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err == nil && m.GetRecv() == nil:
			err = fmt.Errorf("%v", m)
		case err == nil && digest(m.GetRecv()) != s.want[k%cycle]:
			err = fmt.Errorf("is another than in process")
		}
		if err != nil {
			s.failure.CompareAndSwap(nil, fmt.Errorf("answer %d: %w", k, err))
			s.stop.Store(true)
			return
		}
		s.got.Add(1)
	}
}

// finish waits until all that was sent is answered.
func (s *stepper) finish(t testing.TB, name string) {
	t.Helper()
	s.stop.Store(true)
	s.deaf.Store(false)
	s.done.Wait()
	require.Nil(t, s.failure.Load(), name)
	require.Equal(t, s.sent.Load(), s.got.Load(), "%s: answers are lost or doubled", name)
}

// TestB38SlowClient: one that sends and doesn't read is held up alone; the others keep their rate, and when it reads
// again every answer is there, in its order.
func TestB38SlowClient(t *testing.T) {
	const n = 64
	_, at := start(t, server.Config{})
	want := scriptAnswers(t, n)
	var good []*stepper
	for range 7 {
		good = append(good, newStepper(t, at, n, want, 8))
	}
	total := func() (sum int64) {
		for _, s := range good {
			sum += s.got.Load()
		}
		return sum
	}
	window := span(1200 * time.Millisecond)
	rate := func() float64 {
		before, began := total(), time.Now()
		time.Sleep(window)
		return float64(total()-before) / time.Since(began).Seconds()
	}
	time.Sleep(window / 4)
	first, before := rate(), heap()
	slow := newStepper(t, at, n, want, 0)
	time.Sleep(window / 2) // until its sending blocks
	stuck := slow.sent.Load()
	beside := rate()
	require.Equal(t, stuck, slow.sent.Load(), "it still sends, though it doesn't read")
	require.Positive(t, stuck)
	grown := heap() - before
	slow.finish(t, "slow")
	after := rate()
	t.Logf("batches of %d steps a second: %.0f without the slow client, %.0f beside it, %.0f after; it sent %d "+
		"before it was held up; the heap grew by %.1f MiB", n, first, beside, after, stuck, float64(grown)/mib)
	require.GreaterOrEqual(t, beside, share(0.8)*min(first, after))
	require.Less(t, grown, int64(64*mib))
	for i, s := range good {
		s.finish(t, fmt.Sprint("client ", i))
		require.Greater(t, s.got.Load(), int64(size(500)))
	}
}

// TestB38StalledSession: one that lets a session report and reads nothing of it doesn't keep the place in which it
// works from others.
func TestB38StalledSession(t *testing.T) {
	_, at := start(t, server.Config{MaxConcurrent: 1})
	c, other := dial(t, at, client.Config{NoRetry: true}), dial(t, at, client.Config{NoRetry: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := pb.NewSearchClient(c.Conn()).Session(ctx)
	require.NoError(t, err)
	games := slices.Repeat([]*pb.Game{{}}, 1000)
	begin := &pb.Begin{Search: &pb.SearchRequest{Env: &pb.EnvRef{Id: c4},
		Roots:    &pb.SearchRequest_Moves{Moves: &pb.Games{Games: games}},
		Settings: &pb.SearchSettings{NumSimulations: proto.Int64(200)}}}
	require.NoError(t, stream.Send(&pb.SessionRequest{Call: &pb.SessionRequest_Begin{Begin: begin}}))
	_, err = stream.Recv()
	require.NoError(t, err)
	began := time.Now()
	run := &pb.SessionRequest{Call: &pb.SessionRequest_Run{Run: &pb.RunSearch{ReportEveryMs: 1}}}
	require.NoError(t, stream.Send(run))
	reports := 0
	for { // one that reads is done soon
		m, err := stream.Recv()
		require.NoError(t, err)
		require.NotNil(t, m.GetResult())
		if !m.GetResult().Partial {
			break
		}
		reports++
	}
	t.Logf("read, the run took %v, with %d reports", time.Since(began), reports)
	require.Less(t, time.Since(began), 3*time.Second)
	require.Greater(t, reports, 10)
	advance := &pb.Advance{Actions: wire.Vector(make([]int32, len(games)))}
	require.NoError(t, stream.Send(&pb.SessionRequest{Call: &pb.SessionRequest_Advance{Advance: advance}}))
	m, err := stream.Recv()
	require.NoError(t, err)
	require.NotNil(t, m.GetDone(), "%v", m)
	require.NoError(t, stream.Send(run))
	time.Sleep(200 * time.Millisecond)
	began = time.Now()
	late, end := context.WithTimeout(t.Context(), 4*time.Second)
	defer end()
	cfg := config(connectFour(t), tree.Gumbel, 8)
	one := client.States{Env: client.Env{ID: c4}, Games: make([]client.Game, 1)}
	_, err = other.Search(late, &client.Request{States: one, Config: &cfg})
	t.Logf("another's search of 8 simulations took %v: %v", time.Since(began), err)
	require.NoError(t, err)
}

// resources are what a process holds.
type resources struct{ goroutines, files, threads, rss int }

func measure(t testing.TB) (r resources) {
	debug.FreeOSMemory()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	require.NoError(t, err)
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return resources{runtime.NumGoroutine(), len(files), len(threads), pages * os.Getpagesize()}
}

// settled measures again and again until all counts are at most so many above another measurement, for 5 s at most.
func settled(t testing.TB, before resources, above int) (now resources) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		now = measure(t)
		ok := now.goroutines <= before.goroutines+above && now.files <= before.files+above &&
			now.threads <= before.threads+above
		if ok || time.Now().After(end) {
			return now
		}
	}
}

// abandon opens a pool, a session and a stream on a connection of its own, and leaves in the middle of it, on one of
// several ways. Nothing is closed in good order.
func abandon(t testing.TB, at string, way int) {
	c, err := client.Dial(at, client.Config{NoRetry: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ec, sc := pb.NewEnvsClient(c.Conn()), pb.NewSearchClient(c.Conn())
	p, err := ec.Open(ctx, &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 16})
	require.NoError(t, err)
	_, err = ec.Reset(ctx, &pb.ResetRequest{Pool: p.Pool})
	require.NoError(t, err)
	states, err := ec.Snapshot(ctx, &pb.EnvIds{Pool: p.Pool})
	require.NoError(t, err)
	session, err := sc.Session(ctx)
	require.NoError(t, err)
	begin := &pb.Begin{Search: &pb.SearchRequest{Settings: &pb.SearchSettings{NumSimulations: proto.Int64(400)},
		Roots: &pb.SearchRequest_PoolStates{PoolStates: &pb.PoolStates{Pool: p.Pool, StateId: states.StateId}}}}
	require.NoError(t, session.Send(&pb.SessionRequest{Call: &pb.SessionRequest_Begin{Begin: begin}}))
	stream, err := ec.Stream(ctx)
	require.NoError(t, err)
	for k := range 4 {
		step := &pb.SendRequest{Pool: p.Pool, Actions: wire.Vector(scriptActions(k, 16))}
		require.NoError(t, stream.Send(&pb.StreamRequest{Call: &pb.StreamRequest_Step{Step: step}}))
	}
	if way%2 == 0 {
		_, err = session.Recv()
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	run := &pb.SessionRequest{Call: &pb.SessionRequest_Run{Run: &pb.RunSearch{ReportEveryMs: 1}}}
	require.NoError(t, session.Send(run))
	switch way % 3 {
	case 0:
		cancel()
	case 1:
		time.Sleep(time.Millisecond)
		cancel()
	}
	_ = c.Close()
}

// TestB39Leaks: clients that vanish leave nothing behind.
func TestB39Leaks(t *testing.T) {
	log := &panicLog{}
	_, at := start(t, server.Config{Lease: 100 * time.Millisecond, Log: slog.New(log)})
	c := dial(t, at, client.Config{NoRetry: true})
	check := checker(t, c, "uniform", evaluator.Uniform{})
	empty := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			st, err := c.Stats(t.Context())
			return err == nil && st.Pools == 0 && st.Sessions == 0 && st.States == 0 && st.Running+st.Queued == 0
		}, 5*time.Second, 10*time.Millisecond, "pools, sessions and states go")
	}
	cycles := func(n int) {
		for i := range n {
			abandon(t, at, i)
		}
	}
	check()
	cycles(12)
	before := settled(t, resources{}, math.MaxInt32)
	time.Sleep(300 * time.Millisecond)
	before = settled(t, before, 0)
	n, began := size(200), time.Now()
	cycles(n)
	first := settled(t, before, 5)
	t.Logf("%d cycles in %v; %+v before, %+v after", n, time.Since(began), before, first)
	cycles(n)
	second := settled(t, before, 5)
	t.Logf("%+v after %d more; the memory is %.3f of that after the first", second, n,
		float64(second.rss)/float64(first.rss))
	for _, now := range []resources{first, second} {
		require.InDelta(t, before.goroutines, now.goroutines, 5, "goroutines")
		require.InDelta(t, before.files, now.files, 5, "open files")
		require.LessOrEqual(t, now.threads, before.threads+5, "threads")
	}
	require.LessOrEqual(t, float64(second.rss), 1.05*float64(first.rss)+8*mib)
	empty()
	check()
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, st.Expired, int64(2*n))
	log.requireNone(t)
}

// TestB39ReleasedTwice: a handle that was released is stale over the wire too, and another in its place isn't it.
func TestB39ReleasedTwice(t *testing.T) {
	_, c := pair(t, server.Config{})
	p, err := c.Open(t.Context(), client.Env{ID: c4}, pool.Config{NumEnvs: 2})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Reset(t.Context(), nil, nil, &pool.Batch{})
	require.NoError(t, err)
	for range 50 {
		states, err := p.Snapshot(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, p.Release(t.Context(), states))
		err = p.Release(t.Context(), states)
		require.ErrorIs(t, err, statestore.ErrStale)
		require.Equal(t, errcode.StaleState, wire.From(err).Code)
		require.Equal(t, "state_id", wire.From(err).Path)
		_, err = p.Dump(t.Context(), states)
		require.ErrorIs(t, err, statestore.ErrStale)
	}
}

// TestB39Drain: what is idle doesn't hold up the end of a server; what works has the grace time, and is ended then.
func TestB39Drain(t *testing.T) {
	request := func(simulations int, model string) *client.Request {
		cfg := config(connectFour(t), tree.AlphaZero, simulations)
		states := client.States{Env: client.Env{ID: c4}, Games: games(2)}
		return &client.Request{States: states, Model: model, Config: &cfg}
	}
	t.Run("idle", func(t *testing.T) {
		s, c := pair(t, server.Config{Grace: 20 * time.Second})
		session, err := c.Session(t.Context(), request(20, "uniform"))
		require.NoError(t, err)
		defer session.Close()
		_, err = session.Run(nil, 0)
		require.NoError(t, err)
		stream, err := pb.NewEnvsClient(c.Conn()).Stream(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&pb.StreamRequest{}))
		_, err = stream.Recv()
		require.NoError(t, err)
		began := time.Now()
		s.Drain(t.Context())
		t.Logf("it took %v", time.Since(began))
		require.Less(t, time.Since(began), time.Second)
		_, err = stream.Recv()
		require.Equal(t, errcode.Unavailable, wire.From(wire.FromStatus(err)).Code, "%v", err)
		_, err = session.Run(nil, 0)
		require.Equal(t, errcode.Unavailable, wire.From(err).Code, "%v", err)
	})
	for _, model := range []string{"slow", "rollout"} {
		t.Run("running on "+model, func(t *testing.T) {
			const grace = 300 * time.Millisecond
			s, at := start(t, server.Config{Grace: grace})
			c, far := dial(t, at, client.Config{NoRetry: true}), dial(t, at, client.Config{NoRetry: true})
			slow := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
				time.Sleep(2 * time.Millisecond)
				return seen(ctx, in, out)
			})
			served := make(chan error, 1)
			a := client.Attach{Model: "slow", MaxBatch: 64}
			go func() { served <- far.ServeEvaluator(t.Context(), a, slow) }()
			require.Eventually(t, func() bool { return evaluators(t, c, "slow") == 1 }, 5*time.Second,
				time.Millisecond)
			session, err := c.Session(t.Context(), request(500_000, model))
			require.NoError(t, err)
			defer session.Close()
			ended := make(chan error, 1)
			go func() {
				_, err := session.Run(nil, 0)
				ended <- err
			}()
			require.Eventually(t, func() bool {
				st, err := c.Stats(t.Context())
				return err == nil && st.Running == 1
			}, 5*time.Second, time.Millisecond)
			began := time.Now()
			s.Drain(t.Context())
			took := time.Since(began)
			err = <-ended
			t.Logf("it took %v; the run: %v; the evaluator: %v", took, err, <-served)
			require.GreaterOrEqual(t, took, grace)
			require.Less(t, took, grace+time.Second)
			require.Error(t, err)
			require.Contains(t, []errcode.Code{errcode.Unavailable, errcode.Cancelled}, wire.From(err).Code)
		})
	}
}

// tally is how calls ended.
type tally struct {
	mu      sync.Mutex
	ok      int
	late    int // that came with an answer after their deadline
	codes   map[errcode.Code]int
	hints   int // refusals that say when to try again
	worst   time.Duration
	example map[errcode.Code]string
}

// load makes calls of a client.
type load struct {
	c       *client.Client
	request *client.Request
}

// newLoad is a client with a connection of its own, whose calls search one row with 8 simulations.
func newLoad(t testing.TB, at, model string) *load {
	cfg := config(connectFour(t), tree.AlphaZero, 8)
	return &load{dial(t, at, client.Config{NoRetry: true}), &client.Request{
		States: client.States{Env: client.Env{ID: c4}, Games: games(1)}, Model: model, Config: &cfg,
	}}
}

// call makes a call with a deadline and counts how it ended.
func (l *load) call(limit time.Duration, out *tally) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	began := time.Now()
	_, err := l.c.Search(ctx, l.request)
	now := time.Now()
	out.mu.Lock()
	defer out.mu.Unlock()
	out.worst = max(out.worst, now.Sub(began))
	if err == nil {
		out.ok++
		if now.After(deadline.Add(50 * time.Millisecond)) { // that the test's own scheduling may take
			out.late++
		}
		return
	}
	e := wire.From(err)
	if out.codes == nil {
		out.codes, out.example = map[errcode.Code]int{}, map[errcode.Code]string{}
	}
	out.codes[e.Code]++
	out.example[e.Code] = e.Error()
	if e.RetryAfter > 0 {
		out.hints++
	}
}

// closed is n callers, each of whom calls again when he has his answer. It returns the answers a second.
func (l *load) closed(n int, d time.Duration, out *tally) float64 {
	var wg sync.WaitGroup
	began := time.Now()
	end := began.Add(d)
	for range n {
		wg.Go(func() {
			for time.Now().Before(end) {
				l.call(10*time.Second, out)
			}
		})
	}
	wg.Wait()
	return float64(out.ok) / time.Since(began).Seconds()
}

// open is calls at a rate, whatever becomes of them. It returns how many there were, and waits for all.
func (l *load) open(rate float64, d, limit time.Duration, out *tally) (n int) {
	var wg sync.WaitGroup
	began := time.Now()
	for now := began; now.Sub(began) < d; now = time.Now() {
		for due := int(now.Sub(began).Seconds() * rate); n < due; n++ {
			wg.Go(func() { l.call(limit, out) })
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	return n
}

// overloaded starts a server whose evaluator takes 5 ms for a batch of 16 at most, and measures what it can do.
func overloaded(t *testing.T) (at string, peak float64) {
	_, at = start(t, server.Config{MaxConcurrent: 32, MaxQueue: 64})
	slow := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		time.Sleep(5 * time.Millisecond)
		return seen(ctx, in, out)
	})
	attach(t, dial(t, at, client.Config{NoRetry: true}), client.Attach{Model: "slow", MaxBatch: 16}, slow)
	l := newLoad(t, at, "slow")
	l.closed(64, span(200*time.Millisecond), &tally{})
	out := &tally{}
	peak = l.closed(64, span(1500*time.Millisecond), out)
	require.Empty(t, out.codes, "%v", out.example)
	t.Logf("peak: %.0f searches a second, the longest %v", peak, out.worst)
	require.Greater(t, peak, 50.0)
	return at, peak
}

// TestAbuseOverload: with four times the calls that a server can do it does as many as ever, and says of the others
// at once that there are too many.
func TestAbuseOverload(t *testing.T) {
	at, peak := overloaded(t)
	out, d := &tally{}, span(3*time.Second)
	began := time.Now()
	n := newLoad(t, at, "slow").open(4*peak, d, time.Second, out)
	good := float64(out.ok) / time.Since(began).Seconds()
	t.Logf("%d calls at 4 times that: %.0f good answers a second, %.0f %% of the peak; the longest %v; others: "+
		"%v, %d say when to try again", n, good, 100*good/peak, out.worst, out.codes, out.hints)
	require.Greater(t, float64(n), 3.5*peak*d.Seconds(), "the load was not made")
	require.GreaterOrEqual(t, good, share(0.8)*peak)
	require.Zero(t, out.late, "answers after their deadline")
	refused := out.codes[errcode.Overloaded]
	require.Equal(t, n-out.ok, refused+out.codes[errcode.Deadline], "%v", out.example)
	require.GreaterOrEqual(t, out.hints, refused, "each that is refused is told when to try again")
	require.Greater(t, refused, n/4)
}

// TestAbuseFairness: one client with ten times the calls that a server can do costs another, who asks for little, no
// answer.
func TestAbuseFairness(t *testing.T) {
	at, peak := overloaded(t)
	heavy, light := &tally{}, &tally{}
	greedy, modest := newLoad(t, at, "slow"), newLoad(t, at, "slow")
	d := span(2500 * time.Millisecond)
	made := make(chan int, 1)
	go func() { made <- greedy.open(10*peak, d, time.Second, heavy) }()
	time.Sleep(d / 10)
	n := modest.open(peak/20, d*8/10, 2*time.Second, light)
	all := <-made
	t.Logf("%d calls of the one at 10 times what can be done: %d good, %v", all, heavy.ok, heavy.codes)
	t.Logf("%d calls of the other at a twentieth: %d good, the longest %v, others %v", n, light.ok, light.worst,
		light.example)
	require.Greater(t, float64(all), 6*peak*d.Seconds(), "the load was not made")
	require.GreaterOrEqual(t, n, size(10))
	require.Equal(t, n, light.ok, "%v", light.example)
	require.Zero(t, light.late)
}

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
