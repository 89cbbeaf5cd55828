/* test_profiles.c - planning for GPUs that are not in this machine: memory, units, times,
 * refusals. */
#include "base/threads.h"
#include "cuda/codegen/codegen.h"
#include "pass/fuse/fuse.h"
#include "plan/cost/cost_card.h"
#include "plan/cost/kernel_sizes.h"
#include "plimsoll_train.h"
#include "rt/device.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_status build(const char *config, const char *device, const char *memory, pl_run **out)
{
    char a[64], b[64];
    snprintf(a, sizeof a, "device=%s", device);
    snprintf(b, sizeof b, "memory=%s", memory);
    pl_status rc = pl_run_open(config, (const char *const[]){a, b}, 2, out);
    return rc == PL_OK ? pl_run_build(*out) : rc;
}

TEST(profiles_of_every_card_give_a_plan_that_fits)
{
    CHECK_INT(pl_card_count(), 8);
    double slowest = 0, fastest = 1e9;
    for (int i = 0; i < pl_card_count(); i++) {
        const pl_card *card = pl_card_at(i);
        pl_run *run = NULL;
        CHECK_OK(build("cloud/full", card->name, "null", &run));
        pl_run_memory m = pl_run_memory_get(run);
        const pl_plan_info *p = pl_program_plan(pl_run_train_program(run));
        uint64_t staged = pl_program_stage_bytes(pl_run_train_program(run)); /* inputs, again */
        CHECK_MSG(m.fits && m.budget == card->memory_bytes &&
                      m.overhead == card->overhead_bytes + staged &&
                      m.total == m.arena + m.state + m.overhead && m.total <= m.budget,
                  "%s: %llu of %llu bytes, overhead %llu", card->name, (unsigned long long)m.total,
                  (unsigned long long)m.budget, (unsigned long long)m.overhead);
        CHECK_MSG((p->recompute_ratio > 0) == (p->keep_all_bytes + m.state + m.overhead > m.budget),
                  "%s computes %g of its time again", card->name, p->recompute_ratio);
        CHECK_NEAR(p->time_share[PL_TIME_ESTIMATED], 1, 1e-9);
        double ms = pl_run_predicted_ms(run);
        if (ms > slowest) slowest = ms;
        if (ms < fastest) fastest = ms;
        pl_run_free(run);
    }

    CHECK_MSG(fastest > 0 && slowest > 5 * fastest, "from %g to %g ms", fastest, slowest);
}

TEST(profiles_less_memory_takes_longer)
{
    if (!pl_test_long()) SKIP("long");
    static const char *const budgets[] = {"12GB", "8GB", "4GB"};
    double before = 0;
    for (int i = 0; i < 3; i++) {
        pl_run *run = NULL;
        CHECK_OK(build("cloud/full", "rtx4090", budgets[i], &run));
        pl_run_memory m = pl_run_memory_get(run);
        CHECK(m.fits && m.budget < 13000000000u && m.total <= m.budget);
        CHECK_MSG(pl_run_predicted_ms(run) > before, "%s: %g ms, more memory %g ms", budgets[i],
                  pl_run_predicted_ms(run), before);
        before = pl_run_predicted_ms(run);
        pl_run_free(run);
    }
}

/* Products of smaller types are faster where the GPU's figures say so. */
TEST(profiles_predict_less_time_for_smaller_types)
{
    static const char *const precision[] = {"compile.fp32=plain", "precision=fp32",
                                            "precision=tf32", "precision=bf16"};
    double ms[4];
    for (int i = 0; i < 4; i++) {
        pl_run *run = NULL;
        CHECK_OK(
            pl_run_open("cloud/full", (const char *const[]){"device=h200", precision[i]}, 2, &run));
        CHECK_OK(pl_run_build(run));
        ms[i] = pl_run_predicted_ms(run);
        pl_run_free(run);
    }
    CHECK_MSG(ms[0] > ms[1] && ms[1] > ms[2] && ms[2] > ms[3],
              "plain %g, fp32 %g, tf32 %g, bf16 %g ms", ms[0], ms[1], ms[2], ms[3]);
}

/* The figures do not depend on the memory or the threads of the machine that plans. */
TEST(profiles_are_the_same_on_every_machine)
{
    double ms[2];
    uint64_t total[2];

    for (int i = 0; i < 2; i++) {
        pl_run *run = NULL;
        void *ballast = i ? calloc(1, 50 << 20) : NULL;
        if (ballast) memset(ballast, 1, 50 << 20);
        pl_threads_set(i ? 3 : 1);
        CHECK_OK(build("cloud/tiny", "a100", "null", &run));
        ms[i] = pl_run_predicted_ms(run);
        total[i] = pl_run_memory_get(run).total;
        pl_run_free(run);
        free(ballast);
    }
    CHECK(ms[0] == ms[1] && total[0] == total[1]);
}

TEST(profiles_are_found_by_the_names_of_drivers)
{
    static const char *const pairs[][2] = {
        {"Tesla T4", "t4"},
        {"NVIDIA GeForce RTX 4070 Laptop GPU", "rtx4070-laptop"},
        {"NVIDIA GeForce RTX 3090", "rtx3090"},
        {"NVIDIA GeForce RTX 4090", "rtx4090"},
        {"NVIDIA A100-SXM4-80GB", "a100"},
        {"NVIDIA H100 80GB HBM3", "h100"},
        {"NVIDIA H200", "h200"},
        {"NVIDIA B200", "b200"},
        {"NVIDIA GeForce GTX 1080", NULL},
        {"NVIDIA T400", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const pl_card *card = pl_card_find(pairs[i][0]);
        CHECK_MSG(pairs[i][1] ? card && strcmp(card->name, pairs[i][1]) == 0 : !card,
                  "\"%s\" is %s", pairs[i][0], card ? card->name : "unknown");
    }
}

/* The cost of attention as ops/net/attention.c has it. */
static pl_cost attention_cost(double heads, double n, double d, bool causal, bool back, double size)
{
    double pairs = heads * n * n * (causal ? 0.5 : 1), products = back ? 5 : 2;
    return (pl_cost){pairs * (2 * products * d + 12),
                     heads * n * (size * (back ? 8 : 4) * d + 4),
                     back ? PL_WORK_ATTENTION_BACK : PL_WORK_ATTENTION,
                     n,
                     n,
                     d};
}

/* Milliseconds of bench/results/attention.csv: short, causal and long sequences, and f32. */
TEST(profiles_predict_attention_as_it_was_measured)
{
    static const struct {
        double heads, n, d;
        bool causal;
        double forward, backward;
    } measured[] = {{192, 1024, 64, true, 0.088, 0.322},  {1536, 197, 64, false, 0.104, 0.341},
                    {256, 512, 64, true, 0.054, 0.161},   {32, 1024, 64, false, 0.030, 0.105},
                    {64, 2048, 128, true, 0.151, 0.586},  {128, 1024, 16, false, 0.085, 0.342},
                    {48, 8192, 128, false, 2.375, 9.566}, {48, 1024, 80, false, 0.051, 0.183},
                    {16, 16384, 128, true, 1.685, 6.722}, {8, 16384, 64, false, 0.979, 4.173},
                    {64, 4096, 64, true, 0.308, 1.130},   {128, 2048, 64, true, 0.179, 0.647},
                    {128, 2048, 128, true, 0.253, 1.062}, {128, 4096, 128, true, 0.887, 3.747},
                    {24, 8192, 64, false, 0.751, 2.890},  {32, 4096, 64, false, 0.259, 1.142}};
    const pl_card *h = pl_card_find("h200");
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        for (int back = 0; back < 2; back++) {
            pl_cost c = attention_cost(measured[i].heads, measured[i].n, measured[i].d,
                                       measured[i].causal, back, 2);
            double ms = 1e-6 * pl_card_ns(h, &c, PL_BF16, PL_CARD_PLAIN),
                   ratio = ms / (back ? measured[i].backward : measured[i].forward);
            CHECK_MSG(ratio > 0.75 && ratio < 1.35, "row %zu, %d: %g ms, %.2f of it", i, back, ms,
                      ratio);
        }
}

/* The same of f32 in TF32. */
TEST(profiles_predict_rounded_attention_as_it_was_measured)
{
    static const struct {
        double heads, n, d;
        bool causal;
        double forward, backward;
    } measured[] = {{10, 4096, 64, false, 0.178, 0.419},
                    {32, 4096, 64, false, 0.443, 1.116},
                    {40, 1024, 64, false, 0.074, 0.157},
                    {48, 1024, 64, true, 0.072, 0.151},
                    {64, 2048, 128, false, 0.537, 1.216}};
    const pl_card *h = pl_card_find("h200");
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        for (int back = 0; back < 2; back++) {
            pl_cost c = attention_cost(measured[i].heads, measured[i].n, measured[i].d,
                                       measured[i].causal, back, 4);
            double ms = 1e-6 * pl_card_ns(h, &c, PL_F32, PL_CARD_TF32),
                   ratio = ms / (back ? measured[i].backward : measured[i].forward);
            CHECK_MSG(ratio > 0.75 && ratio < 1.35, "row %zu, %d: %g ms, %.2f of it", i, back, ms,
                      ratio);
            CHECK(pl_card_ns(h, &c, PL_F32, PL_CARD_SPLIT) > 1e6 * ms);
        }
}

TEST(profiles_times_follow_the_figures)
{
    const pl_card *h = pl_card_find("h200"), *t = pl_card_find("t4");
    pl_cost copy = {.flops = 1, .bytes = 1e9};

    CHECK_NEAR(pl_card_ns(h, &copy, PL_F32, PL_CARD_PLAIN) /
                   (1e18 / (PL_CARD_MOVES * h->bandwidth)),
               1, 0.02);
    pl_cost product = {
        2.0 * 8192 * 8192 * 8192, 3.0 * 8192 * 8192 * 4, PL_WORK_PRODUCT, 8192, 8192, 8192};
    double f32 = pl_card_ns(h, &product, PL_F32, PL_CARD_PLAIN),
           tf32 = pl_card_ns(h, &product, PL_F32, PL_CARD_TF32);
    double bf16 = pl_card_ns(h, &product, PL_BF16, PL_CARD_PLAIN);
    CHECK_MSG(f32 > tf32 && tf32 > bf16, "%g, %g, %g ns", f32, tf32, bf16);

    double split = pl_card_ns(h, &product, PL_F32, PL_CARD_SPLIT);
    CHECK_MSG(split < 0.75 * f32 && split > 3 * tf32, "%g, %g, %g ns", f32, split, tf32);
    CHECK(pl_card_ns(t, &product, PL_F32, PL_CARD_SPLIT) ==
          pl_card_ns(t, &product, PL_F32, PL_CARD_PLAIN));

    double f16 = pl_card_ns(t, &product, PL_F16, PL_CARD_PLAIN),
           slow = pl_card_ns(t, &product, PL_BF16, PL_CARD_PLAIN);
    double fixed = pl_card_fixed_ns(t, &product);
    CHECK(fixed > t->launch_ns && pl_card_fixed_ns(t, &copy) == t->launch_ns);
    CHECK_NEAR((slow - fixed) / (f16 - fixed) / (t->f16 / t->bf16), 1, 1e-6);

    double rate = product.flops / f32 * 1e9;
    CHECK_MSG(rate > 0.5 * h->f32 && rate < 0.8 * h->f32, "%g FLOP/s of %g", rate, h->f32);
    CHECK(pl_card_ns(t, &product, PL_F32, PL_CARD_PLAIN) > 5 * f32);

    pl_cost none = {0};
    CHECK(pl_card_ns(h, &none, PL_F32, PL_CARD_PLAIN) == 0);

    /* A small product leaves most of a large GPU idle. */
    pl_cost small = {2.0 * 128 * 128 * 4096, 3e6, PL_WORK_PRODUCT, 128, 128, 4096};
    double small_rate =
        small.flops / (pl_card_ns(h, &small, PL_F32, PL_CARD_PLAIN) - pl_card_fixed_ns(h, &small)) *
        1e9;
    CHECK_MSG(small_rate < 0.2 * h->f32, "%g FLOP/s", small_rate);
}

/* Apart from size, these matter: channels in multiples of eight, few channels, wide windows,
 * enough blocks for a GPU, latency. */
TEST(profiles_times_follow_the_shape)
{
    const pl_card *h = pl_card_find("h200");
    const double places = 1 << 17;
#define NS(work, m, n, k, bytes)                                                                   \
 pl_card_ns(h, &(pl_cost){2.0 * (m) * (n) * (k), bytes, work, m, n, k}, PL_BF16, PL_CARD_PLAIN)
    double eights = NS(PL_WORK_CONV, places, 256, 2304, 2e8),
           odd = NS(PL_WORK_CONV, places, 252, 2304, 2e8);

    CHECK_MSG(odd > 5 * eights, "%g ns with channels in eights, %g without", eights, odd);
    double many = NS(PL_WORK_CONV, places, 64, 64, 4e6),
           few = NS(PL_WORK_CONV, places, 64, 32, 4e6);
    CHECK_MSG(few > many, "%g ns for 64 terms, %g for 32", many, few);

    /* Sixty-four uses of an element of the image, or nine. */
    double wide = NS(PL_WORK_CONV_DW, 128, 163840, 32768, 218e6),
           usual = NS(PL_WORK_CONV_DW, 128, 163840, 32768, 1240e6);
    CHECK_MSG(wide > 3 * usual, "%g ns with wide windows, %g with usual ones", wide, usual);

    /* Few keys leave the gradient of keys to few blocks. */
    double pairs = 10.0 * 4096 * 77 * 652;
    pl_cost cross = {pairs, 0, PL_WORK_ATTENTION_BACK, 4096, 77, 64},
            self = {pairs, 0, PL_WORK_ATTENTION_BACK, 562, 562, 64};
    const pl_card *own = pl_card_find("a100"); /* where attention is computed by our own kernels */
    CHECK(pl_card_ns(own, &cross, PL_BF16, PL_CARD_PLAIN) >
          4 * pl_card_ns(own, &self, PL_BF16, PL_CARD_PLAIN));
    CHECK(pl_card_dnn_attends(h, &self, PL_BF16) && !pl_card_dnn_attends(own, &self, PL_BF16));

    pl_cost chain = {20.0 * 32768, 131072, PL_WORK_CHAIN, 32768, 1, 1};
    CHECK_NEAR(pl_card_ns(h, &chain, PL_I32, PL_CARD_PLAIN) / 0.4852e6, 1, 0.05);
#undef NS
}

/* Whole steps, measured on an H200 (bench/pl_costs.c): shares were fitted to kinds of kernels,
 * no sum was fitted. */
TEST(profiles_predict_what_steps_took)
{
    static const struct {
        const char *config, *keys[3];
        double ms;
        bool quick;
    } steps[] = {
        {"cloud/full", {"precision=fp16", "batch=20"}, 27.43, true},
        {"cloud/full", {"precision=bf16", "batch=8"}, 11.57, true},
        {"cloud/full", {"precision=fp32", "batch=8"}, 54.25, false},
        {"wandistill/full", {"precision=fp32", "batch=2"}, 299.1, true},
        {"wandistill/full", {"precision=bf16", "batch=2"}, 59.30, true},
        {"wandistill/small", {"precision=fp32", "seed=1"}, 5.755, false},
        {"stablesr/edge_after", {"precision=fp32", "batch=2"}, 19.74, true},
        {"stablesr/full", {"precision=fp32", "seed=1"}, 703.6, false},
        {"stablesr/full", {"precision=bf16", "seed=1"}, 209.1, false},
        {"lgt/full", {"precision=bf16", "seed=1"}, 63.58, false},
        {"fluxflow/full", {"precision=bf16", "image=256", "gan.decode=twice"}, 81.32, false}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        pl_run *run = NULL;
        if (!steps[i].quick && !pl_test_long()) continue;
        CHECK_OK(pl_run_open(steps[i].config,
                             (const char *const[]){"device=h200", steps[i].keys[0],
                                                   steps[i].keys[1], steps[i].keys[2]},
                             steps[i].keys[2] ? 4 : 3, &run));
        CHECK_OK(pl_run_build(run));
        double ms = pl_run_predicted_ms(run);
        CHECK_MSG(ms > 0.9 * steps[i].ms && ms < 1.1 * steps[i].ms,
                  "%s %s %s: %g ms predicted, %g measured", steps[i].config, steps[i].keys[0],
                  steps[i].keys[1], ms, steps[i].ms);
        pl_run_free(run);
    }
}

/* Bytes of an arena beside its input and result: sums of two million rows need no workspace;
 * sums of 64 columns need a little for each block. */
TEST(profiles_split_sums_where_results_are_few)
{
    pl_compile_opts o = PL_COMPILE_INIT;

    o.device = "h200";
    for (int columns = 0; columns < 2; columns++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_program *p = NULL;
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2 << 20, 64)),
               y = pl_sum(g, pl_mul(g, x, x), columns ? 1 : 2, false);
        pl_output(g, "y", y);
        CHECK_OK(pl_compile(g, &o, &p));
        uint64_t values = ((uint64_t)(2 << 20) * 64 + (columns ? 64 : 2 << 20)) * 4,
                 arena = pl_program_plan(p)->arena_bytes;
        CHECK_MSG(arena >= values && arena - values < (columns ? 1 << 20 : 4096) &&
                      (!columns || arena - values > 4096),
                  "%llu bytes, of them %llu are values", (unsigned long long)arena,
                  (unsigned long long)values);
        pl_program_free(p);
        pl_store_free(store);
    }
}

TEST(profiles_plan_and_refuse_to_run)
{
    pl_run *run = NULL;
    CHECK_OK(build("cloud/tiny", "t4", "null", &run));
    CHECK_INT(pl_run_start(run), PL_ERR_DEVICE);
    CHECK_MSG(strstr(pl_error_text(), "t4") && strstr(pl_error_text(), "plan"), "%s",
              pl_error_text());
    pl_run_free(run);
    CHECK(pl_device_profile("t4") && !pl_device_profile("cpu"));
    const pl_fuse_opts cuda = PL_FUSE_OPTS_CUDA(NULL), *have = pl_device_profile("h200")->fuse;
    CHECK(have->max_row == cuda.max_row && have->max_nodes == cuda.max_nodes &&
          have->max_operands == cuda.max_operands && have->max_instrs == cuda.max_instrs &&
          have->max_repeat == cuda.max_repeat && have->open == cuda.open &&
          have->bits == cuda.bits && have->draws == cuda.draws);
}

/* y = x - the maximum of its row, s = sums of the columns of y: one group. *may: y may overwrite
 * x on the profile. Every entry of the table equals the CUDA device's. */
static void find_take_over(int64_t rows, int64_t columns, bool *may)
{
    const pl_device *t4 = pl_device_profile("t4");
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_arena a = PL_ARENA_INIT;
    pl_units *us = NULL;
    pl_exec exec;
    pl_code code;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, rows, columns)),
           y = pl_sub(g, x, pl_max_over(g, x, 2, true));
    pl_output(g, "y", y), pl_output(g, "s", pl_sum(g, y, 1, false));
    CHECK_OK(pl_graph_status(g));
    CHECK_OK(pl_fuse(g, t4->fuse, &us));
    CHECK_INT(us->n, 1);
    *may = false;
    const pl_unit *u = &us->unit[0];
    CHECK_OK(t4->prepare(g, u, NULL, false, &exec));
    CHECK_OK(pl_code_make(g, u, &a, &code));
    for (uint32_t k = 0; k < u->n_out; k++)
        for (uint32_t i = 0; i < u->n_in; i++) {
            CHECK_INT(exec.inplace[k * u->n_in + i], code.inplace[k * u->n_in + i]);
            *may |= exec.inplace[k * u->n_in + i];
        }
    t4->discard(&exec);
    pl_arena_release(&a);
    pl_units_free(us);
    pl_graph_free(g);
    pl_store_free(store);
}

/* A pass over rows also sums 64 columns. Sums of 30 columns are a separate kernel, which reads x
 * after y is stored. */
TEST(profiles_allow_the_in_place_results_of_the_cuda_device)
{
    bool may;
    find_take_over(4096, 64, &may);
    CHECK(may);
    find_take_over(4096, 30, &may);
    CHECK(!may);
}

/* A T4 multiplies bf16 at the rate of f32, and the plan says so; the time that it predicts for
 * fp16 is close to a plan in fp16. */
TEST(profiles_report_a_faster_precision)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");

    cli_result r = cli_run("$P plan cloud/full --device t4 batch=8 precision=bf16 --json");
    json_t *j = json_loads(r.out, 0, NULL);
    CHECK_MSG(j && json_is_string(json_object_get(j, "faster_precision")), "%s%s", r.out, r.err);
    CHECK_MSG(strcmp(json_string_value(json_object_get(j, "faster_precision")), "fp16") == 0, "%s",
              r.out);

    double slow = json_number_value(json_object_get(j, "predicted_step_ms")),
           told = json_number_value(json_object_get(j, "faster_step_ms"));
    json_decref(j);
    r = cli_run("$P plan cloud/full --device t4 batch=8 precision=fp16 --json");
    j = json_loads(r.out, 0, NULL);
    CHECK_MSG(j && json_is_null(json_object_get(j, "faster_precision")), "%s", r.out);

    double fast = json_number_value(json_object_get(j, "predicted_step_ms"));
    json_decref(j);
    CHECK_MSG(told < 0.5 * slow && told > 0.8 * fast && told < 1.2 * fast,
              "%g ms in bf16, %g told, %g in fp16", slow, told, fast);

    r = cli_run("$P plan cloud/full --device t4 batch=8 precision=bf16");
    CHECK_MSG(strstr(r.out, "bf16 is slow on this GPU: precision=fp16 is predicted to take "), "%s",
              r.out);

    r = cli_run("$P plan cloud/full --device a100 batch=8 precision=bf16");
    CHECK_MSG(r.code == 0 && !strstr(r.out, "is slow"), "%s", r.out);
}

TEST(profiles_are_accepted_on_the_command_line)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");

    cli_result r = cli_run("$P plan cloud/full --device t4 --json");
    CHECK_MSG(r.code == 0, "%s", r.err);
    json_t *j = json_loads(r.out, 0, NULL);
    CHECK(j && strcmp(json_string_value(json_object_get(j, "device")), "t4") == 0);
    CHECK(strcmp(json_string_value(json_object_get(j, "cost_source")), "estimated") == 0);
    CHECK_INT(json_integer_value(json_object_get(j, "budget_bytes")), 15095ll << 20);

    long long staged = json_integer_value(json_object_get(j, "overhead_bytes")) - (340ll << 20);
    CHECK_MSG(staged > 112000000 && staged < 113000000, "%lld bytes besides the card's", staged);
    json_decref(j);
    r = cli_run("$P plan cloud/full --device rtx4070-laptop --sweep 2GB,8GB,24GB --json");
    j = json_loads(r.out, 0, NULL);
    CHECK_MSG(j && json_array_size(j) == 3, "%s", r.out);

    for (size_t i = 0; i < 3; i++) {
        const json_t *row = json_array_get(j, i);
        CHECK(json_is_true(json_object_get(row, "fits")) == (i > 0));
        CHECK_MSG(i == 0 || json_integer_value(json_object_get(row, "peak_bytes")) <= 7937ll << 20,
                  "%s", r.out);
    }
    json_decref(j);
    r = cli_run("$P plan cloud/tiny --device rtx4070-laptop --sweep 1GB,24GB");
    CHECK_MSG(strstr(r.out, "  1GB  yes") && strstr(r.out, " 24GB* yes") &&
                  strstr(r.out, "* the GPU has 8.32 GB"),
              "%s", r.out);

    r = cli_run("$P plan cloud/tiny --device rtx4070-laptop --memory 24GB");
    CHECK_MSG(
        r.code == 0 &&
            strstr(r.out,
                   "fits the budget of 8.32 GB, all the memory of the GPU (requested: 24.0 GB)"),
        "%s", r.out);

    r = cli_run("$P plan cloud/tiny --device rtx4070-laptop --memory 6GB");
    CHECK_MSG(r.code == 0 && strstr(r.out, "fits the budget of 6.00 GB\n"), "%s", r.out);
    r = cli_run("$P plan cloud/tiny --device t4 --largest-batch");
    CHECK_MSG(r.code == 0 && strstr(r.out, "largest batch for 14.7 GiB: "), "code %d: %s%s", r.code,
              r.out, r.err);

    r = cli_run("$P plan cloud/tiny --device t4 --memory 100MB");
    CHECK_MSG(r.code == 3, "exit code %d", r.code);
    r = cli_run("$P train cloud/tiny --device t4 --out %s/run", pl_test_dir());
    CHECK_MSG(r.code == 4 && strstr(r.err, "profile"), "exit code %d: %s", r.code, r.err);

    r = cli_run("ls %s/run", pl_test_dir());
    CHECK_MSG(r.code != 0, "a folder was made for a run that cannot be");
    r = cli_run("$P plan cloud/tiny --device gtx1");
    CHECK_MSG(r.code == 4 && strstr(r.err, "rtx3090"), "%s", r.err);

    r = cli_run("$P devices --profiles --json");
    j = json_loads(r.out, 0, NULL);
    CHECK_INT(json_array_size(j), 8);
    CHECK(json_is_false(json_object_get(json_array_get(j, 0), "usable")));
    json_decref(j);
}

/* The GPU kernel and the plan for a GPU that is not in this machine slice in the same way: both
 * call this function. */
TEST(attention_slices_divide_heads_and_batches_and_keep_the_scratch_limit)
{
    static const int64_t sizes[][4] = {{2, 16, 4096, 4096}, {16, 12, 1024, 1024},
                                       {256, 6, 197, 197},  {512, 7, 1024, 900},
                                       {2, 5, 4096, 4096},  {3, 1, 64, 128}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t *z = sizes[i];
        pl_attend_dnn_slice s = pl_attend_dnn_slice_of(z[0], z[1], z[2], z[3]);
        CHECK(s.batch > 0 && s.heads > 0 && z[0] % s.batch == 0 && z[1] % s.heads == 0);
        CHECK(s.bytes <= PL_ATTEND_DNN_SCRATCH);
        CHECK(s.bytes >= 2 * s.batch * s.heads * z[2] * z[3]);
    }

    pl_attend_dnn_slice most = pl_attend_dnn_slice_of(2, 16, 4096, 4096);
    CHECK_INT(most.batch * most.heads, 8);
    pl_attend_dnn_slice prime = pl_attend_dnn_slice_of(2, 5, 4096, 4096);
    CHECK_INT(prime.batch, 1);
    CHECK_INT(prime.heads, 5);
    CHECK_INT(pl_attend_dnn_slice_of(1, 1, 16384, 16384).batch, 0); /* one head is too large */
    CHECK_INT(pl_attend_dnn_slice_of(1, 7, 9000, 9000).batch, 0);   /* too few blocks at a time */
    /* As measured: causal from 1024 tokens on with many heads, others later; larger heads later. */
    CHECK(pl_attend_wg_is_faster(192, 1024, 1024, 64, true));
    CHECK(!pl_attend_wg_is_faster(48, 1024, 1024, 64, true));
    CHECK(!pl_attend_wg_is_faster(128, 1024, 1024, 64, false));
    CHECK(pl_attend_wg_is_faster(32, 4096, 4096, 64, false));
    CHECK(pl_attend_wg_is_faster(128, 2048, 2048, 128, true));
    CHECK(!pl_attend_wg_is_faster(128, 2048, 2048, 128, false));
    CHECK(!pl_attend_wg_is_faster(32, 8192, 8192, 256, true)); /* no warpgroup kernel */
}

TEST(attention_sums_of_queries_lie_in_scratch)
{
    /* 130 queries in three tiles, 200 keys in two blocks of 192 */
    pl_attend_wg_work w = pl_attend_wg_work_of(6, 130, 200, 40);
    CHECK(w.sums_at >= 6 * 130 * 8 && w.counts_at - w.sums_at >= 6 * 192 * 64 * 4);
    CHECK(w.bytes - w.counts_at >= 4 * (1 + 6 * 2 * PL_ATTEND_WG_ORDERS));
    CHECK(w.sums_at % 256 == 0 && w.counts_at % 256 == 0);
    /* one block of keys has nothing to add to */
    w = pl_attend_wg_work_of(6, 130, 128, 128);
    CHECK_INT(w.counts_at, w.sums_at);
    CHECK(pl_attend_wg_work_of(6, 130, 129, 128).counts_at > w.counts_at);
}
