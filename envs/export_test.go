package envs

import (
	"encoding/binary"
	"hash/crc32"
)

// Reseal returns the bytes with a right checksum, so that a fuzzer gets past it.
func Reseal(b []byte) []byte {
	if len(b) < 4 {
		return b
	}
	body := append([]byte(nil), b[:len(b)-4]...)
	return binary.LittleEndian.AppendUint32(body, crc32.ChecksumIEEE(body))
}

// Slots returns the EMS of a packing by slot: x1, y1, z1, x2, y2, z2; zeros where inactive.
func (s *BinPackState) Slots() [][6]int32 {
	out := make([][6]int32, len(s.ems))
	for i, b := range s.ems {
		out[i] = [6]int32{b.lo[0], b.lo[1], b.lo[2], b.hi[0], b.hi[1], b.hi[2]}
	}
	return out
}

// Order returns the slots in the order of the observation.
func (s *BinPackState) Order() []int32 { return s.order }

// Spots returns where items lie.
func (s *BinPackState) Spots() [][3]int32 { return s.spots }

// Items returns the sizes.
func (s *BinPackState) Items() [][3]int32 { return s.problem.items }

// Reach returns the free cells that are connected with one.
func (g *Maze) Reach(s *MazeState, row, col int) [64]uint64 { return g.reach(s, row, col) }
