/* plan_levels.c - the part of a plan below the device, as rows of the table and as JSON. */
#include "plan_view.h"
#include "plimsoll_levels.h"

#include <stdlib.h>

/* Tensors below the device, and the cost of their moves. */
void plan_levels_print(const pl_run *run, FILE *out)
{
    pl_run_levels l = pl_run_levels_get(run);
    const struct {
        const char *name;
        uint64_t bytes, budget, state, overhead;
    } row[] = {
        {"host", l.host_bytes, l.host_budget_bytes, l.host_state_bytes, l.host_overhead_bytes},
        {"disk", l.disk_bytes, l.disk_budget_bytes, l.disk_state_bytes, 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (!row[i].budget) continue;
        fprintf(out, "  %-12s %11s %11s  of %s; weights and optimizer state: %s", row[i].name, "",
                cli_bytes(row[i].bytes), cli_bytes(row[i].budget), cli_bytes(row[i].state));
        if (row[i].overhead) fprintf(out, "; the process: %s", cli_bytes(row[i].overhead));
        fputc('\n', out);
    }
    if (l.moved_bytes_per_step > 0) {
        fprintf(out, "  %-12s %11s %11s  each step; ", "moved", "",
                cli_bytes((uint64_t)l.moved_bytes_per_step));
        fprintf(out, "%s hidden, ", cli_ms(l.hidden_ms));
        fprintf(out, "%s waited for\n", cli_ms(l.wait_ms));
    }
    if (l.host_updates)
        fprintf(out, "  %-12s %11s %11s  of each step: the host updates weights, all threads\n",
                "updates", "", cli_ms(l.host_update_ms));
}

/* Memory below the device; nothing where the configuration allows none. */
void plan_levels_json(const pl_run *run, pl_json *j)
{
    pl_run_levels l = pl_run_levels_get(run);
    if (!l.host_budget_bytes && !l.disk_budget_bytes) return;
    pl_json_uint(j, "host_bytes", l.host_bytes);
    pl_json_uint(j, "host_budget_bytes", l.host_budget_bytes);
    pl_json_uint(j, "host_overhead_bytes", l.host_overhead_bytes);
    pl_json_uint(j, "disk_bytes", l.disk_bytes);
    pl_json_uint(j, "disk_budget_bytes", l.disk_budget_bytes);
    pl_json_float(j, "moved_bytes_per_step", l.moved_bytes_per_step);
    pl_json_float(j, "wait_ms", l.wait_ms);
    pl_json_float(j, "hidden_ms", l.hidden_ms);
    pl_json_string(j, "updates", l.host_updates ? "host" : "device");
    pl_json_float(j, "host_update_ms", l.host_update_ms);
}

/* Adds the moves of a program that a step runs `often` times. */
static void add_moves(const pl_program *p, double often, plan_channel *out)
{
    int n = p ? pl_program_moves(p, NULL, 0) : 0;
    pl_plan_move *move = n ? calloc((size_t)n, sizeof *move) : NULL;
    if (!move) return;
    pl_program_moves(p, move, n);
    for (int i = 0; i < n; i++) {
        out[move[i].channel].bytes += often * (double)move[i].bytes;
        out[move[i].channel].ms += often * (move[i].end_ms - move[i].begin_ms);
    }
    free(move);
}

void plan_channels(const pl_run *run, plan_channel out[PLAN_CHANNELS])
{
    static const char *const names[PLAN_CHANNELS] = {
        [PL_MOVE_DOWN] = "to host",
        [PL_MOVE_UP] = "from host",
        [PL_MOVE_WRITE] = "to disk",
        [PL_MOVE_READ] = "from disk",
    };
    double micro_batches = (double)pl_run_split_get(run).accumulate;
    for (int k = 0; k < PLAN_CHANNELS; k++) out[k] = (plan_channel){.name = names[k]};
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program t = pl_run_step_program_at(run, i);
        add_moves(t.run, t.share * micro_batches, out);
        add_moves(t.apply, t.share, out);
    }
}

static int by_begin(const void *a, const void *b)
{
    const plan_span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Joins sorted spans that are less than `gap` apart; returns how many are left. */
static int join_spans(plan_span *span, int n, double gap)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        plan_span *last = kept ? &span[kept - 1] : NULL;
        if (last && span[i].begin - last->end < gap)
            last->end = span[i].end > last->end ? span[i].end : last->end;
        else
            span[kept++] = span[i];
    }
    return kept;
}

int plan_spans(const pl_program *p, int channel, double ms, plan_span out[PLAN_SPANS])
{
    int n = pl_program_moves(p, NULL, 0), used = 0;
    pl_plan_move *move = n ? calloc((size_t)n, sizeof *move) : NULL;
    plan_span *span = n ? calloc((size_t)n, sizeof *span) : NULL;
    if (move && span) pl_program_moves(p, move, n);
    for (int i = 0; move && span && i < n; i++)
        if ((int)move[i].channel == channel)
            span[used++] = (plan_span){move[i].begin_ms, move[i].end_ms};
    if (used) qsort(span, (size_t)used, sizeof *span, by_begin);
    for (double gap = ms / 1000; used > 0; gap *= 2) {
        used = join_spans(span, used, gap);
        if (used <= PLAN_SPANS) break;
    }
    for (int i = 0; i < used; i++) out[i] = span[i];
    free(move);
    free(span);
    return used;
}
