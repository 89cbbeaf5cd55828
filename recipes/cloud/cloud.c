/* cloud.c - cloud-base height from a stack of infrared frames and two solar angles.
 *
 * The network is in model.c, its data in sky.c (generated) and flights.c (the authors' files). The
 * loss is the mean over the batch of Huber (or one of the authors' mixtures), with more weight on
 * the hardest fraction. `seed_compat` restores the original's mistakes: the schedule advances once
 * per epoch while the warm-up is counted in steps, BatchNorm's statistics are updated twice
 * (model.c), brightness varies in 8 bits (augment.c), the flat field has no effect (flights.c), and
 * loss.gamma and loss.under_weight do not reach the loss.
 *
 * Parameter names are those of the PyTorch program (module lists `conv`, `norm`, `dense`, ...), so
 * weights can be exchanged in both directions.
 */
#include "cloud.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const pl_config_entry schema[] = {
    {"seed_compat", PL_CONFIG_BOOL, "false",
     .doc = "Reproduce the original program, including its mistakes (see the recipe's README)."},
    {"frames", PL_CONFIG_INT, "5", .min = 1, .max = 64, .doc = "Frames per stack (T)."},
    {"height", PL_CONFIG_INT, "440", .min = 2, .max = 16384, .doc = "Rows of a frame, in pixels."},
    {"width", PL_CONFIG_INT, "640", .min = 2, .max = 16384,
     .doc = "Columns of a frame, in pixels."},
    {"model.channels", PL_CONFIG_INTS, "[64, 128, 256]", .min = 1, .max = 65536,
     .doc = "Channels of the convolution levels, 1 to 8; each halves the frame."},
    {"model.dense", PL_CONFIG_INTS, "[256, 128]", .min = 1, .max = 65536,
     .doc = "Widths of the layers of the head, 1 to 8."},
    {"model.film_hidden", PL_CONFIG_INT, "256", .min = 1, .max = 65536,
     .doc = "Hidden width of the network that turns solar angles into FiLM scales and shifts."},
    {"model.dropout_conv", PL_CONFIG_FLOAT, "0.25", .min = 0, .max = 0.99,
     .doc = "Channel dropout probability after each convolution level."},
    {"model.dropout_dense", PL_CONFIG_FLOATS, "[0.5, 0.3]", .min = 0, .max = 0.99,
     .doc = "Dropout probabilities of the layers of the head."},
    {"model.norm_momentum", PL_CONFIG_FLOAT, "0.1", .min = 1e-6, .max = 1,
     .doc = "Weight of a batch's statistics in BatchNorm's running statistics, which predictions "
            "use; smaller values are steadier with small batches."},
    {"architecture.name", PL_CONFIG_CHOICE, "transformer",
     .choices = "transformer|gnn|ssm|lstm|cnn",
     .doc = "How positions and frames become one vector: attention over time, a graph of "
            "positions, a selective state space (Mamba), an LSTM of two layers, or a plain "
            "network over the mean frame."},
    {"model.spatial_attention", PL_CONFIG_BOOL, "true",
     .doc = "Weight the positions of a frame by a learned map."},
    {"model.temporal_attention", PL_CONFIG_BOOL, "true",
     .doc = "transformer: weight the frames by learned attention; false: take their mean."},
    {"model.graph_width", PL_CONFIG_INT, "256", .min = 1, .max = 65536,
     .doc = "gnn: features per head."},
    {"model.graph_heads", PL_CONFIG_INT, "8", .min = 1, .max = 256,
     .doc = "gnn: heads of the first layer."},
    {"model.graph_dropout", PL_CONFIG_FLOAT, "0.6", .min = 0, .max = 0.99,
     .doc = "gnn: dropout probability of features and of attention weights."},
    {"model.state", PL_CONFIG_INT, "16", .min = 1, .max = 4096,
     .doc = "ssm: state size per channel."},
    {"angles", PL_CONFIG_CHOICE, "both", .choices = "both|zenith|azimuth|none",
     .doc = "Solar angles that the network sees."},
    {"augment.flip", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1,
     .doc = "Probability of mirroring a stack left to right, with its azimuth."},
    {"augment.jitter", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1,
     .doc = "Largest relative change of a stack's brightness and contrast."},
    {"augment.erase", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1,
     .doc = "Probability that a rectangle of 2 to 10 % of a stack is set to 0."},
    {"loss.type", PL_CONFIG_CHOICE, "huber",
     .choices = "huber|mse|mse_mae|huber_mae|weighted_huber|weighted_huber_mae",
     .doc = "Loss function."},
    {"loss.alpha", PL_CONFIG_FLOAT, "0.5", .min = 0, .max = 1,
     .doc = "Mixed losses: weight of the first term; the second has 1 - alpha."},
    {"loss.gamma", PL_CONFIG_FLOAT, "1.5", .min = 0.1, .max = 16,
     .doc = "*_mae losses: exponent of the absolute error."},
    {"loss.under_weight", PL_CONFIG_FLOAT, "1", .min = 0, .max = 1e6,
     .doc = "weighted_* losses: weight of samples whose predicted height is too low."},
    {"loss.variance", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1e6,
     .doc = "Weight of (1 - variance of predictions / variance of targets)^2, which penalises "
            "predictions that are all alike."},
    {"loss.huber_delta", PL_CONFIG_FLOAT, "1", .min = 1e-6, .max = 1e6,
     .doc = "Error at which the Huber loss becomes linear."},
    {"loss.mining_fraction", PL_CONFIG_FLOAT, "0.35", .min = 0, .max = 1,
     .doc = "Fraction of a batch, the samples with the largest errors, that gets "
            "loss.mining_factor."},
    {"loss.mining_factor", PL_CONFIG_FLOAT, "1.5", .min = 0, .max = 1e6,
     .doc = "Weight of these hardest samples."},
    {"data.samples", PL_CONFIG_INT, "4096", .min = 1, .max = 1e12,
     .doc = "Number of generated training samples."},
    {"data.eval_samples", PL_CONFIG_INT, "256", .min = 1, .max = 1e12,
     .doc = "Number of generated evaluation samples."},
    {"data.flights", PL_CONFIG_TEXT, "null",
     .doc = "The authors' HDF5 files: \"NAME=CAMERA,LIDAR,NAV; NAME=...\", or a text file with "
            "one line per flight; null: generated skies."},
    {"data.train_flights", PL_CONFIG_TEXT, "\"*\"",
     .doc = "Names of the flights to train on, as a pattern."},
    {"data.eval_flights", PL_CONFIG_TEXT, "null",
     .doc = "Names of the flights to evaluate on, as a pattern (not trained on); null: the last "
            "fifth of each flight."},
    {"data.heavy_flights", PL_CONFIG_TEXT, "null",
     .doc = "Names of the flights whose samples are repeated, as a pattern; null: none."},
    {"data.heavy_factor", PL_CONFIG_FLOAT, "3.5", .min = 0.5, .max = 100,
     .doc = "Number of times that the samples of data.heavy_flights are repeated, a multiple of "
            "0.5."},
    {"target.scaler", PL_CONFIG_TEXT, "auto",
     .doc = "Mean and deviation of heights, which the network's output counts from: of a "
            "checkpoint with the authors' scaler (a path); of init_from, where that has one "
            "(auto), otherwise of heights spread evenly over 0.1 to 2 km (published)."},
    {"data.min_km", PL_CONFIG_FLOAT, "0.1", .min = 0, .max = 100,
     .doc = "Flights: lowest cloud base that is used as a label, in km."},
    {"data.max_km", PL_CONFIG_FLOAT, "2", .min = 0, .max = 100,
     .doc = "Flights: highest cloud base that is used as a label, in km."},
    {"data.first_row", PL_CONFIG_INT, "40", .min = 0, .max = 16384,
     .doc = "Flights: first row of the camera's frame that is used."},
    {"data.flat_field", PL_CONFIG_BOOL, "true",
     .doc = "Flights: divide frames by the flight's mean frame; false: as the authors ran it "
            "(their own correction has no effect)."},
    {"data.contrast", PL_CONFIG_FLOAT, "0.01", .min = 0, .max = 1,
     .doc = "Flights: clip limit of the adaptive histogram equalisation, as a fraction of a "
            "tile's pixels; 0: no equalisation."},
    {"data.standardise", PL_CONFIG_BOOL, "true",
     .doc = "Flights: scale each frame to mean 0 and variance 1."},
    {"data.noise_kelvin", PL_CONFIG_FLOAT, "0.4", .min = 0, .max = 100,
     .doc = "Generated skies: standard deviation of the pixel noise, in kelvin."},
    {0},
};

pl_val cloud_error_cost(pl_graph *g, const pl_config *c, pl_val y, pl_val target)
{
    const char *type = pl_config_text(c, "loss.type");
    double delta = pl_config_float(c, "loss.huber_delta"), alpha = pl_config_float(c, "loss.alpha");
    /* The original does not pass these two keys to its loss, which uses its own defaults. */
    bool compat = pl_config_bool(c, "seed_compat");
    double gamma = compat ? 2 : pl_config_float(c, "loss.gamma");
    double under_weight = compat ? 1 : pl_config_float(c, "loss.under_weight");
    pl_val error = pl_sub(g, target, y), size = pl_abs(g, error);
    if (strcmp(type, "mse") == 0) return pl_square(g, error);
    if (strcmp(type, "mse_mae") == 0)
        return pl_add(g, pl_scale(g, pl_square(g, error), alpha), pl_scale(g, size, 1 - alpha));
    pl_val cost = pl_loss_huber(g, y, target, delta);
    if (strncmp(type, "weighted", 8) == 0) {
        pl_val low =
            pl_cast(g, pl_gt(g, error, pl_full_like(g, error, 0)), pl_val_type(g, error).dtype);
        cost = pl_mul(g, cost, pl_shift(g, pl_scale(g, low, under_weight - 1), 1));
    }
    if (!strstr(type, "_mae")) return cost;
    /* For exponents below 1 the slope at 0 is infinite, and the gradient would have 0 * log 0. */
    pl_val safe = pl_max(g, size, pl_full_like(g, size, 1e-12));
    pl_val power = pl_pow(g, safe, pl_full_like(g, size, gamma));
    return pl_add(g, pl_scale(g, cost, alpha), pl_scale(g, power, 1 - alpha));
}

static pl_val spread_cost(pl_graph *g, pl_val y, pl_val target)
{
    pl_val mean, of_y, of_target;
    pl_moments(g, y, PL_AXES_ALL, false, &mean, &of_y);
    pl_moments(g, target, PL_AXES_ALL, false, &mean, &of_target);
    pl_val ratio = pl_div(g, of_y, pl_max(g, of_target, pl_full_like(g, of_target, 1e-6)));
    return pl_square(g, pl_shift(g, pl_neg(g, ratio), 1));
}

/* Sets the steps of an epoch, where they are known before the data are read; for arrays of a folder
 * they are not. */
static pl_status epoch_steps(const pl_config *c, int64_t *steps)
{
    int64_t samples = pl_config_int(c, "data.samples"), batch = pl_config_int(c, "batch");
    if (!pl_config_is_null(c, "data.flights")) {
        void *data = NULL;
        pl_status rc = cloud_flights_open(c, &data);
        if (rc != PL_OK) return rc;
        samples = cloud_flights_size(data, PL_SUBSET_TRAIN);
        cloud_flights_close(data);
    }
    *steps = samples / batch > 0 ? samples / batch : 1;
    return PL_OK;
}

static pl_status build_train(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    pl_group group = {.updates = 1};
    cloud k;
    if (pl_config_bool(c, "seed_compat")) {
        pl_status rc = epoch_steps(c, &group.updates);
        if (rc != PL_OK) return rc;
    }
    if (cloud_sizes(b, pl_builder_train(b), &k) != PL_OK) return pl_nn_finish(k.m);
    pl_val raw = cloud_predict(&k), height = pl_nan_to_num(k.m->g, raw);
    pl_val target =
        pl_cast(k.m->g, pl_input(k.m->g, "target", PL_TYPE(PL_F32, k.batch)), k.m->dtype);
    pl_val bad = pl_cast(k.m->g, pl_not(k.m->g, pl_is_finite(k.m->g, raw)), PL_F32);
    pl_output(k.m->g, "nonfinite", pl_sum(k.m->g, bad, PL_AXES_ALL, false));
    pl_val loss = pl_loss_hard_mining(k.m->g, cloud_error_cost(k.m->g, c, height, target),
                                      pl_config_float(c, "loss.mining_fraction"),
                                      pl_config_float(c, "loss.mining_factor"));
    double spread = pl_config_float(c, "loss.variance");
    if (spread > 0)
        loss = pl_add(k.m->g, loss, pl_scale(k.m->g, spread_cost(k.m->g, height, target), spread));
    pl_builder_minimise_with(b, k.m, loss, &group);
    return PL_OK;
}

/* Evaluation in kilometres. The error's distribution is reported as the share of predictions within
 * a distance: shares can be averaged over batches, quantiles cannot. */
static pl_status build_eval(pl_builder *b)
{
    cloud k;
    cloud_scaler s;
    pl_status rc = cloud_scaler_of(pl_builder_config(b), &s);
    if (rc != PL_OK) return rc;
    if (cloud_sizes(b, pl_builder_eval(b), &k) != PL_OK) return pl_nn_finish(k.m);
    pl_graph *g = k.m->g;
    cloud_scaler_fact(b, &s);
    pl_val height = pl_nan_to_num(g, cloud_predict(&k));
    pl_val target = pl_cast(g, pl_input(g, "target", PL_TYPE(PL_F32, k.batch)), k.m->dtype);
    pl_val error = pl_scale(g, pl_sub(g, height, target), s.std);
    pl_val km = pl_shift(g, pl_scale(g, target, s.std), s.mean);
    pl_val cost = cloud_error_cost(g, pl_builder_config(b), height, target);
    pl_output(g, "loss", pl_mean(g, cost, PL_AXES_ALL, false));
    pl_output(g, "mae_km", pl_mean(g, pl_abs(g, error), PL_AXES_ALL, false));
    pl_output(g, "mse_km2", pl_mean(g, pl_square(g, error), PL_AXES_ALL, false));
    pl_output(g, "mape", pl_mean(g, pl_div(g, pl_abs(g, error), km), PL_AXES_ALL, false));
    for (int i = 0; i < 3; i++) {
        static const struct {
            const char *name;
            double km;
        } within[] = {{"within_100m", 0.1}, {"within_250m", 0.25}, {"within_500m", 0.5}};
        pl_val near = pl_lt(g, pl_abs(g, error), pl_full_like(g, error, within[i].km));
        pl_output(g, within[i].name, pl_mean(g, pl_cast(g, near, PL_F32), PL_AXES_ALL, false));
    }
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

/* ---- data -------------------------------------------------------------------------------- */
/* Generated skies, or the authors' flights. */
typedef struct source {
    pl_status (*open)(const pl_config *c, void **data);
    void (*close)(void *data);
    int64_t (*size)(void *data, pl_subset subset);
    pl_status (*read)(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch);
    void *data;
} source;

static pl_status data_open(const pl_config *c, void **data)
{
    static const source sky = {cloud_sky_open, cloud_sky_close, cloud_sky_size, cloud_sky_read,
                               NULL};
    static const source flown = {cloud_flights_open, cloud_flights_close, cloud_flights_size,
                                 cloud_flights_read, NULL};
    source *s = malloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    *s = pl_config_is_null(c, "data.flights") ? sky : flown;
    pl_status rc = s->open(c, &s->data);
    if (rc != PL_OK)
        free(s);
    else
        *data = s;
    return rc;
}

static void data_close(void *data)
{
    source *s = data;
    s->close(s->data);
    free(s);
}

static int64_t data_size(void *data, pl_subset subset)
{
    const source *s = data;
    return s->size(s->data, subset);
}

static pl_status data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch)
{
    const source *s = data;
    return s->read(s->data, subset, sample, n, batch);
}

static pl_status data_write(const pl_config *c, void *data, const char *dir, const int64_t count[2],
                            void (*done)(void *ctx, pl_subset subset, int64_t sample), void *ctx)
{
    const source *s = data;
    if (!pl_config_is_null(c, "data.flights"))
        return pl_fail(PL_ERR_CONFIG,
                       "generate writes made-up skies: unset data.flights (data.flights=null)");
    return cloud_flights_write(c, s->data, dir, count, done, ctx);
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

static const char *const shown[] = {"grad_norm", NULL};

const pl_recipe pl_recipe_cloud;
const pl_recipe pl_recipe_cloud = {
    .abi = PL_RECIPE_ABI,
    .name = "cloud",
    .about = "cloud-base height from infrared frame stacks and solar angles (regression)",
    .schema = schema,
    .presets = cloud_presets,
    .build = build,
    .data_open = data_open,
    .data_bytes = cloud_data_bytes,
    .data_close = data_close,
    .data_size = data_size,
    .data_read = data_read,
    .data_write_set = data_write,
    .peer = &peer,
    .derive = derive,
    .metric = "mae_km",
    .start = &cloud_start,
    .exports = cloud_exports,
    .predict = &cloud_predict_heights,
    .shown = shown,
    .foreign = cloud_foreign,
};
