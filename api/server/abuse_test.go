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
			l.first += a.String() + "\n"
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
		"Envs/Replay":      &pb.ReplayRequest{Pool: p.Pool, EnvId: ids, Step: wire.Vector(make([]int32, 4))},
		"Envs/Actions":     &pb.EnvIds{Pool: p.Pool, EnvId: ids},
		"Search/Run":       &pb.SearchRequest{Env: env, Roots: moves, Settings: settings, Seeds: wire.Vector(make([]uint64, 2))},
		"Models/List":      &pb.ListModelsRequest{},
		"Models/LoadModel": &pb.LoadModelRequest{Name: "sent", Files: []*pb.File{{Name: "model.onnx", Data: []byte{8, 7}}}},
		"Models/Activate":  &pb.ActivateRequest{Name: "sent", Version: "1"},
		"Models/Evaluate":  &pb.EvaluateRequest{Input: inPool, Model: "rollout"},
		"Admin/Stats":      &pb.StatsRequest{}, "Admin/Drain": &pb.DrainRequest{Grace: -1},
	}, nil
}

// drains says that a request would rightly end the server, which is no fault.
func drains(method string, payload []byte) bool {
	m := &pb.DrainRequest{}
	return strings.HasSuffix(method, "/Drain") && proto.Unmarshal(payload, m) == nil && !(m.Grace < 0 || m.Grace > 1e6)
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
	n := []int64{0, -1, 1, 2, 7, 1 << 20, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, 1 << 32}[r.IntN(11)]
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
	return protoreflect.ValueOfString([]string{"", "x", "\x00", "../..", "Gomoku-v0", strings.Repeat("long", 500)}[r.IntN(6)])
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
	count := map[codes.Code]int{}
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
				if isPanic(err) {
					t.Errorf("%s failed with a panic: %v; payload %x", method, err, payload)
				}
				mu.Lock()
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
		"/azserve.v1.Envs/Stream":    &pb.StreamRequest{Call: &pb.StreamRequest_Recv{Recv: &pb.RecvRequest{Pool: "x"}}},
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
	require.Less(t, count[codes.Unavailable]+count[codes.Unknown], n/20, "connections that were lost, faults without a code")
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

// TestAbuseBadTensors: messages that are well formed and make no sense are refused with the field's name, for each
// reason of its own.
func TestAbuseBadTensors(t *testing.T) {
	log := &panicLog{}
	_, c := pair(t, server.Config{Log: slog.New(log), MaxNodes: 10_000})
	ec, sc, mc := pb.NewEnvsClient(c.Conn()), pb.NewSearchClient(c.Conn()), pb.NewModelsClient(c.Conn())
	open, err := ec.Open(t.Context(), &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 4})
	require.NoError(t, err)
	_, err = ec.Reset(t.Context(), &pb.ResetRequest{Pool: open.Pool})
	require.NoError(t, err)
	step := func(actions *pb.Tensor) error {
		_, err := ec.Step(t.Context(), &pb.SendRequest{Pool: open.Pool, Actions: actions})
		return err
	}
	reset := func(m *pb.ResetRequest) error {
		m.Pool = open.Pool
		_, err := ec.Reset(t.Context(), m)
		return err
	}
	make_ := func(m *pb.OpenRequest) error {
		m.Env = &pb.EnvRef{Id: c4}
		_, err := ec.Open(t.Context(), m)
		return err
	}
	wait := func(seconds float64) error {
		_, err := ec.Recv(t.Context(), &pb.RecvRequest{Pool: open.Pool, Timeout: &seconds})
		return err
	}
	run := func(change func(m *pb.SearchRequest)) error {
		m := &pb.SearchRequest{Env: &pb.EnvRef{Id: c4}, Settings: &pb.SearchSettings{},
			Roots: &pb.SearchRequest_Moves{Moves: &pb.Games{Games: []*pb.Game{{}, {}}}}}
		change(m)
		_, err := sc.Run(t.Context(), m)
		return err
	}
	look := func(o *pb.Observations) error {
		_, err := mc.Evaluate(t.Context(), &pb.EvaluateRequest{Env: &pb.EnvRef{Id: c4},
			Input: &pb.EvaluateRequest_Observations{Observations: o}})
		return err
	}
	i32, b, f64 := pb.DType_DTYPE_INT32, pb.DType_DTYPE_BOOL, pb.DType_DTYPE_FLOAT64
	four := make([]byte, 16)
	nan := math.NaN()
	board := func(shape ...int64) *pb.Tensor {
		return &pb.Tensor{Dtype: b, Shape: shape, Data: slices.Repeat([]byte{7}, 84), Name: "board"}
	}
	for i, x := range []struct {
		err  error
		path string
	}{
		{step(tensor(pb.DType_DTYPE_FLOAT32, []int64{4}, four...)), "actions"},
		{step(tensor(99, []int64{4}, four...)), "actions"},
		{step(tensor(i32, []int64{-4}, four...)), "actions"},
		{step(tensor(i32, []int64{-2, -2}, four...)), "actions"},
		{step(tensor(i32, []int64{math.MinInt64}, four...)), "actions"},
		{step(tensor(i32, []int64{1 << 62, 4}, four...)), "actions"},
		{step(tensor(i32, []int64{1 << 32, 1 << 32}, four...)), "actions"},
		{step(tensor(i32, []int64{0, 1 << 62}, four...)), "actions"},
		{step(tensor(i32, []int64{1 << 62})), "actions"},
		{step(tensor(i32, []int64{4}, four[:15]...)), "actions"},
		{step(tensor(i32, []int64{4}, append(four, 0)...)), "actions"},
		{step(tensor(i32, nil, four...)), "actions"},
		{step(tensor(i32, []int64{3}, four[:12]...)), "actions"},
		{step(nil), "actions"},
		{reset(&pb.ResetRequest{Seeded: tensor(b, []int64{4}, 0, 1, 7, 1)}), "seeded"},
		{reset(&pb.ResetRequest{Seeds: tensor(i32, []int64{4}, four...)}), "seeds"},
		{reset(&pb.ResetRequest{EnvId: tensor(i32, []int64{2, 2}, four...)}), "env_id"},
		{make_(&pb.OpenRequest{NumEnvs: math.MaxInt32}), "num_envs"},
		{make_(&pb.OpenRequest{NumEnvs: -1}), "num_envs"},
		{make_(&pb.OpenRequest{NumEnvs: 1, MaxStates: -1}), "max_states"},
		{make_(&pb.OpenRequest{NumEnvs: 1, MaxBytes: math.MaxInt64}), "max_bytes"},
		{wait(nan), "timeout"}, {wait(-1), "timeout"}, {wait(math.Inf(1)), "timeout"},
		{run(func(m *pb.SearchRequest) { m.TimeLimit = wire.Vector([]float64{1, nan}) }), "time_limit"},
		{run(func(m *pb.SearchRequest) { m.TimeLimit = tensor(f64, []int64{2}, four[:8]...) }), "time_limit"},
		{run(func(m *pb.SearchRequest) { m.Fast = tensor(b, []int64{2}, 7, 0) }), "fast"},
		{run(func(m *pb.SearchRequest) { m.Settings.NumSimulations = proto.Int64(math.MaxInt64) }),
			"settings.num_simulations"},
		{run(func(m *pb.SearchRequest) { m.Settings.NumSimulations = proto.Int64(math.MinInt64) }),
			"settings.num_simulations"},
		{look(&pb.Observations{Obs: []*pb.Tensor{board(1, 6, 7, 2)}}), "observations.obs[0]"},
		{look(&pb.Observations{Obs: []*pb.Tensor{board(-1, 6, 7, -2)}}), "observations.obs[0]"},
		{look(&pb.Observations{Obs: []*pb.Tensor{nil}}), "observations.obs[0]"},
		{look(&pb.Observations{}), "observations.obs"},
	} {
		e := wire.From(wire.FromStatus(x.err))
		require.Error(t, x.err, "%d: %s", i, x.path)
		require.Equal(t, errcode.InvalidArgument, e.Code, "%d: %s: %v", i, x.path, x.err)
		require.Equal(t, x.path, e.Path, "%d: %v", i, x.err)
	}
	log.requireNone(t)
	require.NoError(t, step(tensor(i32, []int64{4}, four...)))
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
		var values []protoreflect.Value
		switch f.Kind() {
		case protoreflect.Int64Kind:
			for _, n := range []int64{math.MinInt64, -1, 0, 1 << 31, 1 << 40, math.MaxInt64 - 1, math.MaxInt64} {
				values = append(values, protoreflect.ValueOfInt64(n))
			}
		case protoreflect.FloatKind:
			for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 3e38, 1e-45} {
				values = append(values, protoreflect.ValueOfFloat32(float32(x)))
			}
		case protoreflect.StringKind:
			values = append(values, protoreflect.ValueOfString("x"), protoreflect.ValueOfString(`"],`))
		}
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

// TestAbuseLongTexts: an error doesn't repeat all of a long text, since no client takes headers of any length.
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
			_, err := mc.Evaluate(t.Context(), &pb.EvaluateRequest{Env: &pb.EnvRef{Id: c4},
				Input: &pb.EvaluateRequest_Observations{Observations: &pb.Observations{Obs: []*pb.Tensor{{Name: long}}}}})
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
			require.Less(t, len(e.Path)+len(e.Message), 4096)
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
		{"calls with their message, reset", 10_000, false, reset}, {"calls without, reset", 10_000, false, bare},
		{"settings", 20_000, false, settings}, {"settings, deaf", 20_000, true, settings},
		{"pings", 20_000, false, ping}, {"pings, deaf", 20_000, true, ping},
		{"endless headers", 20_000, false, endless},
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
		require.Less(t, most, int64(64*mib), x.name)
		require.GreaterOrEqual(t, sent, int64(size(x.n)/10), x.name)
	}
	check()
	require.Eventually(t, func() bool {
		st, err := c.Stats(t.Context())
		fmt.Println(st)
		return err == nil && st.Pools == 0 && st.Sessions == 0 && st.Running+st.Queued == 0
	}, 5*time.Second, 10*time.Millisecond)
	requireGoroutines(t, goroutines)
	requireHeap(t, before)
	log.requireNone(t)
}

var (
	_ = errcode.None
	_ = fnv.New64a
	_ = fmt.Sprint
	_ = debug.FreeOSMemory
	_ = strconv.Itoa
	_ = statestore.ErrStale
)
