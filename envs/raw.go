package envs

import "unsafe"

func (a *arena[S]) Export(slots []int32, raw []byte, stride int) {
	slabs := *a.slabs.Load()
	for i, slot := range slots {
		copy(raw[i*stride:(i+1)*stride], a.raw(slabs, slot))
	}
}

func (a *arena[S]) Import(slots []int32, raw []byte, stride int) {
	slabs := *a.slabs.Load()
	for i, slot := range slots {
		copy(a.raw(slabs, slot), raw[i*stride:(i+1)*stride])
	}
}

// raw returns the memory of a state. It must be plain.
func (a *arena[S]) raw(slabs [][]S, slot int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(a.at(slabs, slot))), a.k.stateSize)
}
