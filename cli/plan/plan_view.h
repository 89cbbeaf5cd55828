/* plan_view.h - what the commands that show plans share. */
#ifndef CLI_PLAN_VIEW_H
#define CLI_PLAN_VIEW_H

#include "cli/ui.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_json.h"

/* The arena and the predicted step once one more of the planner's means is used. */
typedef struct plan_mean {
    const char *name, *what; /* of JSON, of people */
    uint64_t bytes;
    double ms;
} plan_mean;
enum { PLAN_MEANS = 12 };
/* From a buffer for every result down to the plan; at most PLAN_MEANS rows, returns how many. */
int plan_means(const pl_run *run, plan_mean *out);
void plan_means_print(const plan_mean *mean, int n, FILE *out);
void plan_means_json(const plan_mean *mean, int n, pl_json *j);

/* The tables of a plan, and its members in JSON. */
void plan_print(const pl_run *run, const char *name, const plan_mean *mean, int n, FILE *out);
void plan_json(const pl_run *run, pl_json *j);

/* ", decodes twice": what the plan has taken to need less; "" for nothing. Returns buf. */
const char *plan_tradeoffs(const pl_run *run, char *buf, size_t cap);

/* A program of a run: "train" or another of its turns, "update of ..." from accumulated gradients,
 * "evaluation", "sampling". */
typedef struct plan_program {
    const pl_program *program; /* NULL: there are no more */
    char name[64];
} plan_program;
plan_program plan_program_at(const pl_run *run, int i);
/* The one with the largest arena, which is the run's; kept: if nothing were computed again. */
plan_program plan_widest(const pl_run *run, bool kept);
/* ", the ... program" where the widest is not the training program, else ""; returns buf. */
const char *plan_whose(const pl_run *run, char *buf, size_t cap);

const char *plan_component_name(enum pl_component c);
/* Of a whole step of which nothing is computed again. */
double plan_keep_all_ms(const pl_run *run);

/* The share of a predicted step, all its programs, that is computed again. */
double plan_again(const pl_run *run);

/* page.c: `plan --timeline FILE.html`; returns the exit code. */
int page_write(const pl_run *run, const char *name, const char *path);
/* The same plan as a file of a run's folder, plan.json; and the parts of a page around it: what
 * comes before the plan (which ends a script element) and what comes after. */
pl_status page_plan_save(const pl_run *run, const char *name, pl_folder *folder,
                         const char *file) PL_MUST_USE;
void page_head(FILE *f, const char *title);
void page_body(FILE *f);

/* compare.c: the model's own segments beside the planner; returns the exit code. */
int plan_compare(const cli_args *a, bool json);

/* edits.c: changes of the command line with which a plan fits, each tried. */
typedef struct plan_edit {
    char text[160];      /* to be put after the command line */
    const char *changes; /* what it does to the training; NULL: nothing */
    uint64_t total_bytes;
    double step_ms, sample_ms;
} plan_edit;
enum { PLAN_EDITS = 3 };
/* For arguments whose plan does not fit; memory is --memory or NULL. Returns how many were found.
 */
int plan_edits(const cli_args *a, const char *memory, const pl_run_memory *need, plan_edit *out);
void plan_edits_print(const plan_edit *edit, int n, FILE *out);
void plan_edits_json(const plan_edit *edit, int n, pl_json *j);

#endif
