/* test_stablesr_weights.c - the autoencoder of stablesr against PyTorch's numbers, and weights of
 * the autoencoder and the U-Net read under every set of names that people publish. */
#include "base/sys.h"
#include "recipes/stablesr/stablesr.h"
#include "tests/lib/lab.h"
#include "tests/lib/renamed.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "tests/recipes/peer.h"
#include "train/build/builder.h"

#include <string.h>

#define SMALL_VAE "vae.encode=true", "vae.width=32", "vae.mult=[1, 1, 2, 2]"
/* As many levels as the real U-Net, three of them with attention. */
#define FOUR_LEVELS "model.mult=[1, 1, 2, 2]", "struct.mult=[1, 1, 1, 1]", "model.attn_levels=3"

/* ---- autoencoder -------------------------------------------------------------------------- */
static int64_t count_of(const char *const *overrides, int n, const char *pattern, bool trainable)
{
    pl_run *run;
    int64_t count = -1;
    if (pl_run_open("stablesr/full", overrides, n, &run) != PL_OK) return -1;
    pl_builder b = {
        .config = pl_run_config(run), .batch = 2, .accumulate = 1, .goal = PL_GOAL_PROBE};
    b.store = pl_store_new();
    if (b.store && pl__builder_run(&b, pl_run_recipe(run)) == PL_OK) {
        count = pl_nn_count(b.store, pattern, trainable);
        pl__builder_release(&b);
    }
    pl_store_free(b.store);
    pl_run_free(run);
    return count;
}

TEST(stablesr_vae_has_the_published_parameters)
{
    CHECK_INT(count_of((const char *const[]){"part=vae", "vae.encode=true"}, 2, NULL, false),
              83653863);
    /* Training has the encoder alone, frozen, and the text of the empty prompt. */
    const char *const encode[] = {"vae.encode=true"};
    CHECK_INT(count_of(encode, 1, "vae.*", false), 34163664);
    CHECK_INT(count_of(encode, 1, "vae.*", true), 0);
    CHECK_INT(count_of(encode, 1, "context", false), 77 * 1024);
    CHECK_INT(count_of(encode, 1, NULL, true), 107544276);

    /* A pattern selects the trained part. */
    const char *const less[] = {"frozen='unet.*,struct.*,!*.spade.*'"};
    CHECK_INT(count_of(less, 1, NULL, true), 107544276 - 52494080 - (8 * 320 * 9 + 320));
}

/* Output of PyTorch's autoencoder of this size for these weights and this picture, in f64. */
static const struct {
    int at;
    double want;
} torch_moments[] = {{0, 0.04283376},   {1, 0.01078715}, {7, 0.02923524},   {20, 0.06531636},
                     {50, -0.03028884}, {77, 0.1736479}, {100, 0.05558993}, {127, 0.007507014}},
  torch_back[] = {{0, 0.02323783},    {5, 0.06161918},    {100, -0.01097015},  {777, 0.01290815},
                  {1500, 0.01891064}, {2222, 0.09211696}, {3000, 0.003773824}, {3071, 0.05685713}};

static void fill_weights(lab *l, const pl_store *store)
{
    for (int i = 0; i < pl_store_count(store); i++) {
        const pl_slot *s = pl_store_slot(store, i);
        int64_t n, *index = peer_slot_order(s, &n);
        bool scale = s->type.rank == 1 && strstr(s->name, "norm") && strstr(s->name, "weight");
        float *v = lab_slot(l, i);
        for (int64_t k = 0; k < n; k++) {
            double w = sin(0.37 * (double)k + (double)strlen(s->name));
            v[index[k]] = (float)(scale ? 1 + 0.1 * w : 0.08 * w);
        }
        pl_sys_free(index);
    }
}

TEST(stablesr_vae_matches_pytorch)
{
    vae_sizes c = {.width = 32, .mult = {1, 1, 2, 2}, .levels = 4, .blocks = 2};
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, false);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, 32, 32, 3)), moments = vae_moments(m, &c, x);
    pl_val z = vae_sample(m, moments, pl_fill(g, PL_TYPE(PL_F32, 1, 4, 4, 4), 0));
    pl_output(g, "moments", moments);
    pl_output(g, "back", vae_decode(m, &c, z));
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);

    lab *l = lab_new(store);
    lab_add(l, g);
    CHECK_OK(lab_open(l));
    fill_weights(l, store);
    float *in = lab_input(l, 0, "x", NULL);
    for (int i = 0; i < 32 * 32 * 3; i++) in[i] = (float)sin(0.011 * i + 0.1);
    CHECK_OK(lab_run(l, 0));
    const float *a = lab_output(l, 0, "moments", NULL), *b = lab_output(l, 0, "back", NULL);
    for (int i = 0; i < 8; i++) {
        CHECK_NEAR(a[torch_moments[i].at], torch_moments[i].want, 2e-5);
        CHECK_NEAR(b[torch_back[i].at], torch_back[i].want, 2e-5);
    }
    lab_free(l);
    pl_store_free(store);
}

/* A latent is drawn: the second half of the moments gives its deviation. */
TEST(stablesr_vae_latent_has_the_mean_and_deviation_of_its_moments)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_val moments = pl_input(g, "moments", PL_TYPE(PL_F32, 1, 1, 1, 8));
    pl_val noise = pl_input(g, "noise", PL_TYPE(PL_F32, 1, 1, 1, 4));
    pl_output(g, "z", vae_sample(m, moments, noise));
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);

    lab *l = lab_new(store);
    lab_add(l, g);
    CHECK_OK(lab_open(l));
    float *v = lab_input(l, 0, "moments", NULL), *n = lab_input(l, 0, "noise", NULL);
    static const float given[8] = {1, -2, 3, 0.5f, 0, -1, -50, 2}, drawn[4] = {1, -1, 5, 0.25f};
    memcpy(v, given, sizeof given);
    memcpy(n, drawn, sizeof drawn);
    CHECK_OK(lab_run(l, 0));
    const float *z = lab_output(l, 0, "z", NULL);
    for (int i = 0; i < 4; i++) /* logarithms of variances are clipped at -30 */
        CHECK_NEAR(z[i],
                   0.18215 * ((double)given[i] +
                              exp(0.5 * fmax((double)given[4 + i], -30)) * (double)drawn[i]),
                   1e-6);
    lab_free(l);
    pl_store_free(store);
}

/* ---- its weights, by four sets of names --------------------------------------------------- */
static void published_name(const char *ours, char *out, size_t cap)
{
    snprintf(out, cap, "%s", ours + strlen("vae."));
}

static void checkpoint_name(const char *ours, char *out, size_t cap)
{
    snprintf(out, cap, "first_stage_model.%s", ours + strlen("vae."));
}

static void swap(char *text, size_t cap, const char *from, const char *to)
{
    char *at = strstr(text, from), tail[256];
    if (!at) return;
    snprintf(tail, sizeof tail, "%s", at + strlen(from));
    snprintf(at, cap - (size_t)(at - text), "%s%s", to, tail);
}

static void diffusers_name(const char *ours, char *out, size_t cap)
{
    static const char *const changes[][2] = {
        {".down.", ".down_blocks."},
        {".up.0.", ".up_blocks.3."},
        {".up.1.", ".up_blocks.2."},
        {".up.2.", ".up_blocks.1."},
        {".up.3.", ".up_blocks.0."},
        {".block.", ".resnets."},
        {"nin_shortcut", "conv_shortcut"},
        {".downsample.conv", ".downsamplers.0.conv"},
        {".upsample.conv", ".upsamplers.0.conv"},
        {".mid.block_1", ".mid_block.resnets.0"},
        {".mid.block_2", ".mid_block.resnets.1"},
        {".mid.attn_1.norm", ".mid_block.attentions.0.group_norm"},
        {".mid.attn_1.proj_out", ".mid_block.attentions.0.to_out.0"},
        {".mid.attn_1.", ".mid_block.attentions.0.to_"},
        {"norm_out", "conv_norm_out"}};
    published_name(ours, out, cap);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        swap(out, cap, changes[i][0], changes[i][1]);
}

/* Names as in the published folders of Stable Diffusion. */
static void older_name(const char *ours, char *out, size_t cap)
{
    static const char *const changes[][2] = {{"attentions.0.to_q", "attentions.0.query"},
                                             {"attentions.0.to_k", "attentions.0.key"},
                                             {"attentions.0.to_v", "attentions.0.value"},
                                             {"attentions.0.to_out.0", "attentions.0.proj_attn"}};
    diffusers_name(ours, out, cap);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        swap(out, cap, changes[i][0], changes[i][1]);
}

TEST(stablesr_vae_loads_from_four_naming_schemes)
{
    if (!pl_test_long()) SKIP("long");
    const char *whole = pl_test_path("whole.safetensors");
    const char *file = pl_test_path("file.safetensors");
    const char *back = pl_test_path("back.safetensors");
    char key[640];
    int off, same;
    snprintf(key, sizeof key, "vae.weights=%s", file);
    CHECK_OK(small_run_save("stablesr/tiny", (const char *const[]){"part=vae", "seed=5", SMALL_VAE},
                            5, whole));
    for (int k = 0; k < 4; k++) {
        renamed_file o = {.of = "vae.",
                          .parts = 1,
                          .name = k == 0   ? published_name
                                  : k == 1 ? diffusers_name
                                  : k == 2 ? checkpoint_name
                                           : older_name,
                          .flat = k == 1 || k == 3,
                          .add = k == 2 ? "model.diffusion_model.out.2.bias" : NULL};
        CHECK_OK(renamed_write(whole, file, o));
        CHECK_OK(small_run_save(
            "stablesr/tiny", (const char *const[]){"part=vae", "seed=6", key, SMALL_VAE}, 6, back));
        CHECK_OK(renamed_compare(whole, back, "vae.", false, &off, &same));
        CHECK_MSG(off == 0, "names %d: %d tensors differ", k, off);
        /* Training reads the encoder of the same file and ignores the decoder. */
        CHECK_OK(small_run_save("stablesr/tiny", (const char *const[]){"seed=6", key, SMALL_VAE}, 5,
                                back));
        CHECK_OK(renamed_compare(whole, back, "vae.encoder.", false, &off, &same));
        CHECK_MSG(off == 0 && same > 0, "names %d: %d tensors of the encoder differ", k, off);
    }
    CHECK_OK(renamed_write(whole, file,
                           (renamed_file){.of = "vae.",
                                          .parts = 1,
                                          .name = published_name,
                                          .leave_out = "encoder.mid.attn_1.q.weight"}));

    CHECK(small_run_save("stablesr/tiny", (const char *const[]){"seed=6", key, SMALL_VAE}, 5,
                         back) == PL_ERR_FILE &&
          strstr(pl_error_text(), "encoder.mid.attn_1.q.weight"));
}

/* ---- the U-Net's, by two ------------------------------------------------------------------ */
/* Our block numbers in published files, which count the input convolution as a block. */
static void unet_published_name(const char *ours, char *out, size_t cap)
{
    static const char *const changes[][2] = {
        {".res.norm1", ".0.in_layers.0"},
        {".res.conv1", ".0.in_layers.2"},
        {".res.emb", ".0.emb_layers.1"},
        {".res.norm2", ".0.out_layers.0"},
        {".res.conv2", ".0.out_layers.3"},
        {".res.skip", ".0.skip_connection"},
        {".attn.block.self_attn.out", ".1.transformer_blocks.0.attn1.to_out.0"},
        {".attn.block.cross_attn.out", ".1.transformer_blocks.0.attn2.to_out.0"},
        {".attn.block.self_attn.", ".1.transformer_blocks.0.attn1.to_"},
        {".attn.block.cross_attn.", ".1.transformer_blocks.0.attn2.to_"},
        {".attn.block.gate", ".1.transformer_blocks.0.ff.net.0.proj"},
        {".attn.block.shrink", ".1.transformer_blocks.0.ff.net.2"},
        {".attn.block.", ".1.transformer_blocks.0."},
        {".attn.norm", ".1.norm"},
        {".attn.inp", ".1.proj_in"},
        {".attn.out", ".1.proj_out"},
        {"time.", "time_embed."}};
    int n;
    char text[256];
    snprintf(text, sizeof text, "%s", ours + strlen("unet."));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        swap(text, sizeof text, changes[i][0], changes[i][1]);
    if (sscanf(text, "down.%d", &n) == 1) {
        const char *tail = strchr(text + 5, '.');
        snprintf(out, cap, "model.diffusion_model.input_blocks.%d%s", n + 1, tail);
        swap(out, cap, ".resample.", ".0.op.");
        return;
    }
    swap(text, sizeof text, "up.", "output_blocks.");
    swap(text, sizeof text, "output_blocks.2.resample.", "output_blocks.2.1.");
    swap(text, sizeof text, ".resample.", ".2.");
    swap(text, sizeof text, "middle.0.0.", "middle_block.0.");
    swap(text, sizeof text, "middle.0.1.", "middle_block.1.");
    swap(text, sizeof text, "middle.1.0.", "middle_block.2.");
    snprintf(out, cap, "model.diffusion_model.%s", text);
}

static void unet_diffusers_name(const char *ours, char *out, size_t cap)
{
    static const char *const changes[][2] = {
        {".attn.block.self_attn.out", ".@.transformer_blocks.0.attn1.to_out.0"},
        {".attn.block.cross_attn.out", ".@.transformer_blocks.0.attn2.to_out.0"},
        {".attn.block.self_attn.", ".@.transformer_blocks.0.attn1.to_"},
        {".attn.block.cross_attn.", ".@.transformer_blocks.0.attn2.to_"},
        {".attn.block.gate", ".@.transformer_blocks.0.ff.net.0.proj"},
        {".attn.block.shrink", ".@.transformer_blocks.0.ff.net.2"},
        {".attn.block.", ".@.transformer_blocks.0."},
        {".attn.norm", ".@.norm"},
        {".attn.inp", ".@.proj_in"},
        {".attn.out", ".@.proj_out"},
        {".res.emb", ".res.time_emb_proj"},
        {".res.skip", ".res.conv_shortcut"},
        {"time.0", "time_embedding.linear_1"},
        {"time.2", "time_embedding.linear_2"},
        {"out.0.", "conv_norm_out."},
        {"out.2.", "conv_out."}};
    int n;
    char text[256], part[64];
    snprintf(text, sizeof text, "%s", ours + strlen("unet."));
    bool last = strncmp(text, "out.", 4) == 0;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (last || changes[i][0][0] != 'o') swap(text, sizeof text, changes[i][0], changes[i][1]);
    bool down = sscanf(text, "down.%d", &n) == 1, up = !down && sscanf(text, "up.%d", &n) == 1;
    if (!down && !up) {
        swap(text, sizeof text, "middle.0.@", "mid_block.attentions.0");
        swap(text, sizeof text, "middle.0.res", "mid_block.resnets.0");
        swap(text, sizeof text, "middle.1.res", "mid_block.resnets.1");
        snprintf(out, cap, "%s", text);
        return;
    }
    const char *tail = strchr(text + (down ? 5 : 3), '.'), *what = down ? "down" : "up";
    if (strncmp(tail, ".resample", 9) == 0)
        snprintf(out, cap, "%s_blocks.%d.%ssamplers.0.conv%s", what, n / 3, what,
                 tail + (down ? 9 : 14));
    else {
        snprintf(part, sizeof part, "%s_blocks.%d.%s.%d", what, n / 3,
                 tail[1] == '@' ? "attentions" : "resnets", n % 3);
        snprintf(out, cap, "%s%s", part, strchr(tail + 1, '.'));
    }
}

static void our_name(const char *ours, char *out, size_t cap)
{
    snprintf(out, cap, "%s", ours);
}

/* Trained parts keep their initial values: such files have no SPADE and no new input
 * convolution. */
TEST(stablesr_unet_loads_from_two_naming_schemes)
{
    if (!pl_test_long()) SKIP("long");
    const char *model = pl_test_path("model.safetensors");
    const char *bare = pl_test_path("bare.safetensors");
    const char *file = pl_test_path("file.safetensors");
    const char *back = pl_test_path("back.safetensors");
    char key[640];
    snprintf(key, sizeof key, "unet_from=%s", file);
    /* The reference: a model without the parts that such files lack, with all its weights under
     * our names. */
    CHECK_OK(
        small_run_save("stablesr/tiny", (const char *const[]){"seed=5", FOUR_LEVELS}, 4, model));
    CHECK_OK(renamed_write(
        model, bare,
        (renamed_file){
            .of = "unet.", .parts = 1, .name = our_name, .without = ".spade.,unet.inp."}));
    for (int k = 0; k < 2; k++) {
        int off, same;
        renamed_file o = {.of = "unet.",
                          .parts = 1,
                          .name = k ? unet_published_name : unet_diffusers_name,
                          .without = ".spade.,unet.inp.",
                          .add =
                              k ? "model.diffusion_model.input_blocks.0.0.bias" : "conv_in.bias"};
        CHECK_OK(renamed_write(model, file, o));
        CHECK_OK(small_run_save("stablesr/tiny", (const char *const[]){"seed=6", key, FOUR_LEVELS},
                                5, back));
        CHECK_OK(renamed_compare(bare, back, "unet.", false, &off, &same));
        CHECK_MSG(off == 0, "names %d: %d tensors differ", k, off);
        CHECK_OK(renamed_compare(model, back, "unet.inp.", false, &off, &same));
        CHECK(off > 0);
    }
    CHECK_OK(renamed_write(model, file,
                           (renamed_file){.of = "unet.", .parts = 1, .name = unet_diffusers_name}));

    CHECK(small_run_save("stablesr/tiny", (const char *const[]){"seed=6", key, FOUR_LEVELS}, 5,
                         back) == PL_ERR_FILE &&
          strstr(pl_error_text(), "not known"));
}
