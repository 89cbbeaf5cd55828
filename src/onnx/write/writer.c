/* writer.c - what all writers of ops use: nodes, constants, values in any order of dimensions. */
#include "base/dtype.h"
#include "onnx/proto.h"
#include "onnx/write/encode.h"
#include "onnx/write/write.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pl_ow_fail(pl_ow *w, const char *fmt, ...)
{
    char text[512], label[256];
    va_list args;
    if (w->status != PL_OK) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    w->status = pl_fail(PL_ERR_UNSUPPORTED, "%s: %s",
                        pl_node_label(w->g, w->node, label, sizeof label), text);
}

/* ---- nodes ---------------------------------------------------------------------------- */
static const char *new_name(pl_ow *w, const char *op)
{
    const pl_node_rec *n = pl_node_get(w->g, w->node);
    const char *path = n->scope ? w->g->scopes[n->scope].path : "";
    const char *name =
        pl_arena_printf(&w->mem, "%s%s%s_%d", path, path[0] ? "/" : "", op, w->serial++);
    if (!name && w->status == PL_OK) w->status = PL_ERR_MEMORY;
    return name ? name : "";
}

static void put_attr(pl_str *node, const pl_ow_attr *a)
{
    static const int type[] = {[PL_OW_INT] = PL_OX_ATTR_INT,
                               [PL_OW_FLOAT] = PL_OX_ATTR_FLOAT,
                               [PL_OW_INTS] = PL_OX_ATTR_INTS,
                               [PL_OW_TEXT] = PL_OX_ATTR_STRING};
    pl_str m = PL_STR_INIT;
    pl_ow_put_text(&m, 1, a->name);
    if (a->kind == PL_OW_INT) pl_ow_put_int(&m, 3, a->i);
    if (a->kind == PL_OW_FLOAT) pl_ow_put_float(&m, 2, (float)a->f);
    if (a->kind == PL_OW_TEXT) pl_ow_put_text(&m, 4, a->text);
    for (int64_t i = 0; a->kind == PL_OW_INTS && i < a->i; i++) pl_ow_put_int(&m, 8, a->ints[i]);
    pl_ow_put_int(&m, 20, type[a->kind]);
    pl_ow_put_message(node, 5, &m);
}

static void add_node(pl_ow *w, const char *op, const char *const *in, const pl_ow_attr *attrs,
                     const char **out, int n_out)
{
    pl_str m = PL_STR_INIT;
    for (int i = 0; i < n_out; i++) out[i] = w->status == PL_OK ? new_name(w, op) : "";
    if (w->status != PL_OK) return;
    for (int i = 0; in[i]; i++) pl_ow_put_text(&m, 1, in[i]);
    for (int i = 0; i < n_out; i++) pl_ow_put_text(&m, 2, out[i]);
    pl_ow_put_text(&m, 3, out[0]);
    pl_ow_put_text(&m, 4, op);
    for (const pl_ow_attr *a = attrs; a && a->name; a++) put_attr(&m, a);
    pl_ow_put_message(&w->nodes, 1, &m);
    w->info.nodes++;
}

const char *pl_ow_op(pl_ow *w, const char *op, const char *const *in, const pl_ow_attr *attrs)
{
    const char *out;
    add_node(w, op, in, attrs, &out, 1);
    return out;
}

void pl_ow_op2(pl_ow *w, const char *op, const char *const *in, const pl_ow_attr *attrs,
               const char *out[2])
{
    add_node(w, op, in, attrs, out, 2);
}

const char *pl_ow_1(pl_ow *w, const char *op, const char *a)
{
    return pl_ow_op(w, op, OW_IN(a), NULL);
}

const char *pl_ow_2(pl_ow *w, const char *op, const char *a, const char *b)
{
    return pl_ow_op(w, op, OW_IN(a, b), NULL);
}

/* ---- constants ------------------------------------------------------------------------ */
int pl_ow_dtype(pl_dtype d)
{
    static const int type[PL_N_DTYPES] = {
        [PL_F32] = PL_OX_FLOAT,   [PL_F64] = PL_OX_DOUBLE, [PL_BF16] = PL_OX_BFLOAT16,
        [PL_F16] = PL_OX_FLOAT16, [PL_I32] = PL_OX_INT32,  [PL_I64] = PL_OX_INT64,
        [PL_U8] = PL_OX_UINT8,    [PL_BOOL] = PL_OX_BOOL};
    return type[d];
}

/* Adds a small tensor; data: its elements. */
static const char *add_constant(pl_ow *w, const pl_type *t, const void *data)
{
    pl_str m = PL_STR_INIT;
    const char *name = w->status == PL_OK ? new_name(w, "Constant") : "";
    if (w->status != PL_OK) return "";
    for (int i = 0; i < t->rank; i++) pl_ow_put_int(&m, 1, t->dim[i]);
    pl_ow_put_int(&m, 2, pl_ow_dtype(t->dtype));
    pl_ow_put_text(&m, 8, name);
    pl_ow_put_bytes(&m, 9, data, pl_type_bytes(t));
    pl_ow_put_message(&w->constants, 5, &m);
    return name;
}

const char *pl_ow_ints(pl_ow *w, int64_t n, const int64_t *v)
{
    pl_type t = PL_TYPE(PL_I64, n);
    return add_constant(w, &t, v);
}

const char *pl_ow_int(pl_ow *w, int64_t v)
{
    return pl_ow_ints(w, 1, &v);
}

const char *pl_ow_numbers(pl_ow *w, pl_type type, const double *v)
{
    int64_t n = pl_type_elems(&type);
    void *data = pl_arena_alloc(&w->mem, pl_type_bytes(&type) + 1);
    if (!data) {
        w->status = PL_ERR_MEMORY;
        return "";
    }
    for (int64_t i = 0; i < n; i++) pl_elem_set(type.dtype, data, i, v[i]);
    return add_constant(w, &type, data);
}

const char *pl_ow_number(pl_ow *w, pl_dtype dtype, double v)
{
    return pl_ow_numbers(w, PL_RANK0(dtype), &v);
}

/* ---- values --------------------------------------------------------------------------- */
uint32_t pl_ow_arg(const pl_ow *w, int k)
{
    return pl_node_in(w->g, w->node)[k];
}

uint32_t pl_ow_result(const pl_ow *w, int k)
{
    return pl_node_get(w->g, w->node)->out + (uint32_t)k;
}

const void *pl_ow_attr_of(const pl_ow *w)
{
    return pl_node_get(w->g, w->node)->attr;
}

void pl_ow_first(int rank, int *perm)
{
    perm[0] = 0;
    perm[1] = rank - 1;
    for (int i = 2; i < rank; i++) perm[i] = i - 1;
}

static bool is_plain(int rank, const int *perm)
{
    for (int i = 0; perm && i < rank; i++)
        if (perm[i] != i) return false;
    return true;
}

void pl_ow_set(pl_ow *w, uint32_t val, const char *name, const int *perm)
{
    pl_ow_form *f = pl_arena_new(&w->mem, pl_ow_form, 1), **at = &w->form[val];
    if (!f) {
        w->status = PL_ERR_MEMORY;
        return;
    }
    f->name = name;
    for (int i = 0; i < PL_MAX_RANK; i++)
        f->perm[i] = perm && i < pl_type_of(w->g, val)->rank ? perm[i] : i;
    while (*at) at = &(*at)->next;
    *at = f;
}

const int *pl_ow_order(const pl_ow *w, uint32_t val)
{
    const pl_ow_form *f = w->form[val];
    return f && !is_plain(pl_type_of(w->g, val)->rank, f->perm) ? f->perm : NULL;
}

const char *pl_ow_reshape(pl_ow *w, const char *x, int rank, const int64_t *dim)
{
    bool zero = false;
    for (int i = 0; i < rank; i++) zero |= dim[i] == 0;
    return pl_ow_op(w, "Reshape", OW_IN(x, pl_ow_ints(w, rank, dim)),
                    zero ? OW_ATTRS(OW_I("allowzero", 1)) : NULL);
}

const char *pl_ow_transpose(pl_ow *w, const char *x, int rank, const int *perm)
{
    int64_t p[PL_MAX_RANK];
    for (int i = 0; i < rank; i++) p[i] = perm[i];
    return is_plain(rank, perm)
               ? x
               : pl_ow_op(w, "Transpose", OW_IN(x), OW_ATTRS(OW_INTS("perm", rank, p)));
}

const char *pl_ow_slice(pl_ow *w, const char *x, int axis, int64_t lo, int64_t hi, int64_t step)
{
    return pl_ow_op(
        w, "Slice",
        OW_IN(x, pl_ow_int(w, lo), pl_ow_int(w, hi), pl_ow_int(w, axis), pl_ow_int(w, step)), NULL);
}

/* Constants and broadcasts are written where an op needs them in full. */
static const char *expand(pl_ow *w, uint32_t val)
{
    const pl_type *t = pl_type_of(w->g, val);
    uint32_t node = pl_producer(w->g, val);
    double c;
    const char *x = pl_fill_of(w->g, (pl_val){val}, &c)
                        ? pl_ow_number(w, t->dtype, c)
                        : pl_ow_in(w, pl_node_in(w->g, node)[0], NULL);
    return t->rank ? pl_ow_2(w, "Expand", x, pl_ow_ints(w, t->rank, t->dim)) : x;
}

const char *pl_ow_in(pl_ow *w, uint32_t val, const int *perm)
{
    int rank = pl_type_of(w->g, val)->rank, move[PL_MAX_RANK] = {0};
    if (w->status != PL_OK) return "";
    if (!w->form[val]) pl_ow_set(w, val, expand(w, val), NULL);
    if (w->status != PL_OK) return "";
    const pl_ow_form *have = w->form[val];
    for (const pl_ow_form *f = have; f; f = f->next) {
        bool same = true;
        for (int i = 0; i < rank; i++) same &= f->perm[i] == (perm ? perm[i] : i);
        if (same) return f->name;
    }
    for (int i = 0; i < rank; i++)
        for (int j = 0; j < rank; j++)
            if (have->perm[j] == (perm ? perm[i] : i)) move[i] = j;
    const char *name = pl_ow_transpose(w, have->name, rank, move);
    pl_ow_set(w, val, name, perm);
    return name;
}

const char *pl_ow_operand(pl_ow *w, uint32_t val, const int *perm, bool *whole)
{
    const pl_type *t = pl_type_of(w->g, val);
    int64_t full[PL_MAX_RANK], dim[PL_MAX_RANK];
    int last = -1;
    bool kept = true;
    double c;
    *whole = w->form[val] || t->rank == 0;
    if (*whole) return pl_ow_in(w, val, perm);
    if (pl_fill_of(w->g, (pl_val){val}, &c)) return pl_ow_number(w, t->dtype, c);
    uint32_t from = pl_node_in(w->g, pl_producer(w->g, val))[0];
    const pl_type *s = pl_type_of(w->g, from);
    if (is_plain(t->rank, perm) || s->rank == 0) return pl_ow_in(w, from, NULL);
    for (int i = 0; i < t->rank; i++)
        full[i] = i < t->rank - s->rank ? 1 : s->dim[i - (t->rank - s->rank)];
    for (int i = 0; i < t->rank; i++) {
        dim[i] = full[perm[i]];
        if (dim[i] == 1) continue;
        kept &= perm[i] > last;
        last = perm[i];
    }
    const char *x = pl_ow_in(w, from, NULL);
    if (kept) return pl_ow_reshape(w, x, t->rank, dim);
    return pl_ow_transpose(w, pl_ow_reshape(w, x, t->rank, full), t->rank, perm);
}

void pl_ow_declare(pl_str *to, int field, const char *name, const pl_type *t)
{
    pl_str shape = PL_STR_INIT, tensor = PL_STR_INIT, type = PL_STR_INIT, info = PL_STR_INIT;
    for (int i = 0; i < t->rank; i++) {
        pl_str d = PL_STR_INIT;
        pl_ow_put_int(&d, 1, t->dim[i]);
        pl_ow_put_message(&shape, 1, &d);
    }
    pl_ow_put_int(&tensor, 1, pl_ow_dtype(t->dtype));
    pl_ow_put_message(&tensor, 2, &shape);
    pl_ow_put_message(&type, 1, &tensor);
    pl_ow_put_text(&info, 1, name);
    pl_ow_put_message(&info, 2, &type);
    pl_ow_put_message(to, field, &info);
}
