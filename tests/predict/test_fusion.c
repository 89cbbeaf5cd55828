/* test_fusion.c - StableSR's second stage: a decoder that fuses features of the degraded picture.
 * Numbers are those of tools/oracle/decoders.py. */
#include "base/sys.h"
#include "io/npy.h"
#include "plimsoll_events.h"
#include "recipes/stablesr/stablesr.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/lab.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "tests/predict/predicted.h"
#include "tests/predict/slot_file.h"
#include "tests/recipes/peer.h"
#include "train/files/naming.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IN "cd %s && "
#define TOY                                                                                        \
 "stablesr/tiny batch=2 vae.encode=true train.steps=1 eval.every=0 data.samples=4 "                \
 "data.eval_samples=2 vae.width=32 "

static const struct {
    int at;
    double half, none; /* with weight 0.5 and 0 */
} torch_fused[] = {{0, 0.0026289042, 0.039990429},    {1, 0.034949495, 0.057082093},
                   {13, 0.07940716, 0.024935433},     {150, 0.0735621, 0.13246198},
                   {491, -0.1894031, 0.06288708},     {628, -0.075055737, -0.040536077},
                   {969, -0.14334423, -0.02823824},   {1106, 0.1806598, -0.10779379},
                   {1447, 0.0355467, 0.050663259},    {1788, 0.067650174, 0.0035343581},
                   {1925, -0.032731919, 0.059601747}, {2266, 0.041724599, -0.28363856},
                   {2403, 0.016239137, -0.1589808},   {2744, 0.10527123, 0.17994859},
                   {3071, 0.17564415, 0.05915051}};

TEST(stablesr_fused_decoder_matches_pytorch)
{
    vae_sizes c = {.width = 32, .mult = {1, 1, 2, 2}, .levels = 4, .blocks = 2, .fusion_blocks = 2};
    for (int half = 0; half < 2; half++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        CHECK_OK(predicted_autoencoder(&c, 32, half ? 0.5 : 0, g));
        lab *l = lab_new(store);
        lab_add(l, g);
        CHECK_OK(lab_open(l));
        for (int i = 0; i < pl_store_count(store); i++) {
            const pl_slot *s = pl_store_slot(store, i);
            int64_t n, *index = peer_slot_order(s, &n);
            float *v = lab_slot(l, i);
            for (int64_t k = 0; k < n; k++) v[index[k]] = predicted_weight(s->name, k);
            pl_sys_free(index);
        }
        float *image = lab_input(l, 0, "image", NULL), *z = lab_input(l, 0, "z", NULL);
        for (int i = 0; i < 32 * 32 * 3; i++) image[i] = (float)sin(0.011 * i + 0.1);
        for (int i = 0; i < 4 * 4 * 4; i++) z[i] = (float)sin(0.3 * i);
        CHECK_OK(lab_run(l, 0));
        const float *x = lab_output(l, 0, "x", NULL);
        for (size_t i = 0; i < sizeof torch_fused / sizeof *torch_fused; i++)
            CHECK_NEAR(x[torch_fused[i].at], half ? torch_fused[i].half : torch_fused[i].none,
                       2e-5); /* PyTorch's f32: 9.4e-6 */
        lab_free(l);
        pl_store_free(store);
    }
}

/* Files with fusion layers are recognised; the weight decides, and the decoder sees the picture. */
TEST(stablesr_predictions_fuse_where_the_file_has_the_layers)
{
    vae_sizes c = {.width = 32, .mult = {1, 1, 1, 1}, .levels = 4, .blocks = 2, .fusion_blocks = 2};
    const char *const more[] = {"loss.logvar"};
    static uint8_t rgb[16 * 16 * 3];
    const char *d = pl_test_dir();
    WANT_BIN();
    for (int i = 0; i < 16 * 16 * 3; i++) rgb[i] = (uint8_t)(i * i % 251);
    CHECK_OK(pl_png_save(pl_test_path("a.png"), 16, 16, 3, rgb));
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    CHECK_OK(predicted_autoencoder(&c, 64, 0.5, g));
    slot_file o = {.of = "vae.", .value = predicted_weight, .add = more, .n_add = 1};
    CHECK_OK(slot_file_write(store, pl_test_path("vqgan.ckpt"), &o));
    o.leave_out = "vae.decoder.fusion_layer_2.encode_enc_2.1.rdb3.conv4.weight";
    CHECK_OK(slot_file_write(store, pl_test_path("cut.ckpt"), &o));
    pl_graph_free(g);
    pl_store_free(store);
#define WITH "predict.steps=1 predict.colour=none --quiet vae.weights=vqgan.ckpt "
    CHECK_RUN(cli_run(IN "$P train " TOY "'vae.mult=[1, 1, 1, 1]' --out run --quiet && "
                         "$P predict run --input a.png --out half " WITH "&& "
                         "$P predict run --input a.png --out none vae.dec_w=0 " WITH "&& "
                         "! cmp -s half/a.png none/a.png",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input a.png --out no vae.weights=cut.ckpt", d), 6,
              "rdb3.conv4.weight");
    CHECK_RUN(cli_run(IN "test ! -e no/a.png", d), 0, "");
}

/* The authors' second stage as PyTorch writes it, of other sizes, with random weights. */
TEST(stablesr_fusion_of_a_checkpoint_matches_pytorch)
{
    const char *d = pl_test_dir();
    char here[1024], key[1200];
    pl_type t;
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    WANT_PYTHON(python, "torch");
    CHECK(getcwd(here, sizeof here));
    CHECK_RUN(cli_run(IN "%s %s/tools/oracle/decoders.py fusion 5 32 1 2 1 2 && $P train " TOY
                         "'vae.mult=[1, 2, 1, 2]' --out run --quiet",
                      d, python, here),
              0, "");
    snprintf(key, sizeof key, "vae.weights=%s/vqgan.ckpt", d);
    float *image = predicted_numbers("image.npy", &t), *z = predicted_numbers("latent.npy", &t);
    CHECK(image && z);
    for (int i = 0; i < 3; i++) {
        static const char *const weights[] = {"vae.dec_w=0", "vae.dec_w=0.5", "vae.dec_w=1"},
                                 *const wants[] = {"want_0.npy", "want_0.5.npy", "want_1.npy"};
        pl_run *run = NULL;
        double worst = 0, largest = 0;
        CHECK_OK(predicted_open("run", (const char *const[]){key, weights[i]}, 2, &run));
        pl_program *p = predicted_program(run, "decode");
        CHECK(p && predicted_set(run, p, "latent", z, 8 * 8 * 4 * sizeof *z));
        CHECK(i == 0 || predicted_set(run, p, "given", image, 64 * 64 * 3 * sizeof *z));
        const float *x = predicted_run(run, p, "image");
        float *want = predicted_numbers(wants[i], &t);
        CHECK(x && want && t.dim[0] == 64);
        for (int k = 0; k < 64 * 64 * 3; k++) {
            worst = fmax(worst, fabs((double)x[k] - (double)want[k]));
            largest = fmax(largest, fabs((double)want[k]));
        }
        CHECK_MSG(worst < 1e-5 * largest, "%s: off by %g of %g", weights[i], worst, largest);
        free(want);
        pl_run_free(run);
    }
    free(image), free(z);
}

/* An autoencoder of three levels and one block: a picture is four times its latent. Its decoder's
 * levels have diffusers' numbers counted from the coarsest one. */
TEST(stablesr_autoencoder_may_have_other_levels)
{
    const char *d = pl_test_dir();
    static uint8_t rgb[12 * 16 * 3];
    static const char *const keys[] = {
        "part=vae",     "vae.encode=true", "vae.width=32", "vae.mult=[1, 1, 2]",
        "vae.blocks=1", "image=32",        "latent=8"};
    int w, h;
    WANT_BIN();
    for (int i = 0; i < 12 * 16 * 3; i++) rgb[i] = (uint8_t)(i * i % 251);
    CHECK_OK(small_run_save("stablesr/tiny", keys, 7, pl_test_path("vae.safetensors")));
    CHECK_OK(pl_png_save(pl_test_path("a.png"), 12, 16, 3, rgb));
#define THREE "'vae.mult=[1, 1, 2]' vae.blocks=1 image=32 latent=8 model.depth=2 "
    CHECK_RUN(cli_run(IN "$P train " TOY THREE "--out run --quiet && "
                         "$P predict run --input a.png --out got predict.steps=1 predict.upscale=2 "
                         "vae.weights=vae.safetensors "
                         "--quiet && $P export run --as diffusers --out folder --quiet && "
                         "grep -q 'transformer_layers_per_block\": 2' folder/unet/config.json",
                      d),
              0, "");
    uint8_t *made = predicted_pixels("got/a.png", &w, &h);
    CHECK(made && w == 24 && h == 32);
    free(made);
    CHECK_RUN(cli_run(IN "$P train " TOY "'vae.mult=[1, 1, 2]' --out no --quiet", d), 2,
              "an image has 4 times a latent's side");
    CHECK_RUN(cli_run(IN "$P train " TOY "'vae.mult=[1, 1, 1, 1, 1, 1, 1]' --out no --quiet", d), 2,
              "vae.mult needs 1 to 6 numbers, got 7");
}

static const pl_naming *naming(const char *name)
{
    for (const pl_naming *n = vae_namings; n->name; n++)
        if (strcmp(n->name, name) == 0) return n;
    return NULL;
}

TEST(stablesr_autoencoder_has_diffusers_names_at_every_depth)
{
    static const char *const keys[] = {"vae.mult=[1, 1, 2]", "image=32", "latent=8"};
    static const char *const names[][2] = {
        {"vae.decoder.up.2.block.1.conv1.weight", "decoder.up_blocks.0.resnets.1.conv1.weight"},
        {"vae.decoder.up.0.block.0.nin_shortcut.bias",
         "decoder.up_blocks.2.resnets.0.conv_shortcut.bias"},
        {"vae.decoder.up.1.upsample.conv.weight", "decoder.up_blocks.1.upsamplers.0.conv.weight"},
        {"vae.encoder.down.2.block.0.conv1.weight", "encoder.down_blocks.2.resnets.0.conv1.weight"},
    };
    pl_run *run = NULL;
    CHECK_OK(pl_run_open("stablesr/tiny", keys, 3, &run));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pl_slot s = {.name = names[i][0], .type = PL_TYPE(PL_F32, 4)};
        pl_published to;
        CHECK(pl__naming_find(naming("diffusers"), pl_run_config(run), &s, &to));
        CHECK_MSG(strcmp(to.name, names[i][1]) == 0, "%s", to.name);
    }
    pl_run_free(run);
}
