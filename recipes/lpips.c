/* lpips.c - LPIPS: the distance of two images in the features of a frozen VGG16.
 *
 * Two namings of weight files: the lpips package's (all in one module), and torchvision's VGG16
 * together with the package's linear weights (in one file, or two in a folder). VGG's 13
 * convolutions are numbered through its list of layers, including rectifiers and pools; ours are
 * numbered in each of five stages.
 */
#include "recipes/lpips.h"

/* Three numbers, one per channel. */
static pl_val triple(pl_nn *m, double a, double b, double c)
{
    pl_type one = PL_TYPE(m->dtype, 1);
    pl_val v[3] = {pl_fill(m->g, one, a), pl_fill(m->g, one, b), pl_fill(m->g, one, c)};
    return pl_concat(m->g, 3, v, 0);
}

/* Converts an image in [-1,1] to VGG's training input. */
static pl_val vgg_input(pl_nn *m, const lpips_sizes *c, pl_val x)
{
    pl_graph *g = m->g;
    pl_type t = PL_TYPE(m->dtype, 3);
    pl_init zero = {PL_INIT_CONST, 0, 0}, one = {PL_INIT_CONST, 1, 0};
    if (!c->buffers)
        return pl_div(g, pl_sub(g, x, triple(m, -0.030, -0.088, -0.188)),
                      triple(m, 0.458, 0.448, 0.450));
    int shift = pl_nn_buffer_as(m, "shift", t, PL_DIMS(3, 1, 1), zero);
    int scale = pl_nn_buffer_as(m, "scale", t, PL_DIMS(3, 1, 1), one);
    return pl_div(g, pl_sub(g, x, pl_nn_read(m, shift)), pl_nn_read(m, scale));
}

/* VGG features after the last ReLU of each of five stages. */
static void vgg(pl_nn *m, const lpips_sizes *c, pl_val x, pl_val out[5])
{
    static const int depth[5] = {2, 2, 3, 3, 3};
    pl_graph *g = m->g;
    x = vgg_input(m, c, x);
    for (int s = 0; s < 5; s++) {
        int index = s ? 1 : 0;
        if (s) x = pl_max_pool(g, x, &(pl_pool_opts){.kernel = {2, 2}});
        for (int i = 0; i < depth[s]; i++, index += 2) {
            pl_nn_conv o = {.kernel = 3,
                            .pad = 1,
                            .init = pl_nn_kaiming_normal(PL_FAN_IN, pl_nn_gain("relu", 0))};
            x = pl_relu(
                g, pl_nn_conv2d(m, x, pl_nn_name(m, "stages.%d.%d", s, index), c->widths[s], o));
        }
        out[s] = x;
    }
}

pl_val lpips_distance(pl_nn *m, const lpips_sizes *c, pl_val x, pl_val target)
{
    pl_graph *g = m->g;
    bool frozen = m->frozen;
    pl_val got[5], want[5], sum = PL_NO_VAL;
    m->frozen = true;
    pl_nn_push(m, "lpips");
    pl_scope_checkpoint(g);
    vgg(m, c, x, got);
    vgg(m, c, target, want);
    for (int s = 0; s < 5; s++) {
        int64_t w = c->widths[s];
        pl_val weight = pl_nn_param_as(m, pl_nn_name(m, "weights.%d", s), PL_DIMS(w),
                                       PL_DIMS(1, w, 1, 1), pl_nn_uniform(0, 1.0 / (double)w));
        pl_val d = pl_loss_lpips_level(g, got[s], want[s], weight);
        sum = s ? pl_add(g, sum, d) : d;
    }
    pl_nn_pop(m);
    m->frozen = frozen;
    return sum;
}

/* ---- published names -------------------------------------------------------------------- */
/* clang-format off */
#define CONVOLUTIONS(X)                                                                        \
    X(1, 0, 0, 0) X(1, 2, 0, 2)                                                                \
    X(2, 5, 1, 1) X(2, 7, 1, 3)                                                                \
    X(3, 10, 2, 1) X(3, 12, 2, 3) X(3, 14, 2, 5)                                               \
    X(4, 17, 3, 1) X(4, 19, 3, 3) X(4, 21, 3, 5)                                               \
    X(5, 24, 4, 1) X(5, 26, 4, 3) X(5, 28, 4, 5)
#define PACKAGE(slice, layer, stage, index) \
    {"net.slice" #slice "." #layer ".*", "lpips.stages." #stage "." #index ".*"},
#define VISION(slice, layer, stage, index) \
    {"features." #layer ".*", "lpips.stages." #stage "." #index ".*"},
#define LINEAR                                                                                 \
    {"lin0.model.1.weight", "lpips.weights.0"}, {"lin1.model.1.weight", "lpips.weights.1"},    \
    {"lin2.model.1.weight", "lpips.weights.2"}, {"lin3.model.1.weight", "lpips.weights.3"},    \
    {"lin4.model.1.weight", "lpips.weights.4"}, {NULL, NULL}

static const pl_rename package[] = {CONVOLUTIONS(PACKAGE) LINEAR};
static const pl_rename vision[] = {CONVOLUTIONS(VISION) LINEAR};
/* clang-format on */

const pl_naming lpips_namings[] = {
    {.name = "lpips", .rules = package, .ignored = "scaling_layer.*,lins.*"},
    {.name = "torchvision", .rules = vision, .ignored = "classifier.*"},
    {.name = NULL},
};
