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

/* Where a batch goes: an address for each array, NULL for one that isn't wanted. */
typedef struct {
	void *env_id;     /* int32[n] */
	void *reward;     /* float32[n], to the player who moved */
	void *terminated; /* bool[n] */
	void *truncated;  /* bool[n] */
	void *to_play;    /* int32[n], the player to move */
	void *elapsed;    /* int32[n], steps of the episode */
	void *mask;       /* bool[n, num_actions] */
	void *child;      /* int32[n], states that simulate made */
	void *obs[16];    /* the observation arrays, in the order of the specification */
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
	int32_t *states; /* out of snapshot, in of restore */
	const uint64_t *seeds;
} azs_send;

typedef struct {
	azs_status status;
	uint64_t pool;
	double timeout; /* seconds; negative: until there is a result, but return now and then (AZS_TIMEOUT) */
	int64_t n;      /* out: rows; in of simulate */
	int64_t done;   /* out: rows whose episode ended */
	azs_rows rows;
	const int32_t *actions; /* simulate */
	const int32_t *states;  /* simulate, final: environments */
} azs_recv;

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
} azs_result;

/* A cache of evaluations. */
typedef struct {
	azs_status status;
	uint64_t cache; /* out of open */
	int64_t positions, num_actions;
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

int32_t azs_abi_version(void);
int32_t azs_list(azs_text *a);
int32_t azs_spec(azs_text *a);
int32_t azs_pool_open(azs_text *a);
int32_t azs_pool_stats(azs_text *a);
int32_t azs_pool_close(azs_text *a);
int32_t azs_pool_reset(azs_send *a);
int32_t azs_pool_send(azs_send *a);
int32_t azs_pool_recv(azs_recv *a);
int32_t azs_pool_final(azs_recv *a);
int32_t azs_pool_snapshot(azs_send *a);
int32_t azs_pool_restore(azs_send *a);
int32_t azs_pool_release(azs_send *a);
int32_t azs_pool_simulate(azs_recv *a);
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
int32_t azs_cache_open(azs_cache *a);
int32_t azs_cache_forget(azs_cache *a);
int32_t azs_cache_close(azs_cache *a);
