/* attention_rows.c - attention over tokens whose queries, keys and values lie in one row.
 *
 *   attention_rows      (x [B,N,3HD]) -> o [B,N,H,D], lse [B,H,N]
 *   attention_rows_bwd  (x, o, lse, d_o, d_lse?) -> dx
 *
 * A layer with one product for q, k and v has such rows: all heads of q, then of k, then of v (step
 * D), or q, k and v of each head side by side (step 3D), in any order. The constructor of attention
 * follows its operands up through views, slices and permutations (ir/group/amap.h) and takes this
 * form where they are the three parts of one value; the operands themselves are then not computed.
 * Rows may lie [tokens, batch, row], as some libraries have them: then whole rows change places
 * once, instead of each operand. Formulas and kernels are in attention.c.
 */
#include "base/err.h"
#include "ir/graph.h"
#include "ir/group/amap.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/net/attention.h"

#include <math.h>
#include <string.h>

static const pl_attr attrs[] = {
    PL_ATTR(pl_attention_rows_attr, scale, FLOAT), PL_ATTR(pl_attention_rows_attr, causal, BOOL),
    PL_ATTR(pl_attention_rows_attr, heads, INT),   PL_ATTR(pl_attention_rows_attr, q_at, INT),
    PL_ATTR(pl_attention_rows_attr, k_at, INT),    PL_ATTR(pl_attention_rows_attr, v_at, INT),
    PL_ATTR(pl_attention_rows_attr, step, INT),    PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
/* Whether the parts are the three thirds of a row, or of each head of it. */
static bool covers(const pl_attention_rows_attr *a, int64_t d)
{
    int64_t part = a->step == d ? a->heads * d : d, at[3] = {a->q_at, a->k_at, a->v_at};
    int seen = 0;
    if (a->step != d && a->step != 3 * d) return false;
    for (int i = 0; i < 3; i++) {
        if (at[i] < 0 || at[i] % part || at[i] / part > 2) return false;
        seen |= 1 << (at[i] / part);
    }
    return seen == 7;
}

static pl_status rows_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_attention_rows_attr *a = attr;
    const pl_type *x = &in[0];
    char s[96];
    pl_type_text(x, s, sizeof s);
    PL_FAIL_IF(x->rank != 3 || !pl_dtype_is_float(x->dtype), PL_ERR_SHAPE,
               "x is %s; needs floats [batch, tokens, row]", s);
    PL_FAIL_IF(a->heads < 1 || x->dim[2] < 1 || x->dim[2] % (3 * a->heads), PL_ERR_SHAPE,
               "rows of %s are not q, k and v of %lld heads", s, (long long)a->heads);
    PL_FAIL_IF(x->dim[1] < 1, PL_ERR_SHAPE, "x is %s: it has no tokens to attend to", s);
    int64_t d = x->dim[2] / (3 * a->heads);
    PL_FAIL_IF(!covers(a, d), PL_ERR_SHAPE,
               "q at %lld, k at %lld and v at %lld with step %lld do not lie within the rows of %s",
               (long long)a->q_at, (long long)a->k_at, (long long)a->v_at, (long long)a->step, s);
    if (a->scale == 0) a->scale = 1 / sqrt((double)d);
    const int64_t o[4] = {x->dim[0], x->dim[1], a->heads, d};
    const int64_t lse[3] = {x->dim[0], a->heads, x->dim[1]};
    out[0] = pl_type_make(x->dtype, 4, o);
    out[1] = pl_type_make(x->dtype == PL_F64 ? PL_F64 : PL_F32, 3, lse);
    return PL_OK;
}

static pl_status rows_bwd_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    pl_type made[2];
    static const char *const names[] = {"o", "lse", "d_o", "d_lse"};
    char s[96], t[96];
    PL_TRY(rows_infer(in, 1, attr, made));
    for (int i = 1; i < n_in; i++) {
        pl_type want = made[(i - 1) % 2];
        if (want.rank == 3 && pl_dtype_is_float(in[i].dtype)) want.dtype = in[i].dtype;
        PL_FAIL_IF(!pl_type_equal(&in[i], &want), PL_ERR_SHAPE, "%s is %s; needs %s", names[i - 1],
                   pl_type_text(&in[i], s, sizeof s), pl_type_text(&want, t, sizeof t));
    }
    out[0] = in[0];
    return PL_OK;
}

/* ---- gradients -------------------------------------------------------------------------- */
/* Part `at` of rows x, as [B,N,H,D]. */
static pl_val part_of(pl_graph *g, const pl_attention_rows_attr *a, pl_val x, int64_t at)
{
    pl_type t = pl_val_type(g, x);
    int64_t b = t.dim[0], n = t.dim[1], d = t.dim[2] / (3 * a->heads);
    if (a->step == d) {
        x = pl_slice(g, x, 2, at, at + a->heads * d, 1);
    } else {
        x = pl_reshape(g, x, PL_DIMS(b, n, a->heads, 3, d));
        x = pl_slice(g, x, 3, at / d, at / d + 1, 1);
    }
    return pl_reshape(g, x, PL_DIMS(b, n, a->heads, d));
}

/* The rows whose parts are x[0], x[1] and x[2]. */
static pl_val rows_of(pl_graph *g, const pl_attention_rows_attr *a, const pl_val *x, pl_type t)
{
    int64_t b = t.dim[0], n = t.dim[1], d = t.dim[2] / (3 * a->heads);
    int64_t at[3] = {a->q_at, a->k_at, a->v_at}, part = a->step == d ? a->heads * d : d;
    pl_val third[3] = {PL_NO_VAL};
    for (int i = 0; i < 3; i++)
        third[at[i] / part] = a->step == d ? pl_reshape(g, x[i], PL_DIMS(b, n, part))
                                           : pl_reshape(g, x[i], PL_DIMS(b, n, a->heads, 1, d));
    return pl_reshape(g, pl_concat(g, 3, third, a->step == d ? 2 : 3), 3, t.dim);
}

static void rows_vjp(const pl_vjp *v)
{
    pl_val d_o = pl_val_ok(v->gout[0]) ? v->gout[0] : pl_full_like(v->g, v->out[0], 0);
    pl_val in[5] = {v->in[0], v->out[0], v->out[1], d_o, v->gout[1]};
    v->gin[0] =
        pl_build1(v->g, &pl_op_attention_rows_bwd, v->attr, pl_val_ok(v->gout[1]) ? 5 : 4, in);
}

/* That of attention_bwd, over the parts. */
static void rows_bwd_vjp(const pl_vjp *v)
{
    const pl_attention_rows_attr *a = v->attr;
    pl_graph *g = v->g;
    pl_attention_attr plain;
    pl_val in[7], gout[3], gin[7] = {PL_NO_VAL};
    bool need[7] = {v->need[0], v->need[0], v->need[0]};
    int64_t at[3] = {a->q_at, a->k_at, a->v_at};
    memset(&plain, 0, sizeof plain);
    plain.scale = a->scale;
    plain.causal = a->causal;
    for (int i = 0; i < 3; i++) {
        in[i] = part_of(g, a, v->in[0], at[i]);
        gout[i] = part_of(g, a, v->gout[0], at[i]);
    }
    for (int i = 1; i < v->n_in; i++) {
        in[i + 2] = v->in[i];
        need[i + 2] = v->need[i];
    }
    pl_vjp inner = {.g = g,
                    .attr = &plain,
                    .in = in,
                    .gout = gout,
                    .gin = gin,
                    .need = need,
                    .n_in = v->n_in + 2,
                    .n_out = 3};
    pl_attention_bwd_vjp(&inner);
    for (int i = 0; i < 3 && v->need[0]; i++)
        if (!pl_val_ok(gin[i])) gin[i] = pl_full_like(g, in[i], 0);
    if (v->need[0]) v->gin[0] = rows_of(g, a, gin, pl_val_type(g, v->in[0]));
    for (int i = 1; i < v->n_in; i++) v->gin[i] = gin[i + 2];
}

/* ---- cost and kernels ------------------------------------------------------------------- */
static pl_cost rows_cost(const pl_call *c)
{
    return pl_attention_cost(c, false);
}

static pl_cost rows_bwd_cost(const pl_call *c)
{
    return pl_attention_cost(c, true);
}

PL_ATTENTION_KERNELS(rows)
PL_ATTENTION_KERNELS(rows_bwd)

/* ---- cases and descriptors -------------------------------------------------------------- */
/* clang-format off */
#define CASES(X)                                                                                 \
    X("[1,1,3]",  "[1,1,1,1]", "[1,1,1]", "heads=1, q_at=0, k_at=1, v_at=2, step=1")              \
    X("[2,5,24]", "[2,5,2,4]", "[2,2,5]", "heads=2, q_at=0, k_at=8, v_at=16, step=4")             \
    X("[1,6,30]", "[1,6,2,5]", "[1,2,6]", "heads=2, q_at=5, k_at=0, v_at=10, step=15, causal=true") \
    X("[1,3,48]", "[1,3,1,16]", "[1,1,3]", "heads=1, q_at=32, k_at=16, v_at=0, step=16, scale=0.3")
#define CASE(x, o, lse, a)     {{"f32" x}, a, {{0}}},
#define BWD_CASE(x, o, lse, a) \
    {{"f32" x, "f32" o, "f32" lse, "f32" o}, a, {{0}, {0}, {1, 2, false}}}, \
    {{"f32" x, "f32" o, "f32" lse, "f32" o, "f32" lse}, a, {{0}, {0}, {1, 2, false}}},
static const pl_case rows_cases[] = {CASES(CASE) PL_CASE_END};
static const pl_case rows_bwd_cases[] = {CASES(BWD_CASE) PL_CASE_END};
/* clang-format on */

static void rows_labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 1, 3);
}

static void rows_bwd_labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 31, 1);
    l->plus = 8 | 16; /* d_o, d_lse */
}

/* Whether the heads must be padded: then they leave the rows. */
static bool is_padded(const pl_graph *g, const pl_attention_rows_attr *a, const pl_padding *p,
                      pl_val x)
{
    const pl_type *t = pl_type_of(g, x.id);
    int64_t d = t->dim[2] / (3 * a->heads);
    return pl_attention_whole_head(p, t->dtype, t->dim[1], t->dim[1], d) != 0;
}

static bool rows_padded(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in,
                        int n_in, pl_val *out)
{
    const pl_attention_rows_attr *a = attr;
    pl_attention_attr plain;
    pl_val part[3];
    (void)n_in;
    if (!is_padded(g, a, p, in[0])) return false;
    memset(&plain, 0, sizeof plain);
    plain.scale = a->scale;
    plain.causal = a->causal;
    const int64_t at[3] = {a->q_at, a->k_at, a->v_at};
    for (int i = 0; i < 3; i++) part[i] = part_of(g, a, in[0], at[i]);
    return pl_attention_padded(g, &pl_op_attention, p, &plain, part, 3, out);
}

static bool rows_bwd_padded(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in,
                            int n_in, pl_val *out)
{
    const pl_attention_rows_attr *a = attr;
    pl_attention_attr plain;
    pl_val all[7], made[3];
    if (!is_padded(g, a, p, in[0])) return false;
    memset(&plain, 0, sizeof plain);
    plain.scale = a->scale;
    plain.causal = a->causal;
    const int64_t at[3] = {a->q_at, a->k_at, a->v_at};
    for (int i = 0; i < 3; i++) all[i] = part_of(g, a, in[0], at[i]);
    for (int i = 1; i < n_in; i++) all[i + 2] = in[i];
    if (!pl_attention_bwd_padded(g, &pl_op_attention_bwd, 3, p, &plain, all, n_in + 2, made))
        return false;
    out[0] = rows_of(g, a, made, pl_val_type(g, in[0]));
    return true;
}

const pl_op pl_op_attention_rows = {
    .name = "attention_rows",
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_attention_rows_attr),
    .attrs = attrs,
    .infer = rows_infer,
    .vjp = rows_vjp,
    .cost = rows_cost,
    .cpu = rows_kernels,
    .cases = rows_cases,
    .labels = rows_labels,
    .padded = rows_padded,
};
const pl_op pl_op_attention_rows_bwd = {
    .name = "attention_rows_bwd",
    .min_in = 4,
    .max_in = 5,
    .n_out = 1,
    .width = PL_WIDTH_LOW,
    .full_in = 1 << 2 | 1 << 4, /* lse, d_lse */
    .attr_bytes = sizeof(pl_attention_rows_attr),
    .attrs = attrs,
    .infer = rows_bwd_infer,
    .vjp = rows_bwd_vjp,
    .cost = rows_bwd_cost,
    .cpu = rows_bwd_kernels,
    .cases = rows_bwd_cases,
    .labels = rows_bwd_labels,
    .padded = rows_bwd_padded,
};

/* ---- construction ----------------------------------------------------------------------- */
enum { MOST = 12 }; /* ops between a row and an operand */

/* A reading of elements of the value `from`. */
typedef struct reading {
    uint32_t from;
    pl_amap map;
} reading;

/* Follows the value to its input, through one view or move; false: it is something else. */
static bool read_up(const pl_graph *g, reading *r)
{
    uint32_t n = pl_producer(g, r->from);
    const pl_node_rec *node = &g->nodes[n];
    pl_type in[1], out[PL_MAX_OUT];
    pl_call c;
    pl_affine a;
    int64_t at = 0;
    if (node->n_in != 1 || node->n_out != 1 || node->op->flags & PL_OP_NO_GRAD) return false;
    if (!(node->op->flags & (PL_OP_AFFINE | PL_OP_VIEW))) return false;
    pl_node_call(g, n, in, out, &c);
    if (in[0].dtype != out[0].dtype) return false;
    bool same = node->op->flags & PL_OP_VIEW && node->op->view(&c, &at) && at == 0 &&
                pl_type_elems(&in[0]) == pl_type_elems(&out[0]);
    if (!same) {
        pl_amap below = r->map;
        if (!(node->op->flags & PL_OP_AFFINE) || !node->op->affine(&c, &a)) return false;
        if (!pl_amap_through(&below, out[0].rank, out[0].dim, &a, &r->map)) return false;
    }
    r->from = pl_node_in(g, n)[0];
    return true;
}

/* What an operand is: part `at` of the rows of the value `from`. */
typedef struct part {
    uint32_t from;
    int64_t at, step;
    bool tokens_first; /* rows lie [tokens, batch, row] */
} part;

/* Whether the reading is a part of rows of three times as many numbers. */
static bool is_part(const pl_graph *g, const reading *r, const pl_type *q, part *p)
{
    int64_t batch = q->dim[0], n = q->dim[1], heads = q->dim[2], d = q->dim[3];
    int64_t tokens = batch * n, row = 3 * heads * d;
    const pl_amap *m = &r->map;
    pl_amap whole = {.n = 2, .size = {heads * d, tokens}, .stride = {1, row}};
    pl_amap each = {.n = 2, .size = {d, heads * tokens}, .stride = {1, 3 * d}};
    pl_amap turned = {.n = 3, .size = {heads * d, n, batch}, .stride = {1, batch * row, row}};
    pl_amap turned_each = {
        .n = 4, .size = {d, heads, n, batch}, .stride = {1, 3 * d, batch * row, row}};
    if (pl_type_elems(pl_type_of(g, r->from)) != row * tokens) return false;
    whole.offset = each.offset = turned.offset = turned_each.offset = m->offset;
    *p = (part){.from = r->from, .at = m->offset, .step = d};
    p->tokens_first = pl_amap_equal(m, &turned);
    if (p->tokens_first || pl_amap_equal(m, &whole))
        return m->offset % (heads * d) == 0 && m->offset < row;
    p->step = 3 * d;
    p->tokens_first = pl_amap_equal(m, &turned_each);
    return heads > 1 && (p->tokens_first || pl_amap_equal(m, &each)) && m->offset % d == 0 &&
           m->offset < 3 * d;
}

/* Finds the value of whose rows `val` is a part. */
static bool find_rows(const pl_graph *g, pl_val val, part *p)
{
    const pl_type *q = pl_type_of(g, val.id);
    reading r = {val.id, pl_amap_identity(pl_type_elems(q))};
    for (int i = 0; i < MOST; i++) {
        if (!read_up(g, &r)) return false;
        if (is_part(g, &r, q, p)) return true;
    }
    return false;
}

/* The rows [batch, tokens, row] that the part is of. */
static pl_val rows_at(pl_graph *g, const part *p, const pl_type *q)
{
    const int64_t row = 3 * q->dim[2] * q->dim[3], batch = q->dim[0], n = q->dim[1];
    const int64_t dim[3] = {p->tokens_first ? n : batch, p->tokens_first ? batch : n, row};
    pl_val x = {p->from};
    pl_type wanted = pl_type_make(q->dtype, 3, dim);
    if (!pl_type_equal(pl_type_of(g, p->from), &wanted)) x = pl_reshape(g, x, 3, dim);
    return p->tokens_first ? pl_permute(g, x, (const int[]){1, 0, 2}) : x;
}

pl_val pl_attention_of_rows(pl_graph *g, pl_val q, pl_val k, pl_val v, double scale, bool causal)
{
    pl_type t = pl_val_type(g, q), u = pl_val_type(g, k), w = pl_val_type(g, v);
    pl_val in[3] = {q, k, v};
    part p[3];
    if (t.rank != 4 || !pl_dtype_is_float(t.dtype) || pl_type_elems(&t) == 0) return PL_NO_VAL;
    if (!pl_type_equal(&t, &u) || !pl_type_equal(&t, &w)) return PL_NO_VAL;
    for (int i = 0; i < 3; i++)
        if (!find_rows(g, in[i], &p[i]) || p[i].from != p[0].from || p[i].step != p[0].step ||
            p[i].tokens_first != p[0].tokens_first)
            return PL_NO_VAL;
    pl_attention_rows_attr a;
    memset(&a, 0, sizeof a);
    a.scale = scale;
    a.causal = causal;
    a.heads = t.dim[2];
    a.q_at = p[0].at;
    a.k_at = p[1].at;
    a.v_at = p[2].at;
    a.step = p[0].step;
    if (!covers(&a, t.dim[3])) return PL_NO_VAL;
    pl_val x = rows_at(g, &p[0], &t);
    return pl_build1(g, &pl_op_attention_rows, &a, 1, &x);
}
