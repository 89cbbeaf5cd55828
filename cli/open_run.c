/* open_run.c - opens the run that a command line names: configuration, overrides, --memory,
 * --phase.
 */
#include "ui.h"

#include <stdlib.h>
#include <string.h>

/* Enters a phase by name or number. An unknown phase lists the valid ones and exits 2. */
static pl_status enter(pl_run *run, const char *phase)
{
    int i = pl_run_phase_find(run, phase), n = pl_run_phase_count(run);
    if (i >= 0) return pl_run_enter(run, i, 0);
    cli_error(n ? "there is no phase \"%s\"; the phases are:"
                : "--phase %s: the configuration has no phases",
              phase);
    for (i = 0; i < n; i++) cli_error("  %s", pl_run_phase_at(run, i)->name);
    pl_run_free(run);
    exit(2);
}

pl_status cli_open_run(const cli_args *a, const char *memory, pl_run **out)
{
    char budget[128];
    const char *overrides[CLI_MAX_ARGS + 1];
    int n = a->n_overrides;
    memcpy(overrides, a->overrides, sizeof a->overrides);
    if (memory) {
        snprintf(budget, sizeof budget, "memory=%s", memory);
        overrides[n++] = budget;
    }
    pl_run *run = NULL;
    pl_status rc = pl_run_open(a->positional[0], overrides, n, &run);
    if (rc == PL_OK && a->phase) rc = enter(run, a->phase);
    if (rc == PL_OK)
        *out = run;
    else
        pl_run_free(run);
    return rc;
}

void cli_start_warning(const pl_run *run)
{
    const char *text = pl_run_start_warning(run);
    if (text) cli_error("warning: %s", text);
}

int cli_print_config(pl_run *run)
{
    char *text;
    pl_status rc = pl_config_print(pl_run_config(run), &text);
    if (rc == PL_OK) {
        fputs(text, stdout);
        pl_text_free(text);
    }
    pl_run_free(run);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

static void put_row(pl_json *j, const char *key, const pl_loaded_row *r)
{
    pl_json_object(j, key);
    pl_json_int(j, "count", r->n);
    pl_json_string(j, "names", r->names);
    pl_json_end(j);
}

void cli_loaded_json(const pl_run *run, pl_json *j)
{
    const pl_loaded *l = pl_run_loaded(run, 0);
    if (!l) return;
    pl_json_array(j, "weights");
    for (int i = 0; (l = pl_run_loaded(run, i)); i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "key", l->key);
        pl_json_string(j, "path", l->path);
        pl_json_string(j, "naming", l->naming);
        pl_json_string(j, "prefix", l->prefix);
        pl_json_int(j, "loaded", l->loaded);
        pl_json_int(j, "averages", l->averages);
        put_row(j, "missing", &l->missing);
        put_row(j, "shape_differs", &l->differs);
        put_row(j, "left_over", &l->left_over);
        pl_json_end(j);
    }
    pl_json_end(j);
}
