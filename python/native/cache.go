package native

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
*/
import "C"

import (
	"fmt"
	"runtime/cgo"

	"github.com/azserve/azserve/evaluator"
)

//export azs_cache_open
func azs_cache_open(a *C.azs_cache) C.int32_t {
	return call(&a.status, func() error {
		size, build := int(a.positions), evaluator.NewCache
		if a.max_bytes != 0 {
			size, build = int(a.max_bytes), evaluator.NewCacheBytes
		}
		c, err := build(size, int(a.num_actions))
		if err != nil {
			return fmt.Errorf("%w: %w", errInvalid, err)
		}
		a.cache = C.uint64_t(cgo.NewHandle(c))
		return nil
	})
}

//export azs_cache_forget
func azs_cache_forget(a *C.azs_cache) C.int32_t {
	return callOn(&a.status, a.cache, "cache", func(c *evaluator.Cache) error {
		c.Forget()
		return nil
	})
}

//export azs_cache_close
func azs_cache_close(a *C.azs_cache) C.int32_t {
	return callOn(&a.status, a.cache, "cache", func(*evaluator.Cache) error {
		cgo.Handle(a.cache).Delete()
		return nil
	})
}
