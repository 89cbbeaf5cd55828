/* cmd_report.c - `plimsoll report RUN`: reads a run folder and writes a page or a document.
 *
 * plan.json is the plan of the run; log.jsonl has the measurements. A log of a million steps
 * becomes at most 4096 rows: when the table is full, neighbours are merged into their mean (memory
 * into its maximum). So time and page size are bounded, and no peak of memory is lost.
 */
#include "cli/report/report.h"

#include "cli/ui.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4096 };

/* ---- reading ---------------------------------------------------------------------------- */
static char *read_text(const char *dir, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t n = 0;
    ssize_t got = f ? getdelim(&text, &n, 0, f) : -1;
    if (f) fclose(f);
    if (got >= 0) return text;
    free(text);
    cli_error("%s has no %s: it is not a run folder of plimsoll train --out", dir, name);
    return NULL;
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static double mean(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : (a + b) / 2;
}

static void join_rows(report *r)
{
    for (int i = 0; i + 1 < r->n; i += 2) {
        double *to = r->row[i / 2], *a = r->row[i], *b = r->row[i + 1], out[N_COLS];
        for (int c = 0; c < N_COLS; c++) out[c] = mean(a[c], b[c]);
        out[COL_STEP] = b[COL_STEP];
        out[COL_USED] = fmax(a[COL_USED], b[COL_USED]);
        memcpy(to, out, sizeof out);
    }
    r->n /= 2;
    r->stride *= 2;
}

/* in: number of steps merged into the last row. */
static void add_step(report *r, const json_t *e, int64_t *in)
{
    static const char *const key[N_COLS] = {"step",    "loss",         "lr",        "grad_norm",
                                            "step_ms", "data_wait_ms", "used_bytes"};
    double now[N_COLS];
    for (int c = 0; c < N_COLS; c++) now[c] = number(e, key[c]);
    if (isnan(now[COL_STEP])) return;
    uint64_t used = now[COL_USED] > 0 ? (uint64_t)now[COL_USED] : 0;
    r->steps = (int64_t)now[COL_STEP];
    if (r->steps <= 10 || !r->used_first) r->used_first = used;
    r->used_last = used;
    if (used > r->used_most) r->used_most = used;
    if (*in == 0 && r->n == ROWS) join_rows(r);
    if (*in == 0) {
        memcpy(r->row[r->n++], now, sizeof now);
    } else {
        double *row = r->row[r->n - 1], k = (double)*in;
        for (int c = 1; c < N_COLS; c++)
            row[c] = isnan(row[c]) || isnan(now[c]) ? mean(row[c], now[c])
                                                    : (row[c] * k + now[c]) / (k + 1);
        row[COL_STEP] = now[COL_STEP];
        row[COL_USED] = fmax(row[COL_USED], now[COL_USED]);
    }
    *in = (*in + 1) % r->stride;
}

static void add_event(report *r, json_t *e, int64_t *in)
{
    const char *name = json_string_value(json_object_get(e, "event"));
    if (!name) return;
    if (strcmp(name, "step") == 0) {
        add_step(r, e, in);
    } else if (strcmp(name, "eval") == 0) {
        json_object_del(e, "event");
        json_object_del(e, "phase");
        json_array_append(r->evals, e);
    } else if (strcmp(name, "sample") == 0) {
        json_array_append(r->samples, e);
    } else if (strcmp(name, "end") == 0) {
        json_decref(r->end);
        r->end = json_incref(e);
    } else if (strcmp(name, "checkpoint") == 0) {
        r->checkpoints++;
    }
}

/* Reads the log. An incomplete last line, cut by a kill, is ignored. */
static bool read_log(report *r)
{
    char path[4200], *line = NULL;
    size_t cap = 0;
    int64_t in = 0;
    snprintf(path, sizeof path, "%s/log.jsonl", r->dir);
    FILE *f = fopen(path, "re");
    if (!f) {
        cli_error("cannot read %s: %s", path, strerror(errno));
        return false;
    }
    while (getline(&line, &cap, f) > 0) {
        json_t *e = json_loads(line, 0, NULL);
        if (e) add_event(r, e, &in);
        json_decref(e);
    }
    free(line);
    fclose(f);
    return true;
}

bool report_read(report *r, const char *dir)
{
    json_error_t error;
    *r = (report){.dir = dir, .stride = 1};
    r->plan_text = read_text(dir, "plan.json");
    if (!r->plan_text || !(r->config = read_text(dir, "config.yaml"))) return false;
    r->plan = json_loads(r->plan_text, 0, &error);
    if (!json_is_object(r->plan)) {
        cli_error("%s/plan.json is damaged: %s", dir, error.text);
        return false;
    }
    r->evals = json_array();
    r->samples = json_array();
    r->row = calloc(ROWS + 1, sizeof *r->row);
    return r->evals && r->samples && r->row && read_log(r);
}

void report_release(report *r)
{
    free(r->plan_text);
    free(r->config);
    free(r->row);
    json_decref(r->plan);
    json_decref(r->evals);
    json_decref(r->samples);
    json_decref(r->end);
}

bool report_shows(const report *r, size_t i, char *file, size_t cap)
{
    enum { SHOWN = 4 };
    const json_t *one = json_array_get(r->samples, i);
    const char *name = json_string_value(json_object_get(one, "name"));
    const char *path = json_string_value(json_object_get(one, "path"));
    const char *slash = path ? strrchr(path, '/') : NULL;
    size_t n = 0, at = 0;
    if (!name || !slash) return false;
    for (size_t k = 0; k < json_array_size(r->samples); k++) {
        const char *other =
            json_string_value(json_object_get(json_array_get(r->samples, k), "name"));
        if (!other || strcmp(other, name) != 0) continue;
        if (k < i) at++;
        n++;
    }
    bool shown = n <= SHOWN;
    for (size_t k = 0; k < SHOWN; k++) shown |= at == k * (n - 1) / (SHOWN - 1);
    snprintf(file, cap, "samples%s", slash);
    return shown;
}

/* ---- the command ------------------------------------------------------------------------ */
static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static int write_report(const report *r, const char *path)
{
    bool out = strcmp(path, "-") == 0;
    FILE *f = out ? stdout : fopen(path, "we");
    if (f && (out || ends_with(path, ".md")))
        report_markdown(r, f);
    else if (f)
        report_html(r, f);
    bool ok = f && !ferror(f);
    if (f && !out && fclose(f) != 0) ok = false;
    if (ok && !out) fprintf(stderr, "wrote %s\n", path);
    if (ok) return 0;
    cli_error("cannot write %s: %s", path, strerror(errno));
    return 1;
}

typedef struct report_options {
    const char *out;
} report_options;

const cli_help cli_help_report = {
    .usage = "plimsoll report RUN",
    .about = "Writes a report of a run: planned and measured memory, every buffer of a step, loss "
             "curves,\nspeed, configuration. RUN is the folder of train --out; the run may still "
             "be training.",
    .examples = "  plimsoll report runs/first\n"
                "  plimsoll report runs/first --out MEMORY.md\n",
    .options =
        (const cli_option[]){
            {"--out", "FILE", offsetof(report_options, out),
             "FILE.html, FILE.md, or - for Markdown on stdout", "RUN/report.html"},
            {NULL},
        },
};

int cmd_report(int argc, char **argv)
{
    report_options o = {.out = NULL};
    char path[4200];
    cli_args a;
    cli_parse(argc, argv, &cli_help_report, &o, &a);
    const char *out = o.out;
    cli_want(&a, 1, 1, "report", "one run folder");
    snprintf(path, sizeof path, "%s/report.html", a.positional[0]);
    if (out && strcmp(out, "-") != 0 && !ends_with(out, ".md") && !ends_with(out, ".html")) {
        cli_error("--out %s: the name must end in .html or .md", out);
        return 2;
    }
    report r;
    int code = report_read(&r, a.positional[0]) ? write_report(&r, out ? out : path) : 1;
    report_release(&r);
    return code;
}
