/* The C interface of libazserve, read by cgo (python/native) and by cffi (_native.py) alike.
 *
 * Every function takes one block of arguments, owned by the caller, and returns 0 or an error code;
 * the code and a message are in the block's status too. All buffers are the caller's; the library
 * keeps no pointer after a call returns. Pools and searches are numbers; 0 is none. No function
 * calls back. Nothing works in a process that was forked after the library was loaded.
 */

#pragma once

typedef struct {
	int32_t code;        /* out: 0 or one of the codes below */
	int32_t message_cap; /* bytes at message */
	char *message;       /* out: UTF-8, ends with 0 */
} azs_status;

/* Where a batch goes: for each array how many bytes behind base it begins, negative for one that isn't
 * wanted. Of obs, info and their final forms the first entry decides for all. */
typedef struct {
	uint8_t *base;
	int64_t env_id;     /* int32[n] */
	int64_t reward;     /* float32[n], to the player who moved */
	int64_t terminated; /* bool[n] */
	int64_t truncated;  /* bool[n] */
	int64_t over;       /* bool[n], either of both */
	int64_t to_play;    /* int32[n], the player to move */
	int64_t elapsed;    /* int32[n], steps of the episode */
	int64_t mask;       /* bool[n, num_actions] */
	int64_t child;      /* int32[n], states that simulate made */
	int64_t rewards;    /* float32[n, num_players], to each player */
	int64_t failed;     /* bool[n], the environment panicked */
	int64_t obs[16];    /* the observation arrays, in the order of the specification */
	int64_t info[16];   /* the info arrays, likewise */
	int64_t final_obs[16], final_info[16]; /* of episodes that ended and began anew, one row for each */
} azs_rows;

/* Text in, text out (JSON). If out_len is more than out_cap nothing was written: call again. */
typedef struct {
	azs_status status;
	const char *in;
	int64_t in_len;
	char *out;
	int64_t out_cap;
	int64_t out_len; /* out */
	uint64_t handle; /* a pool or a search, where one is meant; out where one is made */
} azs_text;

/* Actions, states and seeds of environments. */
typedef struct {
	azs_status status;
	uint64_t pool;
	int64_t n;
	const int32_t *actions;
	int32_t *ids;    /* environments or states; NULL: 0, 1, 2, ... */
	int32_t *states; /* out of snapshot and replay, in of the others */
	const uint64_t *seeds;
	const uint8_t *seeded; /* reset: [n] rows whose seed counts; NULL: all */
	uint64_t *keys;        /* out of hash */
} azs_send;

typedef struct {
	azs_status status;
	uint64_t pool;
	double timeout; /* seconds; negative: until there is a result, but return now and then (AZS_TIMEOUT) */
	int64_t n;      /* out: rows; in of simulate */
	int64_t done;   /* out: rows whose episode ended */
	azs_rows rows;
	const int32_t *actions; /* simulate */
	const int32_t *states;  /* simulate; observe, or NULL */
	const int32_t *ids;     /* observe: environments, or NULL */
} azs_recv;

/* Conditional masks of action components. */
typedef struct {
	azs_status status;
	uint64_t pool;
	int64_t n;
	const int32_t *ids;     /* [n] environments, or NULL */
	const int32_t *states;  /* [n] states, or NULL */
	const int32_t *prefix;  /* [n, stride] */
	const int32_t *lengths; /* [n] */
	int64_t stride, width;
	uint8_t *mask; /* [n, width] */
} azs_mask;

/* Pictures: bytes of red, green and blue. */
typedef struct {
	azs_status status;
	uint64_t pool;
	int64_t n;
	const int32_t *ids;    /* [n] environments, or NULL */
	const int32_t *states; /* [n] states, or NULL */
	int64_t width, height; /* out */
	uint8_t *frames;       /* [n, height, width, 3]; NULL: only the size is wanted */
} azs_paint;

/* How long steps take. */
typedef struct {
	azs_status status;
	uint64_t pool;
	double *p50, *p99;   /* [num_envs] seconds, 0 while unknown */
	int32_t *stragglers; /* [num_envs] */
	int64_t count;       /* out: stragglers */
	int64_t pending;     /* out: environments in flight */
} azs_timing;

/* Snapshots as bytes: blob i is data[offsets[i] : offsets[i+1]]. */
typedef struct {
	azs_status status;
	uint64_t pool;
	int64_t n;
	int32_t *states;
	uint8_t *data;
	int64_t data_cap;
	int64_t data_len; /* out of dump; if more than data_cap nothing was written */
	int64_t *offsets; /* [n + 1] */
} azs_blobs;

typedef struct {
	azs_status status;
	uint64_t pool;
	uint64_t search; /* out of open */
	const char *config;
	int64_t config_len;
	int64_t n;              /* rows */
	const int32_t *states;  /* [n] */
	const uint64_t *seeds;  /* [n]; NULL: row i draws from the stream (seed, i) */
	uint64_t seed;
	const uint8_t *invalid; /* [n, num_actions] 0 or 1; NULL: none */
	const float *dirichlet; /* [n, num_actions] noise; NULL: drawn */
	const float *root_gumbel;
	const float *action_gumbel;
	const int32_t *simulations; /* [n], each row's own; NULL: as configured */
	const double *time_limit;   /* [n] seconds from now; NULL: none */
	const uint8_t *fast;        /* [n] rows without noise and forced playouts; NULL: none */
	uint64_t cache;             /* 0: none */
	int64_t nodes, width;       /* out of open: N and A of the trees */
	int32_t *cancel; /* run, drive: another thread ends it by writing 1 here; NULL: nobody does */
} azs_search;

typedef struct {
	azs_status status;
	uint64_t search;
	int64_t n; /* out of select: states to evaluate, 0 when done */
	azs_rows rows;
	const float *logits; /* [n, num_actions]; NULL: all equal */
	const float *value;  /* [n] */
	const int32_t *actions; /* advance: [n], one a row */
	uint8_t *chance;        /* select: [n] rows that are afterstates; NULL: not wanted */
} azs_step;

typedef struct {
	azs_status status;
	uint64_t search;
	int32_t *action;
	float *action_weights;
	int32_t *visits;
	float *qvalues;
	float *value;
	float *raw_value;
	uint8_t *proven; /* the value is certain (solve) */
	int64_t simulations, evaluations, batches, max_depth; /* out, as the next */
	int64_t room, cache_hits, pruned, proven_rows;
	uint64_t version; /* of the weights that evaluated, 0 where there are none */
} azs_result;

/* What a named evaluator says of states. */
typedef struct {
	azs_status status;
	uint64_t pool;
	const char *name;
	int64_t name_len;
	int64_t n;
	const int32_t *states; /* [n] */
	uint64_t seed;         /* of evaluators that draw random numbers */
	float *logits;         /* [n, num_actions] */
	float *value;          /* [n] */
	uint64_t version;      /* out: of the weights, 0 where there are none */
} azs_evaluation;

/* A cache of evaluations. */
typedef struct {
	azs_status status;
	uint64_t cache; /* out of open */
	int64_t positions, num_actions;
	int64_t max_bytes; /* instead of positions; 0: not given */
} azs_cache;

/* A row's tree, with mctx's names; N and A as open said. */
typedef struct {
	azs_status status;
	uint64_t search;
	int64_t row;
	int32_t *node_visits, *parents, *action_from_parent;            /* [N] */
	float *node_values, *raw_values;                                /* [N] */
	uint8_t *terminal, *chance;                                     /* [N] */
	int32_t *children_index, *children_visits;                      /* [N, A] */
	float *children_rewards, *children_discounts, *children_values; /* [N, A] */
	float *children_prior_logits;                                   /* [N, A] */
} azs_tree;

/* A call from XLA's FFI, or from a callback in its place: the arrays, in an order that the operation sets. */
typedef struct {
	int64_t pool;
	const char *config; /* settings of a search, JSON */
	int64_t config_len;
	int32_t num_args, num_rets;
	void *args[8];
	void *rets[48];
	int64_t counts[8];  /* elements of each argument */
	char message[1024]; /* out, if the code isn't 0 */
} azs_xla;

int32_t azs_abi_version(void);
int32_t azs_list(azs_text *a);
int32_t azs_spec(azs_text *a);
int32_t azs_pool_open(azs_text *a);
int32_t azs_pool_stats(azs_text *a);
int32_t azs_pool_close(azs_text *a);
int32_t azs_pool_reset(azs_send *a);
int32_t azs_pool_send(azs_send *a);
int32_t azs_pool_recv(azs_recv *a);
int32_t azs_pool_step(azs_recv *a, azs_send *s); /* send, then recv; the status is that of a */
int32_t azs_pool_snapshot(azs_send *a);
int32_t azs_pool_restore(azs_send *a);
int32_t azs_pool_release(azs_send *a);
int32_t azs_pool_replay(azs_send *a); /* actions: the step of each */
int32_t azs_pool_hash(azs_send *a);
int32_t azs_pool_mask(azs_mask *a);
int32_t azs_pool_paint(azs_paint *a);
int32_t azs_pool_timing(azs_timing *a);
int32_t azs_pool_text(azs_text *a);    /* {"state": id} in, a drawing out */
int32_t azs_pool_actions(azs_text *a); /* {"env_id": e} in, a list out */
int32_t azs_pool_simulate(azs_recv *a);
int32_t azs_pool_observe(azs_recv *a);
int32_t azs_pool_dump(azs_blobs *a);
int32_t azs_pool_load(azs_blobs *a);
int32_t azs_search_run(azs_search *a, azs_result *r);
int32_t azs_search_open(azs_search *a);
int32_t azs_search_drive(azs_search *a); /* with the evaluator that open was told */
int32_t azs_search_select(azs_step *a);
int32_t azs_search_expand(azs_step *a);
int32_t azs_search_advance(azs_step *a);
int32_t azs_search_result(azs_result *a);
int32_t azs_search_tree(azs_tree *a);
int32_t azs_search_close(azs_text *a);
int32_t azs_seeds(azs_text *a); /* the seeds of n rows from one number */
int32_t azs_evaluate(azs_evaluation *a);
int32_t azs_cache_open(azs_cache *a);
int32_t azs_cache_forget(azs_cache *a);
int32_t azs_cache_close(azs_cache *a);
int32_t azs_xla_call(int32_t op, azs_xla *a); /* returns an error code of XLA */
void *azs_xla_handler(int32_t op); /* a handler for XLA's FFI; NULL where the library was built without */
int32_t azs_xla_generation(azs_text *a); /* of the pool whose handle is given: JSON out */
int32_t azs_xla_scope(azs_text *a);      /* {"open": true} marks, false releases what was made since */
