/* test_trial.c - the choice among kernels by time (cuda/device/trial.h), on kernels whose times the
 * tests set: when alternatives are tried, which one is taken, what is stored. */
#include "cuda/device/cuda.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

/* The file under test for this file alone, with choices in memory and times from a table. */
#define pl_cuda_kernel_by_time trial_kernel_by_time
#define pl_cuda_choice_get     trial_choice_get
#define pl_cuda_choice_put     trial_choice_put
#define pl_cuda_time_few       trial_time_few
#define pl_cuda_time           trial_time
#define pl_cuda_time_left      trial_time_left
#include "cuda/device/trial.c"

enum { FIRST, SECOND, THIRD, KERNELS };
static struct {
    double ms[KERNELS]; /* negative: the kernel fails */
    int runs[KERNELS], prepared, released, last, fine;
    int limited, left; /* measurements before the time is spent, where it is limited */
    char key[512], value[48];
} sim;

bool pl_cuda_choice_get(const char *key, char *value, size_t cap)
{
    if (strcmp(key, sim.key) != 0) return false;
    snprintf(value, cap, "%s", sim.value);
    return true;
}

void pl_cuda_choice_put(const char *key, char *value, size_t cap)
{
    (void)cap;
    snprintf(sim.key, sizeof sim.key, "%s", key);
    snprintf(sim.value, sizeof sim.value, "%s", value);
}

bool pl_cuda_time_left(void)
{
    return !sim.limited || sim.left > 0;
}

pl_status pl_cuda_time_few(pl_status (*go)(void *ctx), void *ctx, float *ms)
{
    sim.left--;
    PL_TRY(go(ctx));
    *ms = (float)sim.ms[sim.last];
    return PL_OK;
}

/* Fine measurements are those of the table, too. */
pl_status pl_cuda_time(pl_status (*go)(void *ctx), void *ctx, float *ms)
{
    sim.fine++;
    return pl_cuda_time_few(go, ctx, ms);
}

static pl_status ran(int which, const pl_call *c)
{
    sim.last = which;
    sim.runs[which]++;
    /* zeroed inputs, room for the results and the scratch */
    const float *x = c->in[0];
    for (int i = 0; i < 8; i++)
        if (x[i] != 0) return PL_ERR_DEVICE;
    memset(c->out[0], 1, pl_type_bytes(&c->out_type[0]));
    memset(c->work, 1, 100);
    return sim.ms[which] < 0 ? PL_ERR_DEVICE : PL_OK;
}
static pl_status run_first(const pl_call *c)
{
    return ran(FIRST, c);
}
static pl_status run_second(const pl_call *c)
{
    return ran(SECOND, c);
}
static pl_status run_third(const pl_call *c)
{
    return ran(THIRD, c);
}
static pl_status get_much(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)c;
    sim.prepared++;
    *prep = &sim;
    *work_bytes = 4 * PL_CUDA_WORK_BYTES;
    return PL_OK;
}
static pl_status get_ready(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)c;
    sim.prepared++;
    *prep = &sim;
    *work_bytes = 100;
    return PL_OK;
}
static void done(void *prep)
{
    (void)prep;
    sim.released++;
}
static bool never(const pl_call *c)
{
    (void)c;
    return false;
}

static const pl_kernel first = {"first", NULL, get_ready, done, run_first};
static const pl_kernel others[] = {{"first", NULL, get_ready, done, run_first},
                                   {"second", NULL, get_ready, done, run_second},
                                   {"third", NULL, get_ready, done, run_third},
                                   PL_KERNEL_END};
static const pl_kernel large[] = {{"second", NULL, get_much, done, run_second}, PL_KERNEL_END};
static const pl_kernel refused[] = {{"second", never, get_ready, done, run_second}, PL_KERNEL_END};

/* Tries the kernels with these times; predicted: 1 ms. Returns the name of the kernel taken. */
static bool all; /* of the next trials */
static double exact;
static const char *taken(double a, double b, double c, const pl_kernel *list, double *ms)
{
    static const pl_op op = {.name = "op"};
    pl_type in = PL_TYPE(PL_F32, 2, 4), out = PL_TYPE(PL_F32, 3);
    pl_call call = {.in_type = &in, .out_type = &out, .n_in = 1, .n_out = 1};
    pl_cuda_trial t = {.op = &op,
                       .call = &call,
                       .expected = &first,
                       .alternatives = list,
                       .expected_ms = 1,
                       .exact_ms = exact,
                       .all = all};
    const pl_kernel *k = NULL;
    sim.ms[FIRST] = a, sim.ms[SECOND] = b, sim.ms[THIRD] = c;
    memset(sim.runs, 0, sizeof sim.runs);
    pl_cuda_kernel_by_time(&t, &k, ms);
    return sim.prepared == sim.released ? k->name : "not released";
}

static void forget(void)
{
    memset(&sim, 0, sizeof sim);
}

TEST(cuda_kernels_near_their_predicted_time_stay_without_a_search)
{
    double ms;
    forget();
    CHECK(strcmp(taken(1.1, 0.1, 0.1, others, &ms), "first") == 0);
    CHECK(ms == 0);
    forget();
    CHECK(strcmp(taken(1.4, 0.1, 0.1, others, &ms), "first") == 0);
    CHECK(ms > 1.3 && ms < 1.5); /* the plan uses the measured time */
    CHECK(sim.runs[FIRST] == 1 && !sim.runs[SECOND] && !sim.runs[THIRD]);
    /* stored: the next program does not run the kernel again */
    CHECK(strcmp(taken(9, 0.1, 0.1, others, &ms), "first") == 0);
    CHECK_INT(sim.runs[FIRST], 0);
}

TEST(cuda_kernels_far_slower_than_predicted_are_replaced_by_the_fastest)
{
    double ms;
    forget();
    CHECK(strcmp(taken(30, 8, 2.5, others, &ms), "third") == 0);
    CHECK(ms > 2.4 && ms < 2.6); /* also far off: the plan uses the measured time */
    CHECK(strcmp(taken(0, 0, 0, others, &ms), "third") == 0);
    CHECK(ms > 2.4 && !sim.runs[FIRST] && !sim.runs[THIRD]);
    forget();
    CHECK(strcmp(taken(30, 1.1, 1.03, others, &ms), "second") ==
          0); /* 7 % do not change the choice */
    CHECK(ms == 0);
    forget();
    CHECK(strcmp(taken(0.5, 0.1, 0.1, others, &ms), "first") == 0);
    CHECK(ms > 0.4 && ms < 0.6); /* faster than predicted: no search, the measured time counts */
    forget();
    CHECK(strcmp(taken(30, 25, 29, others, &ms), "first") == 0); /* nor do 20 % */
    CHECK(ms > 29.9);
}

TEST(cuda_kernels_that_fail_or_refuse_are_not_chosen)
{
    double ms;
    forget();
    CHECK(strcmp(taken(30, -1, 3, others, &ms), "third") == 0);
    forget();
    CHECK(strcmp(taken(30, 1, 1, refused, &ms), "first") == 0);
    forget();
    CHECK(strcmp(taken(-1, 1, 1, others, &ms), "first") == 0); /* no time to compare with */
    CHECK(ms == 0 && !sim.key[0]);
}

TEST(cuda_kernels_with_much_workspace_must_save_much_time)
{
    double ms; /* 256 MiB must save 0.54 ms */
    forget();
    CHECK(strcmp(taken(1.6, 1.2, 0, large, &ms), "first") == 0);
    forget();
    CHECK(strcmp(taken(1.6, 1.0, 0, large, &ms), "second") == 0);
}

TEST(cuda_kernels_are_not_searched_further_than_the_first_that_is_not_slow)
{
    double ms;
    forget();
    CHECK(strcmp(taken(30, 1.2, 0.5, others, &ms), "second") == 0);
    CHECK_INT(sim.runs[THIRD], 0);
}

/* When the time for measuring is spent, the best kernel so far stays, in later runs, too. */
TEST(cuda_kernels_are_chosen_within_a_limit_of_time)
{
    double ms;
    forget();
    sim.limited = 1, sim.left = 2;
    CHECK(strcmp(taken(30, 8, 2.5, others, &ms), "second") == 0);
    CHECK_INT(sim.runs[THIRD], 0);
    forget();
    sim.limited = 1;
    CHECK(strcmp(taken(30, 8, 2.5, others, &ms), "first") == 0);
    CHECK(ms == 0 && sim.runs[FIRST] == 0);
    sim.limited = 0;
    CHECK(strcmp(taken(30, 8, 2.5, others, &ms), "first") == 0); /* stored */
    CHECK_INT(sim.runs[FIRST], 0);
}

/* A TF32 kernel as fast as predicted, but slower than predicted for f32: the trial times the f32
 * kernels too and takes the faster one. */
TEST(cuda_kernels_in_tf32_are_not_slower_than_those_in_f32)
{
    double ms;
    exact = 1.2;
    forget();
    CHECK(strcmp(taken(1.4, 1.25, 1.0, others, &ms), "second") == 0);
    CHECK(sim.runs[SECOND] == 1 && sim.runs[THIRD] == 0);
    forget();
    CHECK(strcmp(taken(1.4, 1.35, 1.2, others, &ms), "third") == 0);
    forget();
    CHECK(strcmp(taken(1.21, 0.1, 0.1, others, &ms), "first") == 0); /* not slower: no search */
    CHECK_INT(sim.runs[SECOND], 0);
    exact = 0;
    forget();
    CHECK(strcmp(taken(1.4, 1.1, 1.1, others, &ms), "first") == 0); /* without TF32 no search */
}

/* Of attention: every kernel is timed, and a few percent decide. */
TEST(cuda_kernels_of_an_op_that_times_all_are_chosen_by_small_differences)
{
    double ms;
    all = true;
    forget();
    CHECK(strcmp(taken(1.0, 1.1, 0.9, others, &ms), "third") == 0);
    CHECK(sim.runs[FIRST] == 1 && sim.runs[SECOND] == 1 && sim.runs[THIRD] == 1);
    CHECK_INT(sim.fine, 3);
    CHECK(strcmp(taken(0.1, 9, 9, others, &ms), "third") == 0); /* stored */
    forget();
    CHECK(strcmp(taken(1.0, 0.97, 0.98, others, &ms), "first") == 0); /* noise does not decide */
    forget();
    CHECK(strcmp(taken(1.0, 0.9, 0.87, others, &ms), "second") == 0);
    all = false;
}
