package server_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
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
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

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
		defer func() { _ = c.Close() }()
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
	defer func() { _ = c.Close() }()
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
