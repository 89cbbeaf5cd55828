/* tasks.c - losses and metrics by name; see plimsoll_tasks.h.
 *
 * Outputs come with their classes along any axis; they are brought to [.., K] first. Scores of
 * classes are counted as two means per class, the elements that prediction and target share
 * (both.k) and the sum of the elements that each has (all.k): from their means over the evaluation
 * follow the F1 score, 2 both / all, and the intersection over union, both / (all - both).
 */
#include "plimsoll_tasks.h"

#include "base/sys.h"
#include "nn/nn.h"

#include <math.h>
#include <string.h>

static const char losses[] = "cross_entropy|mse|l1|smooth_l1|bce_with_logits|kl|dice";
static const char metrics[] = "accuracy|top5|f1|iou|mae|psnr|perplexity";

const char *pl_task_losses(void)
{
    return losses;
}

const char *pl_task_metrics(void)
{
    return metrics;
}

static bool among(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; n; at++) {
        size_t len = strcspn(at, "|");
        if (len == n && memcmp(at, name, n) == 0) return true;
        at += len;
        if (!*at) return false;
    }
    return false;
}

bool pl_task_is_loss(const char *name)
{
    return among(losses, name);
}

bool pl_task_is_metric(const char *name)
{
    return among(metrics, name);
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool is_whole(pl_dtype d)
{
    return d == PL_I32 || d == PL_I64;
}

/* ---- shapes --------------------------------------------------------------------------------- */
/* The axis of classes, -1: the output has none. */
static int axis_of(const pl_type *output, pl_task_opts o)
{
    int axis = o.axis ? o.axis : output->rank == 3 ? 2 : 1;
    if (axis < 0) axis += output->rank;
    return axis >= 0 && axis < output->rank ? axis : -1;
}

bool pl_task_target(const char *loss, const pl_type *output, pl_task_opts o, pl_type *target)
{
    int axis = axis_of(output, o);
    if (!pl_task_is_loss(loss)) return false;
    *target = *output;
    target->dtype = PL_F32;
    bool classes =
        is(loss, "cross_entropy") || (is(loss, "dice") && axis >= 0 && output->dim[axis] > 1);
    if (is(loss, "kl")) return axis >= 0;
    if (!classes) return true;
    if (axis < 0) return false;
    target->dtype = PL_I32;
    target->rank = output->rank - 1;
    for (int i = axis; i < target->rank; i++) target->dim[i] = output->dim[i + 1];
    return true;
}

/* x with the axis of classes last. */
static pl_val classes_last(pl_graph *g, pl_val x, pl_task_opts o)
{
    int perm[PL_MAX_RANK], n = 0;
    if (!pl_val_ok(x)) return x;
    pl_type t = pl_val_type(g, x);
    int axis = axis_of(&t, o);
    if (axis < 0 || axis == t.rank - 1) return x;
    for (int i = 0; i < t.rank; i++)
        if (i != axis) perm[n++] = i;
    perm[n] = axis;
    return pl_permute(g, x, perm);
}

static pl_val full(pl_nn *m, pl_val x)
{
    return pl_cast(m->g, x, m->dtype == PL_F64 ? PL_F64 : PL_F32);
}

static pl_val mean_all(pl_graph *g, pl_val x)
{
    return pl_mean(g, x, PL_AXES_ALL, false);
}

/* ---- losses --------------------------------------------------------------------------------- */
/* 1 where the target has class k: [.., K]. */
static pl_val one_hot(pl_nn *m, pl_val target, int64_t classes)
{
    pl_dtype d = pl_val_type(m->g, target).dtype;
    pl_val k = pl_iota(m->g, PL_TYPE(d, classes), 0);
    return full(m, pl_eq(m->g, pl_unsqueeze(m->g, target, -1), k));
}

/* 1 where the target counts; PL_NO_VAL: everywhere. */
static pl_val counted(pl_nn *m, pl_val target, pl_task_opts o)
{
    if (!o.ignore && !o.ignore_zero) return PL_NO_VAL;
    return full(m, pl_ne(m->g, target, pl_full_like(m->g, target, (double)o.ignore)));
}

static uint32_t axes_but_last(int rank)
{
    uint32_t axes = 0;
    for (int i = 0; i + 1 < rank; i++) axes |= PL_AXIS(i);
    return axes;
}

/* Whether a target that counts has no class in its one-hot row, want. */
static pl_val not_classes(pl_nn *m, pl_val want, pl_val counts)
{
    pl_graph *g = m->g;
    pl_val known = pl_sum(g, want, PL_AXIS(-1), false);
    if (pl_val_ok(counts)) known = pl_max(g, known, pl_shift(g, pl_neg(g, counts), 1));
    pl_val missing = pl_max_over(g, pl_neg(g, known), PL_AXES_ALL, false);
    return pl_gt(g, missing, pl_full_like(g, missing, -0.5));
}

static pl_val dice(pl_nn *m, pl_val x, pl_val target, pl_task_opts o)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, target);
    pl_val p, want = target, wrong = PL_NO_VAL;
    uint32_t axes = PL_AXES_ALL;
    if (is_whole(t.dtype)) {
        x = classes_last(g, x, o);
        pl_type out = pl_val_type(g, x);
        pl_val counts = counted(m, target, o);
        p = pl_softmax(g, x, -1);
        if (pl_val_ok(counts)) p = pl_mul(g, p, pl_unsqueeze(g, counts, -1));
        want = one_hot(m, target, out.dim[out.rank - 1]);
        wrong = not_classes(m, want, counts);
        axes = axes_but_last(out.rank);
    } else {
        p = pl_sigmoid(g, x);
    }
    pl_val both = pl_sum(g, pl_mul(g, p, want), axes, false);
    pl_val all = pl_add(g, pl_sum(g, p, axes, false), pl_sum(g, want, axes, false));
    pl_val score = pl_div(g, pl_shift(g, pl_scale(g, both, 2), 1), pl_shift(g, all, 1));
    pl_val loss = pl_shift(g, pl_neg(g, mean_all(g, score)), 1);
    if (!pl_val_ok(wrong)) return loss;
    return pl_select(g, wrong, pl_full_like(g, loss, (double)NAN), loss);
}

/* The sum over classes of t (log t - log softmax(x)); a probability of 0 adds nothing. */
static pl_val divergence(pl_nn *m, pl_val x, pl_val target, pl_task_opts o)
{
    pl_graph *g = m->g;
    pl_val logp = pl_log_softmax(g, classes_last(g, x, o), -1);
    pl_val t = classes_last(g, target, o);
    pl_val logt = pl_log(g, pl_max(g, t, pl_full_like(g, t, 1e-30)));
    pl_val each = pl_mul(g, t, pl_sub(g, logt, logp));
    return mean_all(g, pl_sum(g, each, PL_AXIS(-1), false));
}

pl_val pl_task_class_weights(pl_nn *m, const char *name, int n, const double *weights)
{
    pl_type t = PL_TYPE(PL_F32, n);
    float *w = n > 0 ? pl_sys_alloc(pl_type_bytes(&t)) : NULL;
    if (!w) return pl_nn_fail(m, PL_ERR_MEMORY, "no memory for the weights of %d classes", n);
    for (int i = 0; i < n; i++) w[i] = (float)weights[i];
    pl_init init = {.kind = PL_INIT_DATA, .data = w};
    int slot =
        pl__nn_slot(m, pl_nn_name(m, "class_weights.%s", name), t, PL_SLOT_COUNTER, init, NULL);
    pl_sys_free(w);
    return pl_nn_read(m, slot);
}

pl_val pl_task_loss(pl_nn *m, const char *loss, pl_val output, pl_val target, pl_task_opts o)
{
    pl_graph *g = m->g;
    if (!pl_val_ok(output) || !pl_val_ok(target)) return PL_NO_VAL;
    if (!pl_task_is_loss(loss))
        return pl_nn_fail(m, PL_ERR_CONFIG, "there is no loss \"%s\" (%s)", loss, losses);
    /* cross_entropy computes in f32 for every type of its logits, which may be large */
    bool classes = is(loss, "cross_entropy");
    pl_scope_push(g, "loss");
    if (!classes) pl_scope_full(g);
    pl_val x = full(m, output), value;
    if (classes)
        value = pl_loss_cross_entropy_with(g, classes_last(g, x, o), target,
                                           (pl_cross_entropy){.smoothing = o.smoothing,
                                                              .ignore = o.ignore,
                                                              .ignore_zero = o.ignore_zero,
                                                              .weight = o.weight});
    else if (is(loss, "dice"))
        value = dice(m, x, target, o);
    else if (is(loss, "kl"))
        value = divergence(m, x, full(m, target), o);
    else if (is(loss, "smooth_l1"))
        value = mean_all(g, pl_loss_smooth_l1(g, x, full(m, target), o.beta > 0 ? o.beta : 1));
    else if (is(loss, "bce_with_logits"))
        value = pl_loss_bce_with_logits(g, x, full(m, target));
    else
        value = is(loss, "mse") ? pl_loss_mse(g, x, full(m, target))
                                : pl_loss_l1(g, x, full(m, target));
    pl_scope_pop(g);
    return value;
}

/* ---- metrics -------------------------------------------------------------------------------- */
bool pl_task_measures(const char *metric, const pl_type *output, const pl_type *target,
                      pl_task_opts o)
{
    int axis = axis_of(output, o);
    bool classes = is_whole(target->dtype) && axis >= 0;
    if (is(metric, "top5")) return classes && output->dim[axis] > 5;
    if (is(metric, "perplexity")) return classes;
    if (is(metric, "mae") || is(metric, "psnr")) return !is_whole(target->dtype);
    return pl_task_is_metric(metric);
}

/* The mean of `hit` over the elements that count. */
static pl_val share(pl_nn *m, pl_val hit, pl_val target, pl_task_opts o)
{
    pl_graph *g = m->g;
    pl_val counts = counted(m, target, o);
    if (!pl_val_ok(counts)) return mean_all(g, hit);
    pl_val n = pl_sum(g, counts, PL_AXES_ALL, false);
    pl_val sum = pl_sum(g, pl_mul(g, hit, counts), PL_AXES_ALL, false);
    return pl_div(g, sum, pl_max(g, n, pl_full_like(g, n, 1)));
}

/* 1 where the target is among the k largest. */
static pl_val within(pl_nn *m, pl_val x, pl_val target, int64_t k)
{
    pl_graph *g = m->g;
    pl_val values, which;
    if (k == 1) /* computed in chunks where the logits are */
        which = pl_unsqueeze(g, pl_argmax(g, x, -1), -1);
    else
        pl_topk(g, x, k, -1, &values, &which);
    which = pl_cast(g, which, pl_val_type(g, target).dtype);
    pl_val hit = full(m, pl_eq(g, which, pl_unsqueeze(g, target, -1)));
    return pl_max_over(g, hit, PL_AXIS(-1), false);
}

/* 1 where a number says yes: a logit above 0, a target above 0.5. */
static pl_val yes(pl_nn *m, pl_val x, double above)
{
    return full(m, pl_gt(m->g, x, pl_full_like(m->g, x, above)));
}

/* Predictions and targets as 0 and 1: [.., K], or [.., 1] for one class. */
static void as_sets(pl_nn *m, pl_val x, pl_val target, pl_task_opts o, pl_val *got, pl_val *want)
{
    pl_graph *g = m->g;
    if (!is_whole(pl_val_type(g, target).dtype)) {
        *got = pl_unsqueeze(g, yes(m, x, 0), -1);
        *want = pl_unsqueeze(g, yes(m, target, 0.5), -1);
        return;
    }
    x = classes_last(g, x, o);
    pl_type t = pl_val_type(g, x);
    pl_val counts = counted(m, target, o);
    *got = one_hot(m, pl_argmax(g, x, t.rank - 1), t.dim[t.rank - 1]);
    *want = one_hot(m, target, t.dim[t.rank - 1]);
    if (pl_val_ok(counts)) *got = pl_mul(g, *got, pl_unsqueeze(g, counts, -1));
}

/* The scores of a batch, as a mean over the classes that it has. */
static void report_batch(pl_nn *m, const char *metric, pl_val both, pl_val all)
{
    pl_graph *g = m->g;
    bool f1 = is(metric, "f1");
    pl_val top = f1 ? pl_scale(g, both, 2) : both, bottom = f1 ? all : pl_sub(g, all, both);
    pl_val there = full(m, pl_gt(g, all, pl_full_like(g, all, 0)));
    pl_val tiny = pl_full_like(g, bottom, 1e-12);
    pl_val sum = pl_sum(g, pl_div(g, top, pl_max(g, bottom, tiny)), PL_AXES_ALL, false);
    pl_val n = pl_sum(g, there, PL_AXES_ALL, false);
    pl_output(g, f1 ? "f1_batch" : "iou_batch",
              pl_div(g, sum, pl_max(g, n, pl_full_like(g, n, 1))));
}

static void report_sets(pl_nn *m, const char *metric, pl_val x, pl_val target, pl_task_opts o)
{
    pl_graph *g = m->g;
    pl_val got, want;
    as_sets(m, x, target, o, &got, &want);
    if (!pl_val_ok(got) || !pl_val_ok(want)) return;
    pl_type t = pl_val_type(g, got);
    uint32_t axes = axes_but_last(t.rank);
    pl_val both = pl_mean(g, pl_mul(g, got, want), axes, false);
    pl_val all = pl_mean(g, pl_add(g, got, want), axes, false);
    if (t.dim[t.rank - 1] > PL_TASK_CLASSES) {
        report_batch(m, metric, both, all);
        return;
    }
    for (int k = 0; k < t.dim[t.rank - 1]; k++) {
        pl_output(g, pl_nn_name(m, "both.%d", k),
                  pl_squeeze(g, pl_slice(g, both, 0, k, k + 1, 1), 0));
        pl_output(g, pl_nn_name(m, "all.%d", k),
                  pl_squeeze(g, pl_slice(g, all, 0, k, k + 1, 1), 0));
    }
}

/* The mean over samples of 10 log10(peak^2 / mean squared difference). */
static pl_val psnr(pl_nn *m, pl_val x, pl_val target, pl_task_opts o)
{
    pl_graph *g = m->g;
    double peak = o.peak > 0 ? o.peak : 1;
    pl_type t = pl_val_type(g, x);
    uint32_t axes = 0;
    for (int i = 1; i < t.rank; i++) axes |= PL_AXIS(i);
    pl_val e = pl_square(g, pl_sub(g, x, target));
    if (axes) e = pl_mean(g, e, axes, false);
    e = pl_log(g, pl_max(g, e, pl_full_like(g, e, 1e-12 * peak * peak)));
    return pl_shift(g, pl_scale(g, mean_all(g, e), -10 / log(10)), 20 * log10(peak));
}

void pl_task_report(pl_nn *m, const char *metric, const char *name, pl_val output, pl_val target,
                    pl_task_opts o)
{
    pl_graph *g = m->g;
    if (!pl_val_ok(output) || !pl_val_ok(target)) return;
    pl_type out = pl_val_type(g, output), want = pl_val_type(g, target);
    if (!pl_task_measures(metric, &out, &want, o)) {
        pl_nn_fail(m, PL_ERR_CONFIG, "metric %s has no meaning for this output (%s)", metric,
                   metrics);
        return;
    }
    /* the largest of some logits: read as the loss reads them */
    bool classes = is(metric, "accuracy") || is(metric, "top5") || is(metric, "perplexity");
    pl_scope_push(g, "metrics");
    if (!classes || !is_whole(want.dtype)) pl_scope_full(g);
    pl_val x = full(m, output);
    if (!name) name = metric;
    if (is(metric, "f1") || is(metric, "iou"))
        report_sets(m, metric, x, target, o);
    else if (is(metric, "perplexity"))
        pl_output(
            g, "nll",
            pl_task_loss(
                m, "cross_entropy", x, target,
                (pl_task_opts){.axis = o.axis, .ignore = o.ignore, .ignore_zero = o.ignore_zero}));
    else if (is(metric, "mae"))
        pl_output(g, name, mean_all(g, pl_abs(g, pl_sub(g, x, full(m, target)))));
    else if (is(metric, "psnr"))
        pl_output(g, name, psnr(m, x, full(m, target), o));
    else if (is_whole(want.dtype))
        pl_output(g, name,
                  share(m, within(m, classes_last(g, x, o), target, is(metric, "top5") ? 5 : 1),
                        target, o));
    else
        pl_output(g, name, mean_all(g, full(m, pl_eq(g, yes(m, x, 0), yes(m, target, 0.5)))));
    pl_scope_pop(g);
}

/* ---- metrics that follow from means --------------------------------------------------------- */
static int find(const char *const *name, int n, const char *wanted)
{
    for (int i = 0; i < n; i++)
        if (is(name[i], wanted)) return i;
    return -1;
}

/* The mean over the classes that prediction or target has. */
static double class_score(const char *const *name, const double *mean, int n, bool f1)
{
    double sum = 0;
    int classes = 0;
    for (int i = 0; i + 1 < n; i++) {
        if (strncmp(name[i], "both.", 5) != 0 || strncmp(name[i + 1], "all.", 4) != 0) continue;
        double both = mean[i], all = mean[i + 1];
        if (!(all > 0)) continue;
        sum += f1 ? 2 * both / all : both / (all - both);
        classes++;
    }
    return classes ? sum / classes : 0;
}

int pl_task_derive(const char *const *name, const double *mean, int n, const char **new_name,
                   double *new_value, int cap)
{
    int nll = find(name, n, "nll"), made = 0;
    bool sets = find(name, n, "both.0") >= 0;
    if (sets && cap >= 2) {
        new_name[made] = "f1";
        new_value[made++] = class_score(name, mean, n, true);
        new_name[made] = "iou";
        new_value[made++] = class_score(name, mean, n, false);
    }
    if (nll >= 0 && made < cap) {
        new_name[made] = "perplexity";
        new_value[made++] = exp(mean[nll]);
    }
    return made;
}
