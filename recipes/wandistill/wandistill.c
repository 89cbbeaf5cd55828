/* wandistill.c - a frozen video transformer distilled into a transformer over latent pixels.
 *
 *     latents ~ N(0,1) (B,S,S,4), t ~ U{0..999}, text: embeddings of a prompt
 *     target = teacher(lift(latents), t, text), lift a frozen 1x1 projection 4 -> 16
 *     loss   = MSE(project(student(latents, t, text)), target), project a trained 1x1 one 4 -> 16
 *
 * `seed_compat` restores the original's mistakes: its lift is zero, so the teacher always
 * sees an empty latent, and its loss broadcasts the student's 4 channels against the teacher's 16,
 * which only batches of 1 and of 16 survive.
 */
#include "wandistill.h"

#include <string.h>

static const pl_config_entry schema[] = {
    {"seed_compat", PL_CONFIG_BOOL, "false",
     .doc = "Reproduce the original program, including its mistakes (see the recipe's README)."},
    {"latent", PL_CONFIG_INT, "64", .min = 2, .max = 4096,
     .doc = "Rows and columns of a latent, an even number."},
    {"text.tokens", PL_CONFIG_INT, "226", .min = 1, .max = 65536, .doc = "Tokens per prompt."},
    {"text.dim", PL_CONFIG_INT, "4096", .min = 1, .max = 65536,
     .doc = "Width of a text embedding."},
    {"student.hidden", PL_CONFIG_INT, "1024", .min = 4, .max = 65536, .doc = "Student: width."},
    {"student.depth", PL_CONFIG_INT, "16", .min = 1, .max = 1024, .doc = "Student: blocks."},
    {"student.heads", PL_CONFIG_INT, "16", .min = 1, .max = 1024,
     .doc = "Student: attention heads."},
    {"student.channels", PL_CONFIG_INT, "4", .min = 1, .max = 65536,
     .doc = "Student: channels of a latent."},
    {"student.from_teacher", PL_CONFIG_BOOL, "false",
     .doc = "Initialise the student with parts of the teacher's weights, in the first step."},
    {"student.projection", PL_CONFIG_CHOICE, "separate", .choices = "separate|joined",
     .doc = "What student.from_teacher takes: the first rows of the teacher's q, k and v each, and "
            "its text layer (separate); or, as the authors, the first rows of q, k and v joined, "
            "and no text layer (joined)."},
    {"teacher.dim", PL_CONFIG_INT, "1536", .min = 12, .max = 65536, .doc = "Teacher: width."},
    {"teacher.ffn", PL_CONFIG_INT, "8960", .min = 1, .max = 1048576,
     .doc = "Teacher: feed-forward width."},
    {"teacher.heads", PL_CONFIG_INT, "12", .min = 1, .max = 1024,
     .doc = "Teacher: attention heads."},
    {"teacher.layers", PL_CONFIG_INT, "30", .min = 1, .max = 1024, .doc = "Teacher: blocks."},
    {"teacher.channels", PL_CONFIG_INT, "16", .min = 1, .max = 65536,
     .doc = "Teacher: channels of a latent."},
    {"teacher.freq", PL_CONFIG_INT, "256", .min = 2, .max = 65536,
     .doc = "Teacher: width of the time features."},
    {"teacher.dtype", PL_CONFIG_CHOICE, "bf16", .choices = "bf16|fp32|fp8|int8|nf4",
     .doc = "Teacher: number format of its weights and activations; fp8, int8 and nf4 store its "
            "matrices in 8 or 4 bits and compute in bf16."},
    {"teacher.weights", PL_CONFIG_TEXT, "null",
     .doc = "Teacher weights (safetensors): a file, a folder of shards or its index.json, with "
            "the names of diffusers or of Wan."},
    {"predict.steps", PL_CONFIG_INT, "20", .min = 1, .max = 1000,
     .doc = "`predict`: DDIM steps from noise to a latent."},
    {"predict.project", PL_CONFIG_BOOL, "true",
     .doc = "`predict`: also write latents of the teacher's channels, through the trained "
            "projection; false: for a file with the student alone."},
    {"vae.weights", PL_CONFIG_TEXT, "null",
     .doc = "`predict`: weights of Wan 2.1's autoencoder (Wan's own file, or the folder of "
            "diffusers): pictures are written, too; null: latents only."},
    {"vae.width", PL_CONFIG_INT, "96", .min = 2, .max = 65536,
     .doc = "Autoencoder: channels of the finest level."},
    {"vae.mult", PL_CONFIG_INTS, "[1, 2, 4, 4]", .min = 1, .max = 64,
     .doc = "Autoencoder: channels of its levels as multiples; each level but one halves a side."},
    {"vae.blocks", PL_CONFIG_INT, "2", .min = 1, .max = WAN_VAE_BLOCKS,
     .doc = "Autoencoder: residual blocks per level; the decoder has one more."},
    {"vae.mean", PL_CONFIG_FLOATS,
     "[-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, "
     "0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921]",
     .min = -1e6, .max = 1e6, .doc = "Autoencoder: mean of each channel of its latents."},
    {"vae.std", PL_CONFIG_FLOATS,
     "[2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, "
     "1.5579, 1.6382, 1.1253, 2.8251, 1.916]",
     .min = 1e-6, .max = 1e6,
     .doc = "Autoencoder: standard deviation of each channel of its latents."},
    {"data.samples", PL_CONFIG_INT, "2081", .min = 1, .max = 1e12,
     .doc = "Number of generated training prompts."},
    {"data.eval_samples", PL_CONFIG_INT, "54", .min = 1, .max = 1e12,
     .doc = "Number of generated evaluation prompts."},
    {0},
};

pl_status wan_config_of(pl_builder *b, pl_nn *m, wan_config *k)
{
    const pl_config *c = pl_builder_config(b);
    *k = (wan_config){.batch = pl_builder_batch(b),
                      .latent = pl_config_int(c, "latent"),
                      .channels = pl_config_int(c, "student.channels"),
                      .hidden = pl_config_int(c, "student.hidden"),
                      .text_tokens = pl_config_int(c, "text.tokens"),
                      .text_dim = pl_config_int(c, "text.dim"),
                      .teacher_channels = pl_config_int(c, "teacher.channels"),
                      .teacher_dim = pl_config_int(c, "teacher.dim"),
                      .teacher_ffn = pl_config_int(c, "teacher.ffn"),
                      .teacher_freq = pl_config_int(c, "teacher.freq"),
                      .depth = (int)pl_config_int(c, "student.depth"),
                      .heads = (int)pl_config_int(c, "student.heads"),
                      .teacher_heads = (int)pl_config_int(c, "teacher.heads"),
                      .teacher_layers = (int)pl_config_int(c, "teacher.layers"),
                      .teacher_dtype = strcmp(pl_config_text(c, "teacher.dtype"), "fp32") == 0
                                           ? m->dtype
                                           : PL_BF16};
    pl_quant form;
    if (pl_quant_parse(pl_config_text(c, "teacher.dtype"), &form))
        pl_builder_quantize(b, "teacher.*", form);
    if (k->hidden % k->heads)
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "student.hidden (%lld) must be a multiple of student.heads (%d)",
                   (long long)k->hidden, k->heads);
    else if (k->teacher_dim % (2 * k->teacher_heads))
        pl_nn_fail(
            m, PL_ERR_CONFIG,
            "teacher.dim (%lld) must be a multiple of twice teacher.heads (%d): its positions turn "
            "pairs of channels",
            (long long)k->teacher_dim, k->teacher_heads);
    else if (k->latent % 2)
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "latent (%lld) must be even: the teacher sees patches of 2 x 2",
                   (long long)k->latent);
    else if (k->hidden % 2 || k->teacher_freq % 2)
        pl_nn_fail(
            m, PL_ERR_CONFIG,
            "student.hidden (%lld) and teacher.freq (%lld) must be even: half of the time's features are "
            "sines, half cosines",
            (long long)k->hidden, (long long)k->teacher_freq);
    else
        return PL_OK;
    return PL_ERR_CONFIG;
}

pl_val wan_broadcast_loss(pl_nn *m, pl_val out, pl_val target)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, out);
    int64_t b = t.dim[0], s = t.dim[1], d = pl_val_type(g, target).dim[3];
    if (t.rank == 4 && b != 1 && b != d) {
        pl_nn_fail(
            m, PL_ERR_CONFIG,
            "seed_compat: the original's loss holds (%lld,%lld,S,S) against (%lld,%lld,1,S,S), which broadcasts "
            "for a batch of 1 or %lld only; set batch=1 or seed_compat=false",
            (long long)b, (long long)t.dim[3], (long long)b, (long long)d, (long long)d);
        return out;
    }
    out = pl_unsqueeze(g, out, 0);                             /* (1,B,S,S,C) */
    target = pl_permute(g, target, (const int[]){0, 3, 1, 2}); /* (B,D,S,S) */
    target = pl_reshape(g, target, PL_DIMS(b, d, s, s, 1));
    return pl_mean(g, pl_square(g, pl_sub(g, out, target)), PL_AXES_ALL, false);
}

static pl_val distance(pl_builder *b, pl_nn *m, const wan_config *k, pl_val latents, pl_val t)
{
    pl_graph *g = m->g;
    bool compat = pl_config_bool(pl_builder_config(b), "seed_compat");
    pl_val text = pl_input(g, "text", PL_TYPE(m->dtype, k->batch, k->text_tokens, k->text_dim));
    pl_val target = wan_target(m, k, latents, t, text, compat);
    pl_val out = wan_student(m, k, latents, t, text);
    if (compat) return wan_broadcast_loss(m, out, target);
    out = pl_nn_conv2d(m, out, "project", k->teacher_channels, (pl_nn_conv){.kernel = 1});
    return pl_loss_mse(g, out, target);
}

static pl_status build(pl_builder *b)
{
    wan_config k;
    pl_nn *m = pl_builder_train(b);
    if (wan_config_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    pl_type latent = PL_TYPE(m->dtype, k.batch, k.latent, k.latent, k.channels),
            times = PL_TYPE(PL_I64, k.batch);
    pl_val latents = pl_draw_normal(b, m, "latents", latent);
    pl_val t = pl_draw_integers(b, m, "t", times, 1000);
    pl_builder_minimise(b, distance(b, m, &k, latents, t));

    const pl_config *c = pl_builder_config(b);
    if (pl_config_bool(c, "student.from_teacher"))
        wan_project(pl_builder_program(b, "project", (pl_when){.until = 1}), &k,
                    strcmp(pl_config_text(c, "student.projection"), "joined") == 0);

    m = pl_builder_eval(b);
    latents = pl_input(m->g, "latents", latent);
    t = pl_input(m->g, "t", times);
    pl_output(m->g, "loss", distance(b, m, &k, latents, t));
    return PL_OK;
}

/* ---- the PyTorch peer ------------------------------------------------------------------- */
static const char *const workloads[] = {"wandistill", "wandistill-sdpa", "wandistill-small", NULL};
static const pl_peer_key peer_keys[] = {
    {"batch", "batch"},
    {"latent", "latent"},
    {"hidden", "student.hidden"},
    {"depth", "student.depth"},
    {"heads", "student.heads"},
    {"text_tokens", "text.tokens"},
    {"text_dim", "text.dim"},
    {"teacher_dim", "teacher.dim"},
    {"teacher_ffn", "teacher.ffn"},
    {"teacher_heads", "teacher.heads"},
    {"teacher_layers", "teacher.layers"},
    {"teacher_freq", "teacher.freq"},
    {"teacher_dtype", "teacher.dtype"},
    {"lr", "optim.lr"},
    {NULL, NULL},
};
static const pl_peer peer = {
    .workloads = workloads, .preset = "tiny", .keys = peer_keys, .channels_first = "latents"};

/* The row of a prompt comes from data.embeddings. */
static const pl_image_feed feed = {.text = "text", .draw = wan_draw};

static const char *const shown[] = {"grad_norm", NULL};

const pl_recipe pl_recipe_wandistill;
const pl_recipe pl_recipe_wandistill = {
    .abi = PL_RECIPE_ABI,
    .name = "wandistill",
    .about = "a frozen video transformer distilled into one over latent pixels",
    .schema = schema,
    .presets = wan_presets,
    .build = build,
    .data_read = wan_data_read,
    .peer = &peer,
    .images = &feed,
    .weights = wan_weights,
    .random = "lift.*",
    .start = &wan_start,
    .exports = wan_exports,
    .shown = shown,
    .predict = &wan_predict,
    .foreign = wan_foreign,
};
