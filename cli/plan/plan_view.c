/* plan_view.c - prints a plan as tables for people, and as JSON.
 *
 * There are three tables.
 *   Components: bytes alive at the peak by kind, for the keep-all plan and for the plan that runs.
 *     The rows add up to the memory of the process.
 *   Optimisations: arena size, from a separate buffer for every tensor down to the plan that runs.
 *     Each row adds one optimisation to the rows above, so its saving is what that one contributes.
 *     Every figure comes from a plan; none is an estimate.
 *   Peak: the largest tensors alive at the peak, and the fullest positions around it.
 *
 * A position is a place in the execution order of a program: one kernel call. A step is a training
 * step. Positions are printed from 1.
 */
#include "plan_view.h"
#include "plimsoll_levels.h"
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
    int n = pl_run_step_program_count(run), at = 0;
    for (int k = 0; k < n; k++) {
        pl_run_step_program t = pl_run_step_program_at(run, k);
        if (at++ == i) {
            p.program = t.run;
            snprintf(p.name, sizeof p.name, "%s", t.name);
        }
        if (t.apply && at++ == i) {
            p.program = t.apply;
            p.update = true;
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

static uint64_t arena_of(const pl_program *p, bool keep_all)
{
    const pl_plan_info *info = pl_program_plan(p);
    return keep_all ? info->keep_all_bytes : info->arena_bytes;
}

/* Prefers the training program among programs with equal arenas. */
plan_program plan_largest_program(const pl_run *run, bool keep_all)
{
    plan_program best = {.program = pl_run_train_program(run), .name = "train"}, p;
    for (int i = 0; (p = plan_program_at(run, i)).program; i++)
        if (arena_of(p.program, keep_all) > arena_of(best.program, keep_all)) best = p;
    return best;
}

const char *plan_program_note(const pl_run *run, char *buf, size_t cap)
{
    plan_program p = plan_largest_program(run, false);
    buf[0] = '\0';
    if (p.program != pl_run_train_program(run)) snprintf(buf, cap, ", the %s program", p.name);
    return buf;
}

double plan_keep_all_ms(const pl_run *run)
{
    double ms = 0, micro_batches = (double)pl_run_split_get(run).accumulate;
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program t = pl_run_step_program_at(run, i);
        ms += t.share * micro_batches * pl_program_plan(t.run)->keep_all_ms;
        if (t.apply) ms += t.share * pl_program_plan(t.apply)->keep_all_ms;
    }
    return ms;
}

double plan_recompute_share(const pl_run *run)
{
    double all = 0, recomputed = 0, micro_batches = (double)pl_run_split_get(run).accumulate;
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program t = pl_run_step_program_at(run, i);
        const pl_plan_info *p[] = {pl_program_plan(t.run),
                                   t.apply ? pl_program_plan(t.apply) : NULL};
        for (int k = 0; k < 2 && p[k]; k++) {
            double ms = t.share * (k ? 1 : micro_batches) * p[k]->predicted_step_ms;
            all += ms;
            recomputed += ms * p[k]->recompute_ratio;
        }
    }
    return all > 0 ? recomputed / all : 0;
}

/* ---- trade-offs that the plan uses ------------------------------------------------------ */
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
    static const char *const names[] = {"trades", "tradeoffs"}; /* one list under two names */
    for (size_t k = 0; k < 2; k++) {
        pl_json_array(j, names[k]);
        for (int i = 0; (t = pl_run_tradeoff_at(run, i, NULL)); i++)
            pl_json_string(j, NULL, t->setting);
        pl_json_end(j);
    }
}

/* ---- components ------------------------------------------------------------------------- */
static void component_row(FILE *out, const char *name, uint64_t kept, uint64_t planned,
                          const char *note)
{
    fprintf(out, "  %-12s %11s %11s  %s\n", name, cli_bytes(kept), cli_bytes(planned), note);
}

/* Returns the bytes of parameters that are not trained. */
static uint64_t frozen_bytes(const pl_run *run)
{
    const pl_store *s = pl_run_store(run);
    uint64_t sum = 0;
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        if (slot->kind == PL_SLOT_PARAM && !slot->trainable) sum += pl_slot_bytes(slot);
    }
    return sum;
}

/* all: the plan of the program whose keep-all arena is the largest. */
static void print_components(const pl_run *run, const pl_plan_info *all, const pl_plan_info *p,
                             const pl_run_memory *m, FILE *out)
{
    pl_run_levels below = pl_run_levels_get(run);
    uint64_t moved = below.host_state_bytes + below.disk_state_bytes;
    uint64_t planned = m->arena + m->state, kept = all->keep_all_bytes + m->state + moved;
    double most = (double)(kept > planned ? kept : planned);
    fprintf(out, "  %-12s %11s %11s\n", "at the peak", "keep-all", "planned");
    for (int i = 0; i < PL_N_COMPONENTS; i++)
        component_row(out, component_names[i], all->keep_all_components[i], p->components[i],
                      cli_bar(most > 0 ? (double)p->components[i] / most : 0, 30));
    uint64_t gaps = m->arena > p->live_bound_bytes ? m->arena - p->live_bound_bytes : 0;
    uint64_t kept_gaps = all->keep_all_bytes - all->keep_all_bound_bytes;
    if (gaps || kept_gaps)
        component_row(out, "gaps", kept_gaps, gaps, "unused bytes between buffers");
    const char *device = pl_config_text(pl_run_config(run), "device");
    component_row(
        out, "overhead", m->overhead, m->overhead,
        times_is_profile(device, NULL) ? "GPU context, libraries, staged inputs (estimated)"
        : strcmp(device, "cpu") == 0   ? "program, libraries, stacks (counted, with a margin)"
                                       : "program, libraries, stacks (measured, with a margin)");
    fprintf(out, "  %s%-12s %11s %11s%s", cli_bold(out), "process", cli_bytes(kept + m->overhead),
            cli_bytes(m->total), cli_plain(out));
    if (m->budget)
        fprintf(out, "  %s the budget of %s", m->fits ? "fits" : "does NOT fit",
                cli_bytes(m->budget));
    if (m->limit)
        fprintf(out, ", %s", m->limit);
    else if (m->asked > m->budget)
        fprintf(out, ", all the memory of the GPU");
    if (m->asked > m->budget) fprintf(out, " (requested: %s)", cli_bytes(m->asked));
    double ms = pl_run_predicted_ms(run), kept_ms = plan_keep_all_ms(run);
    fprintf(out, "\n  %-12s %11s %11s  predicted", "step time", cli_ms(kept_ms), cli_ms(ms));
    if (plan_recompute_share(run) > 0)
        fprintf(out, "; %.1f %% of it is recompute", 100 * plan_recompute_share(run));
    fputc('\n', out);
    if (m->minimum_found)
        fprintf(out, "  %-12s %11s %11s  smallest budget that fits\n", "minimum", "",
                cli_bytes(m->minimum));
    plan_levels_print(run, out);
    fprintf(out, "  arena %llu bytes, state %llu bytes", (unsigned long long)m->arena,
            (unsigned long long)m->state);
    uint64_t frozen = frozen_bytes(run);
    if (frozen) fprintf(out, " (frozen weights: %s)", cli_bytes(frozen));
    fprintf(out, "\n");
}

/* ---- optimisations ---------------------------------------------------------------------- */
enum { ROW_VIEWS = 1 }; /* the row "views share memory" */

/* Each row shows the largest arena of all programs. Different rows may show different programs. */
int plan_optimisations(const pl_run *run, plan_optimisation *out)
{
    double keep_all_ms = plan_keep_all_ms(run);
    plan_program p;
    static const char *const rows[][2] = {
        {"own_bytes", "no reuse"},    {"views", "views share memory"},
        {"sharing", "memory reuse"},  {"in_place", "in-place results"},
        {"order", "execution order"}, {"offsets", "gaps between buffers"},
        {"recompute", "recompute"},
    };
    int n = (int)(sizeof rows / sizeof *rows);
    for (int k = 0; k < n; k++)
        out[k] = (plan_optimisation){.name = rows[k][0], .title = rows[k][1], .ms = keep_all_ms};
    out[n - 1].ms = pl_run_predicted_ms(run);
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

void plan_optimisations_print(const plan_optimisation *row, int n, FILE *out)
{
    fprintf(out, "\n  %-40s %10s %12s %10s\n", "Arena size as each optimisation is added", "arena",
            "change", "step time");
    for (int i = 0; i < n; i++) {
        char bytes[80], ms[80];
        if (i && row[i].bytes == row[i - 1].bytes && row[i].ms == row[i - 1].ms) continue;
        fprintf(out, "  %-40s %10s %12s %10s\n", row[i].title, cli_bytes(row[i].bytes),
                i ? signed_bytes(row[i - 1].bytes, row[i].bytes, bytes, sizeof bytes) : "",
                i ? signed_ms(row[i - 1].ms, row[i].ms, ms, sizeof ms) : cli_ms(row[i].ms));
    }
}

void plan_optimisations_json(const plan_optimisation *row, int n, pl_json *j)
{
    static const char *const names[] = {"means", "optimisations"}; /* one list under two names */
    for (size_t k = 0; k < 2; k++) {
        pl_json_array(j, names[k]);
        for (int i = 0; i < n; i++) {
            pl_json_object(j, NULL);
            pl_json_string(j, "name", row[i].name);
            pl_json_uint(j, "arena_bytes", row[i].bytes);
            pl_json_float(j, "step_ms", row[i].ms);
            pl_json_end(j);
        }
        pl_json_end(j);
    }
}

/* ---- the peak --------------------------------------------------------------------------- */
static int by_size(const void *a, const void *b)
{
    const pl_plan_buffer *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Returns the buffers alive at a position, largest first; the caller frees them. */
static pl_plan_buffer *alive_at(const pl_program *program, int position, size_t *n)
{
    int all = pl_program_plan(program)->buffers;
    pl_plan_buffer *alive = calloc((size_t)all + 1, sizeof *alive);
    *n = 0;
    for (int i = 0; alive && i < all; i++) {
        pl_plan_buffer b = pl_program_buffer(program, i);
        if (b.first <= position && position < b.last) alive[(*n)++] = b;
    }
    if (alive) qsort(alive, *n, sizeof *alive, by_size);
    return alive;
}

static void print_alive(const pl_program *program, const pl_plan_info *p, FILE *out)
{
    size_t n;
    pl_plan_buffer *alive = alive_at(program, p->peak_position, &n);
    for (size_t i = 0; i < n && i < LARGEST; i++) {
        char type[96] = "", life[48];
        const pl_plan_buffer *b = &alive[i];
        if (b->component != PL_COMP_WORKSPACE) pl_type_text(&b->type, type, sizeof type);
        snprintf(life, sizeof life, "%d-%d", b->first + 1, b->last);
        fprintf(out, "  %11s  %-11s %9s  %s%s%s\n", cli_bytes(b->bytes),
                component_names[b->component], life, b->label, *type ? "  " : "", type);
    }
    if (n > LARGEST) {
        uint64_t others = 0;
        for (size_t i = LARGEST; i < n; i++) others += alive[i].bytes;
        fprintf(out, "  %11s  in %zu smaller buffers\n", cli_bytes(others), n - LARGEST);
    }
    free(alive);
}

/* Finds the fullest positions near the peak, without the peak, in execution order. Returns how many
 * it found. */
static int fullest_near(const pl_plan_position *at, int n, int peak, int *out)
{
    int reach = n / 20 > 10 ? n / 20 : 10, found = 0;
    int lo = peak > reach ? peak - reach : 0, hi = peak + reach < n ? peak + reach + 1 : n;
    while (found < NEIGHBOURS) {
        int best = -1;
        for (int i = lo; i < hi; i++) {
            bool taken = i == peak;
            for (int k = 0; k < found; k++) taken |= out[k] == i;
            if (!taken && (best < 0 || at[i].bytes > at[best].bytes)) best = i;
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
    pl_plan_position *at = calloc((size_t)p->positions + 1, sizeof *at);
    if (!at) return;
    pl_program_positions(program, false, at, p->positions);
    int near[NEIGHBOURS], n = fullest_near(at, p->positions, p->peak_position, near);
    fprintf(out, "Fullest positions around the peak:\n");
    for (int i = 0; i < n; i++)
        fprintf(out, "  %11s  %-11s %9d  %s\n", cli_bytes(at[near[i]].bytes),
                at[near[i]].recomputed ? "recomputed" : "", near[i] + 1,
                pl_program_position_label(program, near[i]));
    free(at);
}

static void print_peak(const pl_program *program, const pl_plan_info *p, FILE *out)
{
    fprintf(
        out,
        "\nPeak at position %d of %d: %s%s%s, %s alive. Largest tensors, with their positions:\n",
        p->peak_position + 1, p->positions, cli_bold(out), p->peak_node, cli_plain(out),
        cli_bytes(p->live_bound_bytes));
    print_alive(program, p, out);
    print_neighbours(program, p, out);
}

static void peak_json(const pl_program *program, const pl_plan_info *p, pl_json *j)
{
    size_t n;
    pl_plan_buffer *alive = alive_at(program, p->peak_position, &n);
    pl_json_string(j, "peak_node", p->peak_node);
    pl_json_int(j, "peak_step", p->peak_position + 1);
    pl_json_int(j, "peak_position", p->peak_position + 1);
    pl_json_array(j, "peak_alive");
    for (size_t i = 0; i < n && i < LARGEST; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "label", alive[i].label);
        pl_json_string(j, "component", component_names[alive[i].component]);
        pl_json_uint(j, "bytes", alive[i].bytes);
        pl_json_int(j, "first_step", alive[i].first + 1);
        pl_json_int(j, "last_step", alive[i].last);
        pl_json_int(j, "first_position", alive[i].first + 1);
        pl_json_int(j, "last_position", alive[i].last);
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
    if (n) fprintf(out, "\n  %-12s %11s %11s\n", "bucket", "arena", "step time");
    for (int i = 0; i < n; i++) {
        pl_run_bucket b = pl_run_bucket_at(run, i);
        char size[32];
        snprintf(size, sizeof size, "%d x %d", b.height, b.width);
        fprintf(out, "  %-12s %11s %11s%s\n", size, cli_bytes(b.arena_bytes), cli_ms(b.step_ms),
                b.arena_bytes == most ? "  largest" : "");
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

/* Prints which state is sharded across ranks, the bytes that a rank sends in a step, and its
 * waiting time. */
static void print_links(const pl_run *run, const pl_run_split *split, FILE *out)
{
    static const char *const sharded[] = {
        [PL_SHARD_NONE] = "nothing",
        [PL_SHARD_OPTIMIZER] = "the optimizer state",
        [PL_SHARD_GRADIENTS] = "optimizer state and gradients",
        [PL_SHARD_WEIGHTS] = "optimizer state, gradients and weights",
    };
    pl_run_links l = pl_run_links_get(run);
    double ms = pl_run_predicted_ms(run);
    fprintf(out, "Plan of one of %lld ranks. Sharded across ranks: %s.\n", (long long)split->ranks,
            sharded[l.shard]);
    fprintf(out,
            "A rank sends %s a step, which takes %s; computing waits for %s of that.\n"
            "Share of a step that computes: %.1f %%.\n\n",
            cli_bytes((uint64_t)l.bytes), cli_ms(l.ms), cli_ms(l.wait_ms),
            ms > 0 ? 100 * (ms - l.wait_ms) / ms : 100.0);
}

/* Says whose plan the tables show, where that is not the training program. */
static void print_which_program(const pl_run *run, const plan_program *now, const plan_program *all,
                                FILE *out)
{
    bool other = now->program != pl_run_train_program(run), differ = now->program != all->program;
    if (other) fprintf(out, "The %s program needs the most memory; this is its plan.\n", now->name);
    if (differ)
        fprintf(out, "The column \"keep-all\" shows the %s program, the largest of them.\n",
                all->name);
    if (other || differ) fputc('\n', out);
}

/* ---- the whole plan --------------------------------------------------------------------- */
void plan_print(const pl_run *run, const char *name, const plan_optimisation *row, int n, FILE *out)
{
    plan_program now = plan_largest_program(run, false), all = plan_largest_program(run, true);
    const pl_plan_info *p = pl_program_plan(now.program);
    pl_run_memory m = pl_run_memory_get(run);
    pl_run_split split = pl_run_split_get(run);
    fprintf(out, "%s%s%s%s%s: %s parameters, batch %lld (micro-batch %lld x accumulate %lld)\n\n",
            cli_bold(out), name, pl_run_phase(run) < 0 ? "" : ", phase ",
            pl_run_phase(run) < 0 ? "" : pl_run_phase_at(run, pl_run_phase(run))->name,
            cli_plain(out), cli_count(pl_run_parameters(run, false)), (long long)split.effective,
            (long long)split.micro, (long long)split.accumulate);
    if (split.ranks > 1) print_links(run, &split, out);
    if (split.coupled)
        fprintf(out,
                "accumulate: auto keeps the batch whole, because its samples are coupled: %s\n\n",
                split.coupled);
    print_tradeoffs(run, out);
    print_which_program(run, &now, &all, out);
    print_components(run, pl_program_plan(all.program), p, &m, out);
    print_buckets(run, out);
    if (n) plan_optimisations_print(row, n, out);
    print_peak(now.program, p, out);
    fprintf(
        out,
        "\nThe arena is %.3f x the bytes alive at the peak. %d graph nodes in %d kernels, planned in %.0f ms.\n",
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

static void links_json(const pl_run *run, pl_json *j)
{
    pl_run_links l = pl_run_links_get(run);
    pl_json_string(j, "shard", pl_shard_name(l.shard));
    pl_json_float(j, "link_bytes", l.bytes);
    pl_json_float(j, "link_ms", l.ms);
    pl_json_float(j, "link_wait_ms", l.wait_ms);
}

void plan_json(const pl_run *run, pl_json *j)
{
    plan_program now = plan_largest_program(run, false);
    const pl_plan_info *p = pl_program_plan(now.program),
                       *all = pl_program_plan(plan_largest_program(run, true).program);
    pl_run_memory m = pl_run_memory_get(run);
    pl_run_split split = pl_run_split_get(run);
    plan_optimisation rows[PLAN_OPTIMISATIONS];
    plan_optimisations(run, rows);
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
    plan_levels_json(run, j);
    pl_json_uint(j, "keep_all_bytes", all->keep_all_bytes);
    if (m.minimum_found)
        pl_json_uint(j, "minimum_bytes", m.minimum);
    else
        pl_json_null(j, "minimum_bytes");
    pl_json_uint(j, "live_bound_bytes", p->live_bound_bytes);
    pl_json_uint(j, "no_reuse_bytes", rows[ROW_VIEWS].bytes);
    pl_json_float(j, "recompute_ratio", plan_recompute_share(run));
    pl_json_float(j, "predicted_step_ms", pl_run_predicted_ms(run));
    pl_json_float(j, "keep_all_step_ms", plan_keep_all_ms(run));
    pl_json_int(j, "micro_batch", split.micro);
    pl_json_int(j, "accumulate", split.accumulate);
    pl_json_int(j, "effective_batch", split.effective);
    tradeoffs_json(run, j);
    pl_json_int(j, "ranks", split.ranks);
    if (split.ranks > 1) links_json(run, j);
    pl_json_int(j, "parameters", pl_run_parameters(run, false));
    pl_json_int(j, "trainable", pl_run_parameters(run, true));
    pl_json_string(j, "program", now.name);
    pl_json_int(j, "nodes", p->nodes);
    pl_json_int(j, "units", p->units);
    pl_json_int(j, "steps", p->positions);
    pl_json_int(j, "positions", p->positions);
    pl_json_float(j, "plan_ms", p->plan_ms);
    components_json(j, "components", p->components);
    components_json(j, "keep_all_components", all->keep_all_components);
    peak_json(now.program, p, j);
    pl_json_string(j, "device", pl_config_text(pl_run_config(run), "device"));
    buckets_json(run, j);
    times_json(run, p, j);
}
