/* linear.c - linear, convolution, embedding, spectral normalisation.
 *
 * A weight is OHWI here and OIHW in files: file dimension (0, last, 1, 2, ..). The weight of a
 * transposed convolution is the weight of the convolution whose adjoint it is, [in, k..,
 * out/groups]; its file form [in, out/groups, k..] is the same permutation. PyTorch takes fan_in
 * from the file's second dimension and the window, so a transposed convolution counts out/groups.
 */
#include "nn/nn.h"

#include <math.h>

/* Dimension 0, then the last, then the spatial ones. */
static pl_file_layout conv_layout(int rank)
{
    pl_file_layout l = {.rank = rank};
    l.perm[1] = rank - 1;
    for (int i = 2; i < rank; i++) l.perm[i] = i - 1;
    return l;
}

/* x / max(|x|, 1e-12) of a column [n,1]. */
static pl_val unit(pl_graph *g, pl_val x)
{
    return pl_nn_normalize(g, x, 0, 1e-12);
}

/* u [O] and v [K] are buffers; v's elements follow the weight's own order, so in files they are
 * permuted like the weight. */
pl_val pl_nn_spectral_norm(pl_nn *m, pl_val w, pl_nn_spectral names)
{
    if (!pl_val_ok(w)) return w;
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, w);
    int64_t o = t.dim[0], k = pl_type_elems(&t) / o;
    bool torch = names == PL_SPECTRAL_TORCH;
    pl_scope_push(g, "spectral");
    pl_scope_full(g); /* the power iteration needs full precision */
    pl_file_layout l = {0};
    if (t.rank > 2) {
        l.flat = true;
        l.rank = l.view_rank = t.rank - 1;
        for (int i = 0; i < l.rank; i++) {
            l.view[i] = t.dim[i + 1];
            l.perm[i] = i ? i - 1 : l.rank - 1;
        }
    }
    int us = pl__nn_slot(m, torch ? "weight_u" : "u", PL_TYPE(t.dtype, o), PL_SLOT_BUFFER,
                         (pl_init){PL_INIT_NORMAL, 0, 1 / sqrt((double)o)}, NULL);
    int vs = pl__nn_slot(m, torch ? "weight_v" : "v", PL_TYPE(t.dtype, k), PL_SLOT_BUFFER,
                         (pl_init){PL_INIT_NORMAL, 0, 1 / sqrt((double)k)}, &l);
    pl_val u = pl_reshape(g, pl_nn_read(m, us), PL_DIMS(o, 1));
    pl_val v = pl_reshape(g, pl_nn_read(m, vs), PL_DIMS(k, 1));
    pl_val flat = pl_reshape(g, w, PL_DIMS(o, k));
    if (m->training) {
        pl_val fixed = pl_stop_gradient(g, flat);
        v = unit(g, pl_matmul(g, fixed, u, true, false));
        u = unit(g, pl_matmul(g, fixed, v, false, false));
        pl_nn_update(m, us, pl_reshape(g, u, PL_DIMS(o)));
        pl_nn_update(m, vs, pl_reshape(g, v, PL_DIMS(k)));
    }
    u = pl_stop_gradient(g, u);
    v = pl_stop_gradient(g, v);
    pl_val sigma = pl_sum(g, pl_mul(g, u, pl_matmul(g, flat, v, false, false)), PL_AXES_ALL, false);
    w = pl_div(g, w, sigma);
    pl_scope_pop(g);
    return w;
}

/* Returns the weight as the layer uses it, spectrally normalised on request. */
static pl_val weight(pl_nn *m, pl_type t, pl_nn_init init, double fan_in, double fan_out,
                     pl_nn_spectral spectral)
{
    pl_file_layout l = conv_layout(t.rank);
    const char *name = spectral == PL_SPECTRAL_TORCH ? "weight_orig" : "weight";
    pl_val w =
        pl__nn_param(m, name, t, pl_nn_init_of(init, fan_in, fan_out), t.rank > 2 ? &l : NULL);
    return spectral == PL_SPECTRAL_NONE ? w : pl_nn_spectral_norm(m, w, spectral);
}

static pl_val bias(pl_nn *m, int64_t n, bool none, pl_nn_init init, double fan_in)
{
    if (none) return PL_NO_VAL;
    return pl__nn_param(m, "bias", PL_TYPE(m->dtype, n), pl_nn_init_of(init, fan_in, (double)n),
                        NULL);
}

pl_val pl_nn_linear(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_lin o)
{
    int64_t in = pl__nn_dim(m, x, -1);
    if (in == 0) return PL_NO_VAL;
    pl_nn_push(m, "%s", name);
    pl_val w = weight(m, PL_TYPE(m->dtype, out, in), o.init, (double)in, (double)out, o.spectral);
    pl_val b = bias(m, out, o.no_bias, o.bias_init, (double)in);
    pl_val y = pl_linear(m->g, x, w, b);
    pl_nn_pop(m);
    return y;
}

/* Sets per-axis numbers from the short or the long form of the options. */
static void axes_of(const pl_nn_conv *o, int spatial, int *kernel, pl_conv_opts *c)
{
    bool each = o->kernels[0] != 0;
    c->groups = o->groups ? o->groups : 1;
    for (int i = 0; i < spatial; i++) {
        kernel[i] = each ? o->kernels[i] : o->kernel;
        c->stride[i] = each ? o->strides[i] : o->stride;
        c->pad_lo[i] = c->pad_hi[i] = each ? o->pads[i] : o->pad;
        c->dilation[i] = o->dilation ? o->dilation : 1;
        if (c->stride[i] == 0) c->stride[i] = 1;
    }
}

static pl_val conv(pl_nn *m, pl_val x, const char *name, int64_t out, const pl_nn_conv *o,
                   int spatial, bool transposed)
{
    pl_conv_opts c = {.groups = 1};
    int kernel[3] = {0}, out_pad[3] = {o->out_pad, o->out_pad, o->out_pad};
    axes_of(o, spatial, kernel, &c);
    if (!pl_val_ok(x)) return x;
    pl_type tx = pl_val_type(m->g, x);
    int64_t in = pl__nn_dim(m, x, -1);
    if (tx.rank != spatial + 2 || in % c.groups || out % c.groups || kernel[0] < 1) {
        char text[96];
        return pl_nn_fail(m, PL_ERR_SHAPE,
                          "%s: a %d-d convolution of %s to %lld channels, kernel %d, %d groups",
                          name, spatial, pl_type_text(&tx, text, sizeof text), (long long)out,
                          kernel[0], c.groups);
    }
    pl_type t = {.rank = spatial + 2, .dtype = m->dtype};
    t.dim[0] = transposed ? in : out;
    t.dim[spatial + 1] = (transposed ? out : in) / c.groups;
    double window = 1;
    for (int i = 0; i < spatial; i++) {
        t.dim[i + 1] = kernel[i];
        window *= kernel[i];
    }
    double fan_in = (double)t.dim[spatial + 1] * window, fan_out = (double)t.dim[0] * window;
    pl_nn_push(m, "%s", name);
    pl_val w = weight(m, t, o->init, fan_in, fan_out, o->spectral);
    pl_val b = bias(m, out, o->no_bias, o->bias_init, fan_in);
    pl_val y =
        transposed ? pl_conv_transpose(m->g, x, w, b, &c, out_pad) : pl_conv(m->g, x, w, b, &c);
    pl_nn_pop(m);
    return y;
}

pl_val pl_nn_conv1d(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_conv o)
{
    return conv(m, x, name, out, &o, 1, false);
}

pl_val pl_nn_conv2d(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_conv o)
{
    return conv(m, x, name, out, &o, 2, false);
}

pl_val pl_nn_conv3d(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_conv o)
{
    return conv(m, x, name, out, &o, 3, false);
}

pl_val pl_nn_conv_transpose2d(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_conv o)
{
    return conv(m, x, name, out, &o, 2, true);
}

pl_val pl_nn_conv_transpose3d(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_conv o)
{
    return conv(m, x, name, out, &o, 3, true);
}

pl_val pl_nn_embedding_with(pl_nn *m, pl_val ids, const char *name, int64_t rows, int64_t width,
                            pl_nn_init init)
{
    pl_nn_push(m, "%s", name);
    pl_val y = pl_take(m->g, pl_nn_param(m, "weight", PL_DIMS(rows, width), init), ids);
    pl_nn_pop(m);
    return y;
}

pl_val pl_nn_embedding(pl_nn *m, pl_val ids, const char *name, int64_t rows, int64_t width)
{
    return pl_nn_embedding_with(m, ids, name, rows, width, pl_nn_normal(0, 1));
}
