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
