/* tile.c - compiles a group: merges dims, chooses the tile, and calls the files that create steps
 * (tile_steps.c), chains of steps (tile_chain.c), registers (tile_registers.c) and tasks
 * (tile_cut.c). See tile.h for an example, tile_plan.h for the result, tile_run.c for its
 * execution.
 *
 * Idea: the largest tile is tried first, then smaller ones, until the registers of a worker fit
 * into REGISTER_BYTES, so that values stay in the first caches between steps.
 *
 * Invariant: nothing decided here changes a result's bits; tile_reduce.c fixes the orders of
 * reductions. Cost: at most four layouts of the group, once at compile time.
 */
#include "cpu/tile/tile_build.h"

#include "base/threads.h"

#include <string.h>

enum {
    REGISTER_BYTES = 32 * 1024, /* limit per worker, so that they stay in the first caches */
    COLUMN_BYTES = 64 * 1024,   /* limit with column reductions, which profit from more rows at a
                                 * time */
    BUSY_FROM = 3,              /* a tile with this many whole-tile steps is busy */
    READ_ONLY_TILE = 32768      /* elements: nothing to keep in cache, long columns */
};

/* ---- the space -------------------------------------------------------------------------- */

static bool is_dense(const int64_t *dim, const int64_t *stride, int lo, int hi)
{
    int64_t s = 1;
    for (int d = hi - 1; d >= lo; d--) {
        if (dim[d] != 1 && stride[d] != s) return false;
        s *= dim[d];
    }
    return true;
}

/* Whether all operands, ramps and draws see the neighbouring dims outer and inner as one. */
static bool mergeable(const pl_fused *p, int outer, int inner)
{
    int64_t n = p->dim[inner];
    if (outer < p->rank - p->row_rank && inner >= p->rank - p->row_rank) return false;
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].stride[outer] != p->in[i].stride[inner] * n) return false;
    for (int i = 0; i < p->n_instr; i++)
        if ((p->instr[i].code == PL_FUSED_RAMP || p->instr[i].code == PL_FUSED_DRAW) &&
            p->instr[i].step[outer] != p->instr[i].step[inner] * (double)n)
            return false;
    return true;
}

/* Fills b->from[k], the group's innermost dim of merged dim k, and the merged sizes. If rows are
 * the whole space, a dim of size 1 is added in front (-1 in from), so that tiles can be cut along
 * it. */
static void merge_dims(pl_tile_build *b)
{
    int *from = b->from;
    const pl_fused *p = b->p;
    pl_tile_code *t = b->t;
    int last = -1, row_at = p->rank - p->row_rank;
    b->row_dim = -1;
    bool front = true; /* no dim outside the row so far */
    for (int d = 0; d < row_at; d++) front &= p->dim[d] == 1;
    if (front) {
        from[t->rank] = -1;
        b->dim[t->rank++] = 1;
    }
    for (int d = 0; d < p->rank; d++) {
        if (p->dim[d] == 1) continue;
        if (d >= row_at && b->row_dim < 0) b->row_dim = t->rank;
        if (last >= 0 && mergeable(p, last, d)) {
            b->dim[t->rank - 1] *= p->dim[d];
            from[t->rank - 1] = d;
        } else {
            from[t->rank] = d;
            b->dim[t->rank++] = p->dim[d];
        }
        last = d;
    }
    if (b->row_dim < 0 || p->row_rank == 0) b->row_dim = t->rank;
}

static void set_space(pl_tile_build *b)
{
    pl_tile_code *t = b->t;
    merge_dims(b);
    memcpy(t->dim, b->dim, sizeof t->dim);
    t->total = 1;
    for (int d = 0; d < t->rank; d++) t->total *= t->dim[d];
    t->empty = t->total == 0; /* the layout is computed as for one element, and never used */
    for (int d = 0; t->empty && d < t->rank; d++) t->dim[d] = 1;
    t->row = 0;
    if (b->p->row_rank) {
        t->row = 1;
        for (int d = b->row_dim; d < t->rank; d++) t->row *= t->dim[d];
    }
    for (int i = 0; i < b->p->n_in; i++) {
        const pl_fused_operand *x = &b->p->in[i];
        pl_reader *r = &t->in[i];
        r->in = x->in;
        r->dtype = x->dtype;
        r->offset = x->offset;
        for (int d = 0; d < t->rank; d++) r->stride[d] = b->from[d] < 0 ? 0 : x->stride[b->from[d]];
        r->bits = x->bits;
        r->whole = !x->bits && x->offset == 0 && is_dense(t->dim, r->stride, 0, t->rank);
    }
}

/* Returns the rows of a piece of a chain: long enough for a call, and whole vectors if possible. */
static int64_t choose_brief(int64_t inner)
{
    int64_t rows = (384 + inner - 1) / inner;
    for (int64_t k = rows; k <= 4 * rows; k++)
        if (k * inner % 128 == 0) return k;
    return rows;
}

/* Chooses the dim to cut along, and how much of it a tile takes: as near to `target` elements as
 * whole inner dims allow, in pieces of about the same size. */
static void choose_tile(pl_tile_build *b, int64_t target)
{
    pl_tile_code *t = b->t;
    int d = b->p->row_rank ? b->row_dim - 1 : t->rank - 1;
    t->inner = t->row ? t->row : 1;
    while (d > 0 && t->dim[d] * t->inner <= target) t->inner *= t->dim[d--];
    t->t = d;
    int64_t most = target / t->inner;
    if (most < 1) most = 1;
    int64_t pieces = (t->dim[d] + most - 1) / most;
    t->tile_t = (t->dim[d] + pieces - 1) / pieces;
    t->brief_t = choose_brief(t->inner);
}

/* ---- compile ---------------------------------------------------------------------------- */

/* Sorts places by their steps. */
static void sort_places(pl_tile_build *b, pl_tile_place *spare)
{
    pl_tile_code *t = b->t;
    memcpy(spare, t->place, sizeof *spare * (size_t)t->n_place);
    for (int o = 0; o < t->n_place; o++) t->step[b->place_step[o]].n_out++;
    int32_t at = 0;
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        s->first_out = at;
        for (int o = 0; s->n_out && o < t->n_place; o++)
            if (b->place_step[o] == i) t->place[at++] = spare[o];
    }
}

static pl_status lay_out(pl_tile_build *b, int64_t target, pl_tile_place *spare, pl_tile_pools *pl)
{
    pl_tile_code *t = b->t;
    t->n_step = 0;
    choose_tile(b, target);
    for (int i = 0; i < b->p->n_instr; i++) pl_tile_add_instr(b, i);
    for (int o = 0; o < t->n_place; o++) PL_TRY(pl_tile_add_place(b, o));
    sort_places(b, spare);
    pl_tile_chains(t);
    b->full_bytes = pl_tile_registers(t, pl);
    return PL_OK;
}

/* Counts steps that compute or copy whole tiles; with none, only reductions read memory. */
static int count_work(const pl_tile_code *t)
{
    int work = 0;
    for (int i = 0; i < t->n_step; i++) {
        const pl_step *s = &t->step[i];
        bool quiet = s->stable || s->absorbed || (s->code == PL_STEP_LOAD && s->alias);
        work += s->level == PL_LEVEL_FULL && !quiet;
    }
    return work;
}

static size_t register_bytes(const pl_tile_code *t)
{
    bool columns = false;
    for (int o = 0; o < t->n_place; o++) columns |= t->place[o].red.vertical;
    return columns ? COLUMN_BYTES : REGISTER_BYTES;
}

static pl_status build_all(pl_tile_build *b, pl_arena *a)
{
    static const int64_t targets[] = {READ_ONLY_TILE, 4096, 2048, 1024};
    pl_tile_pools *pl = pl_arena_new(a, pl_tile_pools, 1);
    pl_tile_place *spare = pl_arena_new(a, pl_tile_place, b->p->n_out + 1);
    if (!pl || !spare) return PL_ERR_MEMORY;
    set_space(b);
    for (int k = b->p->row_rank ? 1 : 0; k < 4; k++) {
        PL_TRY(lay_out(b, targets[k], spare, pl));
        size_t bytes = b->full_bytes * (size_t)(b->t->tile_t * b->t->inner);
        if (k == 0 ? count_work(b->t) == 0 : bytes <= register_bytes(b->t)) break;
    }
    pl_tile_lay_out_worker(b->t, pl);
    b->t->busy = count_work(b->t) >= BUSY_FROM;
    for (int o = 0; o < b->t->n_place; o++) {
        pl_tile_place *q = &b->t->place[o];
        q->acc_at = b->t->acc_bytes;
        if (q->kind == PL_FUSED_REDUCE) b->t->acc_bytes += pl_align64(pl_red_bytes(&q->red));
    }
    pl_tile_cut(b->t);
    return PL_OK;
}

/* Copies n items into the arena; NULL when out of memory. */
static void *keep(pl_arena *a, const void *from, size_t n, size_t size)
{
    void *to = pl_arena_alloc(a, (n + 1) * size);
    if (to && n) memcpy(to, from, n * size);
    return to;
}

/* The layout is built in arrays with spare room; the kept arrays have the exact size. */
static pl_status keep_all(pl_tile_code *t, pl_arena *a)
{
    t->in = keep(a, t->in, (size_t)t->n_in, sizeof *t->in);
    t->step = keep(a, t->step, (size_t)t->n_step, sizeof *t->step);
    t->place = keep(a, t->place, (size_t)t->n_place, sizeof *t->place);
    t->task = keep(a, t->task, (size_t)t->n_task, sizeof *t->task);
    t->link = keep(a, t->link, (size_t)t->n_link, sizeof *t->link);
    if (!t->link || !t->in || !t->step || !t->place || !t->task) return PL_ERR_MEMORY;
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        if (!s->walk) continue;
        s->walk = keep(a, s->walk, 1, sizeof *s->walk);
        if (!s->walk) return PL_ERR_MEMORY;
    }
    return PL_OK;
}

static pl_status compile(const pl_fused *p, pl_arena *scratch, pl_tile_code *t)
{
    pl_tile_build b = {.p = p, .t = t};
    size_t cap = 4 * (size_t)p->n_instr + 3 * (size_t)p->n_out + 1;
    b.cap = (int32_t)cap;
    t->vec = pl_vec_best();
    t->n_in = p->n_in;
    t->n_place = p->n_out;
    for (int o = 0; o < p->n_out; o++) t->bits |= p->out[o].bits;
    t->in = pl_arena_new(scratch, pl_reader, p->n_in + 1);
    t->step = pl_arena_new(scratch, pl_step, cap);
    t->place = pl_arena_new(scratch, pl_tile_place, p->n_out + 1);
    t->task = pl_arena_new(scratch, pl_span, PL_TILE_TASKS);
    t->link = pl_arena_new(scratch, pl_chain_link, cap);
    b.walks = pl_arena_new(scratch, pl_walk, cap);
    b.step_of = pl_arena_new(scratch, int32_t, p->n_instr + 1);
    b.raised = pl_arena_alloc(scratch, sizeof *b.raised * cap);
    b.place_step = pl_arena_new(scratch, int32_t, p->n_out + 1);
    if (!t->in || !t->step || !t->place || !t->task || !t->link || !b.walks || !b.step_of ||
        !b.raised || !b.place_step)
        return PL_ERR_MEMORY;
    return build_all(&b, scratch);
}

pl_status pl_tile_compile(const pl_fused *p, pl_arena *a, pl_tile_code **out)
{
    PL_TRY(pl_tile_check(p));
    pl_tile_code *t = pl_arena_new(a, pl_tile_code, 1);
    if (!t) return PL_ERR_MEMORY;
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = compile(p, &scratch, t);
    if (rc == PL_OK) rc = keep_all(t, a);
    pl_arena_release(&scratch);
    if (rc == PL_OK) *out = t;
    return rc;
}

size_t pl_tile_work_bytes(const pl_tile_code *t)
{
    return pl_align64(t->acc_bytes) + pl_align64(t->worker_bytes) * (size_t)pl_threads_count();
}
