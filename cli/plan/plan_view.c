/* plan_view.c - a plan as people read it: its parts, what made it small, its peak; and as JSON.
 *
 * Three tables. Parts: the bytes alive at the peak by kind, of the plan that keeps everything and
 * of the one that runs; rows add up to the process. Means: from a buffer for every result down to
 * the plan that runs, one of the planner's means more in each row, so that a row's saving is what
 * that one adds to those above it. Every figure is that of a plan, none an estimate. Peak: who is
 * alive where most bytes are, and the fullest steps around.
 */
#include "plan_view.h"
#include "plimsoll_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 5, NEIGHBOURS = 5 };

static const char *const component_names[PL_N_COMPONENTS] = {
    "weights", "gradients", "optimizer", "activations", "workspace", "inputs"};

const char *plan_component_name(enum pl_component c)
{
    return component_names[c];
}

/* ---- programs --------------------------------------------------------------------------- */
plan_program plan_program_at(const pl_run *run, int i)
{
    plan_program p = {0};
    int turns = pl_run_step_program_count(run), at = 0;
    for (int k = 0; k < turns; k++) {
        pl_run_step_program t = pl_run_step_program_at(run, k);
        if (at++ == i) {
            p.program = t.run;
            snprintf(p.name, sizeof p.name, "%s", t.name);
        }
        if (t.apply && at++ == i) {
            p.program = t.apply;
            snprintf(p.name, sizeof p.name, "update of %s", t.name);
        }
    }
    const pl_program *others[] = {pl_run_eval_program(run), pl_run_sample_program(run)};
    for (int k = 0; k < 2; k++)
        if (others[k] && at++ == i) {
            p.program = others[k];
            snprintf(p.name, sizeof p.name, "%s", k ? "sampling" : "evaluation");
        }
    return p;
}

static uint64_t arena_of(const pl_program *p, bool kept)
{
    const pl_plan_info *info = pl_program_plan(p);
    return kept ? info->keep_all_bytes : info->arena_bytes;
}

/* Of several that are as wide the training program. */
plan_program plan_widest(const pl_run *run, bool kept)
{
    plan_program best = {.program = pl_run_train_program(run), .name = "train"}, p;
    for (int i = 0; (p = plan_program_at(run, i)).program; i++)
        if (arena_of(p.program, kept) > arena_of(best.program, kept)) best = p;
    return best;
}

const char *plan_whose(const pl_run *run, char *buf, size_t cap)
{
    plan_program p = plan_widest(run, false);
    buf[0] = '\0';
    if (p.program != pl_run_train_program(run)) snprintf(buf, cap, ", the %s program", p.name);
    return buf;
}

double plan_keep_all_ms(const pl_run *run)
{
    double ms = 0, parts = (double)pl_run_split_get(run).accumulate;
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program t = pl_run_step_program_at(run, i);
        ms += t.share * parts * pl_program_plan(t.run)->keep_all_ms;
        if (t.apply) ms += t.share * pl_program_plan(t.apply)->keep_all_ms;
    }
    return ms;
}

double plan_again(const pl_run *run)
{
    double all = 0, again = 0, parts = (double)pl_run_split_get(run).accumulate;
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program t = pl_run_step_program_at(run, i);
        const pl_plan_info *p[] = {pl_program_plan(t.run),
                                   t.apply ? pl_program_plan(t.apply) : NULL};
        for (int k = 0; k < 2 && p[k]; k++) {
            double ms = t.share * (k ? 1 : parts) * p[k]->predicted_step_ms;
            all += ms;
            again += ms * p[k]->recompute_ratio;
        }
    }
    return all > 0 ? again / all : 0;
}

/* ---- what the plan has taken ------------------------------------------------------------- */
const char *plan_tradeoffs(const pl_run *run, char *buf, size_t cap)
{
    const pl_tradeoff *t;
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; n + 1 < cap && (t = pl_run_tradeoff_at(run, i, NULL)); i++)
        n += (size_t)snprintf(buf + n, cap - n, ", %s", t->done);
    return buf;
}

static void print_tradeoffs(const pl_run *run, FILE *out)
{
    const pl_tradeoff *t;
    double ms;
    int i = 0;
    for (; (t = pl_run_tradeoff_at(run, i, &ms)); i++) {
        fprintf(out, "%s%s%s (%s): %s ", cli_bold(out), t->done, cli_plain(out), t->setting,
                t->instead);
        if (ms > 0)
            fprintf(out, "would take %s a step in this budget\n", cli_ms(ms));
        else
            fprintf(out, "does not fit the budget\n");
    }
    if (i) fputc('\n', out);
}

static void tradeoffs_json(const pl_run *run, pl_json *j)
{
    const pl_tradeoff *t;
    pl_json_array(j, "trades");
    for (int i = 0; (t = pl_run_tradeoff_at(run, i, NULL)); i++)
        pl_json_string(j, NULL, t->setting);
    pl_json_end(j);
}

/* ---- parts ------------------------------------------------------------------------------ */
static void part_row(FILE *out, const char *name, uint64_t kept, uint64_t planned, const char *note)
{
    fprintf(out, "  %-12s %11s %11s  %s\n", name, cli_bytes(kept), cli_bytes(planned), note);
}

/* Parameters that nothing trains. */
static uint64_t frozen_bytes(const pl_run *run)
{
    const pl_store *s = pl_run_store(run);
    uint64_t sum = 0;
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        if (slot->kind == PL_SLOT_PARAM && !slot->trainable) sum += pl_type_bytes(&slot->type);
    }
    return sum;
}

/* all: of the program that is the widest with everything kept. */
static void print_parts(const pl_run *run, const pl_plan_info *all, const pl_plan_info *p,
                        const pl_run_memory *m, FILE *out)
{
    uint64_t planned = m->arena + m->state, kept = all->keep_all_bytes + m->state;
    double most = (double)(kept > planned ? kept : planned);
    fprintf(out, "  %-12s %11s %11s\n", "at the peak", "all kept", "planned");
    for (int i = 0; i < PL_N_COMPONENTS; i++)
        part_row(out, component_names[i], all->keep_all_components[i], p->components[i],
                 cli_bar(most > 0 ? (double)p->components[i] / most : 0, 30));
    uint64_t gaps = m->arena > p->live_bound_bytes ? m->arena - p->live_bound_bytes : 0;
    uint64_t kept_gaps = all->keep_all_bytes - all->keep_all_bound_bytes;
    if (gaps || kept_gaps) part_row(out, "gaps", kept_gaps, gaps, "between buffers");
    bool here = !times_is_profile(pl_config_text(pl_run_config(run), "device"), NULL);
    part_row(out, "overhead", m->overhead, m->overhead,
             here ? "program, libraries, stacks (measured, with a margin)"
                  : "the card's context and libraries, staged inputs (estimated)");
    fprintf(out, "  %s%-12s %11s %11s%s", cli_bold(out), "process", cli_bytes(kept + m->overhead),
            cli_bytes(m->total), cli_plain(out));
    if (m->budget)
        fprintf(out, "  %s the budget of %s", m->fits ? "fits" : "does NOT fit",
                cli_bytes(m->budget));
    if (m->asked > m->budget)
        fprintf(out, ", all that the card has (asked for: %s)", cli_bytes(m->asked));
    double ms = pl_run_predicted_ms(run), kept_ms = plan_keep_all_ms(run);
    fprintf(out, "\n  %-12s %11s %11s  predicted", "step", cli_ms(kept_ms), cli_ms(ms));
    if (plan_again(run) > 0)
        fprintf(out, "; %.1f %% of it is computed again", 100 * plan_again(run));
    fprintf(out, "\n  %-12s %11s %11s  smallest budget found\n", "minimum", "",
            cli_bytes(m->minimum));
    fprintf(out, "  arena %llu bytes, state %llu bytes", (unsigned long long)m->arena,
            (unsigned long long)m->state);
    uint64_t frozen = frozen_bytes(run);
    if (frozen) fprintf(out, ", of it %s of frozen weights", cli_bytes(frozen));
    fprintf(out, "\n");
}

/* ---- means ------------------------------------------------------------------------------ */
enum { MEAN_VIEWS = 1 }; /* its row */

/* A row's arena is what the program takes that takes most there: not in every row the same. */
int plan_means(const pl_run *run, plan_mean *out)
{
    double kept = plan_keep_all_ms(run), now = pl_run_predicted_ms(run);
    plan_program p;
    int n = 0;
    out[n++] = (plan_mean){"own_bytes", "every result in bytes of its own", 0, kept};
    out[n++] = (plan_mean){"views", "views look, nothing is copied", 0, kept};
    out[n++] = (plan_mean){"sharing", "dead results give their bytes away", 0, kept};
    out[n++] = (plan_mean){"in_place", "results over their own operands", 0, kept};
    out[n++] = (plan_mean){"order", "steps in a better order", 0, kept};
    out[n++] = (plan_mean){"offsets", "gaps between buffers", 0, kept};
    out[n++] = (plan_mean){"recompute", "computing again", 0, now};
    for (int i = 0; (p = plan_program_at(run, i)).program; i++) {
        const pl_plan_info *info = pl_program_plan(p.program);
        const uint64_t bytes[] = {info->copied_views_bytes,   info->no_reuse_bytes,
                                  info->own_bytes_bound,      info->order_bound,
                                  info->keep_all_bound_bytes, info->keep_all_bytes,
                                  info->arena_bytes};
        for (int k = 0; k < n; k++)
            if (bytes[k] > out[k].bytes) out[k].bytes = bytes[k];
    }
    return n;
}

/* A difference with its sign; "-" for none. */
static const char *signed_bytes(uint64_t from, uint64_t to, char *buf, size_t cap)
{
    if (from == to) return "-";
    snprintf(buf, cap, "%s%s", to < from ? "-" : "+", cli_bytes(to < from ? from - to : to - from));
    return buf;
}

static const char *signed_ms(double from, double to, char *buf, size_t cap)
{
    double by = to - from;
    if (by == 0) return "-";
    snprintf(buf, cap, "%s%s", by < 0 ? "-" : "+", cli_ms(by < 0 ? -by : by));
    return buf;
}

void plan_means_print(const plan_mean *mean, int n, FILE *out)
{
    fprintf(out, "\n  %-38s %10s %12s %10s\n", "The arena, with one means more a row", "arena",
            "saved", "step");
    for (int i = 0; i < n; i++) {
        char bytes[80], ms[80];
        if (i && mean[i].bytes == mean[i - 1].bytes && mean[i].ms == mean[i - 1].ms) continue;
        fprintf(out, "  %-38s %10s %12s %10s\n", mean[i].what, cli_bytes(mean[i].bytes),
                i ? signed_bytes(mean[i - 1].bytes, mean[i].bytes, bytes, sizeof bytes) : "",
                i ? signed_ms(mean[i - 1].ms, mean[i].ms, ms, sizeof ms) : cli_ms(mean[i].ms));
    }
}

void plan_means_json(const plan_mean *mean, int n, pl_json *j)
{
    pl_json_array(j, "means");
    for (int i = 0; i < n; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "name", mean[i].name);
        pl_json_uint(j, "arena_bytes", mean[i].bytes);
        pl_json_float(j, "step_ms", mean[i].ms);
        pl_json_end(j);
    }
    pl_json_end(j);
}

/* ---- the peak --------------------------------------------------------------------------- */
static int by_size(const void *a, const void *b)
{
    const pl_plan_buffer *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The buffers alive at a step, largest first; the caller frees them. */
static pl_plan_buffer *alive_at(const pl_program *program, int step, size_t *n)
{
    int all = pl_program_plan(program)->buffers;
    pl_plan_buffer *alive = calloc((size_t)all + 1, sizeof *alive);
    *n = 0;
    for (int i = 0; alive && i < all; i++) {
        pl_plan_buffer b = pl_program_buffer(program, i);
        if (b.first <= step && step < b.last) alive[(*n)++] = b;
    }
    if (alive) qsort(alive, *n, sizeof *alive, by_size);
    return alive;
}

static void print_alive(const pl_program *program, const pl_plan_info *p, FILE *out)
{
    size_t n;
    pl_plan_buffer *alive = alive_at(program, p->peak_step, &n);
    for (size_t i = 0; i < n && i < LARGEST; i++) {
        char type[96] = "", life[48];
        const pl_plan_buffer *b = &alive[i];
        if (b->component != PL_COMP_WORKSPACE) pl_type_text(&b->type, type, sizeof type);
        snprintf(life, sizeof life, "%d-%d", b->first + 1, b->last);
        fprintf(out, "  %11s  %-11s %9s  %s%s%s\n", cli_bytes(b->bytes),
                component_names[b->component], life, b->label, *type ? "  " : "", type);
    }
    if (n > LARGEST) {
        uint64_t rest = 0;
        for (size_t i = LARGEST; i < n; i++) rest += alive[i].bytes;
        fprintf(out, "  %11s  in %zu more\n", cli_bytes(rest), n - LARGEST);
    }
    free(alive);
}

/* The fullest steps near the peak, the peak left out, in the order of time. */
static int fullest_near(const pl_plan_step *step, int n, int peak, int *out)
{
    int reach = n / 20 > 10 ? n / 20 : 10, found = 0;
    int lo = peak > reach ? peak - reach : 0, hi = peak + reach < n ? peak + reach + 1 : n;
    while (found < NEIGHBOURS) {
        int best = -1;
        for (int i = lo; i < hi; i++) {
            bool taken = i == peak;
            for (int k = 0; k < found; k++) taken |= out[k] == i;
            if (!taken && (best < 0 || step[i].bytes > step[best].bytes)) best = i;
        }
        if (best < 0) break;
        out[found++] = best;
    }
    for (int i = 1; i < found; i++)
        for (int k = i; k > 0 && out[k - 1] > out[k]; k--) {
            int t = out[k];
            out[k] = out[k - 1];
            out[k - 1] = t;
        }
    return found;
}

static void print_neighbours(const pl_program *program, const pl_plan_info *p, FILE *out)
{
    pl_plan_step *step = calloc((size_t)p->steps + 1, sizeof *step);
    if (!step) return;
    pl_program_steps(program, false, step, p->steps);
    int near[NEIGHBOURS], n = fullest_near(step, p->steps, p->peak_step, near);
    fprintf(out, "The fullest steps around it:\n");
    for (int i = 0; i < n; i++)
        fprintf(out, "  %11s  %-11s %9d  %s\n", cli_bytes(step[near[i]].bytes),
                step[near[i]].again ? "again" : "", near[i] + 1,
                pl_program_step_label(program, near[i]));
    free(step);
}

static void print_peak(const pl_program *program, const pl_plan_info *p, FILE *out)
{
    fprintf(out, "\nPeak at step %d of %d: %s%s%s, %s alive. The largest, with their steps:\n",
            p->peak_step + 1, p->steps, cli_bold(out), p->peak_node, cli_plain(out),
            cli_bytes(p->live_bound_bytes));
    print_alive(program, p, out);
    print_neighbours(program, p, out);
}

static void peak_json(const pl_program *program, const pl_plan_info *p, pl_json *j)
{
    size_t n;
    pl_plan_buffer *alive = alive_at(program, p->peak_step, &n);
    pl_json_string(j, "peak_node", p->peak_node);
    pl_json_int(j, "peak_step", p->peak_step + 1);
    pl_json_array(j, "peak_alive");
    for (size_t i = 0; i < n && i < LARGEST; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "label", alive[i].label);
        pl_json_string(j, "component", component_names[alive[i].component]);
        pl_json_uint(j, "bytes", alive[i].bytes);
        pl_json_int(j, "first_step", alive[i].first + 1);
        pl_json_int(j, "last_step", alive[i].last);
        pl_json_end(j);
    }
    pl_json_end(j);
    free(alive);
}

/* ---- buckets ---------------------------------------------------------------------------- */
static void print_buckets(const pl_run *run, FILE *out)
{
    int n = pl_run_bucket_count(run);
    uint64_t most = 0;
    for (int i = 0; i < n; i++)
        if (pl_run_bucket_at(run, i).arena_bytes > most)
            most = pl_run_bucket_at(run, i).arena_bytes;
    if (n) fprintf(out, "\n  %-12s %11s %11s\n", "bucket", "arena", "step");
    for (int i = 0; i < n; i++) {
        pl_run_bucket b = pl_run_bucket_at(run, i);
        char size[32];
        snprintf(size, sizeof size, "%d x %d", b.height, b.width);
        fprintf(out, "  %-12s %11s %11s%s\n", size, cli_bytes(b.arena_bytes), cli_ms(b.step_ms),
                b.arena_bytes == most ? "  the largest" : "");
    }
}

static void buckets_json(const pl_run *run, pl_json *j)
{
    int n = pl_run_bucket_count(run);
    if (n) pl_json_array(j, "buckets");
    for (int i = 0; i < n; i++) {
        pl_run_bucket b = pl_run_bucket_at(run, i);
        pl_json_object(j, NULL);
        pl_json_int(j, "height", b.height);
        pl_json_int(j, "width", b.width);
        pl_json_uint(j, "arena_bytes", b.arena_bytes);
        pl_json_float(j, "predicted_step_ms", b.step_ms);
        pl_json_end(j);
    }
    if (n) pl_json_end(j);
}

/* What one of several ranks sends and waits for. */
static void print_links(const pl_run *run, const pl_run_split *split, FILE *out)
{
    pl_run_links l = pl_run_links_get(run);
    double ms = pl_run_predicted_ms(run);
    fprintf(
        out,
        "This is the plan of one of %lld ranks, which have each %s%s%s. A rank sends %s a step in %s, of\n"
        "which %s wait: %.1f %% of a step computes.\n\n",
        (long long)split->ranks, l.shard == PL_SHARD_NONE ? "everything" : "their part of ",
        l.shard == PL_SHARD_NONE        ? ""
        : l.shard == PL_SHARD_OPTIMIZER ? "the optimizer's state"
        : l.shard == PL_SHARD_GRADIENTS ? "optimizer and gradients"
                                        : "optimizer, gradients and weights",
        "", cli_bytes((uint64_t)l.bytes), cli_ms(l.ms), cli_ms(l.wait_ms),
        ms > 0 ? 100 * (ms - l.wait_ms) / ms : 100.0);
}

/* ---- the whole -------------------------------------------------------------------------- */
void plan_print(const pl_run *run, const char *name, const plan_mean *mean, int n, FILE *out)
{
    plan_program now = plan_widest(run, false), all = plan_widest(run, true);
    const pl_plan_info *p = pl_program_plan(now.program);
    pl_run_memory m = pl_run_memory_get(run);
    pl_run_split split = pl_run_split_get(run);
    fprintf(out, "%s%s%s%s%s: %s parameters, batch %lld (micro %lld x accumulate %lld)\n\n",
            cli_bold(out), name, pl_run_phase(run) < 0 ? "" : ", phase ",
            pl_run_phase(run) < 0 ? "" : pl_run_phase_at(run, pl_run_phase(run))->name,
            cli_plain(out), cli_count(pl_run_parameters(run, false)), (long long)split.effective,
            (long long)split.micro, (long long)split.accumulate);
    if (split.ranks > 1) print_links(run, &split, out);
    if (split.coupled)
        fprintf(out, "accumulate: auto does not split the batch, its samples couple: %s\n\n",
                split.coupled);
    print_tradeoffs(run, out);
    if (now.program != pl_run_train_program(run))
        fprintf(out, "The %s program takes most; this is its plan.\n", now.name);
    if (now.program != all.program)
        fprintf(out, "With everything kept the %s program would: \"all kept\" is of that one.\n",
                all.name);
    if (now.program != pl_run_train_program(run) || now.program != all.program) fputc('\n', out);
    print_parts(run, pl_program_plan(all.program), p, &m, out);
    print_buckets(run, out);
    if (n) plan_means_print(mean, n, out);
    print_peak(now.program, p, out);
    fprintf(
        out,
        "\nArena %.3f x the most bytes alive at once; %d nodes in %d units, planned in %.0f ms.\n",
        p->live_bound_bytes ? (double)p->arena_bytes / (double)p->live_bound_bytes : 1.0, p->nodes,
        p->units, p->plan_ms);
    times_print(run, p, out);
}

static void components_json(pl_json *j, const char *name, const uint64_t *bytes)
{
    pl_json_object(j, name);
    for (int i = 0; i < PL_N_COMPONENTS; i++) pl_json_uint(j, component_names[i], bytes[i]);
    pl_json_end(j);
}

void plan_json(const pl_run *run, pl_json *j)
{
    plan_program now = plan_widest(run, false);
    const pl_plan_info *p = pl_program_plan(now.program),
                       *all = pl_program_plan(plan_widest(run, true).program);
    pl_run_memory m = pl_run_memory_get(run);
    pl_run_split split = pl_run_split_get(run);
    plan_mean mean[PLAN_MEANS];
    plan_means(run, mean);
    if (pl_run_phase(run) >= 0)
        pl_json_string(j, "phase", pl_run_phase_at(run, pl_run_phase(run))->name);
    pl_json_bool(j, "fits", m.fits);
    if (m.budget)
        pl_json_uint(j, "budget_bytes", m.budget);
    else
        pl_json_null(j, "budget_bytes");
    pl_json_uint(j, "arena_bytes", m.arena);
    pl_json_uint(j, "state_bytes", m.state);
    pl_json_uint(j, "frozen_bytes", frozen_bytes(run));
    pl_json_uint(j, "overhead_bytes", m.overhead);
    pl_json_uint(j, "total_bytes", m.total);
    pl_json_uint(j, "keep_all_bytes", all->keep_all_bytes);
    pl_json_uint(j, "minimum_bytes", m.minimum);
    pl_json_uint(j, "live_bound_bytes", p->live_bound_bytes);
    pl_json_uint(j, "no_reuse_bytes", mean[MEAN_VIEWS].bytes);
    pl_json_float(j, "recompute_ratio", plan_again(run));
    pl_json_float(j, "predicted_step_ms", pl_run_predicted_ms(run));
    pl_json_float(j, "keep_all_step_ms", plan_keep_all_ms(run));
    pl_json_int(j, "micro_batch", split.micro);
    pl_json_int(j, "accumulate", split.accumulate);
    pl_json_int(j, "effective_batch", split.effective);
    tradeoffs_json(run, j);
    pl_json_int(j, "ranks", split.ranks);
    if (split.ranks > 1) {
        pl_run_links l = pl_run_links_get(run);
        pl_json_string(j, "shard", pl_shard_name(l.shard));
        pl_json_float(j, "link_bytes", l.bytes);
        pl_json_float(j, "link_ms", l.ms);
        pl_json_float(j, "link_wait_ms", l.wait_ms);
    }
    pl_json_int(j, "parameters", pl_run_parameters(run, false));
    pl_json_int(j, "trainable", pl_run_parameters(run, true));
    pl_json_string(j, "program", now.name);
    pl_json_int(j, "nodes", p->nodes);
    pl_json_int(j, "units", p->units);
    pl_json_int(j, "steps", p->steps);
    pl_json_float(j, "plan_ms", p->plan_ms);
    components_json(j, "components", p->components);
    components_json(j, "keep_all_components", all->keep_all_components);
    peak_json(now.program, p, j);
    pl_json_string(j, "device", pl_config_text(pl_run_config(run), "device"));
    buckets_json(run, j);
    times_json(run, p, j);
}
