/* report_compare.c - `plimsoll report RUN1 RUN2 ...`: runs beside each other.
 *
 * Both forms, page and document, print the same two tables: results, and the keys of config.yaml
 * that are not equal in all runs. The page also draws the curves over each other.
 */
#include "cli/plan/plan_view.h"
#include "plimsoll_embed.h"
#include "report.h"

#include <libfyaml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

PL_EMBED(compare_parts, "cli/report/compare.html");
PL_EMBED(compare_script, "cli/report/compare.js");

/* ---- configurations --------------------------------------------------------------------- */
/* Adds the keys of a mapping as "above.key": its value as text. */
static bool add_keys(json_t *out, const char *above, struct fy_node *map)
{
    void *at = NULL;
    struct fy_node_pair *pair;
    bool ok = true;
    while (ok && (pair = fy_node_mapping_iterate(map, &at)) != NULL) {
        char key[512];
        struct fy_node *value = fy_node_pair_value(pair);
        const char *name = fy_node_get_scalar0(fy_node_pair_key(pair));
        snprintf(key, sizeof key, "%s%s%s", above, above[0] ? "." : "", name ? name : "");
        if (fy_node_is_mapping(value)) {
            ok = add_keys(out, key, value);
        } else {
            char *text = fy_emit_node_to_string(value, FYECF_MODE_FLOW_ONELINE | FYECF_WIDTH_INF);
            if (text) text[strcspn(text, "\n")] = 0;
            ok = text && json_object_set_new(out, key, json_string(text)) == 0;
            free(text);
        }
    }
    return ok;
}

static json_t *read_keys(const report *r)
{
    struct fy_document *d = fy_document_build_from_string(NULL, r->config, FY_NT);
    struct fy_node *root = d ? fy_document_root(d) : NULL;
    json_t *out = json_object();
    if (!fy_node_is_mapping(root) || !add_keys(out, "", root)) {
        cli_error("%s/config.yaml is damaged", r->dir);
        json_decref(out);
        out = NULL;
    }
    fy_document_destroy(d);
    return out;
}

/* Returns rows [key, value in each run or null] of the keys that differ; NULL: an error was
 * printed. */
static json_t *differing(const report *runs, int n)
{
    json_t *all = json_object(), *rows = json_array(), *of[64] = {NULL}, *v;
    const char *key;
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        ok = (of[i] = read_keys(&runs[i])) != NULL;
        json_object_foreach(of[i], key, v) json_object_set(all, key, v);
    }
    json_object_foreach(all, key, v)
    {
        json_t *row = json_pack("[s]", key);
        bool same = true;
        for (int i = 0; i < n; i++) {
            json_t *own = json_object_get(of[i], key);
            same &= own && json_equal(own, v);
            json_array_append_new(row, own ? json_incref(own) : json_null());
        }
        if (ok && !same) json_array_append(rows, row);
        json_decref(row);
    }
    for (int i = 0; i < n; i++) json_decref(of[i]);
    json_decref(all);
    if (ok) return rows;
    json_decref(rows);
    return NULL;
}

/* ---- results ---------------------------------------------------------------------------- */
typedef const char *(*result_fn)(const report *r);

static double plan_number(const report *r, const char *key)
{
    return json_number_value(json_object_get(json_object_get(r->plan, "memory"), key));
}

static const char *bytes_of(double v)
{
    return v > 0 ? cli_bytes((uint64_t)v) : "none";
}

static const char *number_text(double v, const char *after)
{
    static char ring[8][48];
    static int at;
    at = (at + 1) % 8;
    snprintf(ring[at], sizeof ring[at], "%.*g%s", after[0] ? 3 : 6, v, after);
    return ring[at];
}

static const char *state(const report *r)
{
    if (r->error) return "failed";
    if (!r->end) return "not finished";
    return json_is_true(json_object_get(r->end, "stopped")) ? "stopped" : "finished";
}

static const char *steps(const report *r)
{
    return cli_count(r->steps);
}

static const char *loss(const report *r)
{
    return r->n ? number_text(r->row[r->n - 1][COL_LOSS], "") : "";
}

static const char *step_time(const report *r)
{
    double ms = report_mean(r, COL_MS);
    return isnan(ms) ? "" : cli_ms(ms);
}

static const char *predicted(const report *r)
{
    return cli_ms(json_number_value(json_object_get(r->plan, "step_ms")));
}

static const char *waiting(const report *r)
{
    double ms = report_mean(r, COL_MS), wait = report_mean(r, COL_WAIT);
    return ms > 0 && !isnan(wait) ? number_text(100 * wait / ms, " %") : "";
}

static const char *recompute(const report *r)
{
    return number_text(json_number_value(json_object_get(r->plan, "again")), " %");
}

static const char *peak(const report *r)
{
    return r->used_most ? cli_bytes(r->used_most) : "";
}

static const char *planned(const report *r)
{
    return bytes_of(plan_number(r, "total"));
}

static const char *budget(const report *r)
{
    return bytes_of(plan_number(r, "budget"));
}

static const char *wall(const report *r)
{
    return r->end ? cli_duration(json_number_value(json_object_get(r->end, "wall_s"))) : "";
}

static const char *device(const report *r)
{
    const char *s = json_string_value(json_object_get(r->plan, "device"));
    return s ? s : "";
}

static void add_row(json_t *rows, const char *name, const report *runs, int n, result_fn of)
{
    json_t *row = json_pack("[s]", name);
    for (int i = 0; i < n; i++) json_array_append_new(row, json_string(of(&runs[i])));
    json_array_append_new(rows, row);
}

/* The metrics of the last evaluation of each run. */
static void add_metrics(json_t *rows, const report *runs, int n)
{
    json_t *names = json_object(), *v;
    const char *key;
    for (int i = 0; i < n; i++) {
        json_t *last = json_array_get(runs[i].evals, json_array_size(runs[i].evals) - 1);
        json_object_foreach(last, key, v) if (strcmp(key, "step") != 0)
            json_object_set(names, key, v);
    }
    json_object_foreach(names, key, v)
    {
        json_t *row = json_pack("[s++]", "evaluation: ", key, "");
        for (int i = 0; i < n; i++) {
            json_t *last = json_array_get(runs[i].evals, json_array_size(runs[i].evals) - 1);
            json_t *own = json_object_get(last, key);
            json_array_append_new(
                row,
                json_string(json_is_number(own) ? number_text(json_number_value(own), "") : ""));
        }
        json_array_append_new(rows, row);
    }
    json_decref(names);
}

static json_t *results(const report *runs, int n)
{
    static const struct {
        const char *name;
        result_fn of;
    } row[] = {{"state", state},
               {"steps", steps},
               {"loss at the end", loss},
               {"step time, measured", step_time},
               {"step time, predicted", predicted},
               {"waiting for data", waiting},
               {"recompute", recompute},
               {"peak memory, measured", peak},
               {"peak memory, planned", planned},
               {"budget", budget},
               {"time in total", wall},
               {"device", device}};
    json_t *rows = json_array();
    for (int i = 0; i < 3; i++) add_row(rows, row[i].name, runs, n, row[i].of);
    add_metrics(rows, runs, n);
    for (size_t i = 3; i < sizeof row / sizeof *row; i++)
        add_row(rows, row[i].name, runs, n, row[i].of);
    return rows;
}

/* ---- writing ---------------------------------------------------------------------------- */
/* Sets the last part of a path, without slashes at its end. */
static void last_part(const char *dir, char *out, size_t cap)
{
    size_t end = strlen(dir), from;
    while (end > 1 && dir[end - 1] == '/') end--;
    for (from = end; from > 0 && dir[from - 1] != '/';) from--;
    snprintf(out, cap, "%.*s", (int)(end - from), dir + from);
}

/* The last part of the folder, or all of it where two runs have the same. */
static const char *name_of(const report *runs, int n, int i, char buf[256])
{
    char other[256];
    last_part(runs[i].dir, buf, 256);
    for (int k = 0; k < n; k++) {
        if (k == i) continue;
        last_part(runs[k].dir, other, sizeof other);
        if (strcmp(other, buf) != 0) continue;
        snprintf(buf, 256, "%s", runs[i].dir);
        break;
    }
    return buf;
}

/* Writes a cell of a Markdown table. */
static void put_cell(FILE *f, const char *text)
{
    fputs(" ", f);
    for (; *text; text++) {
        if (*text == '|') fputc('\\', f);
        fputc(*text == '\n' ? ' ' : *text, f);
    }
    fputs(" |", f);
}

static void put_table(FILE *f, const report *runs, int n, const json_t *rows)
{
    const json_t *row, *v;
    char name[256];
    size_t i, k;
    fprintf(f, "| |");
    for (int r = 0; r < n; r++) put_cell(f, name_of(runs, n, r, name));
    fprintf(f, "\n| --- |");
    for (int r = 0; r < n; r++) fprintf(f, " ---: |");
    fputc('\n', f);
    json_array_foreach(rows, i, row)
    {
        fputc('|', f);
        json_array_foreach(row, k, v) put_cell(f, json_is_string(v) ? json_string_value(v) : "");
        fputc('\n', f);
    }
}

static void put_markdown(FILE *f, const report *runs, int n, const json_t *keys, const json_t *rows)
{
    fprintf(f, "# Comparison of %d runs\n\n## Results\n\n", n);
    put_table(f, runs, n, rows);
    fprintf(f, "\n## Configuration: keys that differ\n\n");
    if (json_array_size(keys) == 0)
        fprintf(f, "The configurations are equal.\n");
    else
        put_table(f, runs, n, keys);
}

static void put_page(FILE *f, const report *runs, int n, const json_t *keys, const json_t *rows)
{
    char name[256];
    page_head(f, "Comparison of runs");
    fprintf(f, "<script type=\"application/json\" id=\"runs\">\n{\"decimal\":%s,\"runs\":[",
            pl_bytes_decimal() ? "true" : "false");
    for (int i = 0; i < n; i++) {
        json_t *text = json_string(name_of(runs, n, i, name));
        fprintf(f, "%s{\"name\":", i ? ",\n" : "");
        report_put_json(text, f);
        fprintf(f, ",\"evals\":");
        report_put_json(runs[i].evals, f);
        fprintf(f, ",\"rows\":");
        report_put_rows(&runs[i], f);
        fprintf(f, ",\"terms\":");
        report_put_terms(&runs[i], f);
        fputc('}', f);
        json_decref(text);
    }
    fprintf(f, "],\n\"results\":");
    report_put_json(rows, f);
    fprintf(f, ",\n\"keys\":");
    report_put_json(keys, f);
    fprintf(f, "}\n</script>\n%s<script>\n", compare_parts);
    page_common_script(f);
    page_chart_script(f);
    fprintf(f, "%s</script>\n", compare_script);
}

bool compare_write(const report *runs, int n, bool markdown, FILE *f)
{
    json_t *keys = differing(runs, n), *rows = keys ? results(runs, n) : NULL;
    if (rows) (markdown ? put_markdown : put_page)(f, runs, n, keys, rows);
    json_decref(keys);
    json_decref(rows);
    return rows != NULL;
}
