/* tile.c - compiles a tile program: merges dims, chooses the tile, turns instructions into
 * steps and gives registers to steps. tile_check.c looks at the program before, tile_cut.c
 * deals the space to tasks after. See tile_plan.h for the result, tile_run.c for its execution.
 *
 * Nothing decided here changes a result's bits; orders of reductions are fixed in
 * tile_reduce.c.
 */
#include "cpu/tile/tile_plan.h"

#include "base/threads.h"

#include <string.h>

enum {
    REGISTER_BYTES = 32 * 1024, /* of a worker, so that they stay in the first caches */
    COLUMN_BYTES = 64 * 1024,   /* with column reductions, for which more rows at a time pay */
    ROW_CALLS_FROM = 64,        /* rows at least this long are worth a call each */
    BUSY_FROM = 3,              /* whole-tile steps that make a tile busy */
    READ_ONLY_TILE = 32768      /* elements: nothing to keep near, long columns */
};

typedef struct build {
    const pl_fused *p;
    pl_tile *t;
    int32_t *step_of;     /* per instruction */
    int32_t (*raised)[3]; /* per step and level: the step that raises it, or -1 */
    int32_t *place_step;  /* per place */
    pl_walk *walks;
    int32_t cap;                /* of steps */
    int32_t row_dim;            /* first dim of the row; rank without rows */
    int64_t dim[PL_SPACE_RANK]; /* merged space */
    size_t full_bytes;          /* registers a tile element takes */
} build;

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

/* Whether all operands, ramps and draws see dims outer and inner, which are neighbours, as one. */
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

/* Fills from[k], the program's innermost dim of merged dim k, and the merged sizes. With rows
 * that are the whole space a dim of size 1 goes in front (from = -1), for tiles to be cut
 * along. */
static void merge_dims(build *b, int *from)
{
    const pl_fused *p = b->p;
    pl_tile *t = b->t;
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

static void set_space(build *b, int *from)
{
    pl_tile *t = b->t;
    merge_dims(b, from);
    memcpy(t->dim, b->dim, sizeof t->dim);
    t->total = 1;
    for (int d = 0; d < t->rank; d++) t->total *= t->dim[d];
    t->empty = t->total == 0; /* the layout is made as if of one element, and never used */
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
        for (int d = 0; d < t->rank; d++) r->stride[d] = from[d] < 0 ? 0 : x->stride[from[d]];
        r->bits = x->bits;
        r->whole = !x->bits && x->offset == 0 && is_dense(t->dim, r->stride, 0, t->rank);
    }
}

/* Rows that make a piece of a chain: long enough for a call, and whole vectors if possible. */
static int64_t choose_brief(int64_t inner)
{
    int64_t rows = (384 + inner - 1) / inner;
    for (int64_t k = rows; k <= 4 * rows; k++)
        if (k * inner % 128 == 0) return k;
    return rows;
}

/* The dim to cut along, and how much of it a tile takes: as near to `target` elements as whole
 * inner dims allow, in pieces of about the same size. */
static void choose_tile(build *b, int64_t target)
{
    pl_tile *t = b->t;
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

/* ---- steps ------------------------------------------------------------------------------ */

static pl_step *new_step(build *b, pl_step_code code, pl_level level, pl_dtype dtype)
{
    pl_tile *t = b->t;
    if (t->n_step == b->cap) PL_BUG("tile: more than %d steps", b->cap);
    for (int l = 0; l < 3; l++) b->raised[t->n_step][l] = -1;
    pl_step *s = &t->step[t->n_step++];
    memset(s, 0, sizeof *s);
    s->code = code;
    s->level = level;
    s->dtype = dtype;
    s->cls = pl_vec_class_of(dtype);
    s->slot = -1;
    s->operand = s->map = s->flow = -1;
    s->stable = level == PL_LEVEL_ONE;
    return s;
}

static pl_vec_fn rounding(const pl_tile *t, pl_dtype d)
{
    return d == PL_BF16 ? t->vec->move->round_bf16 : d == PL_F16 ? t->vec->move->round_f16 : NULL;
}

/* The walk of dims [t, end) with neighbours merged; dim t, whose extent varies, stays first. */
static pl_walk *new_walk(build *b, const int64_t *stride, const double *step, int end)
{
    const pl_tile *t = b->t;
    pl_walk *w = &b->walks[t->n_step];
    memset(w, 0, sizeof *w);
    w->rank = 1;
    w->size[0] = t->tile_t;
    w->stride[0] = stride ? stride[t->t] : 0;
    w->step[0] = step ? step[t->t] : 0.0;
    for (int d = t->t + 1; d < end; d++) {
        int64_t n = t->dim[d], s = stride ? stride[d] : 0;
        int k = w->rank - 1;
        if (stride && k > 0 && w->stride[k] == s * n) {
            w->size[k] *= n;
            w->stride[k] = s;
            continue;
        }
        w->size[w->rank] = n;
        w->stride[w->rank] = s;
        w->step[w->rank++] = step ? step[d] : 0.0;
    }
    /* Dense: [t, inner] in steps of one element; a tile of one index along t needs no stride.
     */
    int64_t inner = w->rank > 1 ? w->size[1] : 1;
    w->dense = stride && w->rank <= 2 && (w->rank == 1 || w->stride[1] == 1) &&
               (w->stride[0] == inner || (t->tile_t == 1 && w->rank == 2));
    return w;
}

static pl_level level_of(const build *b, const int64_t *stride, const double *step)
{
    const pl_tile *t = b->t;
    bool in_row = false, in_tile = false;
    for (int d = t->t; d < t->rank; d++) {
        bool moves = stride ? stride[d] != 0 : step[d] != 0.0;
        in_tile |= moves;
        in_row |= moves && d >= b->row_dim;
    }
    if (!in_tile) return PL_LEVEL_ONE;
    return t->row && !in_row ? PL_LEVEL_ROW : PL_LEVEL_FULL;
}

static void add_load(build *b, const pl_fused_instr *x)
{
    pl_tile *t = b->t;
    const pl_reader *r = &t->in[x->operand];
    pl_level level = level_of(b, r->stride, NULL);
    pl_walk *w = new_walk(b, r->stride, NULL, level == PL_LEVEL_ROW ? b->row_dim : t->rank);
    pl_step *s = new_step(b, PL_STEP_LOAD, level, x->dtype);
    s->operand = x->operand;
    s->walk = w;
    s->stable = r->stride[t->t] == 0;
    bool half = x->dtype == PL_BF16 || x->dtype == PL_F16;
    if (half) s->fn = x->dtype == PL_BF16 ? t->vec->move->load_bf16 : t->vec->move->load_f16;
    s->alias = !half && !r->bits && (level == PL_LEVEL_ONE || w->dense);
}

static void add_constant(build *b, const pl_fused_instr *x)
{
    pl_step *s = new_step(b, PL_STEP_IMM, PL_LEVEL_ONE, x->dtype);
    s->alias = true;
    pl_vec_fn to = x->dtype == PL_BOOL ? b->t->vec->move->to_bool[PL_VEC_F64]
                                       : b->t->vec->move->cast[PL_VEC_F64][s->cls];
    to(&s->value, &x->imm, NULL, NULL, 1, 0.0);
    pl_vec_fn round = rounding(b->t, x->dtype);
    if (round) round(&s->value, &s->value, NULL, NULL, 1, 0.0);
}

static void add_ramp(build *b, const pl_fused_instr *x, const int *from)
{
    bool moves = false;
    for (int d = 0; d < PL_FUSED_RANK; d++) moves |= x->step[d] != 0.0;
    if (!moves) {
        add_constant(b, x);
        return;
    }
    pl_tile *t = b->t;
    double step[PL_SPACE_RANK];
    for (int d = 0; d < t->rank; d++) step[d] = from[d] < 0 ? 0.0 : x->step[from[d]];
    pl_level level = level_of(b, NULL, step);
    pl_walk *w = new_walk(b, NULL, step, level == PL_LEVEL_ROW ? b->row_dim : t->rank);
    pl_step *s = new_step(b, PL_STEP_IOTA, level, x->dtype);
    s->walk = w;
    s->imm = x->imm;
    s->round = rounding(t, x->dtype);
    s->stable = step[t->t] == 0.0;
    for (int d = 0; d <= t->t; d++) w->outer[d] = step[d];
}

/* A draw walks the numbers of its elements as a load walks memory. */
static void add_draw(build *b, const pl_fused_instr *x, const int *from)
{
    pl_tile *t = b->t;
    int64_t stride[PL_SPACE_RANK];
    for (int d = 0; d < t->rank; d++) stride[d] = from[d] < 0 ? 0 : (int64_t)x->step[from[d]];
    pl_level level = level_of(b, stride, NULL);
    pl_walk *w = new_walk(b, stride, NULL, level == PL_LEVEL_ROW ? b->row_dim : t->rank);
    pl_step *s = new_step(b, PL_STEP_DRAW, level, x->dtype);
    s->walk = w;
    s->operand = x->operand;
    s->stream = x->draw.stream;
    s->normal = x->draw.normal;
    s->imm = x->imm;
    s->round = x->draw.normal ? rounding(t, x->dtype) : NULL; /* uniform ones fit their dtype */
    s->stable = stride[t->t] == 0;
    for (int d = 0; d <= t->t; d++) w->outer[d] = (double)stride[d];
}

/* The step that holds src's value at `level` or above. */
static int32_t raise_to(build *b, int32_t src, pl_level level)
{
    pl_tile *t = b->t;
    if (t->step[src].level >= level) return src;
    if (b->raised[src][level] >= 0) return b->raised[src][level];
    pl_step *s = new_step(b, PL_STEP_RAISE, level, t->step[src].dtype);
    bool one = t->step[src].level == PL_LEVEL_ONE;
    s->fn = one ? t->vec->move->fill[s->cls] : t->vec->move->repeat[s->cls];
    s->per_row = !one; /* counts rows, not elements */
    s->imm = (double)t->row;
    s->n_arg = 1;
    s->arg[0] = src;
    s->stable = t->step[src].stable;
    return b->raised[src][level] = t->n_step - 1;
}

/* A step that takes the steps in arg; the first n_vec of them must be at its own level. */
static int32_t add_map(build *b, pl_dtype dtype, const int32_t *arg, int n, int n_vec)
{
    pl_tile *t = b->t;
    pl_level level = PL_LEVEL_ONE;
    int32_t use[3] = {0};
    bool stable = true, per_row = false;
    for (int k = 0; k < n; k++)
        if (t->step[arg[k]].level > level) level = t->step[arg[k]].level;
    for (int k = 0; k < n; k++) {
        bool by_row = level == PL_LEVEL_FULL && t->step[arg[k]].level == PL_LEVEL_ROW;
        bool must = k < n_vec || (by_row && t->row < ROW_CALLS_FROM);
        use[k] = must ? raise_to(b, arg[k], level) : arg[k];
        per_row |= by_row && !must;
        stable &= t->step[use[k]].stable;
    }
    pl_step *s = new_step(b, PL_STEP_MAP, level, dtype);
    s->n_arg = n;
    memcpy(s->arg, use, sizeof use);
    s->per_row = per_row;
    s->stable = stable;
    return t->n_step - 1;
}

static void add_scalar(build *b, const pl_fused_instr *x)
{
    pl_tile *t = b->t;
    int n = x->n_arg;
    bool select = x->fn == PL_SCALAR_SELECT;
    int32_t arg[3] = {0};
    for (int k = 0; k < n; k++) arg[k] = b->step_of[x->arg[k]];
    pl_vec_class cls = t->step[arg[n - 1]].cls;
    pl_step *s = &t->step[add_map(b, x->dtype, arg, n, n == 1 || select ? 1 : 0)];
    bool low[3] = {false, false, false};
    for (int k = 0; k < n; k++) low[k] = t->step[s->arg[k]].level < s->level;
    int mode = select   ? low[2] + 2 * low[1]
               : n == 1 ? 0
               : low[1] ? PL_VEC_VS
               : low[0] ? PL_VEC_SV
                        : PL_VEC_VV;
    s->fn = t->vec->map[cls]->fn[x->fn][mode];
    s->map = (int32_t)x->fn;
    s->imm = x->imm;
    s->round = pl_scalar_gives_bool(x->fn) ? NULL : rounding(t, x->dtype);
}

/* A cast, or the argument itself where its registers hold the result already. */
static int32_t cast_step(build *b, int32_t src, pl_dtype from, pl_dtype to, bool copy)
{
    const pl_vec_move *m = b->t->vec->move;
    pl_vec_class fc = pl_vec_class_of(from), tc = pl_vec_class_of(to);
    pl_vec_fn round = from == to ? NULL : rounding(b->t, to);
    bool plain = fc == tc && !round && (to != PL_BOOL || from == PL_BOOL);
    if (plain && !copy) return src;
    int32_t i = add_map(b, to, &src, 1, 1);
    pl_step *s = &b->t->step[i];
    s->fn = to == PL_BOOL && from != PL_BOOL ? m->to_bool[fc] : m->cast[fc][tc];
    s->round = round;
    if (round && fc == tc) s->fn = round, s->round = NULL;
    return i;
}

static void add_row_reduce(build *b, const pl_fused_instr *x)
{
    pl_tile *t = b->t;
    int32_t src = raise_to(b, b->step_of[x->arg[0]], PL_LEVEL_FULL);
    pl_step *s = new_step(b, PL_STEP_REDUCE, PL_LEVEL_ROW, x->dtype);
    s->n_arg = 1;
    s->arg[0] = src;
    s->reduce = x->reduce;
    s->round = rounding(t, x->dtype);
    s->stable = t->step[src].stable;
}

static void add_row_var(build *b, const pl_fused_instr *x)
{
    int32_t src = b->step_of[x->arg[0]];
    pl_step *s = new_step(b, PL_STEP_VAR, PL_LEVEL_ROW, x->dtype);
    s->n_arg = 1;
    s->arg[0] = src;
    s->round = rounding(b->t, x->dtype);
    s->stable = b->t->step[src].stable;
}

/* Whether x multiplies a float by the constant 1; *same is then the step it equals. Gradients
 * begin with such products. */
static bool times_one(const build *b, const pl_fused_instr *x, int32_t *same)
{
    const pl_step *step = b->t->step;
    for (int k = 0; k < 2; k++) {
        const pl_step *a = &step[b->step_of[x->arg[k]]];
        bool one = a->code == PL_STEP_IMM && ((a->cls == PL_VEC_F32 && a->value.f == 1.0f) ||
                                              (a->cls == PL_VEC_F64 && a->value.d == 1.0));
        if (!one) continue;
        *same = b->step_of[x->arg[1 - k]];
        return true;
    }
    return false;
}

static void add_instr(build *b, int i, const int *from)
{
    const pl_fused_instr *x = &b->p->instr[i];
    switch (x->code) {
    case PL_FUSED_LOAD: add_load(b, x); break;
    case PL_FUSED_RAMP: add_ramp(b, x, from); break;
    case PL_FUSED_DRAW: add_draw(b, x, from); break;
    case PL_FUSED_MAP:
        if (x->fn == PL_SCALAR_CAST) {
            b->step_of[i] =
                cast_step(b, b->step_of[x->arg[0]], b->p->instr[x->arg[0]].dtype, x->dtype, false);
            return;
        }
        if (x->fn == PL_SCALAR_MUL && times_one(b, x, &b->step_of[i])) return;
        add_scalar(b, x);
        break;
    case PL_FUSED_ROW_REDUCE: add_row_reduce(b, x); break;
    case PL_FUSED_ROW_VAR: add_row_var(b, x); break;
    }
    b->step_of[i] = b->t->n_step - 1;
}

/* ---- outputs ---------------------------------------------------------------------------- */

static pl_status add_place(build *b, int o)
{
    const pl_fused_output *x = &b->p->out[o];
    pl_tile *t = b->t;
    pl_place *q = &t->place[o];
    memset(q, 0, sizeof *q);
    q->kind = x->kind;
    q->out = x->out;
    q->out2 = x->kind == PL_FUSED_REDUCE && x->reduce == PL_REDUCE_MOMENTS ? x->out2 : -1;
    q->width = pl_dtype_bytes(x->dtype);
    q->bits = x->bits;
    pl_dtype from = b->p->instr[x->src].dtype;
    int32_t src = b->step_of[x->src];
    if (x->kind == PL_FUSED_REDUCE) {
        b->place_step[o] = raise_to(b, src, PL_LEVEL_FULL);
        pl_red_plan(&q->red, x->reduce, from, x->dtype, b->p->rank, b->p->dim, x->mask);
        return PL_OK;
    }
    q->store = x->dtype == PL_BF16 ? t->vec->move->store_bf16
               : x->dtype == PL_F16
                   ? t->vec->move->store_f16
                   : t->vec->move->cast[pl_vec_class_of(x->dtype)][pl_vec_class_of(x->dtype)];
    src = cast_step(b, src, from, x->dtype, false);
    if (x->kind == PL_FUSED_STORE) {
        src = raise_to(b, src, PL_LEVEL_FULL);
        if (t->step[src].alias) src = cast_step(b, src, x->dtype, x->dtype, true);
    } else {
        PL_FAIL_IF(t->step[src].level == PL_LEVEL_FULL, PL_ERR_ARG,
                   "tile: output %d wants one value a row, instruction %d varies in it", o, x->src);
        src = raise_to(b, src, PL_LEVEL_ROW);
    }
    b->place_step[o] = src;
    return PL_OK;
}

/* Puts places in the order of their steps. */
static void sort_places(build *b, pl_place *spare)
{
    pl_tile *t = b->t;
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

/* ---- registers -------------------------------------------------------------------------- */

static void find_uses(pl_tile *t)
{
    for (int i = 0; i < t->n_step; i++) {
        t->step[i].last_use = i;
        for (int k = 0; k < t->step[i].n_arg; k++) t->step[t->step[i].arg[k]].last_use = i;
    }
    for (int i = 0; i < t->n_step; i++) /* a chain reads its operands at its head */
        for (int m = t->step[i].flow; m >= 0 && !t->step[i].absorbed; m = t->step[m].flow)
            for (int k = 0; k < t->step[m].n_arg; k++) {
                int32_t *last = &t->step[t->step[m].arg[k]].last_use;
                if (*last < i) *last = i;
            }
}

/* An output may be the memory of a densely read operand. A store that comes before the
 * operand's last use would destroy it, so it must be able to wait to the tile's end in a
 * register. */
static void find_hazards(pl_tile *t)
{
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        for (int o = s->first_out; o < s->first_out + s->n_out; o++) {
            pl_place *q = &t->place[o];
            if (q->kind != PL_FUSED_STORE) continue;
            for (int k = 0; k < t->n_step && !q->bits; k++) {
                const pl_step *l = &t->step[k];
                if (l->code != PL_STEP_LOAD || !t->in[l->operand].whole) continue;
                if (pl_dtype_bytes(t->in[l->operand].dtype) != q->width) continue;
                if ((l->alias ? l->last_use : k) > i) q->hazard |= (uint64_t)1 << l->operand;
            }
            if (q->hazard) s->last_use = t->n_step;
            bool taken = o > s->first_out && t->place[o - 1].direct;
            q->direct = !q->bits && !taken && !s->stable && q->width == pl_vec_width(s->cls);
        }
    }
}

static bool needs_register(const pl_tile *t, const pl_step *s)
{
    if (s->alias) return false;
    for (int o = s->first_out; o < s->first_out + s->n_out; o++)
        if (t->place[o].direct && !t->place[o].hazard) return false;
    return true;
}

typedef struct pools {
    uint8_t busy[3][PL_TILE_INSTRS * 4];
    int32_t count[3];
} pools;

static int pool_of(const pl_step *s)
{
    size_t w = pl_vec_width(s->cls);
    return w == 1 ? 0 : w == 4 ? 1 : 2;
}

static bool pooled(const pl_tile *t, const pl_step *s)
{
    return s->level == PL_LEVEL_FULL && !s->stable && !s->absorbed && needs_register(t, s);
}

/* Gives back the registers that s reads and step i is the last to need. */
static void free_args(const pl_tile *t, pools *pl, const pl_step *s, int i)
{
    for (int k = 0; k < s->n_arg; k++) {
        const pl_step *a = &t->step[s->arg[k]];
        if (a->slot >= 0 && a->last_use == i) pl->busy[pool_of(a)][a->slot] = 0;
    }
}

/* Whole-tile registers by liveness: a result may take its dying argument's place. */
static void give_slots(pl_tile *t, pools *pl)
{
    memset(pl, 0, sizeof *pl);
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        for (int m = i; m >= 0; m = t->step[m].flow) free_args(t, pl, &t->step[m], i);
        if (!pooled(t, s)) continue;
        int w = pool_of(s), slot = 0;
        while (pl->busy[w][slot]) slot++;
        pl->busy[w][slot] = s->last_use > i; /* else only its outputs read it, at once */
        if (slot >= pl->count[w]) pl->count[w] = slot + 1;
        s->slot = slot;
    }
}

static size_t align64(size_t x)
{
    return (x + 63) & ~(size_t)63;
}

/* Registers a multiple of 4 KiB apart would fight: a load is taken to depend on a store to the
 * same place in another page. */
static size_t skewed(size_t bytes)
{
    return align64(bytes) + 192;
}

static size_t full_bytes_of(const pl_tile *t, const pools *pl)
{
    size_t each = (size_t)pl->count[0] + 4 * (size_t)pl->count[1] + 8 * (size_t)pl->count[2];
    /* Stable values and operands in memory are read again in every tile. */
    uint8_t hot[PL_TILE_INSTRS * 4 + PL_TILE_OUTPUTS * 3 + 1] = {0};
    for (int i = 0; i < t->n_step; i++)
        for (int k = 0; k < t->step[i].n_arg && !t->step[i].stable; k++) hot[t->step[i].arg[k]] = 1;
    for (int i = 0; i < t->n_step; i++) {
        const pl_step *s = &t->step[i];
        if (s->level == PL_LEVEL_FULL && (s->stable || s->alias) && hot[i] && !s->brief)
            each += pl_vec_width(s->cls);
    }
    return each;
}

/* A worker's block: pointers, operand bases, change marks, lanes, then registers. */
static void lay_out_worker(pl_tile *t, const pools *pl)
{
    size_t at = 0, n = (size_t)(t->tile_t * t->inner), steps = (size_t)t->n_step;
    size_t rows = t->row ? n / (size_t)t->row : 0, raw = 0, full_at[3];
    t->ptr_at = at, at += align64(sizeof(void *) * steps);
    t->base_at = at, at += align64(sizeof(int64_t) * (size_t)t->n_in);
    t->changed_at = at, at += align64(steps + 1);
    t->lanes_at = at, at += align64(sizeof(pl_acc) * PL_RED_LANES * ((size_t)t->n_place + 1));
    for (int w = 0; w < 3; w++) {
        full_at[w] = at;
        at += skewed(n * (w == 0 ? 1u : w == 1 ? 4u : 8u)) * (size_t)pl->count[w];
    }
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        size_t width = pl_vec_width(s->cls);
        if (s->code == PL_STEP_LOAD && s->fn) raw = align64(2 * n);
        if (s->alias) continue;
        if (s->slot >= 0) {
            s->at = full_at[pool_of(s)] + skewed(n * width) * (size_t)s->slot;
            continue;
        }
        if (s->level == PL_LEVEL_FULL && !s->stable) continue; /* straight into an output */
        size_t count = s->brief                    ? (size_t)(t->brief_t * t->inner)
                       : s->level == PL_LEVEL_FULL ? n
                       : s->level == PL_LEVEL_ROW  ? rows
                                                   : 1;
        s->at = at;
        at += s->level == PL_LEVEL_FULL
                  ? skewed(count * width)
                  : align64(count * width) * (s->code == PL_STEP_REDUCE ? 2 : 1);
    }
    t->raw_at = at;
    t->worker_bytes = at + raw;
}

/* ---- compile ---------------------------------------------------------------------------- */

static pl_status lay_out(build *b, int64_t target, const int *from, pl_place *spare, pools *pl)
{
    pl_tile *t = b->t;
    t->n_step = 0;
    choose_tile(b, target);
    for (int i = 0; i < b->p->n_instr; i++) add_instr(b, i, from);
    for (int o = 0; o < t->n_place; o++) PL_TRY(add_place(b, o));
    sort_places(b, spare);
    pl_tile_chains(t);
    find_uses(t);
    find_hazards(t);
    give_slots(t, pl);
    b->full_bytes = full_bytes_of(t, pl);
    return PL_OK;
}

/* Steps that compute or copy whole tiles; with none, memory is only read, by reductions. */
static int count_work(const pl_tile *t)
{
    int work = 0;
    for (int i = 0; i < t->n_step; i++) {
        const pl_step *s = &t->step[i];
        bool quiet = s->stable || s->absorbed || (s->code == PL_STEP_LOAD && s->alias);
        work += s->level == PL_LEVEL_FULL && !quiet;
    }
    return work;
}

static size_t register_bytes(const pl_tile *t)
{
    bool columns = false;
    for (int o = 0; o < t->n_place; o++) columns |= t->place[o].red.vertical;
    return columns ? COLUMN_BYTES : REGISTER_BYTES;
}

static pl_status build_all(build *b, pl_arena *a)
{
    static const int64_t targets[] = {READ_ONLY_TILE, 4096, 2048, 1024};
    int from[PL_SPACE_RANK];
    pools *pl = pl_arena_new(a, pools, 1);
    pl_place *spare = pl_arena_new(a, pl_place, b->p->n_out + 1);
    if (!pl || !spare) return PL_ERR_MEMORY;
    set_space(b, from);
    for (int k = b->p->row_rank ? 1 : 0; k < 4; k++) {
        PL_TRY(lay_out(b, targets[k], from, spare, pl));
        size_t bytes = b->full_bytes * (size_t)(b->t->tile_t * b->t->inner);
        if (k == 0 ? count_work(b->t) == 0 : bytes <= register_bytes(b->t)) break;
    }
    lay_out_worker(b->t, pl);
    b->t->busy = count_work(b->t) >= BUSY_FROM;
    for (int o = 0; o < b->t->n_place; o++) {
        pl_place *q = &b->t->place[o];
        q->acc_at = b->t->acc_bytes;
        if (q->kind == PL_FUSED_REDUCE) b->t->acc_bytes += align64(pl_red_bytes(&q->red));
    }
    pl_tile_cut(b->t);
    return PL_OK;
}

/* A copy of n items in the arena; NULL when out of memory. */
static void *keep(pl_arena *a, const void *from, size_t n, size_t size)
{
    void *to = pl_arena_alloc(a, (n + 1) * size);
    if (to && n) memcpy(to, from, n * size);
    return to;
}

/* The layout is made in arrays with room to spare; what stays has the exact size. */
static pl_status keep_all(pl_tile *t, pl_arena *a)
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

static pl_status compile(const pl_fused *p, pl_arena *scratch, pl_tile *t)
{
    build b = {.p = p, .t = t};
    size_t cap = 4 * (size_t)p->n_instr + 3 * (size_t)p->n_out + 1;
    b.cap = (int32_t)cap;
    t->vec = pl_vec_best();
    t->n_in = p->n_in;
    t->n_place = p->n_out;
    for (int o = 0; o < p->n_out; o++) t->bits |= p->out[o].bits;
    t->in = pl_arena_new(scratch, pl_reader, p->n_in + 1);
    t->step = pl_arena_new(scratch, pl_step, cap);
    t->place = pl_arena_new(scratch, pl_place, p->n_out + 1);
    t->task = pl_arena_new(scratch, pl_span, PL_TILE_TASKS);
    t->link = pl_arena_new(scratch, pl_link, cap);
    b.walks = pl_arena_new(scratch, pl_walk, cap);
    b.step_of = pl_arena_new(scratch, int32_t, p->n_instr + 1);
    b.raised = pl_arena_alloc(scratch, sizeof *b.raised * cap);
    b.place_step = pl_arena_new(scratch, int32_t, p->n_out + 1);
    if (!t->in || !t->step || !t->place || !t->task || !t->link || !b.walks || !b.step_of ||
        !b.raised || !b.place_step)
        return PL_ERR_MEMORY;
    return build_all(&b, scratch);
}

pl_status pl_tile_compile(const pl_fused *p, pl_arena *a, pl_tile **out)
{
    PL_TRY(pl_tile_check(p));
    pl_tile *t = pl_arena_new(a, pl_tile, 1);
    if (!t) return PL_ERR_MEMORY;
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = compile(p, &scratch, t);
    if (rc == PL_OK) rc = keep_all(t, a);
    pl_arena_release(&scratch);
    if (rc == PL_OK) *out = t;
    return rc;
}

size_t pl_tile_work_bytes(const pl_tile *t)
{
    return align64(t->acc_bytes) + align64(t->worker_bytes) * (size_t)pl_threads_count();
}
