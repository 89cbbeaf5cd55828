/* plan_view.h - shared by the commands that show plans: tables, JSON, pages, suggestions. */
#ifndef CLI_PLAN_VIEW_H
#define CLI_PLAN_VIEW_H

#include "cli/ui.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_json.h"

/* One row of the table "Arena size as each optimisation is added": the arena and the predicted step
 * time with this optimisation and the optimisations above. */
typedef struct plan_optimisation {
    const char *name, *title; /* for JSON, for people */
    uint64_t bytes;
    double ms;
} plan_optimisation;
enum { PLAN_OPTIMISATIONS = 12 };
/* Fills at most PLAN_OPTIMISATIONS rows, from a buffer for every tensor down to the plan that runs.
 * Returns how many. */
int plan_optimisations(const pl_run *run, plan_optimisation *out);
void plan_optimisations_print(const plan_optimisation *row, int n, FILE *out);
void plan_optimisations_json(const plan_optimisation *row, int n, pl_json *j);

/* Prints the tables of a plan; writes its members into an open JSON object. */
void plan_print(const pl_run *run, const char *name, const plan_optimisation *row, int n,
                FILE *out);
void plan_json(const pl_run *run, pl_json *j);

/* plan_levels.c: rows and members for memory below the device; nothing where none is allowed. */
void plan_levels_print(const pl_run *run, FILE *out);
void plan_levels_json(const pl_run *run, pl_json *j);
/* Channels between levels: what each moves in a mean step, and how long it is busy. */
enum { PLAN_CHANNELS = 4 };
typedef struct plan_channel {
    const char *name;
    double bytes, ms;
} plan_channel;
void plan_channels(const pl_run *run, plan_channel out[PLAN_CHANNELS]);

/* When a channel is busy, in ms from the start of a program: moves with hardly a gap between them
 * are one span. */
typedef struct plan_span {
    double begin, end;
} plan_span;
enum { PLAN_SPANS = 200 };
/* Fills `out` for a channel of a program that takes `ms`; returns the number of spans, at most
 * PLAN_SPANS. */
int plan_spans(const pl_program *p, int channel, double ms, plan_span out[PLAN_SPANS]);

/* Writes the trade-offs that the plan uses, e.g. ", decodes twice", or "". Returns buf. */
const char *plan_tradeoffs(const pl_run *run, char *buf, size_t cap);

/* A program of a run: "train" or another program of the step, "update of ..." (applies accumulated
 * gradients), "evaluation", "sampling". */
typedef struct plan_program {
    const pl_program *program; /* NULL: i is past the last one */
    char name[64];
    bool update; /* "update of ..." */
} plan_program;
plan_program plan_program_at(const pl_run *run, int i);
/* Returns the program with the largest arena, which sets the size of the run's arena. keep_all: by
 * the arenas of the keep-all plans. */
plan_program plan_largest_program(const pl_run *run, bool keep_all);
/* Writes ", the NAME program" where the largest is not the training program, else "". Returns buf.
 */
const char *plan_program_note(const pl_run *run, char *buf, size_t cap);

const char *plan_component_name(enum pl_component c);
/* Predicted time of a whole step without recompute. */
double plan_keep_all_ms(const pl_run *run);

/* Share of the predicted time of a whole step that is recompute. */
double plan_recompute_share(const pl_run *run);

/* page.c: `plan --timeline FILE.html`; returns the exit code. */
int page_write(const pl_run *run, const char *name, const char *path);
/* page_plan_save writes the same plan as a file (plan.json) into a run folder. page_head opens a
 * page with its style; page_body writes the page of a plan, after the plan in a script element.
 * page_common_script and page_chart_script write parts of a script element. */
pl_status page_plan_save(const pl_run *run, const char *name, pl_folder *folder,
                         const char *file) PL_MUST_USE;
void page_head(FILE *f, const char *title);
void page_body(FILE *f);
void page_common_script(FILE *f);
void page_chart_script(FILE *f);

/* compare.c: plan --compare; returns the exit code. */
int plan_compare(const cli_args *a, bool json);

/* edits.c: changes of the command line that make a plan fit; each one has been planned. */
typedef struct plan_edit {
    char text[160];      /* to append to the command line */
    const char *changes; /* its effect on training; NULL: nothing */
    uint64_t total_bytes;
    double step_ms, sample_ms;
} plan_edit;
enum { PLAN_EDITS = 3 };
/* A plan that does not fit, with the first offer. */
typedef struct plan_refusal {
    pl_run_memory need;
    int64_t nodes;  /* of the graph */
    plan_edit more; /* more memory; text is "": no plan was found */
} plan_refusal;
/* Describes a run that was built and does not fit, and plans it again with more memory. The run is
 * only good for pl_run_free then; free it before plan_edits, because its memory would count. */
plan_refusal plan_refused(pl_run *run);
/* For the arguments of that run; memory is --memory or NULL. Returns how many it found. */
int plan_edits(const cli_args *a, const char *memory, const plan_refusal *refused, plan_edit *out);
void plan_edits_print(const plan_edit *edit, int n, FILE *out);
/* Says that a plan does not fit, with the smallest budget. */
void plan_unfit_print(const pl_run_memory *m);
void plan_edits_json(const plan_edit *edit, int n, pl_json *j);

#endif
