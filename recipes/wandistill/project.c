/* project.c - initialises the student from the teacher's weights (student.from_teacher).
 *
 * Block i of the student takes block i*layers/depth of the teacher: the first rows and columns of
 * its self-attention and feed-forward weights, scaled by sqrt(teacher columns / student columns),
 * so that a row's output keeps its variance. Weights for which the teacher is smaller keep their
 * random values. It is a program of the first step that reads the teacher's slots and writes the
 * student's.
 *
 * The authors' program (joined) puts q, k and v one below the other before it cuts: where the
 * teacher has at least three times the student's rows, as at their sizes, the student's q, k and v
 * all come from the teacher's q. Biases that are shorter than the student's are padded with zeros.
 * A student of as many or more blocks takes block i for block i. It takes no text layer.
 */
#include "wandistill.h"

#include <math.h>

/* One weight or bias of the student, from n slots of the teacher. */
typedef struct piece {
    const char *student, *teacher[3];
    int n;
    int64_t rows, columns; /* of the student, for each slot; columns 0: a vector */
    bool joined;           /* the slots are put one below the other before they are cut */
} piece;

/* All rows and the first columns of a slot, scaled; PL_NO_VAL: the slot has fewer columns. */
static pl_val columns_of(pl_nn *m, const char *teacher, int64_t columns)
{
    pl_graph *g = m->g;
    int slot = pl_store_find(pl_graph_store(g), teacher);
    pl_type t = slot < 0 ? (pl_type){0} : pl_store_slot(pl_graph_store(g), slot)->type;
    if (t.rank != (columns ? 2 : 1) || (columns && t.dim[1] < columns)) return PL_NO_VAL;
    pl_val x = pl_state(g, slot);
    if (!columns) return pl_cast(g, x, m->dtype);
    x = pl_cast(g, pl_slice(g, x, 1, 0, columns, 1), m->dtype);
    return pl_scale(g, x, sqrt((double)t.dim[1] / (double)columns));
}

/* The first rows; PL_NO_VAL: there are fewer; they must not be filled with zeros. */
static pl_val rows_of(pl_graph *g, pl_val x, int64_t rows, bool padded)
{
    int64_t has = pl_val_type(g, x).dim[0];
    if (has >= rows) return pl_slice(g, x, 0, 0, rows, 1);
    if (!padded) return PL_NO_VAL;
    pl_val none = pl_fill(g, PL_TYPE(pl_val_type(g, x).dtype, rows - has), 0);
    return pl_concat(g, 2, (pl_val[]){x, none}, 0);
}

static void take(pl_nn *m, const piece *p)
{
    pl_graph *g = m->g;
    int slot = pl_store_find(pl_graph_store(g), p->student);
    pl_val part[3], all;
    for (int i = 0; i < p->n; i++) {
        part[i] = columns_of(m, p->teacher[i], p->columns);
        if (pl_val_ok(part[i]) && !p->joined) part[i] = rows_of(g, part[i], p->rows, false);
        if (!pl_val_ok(part[i])) return;
    }
    all = p->n == 1 ? part[0] : pl_concat(g, p->n, part, 0);
    if (p->joined) all = rows_of(g, all, p->n * p->rows, !p->columns);
    if (slot >= 0 && pl_val_ok(all)) pl_assign(g, slot, all);
}

/* Weight and bias. */
static void take_layer(pl_nn *m, const char *student, const char *teacher, int64_t rows,
                       int64_t columns, bool joined)
{
    static const char *const ends[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++)
        take(m, &(piece){.student = pl_nn_name(m, "%s.%s", student, ends[i]),
                         .teacher = {pl_nn_name(m, "%s.%s", teacher, ends[i])},
                         .n = 1,
                         .rows = rows,
                         .columns = i ? 0 : columns,
                         .joined = joined});
}

static void take_block(pl_nn *m, const wan_config *c, int block, int of, bool joined)
{
    int64_t h = c->hidden;
    const char *to = pl_nn_name(m, "student.blocks.%d", block),
               *from = pl_nn_name(m, "teacher.blocks.%d", of);
    for (int k = 0; k < 2; k++) {
        piece p = {.student = pl_nn_name(m, "%s.attn.in_proj_%s", to, k ? "bias" : "weight"),
                   .n = 3,
                   .rows = h,
                   .columns = k ? 0 : h,
                   .joined = joined};
        for (int i = 0; i < 3; i++)
            p.teacher[i] =
                pl_nn_name(m, "%s.self_attn.%c.%s", from, "qkv"[i], k ? "bias" : "weight");
        take(m, &p);
    }
    take_layer(m, pl_nn_name(m, "%s.attn.out_proj", to), pl_nn_name(m, "%s.self_attn.o", from), h,
               h, joined);
    take_layer(m, pl_nn_name(m, "%s.mlp.0", to), pl_nn_name(m, "%s.ffn.0", from), 4 * h, h, joined);
    take_layer(m, pl_nn_name(m, "%s.mlp.2", to), pl_nn_name(m, "%s.ffn.2", from), h, 4 * h, joined);
}

void wan_project(pl_nn *m, const wan_config *c, bool joined)
{
    for (int i = 0; i < c->depth; i++) {
        int of = (int)((int64_t)i * c->teacher_layers / c->depth);
        if (joined && c->depth >= c->teacher_layers) of = i;
        if (of < c->teacher_layers) take_block(m, c, i, of, joined);
    }
    if (joined) return;
    take_layer(m, "student.text", "teacher.text.0", c->hidden, c->text_dim, false);
}
