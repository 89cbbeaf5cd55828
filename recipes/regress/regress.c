/* regress.c - numbers from numbers: a multi-layer perceptron over the rows of a table.
 *
 *     hidden layer i:  x = dropout(activation(layer_norm(linear(x))))
 *     prediction    :  linear(x)
 *     loss          :  MSE, L1 or smooth L1 between prediction and target, mean over all numbers
 *
 * Data are a table of the user (table.c), arrays (data.path) or generated (data.c). The data decide
 * the sizes of the first and the last layer, so no configuration needs to repeat them.
 */
#include "regress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const pl_config_entry schema[] = {
    {"inputs", PL_CONFIG_INT, "null", .min = 1, .max = 1e6,
     .doc = "Input numbers per sample; null: as in train/input.npy (generated data: 4)."},
    {"targets", PL_CONFIG_INT, "null", .min = 1, .max = 1e6,
     .doc = "Target numbers per sample; null: as in train/target.npy (generated data: 1)."},
    {"model.widths", PL_CONFIG_INTS, "[64, 64]", .min = 1, .max = 1e6,
     .doc = "Widths of the hidden layers; []: none, which is linear regression."},
    {"model.activation", PL_CONFIG_CHOICE, "gelu",
     .choices = "relu|leaky_relu|silu|gelu|gelu_tanh|tanh|sigmoid|softplus",
     .doc = "Activation function of the hidden layers."},
    {"model.dropout", PL_CONFIG_FLOAT, "0", .min = 0, .max = 0.99, .doc = "Dropout probability."},
    {"model.layer_norm", PL_CONFIG_BOOL, "false",
     .doc = "Normalise each hidden layer before its activation."},
    {"loss", PL_CONFIG_CHOICE, "mse", .choices = "mse|l1|smooth_l1",
     .doc = "Loss function; l1 and smooth_l1 give outliers less weight."},
    {"loss_beta", PL_CONFIG_FLOAT, "1", .min = 1e-6, .max = 1e6,
     .doc = "smooth_l1: error at which the loss becomes linear."},
    {"data.table", PL_CONFIG_TEXT, "null",
     .doc = "CSV file with a header, one row per sample; null: arrays of data.path, or generated "
            "data."},
    {"data.targets", PL_CONFIG_TEXTS, "[]", .doc = "data.table: names of the columns to predict."},
    {"data.ignore", PL_CONFIG_TEXTS, "[]",
     .doc = "data.table: names of columns that the network does not see."},
    {"data.noise", PL_CONFIG_FLOAT, "0.05", .min = 0, .max = 1e6,
     .doc = "Generated data: standard deviation of the noise in the targets."},
    {"data.samples", PL_CONFIG_INT, "4096", .min = 1, .max = 1e12,
     .doc = "Number of generated training samples."},
    {"data.eval_samples", PL_CONFIG_INT, "512", .min = 1, .max = 1e12,
     .doc = "Number of generated evaluation samples."},
    {0},
};

/* A program's input for one of the arrays, as [batch, width] in the dtype of the parameters. */
static pl_val read_array(pl_builder *b, pl_nn *m, const regress_array *a)
{
    int64_t batch = pl_builder_batch(b);
    pl_type type = a->flat ? PL_TYPE(a->dtype, batch) : PL_TYPE(a->dtype, batch, a->width);
    pl_val x = pl_input(m->g, a->name, type);
    if (a->flat) x = pl_reshape(m->g, x, PL_DIMS(batch, 1));
    return pl_cast(m->g, x, m->dtype);
}

pl_val regress_predict(pl_builder *b, pl_nn *m, const regress_array *input, int64_t targets)
{
    const pl_config *c = pl_builder_config(b);
    int n;
    const int64_t *width = pl_config_ints(c, "model.widths", &n);
    pl_val x = read_array(b, m, input);
    for (int i = 0; i < n; i++) {
        x = pl_nn_linear(m, x, pl_nn_name(m, "layers.%d", i), width[i], (pl_nn_lin){0});
        if (pl_config_bool(c, "model.layer_norm"))
            x = pl_nn_layer_norm(m, x, pl_nn_name(m, "norms.%d", i), (pl_nn_norm){0});
        x = pl_nn_activation(m, x, pl_config_text(c, "model.activation"));
        x = pl_nn_dropout(m, x, pl_config_float(c, "model.dropout"));
    }
    return pl_nn_linear(m, x, "out", targets, (pl_nn_lin){0});
}

static pl_val loss_of(const pl_config *c, pl_graph *g, pl_val out, pl_val target)
{
    const char *name = pl_config_text(c, "loss");
    if (strcmp(name, "mse") == 0) return pl_loss_mse(g, out, target);
    if (strcmp(name, "l1") == 0) return pl_loss_l1(g, out, target);
    pl_val each = pl_loss_smooth_l1(g, out, target, pl_config_float(c, "loss_beta"));
    return pl_mean(g, each, PL_AXES_ALL, false);
}

/* Adds the columns of the table to the model file. */
static pl_status state_table(pl_builder *b, const regress_table *t)
{
    char *text = regress_table_text(t);
    if (!text) return PL_ERR_MEMORY;
    pl_builder_fact(b, "table", text);
    free(text);
    return PL_OK;
}

/* Targets or predictions of a scaled table in units of the table, up to a constant. */
static pl_val in_unit(pl_nn *m, const regress_table *t, pl_val x)
{
    enum { MOST = 64 };
    pl_val std[MOST];
    int n = 0;
    for (int i = 0; t && i < t->n && n < MOST; i++)
        if (t->column[i].target) std[n++] = pl_fill(m->g, PL_TYPE(m->dtype, 1), t->column[i].std);
    if (n == 0 || n == MOST) return x; /* so many targets are scored as the network sees them */
    return pl_mul(m->g, x, pl_concat(m->g, n, std, 0));
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    regress_array input, target;
    regress_table *table;
    pl_status rc = regress_arrays(c, &input, &target, &table);
    if (rc != PL_OK) return rc;
    if (table && (rc = state_table(b, table)) != PL_OK) {
        regress_table_free(table);
        return rc;
    }

    pl_nn *m = pl_builder_train(b);
    pl_val out = regress_predict(b, m, &input, target.width);
    pl_builder_minimise(b, loss_of(c, m->g, out, read_array(b, m, &target)));

    m = pl_builder_eval(b);
    out = regress_predict(b, m, &input, target.width);
    pl_val y = read_array(b, m, &target);
    pl_output(m->g, "loss", loss_of(c, m->g, out, y));
    out = in_unit(m, table, out);
    y = in_unit(m, table, y);
    regress_table_free(table);
    pl_output(m->g, "mae", pl_loss_l1(m->g, out, y));
    pl_output(m->g, "mse", pl_loss_mse(m->g, out, y));

    m = pl_builder_sample(b);
    if (m) pl_builder_array(b, "prediction", regress_predict(b, m, &input, target.width));
    return PL_OK;
}

/* The root of the mean square over all evaluation batches. */
static int derive(const char *const *name, const double *mean, int n, const char **new_name,
                  double *new_value, int cap)
{
    int i = 0;
    while (i < n && strcmp(name[i], "mse") != 0) i++;
    if (i == n || cap < 1) return 0;
    *new_name = "rmse";
    *new_value = sqrt(mean[i]);
    return 1;
}

const pl_recipe pl_recipe_regress;
const pl_recipe pl_recipe_regress = {
    .abi = PL_RECIPE_ABI,
    .name = "regress",
    .about = "numbers from numbers: a multi-layer perceptron on your own table or arrays",
    .schema = schema,
    .presets = regress_presets,
    .build = build,
    .data_open = regress_open,
    .data_close = regress_close,
    .data_size = regress_size,
    .data_read = regress_read,
    .data_bytes = regress_bytes,
    .derive = derive,
    .metric = "mae",
    .predict = &regress_predict_rows,
    .sources = regress_sources,
};
