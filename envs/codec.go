package envs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"unsafe"
)

// ErrBadState is the kind of every error about the bytes of a state: damaged, of another
// environment or version, or not a possible state.
var ErrBadState = errors.New("envs: bad state bytes")

// The portable form of a state, all numbers little-endian:
//
//	+------+---------+--------+----------+-----------+-------------+---------+--------+
//	| "AZ" | format  | id len | id       | version   | fingerprint | state   | CRC-32 |
//	| 2    | 1 (=1)  | 1      | id len   | 2         | 4           | rest    | 4      |
//	+------+---------+--------+----------+-----------+-------------+---------+--------+
//
// The fingerprint covers the kinds of the state's fields and the environment's keywords; the CRC
// (IEEE) covers everything before it. Don't change this form: raise the format byte instead.
const (
	stateMagic  = "AZ"
	stateFormat = 1
)

// appendState appends the portable form of s.
func (k *kernel[S]) appendState(dst []byte, s *S) []byte {
	start := len(dst)
	dst = k.appendHeader(dst)
	if k.codec != nil {
		dst = k.codec.Append(dst, s)
	} else {
		dst = k.layout.pack(dst, unsafe.Pointer(s))
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:]))
}

func (k *kernel[S]) appendHeader(dst []byte) []byte {
	id := k.spec.ID
	dst = append(dst, stateMagic...)
	dst = append(dst, stateFormat, byte(len(id)))
	dst = append(dst, id...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(k.spec.Version))
	return binary.LittleEndian.AppendUint32(dst, k.layout.print)
}

// decodeState fills s from its portable form. On an error s is undefined.
func (k *kernel[S]) decodeState(s *S, src []byte) error {
	if len(src) < 8 || string(src[:2]) != stateMagic {
		return fmt.Errorf("%w: not a state of azserve (no %q at the start)", ErrBadState, stateMagic)
	}
	body, sum := src[:len(src)-4], binary.LittleEndian.Uint32(src[len(src)-4:])
	if got := crc32.ChecksumIEEE(body); got != sum {
		return fmt.Errorf("%w: checksum %08x; want %08x: the bytes are damaged", ErrBadState, got, sum)
	}
	want := k.appendHeader(nil)
	if len(body) < len(want) || string(body[:len(want)]) != string(want) {
		return fmt.Errorf("%w: of %s; want %s version %d with the same keywords", ErrBadState,
			describeHeader(body), k.spec.ID, k.spec.Version)
	}
	if err := k.decodeBody(s, body[len(want):]); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadState, k.spec.ID, err)
	}
	return nil
}

func (k *kernel[S]) decodeBody(s *S, body []byte) error {
	if k.codec != nil {
		if err := k.codec.Decode(s, body); err != nil {
			return err
		}
	} else if err := k.layout.unpack(body, unsafe.Pointer(s)); err != nil {
		return err
	}
	if k.validate != nil {
		return k.validate.Validate(s)
	}
	return nil
}

// describeHeader names the environment that a blob says it is of.
func describeHeader(b []byte) string {
	if b[2] != stateFormat {
		return fmt.Sprintf("format %d", b[2])
	}
	n := int(b[3])
	if len(b) < 4+n+6 {
		return "a cut header"
	}
	return fmt.Sprintf("%q version %d", b[4:4+n], binary.LittleEndian.Uint16(b[4+n:]))
}
