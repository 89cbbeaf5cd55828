/* report_read.c - reads a run folder.
 *
 * plan.json is the plan of the run; log.jsonl has the measurements. A log of a million steps
 * becomes at most 4096 rows: when the table is full, neighbours are merged into their mean (memory
 * into its maximum). So time and page size are bounded, and no peak of memory is lost.
 *
 * A log that grows is read from where the last reading ended. A run that resumes cuts its log, so
 * the last line that was read is compared first: if it changed, everything is read again.
 */
#include "cli/report/report.h"

#include "cli/ui.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { ROWS = 4096, TAIL = 14 };

/* ---- reading ---------------------------------------------------------------------------- */
static char *read_text(const char *dir, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = cli_open_plain(path);
    char *text = NULL;
    size_t n = 0;
    int why = f ? 0 : errno;
    ssize_t got = f ? getdelim(&text, &n, 0, f) : -1;
    if (f) fclose(f);
    if (got >= 0) return text;
    free(text);
    if (why && why != ENOENT && why != ENOTDIR)
        cli_error("cannot read %s: %s", path, why == EINVAL ? "not a plain file" : strerror(why));
    else
        cli_error("%s has no %s: it is not a run folder of plimsoll train --out", dir, name);
    return NULL;
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* Returns a whole number for a number of a log, which may be outside the range of int64_t. */
static int64_t whole(double x)
{
    return x >= 0x1p63 ? INT64_MAX : x > -0x1p63 ? (int64_t)x : INT64_MIN;
}

static double mean(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : (a + b) / 2;
}

/* ---- terms of the loss ------------------------------------------------------------------ */
/* Adds a term whose cells are empty so far. A log names at most PL_MAX_TERMS; further names, which
 * only a damaged log has, are ignored. */
static report_term *add_term(report *r, const char *name)
{
    if (r->n_terms == PL_MAX_TERMS) return NULL;
    report_term *all = realloc(r->term, ((size_t)r->n_terms + 1) * sizeof *all);
    if (all) r->term = all;
    report_term t = {.name = strdup(name), .cell = malloc((ROWS + 1) * sizeof *t.cell)};
    if (!all || !t.name || !t.cell) {
        free(t.name);
        free(t.cell);
        return NULL;
    }
    for (int i = 0; i <= ROWS; i++) t.cell[i] = (double)NAN;
    r->term[r->n_terms] = t;
    return &r->term[r->n_terms++];
}

static report_term *find_term(report *r, const char *name)
{
    for (int i = 0; i < r->n_terms; i++)
        if (strcmp(r->term[i].name, name) == 0) return &r->term[i];
    return add_term(r, name);
}

/* Adds the terms of a step to the last row, which it began or joined. Loss, learning rate and
 * gradient norm of the training program have separate columns. */
static void add_terms(report *r, const json_t *e, bool begins)
{
    json_t *terms = json_object_get(e, "terms"), *v;
    const char *name;
    if (begins)
        for (int i = 0; i < r->n_terms; i++) {
            r->term[i].cell[r->n - 1] = (double)NAN;
            r->term[i].in = 0;
        }
    json_object_foreach(terms, name, v)
    {
        if (strcmp(name, "loss") == 0 || strcmp(name, "lr") == 0 || strcmp(name, "grad_norm") == 0)
            continue;
        report_term *t = json_is_number(v) ? find_term(r, name) : NULL;
        if (!t) continue;
        double *cell = &t->cell[r->n - 1], k = (double)t->in++;
        *cell = k > 0 ? (*cell * k + json_number_value(v)) / (k + 1) : json_number_value(v);
    }
}

static void forget_terms(report *r)
{
    for (int i = 0; i < r->n_terms; i++) {
        free(r->term[i].name);
        free(r->term[i].cell);
    }
    free(r->term);
    r->term = NULL;
    r->n_terms = 0;
}

/* ---- events ----------------------------------------------------------------------------- */
static void join_rows(report *r)
{
    for (int k = 0; k < r->n_terms; k++) {
        double *cell = r->term[k].cell;
        for (int i = 0; i + 1 < r->n; i += 2) cell[i / 2] = mean(cell[i], cell[i + 1]);
    }
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

static void add_step(report *r, const json_t *e)
{
    int64_t *in = &r->log.in;
    static const char *const key[N_COLS] = {"step",    "loss",         "lr",        "grad_norm",
                                            "step_ms", "data_wait_ms", "used_bytes"};
    double now[N_COLS];
    for (int c = 0; c < N_COLS; c++) now[c] = number(e, key[c]);
    if (isnan(now[COL_STEP])) return;
    uint64_t used = now[COL_USED] > 0 ? (uint64_t)whole(now[COL_USED]) : 0;
    r->steps = whole(now[COL_STEP]);
    if (r->steps <= 10 || !r->used_first) r->used_first = used;
    r->used_last = used;
    if (used > r->used_most) r->used_most = used;
    bool begins = *in == 0;
    if (begins && r->n == ROWS) join_rows(r);
    if (begins) {
        memcpy(r->row[r->n++], now, sizeof now);
    } else {
        double *row = r->row[r->n - 1], k = (double)*in;
        for (int c = 1; c < N_COLS; c++)
            row[c] = isnan(row[c]) || isnan(now[c]) ? mean(row[c], now[c])
                                                    : (row[c] * k + now[c]) / (k + 1);
        row[COL_STEP] = now[COL_STEP];
        row[COL_USED] = fmax(row[COL_USED], now[COL_USED]);
    }
    add_terms(r, e, begins);
    *in = (*in + 1) % r->stride;
}

/* Sets an event that is kept; NULL: forgets it. */
static void keep(json_t **slot, json_t *e)
{
    json_decref(*slot);
    *slot = json_incref(e);
}

/* Appends to the last events. A plan has dozens of members; its total is enough. */
static void add_tail(report *r, json_t *e, const char *name)
{
    if (strcmp(name, "plan") == 0)
        json_array_append_new(r->tail, json_pack("{s:s, s:O?}", "event", name, "total_bytes",
                                                 json_object_get(e, "total_bytes")));
    else
        json_array_append(r->tail, e);
    while (json_array_size(r->tail) > TAIL) json_array_remove(r->tail, 0);
}

static void add_event(report *r, json_t *e)
{
    const char *name = json_string_value(json_object_get(e, "event"));
    if (!name) return;
    add_tail(r, e, name);
    if (strcmp(name, "step") == 0) {
        keep(&r->end, NULL); /* the run went on */
        keep(&r->error, NULL);
        add_step(r, e);
    } else if (strcmp(name, "eval") == 0) {
        json_t *metrics = json_copy(e);
        json_object_del(metrics, "event");
        json_object_del(metrics, "phase");
        json_array_append_new(r->evals, metrics);
    } else if (strcmp(name, "sample") == 0) {
        json_array_append(r->samples, e);
    } else if (strcmp(name, "phase") == 0) {
        keep(&r->phase, e);
    } else if (strcmp(name, "end") == 0) {
        keep(&r->end, e);
    } else if (strcmp(name, "error") == 0) {
        keep(&r->error, e);
    } else if (strcmp(name, "checkpoint") == 0) {
        r->checkpoints++;
    }
}

static void forget(report *r)
{
    json_array_clear(r->evals);
    json_array_clear(r->samples);
    json_array_clear(r->tail);
    keep(&r->end, NULL);
    keep(&r->error, NULL);
    keep(&r->phase, NULL);
    forget_terms(r);
    free(r->log.last);
    r->log = (report_log){0};
    r->n = 0;
    r->stride = 1;
    r->steps = r->checkpoints = 0;
    r->used_first = r->used_last = r->used_most = 0;
}

/* Returns whether f is the log that was read before: the same inode, and the last line that was
 * read is still in place. */
static bool same_log(const report *r, FILE *f, const struct stat *s)
{
    char *line = NULL;
    size_t cap = 0;
    if (!r->log.last) return r->log.at == 0;
    bool same = (uint64_t)s->st_ino == r->log.file && s->st_size >= r->log.at &&
                fseek(f, (long)r->log.last_at, SEEK_SET) == 0 && cli_line(&line, &cap, f) > 0 &&
                strcmp(line, r->log.last) == 0;
    free(line);
    return same;
}

/* Reads complete lines from where the last reading ended. */
static void read_lines(report *r, FILE *f)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    if (fseek(f, (long)r->log.at, SEEK_SET) != 0) return;
    while ((n = cli_line(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
        json_t *e = json_loads(line, 0, NULL);
        if (e) add_event(r, e);
        json_decref(e);
        r->log.last_at = r->log.at;
        r->log.at += n;
        char *before = r->log.last;
        r->log.last = line;
        line = before;
        cap = 0;
        free(line);
        line = NULL;
    }
    free(line);
}

bool report_follow(report *r)
{
    char path[4200];
    struct stat s;
    snprintf(path, sizeof path, "%s/log.jsonl", r->dir);
    FILE *f = cli_open_plain(path);
    if (!f) return false;
    bool ok = fstat(fileno(f), &s) == 0;
    if (ok && !same_log(r, f, &s)) forget(r);
    if (ok) read_lines(r, f);
    r->log.file = ok ? (uint64_t)s.st_ino : 0;
    r->log.quiet_s = ok ? difftime(time(NULL), s.st_mtime) : 0;
    fclose(f);
    return ok;
}

double report_mean(const report *r, int column)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (!isnan(r->row[i][column])) sum += r->row[i][column], n++;
    return n ? sum / n : (double)NAN;
}

bool report_read(report *r, const char *dir)
{
    json_error_t error;
    *r = (report){.dir = dir, .stride = 1};
    r->plan_text = read_text(dir, "plan.json");
    if (!r->plan_text || !(r->config = read_text(dir, "config.yaml"))) return false;
    r->plan = json_loads(r->plan_text, 0, &error);
    pl_bytes_follow((uint64_t)whole(
        json_number_value(json_object_get(json_object_get(r->plan, "memory"), "budget"))));
    if (!json_is_object(r->plan)) {
        cli_error("%s/plan.json is damaged: %s", dir, error.text);
        return false;
    }
    if (json_array_size(json_object_get(r->plan, "programs")) == 0) {
        cli_error("%s/plan.json was written by another version of plimsoll", dir);
        return false;
    }
    r->evals = json_array();
    r->samples = json_array();
    r->tail = json_array();
    r->row = calloc(ROWS + 1, sizeof *r->row);
    if (!r->evals || !r->samples || !r->tail || !r->row) {
        cli_error("out of memory for %s", dir);
        return false;
    }
    if (report_follow(r)) return true;
    cli_error("cannot read %s/log.jsonl: %s", dir, strerror(errno));
    return false;
}

void report_release(report *r)
{
    free(r->plan_text);
    free(r->config);
    free(r->row);
    forget_terms(r);
    json_decref(r->plan);
    json_decref(r->evals);
    json_decref(r->samples);
    json_decref(r->end);
    json_decref(r->error);
    json_decref(r->tail);
    json_decref(r->phase);
    free(r->log.last);
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
