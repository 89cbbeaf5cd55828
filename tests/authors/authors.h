/* authors.h - compares the recipes with reference numbers of the authors' own programs.
 *
 * A folder holds one folder per system: weights in the files that the authors' program writes,
 * about.json (constructor arguments, settings of the step, scalars) and io.safetensors:
 *
 *     in/...      inputs and random draws       out/...             outputs of networks
 *     grad*../... gradients                     delta*../...        weight after minus before
 *     sketch/KIND/NAME   four numbers in place of a large tensor: norm and three signed sums
 *
 * A system's file (authors_SYSTEM.c) makes a configuration of the sizes in about.json, opens a run
 * that loads the weight files as a user's run does, feeds inputs and draws, and compares. Every
 * comparison prints one line: what, largest difference, tolerance, ok or DIFFERS. Tensors of
 * io.safetensors that no comparison asked for, inputs aside, make a line that differs: nothing is
 * skipped in silence.
 *
 * Errors are lines too: a function that cannot do its work prints a line that differs, and later
 * calls that need its result do nothing.
 */
#ifndef PL_TESTS_AUTHORS_H
#define PL_TESTS_AUTHORS_H

#include "base/arena.h"
#include "io/safetensors.h"
#include "plimsoll_nn.h"
#include "plimsoll_recipe.h"
#include "plimsoll_train.h"

#include <jansson.h>

/* Tolerances, relative to the largest value of the tensor, to the sketch's norm, or to the term.
 *
 * A system is compared in f32. Where a line is beyond its tolerance, the whole system is computed
 * once more in f64: rounding vanishes there, a wrong formula does not. Causes are norms over two
 * values and sums that cancel, where rounding moves a line a little, and sorts and ReLUs that
 * rounding turns over, where the line jumps. Both are measured by draws: our f64 computed again
 * with every weight moved by AUTHORS_NUDGE times its own size, up or down; every second draw moves
 * the real inputs of the steps, too. Such a line agrees if both hold:
 *
 *   - our f64 is within the bound, or a draw is within the tolerance and the stated error;
 *   - our f32 is within AUTHORS_ROUNDING times the bound, or its difference is that of our f64
 *     or of a draw, within the tolerance and the stated error.
 *
 * The bound is the tolerance plus the error of the authors' f32: the one that about.json states,
 * or the most that moved weights move the line's difference. Moved inputs do not raise it: a jump
 * must be met, not covered. A wrong formula is far from the authors' numbers and stays there. The
 * line shows the difference of f64 and the bound, and says where a jump was met. */
#define AUTHORS_ROUNDING 5
#define AUTHORS_NUDGE    0x1p-22 /* four units in the last place of f32 */
#define AUTHORS_DRAWS    16
#define AUTHORS_OUTPUT   1e-5
#define AUTHORS_TERM     5e-6
#define AUTHORS_GRADIENT 5e-5
#define AUTHORS_R1       1e-5
#define AUTHORS_DELTA    1e-3

/* A line. */
typedef struct authors_entry {
    char what[128], note[640];
    double difference, tolerance;
    double moved; /* most that moved weights move the difference, in f64; 0: not measured */
    double drawn[AUTHORS_DRAWS]; /* the difference in f64 of each draw */
    int n_drawn;
    bool failed; /* a comparison that could not be made */
} authors_entry;

typedef struct authors {
    const char *system;   /* name of its folder */
    char dir[1024];       /* its folder */
    json_t *about;        /* about.json */
    pl_st_reader *io;     /* io.safetensors */
    bool *used;           /* by tensor of io */
    pl_arena mem;         /* until the system is done */
    bool quiet;           /* print only lines that differ */
    bool wide;            /* compute in f64 */
    int draw;             /* from 1: what is moved; 0: weights and inputs as they are */
    authors_entry *entry; /* the lines so far */
    int n_entries;
    int lines, bad;
} authors;

/* Compares every system of the folder, or the one named. lines, bad: lines in all, lines that
 * differ. PL_ERR_ARG: the folder has no system that is known. */
pl_status authors_check(const char *dir, const char *only, bool quiet, int *lines,
                        int *bad) PL_MUST_USE;

/* The systems, one file each. */
void authors_fluxflow(authors *a);
void authors_wandistill(authors *a);
void authors_cloud(authors *a);
void authors_lgt(authors *a);
void authors_stablesr(authors *a);

/* ---- lines -------------------------------------------------------------------------------- */
/* note: text after the line, or NULL. */
void authors_line(authors *a, const char *what, double difference, double tolerance,
                  const char *note);
/* A comparison that could not be made. */
void authors_fail(authors *a, const char *what, const char *fmt, ...) PL_PRINTF(3, 4);
/* Adds a draw to a line of f64; now: the same line in this draw. */
void authors_drawn(authors_entry *precise, const authors_entry *now, bool inputs);
/* Whether a line agrees; precise: the same line in f64, NULL: there is none. */
bool authors_agree(const authors *a, const authors_entry *e, const authors_entry *precise);
/* Draws 2k - 1 and 2k move the weights in the same way; draw 2k moves the inputs, too. */
static inline bool authors_draw_moves_inputs(int draw)
{
    return draw > 0 && draw % 2 == 0;
}
/* A scalar. */
void authors_term(authors *a, const char *what, double got, double want, double tolerance);

/* ---- about.json --------------------------------------------------------------------------- */
/* The value at a path of keys between dots; NULL: there is none. */
json_t *authors_at(const authors *a, const char *path);
/* The error of the authors' f32 that float64.tensors or float64.scalars states for a line: for its
 * whole name, for the part before the first slash or space, or for its last word; 0: none. */
double authors_stated(const authors *a, const char *what);
/* A number or a whole number; a missing one is a line that differs. */
double authors_number(authors *a, const char *path);
int64_t authors_int(authors *a, const char *path);
/* A text; a missing one is a line that differs, and "". */
const char *authors_text(authors *a, const char *path);
/* Whether float64.rounding_only names the gradient KIND/NAME, or NAME for all kinds; kind NULL: a
 * gradient of any kind. A kind "grad_x" may have a list of its own, float64.rounding_only_x. */
bool authors_is_rounding(const authors *a, const char *kind, const char *name);

/* ---- tensors ------------------------------------------------------------------------------ */
/* Files have channels first; some of our values have them last. */
typedef enum authors_layout { AUTHORS_PLAIN, AUTHORS_CHANNELS_FIRST } authors_layout;

/* Elements of a tensor of io, in our layout; NULL, without a line: there is none of that name. The
 * memory lives until the system is done. */
double *authors_tensor(authors *a, const char *name, authors_layout layout, pl_type *type);
/* Largest difference over the largest wanted value; infinite where an element is not finite. */
double authors_difference(const double *got, const double *want, int64_t n);
/* [L2 norm, s0, s1, s2]. */
void authors_sketch(const double *x, int64_t n, double out[4]);
/* 1 or -1: the sign of element i in sum k of a sketch. */
double authors_sign(uint64_t i, uint64_t k);
/* Compares with io tensor `name`: a line with that name. */
void authors_output(authors *a, const char *name, authors_layout layout, const pl_type *type,
                    const void *got);

/* ---- runs: authors_run.c ------------------------------------------------------------------ */
typedef struct authors_keys {
    authors *a;
    int n;
    const char *text[96];
} authors_keys;
void authors_key(authors_keys *k, const char *fmt, ...) PL_PRINTF(2, 3);

/* Opens, builds and starts a run whose draws are inputs and whose gradients are outputs; weights
 * are loaded as the keys say. f64: computes in f64, for recipes that build on their context's type:
 * changes of weights were computed in f64, and in f32 a step loses digits to the weight that it is
 * added to. NULL: a line says why. */
pl_run *authors_run_open(authors *a, const char *config, const authors_keys *k, bool f64);

/* The authors' weight files to slots and back: exports them in the form "authors" from a run of
 * this configuration. `theirs`: the files or the folder to read, as init_from takes them; `out`:
 * name of the file that the form writes, NULL: the form writes a folder. Every tensor must come
 * back with its name, shape and, in their number format, its bytes, and no other, in their order
 * unless the file is one of authors_merge; tables that export computes may differ in rounding. One
 * line. */
void authors_round_trip(authors *a, const char *config, const authors_keys *k, const char *theirs,
                        const char *out);

/* Writes one checkpoint of the tensors below entry `under` of several (`files`: paths separated by
 * commas). keep: whether tensor `name` of file i belongs to it; may change the name. */
typedef bool (*authors_keep)(int file, char *name, size_t cap);
pl_status authors_merge(const char *files, const char *under, authors_keep keep,
                        const char *path) PL_MUST_USE;

/* A program of the step by its name; NULL: the training program. */
typedef struct authors_program {
    authors *a;
    pl_run *run;
    const char *name;
} authors_program;
/* Fills an input from a tensor of io. */
void authors_set(const authors_program *p, const char *input, const char *tensor,
                 authors_layout layout);
/* Fills an input from numbers in our layout. */
void authors_set_values(const authors_program *p, const char *input, const double *x, int64_t n);
/* Runs the program once, updates included. */
bool authors_run_program(const authors_program *p);
/* A scalar output of the last run; NaN: there is none. */
double authors_scalar(const authors_program *p, const char *output);

/* Writes the name that io has for a slot, after KIND/; false: io has nothing of the slot. */
typedef bool (*authors_namer)(const pl_run *run, const char *slot, char name[512]);
/* Compares the gradients of all slots of the pattern that the program's last run has, with
 * KIND/NAME or sketch/KIND/NAME. A difference counts beyond the rounding of f32 in the largest of
 * these gradients, which a sum that cancels keeps. One line. */
void authors_gradients(const authors_program *p, const char *kind, const char *slots,
                       authors_namer namer, double tolerance);
/* Writes a tensor of io into a slot. */
void authors_put(authors *a, pl_run *run, const char *slot, const char *tensor);
/* Values of every slot, in the layout of files; by slot. */
double **authors_snapshot(authors *a, pl_run *run);
/* Compares what changed since `before` with KIND/NAME or sketch/KIND/NAME: norms within
 * AUTHORS_DELTA beyond the rounding of the weights, and the direction. Weights whose gradient is
 * rounding (float64.rounding_only) are left out. ema: the averages of the slots instead, which are
 * the slots themselves where nothing updates them. One line. */
void authors_deltas(authors *a, pl_run *run, double *const *before, const char *kind,
                    const char *slots, authors_namer namer, bool ema);
/* Compares the values of slots with KIND/NAME. One line. */
void authors_state(authors *a, pl_run *run, const char *kind, const char *slots,
                   authors_namer namer, double tolerance);

/* For authors_net.c: many tensors in one line. Slots that follow each other under one name are
 * joined: the authors keep them in one tensor, in the order of its rows. */
typedef struct authors_summary {
    authors *a;
    const char *kind, *slots;
    double worst, slack; /* slack: absolute difference that does not count */
    int n;
    char name[512]; /* of the worst */
    char now[512];  /* tensor that is being joined; "": none */
    double *x;      /* its elements */
    int64_t n_x;
    bool change;     /* of weights, not a gradient */
    double rounding; /* norm of what rounding may add to a change */
} authors_summary;
/* Raises the slack to the rounding of f32 in the gradient that io has under this name. */
void authors_allow_rounding(authors_summary *s, const char *name);
/* Compares a gradient that is laid out like the slot, under the name that io has for it. */
void authors_gradient(authors_summary *s, const pl_slot *slot, const char *name,
                      const pl_type *type, const void *got);
void authors_print(authors_summary *s, double tolerance);

/* ---- networks alone: authors_net.c -------------------------------------------------------------
 * A graph over weights of a run, of inputs and outputs that io has:
 *
 *     authors_net *net = authors_net_new(a, run, false);
 *     pl_val x = authors_net_in(net, "in/image", AUTHORS_CHANNELS_FIRST);
 *     authors_net_out(net, "out/y", AUTHORS_CHANNELS_FIRST, network(authors_net_nn(net), x));
 *     authors_net_run(net);                          compares, prints, frees
 */
typedef struct authors_net authors_net;
authors_net *authors_net_new(authors *a, pl_run *run, bool training);
pl_nn *authors_net_nn(authors_net *net);
pl_val authors_net_in(authors_net *net, const char *tensor, authors_layout layout);
/* Fills an input that the network makes itself. */
void authors_net_feed(authors_net *net, const char *input, const char *tensor,
                      authors_layout layout);
/* A builder for recipes' functions that want one; in training its draws are inputs. Lives as long
 * as net. */
pl_builder *authors_net_builder(authors_net *net);
void authors_net_out(authors_net *net, const char *tensor, authors_layout layout, pl_val v);
/* Compares a scalar with a number of about.json. */
void authors_net_term(authors_net *net, const char *what, pl_val v, double want, double tolerance);
/* Compares the gradients of loss, as authors_gradients does. */
void authors_net_gradients(authors_net *net, pl_val loss, const char *kind, const char *slots,
                           authors_namer namer, double tolerance);
void authors_net_run(authors_net *net);

#endif
