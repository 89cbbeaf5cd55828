/* test_wan_decoder.c - the decoder of Wan's video autoencoder: its numbers, its names in files, and
 * the pictures that wandistill's predictions make with it. */
#include "base/sys.h"
#include "recipes/wandistill/wandistill.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/lab.h"
#include "tests/lib/test.h"
#include "tests/predict/predicted.h"
#include "tests/predict/slot_file.h"
#include "tests/recipes/peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN "cd %s && "
/* Four levels, so that frames double twice; the last factor differs from the one before. */
static const wan_vae small = {.width = 4,
                              .channels = 4,
                              .mult = {1, 1, 2, 2},
                              .levels = 4,
                              .blocks = 1,
                              .doubles = {false, true, true}};
#define SMALL_KEYS "vae.width=4 'vae.mult=[1, 1, 2, 2]' vae.blocks=1 "

typedef struct decoding {
    pl_store *store;
    lab *l;
} decoding;

/* The decoder for latents of these sizes, as program 0. */
static pl_status decoding_open(decoding *d, const wan_vae *v, int64_t f, int64_t h, int64_t w)
{
    d->store = pl_store_new();
    pl_graph *g = pl_graph_new(d->store);
    pl_nn *m = pl_nn_new(g, false);
    pl_val z = pl_input(g, "z", PL_TYPE(PL_F32, 1, f, h, w, v->channels));
    pl_output(g, "x", wan_decode(m, v, z));
    pl_status rc = pl_nn_finish(m);
    pl_nn_free(m);
    d->l = lab_new(d->store);
    lab_add(d->l, g);
    return rc == PL_OK ? lab_open(d->l) : rc;
}

static void decoding_free(decoding *d)
{
    lab_free(d->l);
    pl_store_free(d->store);
}

/* Element k of a weight, in the order of files. */
static float weight_at(const char *name, int64_t k)
{
    double w = sin(0.37 * (double)k + (double)strlen(name));
    return (float)(strstr(name, "gamma") ? 1 + 0.1 * w : strstr(name, "head") ? 0.02 * w : 0.1 * w);
}

static void fill_weights(decoding *d)
{
    for (int i = 0; i < pl_store_count(d->store); i++) {
        const pl_slot *s = pl_store_slot(d->store, i);
        int64_t n, *index = peer_slot_order(s, &n);
        float *v = lab_slot(d->l, i);
        for (int64_t k = 0; k < n; k++) v[index[k]] = weight_at(s->name, k);
        pl_sys_free(index);
    }
}

/* What AutoencoderKLWan of diffusers gives for these weights and this latent, in f64: of nine
 * frames of 16 x 24 pixels. */
static const struct {
    int at;
    double want;
} torch_frames[] = {{0, -0.0044982428}, {1, -0.12653466},     {100, -0.10749798},
                    {1000, 0.2049419},  {1151, 0.053684506},  {1152, -0.030507577},
                    {2500, 0.41089889}, {3000, -0.37096153},  {4500, 0.56676884},
                    {5000, 0.51524371}, {6001, -0.56762813},  {7000, -0.20127199},
                    {8000, 0.28831816}, {9001, -0.072630757}, {10367, 0.11355967}};

TEST(wandistill_decoder_of_a_video_matches_diffusers)
{
    enum { FRAME = 16 * 24 * 3 };
    decoding all, first;
    pl_type t;
    CHECK_OK(decoding_open(&all, &small, 3, 2, 3));
    CHECK_OK(decoding_open(&first, &small, 1, 2, 3));
    fill_weights(&all), fill_weights(&first);
    float *z = lab_input(all.l, 0, "z", NULL), *one = lab_input(first.l, 0, "z", NULL);
    for (int i = 0; i < 3 * 2 * 3 * 4; i++) z[i] = (float)sin(0.3 * i + 0.1);
    memcpy(one, z, 2 * 3 * 4 * sizeof *z);
    CHECK_OK(lab_run(all.l, 0));
    CHECK_OK(lab_run(first.l, 0));
    const float *x = lab_output(all.l, 0, "x", &t), *y = lab_output(first.l, 0, "x", NULL);

    CHECK(t.rank == 5 && t.dim[1] == 9 && t.dim[2] == 16 && t.dim[3] == 24 && t.dim[4] == 3);
    for (size_t i = 0; i < sizeof torch_frames / sizeof *torch_frames; i++)
        CHECK_NEAR(x[torch_frames[i].at], torch_frames[i].want, 2e-5); /* PyTorch's f32: 1.3e-5 */
    /* A picture is the first frame of a video. */
    for (int i = 0; i < FRAME; i++) CHECK_NEAR(x[i], y[i], 2e-6);
    decoding_free(&all), decoding_free(&first);
}

/* Wan 2.1's published decoder has 73.3 million parameters. */
TEST(wandistill_decoder_has_the_published_sizes)
{
    wan_vae v = {.width = 96,
                 .channels = 16,
                 .mult = {1, 2, 4, 4},
                 .levels = 4,
                 .blocks = 2,
                 .doubles = {false, true, true}};
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, false);
    wan_decode(m, &v, pl_input(g, "z", PL_TYPE(PL_F32, 1, 2, 2, 2, 16)));
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    CHECK_INT(pl_nn_count(store, "vae.*", false), 73295603);
    pl_graph_free(g);
    pl_store_free(store);
}

/* ---- files ------------------------------------------------------------------------------- */
static void swap(char *text, size_t cap, const char *from, const char *to)
{
    char *at = strstr(text, from), tail[256];
    if (!at) return;
    snprintf(tail, sizeof tail, "%s", at + strlen(from));
    snprintf(at, cap - (size_t)(at - text), "%s%s", to, tail);
}

/* The names of diffusers for a decoder of one block per level, which has two. */
static void diffusers_name(char *name, size_t cap)
{
    static const char *const changes[][2] = {{"decoder.conv1.", "decoder.conv_in."},
                                             {"head.0.", "norm_out."},
                                             {"head.2.", "conv_out."},
                                             {"middle.0.", "mid_block.resnets.0."},
                                             {"middle.1.", "mid_block.attentions.0."},
                                             {"middle.2.", "mid_block.resnets.1."},
                                             {"upsamples.10.", "up_blocks.3.resnets.1."},
                                             {"upsamples.0.", "up_blocks.0.resnets.0."},
                                             {"upsamples.1.", "up_blocks.0.resnets.1."},
                                             {"upsamples.2.", "up_blocks.0.upsamplers.0."},
                                             {"upsamples.3.", "up_blocks.1.resnets.0."},
                                             {"upsamples.4.", "up_blocks.1.resnets.1."},
                                             {"upsamples.5.", "up_blocks.1.upsamplers.0."},
                                             {"upsamples.6.", "up_blocks.2.resnets.0."},
                                             {"upsamples.7.", "up_blocks.2.resnets.1."},
                                             {"upsamples.8.", "up_blocks.2.upsamplers.0."},
                                             {"upsamples.9.", "up_blocks.3.resnets.0."},
                                             {"residual.0.", "norm1."},
                                             {"residual.2.", "conv1."},
                                             {"residual.3.", "norm2."},
                                             {"residual.6.", "conv2."},
                                             {"shortcut.", "conv_shortcut."}};
    if (strncmp(name, "conv2.", 6) == 0) swap(name, cap, "conv2.", "post_quant_conv.");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        swap(name, cap, changes[i][0], changes[i][1]);
}

/* Writes the weights of fill_weights as Wan or diffusers does, with tensors of the encoder. */
static pl_status write_vae(const decoding *d, const char *path, bool diffusers, const char *without)
{
    static const char *const more[] = {"encoder.conv1.bias", "conv1.bias", "encoder.conv_in.bias",
                                       "quant_conv.bias"};
    slot_file o = {.of = "vae.",
                   .value = weight_at,
                   .rename = diffusers ? diffusers_name : NULL,
                   .leave_out = without,
                   .add = more + 2 * diffusers,
                   .n_add = 2};
    return slot_file_write(d->store, path, &o);
}

#define TOY                                                                                        \
 "wandistill/tiny train.steps=2 eval.every=0 data.samples=4 data.eval_samples=2 latent=4 "         \
 "teacher.channels=4 'vae.mean=[0.5, -1, 0.25, 0]' 'vae.std=[2, 0.5, 1, 3]' " SMALL_KEYS

TEST(wandistill_predicts_pictures_with_the_decoder_of_either_naming)
{
    static const double mean[] = {0.5, -1, 0.25, 0}, deviation[] = {2, 0.5, 1, 3};
    const char *d = pl_test_dir();
    decoding all;
    pl_type t;
    int w, h;
    WANT_BIN();
    CHECK_OK(decoding_open(&all, &small, 2, 4, 4)); /* the slots of a video, too */
    CHECK_OK(write_vae(&all, pl_test_path("native.safetensors"), false, NULL));
    CHECK_OK(write_vae(&all, pl_test_path("hub.safetensors"), true, NULL));
    CHECK_OK(write_vae(&all, pl_test_path("cut.safetensors"), false,
                       "vae.decoder.middle.0.residual.3.gamma"));
    decoding_free(&all);
    CHECK_RUN(cli_run(IN "$P train " TOY "--out run --quiet && $P generate " TOY
                         "--raw --out p --quiet && "
                         "$P predict run --input p/embeddings.npy --out a predict.steps=2 "
                         "--quiet vae.weights=native.safetensors && "
                         "$P predict run --input p/embeddings.npy --out b predict.steps=2 "
                         "--quiet vae.weights=hub.safetensors && diff -r a b && "
                         "$P predict run --input p/embeddings.npy --out c predict.steps=2",
                      d),
              0, "vae.weights=FILE");
    CHECK_RUN(cli_run(IN "test -e c/latents.npy -a ! -e c/000000.png -a -e a/000005.png", d), 0,
              "");
    float *z = predicted_numbers("a/teacher_latents.npy", &t);
    CHECK(z && t.dim[0] == 6 && t.dim[1] == 4 && t.dim[2] == 4);
    CHECK_OK(decoding_open(&all, &small, 1, 4, 4));
    fill_weights(&all);
    float *in = lab_input(all.l, 0, "z", NULL);
    for (int i = 0; i < 64; i++)
        in[i] = (float)((double)z[5 * 64 + i % 4 * 16 + i / 4] * deviation[i % 4] + mean[i % 4]);
    CHECK_OK(lab_run(all.l, 0));
    const float *x = lab_output(all.l, 0, "x", NULL);
    uint8_t *got = predicted_pixels("a/000005.png", &w, &h);
    CHECK(got && w == 32 && h == 32);
    int off = 0, levels = 0;
    for (int i = 0; i < 32 * 32 * 3; i++) {
        int want = (int)(((double)x[i] + 1) * 127.5);
        off += want != got[i];
        levels += got[i] != got[0];
    }
    /* Rounding may take a value across the border of a level. */
    CHECK_MSG(off <= 3 && levels > 1000, "%d bytes differ", off);
    free(z), free(got);
    decoding_free(&all);

    CHECK_RUN(cli_run(IN "$P predict run --input p/embeddings.npy --out e "
                         "vae.weights=cut.safetensors",
                      d),
              6, "decoder.middle.0.residual.3.gamma");
    CHECK_RUN(cli_run(IN "$P predict run --input p/embeddings.npy --out e predict.project=false "
                         "vae.weights=native.safetensors",
                      d),
              2, "predict.project=false");
    CHECK_RUN(cli_run(IN "$P predict run --input p/embeddings.npy --out e 'vae.std=[1]' "
                         "vae.weights=native.safetensors",
                      d),
              2, "4 channels");
    CHECK_RUN(cli_run(IN "test ! -e e", d), 0, "");
}

/* ---- the other program --------------------------------------------------------------------- */
/* Random weights that diffusers wrote, of other sizes; it decodes the latents that we wrote. */
TEST(wandistill_pictures_are_those_of_diffusers)
{
    static const char make[] =
        "import torch, diffusers\n"
        "torch.manual_seed(3)\n"
        "v = diffusers.AutoencoderKLWan(base_dim=12, z_dim=16, dim_mult=[1, 3, 2], "
        "num_res_blocks=2, temperal_downsample=[False, True])\n"
        "for n, p in v.named_parameters(): p.data += 0.05 * torch.randn_like(p)\n"
        "v.save_pretrained(\"vae\")\n";
    static const char compare[] =
        "import torch, diffusers, numpy, PIL.Image\n"
        "v = diffusers.AutoencoderKLWan.from_pretrained(\"vae\").double()\n"
        "z = torch.from_numpy(numpy.load(\"got/teacher_latents.npy\")).double()[:, :, None]\n"
        "s = torch.tensor(v.config.latents_std).view(1, -1, 1, 1, 1)\n"
        "z = z * s + torch.tensor(v.config.latents_mean).view(1, -1, 1, 1, 1)\n"
        "x = v.decode(z).sample.detach()\n"
        "x = ((x[:, :, 0].permute(0, 2, 3, 1) + 1) * 127.5).numpy()\n"
        "for i in range(len(x)):\n"
        "    y = numpy.asarray(PIL.Image.open(\"got/%06d.png\" % i)).astype(float)\n"
        "    assert y.shape == x[i].shape and y.std() > 5, (y.shape, y.std())\n"
        "    assert ((y <= x[i] + 1e-2) & (y + 1 > x[i] - 1e-2)).all(), numpy.abs(y - x[i]).max()\n";
    const char *d = pl_test_dir();
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    WANT_PYTHON(python, "diffusers");

    CHECK_RUN(cli_run(IN "%s -c '%s' && $P train wandistill/tiny train.steps=2 eval.every=0 "
                         "--out run --quiet && $P generate wandistill/tiny data.samples=2 "
                         "data.eval_samples=1 --raw --out p --quiet && "
                         "$P predict run --input p/embeddings.npy --out got --quiet "
                         "predict.steps=2 vae.weights=vae vae.width=12 'vae.mult=[1, 3, 2]' && "
                         "%s -c '%s'",
                      d, python, make, python, compare),
              0, "");
}
