/* page.c - `plan --timeline FILE.html`: the plan as a page that needs only a browser.
 *
 * The page is page.html and page.js, embedded in the program, after the plan as JSON in a script
 * element. page_common.js and style.css belong to every page.
 * Buffers are drawn at their addresses on a canvas, so that ten thousand of them stay fast. Axes,
 * the outline of the keep-all plan, the budget and the peak are SVG on top. Numbers are written as
 * arrays and labels once, in a list: a plan of ten thousand buffers takes less than a megabyte.
 */
#include "cli/plan/plan_view.h"
#include "plimsoll_embed.h"
#include "plimsoll_levels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PL_EMBED(page_style, "cli/report/style.css");
PL_EMBED(page_common, "cli/report/page_common.js");
PL_EMBED(plan_page, "cli/report/page.html");
PL_EMBED(plan_script, "cli/report/page.js");
PL_EMBED(chart_script, "cli/report/chart.js");

/* ---- labels ----------------------------------------------------------------------------- */
/* The labels, numbered in the order of first use. Hash table with open addressing. */
typedef struct labels {
    const char **text;
    int *cell; /* index + 1 */
    int n, cap;
} labels;

static bool labels_init(labels *l, int most)
{
    l->cap = 64;
    while (l->cap < 2 * most) l->cap *= 2;
    l->n = 0;
    l->text = calloc((size_t)most + 1, sizeof *l->text);
    l->cell = calloc((size_t)l->cap, sizeof *l->cell);
    return l->text && l->cell;
}

static void labels_release(labels *l)
{
    free(l->text);
    free(l->cell);
}

static int label_index(labels *l, const char *text)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (const char *p = text; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    size_t at = (size_t)(h & (uint64_t)(l->cap - 1));
    while (l->cell[at] && strcmp(l->text[l->cell[at] - 1], text) != 0)
        at = (at + 1) & (size_t)(l->cap - 1);
    if (!l->cell[at]) {
        l->text[l->n] = text;
        l->cell[at] = ++l->n;
    }
    return l->cell[at] - 1;
}

/* ---- JSON ------------------------------------------------------------------------------- */
/* Writes a JSON string that is safe inside a script element. */
static void put_text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) { /* bytes above 0x7f are UTF-8 already */
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"' || *s == '\\' ||
            (unsigned char)*s < 0x20)
            fprintf(f, "\\u%04x", (unsigned char)*s);
        else
            fputc(*s, f);
    }
    fputc('"', f);
}

static void put_memory(FILE *f, const pl_run *run)
{
    pl_run_memory m = pl_run_memory_get(run);
    pl_store *s = pl_run_store(run);
    uint64_t weights = 0;
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        if (slot->kind == PL_SLOT_PARAM || slot->kind == PL_SLOT_BUFFER)
            weights += pl_slot_bytes(slot);
    }
    fprintf(
        f,
        "\"memory\":{\"decimal\":%s,\"total\":%llu,\"budget\":%llu,\"minimum\":%llu,\"overhead\":%llu,"
        "\"weights\":%llu,\"optimizer\":%llu},\n",
        pl_bytes_decimal() ? "true" : "false", (unsigned long long)m.total,
        (unsigned long long)m.budget, (unsigned long long)(m.minimum_found ? m.minimum : 0),
        (unsigned long long)m.overhead, (unsigned long long)weights,
        (unsigned long long)(m.state > weights ? m.state - weights : 0));
}

/* Writes positions as [bytes, ms, recomputed, label, stage]; those of the keep-all plan as
 * [bytes, ms]. */
static void put_positions(FILE *f, const plan_program *of, bool kept, labels *l)
{
    const pl_program *p = of->program;
    int n = pl_program_positions(p, kept, NULL, 0);
    pl_plan_position *at = calloc((size_t)n + 1, sizeof *at);
    fprintf(f, "\"%s\":[", kept ? "kept" : "steps");
    if (at) pl_program_positions(p, kept, at, n);
    for (int i = 0; at && i < n; i++) {
        fprintf(f, "%s[%llu,%.6g", i ? "," : "", (unsigned long long)at[i].bytes, at[i].ms);
        if (!kept)
            fprintf(f, ",%d,%d,%d", at[i].recomputed,
                    label_index(l, pl_program_position_label(p, i)),
                    of->update ? PL_STAGE_UPDATE : (int)at[i].stage);
        fprintf(f, "]");
    }
    fprintf(f, "],\n");
    free(at);
}

static void put_buffers(FILE *f, const pl_program *p, labels *l)
{
    fprintf(f, "\"buffers\":[");
    for (int i = 0; i < pl_program_plan(p)->buffers; i++) {
        pl_plan_buffer b = pl_program_buffer(p, i);
        char type[96] = "";
        if (b.component != PL_COMP_WORKSPACE) pl_type_text(&b.type, type, sizeof type);
        fprintf(f, "%s[%d,\"%s\",%llu,%llu,%d,%d,%d]", i ? ",\n" : "\n", label_index(l, b.label),
                type, (unsigned long long)b.bytes, (unsigned long long)b.offset, b.first, b.last,
                (int)b.component);
    }
    fprintf(f, "]}");
}

/* Writes the programs: those of the step, evaluation, sampling. "largest": the index of the program
 * that sets the size of the arena. */
static void put_programs(FILE *f, const pl_run *run, labels *l)
{
    const pl_program *most = plan_largest_program(run, false).program;
    plan_program p;
    int largest = 0;
    fprintf(f, "\"programs\":[");
    for (int i = 0; (p = plan_program_at(run, i)).program; i++) {
        fprintf(f, "%s{\"name\":", i ? ",\n" : "\n");
        put_text(f, p.name);
        fprintf(f, ",\n");
        put_positions(f, &p, true, l);
        put_positions(f, &p, false, l);
        put_buffers(f, p.program, l);
        if (p.program == most) largest = i;
    }
    fprintf(f, "],\n\"largest\":%d,\n", largest);
}

/* Writes the tables of the report: components as [name, keep-all, planned], optimisations as
 * [title, arena, ms]. */
static void put_tables(FILE *f, const pl_run *run)
{
    const pl_plan_info *p = pl_program_plan(plan_largest_program(run, false).program);
    const pl_plan_info *all = pl_program_plan(plan_largest_program(run, true).program);
    plan_optimisation row[PLAN_OPTIMISATIONS];
    int n = plan_optimisations(run, row);
    fprintf(f, "\"parts\":[");
    for (int i = 0; i < PL_N_COMPONENTS; i++)
        fprintf(f, "%s[\"%s\",%llu,%llu]", i ? "," : "", plan_component_name((enum pl_component)i),
                (unsigned long long)all->keep_all_components[i],
                (unsigned long long)p->components[i]);
    fprintf(f, "],\n\"means\":[");
    for (int i = 0; i < n; i++) {
        fputs(i ? "," : "", f);
        fputc('[', f);
        put_text(f, row[i].title);
        fprintf(f, ",%llu,%.6g]", (unsigned long long)row[i].bytes, row[i].ms);
    }
    fprintf(f, "],\n\"kept_ms\":%.6g,\"step_ms\":%.6g,\"arena\":%llu,\n", plan_keep_all_ms(run),
            pl_run_predicted_ms(run), (unsigned long long)pl_run_memory_get(run).arena);
}

/* Writes a lane for each channel of each program of the step: [program, ms of its run, channel,
 * [[begin, end], ..]], times in ms. */
static void put_lanes(FILE *f, const pl_run *run)
{
    plan_span span[PLAN_SPANS];
    bool any = false;
    fprintf(f, "\"lanes\":[");
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program t = pl_run_step_program_at(run, i);
        double ms = pl_program_plan(t.run)->predicted_step_ms;
        for (int k = 0; k < PLAN_CHANNELS; k++) {
            int n = plan_spans(t.run, k, ms, span);
            if (!n) continue;
            fprintf(f, "%s[", any ? "," : "");
            put_text(f, t.name);
            fprintf(f, ",%.6g,%d,[", ms, k);
            for (int s = 0; s < n; s++)
                fprintf(f, "%s[%.6g,%.6g]", s ? "," : "", span[s].begin, span[s].end);
            fprintf(f, "]]");
            any = true;
        }
    }
    fprintf(f, "],\n");
}

/* Writes memory below the device: bytes of each level, channels as [name, bytes, ms], and lanes. */
static void put_levels(FILE *f, const pl_run *run)
{
    pl_run_levels l = pl_run_levels_get(run);
    plan_channel c[PLAN_CHANNELS];
    if (!l.host_budget_bytes && !l.disk_budget_bytes) return;
    plan_channels(run, c);
    fprintf(f,
            "\"host_bytes\":%llu,\"host_budget_bytes\":%llu,\"disk_bytes\":%llu,"
            "\"disk_budget_bytes\":%llu,\"moved_bytes_per_step\":%.0f,\"wait_ms\":%.6g,\n"
            "\"channels\":[",
            (unsigned long long)l.host_bytes, (unsigned long long)l.host_budget_bytes,
            (unsigned long long)l.disk_bytes, (unsigned long long)l.disk_budget_bytes,
            l.moved_bytes_per_step, l.wait_ms);
    for (int k = 0; k < PLAN_CHANNELS; k++)
        fprintf(f, "%s[\"%s\",%.0f,%.6g]", k ? "," : "", c[k].name, c[k].bytes, c[k].ms);
    fprintf(f, "],\n");
    put_lanes(f, run);
}

/* Returns whether a listed device is the device of the key `device`. The first device of a kind is
 * listed without a number; the key may call it NAME:0. */
static bool is_named(const char *listed, const char *key)
{
    size_t n = strlen(listed);
    return strncmp(listed, key, n) == 0 && (key[n] == 0 || strcmp(key + n, ":0") == 0);
}

/* Writes the device that this run uses, and its description. */
static void put_machine(FILE *f, const pl_run *run)
{
    const char *name = pl_config_text(pl_run_config(run), "device");
    int n, at = 0;
    pl_device_info *d = cli_devices(false, &n);
    while (at < n && !is_named(d[at].name, name)) at++;
    fprintf(f, "\"device\":");
    put_text(f, name);
    fprintf(f, ",\"machine\":");
    put_text(f, at < n ? d[at].about : "");
    free(d);
    fprintf(f, ",\"version\":");
    put_text(f, pl_version());
    fprintf(f, ",\n");
}

static void put_plan(FILE *f, const pl_run *run, const char *name, labels *l)
{
    pl_run_split split = pl_run_split_get(run);
    char tradeoffs[128], note[96];
    fprintf(f, "{\"name\":");
    put_text(f, name);
    fprintf(
        f, ",\n\"about\":\"%s parameters, batch %lld (micro-batch %lld x accumulate %lld)%s%s\",\n",
        cli_count(pl_run_parameters(run, false)), (long long)split.effective,
        (long long)split.micro, (long long)split.accumulate,
        plan_tradeoffs(run, tradeoffs, sizeof tradeoffs),
        plan_program_note(run, note, sizeof note));
    fprintf(f, "\"again\":%.4g,\"last_step\":%lld,\n", 100 * plan_recompute_share(run),
            pl_run_phase_count(run) > 0
                ? 0LL /* from the events of the phases */
                : (long long)pl_config_int(pl_run_config(run), "train.steps"));
    put_memory(f, run);
    put_levels(f, run);
    put_tables(f, run);
    put_machine(f, run);
    put_programs(f, run, l);
    fprintf(f, "\"labels\":[");
    for (int i = 0; i < l->n; i++) {
        fputs(i ? ",\n" : "\n", f);
        put_text(f, l->text[i]);
    }
    fprintf(f, "]}");
}

/* ---- files ------------------------------------------------------------------------------ */
static bool put_document(FILE *f, const pl_run *run, const char *name)
{
    labels l = {0};
    plan_program p;
    int most = 0;
    for (int i = 0; (p = plan_program_at(run, i)).program; i++)
        most += pl_program_plan(p.program)->buffers + pl_program_plan(p.program)->positions;
    bool ok = labels_init(&l, most);
    if (ok) put_plan(f, run, name, &l);
    labels_release(&l);
    return ok && !ferror(f);
}

/* The empty icon keeps browsers from asking a server for one. */
void page_head(FILE *f, const char *title)
{
    fprintf(f,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
            "<link rel=\"icon\" href=\"data:,\">\n<title>%s</title>\n<style>\n%s</style>\n",
            title, page_style);
}

void page_body(FILE *f)
{
    fprintf(f, "%s<script>\n%s%s</script>\n", plan_page, page_common, plan_script);
}

void page_common_script(FILE *f)
{
    fputs(page_common, f);
}

void page_chart_script(FILE *f)
{
    fputs(chart_script, f);
}

int page_write(const pl_run *run, const char *name, const char *path)
{
    cli_file out;
    bool ok = cli_file_open(&out, path);
    if (ok) {
        FILE *f = out.f;
        page_head(f, "Memory of one training step");
        fprintf(f, "<script type=\"application/json\" id=\"plan\">\n");
        ok = put_document(f, run, name);
        fprintf(f, "\n</script>\n");
        page_body(f);
        ok = cli_file_close(&out, ok);
    }
    if (ok) return 0;
    cli_error("cannot write %s: %s", path, strerror(errno));
    return 1;
}

pl_status page_plan_save(const pl_run *run, const char *name, pl_folder *folder, const char *file)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    bool ok = f && put_document(f, run, name) && !ferror(f);
    if (f && fclose(f) != 0) ok = false;
    /* without memory, closing succeeds and leaves no text */
    pl_status rc = ok && text ? pl_folder_write(folder, file, text) : PL_ERR_MEMORY;
    free(text);
    return rc;
}
