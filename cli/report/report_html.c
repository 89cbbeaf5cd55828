/* report_html.c - `plimsoll report RUN`: a run as a page that needs only a browser.
 *
 * page.js draws the memory of one step; report.js follows and adds the measurements around that
 * picture. Both read their data from script elements. The page of `plimsoll watch` is the same, and
 * polls its data every two seconds.
 */
#include "cli/plan/plan_view.h"
#include "plimsoll_embed.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

PL_EMBED(report_parts, "cli/report/report.html");
PL_EMBED(report_script, "cli/report/report.js");

/* JSON in a script element: "<" occurs in strings only, where it can be escaped. */
static void put_safe(FILE *f, const char *json)
{
    for (const char *p = json; *p; p++) {
        if (*p == '<')
            fputs("\\u003c", f);
        else
            fputc(*p, f);
    }
}

void report_put_json(const json_t *v, FILE *f)
{
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    put_safe(f, text ? text : "null");
    free(text);
}

static void put_json(FILE *f, const char *key, const json_t *v)
{
    fprintf(f, "\"%s\":", key);
    report_put_json(v, f);
    fprintf(f, ",\n");
}

static void put_string(FILE *f, const char *key, const char *text)
{
    json_t *s = json_string(text);
    put_json(f, key, s);
    json_decref(s);
}

static void put_base64(FILE *f, FILE *in)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char b[3];
    for (size_t n; (n = fread(b, 1, 3, in)) > 0;) {
        unsigned v = (unsigned)b[0] << 16 | (n > 1 ? (unsigned)b[1] << 8 : 0) | (n > 2 ? b[2] : 0);
        for (int i = 0; i < 4; i++) fputc((size_t)i <= n ? digit[v >> (18 - 6 * i) & 63] : '=', f);
    }
}

/* Embeds the pictures in the page; leaves out files that are missing. live: only names them. */
static void put_samples(FILE *f, const report *r, bool live)
{
    bool any = false;
    fprintf(f, "\"samples\":[");
    for (size_t i = 0; i < json_array_size(r->samples); i++) {
        json_t *one = json_array_get(r->samples, i);
        char file[512], path[4700];
        if (!report_shows(r, i, file, sizeof file)) continue;
        snprintf(path, sizeof path, "%.4000s/%s", r->dir, file);
        FILE *in = cli_open_plain(path);
        if (!in) continue;
        fprintf(f, "%s{", any ? ",\n" : "");
        put_json(f, "step", json_object_get(one, "step"));
        put_json(f, "name", json_object_get(one, "name"));
        if (live) {
            json_t *name = json_string(file);
            fprintf(f, "\"file\":");
            report_put_json(name, f);
            json_decref(name);
        } else {
            fprintf(f, "\"png\":\"");
            put_base64(f, in);
            fputc('"', f);
        }
        fputc('}', f);
        fclose(in);
        any = true;
    }
    fprintf(f, "],\n");
}

void report_put_rows(const report *r, FILE *f)
{
    fputc('[', f);
    for (int i = 0; i < r->n; i++) {
        fputs(i ? ",\n[" : "[", f);
        for (int c = 0; c < N_COLS; c++) {
            if (isfinite(r->row[i][c]))
                fprintf(f, "%s%.*g", c ? "," : "", c == COL_USED || c == COL_STEP ? 15 : 6,
                        r->row[i][c]);
            else
                fprintf(f, "%snull", c ? "," : "");
        }
        fputc(']', f);
    }
    fprintf(f, "]");
}

void report_put_terms(const report *r, FILE *f)
{
    fputc('[', f);
    for (int k = 0; k < r->n_terms; k++) {
        const char *comma = "";
        fprintf(f, "%s{", k ? ",\n" : "");
        put_string(f, "name", r->term[k].name);
        fprintf(f, "\"points\":[");
        for (int i = 0; i < r->n; i++) {
            if (!isfinite(r->term[k].cell[i])) continue;
            fprintf(f, "%s[%.15g,%.6g]", comma, r->row[i][COL_STEP], r->term[k].cell[i]);
            comma = ",";
        }
        fprintf(f, "]}");
    }
    fputc(']', f);
}

void report_run_json(const report *r, const json_t *live, FILE *f)
{
    fputc('{', f);
    put_string(f, "folder", r->dir);
    put_string(f, "config", r->config);
    put_json(f, "evals", r->evals);
    put_json(f, "end", r->end);
    put_json(f, "live", live);
    put_samples(f, r, live != NULL);
    fprintf(
        f,
        "\"stride\":%lld,\"steps\":%lld,\"checkpoints\":%lld,\"used\":[%llu,%llu,%llu],\n\"rows\":",
        (long long)r->stride, (long long)r->steps, (long long)r->checkpoints,
        (unsigned long long)r->used_first, (unsigned long long)r->used_last,
        (unsigned long long)r->used_most);
    report_put_rows(r, f);
    fprintf(f, ",\n\"terms\":");
    report_put_terms(r, f);
    fputc('}', f);
}

void report_html(const report *r, const json_t *live, FILE *f)
{
    page_head(f, live ? "Watching a run" : "Training report");
    fprintf(f, "<script type=\"application/json\" id=\"plan\">\n");
    put_safe(f, r->plan_text);
    fprintf(f, "\n</script>\n<script type=\"application/json\" id=\"run\">\n");
    report_run_json(r, live, f);
    fprintf(f, "\n</script>\n");
    page_body(f);
    fprintf(f, "%s<script>\n", report_parts);
    page_chart_script(f);
    fprintf(f, "%s</script>\n", report_script);
}
