/* words.c - a recipe for tests of prompts: rows of text, and goals that it makes itself. */
#include <plimsoll_ops.h>
#include <plimsoll_recipe.h>

static const pl_config_entry schema[] = {
    {"dim", PL_CONFIG_INT, "8", 1, 4096, NULL, "Numbers of a text."},
    {0},
};

static pl_val loss(pl_builder *b, pl_nn *m)
{
    int64_t n = pl_builder_batch(b), dim = pl_config_int(pl_builder_config(b), "dim");
    pl_val text = pl_input(m->g, "text", PL_TYPE(PL_F32, n, dim));
    pl_val goal = pl_input(m->g, "goal", PL_TYPE(PL_F32, n, dim));
    return pl_loss_mse(m->g, pl_nn_linear(m, text, "out", dim, (pl_nn_lin){0}), goal);
}

static pl_status build(pl_builder *b)
{
    pl_builder_minimise(b, loss(b, pl_builder_train(b)));
    pl_nn *eval = pl_builder_eval(b);
    pl_output(eval->g, "loss", loss(b, eval));
    return PL_OK;
}

static pl_status data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch)
{
    int64_t dim = pl_config_int(data, "dim");
    float *goal = pl_batch_input(batch, "goal", NULL);
    for (int64_t i = 0; goal && i < n * dim; i++)
        goal[i] = (float)pl_sample_normal(pl_sample_seed(1, subset, sample[i / dim]),
                                          (uint64_t)(i % dim));
    return PL_OK;
}

#ifndef NO_ENCODE
/* Element k is the length of the text plus the k-th byte of it. */
static pl_status encode(const pl_config *c, const char *caption, void *row, const pl_type *type)
{
    (void)c;
    int64_t n = 0;
    while (caption[n]) n++;
    for (int64_t k = 0; k < type->dim[0]; k++)
        ((float *)row)[k] = 0.01f * (float)(n + (k < n ? caption[k] : 0));
    return PL_OK;
}
static const pl_image_feed feed = {.text = "text", .encode = encode};
#else
static const pl_image_feed feed = {.text = "text"};
#endif

static const pl_preset presets[] = {
    {"small", "for tests", "batch: 4\ntrain: {steps: 10, log_every: 1}\neval: {batches: 100}\n"},
    {NULL, NULL, NULL}};

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "words",
                                 .about = "goals of texts",
                                 .schema = schema,
                                 .presets = presets,
                                 .build = build,
                                 .data_read = data_read,
                                 .images = &feed};

const pl_recipe *pl_recipe_entry(void);
const pl_recipe *pl_recipe_entry(void)
{
    return &recipe;
}
