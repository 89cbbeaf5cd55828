/* test_tasks.c - losses and metrics by name against PyTorch's numbers.
 *
 * Outputs are 2 sin(1 + k + 0.7 i), class numbers (i * k + 1) mod K; the expected numbers are those
 * of torch.nn.functional for the same arrays.
 */
#include "plimsoll_tasks.h"
#include "tests/lib/lab.h"
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

typedef struct task_case {
    const char *name, *target; /* target: "classes", "numbers", "bits" or "chances" */
    pl_type output;
    pl_task_opts o;
    int start, times, classes; /* k of the output, k and K of the class numbers */
    double want;
} task_case;

static void fill_output(float *x, int64_t n, int start)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2 * sin(1.0 + start + 0.7 * (double)i));
}

static void fill_target(const task_case *c, void *to, const pl_type *t)
{
    float *x = to;
    int64_t n = pl_type_elems(t);
    if (strcmp(c->target, "classes") == 0) {
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)to)[i] = (int32_t)((i * c->times + 1) % c->classes);
        if (c->o.ignore) ((int32_t *)to)[0] = (int32_t)c->o.ignore;
        return;
    }
    fill_output(x, n, 5);
    for (int64_t i = 0; strcmp(c->target, "bits") == 0 && i < n; i++) x[i] = x[i] > 0;
    int64_t k = t->dim[t->rank - 1];
    for (int64_t row = 0; strcmp(c->target, "chances") == 0 && row < n; row += k) {
        double sum = 0;
        for (int64_t i = 0; i < k; i++) sum += exp((double)x[row + i]);
        for (int64_t i = 0; i < k; i++) x[row + i] = (float)(exp((double)x[row + i]) / sum);
    }
}

/* The value of the loss or of the metric, which may be derived from several outputs. */
static double value_of(const task_case *c)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, false);
    pl_type target = c->output;
    double got = (double)NAN;
    bool loss = pl_task_is_loss(c->name);
    if (!pl_task_target(strcmp(c->target, "classes") == 0 ? "cross_entropy" : "mse", &c->output,
                        c->o, &target))
        return (double)NAN;
    pl_val x = pl_input(g, "x", c->output), y = pl_input(g, "y", target);
    if (loss)
        pl_output(g, "v", pl_task_loss(m, c->name, x, y, c->o));
    else
        pl_task_report(m, c->name, "v", x, y, c->o);
    pl_status rc = pl_nn_finish(m);
    lab *l = lab_new(store);
    lab_add(l, g);
    if (rc == PL_OK) rc = lab_open(l);
    if (rc == PL_OK) {
        fill_output(lab_input(l, 0, "x", NULL), pl_type_elems(&c->output), c->start);
        fill_target(c, lab_input(l, 0, "y", NULL), &target);
        rc = lab_run(l, 0);
    }
    const float *v = rc == PL_OK ? lab_output(l, 0, "v", NULL) : NULL;
    if (v) got = (double)*v;
    if (rc == PL_OK && !v) { /* derived */
        static const char *const known[] = {"nll",   "both.0", "all.0", "both.1",
                                            "all.1", "both.2", "all.2"};
        const char *name[8], *made[4];
        double mean[8], out[4];
        int n = 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if ((v = lab_output(l, 0, known[i], NULL))) {
                name[n] = known[i];
                mean[n++] = (double)*v;
            }
        int k = pl_task_derive(name, mean, n, made, out, 4);
        for (int i = 0; i < k; i++)
            if (strcmp(made[i], c->name) == 0) got = out[i];
    }
    lab_free(l);
    pl_nn_free(m);
    pl_store_free(store);
    return got;
}

static void check_cases(const task_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double got = value_of(&c[i]);
        if (!(fabs(got - c[i].want) < 1e-5 * (1 + fabs(c[i].want))))
            pl_test_fail(__FILE__, __LINE__, "%s of case %zu is %.7f, PyTorch has %.7f", c[i].name,
                         i, got, c[i].want);
    }
}

#define FLAT   PL_TYPE(PL_F32, 4, 6)
#define MAPS   PL_TYPE(PL_F32, 2, 3, 2, 2)
#define TOKENS PL_TYPE(PL_F32, 2, 3, 5)
#define LABELS .target = "classes"

TEST(nn_losses_by_name_are_those_of_pytorch)
{
    const task_case cases[] = {
        {"cross_entropy", LABELS, FLAT, {0}, 0, 5, 6, 2.6316705},
        {"cross_entropy", LABELS, FLAT, {.smoothing = 0.1}, 0, 5, 6, 2.6139464},
        {"cross_entropy", LABELS, MAPS, {0}, 1, 2, 3, 1.8378108},
        {"cross_entropy", LABELS, MAPS, {.ignore = 255}, 1, 2, 3, 1.4468162},
        {"cross_entropy", LABELS, TOKENS, {0}, 2, 3, 5, 1.9018143},
        {"cross_entropy", LABELS, TOKENS, {.ignore_zero = true}, 2, 3, 5, 2.0238054},
        {"dice", LABELS, MAPS, {0}, 1, 2, 3, 0.5418881},
        {"dice", LABELS, MAPS, {.ignore = 255}, 1, 2, 3, 0.4895461},
        {"dice", "bits", FLAT, {0}, 0, 0, 0, 0.3921053},
        {"mse", "numbers", FLAT, {0}, 0, 0, 0, 2.9386618},
        {"l1", "numbers", FLAT, {0}, 0, 0, 0, 1.5614291},
        {"smooth_l1", "numbers", FLAT, {0}, 0, 0, 0, 1.0957812},
        {"bce_with_logits", "bits", FLAT, {0}, 0, 0, 0, 0.7015169},
        {"kl", "chances", FLAT, {0}, 0, 0, 0, 0.8168563},
    };

    check_cases(cases, sizeof cases / sizeof *cases);
}

/* As in a cross-entropy, whose number is not one either. */
TEST(nn_dice_of_a_number_that_is_no_class_is_not_a_number)
{
    const task_case wrong = {"dice", LABELS, MAPS, {0}, 1, 2, 4, 0};
    CHECK(isnan(value_of(&wrong)));
}

TEST(nn_metrics_by_name_are_those_of_pytorch)
{
    const task_case cases[] = {
        {"accuracy", LABELS, FLAT, {0}, 0, 5, 6, 0.5},
        {"top5", LABELS, FLAT, {0}, 0, 5, 6, 0.75},
        {"accuracy", "bits", FLAT, {0}, 0, 0, 0, 0.6666667},
        {"perplexity", LABELS, TOKENS, {0}, 2, 3, 5, 6.6980359},
        {"f1", LABELS, MAPS, {0}, 1, 2, 3, 0.3},
        {"iou", LABELS, MAPS, {0}, 1, 2, 3, 0.1944444},
        {"mae", "numbers", FLAT, {0}, 0, 0, 0, 1.5614291},
        {"psnr", "numbers", FLAT, {.peak = 2}, 0, 0, 0, 1.3885736},
    };

    check_cases(cases, sizeof cases / sizeof *cases);
}

TEST(nn_a_loss_without_a_meaning_for_an_output_is_refused)
{
    pl_type target, one = PL_TYPE(PL_F32, 4), flat = FLAT;

    CHECK(!pl_task_target("cross_entropy", &one, (pl_task_opts){0}, &target));
    CHECK(!pl_task_target("crossentropy", &flat, (pl_task_opts){0}, &target));
    CHECK(pl_task_target("mse", &one, (pl_task_opts){0}, &target) && target.rank == 1);
    CHECK(!pl_task_is_loss("") && !pl_task_is_loss("l") && pl_task_is_loss("kl"));
}
