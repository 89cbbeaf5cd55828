/* graph.c - graph attention over the positions of a frame's map.
 *
 * Every position is a node with edges to itself and to its four neighbours. A layer (GAT) gives
 * each head its features h = W x and weights of the edges
 *
 *     alpha(i,j) = softmax over j of leaky_relu(a_dst . h_i + a_src . h_j, 0.2)
 *
 * and sums alpha(i,j) h_j. The graph is a grid, so a neighbour is the map shifted by one: no lists
 * of edges, no gathers. Neighbours outside the map get a score that the softmax turns into 0.
 */
#include "cloud.h"

enum { EDGES = 5 };
#define OUTSIDE (-1e30)

/* Returns x (B,H,W,..) read at (row + dy, column + dx); `outside` beyond the border. */
static pl_val moved(pl_graph *g, pl_val x, int edge, double outside)
{
    static const int steps[EDGES][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    for (int axis = 1; axis <= 2; axis++) {
        int by = steps[edge][axis - 1];
        if (by == 0) continue;
        int64_t n = pl_val_type(g, x).dim[axis];
        x = pl_slice(g, x, axis, by > 0 ? 1 : 0, by > 0 ? n : n - 1, 1);
        x = pl_pad(g, x, axis, by < 0 ? 1 : 0, by > 0 ? 1 : 0, 0, outside);
    }
    return x;
}

/* The dot product of each head's features with its vector: (B,H,W,K). */
static pl_val score(pl_nn *m, pl_val h, const char *name)
{
    pl_type t = pl_val_type(m->g, h);
    pl_val a = pl_nn_param_as(m, name, PL_DIMS(t.dim[3], t.dim[4]), PL_DIMS(1, t.dim[3], t.dim[4]),
                              pl_nn_xavier_uniform(1));
    a = pl_reshape(m->g, a, PL_DIMS(1, 1, 1, t.dim[3], t.dim[4]));
    return pl_sum(m->g, pl_mul(m->g, h, a), PL_AXIS(4), false);
}

/* x (B,H,W,C) to (B,H,W,heads*width), or with `mean` the heads' mean (B,H,W,width). */
static pl_val layer(cloud *k, pl_val x, const char *name, int64_t heads, int64_t width, bool mean,
                    const char *keep)
{
    pl_nn *m = k->m;
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    double drop = pl_config_float(pl_builder_config(k->b), "model.graph_dropout");
    pl_nn_push(m, "%s", name);
    pl_val h = pl_nn_linear(m, x, "lin", heads * width,
                            (pl_nn_lin){.no_bias = true, .init = pl_nn_xavier_normal(1)});
    h = pl_reshape(g, h, PL_DIMS(t.dim[0], t.dim[1], t.dim[2], heads, width));
    pl_val src = score(m, h, "att_src"), dst = score(m, h, "att_dst"), edge[EDGES];
    for (int e = 0; e < EDGES; e++)
        edge[e] = pl_leaky_relu(g, pl_add(g, dst, moved(g, src, e, OUTSIDE)), 0.2);
    pl_val alpha = pl_softmax(g, pl_stack(g, EDGES, edge, 4), 4);
    alpha = pl_mul(g, alpha, pl_draw_keep(k->b, m, keep, pl_val_type(g, alpha), drop));
    pl_val sum = PL_NO_VAL;
    for (int e = 0; e < EDGES; e++) {
        pl_val part = pl_mul(g, pl_slice(g, alpha, 4, e, e + 1, 1), moved(g, h, e, 0));
        sum = e ? pl_add(g, sum, part) : part;
    }
    sum = mean ? pl_mean(g, sum, PL_AXIS(3), false)
               : pl_reshape(g, sum, PL_DIMS(t.dim[0], t.dim[1], t.dim[2], heads * width));
    sum = pl_add(g, sum,
                 pl_nn_param(m, "bias", PL_DIMS(mean ? width : heads * width), pl_nn_constant(0)));
    pl_nn_pop(m);
    return sum;
}

/* x where positive, exp(x) - 1 where not. */
static pl_val elu(pl_graph *g, pl_val x)
{
    pl_val zero = pl_full_like(g, x, 0);
    return pl_add(g, pl_relu(g, x), pl_shift(g, pl_exp(g, pl_min(g, x, zero)), -1));
}

static pl_val dropped(cloud *k, pl_val x, const char *name)
{
    double p = pl_config_float(pl_builder_config(k->b), "model.graph_dropout");
    return pl_mul(k->m->g, x, pl_draw_keep(k->b, k->m, name, pl_val_type(k->m->g, x), p));
}

pl_val cloud_graph_attention(cloud *k, int64_t t, pl_val map)
{
    pl_nn *m = k->m;
    const pl_config *c = pl_builder_config(k->b);
    int frame = (int)t;
    pl_val x = dropped(k, map, pl_nn_name(m, "graph_keep1.%d", frame));
    x = elu(m->g, layer(k, x, "gnn_conv1", pl_config_int(c, "model.graph_heads"),
                        pl_config_int(c, "model.graph_width"), false,
                        pl_nn_name(m, "edge_keep1.%d", frame)));
    x = dropped(k, x, pl_nn_name(m, "graph_keep2.%d", frame));
    x = layer(k, x, "gnn_conv2", 1, cloud_features(k), true, pl_nn_name(m, "edge_keep2.%d", frame));
    x = pl_nn_layer_norm(m, x, "gnn_norm", (pl_nn_norm){0});
    return pl_nn_global_average(m->g, x);
}
