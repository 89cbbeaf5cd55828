/* accumulate.c - whether a batch may be split into micro-batches without changing results.
 *
 * Idea: the recipe is built twice more, at the batch and at the micro-batch, and the two graphs are
 * compared (pass/batch.h): a gradient that is a sum over samples is the sum of its micro-batches.
 * Constructors simplify ops on a single sample, so a micro-batch of 1 is compared as one of 2;
 * graphs that still differ in structure are compared again at 8 times the batch. Coupling does not
 * depend on sizes, so the answer holds for the batch. Cost: graphs only, nothing is compiled.
 */
#include "base/sys.h"
#include "pass/batch.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pl_status pl__accumulate_asked(const pl_config *c, int64_t *accumulate)
{
    const char *text = pl_config_text(c, "accumulate");
    long long batch = (long long)pl_config_int(c, "batch"),
              ranks = (long long)pl_config_int(c, "ranks");
    char *end;
    *accumulate = 0;
    if (strcmp(text, "auto") == 0) return PL_OK;
    *accumulate = strtoll(text, &end, 10);
    PL_FAIL_IF(end == text || *end || *accumulate < 1, PL_ERR_CONFIG,
               "accumulate is \"%s\"; it must be auto or a number of micro-batches, e.g. 4", text);
    PL_FAIL_IF(
        batch % (*accumulate * ranks), PL_ERR_CONFIG,
        ranks > 1
            ? "accumulate: %s does not divide batch: %lld into equal micro-batches of %lld ranks"
            : "accumulate: %s does not divide batch: %lld into equal micro-batches",
        text, batch, ranks);
    return PL_OK;
}

pl_status pl__probe(pl_run *r, int64_t batch, const pl_nn_ranks *ranks, pl_builder *b)
{
    *b = (pl_builder){.run = r,
                      .config = r->config,
                      .batch = batch,
                      .accumulate = 1,
                      .goal = PL_GOAL_PROBE,
                      .draws_are_inputs = r->purpose.goal == PL_GOAL_REPLAY,
                      .f64 = r->purpose.f64,
                      .ranks = ranks};
    b->store = pl_store_new();
    return b->store ? pl__builder_run(b, r->recipe) : PL_ERR_MEMORY;
}

void pl__probe_release(pl_builder *b)
{
    pl__builder_release(b);
    pl_store_free(b->store);
}

static pl_status compare(pl_program_draft *whole, pl_program_draft *micro, int64_t batch,
                         int64_t accumulate, bool at_once, pl_batch_report *out)
{
    int room = 0, n = 0;
    for (const pl_group_draft *k = whole->groups; k; k = k->next) room += k->grads.n + 1;
    pl_val *goals = pl_arena_new(&whole->run.g->arena, pl_val, (size_t)room + 1);
    if (!goals) return PL_ERR_MEMORY;
    for (const pl_group_draft *k = whole->groups; k; k = k->next) {
        for (int i = 0; i < k->grads.n; i++) goals[n++] = k->grads.grad[i];
        goals[n++] = k->loss;
    }
    return pl_batch_analyse(whole->run.g, micro->run.g, batch, accumulate, at_once, goals, n, out);
}

/* Compares the programs of the step one by one. text: why the first coupled program couples, "" if
 * none does. */
static pl_status compare_programs(pl_builder *whole, pl_builder *micro, int64_t accumulate,
                                  char *text, size_t cap)
{
    char why[1024];
    text[0] = '\0';
    PL_FAIL_IF(whole->n_step_programs != micro->n_step_programs, PL_ERR_GRAPH,
               "the step has other programs at a "
               "smaller batch");
    for (int i = 0; i < whole->n_step_programs && !text[0]; i++) {
        pl_program_draft *t = &whole->step_programs[i];
        pl_batch_report report;
        if (!t->minimised) continue;
        PL_TRY(compare(t, &micro->step_programs[i], whole->batch, accumulate, whole->ranks != NULL,
                       &report));
        if (!report.proven)
            snprintf(text, cap, "%s%s%s", t->name ? t->name : "", t->name ? ": " : "",
                     pl_batch_text(&report, why, sizeof why));
    }
    return PL_OK;
}

/* *why as in pl__run_couples. PL_ERR_GRAPH when the two builds cannot be compared. */
static pl_status couples_at(pl_run *r, int64_t batch, int64_t accumulate, const pl_nn_ranks *ranks,
                            const char **why)
{
    int64_t asked = pl_config_int(r->config, "batch") / accumulate;
    char text[1200];
    *why = NULL;
    pl_builder *both = pl_sys_alloc(2 * sizeof *both);
    if (!both) return PL_ERR_MEMORY;
    pl_builder *micro = both + 1;
    pl_status rc = pl__probe(r, batch, ranks, both);
    if (rc == PL_OK) rc = pl__probe(r, batch / accumulate, ranks, micro);
    bool fixed = rc != PL_OK && both->fixed_batch == asked;
    if (fixed) rc = PL_OK; /* the network has no larger batch to compare with */
    text[0] = '\0';
    if (rc == PL_OK && !fixed) rc = compare_programs(both, micro, accumulate, text, sizeof text);
    if (rc == PL_OK && text[0]) {
        *why = pl_arena_strdup(&r->arena, text);
        if (!*why) rc = PL_ERR_MEMORY;
    }
    pl__probe_release(micro);
    pl__probe_release(both);
    pl_sys_free(both);
    return rc;
}

pl_status pl__run_couples(pl_run *r, int64_t accumulate, const pl_nn_ranks *ranks, const char **why)
{
    enum { LARGER = 8 };
    int64_t batch = pl_config_int(r->config, "batch"), scale = batch / accumulate == 1 ? 2 : 1;
    pl_status rc = couples_at(r, batch * scale, accumulate, ranks, why);
    if (rc == PL_ERR_GRAPH) rc = couples_at(r, batch * LARGER, accumulate, ranks, why);
    if (rc != PL_ERR_GRAPH) return rc;
    *why = pl_arena_strdup(&r->arena, pl_error_text());
    return *why ? PL_OK : PL_ERR_MEMORY;
}
