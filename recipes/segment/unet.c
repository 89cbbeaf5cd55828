/* unet.c - U-Net: a path down that halves the picture, a path up that doubles it, and connections
 * between equal sizes. Names and layouts are those of the widely used PyTorch implementation
 * (inc, down1, ..., up1, ..., outc), so that its checkpoints load.
 *
 *     inc ------------------------------------> concat -> up N -> outc
 *       down1 ------------------------> concat -> up N-1
 *         down2 ----------------> concat -> ...
 *                 ... downN -> up1
 */
#include "segment.h"

/* Two 3 x 3 convolutions with BatchNorm and ReLU; in between `middle` channels. */
static pl_val double_conv(pl_nn *m, pl_val x, int64_t middle, int64_t out)
{
    const pl_nn_conv conv = {.kernel = 3, .pad = 1, .no_bias = true};
    pl_nn_push(m, "double_conv");
    for (int i = 0; i < 2; i++) {
        x = pl_nn_conv2d(m, x, i ? "3" : "0", i ? out : middle, conv);
        x = pl_relu(m->g, pl_nn_batch_norm(m, x, i ? "4" : "1", (pl_nn_norm){0}));
    }
    pl_nn_pop(m);
    return x;
}

static pl_val down(pl_nn *m, pl_val x, int64_t out)
{
    x = pl_max_pool(m->g, x, &(pl_pool_opts){.kernel = {2, 2}, .stride = {2, 2}});
    pl_nn_push(m, "maxpool_conv.1");
    x = double_conv(m, x, out, out);
    pl_nn_pop(m);
    return x;
}

/* x has in channels, or half of them where it is resized instead of convolved. */
static pl_val up(pl_nn *m, pl_val x, pl_val skip, int64_t in, int64_t out, bool bilinear)
{
    if (!pl_val_ok(x) || !pl_val_ok(skip)) return PL_NO_VAL;
    pl_type t = pl_val_type(m->g, skip);
    if (bilinear)
        x = pl_resize(m->g, x, (const int64_t[]){t.dim[1], t.dim[2]}, PL_RESIZE_LINEAR, true);
    else
        x = pl_nn_conv_transpose2d(m, x, "up", in / 2, (pl_nn_conv){.kernel = 2, .stride = 2});
    x = pl_concat(m->g, 2, (pl_val[]){skip, x}, -1);
    pl_nn_push(m, "conv");
    x = double_conv(m, x, bilinear ? in / 2 : out, out);
    pl_nn_pop(m);
    return x;
}

pl_val segment_network(pl_nn *m, const segment_net *n, pl_val x)
{
    enum { MOST = 8 };
    pl_val level[MOST + 1];
    int64_t half = n->bilinear ? 2 : 1;
    pl_nn_push(m, "inc");
    level[0] = x = double_conv(m, x, n->width, n->width);
    pl_nn_pop(m);
    for (int i = 1; i <= n->levels; i++) {
        pl_nn_push(m, "down%d", i);
        pl_scope_checkpoint(m->g);
        level[i] = x = down(m, x, (n->width << i) / (i == n->levels ? half : 1));
        pl_nn_pop(m);
    }
    for (int i = (int)n->levels - 1; i >= 0; i--) {
        pl_nn_push(m, "up%d", (int)n->levels - i);
        pl_scope_checkpoint(m->g);
        x = up(m, x, level[i], n->width << (i + 1), (n->width << i) / (i ? half : 1), n->bilinear);
        pl_nn_pop(m);
    }
    return pl_nn_conv2d(m, x, "outc.conv", n->classes, (pl_nn_conv){.kernel = 1});
}
