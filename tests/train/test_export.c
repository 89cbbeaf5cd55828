/* test_export.c - `plimsoll export`: from the authors' checkpoints to the same files, joined and
 * shifted tensors, what is left out, and mistakes. */
#include "io/safetensors.h"
#include "plimsoll_tensors.h"
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AUTHORS "tests/data/authors/"

/* numpy's logarithm in f32, which wrote the table, is up to 4 units in the last place off. */
static bool last_bits(const char *p, const char *q, int n)
{
    bool near = true;
    for (int i = 0; i < n; i++) {
        float a, b;
        memcpy(&a, p + 4 * i, 4);
        memcpy(&b, q + 4 * i, 4);
        near &= fabsf(a - b) <= 4.8e-7F * fabsf(a);
    }
    return near;
}

/* Whether two files list the same tensors in the same order, each with the same bytes. except: the
 * start of names in `a` that are not compared; NULL: none. */
static void check_same(const char *a, const char *b, const char *except)
{
    static char p[1 << 24], q[1 << 24];
    pl_st_reader *x, *y;
    int k = 0;
    CHECK_OK(pl_st_open(a, &x));
    CHECK_OK(pl_st_open(b, &y));
    for (int i = 0; i < pl_st_count(x); i++) {
        const pl_st_tensor *t = pl_st_at(x, i);
        if (except && strncmp(t->name, except, strlen(except)) == 0) continue;
        CHECK_MSG(k < pl_st_count(y), "%s lacks %s", b, t->name);
        const pl_st_tensor *u = pl_st_at(y, k++);
        size_t bytes = (size_t)(t->end - t->begin);
        CHECK_MSG(strcmp(t->name, u->name) == 0, "%s has %s, not %s", b, u->name, t->name);
        CHECK_MSG(t->dtype == u->dtype && t->rank == u->rank &&
                      memcmp(t->dim, u->dim, (size_t)t->rank * sizeof *t->dim) == 0,
                  "%s: another type", t->name);
        CHECK(bytes <= sizeof p);
        CHECK_OK(pl_st_read(x, t, p, bytes));
        CHECK_OK(pl_st_read(y, u, q, bytes));
        if (strcmp(t->name, "state_dict.log_one_minus_alphas_cumprod") == 0)
            CHECK_MSG(last_bits(p, q, (int)(bytes / 4)), "%s: other values", t->name);
        else
            CHECK_MSG(memcmp(p, q, bytes) == 0, "%s: other values", t->name);
    }
    CHECK_INT(k, pl_st_count(y));
    pl_st_close(x);
    pl_st_close(y);
}

/* ---- round trips: authors' checkpoint -> import -> export ----------------------------------- */
#define FLUX                                                                                       \
 "fluxflow/tiny image=24 image_width=16 model.dim=8 model.scales=2 model.layers=2 model.heads=2 "  \
 "model.rgb=[96,48] spade.hidden=128 gan.base=6 gan.depth=2 lpips.on=false flow.on=true "          \
 "flow.width=16 flow.heads=2 flow.layers=2 flow.text=12 flow.context=4 "

TEST(export_fluxflow_gives_the_authors_files_again)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("$P export " FLUX "--model " AUTHORS "fluxflow --as authors --out %s/a/b", d),
              0, "");
    check_same(AUTHORS "fluxflow/flxflow_final.safetensors",
               pl_test_path("a/b/flxflow_final.safetensors"), NULL);
    check_same(AUTHORS "fluxflow/D_img.safetensors", pl_test_path("a/b/D_img.safetensors"), NULL);
    /* through the names of slots, and a PyTorch file */
    CHECK_RUN(cli_run("$P export " FLUX "--model " AUTHORS "fluxflow --out %s/ours.pt", d), 0, "");
    CHECK_RUN(cli_run("$P export " FLUX "--model %s/ours.pt --as authors --out %s/c", d, d), 0, "");
    check_same(AUTHORS "fluxflow/flxflow_final.safetensors",
               pl_test_path("c/flxflow_final.safetensors"), NULL);
    /* the folder has the checksums of its files */
    CHECK_RUN(cli_run("cd %s/c && $P inspect . && mkdir -p x && mv D_img.safetensors x/D && printf "
                      "y >> x/D && cp x/D D_img.safetensors && $P inspect .",
                      d),
              6, "D_img.safetensors: its bytes changed");
}

#define LGT                                                                                        \
 "lgt/tiny latent=8 model.base=32 model.cond=16 model.styles=2 model.encoder_blocks=1 "            \
 "model.decoder_blocks=1 seed_compat=true model.block=dynamic model.plus=false "

/* Import into a run that has taken no step, as training would; f16 as the authors' file. */
TEST(export_lgt_gives_the_authors_file_again)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("$P export " LGT "--model " AUTHORS
                      "lgt/epoch_0004.pt --as authors --dtype f16 --out %s/e.pt",
                      d),
              0, "");
    check_same(AUTHORS "lgt/epoch_0004.pt", pl_test_path("e.pt"), "optimizer_state_dict");
}

TEST(export_cloud_and_wandistill_give_the_authors_files_again)
{
    WANT_BIN();
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run("$P export cloud/tiny frames=3 height=24 width=32 model.channels=[8,16,32] "
                      "model.dense=[32,16] model.film_hidden=256 --model " AUTHORS
                      "cloud/cloud.pth --as authors --out %s/c.pth",
                      d),
              0, "");
    check_same(AUTHORS "cloud/cloud.pth", pl_test_path("c.pth"), NULL);
    CHECK_RUN(
        cli_run("$P export wandistill/tiny latent=8 text.dim=24 student.hidden=32 student.depth=2 "
                "student.heads=2 teacher.dim=48 teacher.heads=2 teacher.layers=3 teacher.ffn=144 "
                "teacher.freq=16 --model " AUTHORS "wandistill/student --as authors --out %s/w",
                d),
        0, "");
    check_same(AUTHORS "wandistill/student/diffusion_model.safetensors",
               pl_test_path("w/diffusion_model.safetensors"), NULL);
    CHECK_RUN(cli_run("cmp " AUTHORS "wandistill/student/student_config.json "
                      "%s/w/student_config.json",
                      d),
              0, "");
}

/* A Lightning checkpoint with the schedule's tables, which follow from the configuration. */
TEST(export_stablesr_gives_the_authors_checkpoint_again)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("$P export stablesr/pictures batch=2 image=64 latent=8 edge.stem=8 "
                      "edge.after=[12,12,12] edge.after_down=[8,8,6,4] model.width=32 "
                      "model.mult=[1,1] model.blocks=2 model.attn_levels=1 model.head_dim=16 "
                      "model.context=[7,16] model.spade_hidden=8 struct.width=32 struct.mult=[1,1] "
                      "struct.blocks=2 struct.out=32 struct.heads=2 vae.encode=true vae.width=32 "
                      "vae.mult=[1,1,1,1] --model " AUTHORS
                      "stablesr/epoch=000000.ckpt --as authors --dtype f16 --out %s/s.ckpt",
                      d),
              0, "");
    check_same(AUTHORS "stablesr/epoch=000000.ckpt", pl_test_path("s.ckpt"), NULL);
}

/* ---- the engine's own form ------------------------------------------------------------------ */
/* Frozen networks are left out, and the run starts from the result as from its own model. */
TEST(export_of_a_run_has_what_it_trained)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    pl_st_reader *r;

    CHECK_RUN(cli_run("cd %s && $P train fluxflow/tiny gan.on=false data.samples=64 eval.batches=1 "
                      "train.steps=1 --quiet --out run",
                      d),
              0, "");
    CHECK_RUN(cli_run("cd %s && $P export run --out t.safetensors && $P export run --frozen --out "
                      "all.safetensors",
                      d),
              0, "");
    check_same(pl_test_path("run/model.safetensors"), pl_test_path("all.safetensors"), NULL);
    check_same(pl_test_path("run/model.safetensors"), pl_test_path("t.safetensors"), "lpips.");
    CHECK_RUN(cli_run("cd %s && $P export run --out h.ckpt --dtype bf16", d), 0, "");
    CHECK_OK(pl_st_open(pl_test_path("h.ckpt"), &r));
    CHECK(pl_st_at(r, 0)->dtype == PL_ST_BF16);
    CHECK(strncmp(pl_st_at(r, 0)->name, "state_dict.", 11) == 0);
    CHECK(strcmp(pl_st_meta_get(r, "plimsoll.recipe"), "fluxflow") == 0);
    pl_st_close(r);
    CHECK_RUN(cli_run("cd %s && $P train fluxflow/tiny gan.on=false data.samples=64 eval.batches=1 "
                      "train.steps=1 init_from=h.ckpt --out again",
                      d),
              0, "after \"state_dict.\"");
}

TEST(export_refuses_mistakes_and_writes_nothing)
{
    WANT_BIN();
    const char *d = pl_test_dir();
#define EX "$P export cloud/tiny --model "

    CHECK_RUN(cli_run(EX AUTHORS "cloud/cloud.pth --as authors --out %s/x.pth", d), 6,
              "has another shape");
    CHECK_RUN(cli_run(EX AUTHORS "lgt/epoch_0004.pt --as authors --out %s/x.pth", d), 6,
              "has no tensor");
    CHECK_RUN(cli_run(EX "tests/data/pt/hostile.pt --as authors --out %s/x.pth", d), 6,
              "nothing in the file is executed");
    CHECK_RUN(cli_run(EX "none.pt --as authors --out %s/x.pth", d), 6, "none.pt");
    CHECK_RUN(cli_run(EX AUTHORS "cloud/cloud.pth --as other --out %s/x.pth", d), 2,
              "its forms: plimsoll, onnx, authors");
    CHECK_RUN(cli_run(EX AUTHORS "cloud/cloud.pth --as authors --out %s/x", d), 2,
              "ends in .safetensors");
    CHECK_RUN(cli_run(EX AUTHORS "cloud/cloud.pth --dtype f8 --out %s/x.pth", d), 2,
              "f32, f16, bf16 or f64");
    CHECK_RUN(cli_run(EX AUTHORS "cloud/cloud.pth"), 2, "needs --out");
    CHECK_RUN(cli_run("test -z \"$(ls %s)\"", d), 0, "");
}

/* Exports a model whose first weight has these values; a refused export leaves no file. */
static void export_values(pl_dtype dtype, const void *values, const char *keys, int code,
                          const char *text)
{
    static const float zero[8];
    const pl_tensor_data file[] = {{"layers.0.weight", PL_TYPE(dtype, 2, 4), values},
                                   {"layers.0.bias", PL_TYPE(PL_F32, 2), zero},
                                   {"out.weight", PL_TYPE(PL_F32, 1, 2), zero},
                                   {"out.bias", PL_TYPE(PL_F32, 1), zero}};
    CHECK_OK(pl_tensors_save(pl_test_path("a.safetensors"), file, 4));
    CHECK_RUN(cli_run("cd %s && rm -f x.pt && $P export regress/tiny 'model.widths=[2]' --model "
                      "a.safetensors --out x.pt %s",
                      pl_test_dir(), keys),
              code, text);
    CHECK_INT(access(pl_test_path("x.pt"), F_OK) == 0, code == 0);
}

/* The same weights that training refuses; an infinity may be a mask's. */
TEST(export_refuses_weights_that_are_not_numbers)
{
    static const float nan[8] = {1, NAN}, infinite[8] = {1, -INFINITY}, big[8] = {1e6F};
    static const double huge[8] = {0, 0, 1e300};
    static const int32_t whole[8] = {1};
    WANT_BIN();
    export_values(PL_F32, nan, "", 6, "has NaN, first as element 1");
    export_values(PL_F64, huge, "", 6, "1e+300, is too large for f32");
    export_values(PL_F32, big, "--dtype f16", 6, "1e+06, is too large for f16");
    export_values(PL_F32, big, "--dtype bf16", 0, "");
    export_values(PL_F32, infinite, "", 0, "");
    export_values(PL_I32, whole, "", 6, "number format I32");
}

/* PyTorch loads the files with weights_only, and finds the names and shapes of the authors'. */
TEST(export_is_read_by_torch)
{
    WANT_BIN();
    const char *python = pl_test_long() ? cli_python("torch") : NULL, *d = pl_test_dir();
    if (!python) SKIP("long, and wants a Python with torch: PL_ORACLE");
    char text[2048];

    CHECK_RUN(cli_run("$P export " LGT "--model " AUTHORS
                      "lgt/epoch_0004.pt --as authors --dtype f16 --out %s/e.pt",
                      d),
              0, "");
    CHECK_RUN(cli_run("$P export " FLUX "--model " AUTHORS "fluxflow --as authors --out %s/f", d),
              0, "");
    snprintf(text, sizeof text,
             "%s -c \"import torch; from safetensors.torch import load_file; "
             "a = torch.load('" AUTHORS
             "lgt/epoch_0004.pt', weights_only=True)['model_state_dict']; "
             "b = torch.load('%s/e.pt', weights_only=True)['model_state_dict']; "
             "assert list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in a); "
             "a = load_file('" AUTHORS "fluxflow/flxflow_final.safetensors'); "
             "b = load_file('%s/f/flxflow_final.safetensors'); "
             "assert set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a)\"",
             python, d, d);

    CHECK_INT(system(text), 0);
}

/* diffusers loads the folder: no tensor is missing, none is unknown, and values are ours. Sizes are
 * those of three levels, of which two attend. */
TEST(export_of_the_unet_is_loaded_by_diffusers)
{
    static const char code[] =
        "import torch, diffusers, safetensors.torch as s\n"
        "m, info = diffusers.UNet2DConditionModel.from_pretrained(\"hub\", subfolder=\"unet\", "
        "output_loading_info=True)\n"
        "assert not any(info.values()), info\n"
        "a = s.load_file(\"hub/unet/diffusion_pytorch_model.safetensors\")\n"
        "b = m.state_dict()\n"
        "assert set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a)\n"
        "x = torch.randn(1, 8, 8, 8)\n"
        "y = m(x, torch.tensor([3]), torch.randn(1, 7, 16)).sample\n"
        "assert y.shape == (1, 4, 8, 8) and bool(torch.isfinite(y).all())\n";
    const char *d = pl_test_dir();
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    WANT_PYTHON(python, "diffusers");
    CHECK_RUN(cli_run("cd %s && $P train stablesr/tiny 'model.mult=[1, 2, 3]' model.attn_levels=2 "
                      "'struct.mult=[1, 1, 2]' model.blocks=1 train.steps=1 eval.every=0 --out run "
                      "--quiet && $P export run --as diffusers --out hub && %s -c '%s'",
                      d, python, code),
              0, "");
    /* Our own reader takes the same folder. */
    CHECK_RUN(cli_run("cd %s && $P train stablesr/tiny 'model.mult=[1, 2, 3]' model.attn_levels=2 "
                      "'struct.mult=[1, 1, 2]' model.blocks=1 train.steps=1 eval.every=0 --out two "
                      "unet_from=hub/unet --quiet",
                      d),
              0, "");
}
