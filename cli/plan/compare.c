/* compare.c - `plan --compare`: the model's own segments beside what the planner finds.
 *
 * Segments that a model marks (pl_scope_checkpoint) are what people do by hand: keep what enters a
 * scope, compute the rest again. The planner is given the bytes that this takes, so that the two
 * differ in time only; all kept and the smallest budget stand around them. Every row is a plan of
 * its own.
 */
#include "plan_view.h"

typedef struct way {
    const char *name, *what; /* of JSON, of people */
    const char *checkpointing;
    bool fits;
    pl_run_memory memory;
    double step_ms, recompute;
} way;

/* Plans with the key `checkpointing` set, under a budget (0: none). */
static pl_status plan_way(const cli_args *a, uint64_t budget, bool minimum, way *w)
{
    cli_args b = *a;
    char how[64], memory[32] = "null";
    pl_run *run = NULL;
    if (b.n_overrides == CLI_MAX_ARGS) return PL_ERR_ARG;
    snprintf(how, sizeof how, "checkpointing=%s", w->checkpointing);
    b.overrides[b.n_overrides++] = how;
    if (budget) snprintf(memory, sizeof memory, "%llu", (unsigned long long)budget);
    cli_busy("planning: %s", w->what);
    pl_status rc = plan_open(&b, memory, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK && minimum) rc = pl_run_find_minimum(run);
    if (rc == PL_OK) {
        w->memory = pl_run_memory_get(run);
        w->fits = w->memory.fits;
        w->step_ms = pl_run_predicted_ms(run);
        w->recompute = plan_again(run);
    }
    pl_run_free(run);
    cli_idle();
    return rc;
}

static void print_ways(const char *name, const way *w, int n)
{
    printf("%s\n  %-28s %11s %11s %12s %12s\n", name, "", "process", "step", "more time",
           "recomputed");
    for (int i = 0; i < n; i++) {
        if (!w[i].fits) {
            printf("  %-28s %11s\n", w[i].what, "none found");
            continue;
        }
        printf("  %-28s %11s %11s %10.1f %% %10.1f %%\n", w[i].what, cli_bytes(w[i].memory.total),
               cli_ms(w[i].step_ms), 100 * (w[i].step_ms / w[0].step_ms - 1), 100 * w[i].recompute);
    }
    if (w[1].step_ms == w[0].step_ms)
        printf("\nThe model marks no segments: there is nothing to compare with.\n");
}

static pl_status print_json(const way *w, int n)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_array(j, NULL);
    for (int i = 0; i < n; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "way", w[i].name);
        pl_json_bool(j, "fits", w[i].fits);
        pl_json_uint(j, "arena_bytes", w[i].memory.arena);
        pl_json_uint(j, "total_bytes", w[i].memory.total);
        pl_json_float(j, "predicted_step_ms", w[i].step_ms);
        pl_json_float(j, "recompute_ratio", w[i].recompute);
        pl_json_end(j);
    }
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

int plan_compare(const cli_args *a, bool json)
{
    enum { ALL, SEGMENTS, PLANNED, LEAST, N };
    way w[N] = {
        [ALL] = {.name = "keep_all", .what = "all kept", .checkpointing = "auto"},
        [SEGMENTS] = {.name = "segments",
                      .what = "the model's segments",
                      .checkpointing = "blocks"},
        [PLANNED] = {.name = "planned", .what = "planned, the same bytes", .checkpointing = "auto"},
        [LEAST] = {.name = "minimum", .what = "planned, smallest found", .checkpointing = "auto"}};
    pl_status rc = plan_way(a, 0, true, &w[ALL]);
    if (rc == PL_OK) rc = plan_way(a, 0, false, &w[SEGMENTS]);
    if (rc == PL_OK) rc = plan_way(a, w[SEGMENTS].memory.total, false, &w[PLANNED]);
    if (rc == PL_OK) rc = plan_way(a, w[ALL].memory.minimum, false, &w[LEAST]);
    if (rc == PL_OK && json) rc = print_json(w, N);
    if (rc != PL_OK) return cli_fail(rc);
    if (!json) print_ways(a->positional[0], w, N);
    return 0;
}
