/* test_stablesr.c - stablesr from pictures to losses: degradation settings, file filters, the
 * pool, edges, memory, caches. Sizes of the parts, learning and PyTorch are in test_recipes.c,
 * the degradation in test_degrade.c. */
#include "base/sys.h"
#include "recipes/stablesr/stablesr.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/test.h"
#include "train/data/prefetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SMALL_VAE "vae.encode=true", "vae.width=32", "vae.mult=[1, 1, 2, 2]"

/* ---- pictures ----------------------------------------------------------------------------- */
enum { STEPS = 4 };

static pl_status losses_of(const char *const *overrides, int n, const pl_compile_opts *o,
                           double *loss, uint64_t *arena)
{
    pl_run *run;
    const char *all[16] = {"allow_random_frozen=true"};
    memcpy(all + 1, overrides, (size_t)n * sizeof *all);
    PL_TRY(pl_run_open("stablesr/tiny", all, n + 1, &run));
    if (o) pl_run_set_compile(run, o);
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; i < STEPS && rc == PL_OK; i++) {
        pl_step_info info;
        rc = pl_run_step(run, &info);
        loss[i] = info.loss;
    }
    if (rc == PL_OK && arena) *arena = pl_program_plan(pl_run_train_program(run))->arena_bytes;
    pl_run_free(run);
    return rc;
}

static bool png_folder(const char *dir, int n)
{
    char path[640];
    snprintf(path, sizeof path, "mkdir -p %s", dir);
    if (system(path) != 0) return false;
    for (int i = 0; i < n; i++) {
        uint8_t *rgb = image_made(96 + 8 * (i % 3), 80, i), *bytes;
        size_t len;
        int w = 96 + 8 * (i % 3);
        snprintf(path, sizeof path, "%s/%03d.png", dir, i);
        bool ok = image_png(rgb, w, 80, 2, 8, w, 80, &bytes, &len) && image_write(path, bytes, len);
        free(rgb), free(bytes);
        if (!ok) return false;
    }
    return true;
}

/* The bits do not depend on the number of reading threads; a pool gives other batches. */
TEST(stablesr_losses_on_pictures_do_not_depend_on_workers)
{
    if (!pl_test_long()) SKIP("long");
    const char *dir = pl_test_path("pictures");
    char path[640];
    double loss[4][STEPS];
    if (pl_image_missing(PL_IMAGE_PNG)) SKIP("libspng is not installed");

    CHECK(png_folder(dir, 12));
    snprintf(path, sizeof path, "data.path=%s", dir);
    for (int k = 0; k < 4; k++) {
        const char *const o[] = {SMALL_VAE,
                                 path,
                                 "data.crop=pixels",
                                 "data.flip=0.5",
                                 "batch=2",
                                 k == 1 ? "data.workers=3" : "data.workers=0",
                                 k == 2 ? "data.pool=4" : "data.pool=0",
                                 k == 3 ? "degrade.jpeg=[5, 6]" : "degrade.jpeg=[60, 95]"};
        CHECK_OK(losses_of(o, 10, NULL, loss[k], NULL));
    }
    CHECK(memcmp(loss[0], loss[1], sizeof loss[0]) == 0);
    CHECK(loss[0][0] == loss[2][0] && loss[0][1] == loss[2][1]); /* the pool fills */
    CHECK(loss[0][2] != loss[2][2] || loss[0][3] != loss[2][3]);
    CHECK(loss[0][0] != loss[3][0]);
}

/* Whether the training program reads a draw of this name; in a replay draws are inputs. */
static void reads_draw(const char *key, const char *name, bool *reads)
{
    const char *const o[] = {SMALL_VAE, "batch=2", key};
    pl_run *run;
    CHECK_OK(pl_run_open("stablesr/tiny", o, 5, &run));
    run->purpose.goal = PL_GOAL_REPLAY;
    CHECK_OK(pl_run_build(run));
    *reads = false;
    for (int i = 0; i < pl_program_input_count(pl__train(run)); i++)
        *reads |= strcmp(pl_program_input_name(pl__train(run), i), name) == 0;
    pl_run_free(run);
}

/* seed_compat draws the degraded latent twice: once for the noised input and once for the
 * structure encoder. */
TEST(stablesr_seed_compat_draws_the_degraded_latent_twice)
{
    bool once[2] = {false}, twice[2] = {false};
    reads_draw("x_start=lq-shared", "noise_lq", &once[0]);
    reads_draw("x_start=lq-shared", "noise_gt", &once[1]);
    reads_draw("seed_compat=true", "noise_lq", &twice[0]);
    reads_draw("seed_compat=true", "noise_gt", &twice[1]);
    CHECK(once[0] && !once[1] && twice[0] && twice[1]);
}

/* The first loss when the weights of one channel of the new input convolution are 9. */
static void loss_with_channel(const char *compat, int channel, double *loss)
{
    pl_run *run;
    pl_step_info info = {0};
    CHECK_OK(pl_run_open("stablesr/tiny", &compat, 1, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    int slot = pl_store_find(run->store, "unet.inp.weight");
    pl_type t = pl_store_slot(run->store, slot)->type;
    float *w = malloc(pl_type_bytes(&t));
    CHECK_INT(t.dim[3], 8);
    CHECK_OK(pl_session_read_slot(run->session, slot, 0, w, pl_type_bytes(&t)));
    for (int64_t i = 0; i < pl_type_elems(&t); i++)
        if (i % 8 == channel) w[i] = 9;
    CHECK_OK(pl_session_write_slot(run->session, slot, 0, w, pl_type_bytes(&t)));
    free(w);
    CHECK_OK(pl_run_step(run, &info));
    pl_run_free(run);
    *loss = info.loss;
}

/* The original's new input convolution is zero for its first four channels and stays zero,
 * because it is frozen. */
TEST(stablesr_seed_compat_ignores_the_first_four_channels)
{
    if (!pl_test_long()) SKIP("long");
    static const int channel[] = {-1, 3, 4};
    double loss[2][3];
    for (int k = 0; k < 6; k++)
        loss_with_channel(k < 3 ? "seed_compat=true" : "seed_compat=false", channel[k % 3],
                          &loss[k / 3][k % 3]);

    CHECK(loss[0][1] == loss[0][0] && loss[0][2] != loss[0][0]);
    CHECK(loss[1][1] != loss[1][0] && loss[1][2] != loss[1][0]);
}

/* The authors' filter by file size: a shorter file is skipped, or stops the run. */
TEST(stablesr_skips_or_refuses_small_files)
{
    if (!pl_test_long()) SKIP("long");
    const char *dir = pl_test_path("sizes");
    char path[640], least[64];
    double loss[2][STEPS];
    struct stat file;
    if (pl_image_missing(PL_IMAGE_PNG)) SKIP("libspng is not installed");

    CHECK(png_folder(dir, 12));
    snprintf(path, sizeof path, "%s/000.png", dir);
    CHECK_INT(stat(path, &file), 0);

    snprintf(path, sizeof path, "data.path=%s", dir);
    for (int k = 0; k < 3; k++) {
        snprintf(least, sizeof least, "data.min_bytes=%lld", k ? (long long)file.st_size + 1 : 0ll);
        const char *const o[] = {SMALL_VAE, path, "batch=2", least,
                                 k < 2 ? "data.on_bad=skip" : "data.on_bad=fail"};
        pl_status rc = losses_of(o, 7, NULL, loss[k % 2], NULL);
        CHECK_INT(rc, k < 2 ? PL_OK : PL_ERR_DATA);
        if (k == 1) CHECK(memcmp(loss[0], loss[1], sizeof loss[0]) != 0); /* other pictures */
        if (k == 2) CHECK_MSG(strstr(pl_error_text(), "data.min_bytes"), "%s", pl_error_text());
    }
    /* All files are too small: the error names the reason, even with data.on_bad=skip. */
    const char *const none[] = {SMALL_VAE, path, "batch=2", "data.min_side=384",
                                "data.on_bad=skip"};
    CHECK_INT(losses_of(none, 7, NULL, loss[0], NULL), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "data.min_side") && strstr(pl_error_text(), "63 images"),
              "%s", pl_error_text());
}

/* Empty ranges, and patterns that freeze nothing, are refused; an empty pattern freezes nothing
 * on purpose. */
TEST(stablesr_refuses_bad_ranges_and_patterns)
{
    static const struct {
        const char *key, *why;
    } cases[] = {{"degrade.sigma=[3]", "degrade.sigma needs two numbers"},
                 {"degrade.jpeg2=[90, 60]", "degrade.jpeg2 needs two numbers, the smaller first"},
                 {"canny=[200, 100]", "canny: the lower threshold"},
                 {"frozen=unett.*", "frozen=unett.*: no parameter has such a name"},
                 {"optim.frozen=edges.*", "optim.frozen: no parameter has a name like \"edges.*\""},
                 {"frozen=*", "leaves nothing to train"},
                 {"part=vae", "part=vae trains on pictures: set vae.encode=true"},
                 {"frozen=''", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_run *run;
        CHECK_OK(pl_run_open("stablesr/tiny", &cases[i].key, 1, &run));
        CHECK_INT(pl_run_build(run), cases[i].why ? PL_ERR_CONFIG : PL_OK);
        if (cases[i].why)
            CHECK_MSG(strstr(pl_error_text(), cases[i].why), "%s: %s", cases[i].key,
                      pl_error_text());
        pl_run_free(run);
    }
}

enum { BATCHES = 10, PAIRS = 2, PICTURE = 64 * 64 * 3 };

/* Pictures of the first batches, and their edges. */
typedef struct first_pairs {
    float gt[BATCHES * PAIRS][PICTURE], edge[BATCHES * PAIRS][PICTURE];
} first_pairs;

static pl_status see(const char *path, const char *pool, const char *compat, const char *workers,
                     first_pairs *to)
{
    const char *const o[] = {SMALL_VAE,
                             path,
                             "data.crop=pixels",
                             "data.flip=0.5",
                             "batch=2",
                             "canny=[10, 20]",
                             pool,
                             compat,
                             workers,
                             "allow_random_frozen=true"};
    pl_run *run;
    PL_TRY(pl_run_open("stablesr/tiny", o, 12, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int k = 0; k < BATCHES && rc == PL_OK; k++) {
        rc = pl_prefetch_read(run, pl__train(run), k);
        const void *gt = pl_session_input(run->session, pl__train(run), "gt", NULL);
        const void *edge = pl_session_input(run->session, pl__train(run), "edge", NULL);
        if (gt) memcpy(to->gt[k * PAIRS], gt, sizeof to->gt[0] * PAIRS);
        if (edge) memcpy(to->edge[k * PAIRS], edge, sizeof to->edge[0] * PAIRS);
    }
    pl_run_free(run);
    return rc;
}

/* A pair in the pool keeps its edges. In the original, edges are those of the newest batch
 * instead. With seed_compat the step does not read the good picture, so the test identifies
 * pictures by their edges. */
TEST(stablesr_pool_keeps_a_sample_with_its_edges)
{
    if (!pl_test_long()) SKIP("long");
    const char *dir = pl_test_path("pictures");
    char path[640];
    first_pairs *of = malloc(4 * sizeof *of);
    if (pl_image_missing(PL_IMAGE_PNG)) SKIP("libspng is not installed");

    CHECK(of && png_folder(dir, 24));
    memset(of, 0, 4 * sizeof *of);
    snprintf(path, sizeof path, "data.path=%s", dir);
    CHECK_OK(see(path, "data.pool=0", "seed_compat=false", "data.workers=0", &of[0]));
    CHECK_OK(see(path, "data.pool=6", "seed_compat=false", "data.workers=0", &of[1]));
    CHECK_OK(see(path, "data.pool=6", "seed_compat=true", "data.workers=0", &of[2]));
    CHECK_OK(see(path, "data.pool=6", "seed_compat=true", "data.workers=2", &of[3]));
    int mixed = 0, kept = 0;
    for (int i = 0; i < BATCHES * PAIRS; i++) {
        int k = 0;
        while (k < BATCHES * PAIRS && memcmp(of[1].gt[i], of[0].gt[k], sizeof of->gt[0]) != 0) k++;
        CHECK_MSG(k < BATCHES * PAIRS, "sample %d of the pool has not come in", i);
        mixed += k != i;
        kept += memcmp(of[1].edge[i], of[0].edge[k], sizeof of->edge[0]) == 0;
    }
    CHECK_MSG(mixed > 4 && kept == BATCHES * PAIRS,
              "%d of the pool's samples come later, %d keep their edges", mixed, kept);
    CHECK(memcmp(of[2].edge, of[0].edge, sizeof of->edge) == 0);
    CHECK(memcmp(of[2].edge, of[1].edge, sizeof of->edge) != 0);
    CHECK(memcmp(of[2].edge, of[3].edge, sizeof of->edge) == 0);
    free(of);
}

TEST(stablesr_pool_smaller_than_a_batch_is_refused)
{
    const char *dir = pl_test_path("pictures");
    char path[640];
    double loss[STEPS];
    if (pl_image_missing(PL_IMAGE_PNG)) SKIP("libspng is not installed");

    CHECK(png_folder(dir, 4));
    snprintf(path, sizeof path, "data.path=%s", dir);
    CHECK(losses_of((const char *const[]){SMALL_VAE, path, "batch=2", "data.pool=1"}, 6, NULL, loss,
                    NULL) == PL_ERR_CONFIG &&
          strstr(pl_error_text(), "data.pool"));
}

/* The plan counts the host memory of generated pictures and of each reading thread. */
TEST(stablesr_plan_includes_the_host_memory_of_pictures)
{
    if (!pl_test_allocs_counted()) SKIP("a sanitizer allocates memory too");
    const char *dir = pl_test_path("pictures");
    char path[640];
    uint64_t overhead[3];
    if (pl_image_missing(PL_IMAGE_PNG)) SKIP("libspng is not installed");

    CHECK(png_folder(dir, 4));
    snprintf(path, sizeof path, "data.path=%s", dir);
    for (int k = 0; k < 3; k++) {
        pl_run *run;
        const char *const o[] = {"vae.width=32",
                                 "vae.mult=[1, 1, 1, 1]",
                                 "image=512",
                                 "latent=64",
                                 "batch=1",
                                 k ? "vae.encode=true" : "vae.encode=false",
                                 k == 2 ? path : "seed=1",
                                 k == 2 ? "data.workers=4" : "data.workers=0"};
        CHECK_OK(pl_run_open("stablesr/tiny", o, 8, &run));
        CHECK_OK(pl_run_build(run));
        overhead[k] = pl_run_memory_get(run).overhead;
        pl_run_free(run);
    }
    pl_degrade d = pl_degrade_stablesr();
    uint64_t one = pl_degrader_bytes(&d, 512, 512) + pl_canny_bytes(512, 512);
    CHECK_MSG(overhead[1] > overhead[0] + one / 10 * 9, "%llu bytes more for a maker of %llu",
              (unsigned long long)(overhead[1] - overhead[0]), (unsigned long long)one);
    CHECK_MSG(overhead[2] > overhead[0] + 5 * one / 10 * 9,
              "%llu bytes more for five makers of %llu",
              (unsigned long long)(overhead[2] - overhead[0]), (unsigned long long)one);
}

/* Encoding inside the step with less memory gives the same bits. */
TEST(stablesr_encoding_has_the_same_bits_in_less_memory)
{
    if (!pl_test_long()) SKIP("long");
    double keep[STEPS], less[STEPS];
    uint64_t all, now;
    const char *const o[] = {SMALL_VAE, "batch=2"};
    CHECK_OK(losses_of(o, 4, NULL, keep, &all));
    pl_compile_opts c = PL_COMPILE_INIT;
    c.arena_budget = all / 10 * 9;
    CHECK_OK(losses_of(o, 4, &c, less, &now));

    CHECK(now <= c.arena_budget && memcmp(keep, less, sizeof keep) == 0);
}

/* The authors' step: six micro-batches of two, one update; BatchNorm sees two samples at a time. */
TEST(stablesr_full_accumulates_six_micro_batches)
{
    pl_run *run;
    double loss[STEPS], two[STEPS];
    CHECK_OK(pl_run_open("stablesr/full", NULL, 0, &run));

    CHECK_INT(pl_config_int(pl_run_config(run), "batch"), 12);
    CHECK(strcmp(pl_config_text(pl_run_config(run), "accumulate"), "6") == 0);
    pl_run_free(run);

    const char *const o[] = {"batch=12", "accumulate=6", "accumulate_coupled=true"};
    CHECK_OK(pl_run_open("stablesr/tiny", o, 3, &run));
    CHECK_OK(pl_run_build(run));
    pl_run_split split = pl_run_split_get(run);
    CHECK(split.micro == 2 && split.accumulate == 6 && split.effective == 12);
    pl_run_free(run);

    CHECK_OK(losses_of(o, 3, NULL, loss, NULL));
    CHECK_OK(losses_of((const char *const[]){"batch=2"}, 1, NULL, two, NULL));
    CHECK(isfinite(loss[STEPS - 1]) && loss[0] != two[0]);
}

/* ---- memory ------------------------------------------------------------------------------- */
/* Gradients flow through frozen parts, but nothing is kept for gradients of frozen weights:
 * neither inputs of their convolutions nor weight gradients. */
TEST(stablesr_frozen_parts_take_less_memory)
{
    uint64_t arena[2], state[2];
    for (int k = 0; k < 2; k++) {
        pl_run *run;
        const char *const o[] = {"latent=16", "image=128", k ? "frozen=''" : "batch=4",
                                 "model.width=64"};
        CHECK_OK(pl_run_open("stablesr/tiny", o, 4, &run));
        CHECK_OK(pl_run_build(run));
        const pl_plan_info *p = pl_program_plan(pl_run_train_program(run));
        arena[k] = p->keep_all_bytes;
        state[k] = p->state_bytes;
        CHECK_INT(pl_run_parameters(run, true) == pl_run_parameters(run, false), k);
        pl_run_free(run);
    }

    CHECK_MSG(arena[0] < arena[1] - arena[1] / 10 && state[0] < state[1],
              "arena %llu frozen, %llu not", (unsigned long long)arena[0],
              (unsigned long long)arena[1]);
}

/* The allocation that failed on the authors' GPU: one tensor of the original edge processor,
 * 6.00 GiB. */
TEST(stablesr_edge_before_has_the_6_gib_tensor_of_the_original)
{
    if (!pl_test_long()) SKIP("long");
    pl_run *run;
    uint64_t largest = 0;
    const char *const o[] = {"memory=null", "device=rtx4090"};
    CHECK_OK(pl_run_open("stablesr/edge_before", o, 2, &run));
    CHECK_OK(pl_run_build(run));
    const pl_program *p = pl_run_train_program(run);
    for (int i = 0; i < pl_program_plan(p)->buffers; i++) {
        pl_plan_buffer b = pl_program_buffer(p, i);
        if (b.component == PL_COMP_ACTIVATIONS && b.bytes > largest) largest = b.bytes;
    }
    pl_run_free(run);
    CHECK_INT(largest, 6ll << 30);
}

/* The original edge processor inside the whole system: its maps of 1 x 1 are enlarged to latents of
 * 4 x 4. */
TEST(stablesr_full_trains_with_the_original_edge_processor)
{
    if (!pl_test_long()) SKIP("long");
    const char *const before[] = {"edge.processor=before", "batch=2", "image=32", "latent=4"};
    double keep[STEPS], less[STEPS];
    uint64_t arena, smaller;

    CHECK_OK(losses_of(before, 4, NULL, keep, &arena));
    pl_compile_opts o = PL_COMPILE_INIT;
    o.arena_budget = arena / 8 * 7;
    CHECK_OK(losses_of(before, 4, &o, less, &smaller));

    CHECK(smaller < arena && memcmp(keep, less, sizeof keep) == 0);
    CHECK(isfinite(keep[STEPS - 1]));
    pl_run *run;
    CHECK_OK(pl_run_open("stablesr/tiny", before, 1, &run));
    CHECK_OK(pl_run_build(run));
    CHECK(pl_store_find(pl_run_store(run), "edge.first.12.weight") >= 0);
    pl_run_free(run);
}

/* ---- the authors' format ------------------------------------------------------------------ */
/* Pictures that the recipe writes as PNG are the pictures that it trains on. */
TEST(stablesr_generated_pictures_are_trained_on)
{
    const char *dir = pl_test_path("raw");
    char path[640], file[640];
    double loss[STEPS];
    pl_run *run;
    const char *const few[] = {SMALL_VAE, "data.samples=8", "data.eval_samples=4", "batch=2"};
    CHECK_OK(pl_run_open("stablesr/tiny", few, 6, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_generate_raw(run, dir, 0, 0, NULL, NULL));
    pl_run_free(run);

    snprintf(file, sizeof file, "%s/train/000007.png", dir);
    char *bytes;
    size_t n;
    pl_decoder *d;
    pl_image_info info;
    pl_image_limits limits = PL_IMAGE_LIMITS_INIT;
    CHECK_OK(pl_sys_read_file(file, 1 << 20, &bytes, &n));
    CHECK_OK(pl_decoder_new(&d));
    CHECK_OK(pl_image_probe(d, bytes, n, &limits, &info));

    CHECK(info.format == PL_IMAGE_PNG && info.width == 80 && info.height == 80);
    uint8_t *rgb = malloc(80 * 80 * 4), *want = malloc(80 * 80 * 3);
    CHECK_OK(pl_image_decode(d, bytes, n, &info, 80, 80, rgb));
    CHECK_OK(sr_draw(NULL, PL_SUBSET_TRAIN, 7, 80, 80, want, NULL, 0));
    CHECK(memcmp(rgb, want, 80 * 80 * 3) == 0);
    pl_decoder_free(d);
    pl_sys_free(bytes);
    free(rgb), free(want);

    snprintf(path, sizeof path, "data.path=%s", dir);
    CHECK_OK(losses_of((const char *const[]){SMALL_VAE, path, "data.crop=pixels", "batch=2"}, 6,
                       NULL, loss, NULL));
    CHECK(isfinite(loss[STEPS - 1]));
}

/* data.crop=pixels gives a part of the picture, pixel for pixel; in evaluation the middle part. */
TEST(stablesr_crops_without_scaling)
{
    enum { W = 96, H = 80, SIDE = 40 };
    const char *dir = pl_test_path("pictures");
    uint8_t *whole = image_made(W, H, 0), *bytes, part[SIDE * SIDE * 3];
    char path[640];
    size_t n;
    bool seen[W] = {false};
    int places = 0;
    snprintf(path, sizeof path, "mkdir -p %s", dir);

    CHECK_INT(system(path), 0);
    if (!image_png(whole, W, H, 2, 8, W, H, &bytes, &n)) SKIP("libspng is not installed");
    snprintf(path, sizeof path, "%s/000.png", dir);
    CHECK(image_write(path, bytes, n));
    pl_image_set_opts o = {.items = {.path = dir},
                           .limits = PL_IMAGE_LIMITS_INIT,
                           .augment = {.crop = PL_CROP_PIXELS},
                           .threads = 1,
                           .keep_bytes = 1 << 20,
                           .most_w = SIDE,
                           .most_h = SIDE};
    pl_image_set *set;
    CHECK_OK(pl_image_set_open(&o, &set));
    pl_pixels to = {.data = part, .w = SIDE, .h = SIDE, .channels = 3, .bytes = true};
    for (int k = 0; k < 24; k++) {
        pl_image_read r = {.seed = 3, .epoch = k, .to = &to, .n_to = 1};
        CHECK_OK(pl_image_set_read(set, &r));
        int found = -1;
        for (int y = 0; y <= H - SIDE && found < 0; y++)
            for (int x = 0; x <= W - SIDE && found < 0; x++) {
                bool same = true;
                for (int v = 0; v < SIDE && same; v++)
                    same =
                        memcmp(part + v * SIDE * 3, whole + ((y + v) * W + x) * 3, SIDE * 3) == 0;
                if (same) found = x;
            }
        CHECK_MSG(found >= 0, "epoch %d: no part of the picture", k);
        places += !seen[found];
        seen[found] = true;
    }
    CHECK_MSG(places > 8, "%d places of 24", places);
    pl_image_set_close(set);
    free(whole), free(bytes);
}

/* ---- computed once ------------------------------------------------------------------------ */
/* Training from the cache of `plimsoll cache` equals training with the encoder in the step, bit
 * for bit, and the plan has no encoder. */
TEST(stablesr_cache_trains_to_the_bits_of_the_encoder)
{
    if (!pl_test_long()) SKIP("long");
    const char *dir = pl_test_path("cache");
    char key[640];
    double inside[STEPS], cached[STEPS], first[STEPS], pooled[STEPS];
    pl_run *run;
    pl_cache_info info;
    snprintf(key, sizeof key, "data.cache=%s", dir);
    const char *const o[] = {SMALL_VAE, "batch=2", "data.samples=8", "data.eval_samples=2", key};
    CHECK_OK(pl_run_open("stablesr/tiny", o, 7, &run));
    CHECK_OK(pl_run_encode_only(run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_cache(run, NULL, NULL, &info));

    CHECK(pl_nn_count(pl_run_store(run), "vae.encoder.*", false) > 0);
    CHECK_INT(pl_nn_count(pl_run_store(run), "unet.*", false), 0);
    pl_run_free(run);

    CHECK_OK(losses_of(o, 6, NULL, inside, NULL));
    CHECK_OK(losses_of(o, 7, NULL, cached, NULL));
    CHECK(memcmp(inside, cached, sizeof inside) == 0);

    /* A pool works with both in the same way, with edges in the pool and without. */
    memcpy(first, inside, sizeof first);
    for (int k = 0; k < 2; k++) {
        const char *const p[] = {SMALL_VAE,
                                 "batch=2",
                                 "data.samples=8",
                                 "data.eval_samples=2",
                                 "data.pool=4",
                                 k ? "seed_compat=true" : "seed_compat=false",
                                 key};
        CHECK_OK(losses_of(p, 8, NULL, inside, NULL));
        CHECK_OK(losses_of(p, 9, NULL, cached, NULL));
        CHECK(memcmp(inside, cached, sizeof inside) == 0);
        if (!k) memcpy(pooled, inside, sizeof pooled);
    }
    CHECK(pooled[1] == first[1] && memcmp(pooled, first, sizeof first) != 0);

    CHECK_OK(pl_run_open("stablesr/tiny", o, 7, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_INT(pl_nn_count(pl_run_store(run), "vae.*", false), 0);
    pl_run_free(run);
}
