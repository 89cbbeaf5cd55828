/* tile_steps.c - turns the instructions and outputs of a group into steps.
 *
 * Idea: a step is one call of a vectorised loop. Its value lives at the lowest of three levels that
 * holds it: one element for the whole tile, one per row, or the whole tile. An argument at a lower
 * level is passed as a scalar where the loop has a mode for it; otherwise a RAISE step spreads it.
 *
 * Example: %2 = mul %0 %1 with %0 of the whole tile and %1 one element per row. Rows of 64 elements
 * and more: one call per row, %1 as a scalar. Shorter rows: %1 is raised to the whole tile, once
 * for all its readers, and one call computes the tile.
 *
 * Invariant: no choice here changes bits. A product with the constant 1 and a cast that changes
 * nothing need no step: their readers read the argument.
 */
#include "cpu/tile/tile_build.h"

#include <string.h>

enum { ROW_CALLS_FROM = 64 }; /* rows of at least this many elements get a call each */

/* ---- steps ------------------------------------------------------------------------------ */

static pl_step *new_step(pl_tile_build *b, pl_step_code code, pl_level level, pl_dtype dtype)
{
    pl_tile_code *t = b->t;
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

static pl_vec_fn rounding(const pl_tile_code *t, pl_dtype d)
{
    return d == PL_BF16 ? t->vec->move->round_bf16 : d == PL_F16 ? t->vec->move->round_f16 : NULL;
}

/* Returns the walk of dims [t, end) with neighbours merged; dim t, whose extent varies, stays
 * first. */
static pl_walk *new_walk(pl_tile_build *b, const int64_t *stride, const double *step, int end)
{
    const pl_tile_code *t = b->t;
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

static pl_level level_of(const pl_tile_build *b, const int64_t *stride, const double *step)
{
    const pl_tile_code *t = b->t;
    bool in_row = false, in_tile = false;
    for (int d = t->t; d < t->rank; d++) {
        bool moves = stride ? stride[d] != 0 : step[d] != 0.0;
        in_tile |= moves;
        in_row |= moves && d >= b->row_dim;
    }
    if (!in_tile) return PL_LEVEL_ONE;
    return t->row && !in_row ? PL_LEVEL_ROW : PL_LEVEL_FULL;
}

static void add_load(pl_tile_build *b, const pl_fused_instr *x)
{
    pl_tile_code *t = b->t;
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

static void add_constant(pl_tile_build *b, const pl_fused_instr *x)
{
    pl_step *s = new_step(b, PL_STEP_IMM, PL_LEVEL_ONE, x->dtype);
    s->alias = true;
    pl_vec_fn to = x->dtype == PL_BOOL ? b->t->vec->move->to_bool[PL_VEC_F64]
                                       : b->t->vec->move->cast[PL_VEC_F64][s->cls];
    to(&s->value, &x->imm, NULL, NULL, 1, 0.0);
    pl_vec_fn round = rounding(b->t, x->dtype);
    if (round) round(&s->value, &s->value, NULL, NULL, 1, 0.0);
}

static void add_ramp(pl_tile_build *b, const pl_fused_instr *x)
{
    bool moves = false;
    for (int d = 0; d < PL_FUSED_RANK; d++) moves |= x->step[d] != 0.0;
    if (!moves) {
        add_constant(b, x);
        return;
    }
    pl_tile_code *t = b->t;
    double step[PL_SPACE_RANK];
    for (int d = 0; d < t->rank; d++) step[d] = b->from[d] < 0 ? 0.0 : x->step[b->from[d]];
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
static void add_draw(pl_tile_build *b, const pl_fused_instr *x)
{
    pl_tile_code *t = b->t;
    int64_t stride[PL_SPACE_RANK];
    for (int d = 0; d < t->rank; d++) stride[d] = b->from[d] < 0 ? 0 : (int64_t)x->step[b->from[d]];
    pl_level level = level_of(b, stride, NULL);
    pl_walk *w = new_walk(b, stride, NULL, level == PL_LEVEL_ROW ? b->row_dim : t->rank);
    pl_step *s = new_step(b, PL_STEP_DRAW, level, x->dtype);
    s->walk = w;
    s->operand = x->operand;
    s->stream = x->draw.stream;
    s->normal = x->draw.normal;
    s->imm = x->imm;
    /* uniform numbers are exact in their dtype */
    s->round = x->draw.normal ? rounding(t, x->dtype) : NULL;
    s->stable = stride[t->t] == 0;
    for (int d = 0; d <= t->t; d++) w->outer[d] = (double)stride[d];
}

/* Returns the step that holds src's value at `level` or above. */
static int32_t raise_to(pl_tile_build *b, int32_t src, pl_level level)
{
    pl_tile_code *t = b->t;
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

/* Adds a step with the arguments in arg; the first n_vec of them must be at its own level. */
static int32_t add_map(pl_tile_build *b, pl_dtype dtype, const int32_t *arg, int n, int n_vec)
{
    pl_tile_code *t = b->t;
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

static void add_scalar(pl_tile_build *b, const pl_fused_instr *x)
{
    pl_tile_code *t = b->t;
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

/* Returns a cast, or the argument itself where its registers already hold the result. */
static int32_t cast_step(pl_tile_build *b, int32_t src, pl_dtype from, pl_dtype to, bool copy)
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

static void add_row_reduce(pl_tile_build *b, const pl_fused_instr *x)
{
    pl_tile_code *t = b->t;
    int32_t src = raise_to(b, b->step_of[x->arg[0]], PL_LEVEL_FULL);
    pl_step *s = new_step(b, PL_STEP_REDUCE, PL_LEVEL_ROW, x->dtype);
    s->n_arg = 1;
    s->arg[0] = src;
    s->reduce = x->reduce;
    s->round = rounding(t, x->dtype);
    s->stable = t->step[src].stable;
}

static void add_row_var(pl_tile_build *b, const pl_fused_instr *x)
{
    int32_t src = b->step_of[x->arg[0]];
    pl_step *s = new_step(b, PL_STEP_VAR, PL_LEVEL_ROW, x->dtype);
    s->n_arg = 1;
    s->arg[0] = src;
    s->round = rounding(b->t, x->dtype);
    s->stable = b->t->step[src].stable;
}

/* Whether x multiplies a float by the constant 1; *same is then the step that it equals. Gradients
 * begin with such products. */
static bool times_one(const pl_tile_build *b, const pl_fused_instr *x, int32_t *same)
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

void pl_tile_add_instr(pl_tile_build *b, int i)
{
    const pl_fused_instr *x = &b->p->instr[i];
    switch (x->code) {
    case PL_FUSED_LOAD: add_load(b, x); break;
    case PL_FUSED_RAMP: add_ramp(b, x); break;
    case PL_FUSED_DRAW: add_draw(b, x); break;
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

pl_status pl_tile_add_place(pl_tile_build *b, int o)
{
    const pl_fused_output *x = &b->p->out[o];
    pl_tile_code *t = b->t;
    pl_tile_place *q = &t->place[o];
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
                   "tile: output %d has one value per row, but instruction %d varies within a row",
                   o, x->src);
        src = raise_to(b, src, PL_LEVEL_ROW);
    }
    b->place_step[o] = src;
    return PL_OK;
}
