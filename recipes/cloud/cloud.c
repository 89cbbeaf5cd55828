/* cloud.c - cloud-base height from a stack of infrared frames and two solar angles.
 *
 * The network, per frame, with shared weights (channels 64, 128, 256 in the full preset):
 *
 *     frame (B,H,W,1) ── spatial attention ── level 1 ── level 2 ── level 3 ── mean over positions
 *       spatial attention   x * sigmoid(conv1x1(relu(conv3x3(x))))
 *       level               conv3x3, BatchNorm, LeakyReLU .01, [FiLM on level 1], MaxPool 2, channel
 *                           dropout
 *     angles (B,2) ── Linear, ReLU, Linear ── gamma, beta of FiLM: gamma*x + beta
 *     frames' features (B,T,C) ── softmax over T of Linear(relu(Linear)) ── weighted sum (B,C)
 *     head: two times Linear, BatchNorm, LeakyReLU, dropout; Linear to the standardised height
 *
 * Loss: Huber a sample, the hardest fraction weighted more, mean. Parameter names are those of the
 * PyTorch program (module lists `conv`, `norm`, `dense`, ...), so weights travel both ways.
 *
 * BatchNorm sees one frame's batch at a time, T times a step; the running statistics are composed in
 * the graph and assigned once, however often a frame is recomputed.
 */
#include "cloud.h"

#include <math.h>
#include <string.h>

static const pl_config_entry schema[] = {
    {"frames", PL_CONFIG_INT, "5", 1, 64, NULL, "Frames of a stack (T)."},
    {"height", PL_CONFIG_INT, "440", 8, 16384, NULL, "Rows of a frame."},
    {"width", PL_CONFIG_INT, "640", 8, 16384, NULL, "Columns of a frame."},
    {"model.channels", PL_CONFIG_INTS, "[64, 128, 256]", 1, 65536, NULL,
     "Channels of the three convolution levels."},
    {"model.dense", PL_CONFIG_INTS, "[256, 128]", 1, 65536, NULL, "Widths of the head."},
    {"model.film_hidden", PL_CONFIG_INT, "256", 1, 65536, NULL,
     "Hidden width of the network that turns angles into scales and shifts."},
    {"model.dropout_conv", PL_CONFIG_FLOAT, "0.25", 0, 0.99, NULL, "Channel dropout of a level."},
    {"model.dropout_dense", PL_CONFIG_FLOATS, "[0.5, 0.3]", 0, 0.99, NULL, "Dropout of the head."},
    {"loss.huber_delta", PL_CONFIG_FLOAT, "1", 1e-6, 1e6, NULL, "Where Huber turns linear."},
    {"loss.mining_fraction", PL_CONFIG_FLOAT, "0.35", 0, 1, NULL,
     "Fraction of a batch that counts as hard."},
    {"loss.mining_factor", PL_CONFIG_FLOAT, "1.5", 0, 1e6, NULL, "Weight of the hard ones."},
    {"data.samples", PL_CONFIG_INT, "4096", 1, 1e12, NULL, "Generated training samples."},
    {"data.eval_samples", PL_CONFIG_INT, "256", 1, 1e12, NULL, "Generated evaluation samples."},
    {"data.noise_kelvin", PL_CONFIG_FLOAT, "0.4", 0, 100, NULL, "Noise of a generated pixel."},
    {0},
};

/* Sizes of one build. */
typedef struct cloud {
    pl_builder *b;
    pl_nn *m;
    const int64_t *channels, *dense;
    const double *drop_dense;
    int64_t batch, frames, height, width, film_hidden;
    double drop_conv;
} cloud;

static pl_status sizes_from_config(pl_builder *b, pl_nn *m, cloud *k)
{
    const pl_config *c = pl_builder_config(b);
    int levels, layers, drops;
    *k = (cloud){.b = b,
                 .m = m,
                 .channels = pl_config_ints(c, "model.channels", &levels),
                 .dense = pl_config_ints(c, "model.dense", &layers),
                 .drop_dense = pl_config_floats(c, "model.dropout_dense", &drops),
                 .batch = pl_builder_batch(b),
                 .frames = pl_config_int(c, "frames"),
                 .height = pl_config_int(c, "height"),
                 .width = pl_config_int(c, "width"),
                 .film_hidden = pl_config_int(c, "model.film_hidden"),
                 .drop_conv = pl_config_float(c, "model.dropout_conv")};
    if (levels != 3 || layers != 2 || drops != 2) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "model.channels wants 3 numbers, model.dense 2, model.dropout_dense 2; got %d, "
                   "%d, %d",
                   levels, layers, drops);
        return PL_ERR_CONFIG;
    }
    return PL_OK;
}

/* ---- pieces ----------------------------------------------------------------------------- */
static pl_nn_conv conv3x3(void)
{
    return (pl_nn_conv){.kernel = 3,
                        .pad = 1,
                        .init = pl_nn_kaiming_normal(PL_FAN_OUT, pl_nn_gain("leaky_relu", 0.01)),
                        .bias_init = pl_nn_constant(0)};
}

static pl_nn_lin xavier(void)
{
    return (pl_nn_lin){.init = pl_nn_xavier_normal(1), .bias_init = pl_nn_constant(0)};
}

/* (B,H,W,1) times where to look, a map in (0,1). */
static pl_val spatial_attention(cloud *k, pl_val x)
{
    pl_nn_conv point = conv3x3();
    point.kernel = 1;
    point.pad = 0;
    pl_val a = pl_relu(k->m->g, pl_nn_conv2d(k->m, x, "spatial.0", 1, conv3x3()));
    return pl_mul(k->m->g, x, pl_sigmoid(k->m->g, pl_nn_conv2d(k->m, a, "spatial.2", 1, point)));
}

/* One level; keep (B,C) multiplies channels after the pool. */
static pl_val level(cloud *k, int i, pl_val x, pl_val gamma, pl_val beta, pl_val keep)
{
    pl_nn *m = k->m;
    x = pl_nn_conv2d(m, x, pl_nn_name(m, "conv.%d", i), k->channels[i], conv3x3());
    x = pl_nn_batch_norm(m, x, pl_nn_name(m, "norm.%d", i), (pl_nn_norm){0});
    x = pl_leaky_relu(m->g, x, 0.01);
    if (i == 0) x = pl_nn_film(m->g, x, gamma, beta);
    x = pl_max_pool(m->g, x, &(pl_pool_opts){.kernel = {2, 2}});
    return pl_mul(m->g, x, pl_nn_over(m->g, keep, x));
}

/* Frame t of frames (B,T,H,W) to features (B,C3). */
static pl_val frame_features(cloud *k, pl_val frames, int64_t t, pl_val gamma, pl_val beta,
                             const pl_val keep[3])
{
    pl_graph *g = k->m->g;
    pl_scope_push(g, pl_nn_name(k->m, "frame%d", (int)t));
    pl_scope_checkpoint(g);
    pl_val x = pl_slice(g, frames, 1, t, t + 1, 1);
    x = pl_reshape(g, x, PL_DIMS(k->batch, k->height, k->width, 1));
    x = spatial_attention(k, x);
    for (int i = 0; i < 3; i++) {
        pl_val mine = pl_squeeze(g, pl_slice(g, keep[i], 0, t, t + 1, 1), 0);
        x = level(k, i, x, gamma, beta, mine);
    }
    x = pl_nn_global_average(g, x);
    pl_scope_pop(g);
    return x;
}

/* (B,T,C) to (B,C): softmax over time of a small network's scores. */
static pl_val temporal_attention(cloud *k, pl_val features)
{
    pl_graph *g = k->m->g;
    int64_t width = k->channels[2];
    pl_val s = pl_relu(g, pl_nn_linear(k->m, features, "temporal.0", width / 2, xavier()));
    s = pl_softmax(g, pl_nn_linear(k->m, s, "temporal.2", 1, xavier()), 1);
    return pl_sum(g, pl_mul(g, s, features), PL_AXIS(1), false);
}

static pl_val head(cloud *k, pl_val x, const pl_val keep[2])
{
    pl_nn *m = k->m;
    for (int i = 0; i < 2; i++) {
        x = pl_nn_linear(m, x, pl_nn_name(m, "dense.%d", i), k->dense[i], xavier());
        x = pl_nn_batch_norm(m, x, pl_nn_name(m, "dense_norm.%d", i), (pl_nn_norm){0});
        x = pl_mul(m->g, pl_leaky_relu(m->g, x, 0.01), keep[i]);
    }
    pl_nn_lin last = {.init = pl_nn_normal(0, 0.5), .bias_init = pl_nn_constant(0.1)};
    return pl_squeeze(m->g, pl_nn_linear(m, x, "out", 1, last), 1);
}

/* ---- the network ------------------------------------------------------------------------ */
/* Dropout multipliers: by name in training, ones otherwise. */
static void draw_keeps(cloud *k, pl_val conv[3], pl_val dense[2])
{
    for (int i = 0; i < 3; i++)
        conv[i] = pl_draw_keep(k->b, k->m, pl_nn_name(k->m, "conv_keep%d", i + 1),
                               PL_TYPE(PL_F32, k->frames, k->batch, k->channels[i]), k->drop_conv);
    for (int i = 0; i < 2; i++)
        dense[i] = pl_draw_keep(k->b, k->m, pl_nn_name(k->m, "dense_keep%d", i + 1),
                                PL_TYPE(PL_F32, k->batch, k->dense[i]), k->drop_dense[i]);
}

/* Standardised height (B) of frames (B,T,H,W) and angles (B,2); not finite when training has blown
 * up. */
static pl_val predict(cloud *k)
{
    pl_graph *g = k->m->g;
    pl_val frames =
        pl_input(g, "frames", PL_TYPE(PL_F32, k->batch, k->frames, k->height, k->width));
    pl_val angles = pl_input(g, "angles", PL_TYPE(PL_F32, k->batch, 2));
    pl_val conv_keep[3], dense_keep[2], part[2], features[64];
    draw_keeps(k, conv_keep, dense_keep);

    frames = pl_nan_to_num(g, frames);
    pl_val film = pl_nn_linear(k->m, pl_nan_to_num(g, angles), "film.0", k->film_hidden, xavier());
    film = pl_nn_linear(k->m, pl_relu(g, film), "film.2", 2 * k->channels[0], xavier());
    pl_split(g, film, 1, 2, part);
    for (int64_t t = 0; t < k->frames; t++)
        features[t] = frame_features(k, frames, t, part[0], part[1], conv_keep);
    pl_val pooled = temporal_attention(k, pl_stack(g, (int)k->frames, features, 1));
    return head(k, pooled, dense_keep);
}

static pl_status build_train(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    cloud k;
    if (sizes_from_config(b, pl_builder_train(b), &k) != PL_OK) return pl_nn_finish(k.m);
    pl_val raw = predict(&k), height = pl_nan_to_num(k.m->g, raw);
    pl_val target = pl_input(k.m->g, "target", PL_TYPE(PL_F32, k.batch));
    pl_val bad = pl_cast(k.m->g, pl_not(k.m->g, pl_is_finite(k.m->g, raw)), PL_F32);
    pl_output(k.m->g, "nonfinite", pl_sum(k.m->g, bad, PL_AXES_ALL, false));
    pl_val each = pl_loss_huber(k.m->g, height, target, pl_config_float(c, "loss.huber_delta"));
    pl_builder_minimise(b, pl_loss_hard_mining(k.m->g, each,
                                               pl_config_float(c, "loss.mining_fraction"),
                                               pl_config_float(c, "loss.mining_factor")));
    return PL_OK;
}

/* Evaluation in kilometres. */
static pl_status build_eval(pl_builder *b)
{
    cloud k;
    if (sizes_from_config(b, pl_builder_eval(b), &k) != PL_OK) return pl_nn_finish(k.m);
    pl_graph *g = k.m->g;
    pl_val height = pl_nan_to_num(g, predict(&k));
    pl_val target = pl_input(g, "target", PL_TYPE(PL_F32, k.batch));
    pl_val error = pl_scale(g, pl_sub(g, height, target), CLOUD_STD_KM);
    pl_val km = pl_shift(g, pl_scale(g, target, CLOUD_STD_KM), CLOUD_MEAN_KM);
    pl_val huber = pl_loss_huber(g, height, target,
                                 pl_config_float(pl_builder_config(b), "loss.huber_delta"));
    pl_output(g, "loss", pl_mean(g, huber, PL_AXES_ALL, false));
    pl_output(g, "mae_km", pl_mean(g, pl_abs(g, error), PL_AXES_ALL, false));
    pl_output(g, "mse_km2", pl_mean(g, pl_square(g, error), PL_AXES_ALL, false));
    pl_output(g, "mape", pl_mean(g, pl_div(g, pl_abs(g, error), km), PL_AXES_ALL, false));
    pl_output(g, "mean_km", pl_mean(g, km, PL_AXES_ALL, false));
    pl_output(g, "mean_km2", pl_mean(g, pl_square(g, km), PL_AXES_ALL, false));
    return PL_OK;
}

static pl_status build(pl_builder *b)
{
    pl_status rc = build_train(b);
    return rc == PL_OK ? build_eval(b) : rc;
}

static double mean_named(const char *const *name, const double *mean, int n, const char *wanted)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name[i], wanted) == 0) return mean[i];
    return (double)NAN;
}

/* Root mean square error, and the coefficient of determination. */
static int derive(const char *const *name, const double *mean, int n, const char **new_name,
                  double *new_value, int cap)
{
    if (cap < 2) return 0;
    double mse = mean_named(name, mean, n, "mse_km2"), m = mean_named(name, mean, n, "mean_km");
    double variance = mean_named(name, mean, n, "mean_km2") - m * m;
    new_name[0] = "rmse_km";
    new_value[0] = sqrt(mse);
    new_name[1] = "r2";
    new_value[1] = 1 - mse / variance;
    return 2;
}

/* ---- the PyTorch peer ------------------------------------------------------------------- */
static const char *const workloads[] = {"cloud", "cloud-small", NULL};
static const pl_peer_key peer_keys[] = {
    {"batch", "batch"},
    {"frames", "frames"},
    {"height", "height"},
    {"width", "width"},
    {"channels", "model.channels"},
    {"dense", "model.dense"},
    {"film_hidden", "model.film_hidden"},
    {"drop_conv", "model.dropout_conv"},
    {"drop_dense", "model.dropout_dense"},
    {"mining_fraction", "loss.mining_fraction"},
    {"mining_factor", "loss.mining_factor"},
    {"lr", "optim.lr"},
    {"weight_decay", "optim.weight_decay"},
    {NULL, NULL},
};
static const pl_peer peer = {
    .workloads = workloads, .preset = "tiny", .keys = peer_keys, .prefix = "model."};

const pl_recipe pl_recipe_cloud;
const pl_recipe pl_recipe_cloud = {
    .abi = PL_RECIPE_ABI,
    .name = "cloud",
    .about = "cloud-base height from infrared frame stacks and solar angles (regression)",
    .schema = schema,
    .presets = cloud_presets,
    .build = build,
    .data_open = cloud_data_open,
    .data_close = cloud_data_close,
    .data_size = cloud_data_size,
    .data_read = cloud_data_read,
    .peer = &peer,
    .derive = derive,
    .metric = "mae_km",
};
