// Package replay keeps what self-play saw, to learn from it.
package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/azserve/azserve/envs"
)

// ErrFile is the kind of every error about the bytes of a buffer.
var ErrFile = errors.New("replay: bad buffer file")

// Ring holds the newest positions of a game, each with what was learned about it: when it is full, a
// new one replaces the oldest. Memory is allocated once. Not safe for concurrent use.
type Ring struct {
	spec     *envs.Spec
	capacity int
	obs      []envs.Array // [capacity, ...] each
	policy   []float32    // [capacity, A]
	legal    []bool       // [capacity, A]
	value    []float32    // [capacity]
	version  []uint64     // [capacity]
	total    int          // positions ever added: position i is in row i mod capacity
	rows     int          // positions in the ring: fewer than were added if an older, smaller ring was restored
}

// Position is one row, sharing the ring's memory: valid until the next Add.
type Position struct {
	Obs    []envs.Array // row Row of each
	Row    int
	Policy []float32 // [A] sums to 1
	Legal  []bool    // [A]
	Value  float32   // from the view of the player to move

	// Version is of the model that it was searched with.
	Version uint64
}

// NewRing returns an empty buffer for capacity positions of an environment.
func NewRing(spec *envs.Spec, capacity int) (*Ring, error) {
	if capacity < 1 {
		return nil, fmt.Errorf("replay: capacity %d; want at least 1", capacity)
	}
	return &Ring{
		spec: spec, capacity: capacity, obs: envs.NewArrays(spec.Obs, capacity),
		policy: make([]float32, capacity*spec.NumActions),
		legal:  make([]bool, capacity*spec.NumActions), value: make([]float32, capacity),
		version: make([]uint64, capacity),
	}, nil
}

// Add copies a position into the ring.
func (r *Ring) Add(p *Position) {
	row, a := r.total%r.capacity, r.spec.NumActions
	for k := range r.obs {
		r.obs[k].CopyRow(row, &p.Obs[k], p.Row)
	}
	copy(r.policy[row*a:(row+1)*a], p.Policy)
	copy(r.legal[row*a:(row+1)*a], p.Legal)
	r.value[row], r.version[row] = p.Value, p.Version
	r.grow()
}

func (r *Ring) grow() {
	r.total++
	r.rows = min(r.rows+1, r.capacity)
}

// Len returns the number of positions in the ring.
func (r *Ring) Len() int { return r.rows }

// Total returns the number of positions ever added.
func (r *Ring) Total() int { return r.total }

// At returns the i-th newest position, 0 <= i < Len.
func (r *Ring) At(i int) Position {
	row, a := (r.total-1-i)%r.capacity, r.spec.NumActions
	return Position{
		Obs: r.obs, Row: row, Policy: r.policy[row*a : (row+1)*a], Legal: r.legal[row*a : (row+1)*a],
		Value: r.value[row], Version: r.version[row],
	}
}

// A saved ring, all numbers little-endian. Rows go from the oldest to the newest.
//
//	+--------+---------+-------------+----------+---------+--------------------------+--------+
//	| "AZRB" | version | fingerprint | total    | rows    | rows                     | CRC-32 |
//	| 4      | 1 (=2)  | 4           | 8        | 8       | rows * bytes of a row    | 4      |
//	+--------+---------+-------------+----------+---------+--------------------------+--------+
//
// A row is the observation arrays, the policy (float32), the legal actions (a byte each), the value (float32)
// and the model's version (8 bytes). The fingerprint covers the environment, its keywords and shapes.
const (
	ringMagic   = "AZRB"
	ringVersion = 2
	ringHeader  = 4 + 1 + 4 + 8 + 8
)

func (r *Ring) fingerprint() uint32 {
	s := r.spec
	return crc32.ChecksumIEEE(fmt.Append(nil, s.ID, s.Version, s.Keywords, s.NumActions, r.rowBytes()))
}

func (r *Ring) rowBytes() int {
	n := 4*r.spec.NumActions + r.spec.NumActions + 4 + 8
	for _, a := range r.spec.Obs {
		n += a.Len() * a.DType.Size()
	}
	return n
}

// Bytes returns the ring in its saved form.
func (r *Ring) Bytes() ([]byte, error) {
	rows := r.Len()
	var b bytes.Buffer
	b.Grow(ringHeader + rows*r.rowBytes() + 4)
	b.WriteString(ringMagic)
	b.WriteByte(ringVersion)
	head := []uint64{uint64(r.total), uint64(rows)}
	_ = binary.Write(&b, binary.LittleEndian, r.fingerprint()) // to memory: can't fail
	_ = binary.Write(&b, binary.LittleEndian, head)
	for i := rows - 1; i >= 0; i-- {
		p := r.At(i)
		for k := range p.Obs {
			if err := writeRow(&b, &p.Obs[k], p.Row); err != nil {
				return nil, err
			}
		}
		for _, x := range []any{p.Policy, p.Legal, p.Value, p.Version} {
			if err := binary.Write(&b, binary.LittleEndian, x); err != nil {
				return nil, fmt.Errorf("replay: %w", err)
			}
		}
	}
	return binary.LittleEndian.AppendUint32(b.Bytes(), crc32.ChecksumIEEE(b.Bytes())), nil
}

func writeRow(b *bytes.Buffer, a *envs.Array, row int) error {
	n := a.Size()
	lo, hi := row*n, (row+1)*n
	var err error
	switch {
	case a.F32 != nil:
		err = binary.Write(b, binary.LittleEndian, a.F32[lo:hi])
	case a.F64 != nil:
		err = binary.Write(b, binary.LittleEndian, a.F64[lo:hi])
	case a.I32 != nil:
		err = binary.Write(b, binary.LittleEndian, a.I32[lo:hi])
	case a.U8 != nil:
		_, err = b.Write(a.U8[lo:hi])
	case a.Bool != nil:
		err = binary.Write(b, binary.LittleEndian, a.Bool[lo:hi])
	}
	return err
}

// Restore makes the ring what Bytes saved. If the capacity differs, the newest positions that fit are
// kept. On an error, which wraps ErrFile, the ring is empty.
func (r *Ring) Restore(b []byte) error {
	r.total, r.rows = 0, 0
	if len(b) < ringHeader+4 || string(b[:4]) != ringMagic || b[4] != ringVersion {
		return fmt.Errorf("%w: %d bytes without the mark %s, version %d", ErrFile, len(b), ringMagic, ringVersion)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.ChecksumIEEE(body); got != sum {
		return fmt.Errorf("%w: checksum %08x; want %08x: it is damaged", ErrFile, got, sum)
	}
	if binary.LittleEndian.Uint32(b[5:]) != r.fingerprint() {
		return fmt.Errorf("%w: of another environment than %s (%s)", ErrFile, r.spec.ID, r.spec.Keywords)
	}
	total, rows := binary.LittleEndian.Uint64(b[9:]), binary.LittleEndian.Uint64(b[17:])
	data := body[ringHeader:]
	if rows > uint64(len(data)) || rows*uint64(r.rowBytes()) != uint64(len(data)) || total < rows ||
		total > math.MaxInt64 {
		return fmt.Errorf("%w: %d rows of %d bytes in %d", ErrFile, rows, r.rowBytes(), len(data))
	}
	skip := max(0, int(rows)-r.capacity)
	r.total = int(total) - int(rows) + skip
	for i := skip; i < int(rows); i++ {
		r.readRow(data[i*r.rowBytes() : (i+1)*r.rowBytes()])
	}
	return nil
}

// readRow adds a saved row.
func (r *Ring) readRow(b []byte) {
	row, a := r.total%r.capacity, r.spec.NumActions
	for k := range r.obs {
		b = readArray(b, &r.obs[k], row)
	}
	b = readFloats(b, r.policy[row*a:(row+1)*a])
	for i := range a {
		r.legal[row*a+i] = b[i] != 0
	}
	b = readFloats(b[a:], r.value[row:row+1])
	r.version[row] = binary.LittleEndian.Uint64(b)
	r.grow()
}

func readFloats(b []byte, out []float32) []byte {
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return b[4*len(out):]
}

func readArray(b []byte, a *envs.Array, row int) []byte {
	n := a.Size()
	lo := row * n
	switch {
	case a.F32 != nil:
		return readFloats(b, a.F32[lo:lo+n])
	case a.F64 != nil:
		for i := range n {
			a.F64[lo+i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
		return b[8*n:]
	case a.I32 != nil:
		for i := range n {
			a.I32[lo+i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
		return b[4*n:]
	case a.U8 != nil:
		copy(a.U8[lo:lo+n], b)
	case a.Bool != nil:
		for i := range n {
			a.Bool[lo+i] = b[i] != 0
		}
	}
	return b[n:]
}
