/* report_md.c - `plimsoll report RUN --out FILE.md`: memory by component, what each optimisation
 * saves, the largest tensors at the peak, how training went. Every number is planned or measured,
 * and the text says which.
 */
#include "cli/plan/plan_view.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double num(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static double cell(const json_t *row, size_t i)
{
    return json_number_value(json_array_get(row, i));
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static const char *bytes(double v)
{
    return cli_bytes(v > 0 ? (uint64_t)v : 0);
}

/* ---- tables ----------------------------------------------------------------------------- */
static void put_budget(const report *r, FILE *f)
{
    const json_t *m = json_object_get(r->plan, "memory"), *row;
    double kept = 0, planned = 0;
    size_t i;
    fprintf(f, "\n## Memory by component\n\nPlanned bytes alive at the peak of a step.\n\n"
               "| component | keep-all plan | this plan |\n| --- | ---: | ---: |\n");
    json_array_foreach(json_object_get(r->plan, "parts"), i, row)
    {
        fprintf(f, "| %s | %s | %s |\n", json_string_value(json_array_get(row, 0)),
                bytes(cell(row, 1)), bytes(cell(row, 2)));
        kept += cell(row, 1);
        planned += cell(row, 2);
    }
    double over = num(m, "overhead"), gaps = num(m, "total") - over - planned;
    if (gaps > 0) fprintf(f, "| gaps between buffers | | %s |\n", bytes(gaps));
    fprintf(f, "| overhead (program, libraries, stacks) | %s | %s |\n", bytes(over), bytes(over));
    fprintf(f, "| **whole process** | **%s** | **%s** |\n", bytes(kept + over),
            bytes(num(m, "total")));
    if (num(m, "budget") > 0) fprintf(f, "\nBudget: %s.\n", bytes(num(m, "budget")));
    if (num(m, "minimum") > 0) fprintf(f, "\nMinimum: %s.\n", bytes(num(m, "minimum")));
}

static void put_optimisations(const report *r, FILE *f)
{
    const json_t *row;
    double before = 0, before_ms = 0;
    size_t i;
    fprintf(
        f,
        "\n## What each optimisation saves\n\nArena size as each optimisation is added. Every row "
        "is a plan.\n\n| optimisation | arena | change | predicted step time |\n"
        "| --- | ---: | ---: | ---: |\n");
    json_array_foreach(json_object_get(r->plan, "means"), i, row)
    {
        double now = cell(row, 1), ms = cell(row, 2);
        if (i && now == before && ms == before_ms) continue;
        fprintf(f, "| %s | %s | ", json_string_value(json_array_get(row, 0)), bytes(now));
        if (i && now != before)
            fprintf(f, "%s%s", now < before ? "" : "+", bytes(fabs(before - now)));
        fprintf(f, " | %s |\n", cli_ms(ms));
        before = now;
        before_ms = ms;
    }
}

typedef struct alive {
    double bytes;
    const json_t *row;
} alive;

static int larger_first(const void *a, const void *b)
{
    const alive *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static size_t peak_position(const json_t *positions)
{
    const json_t *row;
    size_t i, peak = 0;
    double most = -1;
    json_array_foreach(positions, i, row)
    {
        if (cell(row, 0) <= most) continue;
        most = cell(row, 0);
        peak = i;
    }
    return peak;
}

static void put_peak(const report *r, FILE *f)
{
    enum { SHOWN = 12 };
    static const char *const kind[] = {"weights",     "gradients", "optimizer",
                                       "activations", "workspace", "inputs"};
    const json_t *program = json_array_get(json_object_get(r->plan, "programs"),
                                           (size_t)num(r->plan, "largest")),
                 *steps = json_object_get(program, "steps"), *row;
    const json_t *labels = json_object_get(r->plan, "labels"),
                 *all = json_object_get(program, "buffers");
    size_t peak = peak_position(steps), n = 0, i;
    alive *at = calloc(json_array_size(all) + 1, sizeof *at);
    if (!at) return;
    json_array_foreach(all, i, row) if (cell(row, 4) <= (double)peak && (double)peak < cell(row, 5))
        at[n++] = (alive){cell(row, 2), row};
    qsort(at, n, sizeof *at, larger_first);
    const char *where =
        json_string_value(json_array_get(labels, (size_t)cell(json_array_get(steps, peak), 3)));
    fprintf(
        f,
        "\n## Largest tensors at the peak\n\nThe peak is at position %zu of %zu of the program %s, `%s`, with %zu buffers alive. The largest:\n\n"
        "| buffer | shape | kind | bytes | positions |\n| --- | --- | --- | ---: | --- |\n",
        peak + 1, json_array_size(steps), text(program, "name"), where ? where : "", n);
    for (i = 0; i < n && i < SHOWN; i++) {
        const char *name = json_string_value(json_array_get(labels, (size_t)cell(at[i].row, 0)));
        int k = (int)cell(at[i].row, 6);
        fprintf(f, "| `%s` | %s | %s | %s | %.0f to %.0f |\n", name ? name : "",
                json_string_value(json_array_get(at[i].row, 1)), k >= 0 && k < 6 ? kind[k] : "",
                bytes(at[i].bytes), cell(at[i].row, 4) + 1, cell(at[i].row, 5));
    }
    free(at);
}

/* ---- measurements ------------------------------------------------------------------ */
static void put_measured(const report *r, FILE *f)
{
    double ms = 0, wait = 0, total = num(json_object_get(r->plan, "memory"), "total");
    for (int i = 0; i < r->n; i++) {
        ms += r->row[i][COL_MS];
        wait += r->row[i][COL_WAIT];
    }
    fprintf(f, "\n## Planned and measured\n\n| | keep-all plan | this plan | measured |\n"
               "| --- | ---: | ---: | ---: |\n");
    double kept = 0;
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(r->plan, "parts"), i, row) kept += cell(row, 1);
    kept += num(json_object_get(r->plan, "memory"), "overhead");
    fprintf(f, "| peak memory of the process | %s | %s | %s |\n", bytes(kept), bytes(total),
            r->used_most ? bytes((double)r->used_most) : "");
    fprintf(f, "| step time | %s (predicted) | %s (predicted) | %s |\n",
            cli_ms(num(r->plan, "kept_ms")), cli_ms(num(r->plan, "step_ms")),
            r->n ? cli_ms(ms / r->n) : "");
    if (!r->n) return;
    double grown = (double)r->used_last - (double)r->used_first;
    fprintf(f,
            "\n- %lld steps, %lld checkpoint%s%s.\n- Waiting for data: %.1f %% of the step time.\n"
            "- Memory growth from step 10 to step %lld: %s%s.\n",
            (long long)r->steps, (long long)r->checkpoints, r->checkpoints == 1 ? "" : "s",
            r->end ? "" : ", not finished", ms > 0 ? 100 * wait / ms : 0, (long long)r->steps,
            grown < 0 ? "-" : "+", bytes(fabs(grown)));
    fprintf(f, "- Loss: %.6g at step %.0f, %.6g at step %.0f%s.\n", r->row[0][COL_LOSS],
            r->row[0][COL_STEP], r->row[r->n - 1][COL_LOSS], r->row[r->n - 1][COL_STEP],
            r->stride > 1 ? " (means of neighbouring steps)" : "");
}

/* What lies below the device, and a lane for each channel: its share of the step is drawn. */
static void put_levels(const report *r, FILE *f)
{
    enum { WIDTH = 40 };
    const json_t *row;
    size_t i;
    double step = num(r->plan, "step_ms");
    if (!json_object_get(r->plan, "channels")) return;
    fprintf(f,
            "\n## Below the device\n\n%s in host memory, %s on disk; kernels wait %s of each step "
            "for moves.\n\n| channel | moved each step | busy | of the step |\n"
            "| --- | ---: | ---: | --- |\n",
            bytes(num(r->plan, "host_bytes")), bytes(num(r->plan, "disk_bytes")),
            cli_ms(num(r->plan, "wait_ms")));
    json_array_foreach(json_object_get(r->plan, "channels"), i, row)
    {
        double moved = cell(row, 1), ms = cell(row, 2);
        if (moved <= 0) continue;
        fprintf(f, "| %s | %s | %s | `", json_string_value(json_array_get(row, 0)), bytes(moved),
                cli_ms(ms));
        for (int k = 0; k < WIDTH; k++) fputc(k * step < ms * WIDTH ? '#' : '.', f);
        fprintf(f, "` |\n");
    }
}

/* The first and the last value of each term of the loss. */
static void put_terms(const report *r, FILE *f)
{
    if (!r->n_terms) return;
    fprintf(f, "\n## Terms of the loss\n\n| term | first | last |\n| --- | ---: | ---: |\n");
    for (int k = 0; k < r->n_terms; k++) {
        const double *cell = r->term[k].cell;
        int first = 0, last = r->n - 1;
        while (first < last && isnan(cell[first])) first++;
        while (last > first && isnan(cell[last])) last--;
        fprintf(f, "| %s | %.6g (step %.0f) | %.6g (step %.0f) |\n", r->term[k].name, cell[first],
                r->row[first][COL_STEP], cell[last], r->row[last][COL_STEP]);
    }
}

static void put_evals(const report *r, FILE *f)
{
    size_t n = json_array_size(r->evals);
    if (n == 0) return;
    const json_t *first = json_array_get(r->evals, 0), *v;
    json_t *last = json_array_get(r->evals, n - 1);
    const char *key;
    fprintf(f, "\n## Evaluation\n\n| metric | step %.0f | step %.0f |\n| --- | ---: | ---: |\n",
            num(first, "step"), num(last, "step"));
    json_object_foreach(last, key, v) if (strcmp(key, "step") != 0)
        fprintf(f, "| %s | %.6g | %.6g |\n", key, num(first, key), json_number_value(v));
}

static void put_samples(const report *r, FILE *f)
{
    char file[512];
    bool any = false;
    for (size_t i = 0; i < json_array_size(r->samples); i++) {
        const json_t *one = json_array_get(r->samples, i);
        if (!report_shows(r, i, file, sizeof file)) continue;
        if (!any) fprintf(f, "\n## Samples\n\n");
        fprintf(f, "![%s at step %.0f](%s)\n", text(one, "name"), num(one, "step"), file);
        any = true;
    }
}

void report_markdown(const report *r, FILE *f)
{
    fprintf(f, "# Memory optimisation: %s\n\n%s. Device: %s, %s. Plimsoll %s.\n",
            text(r->plan, "name"), text(r->plan, "about"), text(r->plan, "device"),
            text(r->plan, "machine"), text(r->plan, "version"));
    put_measured(r, f);
    put_budget(r, f);
    put_optimisations(r, f);
    put_peak(r, f);
    put_levels(r, f);
    put_terms(r, f);
    put_evals(r, f);
    put_samples(r, f);
    fprintf(
        f,
        "\n## How to use less memory\n\nIn this order; the first two do not change training:\n\n"
        "1. `memory=SIZE`: recomputes more; `plimsoll plan` prints the minimum.\n"
        "2. `accumulate=auto`: gradient accumulation over micro-batches (not with BatchNorm, which couples samples).\n"
        "3. `precision=bf16`: halves the stored activations.\n"
        "4. A smaller batch or network: `plimsoll plan CONFIG --memory SIZE` lists changes that fit.\n");
    fprintf(f, "\n## Configuration\n\n```yaml\n%s```\n", r->config);
}
