/* steps.c - the programs of a step: which there are, when each runs.
 *
 * The training program is one of them, those a recipe added stand before or after it in the order
 * they were made. With micro-batches each is followed by its update: a program sees the weights
 * that all before it left, whatever the number of micro-batches. All programs live in one arena,
 * which is as large as the largest needs.
 */
#include "base/dtype.h"
#include "ir/graph.h"
#include "plimsoll_unstable.h"
#include "rt/device.h"
#include "train/run/train_int.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

bool pl__step_program_runs(const pl_step_program *t, int64_t step)
{
    const pl_when *w = &t->when;
    if (w->every > 0 && step % w->every != 0) return false;
    if (w->but_every > 0 && step % w->but_every == 0) return false;
    return step >= w->from && (w->until == 0 || step < w->until);
}

int64_t pl__run_updates(const pl_run *r)
{
    return r->purpose.goal == PL_GOAL_TRAIN ? pl_config_int(r->config, "train.updates_per_batch")
                                            : 1;
}

const pl_step_program *pl__step_program_next(const pl_run *r, const pl_step_program *t,
                                             int64_t *step)
{
    int64_t update = r->steps.update;
    do {
        if (++t == r->step_programs + r->n_step_programs) {
            t = r->step_programs;
            if (++update == pl__run_updates(r)) {
                update = 0;
                ++*step;
            }
        }
    } while (!pl__step_program_runs(t, *step));
    return t;
}

/* Adds a micro-batch's share of a term to the step's mean. */
static void add_term(pl_run *r, const char *name, double value, pl_step_info *info)
{
    int i = 0;
    while (i < info->n_terms && strcmp(info->term_name[i], name) != 0) i++;
    if (i == PL_MAX_METRICS) return;
    if (i == info->n_terms) {
        info->term_name[info->n_terms++] = name;
        info->term[i] = 0;
    }
    info->term[i] += value / (double)r->parts;
}

void pl__step_program_terms(pl_run *r, const pl_step_program *t, int ago, pl_step_info *info)
{
    for (int i = 0; i < t->n_terms; i++) {
        pl_type type;
        const char *output = pl_program_output_name(t->run, t->term[i].output);
        const void *x = pl_session_output_of(r->session, t->run, output, ago, &type);
        if (!x || type.rank != 0) continue;
        double v = pl_elem_get(type.dtype, x, 0);
        add_term(r, t->term[i].name, v, info);
        if (!t->name && strcmp(output, "loss") == 0) info->loss += v / (double)r->parts;
    }
}

pl_program *pl__step_program_updater(const pl_step_program *t)
{
    return t->apply ? t->apply : t->run;
}

static int list_programs(const pl_step_program *list, int n_step_programs, pl_program *eval,
                         pl_program **out)
{
    int n = 0;
    for (int i = 0; i < n_step_programs; i++) {
        if (list[i].run) out[n++] = list[i].run;
        if (list[i].apply) out[n++] = list[i].apply;
    }
    if (eval && !(n_step_programs && list[0].run == eval)) out[n++] = eval;
    return n;
}

int pl__run_programs(const pl_run *r, pl_program *out[PL_MAX_PROGRAMS])
{
    int n = r->n_variants ? 0 : list_programs(r->step_programs, r->n_step_programs, r->eval, out);
    for (int k = 0; k < r->n_variants; k++) {
        const pl_variant *v = &r->variants[k];
        n += list_programs(v->step_programs, v->n_step_programs, v->eval, out + n);
    }
    if (r->sample) out[n++] = r->sample;
    return n;
}

void pl__step_programs_free(pl_run *r)
{
    pl_program *all[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, all);
    for (int i = 0; i < n; i++) pl_program_free(all[i]);
    if (r->n_variants) pl__variants_free(r);
    memset(r->step_programs, 0, sizeof r->step_programs);
    r->n_step_programs = 0;
    r->train = r->apply = r->eval = r->sample = NULL;
    r->n_pictures = 0;
}

int pl_run_step_program_count(const pl_run *r)
{
    return r->n_step_programs;
}

static pl_run_step_program describe(const pl_run *r, const pl_step_program *t)
{
    double share = (double)pl__run_updates(r);
    if (t->when.every > 0) share /= (double)t->when.every;
    if (t->when.but_every > 0) share *= 1 - 1.0 / (double)t->when.but_every;
    return (pl_run_step_program){t->name ? t->name : "train", t->run, t->apply, share};
}

pl_run_step_program pl_run_step_program_at(const pl_run *r, int i)
{
    return describe(r, &r->step_programs[i]);
}

int pl_run_step_programs_of(const pl_run *r, int64_t step, int *out, int cap)
{
    int n = 0;
    for (int64_t update = 0; update < pl__run_updates(r); update++)
        for (int i = 0; i < r->n_step_programs; i++) {
            if (!pl__step_program_runs(&r->step_programs[i], step)) continue;
            if (n < cap) out[n] = i;
            n++;
        }
    return n;
}

double pl__step_programs_ms(const pl_run *r, const pl_step_program *list, int n)
{
    double ms = 0;
    for (int i = 0; i < n; i++) {
        pl_run_step_program t = describe(r, &list[i]);
        double once = (double)r->parts * pl_program_plan(t.run)->predicted_step_ms;
        if (t.apply) once += pl_program_plan(t.apply)->predicted_step_ms;
        ms += t.share * once;
    }
    return ms;
}

/* ---- compiling -------------------------------------------------------------------------- */
/* checkpointing: the graphs' marks, or the scopes that the patterns name. */
static pl_status mark_segments(pl_run *r, pl_builder *b)
{
    const char *how = pl_config_text(r->config, "checkpointing");
    r->compile.checkpointing = strcmp(how, "auto") == 0  ? PL_CHECKPOINT_AUTO
                               : strcmp(how, "off") == 0 ? PL_CHECKPOINT_OFF
                                                         : PL_CHECKPOINT_BLOCKS;
    if (!pl__goal_trains(r->purpose.goal)) { /* no backward pass, so nothing to recompute for one */
        r->compile.checkpointing = PL_CHECKPOINT_AUTO;
        return PL_OK;
    }
    if (strcmp(how, "scopes") != 0) return PL_OK;
    PL_FAIL_IF(pl_config_is_null(r->config, "checkpoint_scopes"), PL_ERR_CONFIG,
               "checkpointing: scopes needs checkpoint_scopes, e.g. \"frame*\"");
    const char *pattern = pl_config_text(r->config, "checkpoint_scopes");
    bool any = false;
    for (int t = 0; t < b->n_step_programs; t++) {
        pl_graph *g = b->step_programs[t].run.g;
        for (uint32_t i = 1; i < g->n_scopes; i++) {
            g->scopes[i].checkpoint = pl_nn_match(pattern, g->scopes[i].path);
            any |= g->scopes[i].checkpoint;
        }
    }
    PL_FAIL_IF(!any, PL_ERR_CONFIG, "checkpoint_scopes: no scope of the model matches \"%s\"",
               pattern);
    return PL_OK;
}

static enum pl_precision precision_of(const pl_config *c)
{
    static const char *const names[] = {"fp32", "tf32", "bf16", "fp16"};
    const char *name = pl_config_text(c, "precision");
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0) return (enum pl_precision)i;
    return PL_PRECISION_FP32;
}

/* Names under which a program's scalars are reported. */
static pl_status name_terms(pl_run *r, pl_step_program *t)
{
    int n = pl_program_output_count(t->run);
    for (int i = 0; i < n && t->n_terms < PL_MAX_METRICS; i++) {
        const char *output = pl_program_output_name(t->run, i);
        if (strncmp(output, "grad.", 5) == 0) continue;
        const char *name = t->name ? pl_arena_printf(&r->arena, "%s.%s", t->name, output)
                                   : pl_arena_strdup(&r->arena, output);
        if (!name) return PL_ERR_MEMORY;
        t->term[t->n_terms].output = i;
        t->term[t->n_terms++].name = name;
    }
    return PL_OK;
}

/* Moves the graph of a draft into a program. */
static pl_status compile_draft(pl_draft *d, const pl_compile_opts *o, pl_program **out)
{
    pl_graph *g = d->g;
    d->g = NULL;
    return pl_compile(g, o, out);
}

/* A program to compile, perhaps in a thread of its own. */
typedef struct compile_job {
    pl_draft *draft;
    const pl_compile_opts *opts;
    pl_program **out;
    pthread_t thread;
    bool running;
    pl_status rc;
    char error[1024];
} compile_job;

typedef struct compile_list {
    compile_job job[2 * PL_MAX_STEP_PROGRAMS + 2];
    int n;
} compile_list;

static void add_job(compile_list *l, pl_draft *d, const pl_compile_opts *o, pl_program **out)
{
    if (d->g) l->job[l->n++] = (compile_job){.draft = d, .opts = o, .out = out};
}

static void *compile_beside(void *ctx)
{
    compile_job *j = ctx;
    j->rc = compile_draft(j->draft, j->opts, j->out);
    if (j->rc != PL_OK) snprintf(j->error, sizeof j->error, "%s", pl_error_text());
    return NULL;
}

/* All at once, each in a thread, where a card computes: its libraries may be asked from any thread,
 * and the host has nothing else to do. Not among ranks: their kernels meet while they are prepared,
 * and all ranks must do that in one order; nor where algorithms are timed, which others would
 * disturb. A program depends on nothing but its graph and options, so they come out the same. Of
 * several failures the first in the list is told. */
static pl_status compile_jobs(const pl_run *r, compile_list *l)
{
    bool beside = pl_device_is_plugged(r->compile.device) && pl__ranks(r) == 1 &&
                  r->compile.mode != PL_MODE_MAX_AUTOTUNE;
    pl_status rc = PL_OK;
    for (int i = 1; beside && i < l->n; i++)
        l->job[i].running =
            pthread_create(&l->job[i].thread, NULL, compile_beside, &l->job[i]) == 0;
    for (int i = 0; i < l->n; i++) {
        compile_job *j = &l->job[i];
        if (j->running)
            pthread_join(j->thread, NULL);
        else if (rc == PL_OK)
            rc = compile_draft(j->draft, j->opts, j->out);
        if (rc == PL_OK && j->rc != PL_OK) rc = pl__fail(j->rc, __FILE__, __LINE__, "%s", j->error);
    }
    return rc;
}

static pl_status add_program(pl_run *r, compile_list *l, pl_program_draft *d,
                             const pl_compile_opts *forward)
{
    pl_step_program *t = &r->step_programs[r->n_step_programs++];
    t->when = d->when;
    t->name = d->name ? pl_arena_strdup(&r->arena, d->name) : NULL;
    if (d->name && !t->name) return PL_ERR_MEMORY;
    add_job(l, &d->run, &r->compile, &t->run);
    add_job(l, &d->apply, forward, &t->apply);
    return PL_OK;
}

static pl_status add_programs(pl_run *r, compile_list *l, pl_builder *b,
                              const pl_compile_opts *forward)
{
    for (int i = 1; i < b->n_step_programs; i++)
        if (!b->step_programs[i].when.after)
            PL_TRY(add_program(r, l, &b->step_programs[i], forward));
    PL_TRY(add_program(r, l, &b->step_programs[0], forward));
    for (int i = 1; i < b->n_step_programs; i++)
        if (b->step_programs[i].when.after)
            PL_TRY(add_program(r, l, &b->step_programs[i], forward));
    return PL_OK;
}

/* What the run keeps of its programs once they are there. */
static pl_status name_programs(pl_run *r)
{
    for (int i = 0; i < r->n_step_programs; i++) {
        pl_step_program *t = &r->step_programs[i];
        PL_TRY(name_terms(r, t));
        if (t->name) continue;
        r->train = t->run;
        r->apply = t->apply;
    }
    if (r->purpose.goal == PL_GOAL_EVALUATE) r->eval = r->train;
    for (int i = 0; r->eval && i < pl_program_output_count(r->eval); i++) {
        pl_type type = pl_program_output_type(r->eval, i);
        char text[96];
        PL_FAIL_IF(type.rank != 0, PL_ERR_SHAPE,
                   "evaluation output \"%s\" is %s; wants one number: take its mean over the batch",
                   pl_program_output_name(r->eval, i), pl_type_text(&type, text, sizeof text));
    }
    return PL_OK;
}

static pl_status compile_all(pl_run *r, pl_builder *b)
{
    r->compile.device = pl__ranks_device(r);
    PL_TRY(mark_segments(r, b));
    r->compile.precision = precision_of(r->config);
    pl_compile_opts forward = r->compile; /* nothing goes backward in it: no segments */
    if (forward.checkpointing == PL_CHECKPOINT_BLOCKS) forward.checkpointing = PL_CHECKPOINT_AUTO;
    compile_list l = {.n = 0};
    PL_TRY(add_programs(r, &l, b, &forward));
    add_job(&l, &b->eval, &forward, &r->eval);
    if (!r->sample && b->sample.g) {
        PL_TRY(pl__sample_keep(r, b));
        add_job(&l, &b->sample, &forward, &r->sample);
    }
    PL_TRY(compile_jobs(r, &l));
    return name_programs(r);
}

pl_status pl__step_programs_compile(pl_run *r, pl_builder *b)
{
    pl_status rc = compile_all(r, b);
    pl__builder_release(b);
    if (rc != PL_OK) pl__step_programs_free(r);
    return rc;
}
