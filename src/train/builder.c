/* builder.c - from a recipe's build function to finished graphs.
 *
 * The recipe writes its model into layer contexts; minimise closes the training program with
 * gradients, optimiser and schedule from the configuration. When a step's batch comes in parts, the
 * training program adds its gradients up and a program of its own, apply, updates from the sums. In
 * fp16 the loss carries a scale, which is state: every program of a step sees the same one, and the one
 * that updates moves it. Draws go through the builder, so that a replay can feed them from a dump.
 */
#include "train/train_int.h"

#include <string.h>

const pl_config *pl_builder_config(const pl_builder *b)
{
    return b->config;
}

pl_store *pl_builder_store(pl_builder *b)
{
    return b->store;
}

int64_t pl_builder_batch(const pl_builder *b)
{
    return b->batch;
}

pl_nn *pl_builder_train(pl_builder *b)
{
    return b->train;
}

pl_nn *pl_builder_eval(pl_builder *b)
{
    b->wants_eval = true;
    return b->eval;
}

/* ---- draws ------------------------------------------------------------------------------ */
pl_val pl_draw_uniform(pl_builder *b, pl_nn *m, const char *name, pl_type type)
{
    return b->replay ? pl_input(m->g, name, type)
                     : pl_random_uniform(m->g, pl_nn_key(m), type);
}

pl_val pl_draw_normal(pl_builder *b, pl_nn *m, const char *name, pl_type type)
{
    return b->replay ? pl_input(m->g, name, type) : pl_random_normal(m->g, pl_nn_key(m), type);
}

pl_val pl_draw_keep(pl_builder *b, pl_nn *m, const char *name, pl_type type, double p)
{
    if (b->replay) return pl_input(m->g, name, type);
    if (!m->training || p <= 0) return pl_fill(m->g, type, 1);
    pl_val u = pl_random_uniform(m->g, pl_nn_key(m), type);
    pl_val keep = pl_ge(m->g, u, pl_full_like(m->g, u, p));
    return pl_select(m->g, keep, pl_full_like(m->g, u, 1 / (1 - p)), pl_full_like(m->g, u, 0));
}

pl_val pl_draw_permutation(pl_builder *b, pl_nn *m, const char *name, int64_t n)
{
    return b->replay ? pl_input(m->g, name, PL_TYPE(PL_I64, n))
                     : pl_random_permutation(m->g, pl_nn_key(m), n);
}

/* ---- optimiser -------------------------------------------------------------------------- */
static pl_lr_kind schedule_kind(const char *name)
{
    static const char *names[] = {"constant",    "linear",    "cosine", "step",
                                  "exponential", "one_cycle", NULL};
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return (pl_lr_kind)i;
    return PL_LR_CONSTANT;
}

static void schedule_from_config(const pl_config *c, pl_lr *lr)
{
    lr->kind = schedule_kind(pl_config_text(c, "schedule.name"));
    lr->lr = pl_config_float(c, "optim.lr");
    lr->warmup = pl_config_int(c, "schedule.warmup_steps");
    lr->warmup_start = pl_config_float(c, "schedule.warmup_start");
    lr->total = pl_config_int(c, "schedule.total_steps");
    if (lr->total == 0) lr->total = pl_config_int(c, "train.steps") - lr->warmup;
    if (lr->total < 1) lr->total = 1;
    lr->step_size = pl_config_int(c, "schedule.step_size");
    lr->gamma = pl_config_float(c, "schedule.gamma");
    lr->eta_min = pl_config_float(c, "schedule.eta_min");
    lr->start_factor = 1;
    lr->end_factor = pl_config_float(c, "schedule.end_factor");
    lr->pct_start = pl_config_float(c, "schedule.pct_start");
    lr->div_factor = pl_config_float(c, "schedule.div_factor");
    lr->final_div_factor = pl_config_float(c, "schedule.final_div_factor");
    lr->plateau_factor = pl_config_float(c, "schedule.plateau.factor");
    lr->plateau_min = pl_config_float(c, "schedule.plateau.min_lr");
    lr->plateau = lr->plateau_factor > 0;
}

pl_status pl__optim_from_config(const pl_config *c, pl_optim *out, pl_plateau *plateau)
{
    *out = (pl_optim)PL_OPTIM_INIT;
    *plateau = (pl_plateau)PL_PLATEAU_INIT;
    if (!pl_optim_parse(pl_config_text(c, "optim.name"), &out->kind))
        PL_FAIL(PL_ERR_CONFIG, "no optimiser \"%s\"", pl_config_text(c, "optim.name"));
    int n;
    const double *betas = pl_config_floats(c, "optim.betas", &n);
    PL_FAIL_IF(n != 2, PL_ERR_CONFIG, "optim.betas has %d numbers, wants 2, e.g. [0.9, 0.999]",
               n);
    out->beta1 = betas[0];
    out->beta2 = betas[1];
    schedule_from_config(c, &out->lr);
    out->eps = pl_config_float(c, "optim.eps");
    out->weight_decay = pl_config_float(c, "optim.weight_decay");
    out->amsgrad = pl_config_bool(c, "optim.amsgrad");
    out->momentum = pl_config_float(c, "optim.momentum");
    out->dampening = pl_config_float(c, "optim.dampening");
    out->nesterov = pl_config_bool(c, "optim.nesterov");
    out->alpha = pl_config_float(c, "optim.alpha");
    out->centered = pl_config_bool(c, "optim.centered");
    out->clip_norm = pl_config_float(c, "clip.norm");
    out->ema = pl_config_float(c, "ema.decay");
    plateau->patience = pl_config_int(c, "schedule.plateau.patience");
    return PL_OK;
}

static pl_loss_scale scale_from_config(const pl_config *c)
{
    return (pl_loss_scale){.initial = pl_config_float(c, "loss_scale.initial"),
                           .growth = pl_config_float(c, "loss_scale.growth"),
                           .backoff = pl_config_float(c, "loss_scale.backoff"),
                           .floor = pl_config_float(c, "loss_scale.floor"),
                           .interval = (int)pl_config_int(c, "loss_scale.interval")};
}

/* Gradients as the optimiser sees them, without the loss scale. */
static void output_gradients(pl_nn *m, const pl_grads *grads, pl_val loss_scale)
{
    pl_val factor = pl_val_ok(loss_scale) ? pl_reciprocal(m->g, loss_scale) : PL_NO_VAL;
    for (int i = 0; i < grads->n; i++) {
        const pl_slot *s = pl_store_slot(pl_graph_store(m->g), grads->slot[i]);
        pl_val d = pl_val_ok(factor) ? pl_mul(m->g, grads->grad[i], factor) : grads->grad[i];
        pl_output(m->g, pl_nn_name(m, "grad.%s", s->name), d);
    }
}

/* The scale moves with whether this step's gradients are finite; a step whose gradients are not is
 * skipped. */
static void output_scale(pl_nn *m, const pl_loss_scale *scale, pl_val used, pl_val finite)
{
    pl_loss_scale_update(m, scale, finite);
    pl_output(m->g, "loss_scale", used);
    pl_output(m->g, "skipped", pl_cast(m->g, pl_not(m->g, finite), PL_F32));
}

void pl_builder_minimise(pl_builder *b, pl_val loss)
{
    pl_nn *m = b->train;
    pl_optim o;
    pl_plateau plateau;
    pl_status rc = pl__optim_from_config(b->config, &o, &plateau);
    if (rc != PL_OK) {
        pl_nn_fail(m, rc, "%s", pl_error_text());
        return;
    }
    if (!pl_config_is_null(b->config, "optim.no_decay"))
        pl_nn_set_decay(b->store, pl_config_text(b->config, "optim.no_decay"), false);
    if (!pl_config_is_null(b->config, "optim.frozen"))
        pl_nn_set_trainable(b->store, pl_config_text(b->config, "optim.frozen"), false);
    pl_grads grads;
    pl_optim_report report;
    memset(&grads, 0, sizeof grads);
    memset(&report, 0, sizeof report);
    b->minimised = true;
    pl_output(m->g, "loss", loss);
    bool split = b->parts > 1, scaled = strcmp(pl_config_text(b->config, "precision"), "fp16") == 0;
    pl_loss_scale scale = scale_from_config(b->config);
    if (scaled) o.loss_scale = pl_loss_scale_read(m, &scale);
    o.skip_nonfinite = scaled;
    pl_optim_gradients(m, split ? pl_scale(m->g, loss, 1.0 / (double)b->parts) : loss, &o, &grads);
    if (b->probe) {
        b->loss = loss;
        b->grads = grads;
        return;
    }
    if (split) {
        pl_optim_accumulate(m, &grads);
        m = b->apply;
        if (scaled) o.loss_scale = pl_loss_scale_read(m, &scale);
        pl_optim_accumulated(m, &o, &grads);
    }
    pl_optim_update(m, &grads, &o, &report);
    if (b->replay) output_gradients(m, &grads, o.loss_scale);
    if (scaled) output_scale(m, &scale, o.loss_scale, report.finite);
    if (pl_val_ok(report.lr)) pl_output(m->g, "lr", report.lr);
    if (pl_val_ok(report.grad_norm)) pl_output(m->g, "grad_norm", report.grad_norm);
}

/* ---- the whole build -------------------------------------------------------------------- */
void pl__builder_release(pl_builder *b)
{
    pl_nn_free(b->train);
    pl_nn_free(b->eval);
    pl_nn_free(b->apply);
    pl_graph_free(b->train_graph);
    pl_graph_free(b->eval_graph);
    pl_graph_free(b->apply_graph);
    b->train = b->eval = b->apply = NULL;
    b->train_graph = b->eval_graph = b->apply_graph = NULL;
}

static void drop_eval(pl_builder *b)
{
    pl_nn_free(b->eval);
    pl_graph_free(b->eval_graph);
    b->eval = NULL;
    b->eval_graph = NULL;
}

/* All contexts are there before the recipe's code runs, so that it has nothing to check. */
static pl_status build(pl_builder *b, const pl_recipe *recipe)
{
    b->train_graph = pl_graph_new(b->store);
    b->eval_graph = pl_graph_new(b->store);
    b->train = b->train_graph ? pl_nn_new(b->train_graph, true) : NULL;
    b->eval = b->eval_graph ? pl_nn_new(b->eval_graph, false) : NULL;
    if (b->parts > 1) {
        b->apply_graph = pl_graph_new(b->store);
        b->apply = b->apply_graph ? pl_nn_new(b->apply_graph, true) : NULL;
    }
    PL_FAIL_IF(!b->train || !b->eval || (b->parts > 1 && !b->apply), PL_ERR_MEMORY,
               "no memory for the programs");
    PL_TRY(recipe->build(b));
    if (!b->wants_eval) drop_eval(b);
    PL_TRY(pl_nn_finish(b->train));
    PL_FAIL_IF(!b->minimised, PL_ERR_GRAPH, "recipe %s builds no loss: call pl_builder_minimise",
               recipe->name);
    if (b->eval) PL_TRY(pl_nn_finish(b->eval));
    if (b->apply) PL_TRY(pl_nn_finish(b->apply));
    return PL_OK;
}

pl_status pl__builder_run(pl_builder *b, const pl_recipe *recipe)
{
    pl_status rc = build(b, recipe);
    if (rc != PL_OK) pl__builder_release(b);
    return rc;
}
