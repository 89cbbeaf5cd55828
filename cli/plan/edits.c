/* edits.c - what to change when a plan does not fit.
 *
 * A candidate is a few words for the command line. Each candidate is planned under the same budget
 * and is offered only if it fits. Candidates that do not change training come first; the others
 * follow by predicted time per sample, with a note about their effect on training.
 *
 * Candidates are planned quickly (pl_run_plan_quickly): the step of the plan that the user gets is
 * as fast as the offer says, or faster. The search ends with enough offers, or when the graphs that
 * were built have MOST_NODES nodes: a network of a million nodes is not built again.
 */
#include "plan_view.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 12, MOST_NODES = 300000 };

typedef struct finder {
    const cli_args *args;
    const char *memory; /* --memory; NULL: the key `memory` */
    const pl_config *config;
    pl_run_memory need; /* memory of the plan that does not fit */
    plan_edit found[MAX_CANDIDATES];
    int n;
    int64_t nodes; /* of the graphs that were built */
} finder;

/* Whether the search ends. */
static bool is_over(const finder *f)
{
    return f->n >= PLAN_EDITS || f->nodes >= MOST_NODES;
}

/* Copies the arguments and appends the words of a candidate. `buf` holds the words. */
static bool with_words(const finder *f, const char *words, char *buf, size_t cap, cli_args *out)
{
    *out = *f->args;
    snprintf(buf, cap, "%s", words);
    for (char *save = NULL, *w = strtok_r(buf, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        if (out->n_overrides == CLI_MAX_ARGS) return false;
        out->overrides[out->n_overrides++] = w;
    }
    return true;
}

/* Fills in the figures of a run that was planned. */
static void fill_in(const pl_run *run, const char *text, plan_edit *e)
{
    *e = (plan_edit){.total_bytes = pl_run_memory_get(run).total,
                     .step_ms = pl_run_predicted_ms(run)};
    e->sample_ms = e->step_ms / (double)pl_run_split_get(run).effective;
    snprintf(e->text, sizeof e->text, "%s", text);
}

/* Plans a candidate and returns whether it fits. A configuration that cannot be built does not fit.
 * *micro_batches (may be NULL): the micro-batches of its step. */
static bool try_words(finder *f, const char *words, plan_edit *e, int64_t *micro_batches)
{
    char buf[160];
    cli_args a;
    pl_run *run = NULL;
    if (f->nodes >= MOST_NODES || !with_words(f, words, buf, sizeof buf, &a)) return false;
    cli_busy("looking for changes that fit: %s", words);
    pl_status rc = cli_open_run(&a, f->memory, &run);
    if (rc == PL_OK) pl_run_plan_quickly(run);
    if (rc == PL_OK) rc = pl_run_build(run);
    bool fits = rc == PL_OK && pl_run_memory_get(run).fits;
    if (rc == PL_OK) f->nodes += (int64_t)pl_program_plan(pl_run_train_program(run))->nodes;
    if (fits) fill_in(run, words, e);
    if (fits && micro_batches) *micro_batches = pl_run_split_get(run).accumulate;
    pl_run_free(run);
    return fits;
}

static void add(finder *f, const plan_edit *e, const char *changes)
{
    if (f->n == MAX_CANDIDATES) return;
    f->found[f->n] = *e;
    f->found[f->n++].changes = changes;
}

static bool offer(finder *f, const char *words, const char *changes)
{
    plan_edit e;
    if (!try_words(f, words, &e, NULL)) return false;
    add(f, &e, changes);
    return true;
}

/* ---- candidates ------------------------------------------------------------------------- */
static void offer_checkpointing(finder *f)
{
    if (strcmp(pl_config_text(f->config, "checkpointing"), "auto") != 0)
        offer(f, "checkpointing=auto", NULL);
}

/* Offers the trade-offs of the recipe. With "auto" the planner has already tried them. */
static void offer_tradeoffs(finder *f, const pl_recipe *recipe)
{
    char key[64];
    for (const pl_tradeoff *t = recipe->smaller; t && t->setting; t++) {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(t->setting, "="), t->setting);
        if (strcmp(pl_config_text(f->config, key), "auto") != 0) offer(f, t->setting, NULL);
    }
}

/* Offers gradient accumulation: the fastest number of micro-batches where samples are independent;
 * the smallest number that fits where samples are coupled. */
static void offer_micro_batches(finder *f)
{
    const pl_config *c = f->config;
    int64_t batch = pl_config_int(c, "batch");
    char words[96];
    plan_edit e;
    int64_t fastest;
    if (strcmp(pl_config_text(c, "accumulate"), "auto") != 0 &&
        try_words(f, "accumulate=auto", &e, &fastest)) {
        snprintf(e.text, sizeof e.text, "accumulate=%lld", (long long)fastest);
        add(f, &e, NULL);
        return;
    }
    if (pl_config_bool(c, "accumulate_coupled")) return;
    for (int64_t parts = 2; parts <= batch; parts++) {
        if (batch % parts) continue;
        snprintf(words, sizeof words, "accumulate=%lld accumulate_coupled=true", (long long)parts);
        if (offer(f, words, "different: samples are coupled")) return;
    }
}

/* Offers 1 % more than the minimum, at least 4 MiB more. At the minimum itself a step recomputes
 * far more, and on a GPU the overhead of another process may be a few pages larger. */
plan_refusal plan_refused(pl_run *run)
{
    enum { MORE = 4 << 20, PART = 100 };
    plan_refusal r = {.need = pl_run_memory_get(run),
                      .nodes = (int64_t)pl_program_plan(pl_run_train_program(run))->nodes};
    char text[48];
    uint64_t part = r.need.minimum / PART, more = r.need.minimum + (part > MORE ? part : MORE);
    snprintf(text, sizeof text, "--memory %s", cli_size(more));
    cli_busy("looking for changes that fit: %s", text);
    pl_run_plan_quickly(run);
    if (pl_run_plan_within(run, more) == PL_OK && pl_run_memory_get(run).fits)
        fill_in(run, text, &r.more);
    return r;
}

static bool try_batch(finder *f, int64_t batch, plan_edit *e)
{
    char words[64];
    snprintf(words, sizeof words, "batch=%lld", (long long)batch);
    return batch > 0 && try_words(f, words, e, NULL);
}

/* Offers the largest batch that fits. The minimum grows almost linearly with the batch, from state
 * and overhead, which are constant. The search starts where that line meets the budget, and goes up
 * or down in steps that double until it has a batch that fits and a batch that does not. */
static void offer_batch(finder *f)
{
    const pl_config *c = f->config;
    pl_run_memory m = f->need;
    int64_t parts = strtoll(pl_config_text(c, "accumulate"), NULL, 10),
            unit = parts > 1 ? parts : 1;
    int64_t batch = pl_config_int(c, "batch") / unit;
    uint64_t fixed = m.state + m.overhead;
    if (m.budget <= fixed || m.minimum <= fixed) return;
    int64_t at =
        (int64_t)((double)batch * (double)(m.budget - fixed) / (double)(m.minimum - fixed));
    int64_t fits = 0, over = batch;
    plan_edit best, e;
    for (int64_t step = 1; over - fits > 1; step *= 2) {
        if (at <= fits || at >= over) at = fits + (over - fits) / 2;
        bool ok = try_batch(f, at * unit, &e);
        if (ok) best = e;
        *(ok ? &fits : &over) = at;
        if (fits && over < batch)
            at = fits + (over - fits) / 2;
        else
            at += ok ? step : -step;
    }
    if (fits) add(f, &best, "fewer samples per step");
}

static void offer_precision(finder *f)
{
    const pl_config *c = f->config;
    if (pl_config_has(c, "precision") && strcmp(pl_config_text(c, "precision"), "bf16") != 0)
        offer(f, "precision=bf16", "16-bit activations");
}

/* Offers 8 and 4 bits for frozen weights, where there are any. */
static void offer_frozen(finder *f)
{
    if (pl_config_is_null(f->config, "frozen.dtype") &&
        !offer(f, "frozen.dtype=int8", "frozen weights in 8 bits"))
        offer(f, "frozen.dtype=nf4", "frozen weights in 4 bits");
}

static void offer_optimiser(finder *f)
{
    const pl_config *c = f->config;
    const char *name = pl_config_text(c, "optim.name");
    const char *state = pl_config_text(c, "optim.state"), *weights = pl_config_text(c, "weights");
    if (strcmp(state, "8bit") != 0) offer(f, "optim.state=8bit", "moments in 8 bits");
    if (!is_over(f) && strcmp(weights, "bf16") != 0) offer(f, "weights=bf16", "weights in 16 bits");
    if (!is_over(f) && pl_config_float(c, "ema.decay") > 0)
        offer(f, "ema.decay=0", "no averaged weights");
    if (!is_over(f) && strcmp(name, "lion") != 0 && strcmp(name, "sgd") != 0 &&
        !offer(f, "optim.name=lion", "another optimiser, with one moment"))
        offer(f, "optim.name=sgd optim.momentum=0", "another optimiser, without moments");
}

/* Writes words that scale these keys by eighths / 8, rounded down to multiples of 8. */
static bool scaled_words(const pl_config *c, const char *const *keys, int eighths, char *buf,
                         size_t cap)
{
    size_t n = 0;
    buf[0] = 0;
    for (int i = 0; keys[i]; i++) {
        if (!pl_config_has(c, keys[i])) return false;
        int64_t to = pl_config_int(c, keys[i]) * eighths / 64 * 8;
        if (to < 8) return false;
        n += (size_t)snprintf(buf + n, cap - n, "%s%s=%lld", n ? " " : "", keys[i], (long long)to);
    }
    return true;
}

static void offer_resolution(finder *f)
{
    static const char *const names[][3] = {{"height", "width", NULL},
                                           {"size", NULL, NULL},
                                           {"image_size", NULL, NULL},
                                           {"resolution", NULL, NULL}};
    static const int eighths[] = {6, 4, 2};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof eighths / sizeof *eighths; k++) {
            char words[120];
            if (!scaled_words(f->config, names[i], eighths[k], words, sizeof words)) break;
            if (offer(f, words, "smaller images")) return;
        }
}

/* ---- the best candidates ---------------------------------------------------------------- */
static int by_worth(const void *a, const void *b)
{
    const plan_edit *x = a, *y = b;
    int more_x = x->text[0] == '-', more_y = y->text[0] == '-';
    if ((x->changes != NULL) != (y->changes != NULL)) return x->changes ? 1 : -1;
    /* among changes that keep training the same, more memory comes last */
    if (more_x != more_y) return more_x - more_y;
    return (x->sample_ms > y->sample_ms) - (x->sample_ms < y->sample_ms);
}

/* Whether less than half of what the process holds besides arena and state is allowed: no setting
 * makes program, libraries and graph so small. */
static bool is_hopeless(const pl_run_memory *need)
{
    return need->budget < need->overhead / 2;
}

int plan_edits(const cli_args *a, const char *memory, const plan_refusal *refused, plan_edit *out)
{
    pl_run *run = NULL;
    if (cli_open_run(a, memory, &run) != PL_OK) return 0;
    finder f = {.args = a,
                .memory = memory,
                .config = pl_run_config(run),
                .need = refused->need,
                .nodes = is_hopeless(&refused->need) ? MOST_NODES : refused->nodes};
    if (refused->more.text[0]) add(&f, &refused->more, NULL);
    offer_checkpointing(&f);
    offer_tradeoffs(&f, pl_run_recipe(run));
    offer_micro_batches(&f);
    offer_precision(&f);
    /* late, because it plans several times: the process then holds a few more pages, which count
     * against the candidates after it */
    if (!is_over(&f)) offer_batch(&f);
    if (!is_over(&f)) offer_frozen(&f);
    if (!is_over(&f)) offer_optimiser(&f);
    if (!is_over(&f)) offer_resolution(&f);
    qsort(f.found, (size_t)f.n, sizeof *f.found, by_worth);
    pl_run_free(run);
    cli_idle();
    int n = f.n < PLAN_EDITS ? f.n : PLAN_EDITS;
    memcpy(out, f.found, (size_t)n * sizeof *out);
    return n;
}

void plan_edits_print(const plan_edit *edit, int n, FILE *out)
{
    if (!n) return;
    fprintf(out, "\nThese changes fit; append one to the command:\n");
    fprintf(out, "  %-38s %10s %11s  %s\n", "change", "process", "step time", "training");
    for (int i = 0; i < n; i++)
        fprintf(out, "  %s%-38s%s %10s %11s  %s\n", cli_bold(out), edit[i].text, cli_plain(out),
                cli_bytes(edit[i].total_bytes), cli_ms(edit[i].step_ms),
                edit[i].changes ? edit[i].changes : "the same");
}

void plan_unfit_print(const pl_run_memory *m)
{
    cli_error("does not fit %s%s%s: the smallest budget is %llu bytes (%s)", cli_bytes(m->budget),
              m->limit ? ", " : "", m->limit ? m->limit : "", (unsigned long long)m->minimum,
              cli_bytes(m->minimum));
}

void plan_edits_json(const plan_edit *edit, int n, pl_json *j)
{
    pl_json_array(j, "edits");
    for (int i = 0; i < n; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "edit", edit[i].text);
        pl_json_bool(j, "exact", !edit[i].changes);
        if (edit[i].changes) pl_json_string(j, "changes", edit[i].changes);
        pl_json_uint(j, "total_bytes", edit[i].total_bytes);
        pl_json_float(j, "predicted_step_ms", edit[i].step_ms);
        pl_json_end(j);
    }
    pl_json_end(j);
}
