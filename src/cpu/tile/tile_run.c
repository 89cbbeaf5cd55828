/* tile_run.c - executes a compiled group (tile_plan.h); see tile.h for an example.
 *
 * A run distributes tasks to the threads. A worker walks its task tile by tile; for each tile it
 * finds the operands' first elements and executes the steps. ptr[s] is where the value of step s
 * starts: in a register, an operand or an output. At the end accumulators are folded.
 *
 * Invariant: a run allocates nothing, and a worker writes only its own registers, accumulators and
 * parts of outputs. Cost: see tile.h.
 */
#include "base/threads.h"
#include "cpu/kernels/bits.h"
#include "cpu/kernels/draw.h"
#include "cpu/tile/tile_plan.h"

#include <string.h>

typedef struct run {
    const pl_tile_code *t;
    const void *const *in;
    void *const *out;
    char *work, *workers;
    bool late[PL_TILE_OUTPUTS]; /* per place: the store waits for the end of the tile */
} run;

/* A worker's view of its block, and the current tile. */
typedef struct worker {
    const run *r;
    char *mem;
    void **ptr;
    int64_t *base;    /* per operand: its element at the tile's start */
    uint8_t *changed; /* per step: differs from the tile before; [n_step]: set up */
    pl_acc *lanes;
    int64_t at, n, tl;            /* tile: position, elements, extent along t */
    int64_t index[PL_SPACE_RANK]; /* outer indices, and the first along t */
    int64_t outer;                /* the outer indices as one number */
    bool moved;                   /* outer differs from the tile before */
    bool ahead;                   /* a tile of the same size follows in memory */
} worker;

/* Returns the first byte of the memory that an operand reads. */
static const void *memory_of(const run *r, int32_t operand)
{
    return r->in[r->t->in[operand].in];
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Prefetches memory of the next tile: the steps in between give it time to arrive, and the
 * hardware's own prefetch stops at every page. */
static void fetch_ahead(const char *p, size_t bytes, bool write)
{
    if (write)
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 1, 2);
    else
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

/* ---- loads ------------------------------------------------------------------------------ */

static void gather(char *d, const char *s, int64_t n, int64_t stride, size_t width)
{
    if (stride == 1) {
        memcpy(d, s, (size_t)n * width);
        return;
    }
#define GATHER(W)                                                                                  \
 do {                                                                                              \
  W *to = (W *)(void *)d;                                                                          \
  const W *from = (const W *)(const void *)s;                                                      \
  for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];                                        \
 } while (0)
    switch (width) {
    case 1: GATHER(uint8_t); break;
    case 2: GATHER(uint16_t); break;
    case 4: GATHER(uint32_t); break;
    default: GATHER(uint64_t); break;
    }
#undef GATHER
}

/* Copies the walk's elements, dim 0 having tl indices, to consecutive elements. */
static void spread(const pl_walk *w, int64_t tl, char *d, const char *src, size_t width)
{
    int last = w->rank - 1;
    int64_t size[PL_SPACE_RANK], at[PL_SPACE_RANK] = {0}, off = 0;
    memcpy(size, w->size, sizeof size);
    size[0] = tl;
    for (;;) {
        gather(d, src + off * (int64_t)width, size[last], w->stride[last], width);
        d += (size_t)size[last] * width;
        int k = last - 1;
        for (; k >= 0; k--) {
            off += w->stride[k];
            if (++at[k] < size[k]) break;
            off -= w->stride[k] * size[k];
            at[k] = 0;
        }
        if (k < 0) return;
    }
}

/* Returns the number of values of a step in a tile of n elements. */
static int64_t count_of(const pl_tile_code *t, const pl_step *s, int64_t n)
{
    return s->level == PL_LEVEL_FULL ? n : s->level == PL_LEVEL_ROW ? n / t->row : 1;
}

static int64_t stable_t(const pl_tile_code *t, const pl_step *s)
{
    return s->brief ? t->brief_t : t->tile_t;
}

static void load(worker *w, const pl_step *s, int64_t tl, int64_t n, const char *src)
{
    size_t width = pl_dtype_bytes(s->dtype);
    if (!s->fn) {
        spread(s->walk, tl, (char *)w->ptr[s - w->r->t->step], src, width);
        return;
    }
    char *raw = w->mem + w->r->t->raw_at;
    bool plain = s->walk->dense || s->level == PL_LEVEL_ONE;
    if (!plain) spread(s->walk, tl, raw, src, width);
    s->fn(w->ptr[s - w->r->t->step], plain ? src : raw, NULL, NULL, count_of(w->r->t, s, n), 0.0);
}

/* Loads elements base + walk of a value stored as bits, as bytes 0 and 1. */
static void load_bits(worker *w, const pl_step *s, int64_t tl, int64_t n, int64_t base)
{
    const uint8_t *src = memory_of(w->r, s->operand);
    uint8_t *d = w->ptr[s - w->r->t->step];
    const pl_walk *k = s->walk;
    if (k->dense || s->level == PL_LEVEL_ONE) {
        pl_bits_unpack(d, src, base, count_of(w->r->t, s, n));
        return;
    }
    int64_t size[PL_SPACE_RANK], at[PL_SPACE_RANK] = {0}, off = base;
    int last = k->rank - 1;
    memcpy(size, k->size, sizeof size);
    size[0] = tl;
    for (;;) {
        if (k->stride[last] == 1)
            pl_bits_unpack(d, src, off, size[last]);
        else
            for (int64_t i = 0; i < size[last]; i++) {
                int64_t e = off + i * k->stride[last];
                d[i] = src[e >> 3] >> (e & 7) & 1;
            }
        d += size[last];
        int j = last - 1;
        for (; j >= 0; j--) {
            off += k->stride[j];
            if (++at[j] < size[j]) break;
            off -= k->stride[j] * size[j];
            at[j] = 0;
        }
        if (j < 0) return;
    }
}

static void put_number(const pl_step *s, char *d, int64_t i, double x)
{
    switch (s->cls) {
    case PL_VEC_F32: ((float *)(void *)d)[i] = (float)x; break;
    case PL_VEC_F64: ((double *)(void *)d)[i] = x; break;
    case PL_VEC_I32: ((int32_t *)(void *)d)[i] = (int32_t)x; break;
    case PL_VEC_I64: ((int64_t *)(void *)d)[i] = (int64_t)x; break;
    default: ((uint8_t *)d)[i] = s->dtype == PL_BOOL ? x != 0.0 : (uint8_t)x; break;
    }
}

static void iota(worker *w, const pl_step *s, int64_t tl, char *d)
{
    const pl_walk *k = s->walk;
    double base = s->imm;
    for (int i = 0; i <= w->r->t->t; i++) base += (double)w->index[i] * k->outer[i];
    int64_t at[PL_SPACE_RANK] = {0}, i = 0;
    if (s->level == PL_LEVEL_ONE) {
        put_number(s, d, 0, base);
        return;
    }
    for (;;) {
        double x = base;
        for (int j = 0; j < k->rank; j++) x += (double)at[j] * k->step[j];
        put_number(s, d, i++, x);
        int j = k->rank - 1;
        for (; j >= 0; j--) {
            if (++at[j] < (j == 0 ? tl : k->size[j])) break;
            at[j] = 0;
        }
        if (j < 0) return;
    }
}

/* Draws numbers of a stream, by runs; repeats along dims of stride 0 are copied. */
static void draw(const worker *w, const pl_step *s, int64_t tl, char *d)
{
    const pl_walk *k = s->walk;
    double first = s->imm;
    for (int i = 0; i <= w->r->t->t; i++) first += (double)w->index[i] * k->outer[i];
    const int64_t *key = memory_of(w->r, s->operand);
    pl_draws from = {(uint64_t)key[0], (uint64_t)key[1], s->stream, s->normal, s->dtype};
    int64_t size[PL_SPACE_RANK], rank = s->level == PL_LEVEL_ONE ? 0 : k->rank;
    memcpy(size, k->size, sizeof size);
    size[0] = tl;
    pl_draw_box(&from, (int64_t)first, (int)rank, size, k->stride, d);
}

/* ---- steps ------------------------------------------------------------------------------ */

static void map_rows(worker *w, const pl_step *s, char *d, int64_t rows)
{
    const pl_tile_code *t = w->r->t;
    const char *p[3] = {NULL, NULL, NULL};
    size_t step[3] = {0, 0, 0}, row = (size_t)t->row, width = pl_vec_width(s->cls);
    for (int k = 0; k < s->n_arg; k++) {
        const pl_step *a = &t->step[s->arg[k]];
        p[k] = w->ptr[s->arg[k]];
        step[k] = a->level == PL_LEVEL_FULL  ? row * pl_vec_width(a->cls)
                  : a->level == PL_LEVEL_ROW ? pl_vec_width(a->cls)
                                             : 0;
    }
    for (int64_t r = 0; r < rows; r++) {
        s->fn(d, p[0], p[1], p[2], t->row, s->imm);
        d += row * width;
        for (int k = 0; k < s->n_arg; k++) p[k] += step[k];
    }
}

static void map(worker *w, const pl_step *s, char *d, int64_t n, int64_t rows)
{
    const void *p[3] = {NULL, NULL, NULL};
    if (s->code == PL_STEP_MAP && s->per_row) {
        map_rows(w, s, d, rows);
        return;
    }
    for (int k = 0; k < s->n_arg; k++) p[k] = w->ptr[s->arg[k]];
    s->fn(d, p[0], p[1], p[2], s->per_row ? rows : n, s->imm);
}

/* Runs a chain over the tile; in pieces as long as its brief operands, which each piece reads. */
static void chain(worker *w, const pl_step *s, float *d, int64_t n)
{
    const pl_tile_code *t = w->r->t;
    pl_vec_link link[PL_TILE_LINKS];
    int64_t piece = n, step_a = t->step[s->from].brief ? 0 : 1;
    bool brief = !step_a, moves[PL_TILE_LINKS];
    for (int k = 0; k < s->n_link; k++) {
        const pl_chain_link *l = &t->link[s->first_link + k];
        link[k] = (pl_vec_link){l->code, l->imm, w->ptr[l->arg]};
        moves[k] = l->code < PL_LINK_ADD_S && !t->step[l->arg].brief;
        brief |= t->step[l->arg].brief;
    }
    if (brief) piece = t->brief_t * t->inner;
    const float *a = w->ptr[s->from];
    for (int64_t at = 0; at < n; at += piece) {
        (*t->vec->chain)(d + at, a + at * step_a, link, s->n_link, min64(piece, n - at));
        for (int k = 0; k < s->n_link; k++)
            if (moves[k]) link[k].x += piece;
    }
}

static void reduce_rows(worker *w, const pl_step *s, char *d, int64_t rows)
{
    const pl_tile_code *t = w->r->t;
    const pl_step *a = &t->step[s->arg[0]];
    const char *x = w->ptr[s->arg[0]];
    size_t all = (size_t)(t->tile_t * t->inner / t->row) * pl_vec_width(s->cls);
    static const pl_dtype plain[PL_N_VECS] = {PL_F32, PL_F64, PL_I32, PL_I64, PL_U8};
    pl_row_sink sink = {plain[s->cls], d, d + (all + 63) / 64 * 64};
    pl_red_rows(t->vec, s->reduce, a->cls, x, rows, t->row, w->lanes, &sink);
}

/* Returns the second half of the moments' register, unrounded. */
static const void *variance(const worker *w, const pl_step *s)
{
    const pl_tile_code *t = w->r->t;
    size_t bytes = (size_t)(t->tile_t * t->inner / t->row) * pl_vec_width(s->cls);
    return (const char *)w->ptr[s->arg[0]] + (bytes + 63) / 64 * 64;
}

static bool args_changed(const worker *w, const pl_step *s)
{
    for (int k = 0; k < s->n_arg; k++)
        if (w->changed[s->arg[k]]) return true;
    return (s->code == PL_STEP_IOTA || s->code == PL_STEP_DRAW) && w->moved;
}

static void execute(worker *w, const pl_step *s, int64_t tl, int64_t n)
{
    const pl_tile_code *t = w->r->t;
    int64_t rows = t->row ? n / t->row : 0;
    int64_t count = count_of(t, s, n);
    char *d = w->ptr[s - t->step];
    switch (s->code) {
    case PL_STEP_IOTA: iota(w, s, tl, d); break;
    case PL_STEP_DRAW: draw(w, s, tl, d); break;
    case PL_STEP_MAP:
        if (s->chain)
            chain(w, s, (float *)(void *)d, count);
        else
            map(w, s, d, count, rows);
        break;
    case PL_STEP_RAISE: map(w, s, d, count, rows); break;
    case PL_STEP_REDUCE: reduce_rows(w, s, d, rows); break;
    case PL_STEP_VAR:
        t->vec->move->cast[s->cls][s->cls](d, variance(w, s), NULL, NULL, rows, 0.0);
        break;
    case PL_STEP_LOAD:
    case PL_STEP_IMM: break;
    }
    if (s->round) s->round(d, d, NULL, NULL, count, 0.0);
}

static void do_load(worker *w, const pl_step *s, int i, bool fresh, const int64_t *base)
{
    const pl_tile_code *t = w->r->t;
    size_t width = pl_dtype_bytes(s->dtype);
    const char *src = (const char *)memory_of(w->r, s->operand) + base[s->operand] * (int64_t)width;
    w->changed[i] = fresh || base[s->operand] != w->base[s->operand];
    if (s->alias) {
        memcpy(&w->ptr[i], &src, sizeof src); /* read only, through a table of void * */
        if (s->level == PL_LEVEL_FULL && w->ahead && t->busy)
            fetch_ahead(src + (size_t)w->n * width, (size_t)w->n * width, false);
        return;
    }
    if (s->stable && !w->changed[i]) return;
    int64_t tl = s->stable ? stable_t(t, s) : w->tl;
    if (t->in[s->operand].bits)
        load_bits(w, s, tl, tl * t->inner, base[s->operand]);
    else
        load(w, s, tl, tl * t->inner, src);
}

/* ---- outputs ---------------------------------------------------------------------------- */

static void store(const worker *w, const pl_tile_place *q, const void *src)
{
    if (q->bits) { /* tiles of a task follow each other, so each byte is started before it is
                    * finished */
        pl_bits_pack(w->r->out[q->out], w->at, src, w->n);
        return;
    }
    char *d = (char *)w->r->out[q->out] + (size_t)w->at * q->width;
    if (d != src) q->store(d, src, NULL, NULL, w->n, 0.0);
}

static void feed(worker *w, const pl_step *s, int i)
{
    const pl_tile_code *t = w->r->t;
    for (int o = s->first_out; o < s->first_out + s->n_out; o++) {
        const pl_tile_place *q = &t->place[o];
        void *out = q->out >= 0 ? w->r->out[q->out] : NULL;
        if (q->kind == PL_FUSED_STORE) {
            if (!w->r->late[o]) store(w, q, w->ptr[i]);
        } else if (q->kind == PL_FUSED_ROWS) {
            char *d = (char *)out + (size_t)(w->at / t->row) * q->width;
            q->store(d, w->ptr[i], NULL, NULL, w->n / t->row, 0.0);
        } else {
            pl_acc *acc = (pl_acc *)(void *)(w->r->work + q->acc_at);
            pl_red_take(&q->red, t->vec, acc, w->lanes + (o + 1) * PL_RED_LANES, w->ptr[i], w->at,
                        w->n, out, q->out2 >= 0 ? w->r->out[q->out2] : NULL);
        }
    }
}

static void store_late(const worker *w)
{
    const pl_tile_code *t = w->r->t;
    for (int i = 0; i < t->n_step; i++)
        for (int o = t->step[i].first_out; o < t->step[i].first_out + t->step[i].n_out; o++)
            if (w->r->late[o]) store(w, &t->place[o], w->ptr[i]);
}

/* Sets the step's register for this tile: the memory of an output where the step may compute
 * directly into it. */
static void aim(worker *w, const pl_step *s, int i)
{
    const pl_tile_code *t = w->r->t;
    w->ptr[i] = w->mem + s->at;
    for (int o = s->first_out; o < s->first_out + s->n_out; o++) {
        const pl_tile_place *q = &t->place[o];
        if (q->direct && !w->r->late[o]) {
            w->ptr[i] = (char *)w->r->out[q->out] + (size_t)w->at * q->width;
            size_t bytes = (size_t)w->n * q->width;
            if (w->ahead && t->busy) fetch_ahead((char *)w->ptr[i] + bytes, bytes, true);
        }
    }
}

/* ---- tiles ------------------------------------------------------------------------------ */

static void run_tile(worker *w, bool any_late)
{
    const pl_tile_code *t = w->r->t;
    bool fresh = !w->changed[t->n_step];
    int64_t base[PL_TILE_INPUTS];
    for (int i = 0; i < t->n_in; i++) {
        base[i] = t->in[i].offset;
        for (int d = 0; d <= t->t; d++) base[i] += w->index[d] * t->in[i].stride[d];
    }
    for (int i = 0; i < t->n_step; i++) {
        const pl_step *s = &t->step[i];
        if (s->absorbed) continue;
        if (s->code == PL_STEP_IMM) {
            const void *value = &s->value;
            memcpy(&w->ptr[i], &value, sizeof value);
            w->changed[i] = fresh;
        } else if (s->stable) {
            w->ptr[i] = w->mem + s->at;
            if (s->code == PL_STEP_LOAD)
                do_load(w, s, i, fresh, base);
            else if ((w->changed[i] = fresh || args_changed(w, s)))
                execute(w, s, stable_t(t, s), stable_t(t, s) * t->inner);
        } else {
            aim(w, s, i);
            w->changed[i] = 1;
            if (s->code == PL_STEP_LOAD)
                do_load(w, s, i, fresh, base);
            else
                execute(w, s, w->tl, w->n);
        }
        if (s->n_out) feed(w, s, i);
    }
    if (any_late) store_late(w);
    memcpy(w->base, base, sizeof(int64_t) * (size_t)t->n_in);
    w->changed[t->n_step] = 1;
}

/* Moves to the tile at flat position `at`, tl indices along t. */
static void place_tile(worker *w, int64_t at, int64_t tl)
{
    const pl_tile_code *t = w->r->t;
    int64_t rest = at / t->inner;
    for (int d = t->t; d >= 0; d--) {
        w->index[d] = rest % t->dim[d];
        rest /= t->dim[d];
    }
    int64_t outer = at / (t->inner * t->dim[t->t]);
    w->moved = w->outer != outer;
    w->outer = outer;
    w->at = at;
    w->tl = tl;
    w->n = tl * t->inner;
}

static void run_flat(worker *w, pl_span span, bool any_late)
{
    const pl_tile_code *t = w->r->t;
    int64_t n_t = t->dim[t->t];
    for (int64_t x = span.lo; x < span.hi; x += w->n) {
        int64_t along = x / t->inner % n_t;
        int64_t tl = min64(min64(t->tile_t, n_t - along), (span.hi - x) / t->inner);
        place_tile(w, x, tl);
        w->ahead = x + 2 * w->n <= span.hi;
        run_tile(w, any_late);
    }
}

static void run_columns(worker *w, pl_span span, bool any_late)
{
    const pl_tile_code *t = w->r->t;
    int64_t block = t->dim[t->t] * t->inner, outer = t->total / block;
    int64_t chunk = t->row_order ? span.hi - span.lo : t->tile_t;
    for (int64_t lo = span.lo; lo < span.hi; lo += chunk)
        for (int64_t o = 0; o < outer; o++)
            for (int64_t c = lo; c < min64(lo + chunk, span.hi); c += w->tl) {
                place_tile(w, o * block + c * t->inner, min64(t->tile_t, span.hi - c));
                run_tile(w, any_late);
            }
}

static size_t align64(size_t x)
{
    return (x + 63) & ~(size_t)63;
}

static void run_task(void *ctx, int64_t task, int id)
{
    const run *r = ctx;
    const pl_tile_code *t = r->t;
    char *mem = r->workers + align64(t->worker_bytes) * (size_t)id;
    worker w = {.r = r,
                .mem = mem,
                .ptr = (void **)(void *)(mem + t->ptr_at),
                .base = (int64_t *)(void *)(mem + t->base_at),
                .changed = (uint8_t *)mem + t->changed_at,
                .lanes = (pl_acc *)(void *)(mem + t->lanes_at),
                .outer = -1};
    bool any_late = false;
    for (int o = 0; o < t->n_place; o++) any_late |= r->late[o];
    if (t->columns)
        run_columns(&w, t->task[task], any_late);
    else
        run_flat(&w, t->task[task], any_late);
}

/* ---- the run ---------------------------------------------------------------------------- */

typedef struct fold {
    const run *r;
    const pl_tile_place *q;
    int64_t step;
} fold;

static void run_fold(void *ctx, int64_t task, int id)
{
    (void)id;
    const fold *f = ctx;
    const pl_tile_place *q = f->q;
    int64_t lo = task * f->step;
    pl_red_fold(&q->red, (const pl_acc *)(const void *)(f->r->work + q->acc_at), lo,
                min64(lo + f->step, q->red.n_out), q->out >= 0 ? f->r->out[q->out] : NULL,
                q->out2 >= 0 ? f->r->out[q->out2] : NULL);
}

static void finish(const run *r)
{
    const pl_tile_code *t = r->t;
    for (int o = 0; o < t->n_place; o++) {
        const pl_tile_place *q = &t->place[o];
        if (q->kind != PL_FUSED_REDUCE) continue;
        fold f = {r, q, pl_red_fold_step(&q->red)};
        if (t->empty)
            pl_red_empty(&q->red, q->out >= 0 ? r->out[q->out] : NULL,
                         q->out2 >= 0 ? r->out[q->out2] : NULL);
        else if (!q->red.direct)
            pl_threads_for((q->red.n_out + f.step - 1) / f.step, run_fold, &f);
    }
}

static bool overlap(const void *a, const void *b, size_t bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + bytes && y < x + bytes;
}

static void find_late(run *r)
{
    const pl_tile_code *t = r->t;
    for (int o = 0; o < t->n_place; o++) {
        const pl_tile_place *q = &t->place[o];
        for (int k = 0; k < t->n_in; k++)
            if (((q->hazard >> k) & 1u) &&
                overlap(memory_of(r, k), r->out[q->out], (size_t)t->total * q->width))
                r->late[o] = true;
    }
}

void pl_tile_run(const pl_tile_code *t, const void *const *in, void *const *out, void *work)
{
    run r = {.t = t, .in = in, .out = out, .work = work};
    r.workers = r.work + align64(t->acc_bytes);
    find_late(&r);
    if (!t->empty) {
        int threads = pl_threads_count();
        for (int i = 0; i < threads; i++)
            r.workers[align64(t->worker_bytes) * (size_t)i + t->changed_at + (size_t)t->n_step] = 0;
        pl_threads_for(t->n_task, run_task, &r);
    }
    finish(&r);
}
