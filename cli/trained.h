/* trained.h - a trained model, for `eval`, `predict` and `embed`: the options that these commands
 * share, the configuration and the weights, and a run that computes without training.
 *
 *   trained_find ──► trained_open, trained_enter ──► pl_run_eval_only or ──► trained_start
 *   paths            the run, in its phase           pl_run_predict_only     plan, weights
 */
#ifndef CLI_TRAINED_H
#define CLI_TRAINED_H

#include "cli/ui.h"
#include "plimsoll_json.h"

enum { TRAINED_PATH = 4096 };

typedef struct trained_model {
    const char *model, *memory, *device, *phase; /* options; NULL: not given */
    bool ema, json;
    cli_progress progress; /* quiet: --quiet */
    pl_run *run;           /* of the caller, who frees it; NULL before trained_open */
    char config_path[TRAINED_PATH], model_path[TRAINED_PATH];
} trained_model;

/* Rows of a command's table of options. The struct `type` has the trained_model as member `t`. */
#define TRAINED_OPTIONS(type)                                                                      \
 {"--model", "FILE", offsetof(type, t.model), "weights to use", "the model of the run"},           \
     {"--ema", NULL, offsetof(type, t.ema), "use the averaged weights (model_ema.safetensors)"},   \
     {"--phase", "NAME", offsetof(type, t.phase), "use the settings of this phase",                \
      "the phase of the model"},                                                                   \
     {"--memory", "SIZE", offsetof(type, t.memory),                                                \
      "memory budget of the whole process (same as memory=SIZE)"},                                 \
     {"--device", "DEVICE", offsetof(type, t.device),                                              \
      "device to compute on (same as device=DEVICE)"},                                             \
     {"--json", NULL, offsetof(type, t.json), "print one JSON object"},                            \
 {                                                                                                 \
  "--quiet", NULL, offsetof(type, t.progress.quiet), "no progress bar"                             \
 }

/* Prepares the progress bar, after the options are parsed. command: its name, borrowed. */
void trained_prepare(trained_model *t, const char *command);
/* Returns whether the user named an ONNX file, which has its own weights. */
bool trained_is_network(const char *named);
/* Writes the paths of configuration and weights of the user's argument: a run folder, a
 * configuration together with --model, or an ONNX file, whose weights are its own. False: an error
 * was printed. */
bool trained_find(trained_model *t, const char *named);
/* Opens the run on one rank, from the weights. samples: with the recipe's sampling program. Adds
 * overrides to the arguments. */
pl_status trained_open(trained_model *t, cli_args *a, bool samples);
/* Enters the phase that the model is of; with --phase the run is in that phase already. */
pl_status trained_enter(trained_model *t);
/* Plans and starts the run; a terminal shows that the program is busy. */
pl_status trained_start(trained_model *t);
/* Applies the started model to the data of `o` and prints the result: a line, or with --json an
 * object. counted: JSON name of the number of samples, which is also the word after the number in
 * the line; "samples": no word. Sets the progress of `o`. Returns the exit code. */
int trained_predict(trained_model *t, pl_predict_opts o, const char *counted);
/* Writes the members wall_s, arena_bytes, state_bytes and peak_used_bytes. */
void trained_json(const trained_model *t, pl_json *j, double seconds);

#endif
