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
 * all come from the teacher's q. It takes no text layer.
 */
#include "wandistill.h"

#include <math.h>

/* Returns the first `rows` rows and `columns` columns (0: a vector) of a slot; none when it has
 * fewer. */
static pl_val cut(pl_nn *m, const char *teacher, int64_t rows, int64_t columns)
{
    pl_graph *g = m->g;
    int slot = pl_store_find(pl_graph_store(g), teacher);
    pl_type t = slot < 0 ? (pl_type){0} : pl_store_slot(pl_graph_store(g), slot)->type;
    if (t.rank != (columns ? 2 : 1) || t.dim[0] < rows || (columns && t.dim[1] < columns))
        return PL_NO_VAL;
    pl_val x = pl_slice(g, pl_state(g, slot), 0, 0, rows, 1);
    if (!columns) return pl_cast(g, x, m->dtype);
    x = pl_cast(g, pl_slice(g, x, 1, 0, columns, 1), m->dtype);
    return pl_scale(g, x, sqrt((double)t.dim[1] / (double)columns));
}

/* Copies slices of n slots of the teacher, one below the other, into one slot of the student. */
static void take(pl_nn *m, const char *student, const char *const *teacher, int n, int64_t rows,
                 int64_t columns)
{
    pl_graph *g = m->g;
    pl_val part[3];
    int slot = pl_store_find(pl_graph_store(g), student);
    for (int i = 0; i < n; i++) {
        part[i] = cut(m, teacher[i], rows, columns);
        if (!pl_val_ok(part[i])) return;
    }
    if (slot >= 0) pl_assign(g, slot, n == 1 ? part[0] : pl_concat(g, n, part, 0));
}

/* Weight and bias. */
static void take_layer(pl_nn *m, const char *student, const char *teacher, int64_t rows,
                       int64_t columns)
{
    const char *from = pl_nn_name(m, "%s.weight", teacher);
    take(m, pl_nn_name(m, "%s.weight", student), &from, 1, rows, columns);
    from = pl_nn_name(m, "%s.bias", teacher);
    take(m, pl_nn_name(m, "%s.bias", student), &from, 1, rows, 0);
}

/* The first 3h rows of n slots that stand one below the other. */
static void take_joined(pl_nn *m, const char *student, const char *const *teacher, int64_t h,
                        int64_t columns)
{
    pl_graph *g = m->g;
    pl_store *store = pl_graph_store(g);
    pl_val part[3];
    int slot = pl_store_find(store, student), from = pl_store_find(store, teacher[0]);
    if (slot < 0 || from < 0) return;
    for (int i = 0; i < 3; i++) {
        part[i] = cut(m, teacher[i], pl_store_slot(store, from)->type.dim[0], columns);
        if (!pl_val_ok(part[i])) return;
    }
    pl_val all = pl_concat(g, 3, part, 0);
    if (pl_val_type(g, all).dim[0] >= 3 * h) pl_assign(g, slot, pl_slice(g, all, 0, 0, 3 * h, 1));
}

static void take_block(pl_nn *m, const wan_config *c, int block, int of, bool joined)
{
    int64_t h = c->hidden;
    const char *names[2][3];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++)
            names[k][i] = pl_nn_name(m, "teacher.blocks.%d.self_attn.%c.%s", of, "qkv"[i],
                                     k ? "bias" : "weight");
    const char *to = pl_nn_name(m, "student.blocks.%d", block),
               *from = pl_nn_name(m, "teacher.blocks.%d", of);
    for (int k = 0; k < 2; k++) {
        const char *in = pl_nn_name(m, "%s.attn.in_proj_%s", to, k ? "bias" : "weight");
        if (joined)
            take_joined(m, in, names[k], h, k ? 0 : h);
        else
            take(m, in, names[k], 3, h, k ? 0 : h);
    }
    take_layer(m, pl_nn_name(m, "%s.attn.out_proj", to), pl_nn_name(m, "%s.self_attn.o", from), h,
               h);
    take_layer(m, pl_nn_name(m, "%s.mlp.0", to), pl_nn_name(m, "%s.ffn.0", from), 4 * h, h);
    take_layer(m, pl_nn_name(m, "%s.mlp.2", to), pl_nn_name(m, "%s.ffn.2", from), h, 4 * h);
}

void wan_project(pl_nn *m, const wan_config *c, bool joined)
{
    for (int i = 0; i < c->depth; i++)
        take_block(m, c, i, (int)((int64_t)i * c->teacher_layers / c->depth), joined);
    if (joined) return;
    take_layer(m, "student.text", "teacher.text.0", c->hidden, c->text_dim);
}
