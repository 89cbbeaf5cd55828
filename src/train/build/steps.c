/* steps.c - the programs of a step: when each runs, and how their graphs are compiled.
 *
 * A step runs the training program and the programs that a recipe adds before or after it, in the
 * order in which they were added. With several micro-batches each program runs once per micro-batch
 * and is then followed by its update, so a program reads the weights as all earlier programs wrote
 * them, for any number of micro-batches. All programs share one arena, as large as the largest
 * needs.
 */
#include "base/dtype.h"
#include "base/sys.h"
#include "ir/graph.h"
#include "plimsoll_unstable.h"
#include "rt/device.h"
#include "rt/levels/process_levels.h"
#include "train/run/run.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Whether a program before program t has an input of this name. */
static bool is_repeated(const pl_variant *v, int t, const char *name)
{
    for (int k = 0; k < t; k++)
        for (int i = 0; i < pl_program_input_count(v->step_programs[k].run); i++)
            if (strcmp(pl_program_input_name(v->step_programs[k].run, i), name) == 0) return true;
    return false;
}

const char *pl__step_input(const pl_run *r, int i, pl_type *type)
{
    const pl_variant *v = r->build->now;
    for (int t = 0; t < v->n_step_programs; t++)
        for (int k = 0; k < pl_program_input_count(v->step_programs[t].run); k++) {
            const char *name = pl_program_input_name(v->step_programs[t].run, k);
            if (is_repeated(v, t, name) || i-- > 0) continue;
            *type = pl_program_input_type(v->step_programs[t].run, k);
            return name;
        }
    return NULL;
}

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
    const pl_variant *v = r->build->now;
    int64_t update = r->steps.update;
    do {
        if (++t == v->step_programs + v->n_step_programs) {
            t = v->step_programs;
            if (++update == pl__run_updates(r)) {
                update = 0;
                ++*step;
            }
        }
    } while (!pl__step_program_runs(t, *step));
    return t;
}

/* Adds a run's share of a term to the step's mean. */
static void add_term(const char *name, double share, pl_step_info *info)
{
    int i = 0;
    while (i < info->n_terms && strcmp(info->term_name[i], name) != 0) i++;
    if (i == info->n_terms) {
        info->term_name[info->n_terms++] = name;
        info->term[i] = 0;
    }
    info->term[i] += share;
}

void pl__step_program_terms(pl_run *r, const pl_step_program *t, const pl_program *p, int ago,
                            pl_step_info *info)
{
    double runs = p == t->run ? (double)r->build->accumulate : 1;
    for (int i = 0; i < t->n_terms; i++) {
        pl_type type;
        const char *output = pl_program_output_name(p, t->term[i].output);
        if (t->term[i].update != (p != t->run)) continue;
        const void *x = pl_session_output_of(r->session, p, output, ago, &type);
        if (!x) continue;
        double share = pl_elem_get(type.dtype, x, 0) / runs;
        add_term(t->term[i].name, share, info);
        if (!t->name && p == t->run && strcmp(output, "loss") == 0) info->loss += share;
    }
}

int pl_run_term_count(const pl_run *r)
{
    int n = 0;
    for (int i = 0; r->build && i < r->build->now->n_step_programs; i++)
        n += r->build->now->step_programs[i].n_terms;
    return n;
}

const char *pl_run_term_name(const pl_run *r, int i)
{
    const pl_step_program *t = r->build->now->step_programs;
    for (; i >= t->n_terms; t++) i -= t->n_terms;
    return t->term[i].name;
}

pl_program *pl__step_program_updater(const pl_step_program *t)
{
    return t->apply ? t->apply : t->run;
}

/* Writes the programs of a variant to out, which has room for ROOM, and returns their number. */
enum { ROOM = 2 * PL_MAX_STEP_PROGRAMS + 1 };
static int list_programs(const pl_variant *v, pl_program **out)
{
    int n = 0;
    for (int i = 0; i < v->n_step_programs; i++) {
        if (v->step_programs[i].run) out[n++] = v->step_programs[i].run;
        if (v->step_programs[i].apply) out[n++] = v->step_programs[i].apply;
    }
    if (v->eval && v->eval != v->step_programs[0].run) out[n++] = v->eval;
    return n;
}

/* Puts programs on the host behind the others, without changing the order of either. */
static void host_last(pl_step_build *b)
{
    for (int i = 0, left = b->n_programs; b->host_updates && left > 0; left--) {
        pl_program *p = b->programs[i];
        if (pl_program_device(p) != &pl_device_cpu) {
            i++;
            continue;
        }
        memmove(b->programs + i, b->programs + i + 1,
                (size_t)(b->n_programs - i - 1) * sizeof *b->programs);
        b->programs[b->n_programs - 1] = p;
        b->n_host++;
    }
}

pl_status pl__build_list_programs(pl_step_build *b)
{
    b->programs = pl_sys_alloc(((size_t)b->n_variants * ROOM + 1) * sizeof(pl_program *));
    if (!b->programs) return PL_ERR_MEMORY;
    for (int k = 0; k < b->n_variants; k++)
        b->n_programs += list_programs(&b->variants[k], b->programs + b->n_programs);
    if (b->sample) b->programs[b->n_programs++] = b->sample;
    host_last(b);
    return PL_OK;
}

pl_program *const *pl__run_programs(const pl_run *r, int *n)
{
    *n = r->build ? r->build->n_programs : 0;
    return r->build ? r->build->programs : NULL;
}

pl_program *const *pl__run_device_programs(const pl_run *r, int *n)
{
    *n = r->build ? r->build->n_programs - r->build->n_host : 0;
    return r->build ? r->build->programs : NULL;
}

/* Not through b->programs: a build that failed has none. */
void pl__build_free(pl_step_build *b)
{
    pl_program *programs[ROOM];
    if (!b) return;
    for (int k = 0; k < b->n_variants; k++) {
        int n = list_programs(&b->variants[k], programs);
        for (int i = 0; i < n; i++) pl_program_free(programs[i]);
        pl_config_free(b->variants[k].config);
    }
    pl_program_free(b->sample);
    pl_sys_free(b->variants);
    pl_sys_free(b->programs);
    pl_config_free(b->traded);
    if (b->levels) pl_process_levels_release(b->levels);
    pl_sys_free(b->levels);
    pl_sys_free(b);
}

int pl_run_step_program_count(const pl_run *r)
{
    return r->build ? r->build->now->n_step_programs : 0;
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
    return describe(r, &r->build->now->step_programs[i]);
}

int pl_run_step_programs_of(const pl_run *r, int64_t step, int *out, int cap)
{
    int n = 0;
    for (int64_t update = 0; update < pl__run_updates(r); update++)
        for (int i = 0; i < r->build->now->n_step_programs; i++) {
            if (!pl__step_program_runs(&r->build->now->step_programs[i], step)) continue;
            if (n < cap) out[n] = i;
            n++;
        }
    return n;
}

double pl__variant_ms(const pl_run *r, const pl_variant *v)
{
    double ms = 0;
    for (int i = 0; i < v->n_step_programs; i++) {
        pl_run_step_program t = describe(r, &v->step_programs[i]);
        double once = (double)r->build->accumulate * pl_program_plan(t.run)->predicted_step_ms;
        if (t.apply) once += pl_program_plan(t.apply)->predicted_step_ms;
        ms += t.share * once;
    }
    return ms;
}

/* ---- compiling -------------------------------------------------------------------------- */
/* Key `checkpointing`: sets the compile option, and marks the scopes that checkpoint_scopes names.
 */
static pl_status mark_segments(pl_run *r, pl_builder *b)
{
    const char *how = pl_config_text(r->config, "checkpointing");
    r->compile.checkpointing = strcmp(how, "auto") == 0  ? PL_CHECKPOINT_AUTO
                               : strcmp(how, "off") == 0 ? PL_CHECKPOINT_OFF
                                                         : PL_CHECKPOINT_BLOCKS;
    if (!pl__goal_trains(r->purpose.goal)) { /* no backward pass, so nothing to recompute */
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

/* Adds the scalars of a program, or of its update, to the terms of t, and their names. */
static pl_status name_terms(pl_run *r, pl_step_program *t, const pl_program *p)
{
    for (int i = 0; i < pl_program_output_count(p); i++) {
        const char *output = pl_program_output_name(p, i);
        if (pl_program_output_type(p, i).rank != 0) continue;
        if (strncmp(output, "grad.", 5) == 0) continue;
        const char *name = t->name ? pl_arena_printf(&r->arena, "%s.%s", t->name, output)
                                   : pl_arena_strdup(&r->arena, output);
        if (!name) return PL_ERR_MEMORY;
        t->term[t->n_terms++] = (pl_term){name, i, p == t->apply};
    }
    return PL_OK;
}

/* Names everything that the programs of a step report. */
static pl_status name_all_terms(pl_run *r, pl_variant *v)
{
    int total = 0;
    for (int i = 0; i < v->n_step_programs; i++) {
        pl_step_program *t = &v->step_programs[i];
        int n =
            pl_program_output_count(t->run) + (t->apply ? pl_program_output_count(t->apply) : 0);
        t->term = pl_arena_new(&r->arena, pl_term, n + 1);
        if (!t->term) return PL_ERR_MEMORY;
        PL_TRY(name_terms(r, t, t->run));
        if (t->apply) PL_TRY(name_terms(r, t, t->apply));
        total += t->n_terms;
    }
    PL_FAIL_IF(total > PL_MAX_TERMS, PL_ERR_CONFIG,
               "the programs of a step have %d scalar outputs; at most %d can be reported", total,
               PL_MAX_TERMS);
    return PL_OK;
}

/* Moves the graph of a draft into a program. */
static pl_status compile_draft(pl_draft *d, const pl_compile_opts *o, pl_program **out)
{
    pl_graph *g = d->g;
    d->g = NULL;
    return pl_compile(g, o, out);
}

/* A program to compile, in a separate thread or not. */
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

/* For a GPU all programs are compiled at once, each in a thread: its libraries are thread-safe, and
 * the host is idle otherwise. Not with several ranks, whose kernels communicate while they are
 * prepared and must do so in one order; nor where algorithms are timed, because other threads
 * disturb the times. A program depends only on its graph and options, so the result is the same. Of
 * several failures the first in the list is reported. */
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

/* Where the programs of a variant are compiled into, and the options. */
typedef struct target {
    pl_run *r;
    pl_step_build *build;
    pl_variant *v;
    compile_list jobs;
    pl_compile_opts forward; /* of programs without a backward pass */
    pl_compile_opts update;  /* of updates */
} target;

static pl_status add_program(target *to, pl_program_draft *d)
{
    pl_step_program *t = &to->v->step_programs[to->v->n_step_programs++];
    t->when = d->when;
    t->name = d->name ? pl_arena_strdup(&to->r->arena, d->name) : NULL;
    t->section = d->groups ? pl_arena_strdup(&to->r->arena, d->groups->section) : NULL;
    if ((d->name && !t->name) || (d->groups && !t->section)) return PL_ERR_MEMORY;
    add_job(&to->jobs, &d->run, &to->r->compile, &t->run);
    add_job(&to->jobs, &d->apply, &to->update, &t->apply);
    return PL_OK;
}

/* Adds the programs in the order in which they run: the recipe's programs before the training
 * program, the training program, the programs after it. */
static pl_status add_programs(target *to, pl_builder *graphs)
{
    for (int i = 1; i < graphs->n_step_programs; i++)
        if (!graphs->step_programs[i].when.after)
            PL_TRY(add_program(to, &graphs->step_programs[i]));
    PL_TRY(add_program(to, &graphs->step_programs[0]));
    for (int i = 1; i < graphs->n_step_programs; i++)
        if (graphs->step_programs[i].when.after) PL_TRY(add_program(to, &graphs->step_programs[i]));
    return PL_OK;
}

/* The programs that train and evaluate, and the names of their outputs. */
static pl_status name_programs(pl_run *r, pl_variant *v)
{
    PL_TRY(name_all_terms(r, v));
    for (int i = 0; i < v->n_step_programs; i++) {
        const pl_step_program *t = &v->step_programs[i];
        if (t->name) continue;
        v->train = t->run;
        v->apply = t->apply;
    }
    if (r->purpose.goal == PL_GOAL_EVALUATE) v->eval = v->train;
    for (int i = 0; v->eval && i < pl_program_output_count(v->eval); i++) {
        pl_type type = pl_program_output_type(v->eval, i);
        char text[96];
        PL_FAIL_IF(
            type.rank != 0, PL_ERR_SHAPE,
            "evaluation output \"%s\" is %s; it must be one number: take its mean over the batch",
            pl_program_output_name(v->eval, i), pl_type_text(&type, text, sizeof text));
    }
    return PL_OK;
}

static pl_status compile_all(target *to, pl_builder *graphs)
{
    pl_run *r = to->r;
    r->compile.device = pl__ranks_device(r);
    PL_TRY(mark_segments(r, graphs));
    r->compile.precision = precision_of(r->config);
    to->forward = r->compile;
    if (to->forward.checkpointing == PL_CHECKPOINT_BLOCKS)
        to->forward.checkpointing = PL_CHECKPOINT_AUTO;
    to->update = to->forward;
    if (to->build->host_updates) to->update.device = "cpu";
    PL_TRY(add_programs(to, graphs));
    add_job(&to->jobs, &graphs->eval, &to->forward, &to->v->eval);
    if (!to->build->sample && graphs->sample.g) {
        PL_TRY(pl__sample_keep(r, to->build, graphs));
        add_job(&to->jobs, &graphs->sample, &to->forward, &to->build->sample);
    }
    PL_TRY(compile_jobs(r, &to->jobs));
    return name_programs(r, to->v);
}

pl_status pl__step_programs_compile(pl_run *r, pl_step_build *b, pl_variant *v, pl_builder *graphs)
{
    target *to = pl_sys_alloc(sizeof *to); /* too large for the stack */
    pl_status rc = PL_ERR_MEMORY;
    if (to) {
        *to = (target){.r = r, .build = b, .v = v};
        rc = compile_all(to, graphs);
    }
    pl_sys_free(to);
    pl__builder_release(graphs);
    return rc;
}
