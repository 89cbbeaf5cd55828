/* compare.c - `plan --compare`: hand-marked recompute blocks against the planner.
 *
 * A model can mark blocks (pl_scope_checkpoint): keep what enters the block, recompute the rest.
 * That is gradient checkpointing by hand. The planner gets as budget the bytes that the marked
 * blocks need, so the two rows differ in time only. The keep-all plan and the minimum are shown
 * around them. Every row is a separate plan.
 */
#include "plan_view.h"

typedef struct way {
    const char *name, *title; /* for JSON, for people */
    const char *checkpointing;
    bool fits;
    pl_run_memory memory;
    double step_ms, recompute;
} way;

/* Plans with the key `checkpointing` set, under a budget in bytes (0: none). minimum: also find the
 * minimum. */
static pl_status plan_way(const cli_args *a, uint64_t budget, bool minimum, way *w)
{
    cli_args b = *a;
    char how[64], memory[32] = "null";
    pl_run *run = NULL;
    if (b.n_overrides == CLI_MAX_ARGS) return PL_ERR_ARG;
    snprintf(how, sizeof how, "checkpointing=%s", w->checkpointing);
    b.overrides[b.n_overrides++] = how;
    if (budget) snprintf(memory, sizeof memory, "%llu", (unsigned long long)budget);
    cli_busy("planning: %s", w->title);
    pl_status rc = cli_open_run(&b, memory, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK && minimum) rc = pl_run_find_minimum(run);
    if (rc == PL_OK) {
        w->memory = pl_run_memory_get(run);
        w->fits = w->memory.fits;
        w->step_ms = pl_run_predicted_ms(run);
        w->recompute = plan_recompute_share(run);
    }
    pl_run_free(run);
    cli_idle();
    return rc;
}

static void print_ways(const char *name, const way *w, int n)
{
    printf("%s\n  %-28s %11s %11s %12s %12s\n", name, "", "process", "step time", "added time",
           "recompute");
    for (int i = 0; i < n; i++) {
        if (!w[i].fits) {
            printf("  %-28s %11s\n", w[i].title, "no plan");
            continue;
        }
        printf("  %-28s %11s %11s %10.1f %% %10.1f %%\n", w[i].title, cli_bytes(w[i].memory.total),
               cli_ms(w[i].step_ms), 100 * (w[i].step_ms / w[0].step_ms - 1), 100 * w[i].recompute);
    }
    if (w[1].step_ms == w[0].step_ms)
        printf("\nThe model marks no blocks: there is nothing to compare with.\n");
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
    enum { ALL, BLOCKS, PLANNED, MINIMUM, N };
    way w[N] = {
        [ALL] = {.name = "keep_all", .title = "keep-all", .checkpointing = "auto"},
        [BLOCKS] = {.name = "segments",
                    .title = "marked blocks recomputed",
                    .checkpointing = "blocks"},
        [PLANNED] = {.name = "planned", .title = "planned, same memory", .checkpointing = "auto"},
        [MINIMUM] = {
            .name = "minimum", .title = "planned, minimum memory", .checkpointing = "auto"}};
    pl_status rc = plan_way(a, 0, true, &w[ALL]);
    if (rc == PL_OK) rc = plan_way(a, 0, false, &w[BLOCKS]);
    if (rc == PL_OK) rc = plan_way(a, w[BLOCKS].memory.total, false, &w[PLANNED]);
    if (rc == PL_OK) rc = plan_way(a, w[ALL].memory.minimum, false, &w[MINIMUM]);
    if (rc == PL_OK && json) rc = print_json(w, N);
    if (rc != PL_OK) return cli_fail(rc);
    if (!json) print_ways(a->positional[0], w, N);
    return 0;
}
