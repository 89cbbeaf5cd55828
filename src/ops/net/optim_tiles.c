/* optim_tiles.c - see optim_tiles.h. */
#include "ops/net/optim_tiles.h"

#include "base/dtype.h"
#include "base/threads.h"
#include "cpu/kernels/draw.h"
#include "cpu/vec/packed_blocks.h"
#include "ops/core/attr.h"

#include <string.h>

enum { TILE = PL_PACKED_BLOCK, TILES_AT_ONCE = 16 };
_Static_assert(4 * PL_DRAW_BLOCKS == TILE, "a call draws the words of one tile");

bool pl_optim_keyed(const pl_call *c, int scalars)
{
    return c->n_in == scalars + 1 + c->n_out + 1;
}

bool pl_optim_is_packed(const pl_type *state, const pl_type *w)
{
    pl_type want = pl_packed_type(pl_type_elems(w));
    return pl_type_equal(state, &want);
}

bool pl_optim_is_small(const pl_call *c, int scalars)
{
    bool packed = false;
    for (int i = 1; i < c->n_out; i++) packed |= c->out_type[i].dtype == PL_U8;
    return packed || pl_optim_keyed(c, scalars);
}

/* ---- one operand of a tile ------------------------------------------------------------------ */
typedef struct job {
    const pl_call *c;
    const pl_optim_tiles *t;
    const pl_packed_loops *loops;
    int64_t n;
    const int64_t *key; /* {seed, step}; NULL: round to nearest */
} job;

static const pl_packed_table *table_of(const pl_optim_tiles *t, int state)
{
    return pl_packed(t->positive >> state & 1);
}

/* state is -1 for gradients and weights. */
static void load(const job *j, int in, int state, int64_t at, int n, float *x)
{
    pl_dtype d = j->c->in_type[in].dtype;
    const void *from = j->c->in[in];
    if (d == PL_F32)
        memcpy(x, (const float *)from + at, (size_t)n * sizeof *x);
    else if (d == PL_BF16)
        j->loops->widen((const uint16_t *)from + at, n, x);
    else if (d == PL_U8)
        j->loops->unpack(table_of(j->t, state),
                         (const uint8_t *)from + (size_t)(at / TILE) * PL_PACKED_BYTES, n, x);
    else
        for (int i = 0; i < n; i++) x[i] = pl_f16_to_f32(((const uint16_t *)from)[at + i]);
}

static void store_16(pl_dtype d, const float *x, int n, uint16_t *to)
{
    for (int i = 0; i < n; i++) to[i] = d == PL_BF16 ? pl_f32_to_bf16(x[i]) : pl_f32_to_f16(x[i]);
}

/* Output k takes half k % 2 of the words of stream k / 2. */
static void store(const job *j, int k, int64_t at, int n, const float *x)
{
    pl_dtype d = j->c->out_type[k].dtype;
    void *to = j->c->out[k];
    if (d == PL_F32) {
        memcpy((float *)to + at, x, (size_t)n * sizeof *x);
    } else if (d == PL_U8) {
        j->loops->pack(table_of(j->t, k - 1), x, n,
                       (uint8_t *)to + (size_t)(at / TILE) * PL_PACKED_BYTES);
    } else if (d == PL_BF16 && j->key) {
        const pl_optim_attr *a = j->c->attr;
        uint32_t words[TILE];
        pl_draw_best()->words((uint64_t)j->key[0], (uint32_t)(a->stream + k / 2),
                              (uint64_t)j->key[1], (uint64_t)at / 4, words);
        j->loops->round(x, words, k % 2 * 16, n, (uint16_t *)to + at);
    } else {
        store_16(d, x, n, (uint16_t *)to + at);
    }
}

static void run_tile(const job *j, int64_t at, int n)
{
    float grad[TILE], w[TILE], s[PL_OPTIM_STATES][TILE];
    float *const states[PL_OPTIM_STATES] = {s[0], s[1], s[2]};
    int first = j->t->scalars, n_states = j->c->n_out - 1;
    load(j, first, -1, at, n, grad);
    load(j, first + 1, -1, at, n, w);
    for (int i = 0; i < n_states; i++) load(j, first + 2 + i, i, at, n, s[i]);
    j->t->fn(j->t->ctx, grad, w, states, n);
    store(j, 0, at, n, w);
    for (int i = 0; i < n_states; i++) store(j, 1 + i, at, n, s[i]);
}

static void run_some(void *ctx, int64_t task, int worker)
{
    const job *j = ctx;
    (void)worker;
    int64_t at = task * TILES_AT_ONCE * TILE, end = at + TILES_AT_ONCE * TILE;
    for (; at < end && at < j->n; at += TILE)
        run_tile(j, at, j->n - at < TILE ? (int)(j->n - at) : TILE);
}

void pl_optim_run_tiles(const pl_call *c, const pl_optim_tiles *t)
{
    job j = {.c = c, .t = t, .loops = pl_packed_best(), .n = pl_type_elems(&c->out_type[0])};
    if (pl_optim_keyed(c, t->scalars)) j.key = c->in[c->n_in - 1];
    int64_t task = TILES_AT_ONCE * TILE;
    pl_threads_for((j.n + task - 1) / task, run_some, &j);
}
