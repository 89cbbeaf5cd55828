/* odd_recipe.c - the recipe of random networks (odd_net.c): its keys, samples and preset. */
#include "tests/lib/odd_net.h"

static pl_status build(pl_builder *b)
{
    pl_builder_minimise(b, odd_network(b, pl_builder_train(b)));
    pl_nn *eval = pl_builder_eval(b);
    pl_output(eval->g, "loss", odd_network(b, eval));
    return PL_OK;
}

static pl_status data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch)
{
    static const char *const floats[] = {"x", "want"};
    (void)data;
    for (int i = 0; i < 2; i++) {
        pl_type t;
        float *to = pl_batch_input(batch, floats[i], &t);
        if (!to) continue; /* a loss reads one of "want" and "label" */
        int64_t row = pl_type_elems(&t) / t.dim[0];
        for (int64_t k = 0; k < n * row; k++)
            to[k] = (float)pl_sample_normal(
                pl_sample_seed(0x0DD0 + (uint64_t)i, subset, sample[k / row]), (uint64_t)(k % row));
    }
    int32_t *label = pl_batch_input(batch, "label", NULL);
    for (int k = 0; label && k < n; k++) label[k] = (int32_t)(sample[k] % 5);
    return PL_OK;
}

static const pl_config_entry schema[] = {
    {"net", PL_CONFIG_INT, "0", 0, 9e15, NULL, "Which network."},
    {"layers", PL_CONFIG_INT, "0", 0, 1000, NULL, "Its layers; 0: some."},
    {"data.samples", PL_CONFIG_INT, "256", 1, 1e9, NULL, "Training samples."},
    {"data.eval_samples", PL_CONFIG_INT, "32", 1, 1e9, NULL, "Evaluation samples."},
    {0},
};

static const pl_preset presets[] = {
    {"default", "a few steps",
     "batch: 3\n"
     "optim: {name: adamw, lr: 1e-4}\n"
     "train: {steps: 4, log_every: 1}\n"
     "eval: {batches: 1}\n"},
    {NULL, NULL, NULL},
};

static const pl_recipe recipe = {
    .abi = PL_RECIPE_ABI,
    .name = "odd",
    .about = "a network that is drawn",
    .schema = schema,
    .presets = presets,
    .build = build,
    .data_read = data_read,
};

const pl_recipe *pl_recipe_entry(void)
{
    return &recipe;
}
