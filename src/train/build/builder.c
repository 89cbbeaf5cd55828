/* builder.c - from a recipe's build function to finished graphs.
 *
 * The recipe writes its model into layer contexts. pl_builder_minimise completes a program of the
 * step with gradients, optimiser and schedule from the configuration. With several micro-batches
 * the program accumulates its gradients, and a second program, apply, updates from the sums. In
 * fp16 the loss has a scale, which is a slot: all programs of a step use the same value, and the
 * program that updates changes it. Draws go through the builder (builder_draws.c).
 *
 * PL_GOAL_EVALUATE keeps the evaluation and sampling programs. A recipe builds all its programs at
 * once, so the programs of the step are built too, over a separate store that is freed with them:
 * the run's store then has only the slots that evaluation reads.
 */
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

const pl_config *pl_builder_config(const pl_builder *b)
{
    return b->config;
}

void *pl_builder_own(const pl_builder *b)
{
    return b->run ? b->run->recipe->own : NULL;
}

pl_store *pl_builder_store(pl_builder *b)
{
    return b->aside ? b->aside : b->store;
}

int64_t pl_builder_batch(const pl_builder *b)
{
    return b->batch;
}

void pl_builder_fixed_batch(pl_builder *b, int64_t n)
{
    b->fixed_batch = n;
}

int64_t pl_builder_updates(const pl_builder *b)
{
    return pl_config_int(b->config, "train.updates_per_batch");
}

bool pl_builder_cached(const pl_builder *b)
{
    return b->goal != PL_GOAL_ENCODE && !pl_config_is_null(b->config, "data.cache");
}

pl_nn *pl_builder_train(pl_builder *b)
{
    return b->step_programs[0].run.m;
}

pl_nn *pl_builder_eval(pl_builder *b)
{
    b->wants_eval = true;
    return b->eval.m;
}

/* ---- programs --------------------------------------------------------------------------- */
static bool draft_new(pl_builder *b, bool training, const pl_spread *spread, pl_draft *d)
{
    d->g = pl_graph_new(training ? pl_builder_store(b) : b->store);
    d->m = d->g ? pl_nn_new(d->g, training) : NULL;
    if (!d->m) return false;
    if (b->f64) d->m->dtype = PL_F64;
    d->g->spread = spread;
    pl__nn_set_ranks(d->m, b->ranks);
    pl__nn_store_bf16(d->m, strcmp(pl_config_text(b->config, "weights"), "bf16") == 0);
    return true;
}

static void draft_free(pl_draft *d)
{
    pl_nn_free(d->m);
    pl_graph_free(d->g);
    *d = (pl_draft){NULL, NULL};
}

static bool program_draft_new(pl_builder *b, const char *name, pl_when when)
{
    const pl_spread *spread = b->spread ? &b->spread[b->n_step_programs] : NULL;
    pl_program_draft *t = &b->step_programs[b->n_step_programs++];
    bool ok =
        draft_new(b, true, spread, &t->run) && (!b->split || draft_new(b, true, NULL, &t->apply));
    t->name = ok && name ? pl_nn_name(t->run.m, "%s", name) : NULL;
    t->when = when;
    return ok;
}

/* A failure is kept by the training program's context, so the caller has nothing to check. */
pl_nn *pl_builder_program(pl_builder *b, const char *name, pl_when when)
{
    pl_nn *train = pl_builder_train(b);
    if (b->n_step_programs == PL_MAX_STEP_PROGRAMS) {
        pl_nn_fail(train, PL_ERR_UNSUPPORTED, "a step has at most %d programs",
                   PL_MAX_STEP_PROGRAMS);
        return train;
    }
    if (program_draft_new(b, name, when)) return b->step_programs[b->n_step_programs - 1].run.m;
    pl_nn_fail(train, PL_ERR_MEMORY, "no memory for the program %s", name);
    draft_free(&b->step_programs[b->n_step_programs - 1].run);
    b->n_step_programs--;
    return train;
}

static pl_program_draft *program_of(pl_builder *b, const pl_nn *m)
{
    for (int i = 0; i < b->n_step_programs; i++)
        if (b->step_programs[i].run.m == m) return &b->step_programs[i];
    return NULL;
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

/* The keys of an optimiser section. The engine's own are optim.*, schedule.*, clip.* and ema.*; a
 * recipe's section NAME has all of them below NAME. */
typedef struct section {
    const pl_config *c;
    const char *name;
    char key[128]; /* the last key that was read */
} section;

static const char *key_of(section *s, const char *tail)
{
    bool own = strcmp(s->name, "optim") == 0;
    bool bare = own && (strncmp(tail, "schedule.", 9) == 0 || strncmp(tail, "clip.", 5) == 0 ||
                        strncmp(tail, "ema.", 4) == 0);
    snprintf(s->key, sizeof s->key, "%s%s%s", bare ? "" : s->name, bare ? "" : ".", tail);
    return s->key;
}

static double number(section *s, const char *tail)
{
    return pl_config_float(s->c, key_of(s, tail));
}

static int64_t count(section *s, const char *tail)
{
    return pl_config_int(s->c, key_of(s, tail));
}

const pl_config_entry *pl__optim_schema(pl_arena *a, const char *const *sections)
{
    static const char *const parts[] = {"optim.", "schedule.", "clip.", "ema."};
    int rows = 0, n = 0, made = 0;
    while (pl_engine_schema[rows].key) rows++;
    while (sections[n]) n++;
    pl_config_entry *table = pl_arena_new(a, pl_config_entry, (size_t)(rows * n) + 1);
    for (int s = 0; table && s < n; s++)
        for (int i = 0; i < rows * 4; i++) {
            const pl_config_entry *e = &pl_engine_schema[i / 4];
            const char *part = parts[i % 4];
            if (strncmp(e->key, part, strlen(part)) != 0) continue;
            table[made] = *e;
            table[made].resume = PL_RESUME_SAME;
            table[made].key =
                pl_arena_printf(a, "%s.%s", sections[s], i % 4 ? e->key : e->key + strlen(part));
            if (!table[made++].key) return NULL;
        }
    return table;
}

static void schedule_from_config(section *s, pl_lr *lr)
{
    lr->kind = schedule_kind(pl_config_text(s->c, key_of(s, "schedule.name")));
    lr->lr = number(s, "lr");
    lr->warmup = count(s, "schedule.warmup_steps");
    lr->warmup_start = number(s, "schedule.warmup_start");
    lr->total = count(s, "schedule.total_steps");
    if (lr->total == 0) lr->total = pl_config_int(s->c, "train.steps") - lr->warmup;
    if (lr->total < 1) lr->total = 1;
    lr->step_size = count(s, "schedule.step_size");
    lr->gamma = number(s, "schedule.gamma");
    lr->eta_min = number(s, "schedule.eta_min");
    lr->start_factor = 1;
    lr->end_factor = number(s, "schedule.end_factor");
    lr->pct_start = number(s, "schedule.pct_start");
    lr->div_factor = number(s, "schedule.div_factor");
    lr->final_div_factor = number(s, "schedule.final_div_factor");
    lr->plateau_factor = number(s, "schedule.plateau.factor");
    lr->plateau_min = number(s, "schedule.plateau.min_lr");
    lr->plateau = lr->plateau_factor > 0;
}

/* weight_decay relative to the learning rate: the decay of lion-pytorch's
 * decoupled_weight_decay. */
static pl_status decouple_decay(section *s, pl_optim *o)
{
    if (!pl_config_bool(s->c, key_of(s, "decoupled_weight_decay"))) return PL_OK;
    PL_FAIL_IF(o->kind != PL_OPTIM_LION && o->kind != PL_OPTIM_ADAMW, PL_ERR_CONFIG,
               "%s needs adamw or lion: other optimisers add weight decay to the gradient", s->key);
    PL_FAIL_IF(!(o->lr.lr > 0), PL_ERR_CONFIG,
               "%s divides by the learning rate, so the rate must not be %g", s->key, o->lr.lr);
    o->weight_decay /= o->lr.lr;
    return PL_OK;
}

pl_status pl__optim_from_config(const pl_config *c, const char *name, pl_optim *out,
                                pl_plateau *plateau)
{
    section s = {.c = c, .name = name};
    *out = (pl_optim)PL_OPTIM_INIT;
    *plateau = (pl_plateau)PL_PLATEAU_INIT;
    PL_FAIL_IF(!pl_config_has(c, key_of(&s, "name")), PL_ERR_CONFIG,
               "no optimiser section \"%s\": name it in the recipe's optims", name);
    if (!pl_optim_parse(pl_config_text(c, key_of(&s, "name")), &out->kind))
        PL_FAIL(PL_ERR_CONFIG, "no optimiser \"%s\"", pl_config_text(c, key_of(&s, "name")));
    int n;
    const double *betas = pl_config_floats(c, key_of(&s, "betas"), &n);
    PL_FAIL_IF(n != 2, PL_ERR_CONFIG, "%s has %d numbers; it needs 2, e.g. [0.9, 0.999]", s.key, n);
    const char *state = pl_config_text(c, key_of(&s, "state"));
    out->state = strcmp(state, "8bit") == 0   ? PL_OPTIM_STATE_8BIT
                 : strcmp(state, "bf16") == 0 ? PL_OPTIM_STATE_BF16
                                              : PL_OPTIM_STATE_F32;
    out->name = name;
    out->beta1 = betas[0];
    out->beta2 = betas[1];
    schedule_from_config(&s, &out->lr);
    out->eps = number(&s, "eps");
    out->weight_decay = number(&s, "weight_decay");
    PL_TRY(decouple_decay(&s, out));
    out->amsgrad = pl_config_bool(c, key_of(&s, "amsgrad"));
    out->momentum = number(&s, "momentum");
    out->dampening = number(&s, "dampening");
    out->nesterov = pl_config_bool(c, key_of(&s, "nesterov"));
    out->alpha = number(&s, "alpha");
    out->centered = pl_config_bool(c, key_of(&s, "centered"));
    out->clip_norm = number(&s, "clip.norm");
    out->ema = number(&s, "ema.decay");
    plateau->patience = count(&s, "schedule.plateau.patience");
    plateau->threshold = number(&s, "schedule.plateau.threshold");
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

/* Raises or lowers the scale, depending on whether the gradients of this step are finite; an update
 * with gradients that are not is skipped. */
static void output_scale(pl_nn *m, const pl_loss_scale *scale, pl_val used, pl_val finite)
{
    pl_loss_scale_update(m, scale, finite);
    pl_output(m->g, "loss_scale", used);
    pl_output(m->g, "skipped", pl_cast(m->g, pl_not(m->g, finite), PL_F32));
}

static pl_guard guard_from_config(const pl_config *c)
{
    return (pl_guard){.spike = pl_config_float(c, "guard.spike"),
                      .window = pl_config_int(c, "guard.window"),
                      .warmup = pl_config_int(c, "guard.warmup")};
}

/* Sets the flags of slots that a section's patterns name. */
static void mark_slots(pl_builder *b, pl_nn *m, const char *name)
{
    section s = {.c = b->config, .name = name};
    pl_store *store = pl_builder_store(b);
    if (!pl_config_is_null(b->config, key_of(&s, "no_decay")) &&
        pl__pattern_check(m, store, s.key, pl_config_text(b->config, s.key)))
        pl_nn_set_decay(store, pl_config_text(b->config, s.key), false);
    if (!pl_config_is_null(b->config, key_of(&s, "frozen")) &&
        pl__pattern_check(m, store, s.key, pl_config_text(b->config, s.key)))
        pl_nn_set_trainable(store, pl_config_text(b->config, s.key), false);
}

/* Fails when two optimiser sections train the same slot. */
static void check_owner(pl_builder *b, pl_nn *m, const pl_group_draft *group)
{
    for (int i = 0; i < b->n_step_programs; i++)
        for (const pl_group_draft *t = b->step_programs[i].groups; t; t = t->next) {
            if (strcmp(t->section, group->section) == 0) continue;
            for (int j = 0; j < t->grads.n; j++)
                for (int k = 0; k < group->grads.n; k++)
                    if (t->grads.slot[j] == group->grads.slot[k]) {
                        pl_nn_fail(m, PL_ERR_CONFIG, "%s is trained by %s and by %s",
                                   pl_store_slot(pl_builder_store(b), group->grads.slot[k])->name,
                                   t->section, group->section);
                        return;
                    }
        }
}

/* Adds a group to the program; NULL: memory has run out, or the program has a group of this section
 * already. */
static pl_group_draft *group_new(pl_program_draft *t, const char *name)
{
    pl_nn *m = t->run.m;
    pl_group_draft **at = &t->groups;
    for (; *at; at = &(*at)->next)
        if (strcmp((*at)->section, name) == 0) {
            pl_nn_fail(m, PL_ERR_CONFIG,
                       "section %s trains two groups of the program %s: its counter would advance "
                       "twice per step; give each group its own section (pl_recipe.optims)",
                       name, t->name ? t->name : "train");
            return NULL;
        }
    *at = pl_arena_new(&t->run.g->arena, pl_group_draft, 1);
    if (!*at)
        pl_nn_fail(m, PL_ERR_MEMORY, "no memory for the group %s", name);
    else
        (*at)->section = pl_nn_name(m, "%s", name);
    return *at;
}

/* The scalars of a program's first group have plain names, those of further groups the name of
 * their section before it. */
static void report_scalar(const pl_program_draft *t, const pl_group_draft *group, pl_nn *m,
                          const char *name, pl_val v)
{
    if (!pl_val_ok(v)) return;
    bool first = group == t->groups;
    pl_output(m->g, first ? name : pl_nn_name(m, "%s.%s", group->section, name), v);
}

/* Adds the update, from this program's gradients or from their sums over micro-batches. */
static void update(pl_builder *b, pl_program_draft *t, pl_group_draft *group, pl_optim *o,
                   const pl_loss_scale *scale)
{
    pl_nn *m = t->run.m;
    pl_grads grads = group->grads;
    pl_optim_report report;
    memset(&report, 0, sizeof report);
    if (b->split) {
        if (b->accumulate > 1)
            pl_optim_accumulate(m, &grads);
        else
            pl__optim_hand_over(m, &grads);
        if (o->guard.spike > 0) pl_guard_add(m, o, o->guard.loss);
        m = t->apply.m;
        if (o->guard.spike > 0) o->guard.loss = pl_guard_sum(m, o);
        if (scale) o->loss_scale = pl_loss_scale_read(m, scale);
        if (b->accumulate > 1)
            pl_optim_accumulated(m, o, &grads);
        else
            pl__optim_handed_over(m, o, &grads);
    }
    pl_optim_update(m, &grads, o, &report);
    if (b->goal == PL_GOAL_REPLAY) output_gradients(m, &grads, o->loss_scale);
    if (scale) {
        t->scale = o->loss_scale;
        t->finite = group == t->groups ? report.finite : pl_and(m->g, t->finite, report.finite);
    }
    if (o->guard.spike > 0) {
        report_scalar(t, group, m, "spiked", report.guard.row);
        report_scalar(t, group, m, "usual_norm", report.guard.norm);
        report_scalar(t, group, m, "usual_loss", report.guard.loss);
    }
    report_scalar(t, group, m, "lr", report.lr);
    report_scalar(t, group, m, "grad_norm", report.grad_norm);
}

/* A schedule advances once per batch, or, if its group says so, with every update on the batch; it
 * then has proportionally more steps. */
static void set_pace(const pl_builder *b, const pl_group *group, const char *name, pl_lr *lr)
{
    int64_t n = pl_builder_updates(b);
    section s = {.c = b->config, .name = name};
    lr->every = group && group->updates > 1 ? group->updates : 1;
    if (!group || !group->each_update)
        lr->every *= n;
    else if (count(&s, "schedule.total_steps") == 0)
        lr->total += (n - 1) * pl_config_int(b->config, "train.steps");
}

void pl_builder_minimise_with(pl_builder *b, pl_nn *m, pl_val loss, const pl_group *group)
{
    pl_program_draft *t = program_of(b, m);
    pl_optim o;
    pl_plateau plateau;
    const char *name = group && group->optim ? group->optim : "optim";
    if (!t) {
        pl_nn_fail(m, PL_ERR_ARG, "only programs of the step are minimised");
        return;
    }
    if (pl_val_ok(loss) && pl_val_type(m->g, loss).rank != 0) {
        pl_type type = pl_val_type(m->g, loss);
        char text[96];
        pl_nn_fail(m, PL_ERR_SHAPE,
                   "the loss is %s; needs one number: take its mean or sum over all dimensions",
                   pl_type_text(&type, text, sizeof text));
        return;
    }
    if (b->goal == PL_GOAL_EVALUATE) {
        t->minimised = true;
        return;
    }
    if (pl__optim_from_config(b->config, name, &o, &plateau) != PL_OK) {
        pl_nn_fail(m, PL_ERR_CONFIG, "%s", pl_error_text());
        return;
    }
    mark_slots(b, m, name);
    o.params = group ? group->slots : NULL;
    set_pace(b, group, name, &o.lr);
    if (b->run && strcmp(name, "optim") == 0) b->run->steps.warmup = o.lr.warmup * o.lr.every;
    pl_group_draft *part = group_new(t, name);
    if (!part) return;
    report_scalar(t, part, m, "loss", loss);
    bool scaled = strcmp(pl_config_text(b->config, "precision"), "fp16") == 0;
    pl_loss_scale scale = scale_from_config(b->config);
    if (scaled) o.loss_scale = pl_loss_scale_read(m, &scale);
    o.skip_nonfinite = scaled;
    o.guard = guard_from_config(b->config);
    int64_t shares = b->accumulate * (b->ranks ? b->ranks->ranks : 1);
    pl_val share = shares > 1 ? pl_scale(m->g, loss, 1.0 / (double)shares) : loss;
    o.guard.loss = share;
    pl_optim_gradients(m, share, &o, &part->grads);
    check_owner(b, m, part);
    part->loss = loss;
    t->minimised = true;
    if (b->goal != PL_GOAL_PROBE) update(b, t, part, &o, scaled ? &scale : NULL);
}

void pl_builder_minimise(pl_builder *b, pl_val loss)
{
    pl_builder_minimise_with(b, pl_builder_train(b), loss, NULL);
}

pl_val pl_builder_step(pl_builder *b, pl_nn *m, const char *optim)
{
    (void)b;
    pl_slot s = {.name = pl_nn_name(m, "%s.step", optim ? optim : "optim"),
                 .type = PL_RANK0(PL_I64),
                 .kind = PL_SLOT_COUNTER};
    return pl_nn_read(m, pl_store_add(pl_graph_store(m->g), &s));
}

/* ---- the whole build -------------------------------------------------------------------- */
void pl__builder_release(pl_builder *b)
{
    for (int i = 0; i < b->n_step_programs; i++) {
        draft_free(&b->step_programs[i].run);
        draft_free(&b->step_programs[i].apply);
    }
    b->n_step_programs = 0;
    draft_free(&b->eval);
    draft_free(&b->sample);
    pl_store_free(b->aside);
    b->aside = NULL;
}

/* The scale is one for all groups of a program, so it changes once, after the last group. */
static pl_status program_draft_finish(const pl_builder *b, const pl_program_draft *t,
                                      const pl_recipe *recipe)
{
    pl_loss_scale scale = scale_from_config(b->config);
    if (pl_val_ok(t->finite))
        output_scale(t->apply.m ? t->apply.m : t->run.m, &scale, t->scale, t->finite);
    PL_TRY(pl_nn_finish(t->run.m));
    PL_FAIL_IF(!t->minimised && !t->name, PL_ERR_GRAPH,
               "recipe %s builds no loss: call pl_builder_minimise", recipe->name);
    return t->apply.m && t->minimised ? pl_nn_finish(t->apply.m) : PL_OK;
}

/* The recipe's build function, guarded against keys that it misspells. */
typedef struct recipe_call {
    pl_builder *b;
    const pl_recipe *recipe;
} recipe_call;

static pl_status call_build(void *ctx)
{
    const recipe_call *c = ctx;
    return c->recipe->build(c->b);
}

static pl_status build_recipe(pl_builder *b, const pl_recipe *recipe)
{
    pl_status rc = pl_config_guard(call_build, &(recipe_call){b, recipe});
    return rc == PL_ERR_CONFIG ? pl__fail_prefix(rc, "recipe %s", recipe->name) : rc;
}

/* All contexts exist before the recipe's code runs, so that it has nothing to check. */
static pl_status build(pl_builder *b, const pl_recipe *recipe)
{
    bool ok = program_draft_new(b, NULL, (pl_when){0}) && draft_new(b, false, NULL, &b->eval);
    PL_FAIL_IF(!ok, PL_ERR_MEMORY, "no memory for the programs");
    PL_TRY(build_recipe(b, recipe));
    if (!b->wants_eval) draft_free(&b->eval);
    if (b->goal != PL_GOAL_EVALUATE && pl_config_int(b->config, "stop.patience") > 0 &&
        pl__stop_slot(b->store) < 0)
        return pl_store_status(b->store);
    for (int i = 0; i < b->n_step_programs; i++) {
        PL_TRY(program_draft_finish(b, &b->step_programs[i], recipe));
        if (!b->step_programs[i].minimised) draft_free(&b->step_programs[i].apply);
    }
    PL_TRY(pl__sections_check(b, recipe));
    if (b->eval.m) PL_TRY(pl_nn_finish(b->eval.m));
    return pl__sample_finish(b, recipe);
}

/* The recipe's encoder is the only program; it has no gradients. */
static pl_status build_encoder(pl_builder *b, const pl_recipe *recipe)
{
    b->n_step_programs = 1;
    PL_FAIL_IF(!draft_new(b, false, NULL, &b->step_programs[0].run), PL_ERR_MEMORY,
               "no memory for the encoder");
    PL_TRY(recipe->encoder->build(b, b->step_programs[0].run.m));
    return pl_nn_finish(b->step_programs[0].run.m);
}

/* The recipe's programs of predictions replace the programs of the step. */
static pl_status build_prediction(pl_builder *b, const pl_recipe *recipe)
{
    b->n_step_programs = 1;
    PL_FAIL_IF(!draft_new(b, false, NULL, &b->step_programs[0].run), PL_ERR_MEMORY,
               "no memory for the program of predictions");
    PL_TRY(recipe->predict->build(b));
    for (int i = 0; i < b->n_step_programs; i++) PL_TRY(pl_nn_finish(b->step_programs[i].run.m));
    return PL_OK;
}

pl_nn *pl_builder_predict(pl_builder *b, const char *name)
{
    pl_nn *main = b->step_programs[0].run.m;
    if (!name) return main;
    if (b->n_step_programs == PL_MAX_STEP_PROGRAMS) {
        pl_nn_fail(main, PL_ERR_UNSUPPORTED, "predictions have at most %d programs",
                   PL_MAX_STEP_PROGRAMS);
        return main;
    }
    pl_program_draft *t = &b->step_programs[b->n_step_programs];
    if (!draft_new(b, false, NULL, &t->run)) {
        draft_free(&t->run);
        pl_nn_fail(main, PL_ERR_MEMORY, "no memory for the program %s", name);
        return main;
    }
    t->name = pl_nn_name(t->run.m, "%s", name);
    b->n_step_programs++;
    return t->run.m;
}

/* The evaluation program replaces the programs of the step. */
static pl_status build_evaluation(pl_builder *b, const pl_recipe *recipe)
{
    b->aside = pl_store_new();
    PL_FAIL_IF(!b->aside, PL_ERR_MEMORY, "no memory for the programs");
    PL_TRY(build(b, recipe));
    PL_FAIL_IF(!b->eval.g, PL_ERR_CONFIG, "recipe %s has no evaluation (pl_builder_eval)",
               recipe->name);
    for (int i = 0; i < b->n_step_programs; i++) {
        draft_free(&b->step_programs[i].run);
        draft_free(&b->step_programs[i].apply);
    }
    b->n_step_programs = 1;
    b->step_programs[0] = (pl_program_draft){.run = b->eval};
    b->eval = (pl_draft){NULL, NULL};
    return PL_OK;
}

pl_status pl__builder_run(pl_builder *b, const pl_recipe *recipe)
{
    pl_status rc = b->goal == PL_GOAL_ENCODE     ? build_encoder(b, recipe)
                   : b->goal == PL_GOAL_EVALUATE ? build_evaluation(b, recipe)
                   : b->goal == PL_GOAL_PREDICT  ? build_prediction(b, recipe)
                                                 : build(b, recipe);
    if (rc == PL_OK) rc = pl__frozen_dtype(b);
    if (rc != PL_OK) pl__builder_release(b);
    return rc;
}
