/* lr.c - learning-rate schedules: closed forms of torch.optim.lr_scheduler's recursions.
 *
 * Each form exists twice, for the host and as f64 scalar nodes; a test compares the two with each
 * other and with PyTorch's tables. The graph's form reads the step counter, so a resumed or
 * replayed run needs nothing from outside.
 */
#include "nn/nn.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

typedef struct cycle {
    double start, top, end; /* learning rates */
    double up, last;        /* step of the maximum, last step */
} cycle;

static cycle cycle_of(const pl_lr *s)
{
    cycle c;
    double pct = s->pct_start > 0 ? s->pct_start : 0.3;
    c.top = s->lr;
    c.start = s->lr / (s->div_factor > 0 ? s->div_factor : 25);
    c.end = c.start / (s->final_div_factor > 0 ? s->final_div_factor : 1e4);
    c.up = pct * (double)s->total - 1;
    c.last = (double)s->total - 1;
    return c;
}

static double linear_start(const pl_lr *s)
{
    return s->start_factor == 0 && s->end_factor == 0 ? 1 : s->start_factor;
}

/* ---- host ------------------------------------------------------------------------------- */
static double anneal(double from, double to, double part)
{
    return to + (from - to) / 2 * (1 + cos(pi * part));
}

static double one_cycle(const pl_lr *s, double n)
{
    cycle c = cycle_of(s);
    if (n > c.last) n = c.last;
    if (n <= c.up) return anneal(c.start, c.top, n / c.up);
    return anneal(c.top, c.end, (n - c.up) / (c.last - c.up));
}

static double main_at(const pl_lr *s, double n)
{
    double total = (double)s->total;
    switch (s->kind) {
    case PL_LR_LINEAR: {
        double a = linear_start(s);
        return s->lr * (a + (s->end_factor - a) * fmin(n, total) / total);
    }
    case PL_LR_COSINE: return anneal(s->lr, s->eta_min, n / total);
    case PL_LR_STEP: return s->lr * pow(s->gamma, floor(n / (double)s->step_size));
    case PL_LR_EXPONENTIAL: return s->lr * pow(s->gamma, n);
    case PL_LR_ONE_CYCLE: return one_cycle(s, n);
    case PL_LR_CONSTANT:
    case PL_LR_N_KINDS: break;
    }
    return s->lr;
}

double pl_lr_at(const pl_lr *s, int64_t updates, int64_t reductions)
{
    int64_t n = updates / (s->every > 0 ? s->every : 1);
    double lr;
    if (n < s->warmup)
        lr = s->lr * (s->warmup_start + (1 - s->warmup_start) * (double)n / (double)s->warmup);
    else
        lr = main_at(s, (double)(n - s->warmup));
    if (!s->plateau) return lr;
    double f = s->plateau_factor > 0 ? s->plateau_factor : 0.1;
    double cut = lr * pow(f, (double)reductions);
    return reductions > 0 ? fmax(cut, fmin(lr, s->plateau_min)) : lr;
}

/* ---- graph: the same, n an f64 scalar --------------------------------------------------- */
static pl_val constant(pl_graph *g, double v)
{
    return pl_fill(g, PL_RANK0(PL_F64), v);
}

static pl_val anneal_value(pl_graph *g, double from, double to, pl_val part)
{
    pl_val wave = pl_shift(g, pl_cos(g, pl_scale(g, part, pi)), 1);
    return pl_shift(g, pl_scale(g, wave, (from - to) / 2), to);
}

static pl_val one_cycle_value(pl_graph *g, const pl_lr *s, pl_val n)
{
    cycle c = cycle_of(s);
    n = pl_min(g, n, constant(g, c.last));
    pl_val up = anneal_value(g, c.start, c.top, pl_scale(g, n, 1 / c.up));
    pl_val part = pl_scale(g, pl_shift(g, n, -c.up), 1 / (c.last - c.up));
    pl_val down = anneal_value(g, c.top, c.end, part);
    return pl_select(g, pl_le(g, n, constant(g, c.up)), up, down);
}

static pl_val main_value(pl_graph *g, const pl_lr *s, pl_val n)
{
    double total = (double)s->total;
    switch (s->kind) {
    case PL_LR_LINEAR: {
        double a = linear_start(s);
        pl_val part = pl_scale(g, pl_min(g, n, constant(g, total)), (s->end_factor - a) / total);
        return pl_scale(g, pl_shift(g, part, a), s->lr);
    }
    case PL_LR_COSINE: return anneal_value(g, s->lr, s->eta_min, pl_scale(g, n, 1 / total));
    case PL_LR_STEP:
        n = pl_floor(g, pl_div(g, n, constant(g, (double)s->step_size)));
        return pl_scale(g, pl_pow(g, constant(g, s->gamma), n), s->lr);
    case PL_LR_EXPONENTIAL: return pl_scale(g, pl_pow(g, constant(g, s->gamma), n), s->lr);
    case PL_LR_ONE_CYCLE: return one_cycle_value(g, s, n);
    case PL_LR_CONSTANT:
    case PL_LR_N_KINDS: break;
    }
    return constant(g, s->lr);
}

static pl_val reduced(pl_nn *m, const pl_lr *s, pl_val lr)
{
    pl_graph *g = m->g;
    pl_val state = pl_nn_read(m, pl_plateau_slot(pl_graph_store(g)));
    pl_val times = pl_squeeze(g, pl_slice(g, state, 0, 0, 1, 1), 0);
    double f = s->plateau_factor > 0 ? s->plateau_factor : 0.1;
    pl_val cut = pl_mul(g, lr, pl_pow(g, constant(g, f), times));
    pl_val least = pl_min(g, lr, constant(g, s->plateau_min));
    return pl_select(g, pl_gt(g, times, constant(g, 0)), pl_max(g, cut, least), lr);
}

pl_val pl_lr_value(pl_nn *m, const pl_lr *s, pl_val step)
{
    pl_graph *g = m->g;
    bool needs_total = s->kind == PL_LR_LINEAR || s->kind == PL_LR_COSINE;
    int64_t least = needs_total ? 1 : s->kind == PL_LR_ONE_CYCLE ? 4 : INT64_MIN;
    if (s->total < least)
        return pl_nn_fail(
            m, PL_ERR_CONFIG,
            "the learning-rate schedule lasts %lld steps and needs %lld: give it a total "
            "(schedule.total_steps), more steps (train.steps) or a shorter warm-up",
            (long long)s->total, (long long)least);
    if (s->kind == PL_LR_STEP && s->step_size < 1)
        return pl_nn_fail(
            m, PL_ERR_CONFIG,
            "the learning-rate schedule drops every %lld steps: it must be at least 1",
            (long long)s->step_size);
    if (s->every > 1) step = pl_div(g, step, pl_full_like(g, step, (double)s->every));
    pl_val n = pl_cast(g, step, PL_F64);
    pl_val after = pl_max(g, pl_shift(g, n, -(double)s->warmup), constant(g, 0));
    pl_val lr = main_value(g, s, after);
    if (s->warmup > 0) {
        double slope = s->lr * (1 - s->warmup_start) / (double)s->warmup;
        pl_val rising = pl_shift(g, pl_scale(g, n, slope), s->lr * s->warmup_start);
        lr = pl_select(g, pl_lt(g, n, constant(g, (double)s->warmup)), rising, lr);
    }
    if (s->plateau) lr = reduced(m, s, lr);
    return pl_cast(g, lr, PL_F32);
}

/* ---- plateau ---------------------------------------------------------------------------- */
int pl_plateau_slot(pl_store *s)
{
    return pl_store_add(
        s, &(pl_slot){.name = "lr.plateau", .type = PL_TYPE(PL_F64, 4), .kind = PL_SLOT_COUNTER});
}

static bool better(const pl_plateau *p, double metric, double best)
{
    double margin = p->absolute ? p->threshold : best * p->threshold;
    return p->maximize ? metric > best + margin : metric < best - margin;
}

bool pl_plateau_step(const pl_plateau *p, double state[4], double metric)
{
    bool first = state[3] == 0;
    double cooldown = first ? 0 : state[3] - 1, bad = state[2];
    bool reduce = false;
    if ((first && !isnan(metric)) || (!first && better(p, metric, state[1]))) {
        state[1] = metric;
        bad = 0;
    } else {
        bad++;
    }
    if (cooldown > 0) {
        cooldown--;
        bad = 0;
    }
    if (bad > (double)p->patience) {
        state[0]++;
        cooldown = (double)p->cooldown;
        bad = 0;
        reduce = true;
    }
    state[2] = bad;
    state[3] = first && isnan(metric) ? 0 : 1 + cooldown;
    return reduce;
}
