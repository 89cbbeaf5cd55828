/* stablesr.c - edge-guided super-resolution, fine-tuned through a frozen diffusion U-Net.
 *
 * part: full trains the SPADE layers, the structure encoder, the edge processor, its fusion and the
 * U-Net's new input convolution; the rest of the U-Net is frozen and differentiated through. The other
 * parts train an edge processor alone: the authors' original one and its smaller replacement.
 *
 * `seed_compat` brings back what the original does wrong: it starts from the degraded latent instead of
 * the good one, and freezes everything whose name has no "spade" outside of the structure encoder, the
 * edge processor included.
 */
#include "stablesr.h"

#include <string.h>

static const pl_config_entry schema[] = {
    {"seed_compat", PL_CONFIG_BOOL, "false", 0, 0, NULL,
     "As the original does, mistakes included: see the recipe's README."},
    {"part", PL_CONFIG_CHOICE, "full", 0, 0, "full|edge-before|edge-after",
     "The whole system, or an edge processor alone: the original, or its replacement."},
    {"x_start", PL_CONFIG_CHOICE, "gt", 0, 0, "gt|lq",
     "Latent that noise is added to: of the image, or of its degraded form."},
    {"image", PL_CONFIG_INT, "512", 32, 16384, NULL, "Rows and columns of an edge map."},
    {"latent", PL_CONFIG_INT, "64", 1, 4096, NULL, "Rows and columns of a latent."},
    {"edge.before", PL_CONFIG_INTS, "[1024, 1024, 1024, 1024, 1024]", 1, 65536, NULL,
     "Original edge processor: widths at full size."},
    {"edge.before_down", PL_CONFIG_INTS, "[512, 256, 64, 16, 4]", 1, 65536, NULL,
     "Original edge processor: widths on the way down."},
    {"edge.stem", PL_CONFIG_INT, "64", 1, 65536, NULL, "Edge processor: first width."},
    {"edge.after", PL_CONFIG_INTS, "[256, 256, 256]", 1, 65536, NULL,
     "Edge processor: widths at half size."},
    {"edge.after_down", PL_CONFIG_INTS, "[128, 64, 16, 4]", 1, 65536, NULL,
     "Edge processor: widths on the way down."},
    {"model.width", PL_CONFIG_INT, "320", 32, 65536, NULL, "Channels of the U-Net's finest level."},
    {"model.mult", PL_CONFIG_INTS, "[1, 2, 4, 4]", 1, 64, NULL, "Its levels, as multiples; up to 4."},
    {"model.attn_levels", PL_CONFIG_INT, "3", 0, 4, NULL, "Levels with attention, from the finest."},
    {"model.head_dim", PL_CONFIG_INT, "64", 1, 65536, NULL, "Channels of an attention head."},
    {"model.context", PL_CONFIG_INTS, "[77, 1024]", 1, 65536, NULL, "Text tokens and their width."},
    {"model.spade_hidden", PL_CONFIG_INT, "128", 1, 65536, NULL, "Hidden width of SPADE."},
    {"struct.width", PL_CONFIG_INT, "256", 32, 65536, NULL, "Structure encoder: finest level."},
    {"struct.mult", PL_CONFIG_INTS, "[1, 1, 2, 2]", 1, 64, NULL, "Its levels, as many as the U-Net's."},
    {"struct.out", PL_CONFIG_INT, "256", 32, 65536, NULL, "Channels of its maps."},
    {"struct.heads", PL_CONFIG_INT, "4", 1, 1024, NULL, "Its attention heads."},
    {"data.samples", PL_CONFIG_INT, "1500", 1, 1e12, NULL, "Generated training pairs."},
    {"data.eval_samples", PL_CONFIG_INT, "16", 1, 1e12, NULL, "Generated evaluation pairs."},
    {0},
};

/* The n numbers of a key; fails when it has another count. */
static void numbers(pl_builder *b, pl_nn *m, const char *key, int n, int64_t *out)
{
    int got;
    const int64_t *x = pl_config_ints(pl_builder_config(b), key, &got);
    if (got != n)
        pl_nn_fail(m, PL_ERR_CONFIG, "%s wants %d numbers, got %d", key, n, got);
    else
        memcpy(out, x, sizeof *out * (size_t)n);
}

static pl_status config_of(pl_builder *b, pl_nn *m, sr_config *k)
{
    const pl_config *c = pl_builder_config(b);
    *k = (sr_config){.edge_before = strcmp(pl_config_text(c, "part"), "edge-before") == 0,
                     .batch = pl_builder_batch(b),
                     .image = pl_config_int(c, "image"),
                     .latent = pl_config_int(c, "latent"),
                     .stem = pl_config_int(c, "edge.stem"),
                     .width = pl_config_int(c, "model.width"),
                     .attn_levels = (int)pl_config_int(c, "model.attn_levels"),
                     .head_dim = (int)pl_config_int(c, "model.head_dim"),
                     .spade_hidden = pl_config_int(c, "model.spade_hidden"),
                     .struct_width = pl_config_int(c, "struct.width"),
                     .struct_out = pl_config_int(c, "struct.out"),
                     .struct_heads = (int)pl_config_int(c, "struct.heads")};
    pl_config_ints(c, "model.mult", &k->levels);
    pl_config_ints(c, "struct.mult", &k->struct_levels);
    if (k->levels < 1 || k->levels > 4 || k->struct_levels != k->levels) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "model.mult wants 1 to 4 numbers and struct.mult as many; got %d and %d", k->levels,
                   k->struct_levels);
        return PL_ERR_CONFIG;
    }
    numbers(b, m, "edge.before", 5, k->before);
    numbers(b, m, "edge.before_down", 5, k->before_down);
    numbers(b, m, "edge.after", 3, k->after);
    numbers(b, m, "edge.after_down", 4, k->after_down);
    numbers(b, m, "model.mult", k->levels, k->mult);
    numbers(b, m, "struct.mult", k->levels, k->struct_mult);
    numbers(b, m, "model.context", 2, k->context);
    return PL_OK;
}

/* ---- an edge processor alone ------------------------------------------------------------ */
static pl_val edge_loss(pl_nn *m, const sr_config *k)
{
    pl_graph *g = m->g;
    int64_t side = k->edge_before ? k->image / 32 : k->latent;
    pl_val edge = pl_input(g, "edge", PL_TYPE(PL_F32, k->batch, k->image, k->image, 3));
    pl_val target = pl_input(g, "target", PL_TYPE(PL_F32, k->batch, side, side, 4));
    return pl_loss_mse(g, sr_edge(m, k, edge), target);
}

/* ---- the whole -------------------------------------------------------------------------- */
/* eps and t: drawn in training, given in evaluation. */
static pl_val full_loss(pl_builder *b, pl_nn *m, const sr_config *k, pl_val eps, pl_val t)
{
    const pl_config *c = pl_builder_config(b);
    pl_graph *g = m->g;
    pl_type latent = PL_TYPE(PL_F32, k->batch, k->latent, k->latent, 4);
    bool from_lq = pl_config_bool(c, "seed_compat") || strcmp(pl_config_text(c, "x_start"), "lq") == 0;
    pl_val lq = pl_input(g, "z_lq", latent);
    sr_batch in = {.z = from_lq ? lq : pl_input(g, "z_gt", latent), .lq = lq, .eps = eps, .t = t};
    in.context = pl_input(g, "context", PL_TYPE(PL_F32, k->batch, k->context[0], k->context[1]));
    in.edge = pl_input(g, "edge", PL_TYPE(PL_F32, k->batch, k->image, k->image, 3));
    return sr_loss(m, k, &in);
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    bool full = strcmp(pl_config_text(c, "part"), "full") == 0;
    bool compat = pl_config_bool(c, "seed_compat");
    sr_config k;
    pl_nn *m = pl_builder_train(b);
    if (config_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    pl_type latent = PL_TYPE(PL_F32, k.batch, k.latent, k.latent, 4), times = PL_TYPE(PL_I64, k.batch);
    pl_val loss = PL_NO_VAL;
    if (full) {
        pl_val eps = pl_draw_normal(b, m, "eps", latent);
        loss = full_loss(b, m, &k, eps, pl_draw_integers(b, m, "t", times, 1000));
        pl_nn_set_trainable(pl_builder_store(b), SR_FROZEN, false);
        if (compat) pl_nn_set_trainable(pl_builder_store(b), "edge.*,fusion.*,unet.inp.*", false);
    } else {
        loss = edge_loss(m, &k);
    }
    pl_builder_minimise(b, loss);

    m = pl_builder_eval(b);
    if (full) {
        pl_val eps = pl_input(m->g, "eps", latent);
        loss = full_loss(b, m, &k, eps, pl_input(m->g, "t", times));
    } else {
        loss = edge_loss(m, &k);
    }
    pl_output(m->g, "loss", loss);
    return PL_OK;
}

/* ---- the PyTorch peer ------------------------------------------------------------------- */
static const char *const workloads[] = {"stablesr-full", "stablesr-full-sdpa", "stablesr-edge-before",
                                        "stablesr-edge-after", NULL};
static const pl_peer_key peer_keys[] = {
    {"part", "part"},
    {"batch", "batch"},
    {"image", "image"},
    {"latent", "latent"},
    {"before", "edge.before"},
    {"before_down", "edge.before_down"},
    {"stem", "edge.stem"},
    {"after", "edge.after"},
    {"after_down", "edge.after_down"},
    {"width", "model.width"},
    {"mult", "model.mult"},
    {"attn_levels", "model.attn_levels"},
    {"head_dim", "model.head_dim"},
    {"context", "model.context"},
    {"struct_width", "struct.width"},
    {"struct_mult", "struct.mult"},
    {"struct_out", "struct.out"},
    {"struct_heads", "struct.heads"},
    {"spade_hidden", "model.spade_hidden"},
    {"x_start", "x_start"},
    {"lr", "optim.lr"},
    {NULL, NULL},
};
static const pl_peer peer = {.workloads = workloads, .preset = "tiny", .keys = peer_keys};

const pl_recipe pl_recipe_stablesr;
const pl_recipe pl_recipe_stablesr = {
    .abi = PL_RECIPE_ABI,
    .name = "stablesr",
    .about = "edge-guided super-resolution, fine-tuned through a frozen diffusion U-Net",
    .schema = schema,
    .presets = sr_presets,
    .build = build,
    .data_open = sr_data_open,
    .data_close = sr_data_close,
    .data_size = sr_data_size,
    .data_read = sr_data_read,
    .peer = &peer,
};
