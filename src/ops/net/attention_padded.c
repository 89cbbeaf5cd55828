/* attention_padded.c - attention over heads whose numbers are not whole units of tensor cores.
 *
 * The fast kernels need heads of a multiple of 16 bytes. Heads of 60 or 70 numbers are padded with
 * zeros: scores stay what they are, for the scale is that of the head's own size, and the result's
 * added numbers are zero, because those of v are (ops/shape/padded.c).
 */
#include "ops/net/attention.h"

#include "ops/core/attr.h"
#include "ops/core/shape.h"

#include <string.h>

int64_t pl_attention_whole_head(const pl_padding *p, pl_dtype type, int64_t n, int64_t m, int64_t d)
{
    enum { PAIRS = 128 * 128 }; /* fewer pairs of query and key take no time */
    int64_t unit = pl__row_unit(type, false), whole = pl__padded_row(d, unit);
    bool many = p->always || n * m >= PAIRS;
    return many && whole != d && d > unit ? whole : 0;
}

static int64_t whole_head_of(const pl_graph *g, const pl_padding *p, pl_val q, pl_val k)
{
    const pl_type *t = pl_type_of(g, q.id), *u = pl_type_of(g, k.id);
    return pl_attention_whole_head(p, t->dtype, t->dim[1], u->dim[1], t->dim[3]);
}

static pl_val with_head(pl_graph *g, pl_val x, int64_t d)
{
    return pl__padded_to(g, x, pl_val_type(g, x).dim[2], d);
}

bool pl_attention_padded(pl_graph *g, const pl_op *op, const pl_padding *p, const void *attr,
                         const pl_val *in, int n_in, pl_val *out)
{
    pl_type q = pl_val_type(g, in[0]);
    int64_t d = whole_head_of(g, p, in[0], in[1]);
    pl_val wide[4], made[2];
    if (!d) return false;
    for (int i = 0; i < n_in; i++) wide[i] = i < 3 ? with_head(g, in[i], d) : in[i];
    pl_build(g, op, attr, n_in, wide, made);
    out[0] = pl__first_of(g, made[0], q.dim[2], q.dim[3]);
    out[1] = made[1];
    return true;
}

bool pl_attention_bwd_padded(pl_graph *g, const pl_op *op, int first, const pl_padding *p,
                             const void *attr, const pl_val *in, int n_in, pl_val *out)
{
    int64_t d = whole_head_of(g, p, in[0], in[1]);
    pl_val wide[8], made[3];
    if (!d) return false;
    for (int i = 0; i < n_in; i++) {
        bool head = i < 3 || i == first || i == first + 2; /* q, k, v, o, d_o */
        wide[i] = head ? with_head(g, in[i], d) : in[i];
    }
    pl_build(g, op, attr, n_in, wide, made);
    for (int i = 0; i < 3; i++) {
        pl_type t = pl_val_type(g, in[i]);
        out[i] = pl__first_of(g, made[i], t.dim[2], t.dim[3]);
    }
    return true;
}
