// Handlers for XLA's FFI: each takes the call frame apart and makes one call into Go. Without jaxlib's header
// at build time there are none.

#include "_cgo_export.h"
#include "xla.h"

#if defined(__has_include)
#if __has_include("xla/ffi/api/c_api.h")
#define AZS_HAS_XLA
#endif
#endif

#ifdef AZS_HAS_XLA
#include <string.h>
#include "xla/ffi/api/c_api.h"

static XLA_FFI_Error *fail(const XLA_FFI_Api *api, XLA_FFI_Error_Code code, const char *message) {
	XLA_FFI_Error_Create_Args e = {0};
	e.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
	e.message = message;
	e.errc = code;
	return api->XLA_FFI_Error_Create(&e);
}

// XLA asks each handler for its version before the first call.
static int is_question(XLA_FFI_CallFrame *f) {
	if (f->extension_start == NULL || f->extension_start->type != XLA_FFI_Extension_Metadata) {
		return 0;
	}
	XLA_FFI_Metadata *m = ((XLA_FFI_Metadata_Extension *)f->extension_start)->metadata;
	m->api_version.major_version = XLA_FFI_API_MAJOR;
	m->api_version.minor_version = XLA_FFI_API_MINOR;
	m->traits = 0;
	return 1;
}

static void read_attributes(XLA_FFI_CallFrame *f, azs_xla *a) {
	for (int64_t i = 0; i < f->attrs.size; i++) {
		XLA_FFI_ByteSpan *name = f->attrs.names[i];
		if (name->len == 4 && memcmp(name->ptr, "pool", 4) == 0) {
			a->pool = *(int64_t *)((XLA_FFI_Scalar *)f->attrs.attrs[i])->value;
		} else if (name->len == 6 && memcmp(name->ptr, "config", 6) == 0) {
			XLA_FFI_ByteSpan *text = f->attrs.attrs[i];
			a->config = text->ptr;
			a->config_len = (int64_t)text->len;
		}
	}
}

static XLA_FFI_Error *run(XLA_FFI_CallFrame *f, int32_t op) {
	if (is_question(f)) {
		return NULL;
	}
	if (f->args.size > 8 || f->rets.size > 48) {
		return fail(f->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "azserve: too many arrays");
	}
	azs_xla a;
	a.pool = 0, a.config = NULL, a.config_len = 0;
	a.num_args = (int32_t)f->args.size, a.num_rets = (int32_t)f->rets.size;
	for (int64_t i = 0; i < f->args.size; i++) {
		XLA_FFI_Buffer *b = f->args.args[i];
		a.args[i] = b->data;
		a.counts[i] = 1;
		for (int64_t k = 0; k < b->rank; k++) {
			a.counts[i] *= b->dims[k];
		}
	}
	for (int64_t i = 0; i < f->rets.size; i++) {
		a.rets[i] = ((XLA_FFI_Buffer *)f->rets.rets[i])->data;
	}
	read_attributes(f, &a);
	int32_t code = azs_xla_call(op, &a);
	return code == 0 ? NULL : fail(f->api, (XLA_FFI_Error_Code)code, a.message);
}

static XLA_FFI_Error *handle_reset(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_RESET); }
static XLA_FFI_Error *handle_step(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_STEP); }
static XLA_FFI_Error *handle_snapshot(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_SNAPSHOT); }
static XLA_FFI_Error *handle_simulate(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_SIMULATE); }
static XLA_FFI_Error *handle_observe(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_OBSERVE); }
static XLA_FFI_Error *handle_release(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_RELEASE); }
static XLA_FFI_Error *handle_init(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_INIT); }
static XLA_FFI_Error *handle_pure(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_PURE); }
static XLA_FFI_Error *handle_open(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_OPEN); }
static XLA_FFI_Error *handle_next(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_NEXT); }
static XLA_FFI_Error *handle_result(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_RESULT); }
static XLA_FFI_Error *handle_search(XLA_FFI_CallFrame *f) { return run(f, AZS_XLA_SEARCH); }

static XLA_FFI_Handler *const handlers[AZS_XLA_OPS] = {
	[AZS_XLA_RESET] = handle_reset,
	[AZS_XLA_STEP] = handle_step,
	[AZS_XLA_SNAPSHOT] = handle_snapshot,
	[AZS_XLA_SIMULATE] = handle_simulate,
	[AZS_XLA_OBSERVE] = handle_observe,
	[AZS_XLA_RELEASE] = handle_release,
	[AZS_XLA_INIT] = handle_init,
	[AZS_XLA_PURE] = handle_pure,
	[AZS_XLA_OPEN] = handle_open,
	[AZS_XLA_NEXT] = handle_next,
	[AZS_XLA_RESULT] = handle_result,
	[AZS_XLA_SEARCH] = handle_search,
};

void *azs_xla_handler(int32_t op) { return op >= 0 && op < AZS_XLA_OPS ? (void *)handlers[op] : NULL; }

#else

void *azs_xla_handler(int32_t op) {
	(void)op;
	return NULL;
}

#endif
