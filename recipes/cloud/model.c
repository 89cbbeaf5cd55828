/* model.c - the networks: frames and angles to a standardised height.
 *
 * Per frame, with shared weights (channels 64, 128, 256 in the full preset):
 *
 *     frame (B,H,W,1) ── spatial attention ── level 1 ── level 2 ── ... ── to a vector (B,C)
 *       spatial attention   x * sigmoid(conv1x1(relu(conv3x3(x))))
 *       level               conv3x3, BatchNorm, LeakyReLU .01, [FiLM on level 1], MaxPool 2,
 *                           channel dropout
 *     angles (B,2) ── Linear, ReLU, Linear ── gamma, beta of FiLM: gamma*x + beta
 *     frames' vectors (B,T,C) ── to one (B,C)
 *     head: several times Linear, BatchNorm, LeakyReLU, dropout; Linear to the standardised height
 *
 * The architectures differ in the two steps to a vector: `transformer` takes the mean over
 * positions and a softmax over time, `gnn` lets neighbouring positions attend to each other
 * (graph.c), `ssm` and `lstm` run over time (recurrent.c). `cnn` is a plain network over the mean
 * frame, for comparison.
 *
 * BatchNorm sees one frame's batch at a time, T times per step. The running statistics are combined
 * in the graph and assigned once, even if a frame is recomputed several times. In the original
 * every frame is recomputed for its gradient and updates them a second time; seed_compat restores
 * this.
 */
#include "cloud.h"

#include <string.h>

int64_t cloud_features(const cloud *k)
{
    return k->channels[k->levels - 1];
}

pl_status cloud_sizes(pl_builder *b, pl_nn *m, cloud *k)
{
    const pl_config *c = pl_builder_config(b);
    int drops;
    *k = (cloud){.b = b,
                 .m = m,
                 .drop_dense = pl_config_floats(c, "model.dropout_dense", &drops),
                 .batch = pl_builder_batch(b),
                 .frames = pl_config_int(c, "frames"),
                 .height = pl_config_int(c, "height"),
                 .width = pl_config_int(c, "width"),
                 .film_hidden = pl_config_int(c, "model.film_hidden"),
                 .drop_conv = pl_config_float(c, "model.dropout_conv"),
                 .norm_momentum = pl_config_float(c, "model.norm_momentum"),
                 .look = pl_config_bool(c, "model.spatial_attention"),
                 .compat = pl_config_bool(c, "seed_compat"),
                 .kind = pl_config_text(c, "architecture.name")};
    k->channels = pl_config_ints(c, "model.channels", &k->levels);
    k->dense = pl_config_ints(c, "model.dense", &k->layers);
    if (k->levels < 1 || k->levels > CLOUD_MAX_LEVELS || k->layers < 1 ||
        k->layers > CLOUD_MAX_LAYERS || drops != k->layers) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "model.channels needs 1 to %d numbers, model.dense 1 to %d, and "
                   "model.dropout_dense as many as model.dense; got %d, %d, %d",
                   CLOUD_MAX_LEVELS, CLOUD_MAX_LAYERS, k->levels, k->layers, drops);
        return PL_ERR_CONFIG;
    }
    int64_t side = k->height < k->width ? k->height : k->width;
    if (side >> k->levels < 1) {
        pl_nn_fail(
            m, PL_ERR_CONFIG,
            "frames of %lld x %lld pixels have no position left after %d levels, each of "
            "which halves them: make model.channels shorter, or height and width at least %d",
            (long long)k->height, (long long)k->width, k->levels, 1 << k->levels);
        return PL_ERR_CONFIG;
    }
    if (cloud_features(k) < 2 && strcmp(k->kind, "transformer") == 0) {
        pl_nn_fail(
            m, PL_ERR_CONFIG,
            "model.channels: the last is %lld; attention over time has half as many, so at least 2",
            (long long)cloud_features(k));
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

pl_nn_lin cloud_xavier(void)
{
    return (pl_nn_lin){.init = pl_nn_xavier_normal(1), .bias_init = pl_nn_constant(0)};
}

/* (B,H,W,1) times the spatial attention map, in (0,1). */
static pl_val spatial_attention(cloud *k, pl_val x)
{
    pl_nn_conv point = conv3x3();
    point.kernel = 1;
    point.pad = 0;
    pl_val a = pl_relu(k->m->g, pl_nn_conv2d(k->m, x, "spatial.0", 1, conv3x3()));
    return pl_mul(k->m->g, x, pl_sigmoid(k->m->g, pl_nn_conv2d(k->m, a, "spatial.2", 1, point)));
}

static pl_val level_norm(cloud *k, int i, pl_val x)
{
    return pl_nn_batch_norm(k->m, x, pl_nn_name(k->m, "norm.%d", i),
                            (pl_nn_norm){.momentum = k->norm_momentum});
}

/* One level of frame t; keep (B,C) multiplies channels after the pool. */
static pl_val level(cloud *k, int64_t t, int i, pl_val x, pl_val gamma, pl_val beta, pl_val keep)
{
    pl_nn *m = k->m;
    x = pl_nn_conv2d(m, x, pl_nn_name(m, "conv.%d", i), k->channels[i], conv3x3());
    k->before_norm[t][i] = x;
    x = level_norm(k, i, x);
    x = pl_leaky_relu(m->g, x, 0.01);
    if (i == 0) x = pl_nn_film(m->g, x, gamma, beta);
    x = pl_max_pool(m->g, x, &(pl_pool_opts){.kernel = {2, 2}});
    return pl_mul(m->g, x, pl_nn_over(m->g, keep, x));
}

/* Frame t of frames (B,T,H,W) to a map of features (B,h,w,C). */
static pl_val frame_map(cloud *k, pl_val frames, int64_t t, pl_val gamma, pl_val beta,
                        const pl_val *keep)
{
    pl_graph *g = k->m->g;
    pl_val x = pl_slice(g, frames, 1, t, t + 1, 1);
    x = pl_reshape(g, x, PL_DIMS(k->batch, k->height, k->width, 1));
    if (k->look) x = spatial_attention(k, x);
    for (int i = 0; i < k->levels; i++) {
        pl_val mine = pl_squeeze(g, pl_slice(g, keep[i], 0, t, t + 1, 1), 0);
        x = level(k, t, i, x, gamma, beta, mine);
    }
    return x;
}

/* ---- from frames to one vector ------------------------------------------------ */
/* (B,T,C) to (B,C): softmax over time of a small network's scores. */
static pl_val temporal_attention(cloud *k, pl_val features)
{
    pl_graph *g = k->m->g;
    if (!pl_config_bool(pl_builder_config(k->b), "model.temporal_attention"))
        return pl_mean(g, features, PL_AXIS(1), false);
    int64_t width = cloud_features(k);
    pl_val s = pl_relu(g, pl_nn_linear(k->m, features, "temporal.0", width / 2, cloud_xavier()));
    s = pl_softmax(g, pl_nn_linear(k->m, s, "temporal.2", 1, cloud_xavier()), 1);
    return pl_sum(g, pl_mul(g, s, features), PL_AXIS(1), false);
}

static pl_val mean_over_positions(cloud *k, int64_t t, pl_val map)
{
    (void)t;
    return pl_nn_global_average(k->m->g, map);
}

static pl_val mean_over_time(cloud *k, pl_val features)
{
    return pl_mean(k->m->g, features, PL_AXIS(1), false);
}

/* An architecture: a frame's map to a vector, and the frames' vectors to one. */
static const struct architecture {
    const char *name;
    pl_val (*frame)(cloud *k, int64_t t, pl_val map);
    pl_val (*time)(cloud *k, pl_val features);
} architectures[] = {
    {"transformer", mean_over_positions, temporal_attention},
    {"gnn", cloud_graph_attention, mean_over_time},
    {"ssm", mean_over_positions, cloud_state_space},
    {"lstm", mean_over_positions, cloud_lstm},
};

static const struct architecture *architecture_of(const cloud *k)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i].name, k->kind) == 0) return &architectures[i];
    return NULL;
}

static pl_nn_lin last_layer(void)
{
    return (pl_nn_lin){.init = pl_nn_normal(0, 0.5), .bias_init = pl_nn_constant(0.1)};
}

static pl_val head(cloud *k, pl_val x, const pl_val *keep)
{
    pl_nn *m = k->m;
    for (int i = 0; i < k->layers; i++) {
        x = pl_nn_linear(m, x, pl_nn_name(m, "dense.%d", i), k->dense[i], cloud_xavier());
        x = pl_nn_batch_norm(m, x, pl_nn_name(m, "dense_norm.%d", i),
                             (pl_nn_norm){.momentum = k->norm_momentum});
        x = pl_mul(m->g, pl_leaky_relu(m->g, x, 0.01), keep[i]);
    }
    return pl_squeeze(m->g, pl_nn_linear(m, x, "out", 1, last_layer()), 1);
}

/* ---- the network ------------------------------------------------------------------------ */
/* Dropout multipliers, in the network's type: by name in training, ones otherwise. */
static pl_val draw_keep(cloud *k, const char *name, pl_type t, double p)
{
    return pl_cast(k->m->g, pl_draw_keep(k->b, k->m, name, t, p), k->m->dtype);
}

static void draw_keeps(cloud *k, pl_val *conv, pl_val *dense)
{
    for (int i = 0; i < k->levels; i++)
        conv[i] = draw_keep(k, pl_nn_name(k->m, "conv_keep%d", i + 1),
                            PL_TYPE(PL_F32, k->frames, k->batch, k->channels[i]), k->drop_conv);
    for (int i = 0; i < k->layers; i++)
        dense[i] = draw_keep(k, pl_nn_name(k->m, "dense_keep%d", i + 1),
                             PL_TYPE(PL_F32, k->batch, k->dense[i]), k->drop_dense[i]);
}

/* Returns the angles (B,2); unused ones are 0. */
static pl_val read_angles(cloud *k)
{
    pl_graph *g = k->m->g;
    const char *mode = pl_config_text(pl_builder_config(k->b), "angles");
    pl_val both = pl_nan_to_num(g, pl_input(g, "angles", PL_TYPE(PL_F32, k->batch, 2))), part[2];
    if (strcmp(mode, "both") == 0) return both;
    pl_split(g, both, 1, 2, part);
    if (strcmp(mode, "zenith") != 0) part[0] = pl_full_like(g, part[0], 0);
    if (strcmp(mode, "azimuth") != 0) part[1] = pl_full_like(g, part[1], 0);
    return pl_concat(g, 2, part, 1);
}

/* Updates the statistics a second time for every frame, from the last to the first: like the
 * original's backward pass, whose checkpoints are the frames. */
static void update_norms_twice(cloud *k)
{
    for (int64_t t = k->frames - 1; t >= 0; t--)
        for (int i = 0; i < k->levels; i++) (void)level_norm(k, i, k->before_norm[t][i]);
}

static pl_val of_frames(cloud *k, const struct architecture *a, pl_val frames, pl_val angles)
{
    pl_graph *g = k->m->g;
    pl_val conv_keep[CLOUD_MAX_LEVELS], dense_keep[CLOUD_MAX_LAYERS], part[2],
        features[CLOUD_MAX_FRAMES];
    draw_keeps(k, conv_keep, dense_keep);
    pl_val film = pl_nn_linear(k->m, angles, "film.0", k->film_hidden, cloud_xavier());
    film = pl_nn_linear(k->m, pl_relu(g, film), "film.2", 2 * k->channels[0], cloud_xavier());
    pl_split(g, film, 1, 2, part);
    for (int64_t t = 0; t < k->frames; t++) {
        pl_scope_push(g, pl_nn_name(k->m, "frame%d", (int)t));
        pl_scope_checkpoint(g);
        features[t] = a->frame(k, t, frame_map(k, frames, t, part[0], part[1], conv_keep));
        pl_scope_pop(g);
    }
    /* Only the authors' first architecture has checkpoints. */
    if (k->compat && k->m->training && a == architectures) update_norms_twice(k);
    return head(k, a->time(k, pl_stack(g, (int)k->frames, features, 1)), dense_keep);
}

/* The plain network: the mean frame, no angles, no norms, no dropout. */
static pl_val of_mean_frame(cloud *k, pl_val frames)
{
    pl_nn *m = k->m;
    pl_nn_conv conv = {
        .kernel = 3, .pad = 1, .init = pl_nn_kaiming_normal(PL_FAN_IN, pl_nn_gain("relu", 0))};
    pl_val x = pl_reshape(m->g, pl_mean(m->g, frames, PL_AXIS(1), false),
                          PL_DIMS(k->batch, k->height, k->width, 1));
    for (int i = 0; i < k->levels; i++) {
        x = pl_relu(m->g, pl_nn_conv2d(m, x, pl_nn_name(m, "conv.%d", i), k->channels[i], conv));
        x = pl_max_pool(m->g, x, &(pl_pool_opts){.kernel = {2, 2}});
    }
    x = pl_nn_global_average(m->g, x);
    pl_nn_lin lin = {.init = pl_nn_xavier_normal(1)};
    for (int i = 0; i < k->layers; i++)
        x = pl_relu(m->g, pl_nn_linear(m, x, pl_nn_name(m, "dense.%d", i), k->dense[i], lin));
    return pl_squeeze(m->g, pl_nn_linear(m, x, "out", 1, last_layer()), 1);
}

pl_val cloud_predict(cloud *k)
{
    pl_graph *g = k->m->g;
    pl_val frames =
        pl_input(g, "frames", PL_TYPE(PL_F32, k->batch, k->frames, k->height, k->width));
    const struct architecture *a = architecture_of(k);
    frames = pl_nan_to_num(g, frames);
    pl_val angles = a ? read_angles(k) : PL_NO_VAL;
    if (k->m->training) cloud_augment(k, &frames, &angles);
    frames = pl_cast(g, frames, k->m->dtype);
    if (a) angles = pl_cast(g, angles, k->m->dtype);
    return a ? of_frames(k, a, frames, angles) : of_mean_frame(k, frames);
}
