/* cli_run.h - runs the program under test (PL_BIN) through a shell, and kills it when it hangs.
 *
 * A program that hangs either sleeps or loops forever. A program that is slow on a busy machine
 * does neither, so no limit is on wall-clock time alone. A program is killed when it uses almost no
 * CPU time for long, or more CPU time than any test needs. A program that polls does neither; its
 * limit is one hour.
 */
#ifndef PL_TEST_CLI_RUN_H
#define PL_TEST_CLI_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct cli_result {
    int code;        /* exit code; 128 + signal when killed; 124 when it hung */
    const char *out; /* stdout and stderr, NUL-terminated; borrowed until the next run */
    const char *err;
    double seconds;
} cli_result;

/* Observes a program by repeated calls of cli_hangs; starts as {0}. `wall` and `used`: seconds
 * since the program started, and seconds of CPU time. */
typedef struct cli_watch {
    double wall, used; /* at the start of the current interval */
} cli_watch;
bool cli_hangs(cli_watch *w, double wall, double used, double limit_s);
/* CPU seconds that the processes of a group have used, including children that they waited for. */
double cli_used(pid_t group);

/* Absolute path of the program, or NULL (then the test skips). */
const char *cli_bin(void);
/* Path of the folder fake/ beside the program, with the libraries of tests/fake. Call it after
 * WANT_BIN. */
const char *cli_fakes(void);
/* Runs a shell command in which $P is the program; the folder is pl_test_dir(). fmt as printf. */
cli_result cli_run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Whether this system gives terminals (a chroot without /dev/pts does not). */
bool cli_has_terminals(void);
/* Starts a command on a terminal of its own and gathers what it shows; kill_after > 0 sends SIGINT
 * that many seconds after the first output that holds `wait_for`. */
cli_result cli_run_terminal(const char *command, const char *wait_for, double kill_after);
/* Starts it without a terminal, sends the signal once stderr holds wait_for. */
cli_result cli_run_signal(const char *command, const char *wait_for, int signal_number);
/* The whole file as text, "" if it is not there; borrowed until the next call. */
const char *cli_read(const char *path);
bool cli_write(const char *path, const char *text);

/* The n-th line of the text (from 0) that is a JSON object with this "event"; NULL: none. The
 * caller releases it. */
json_t *cli_event(const char *text, const char *event, int n);
/* A whole-number member of a JSON object; 0 if it has none. */
int64_t cli_member(const json_t *j, const char *name);
/* Returns the smallest budget that a refusal names; -1: none. */
int64_t cli_told_minimum(const char *err);

/* Whether two files of pl_test_dir() have the same bytes. */
bool cli_same(const char *a, const char *b);
/* NULL when the log of the run of that name has every step from 1 to n once, in order, each line
 * whole; else what is wrong. */
const char *cli_bad_log(const char *run, int64_t n);

/* A Python that has this module: PL_ORACLE, /opt/oracle/bin/python3 or python3; NULL: none has. */
const char *cli_python(const char *module);
#define WANT_PYTHON(python, module)                                                                \
 const char *python = cli_python(module);                                                          \
 if (!python) SKIP("no Python with " module "; PL_ORACLE names one")

#define WANT_BIN()                                                                                 \
 if (!cli_bin()) SKIP("PL_BIN is not built")
/* The exit code and a part of stderr. */
#define CHECK_RUN(r, want, text)                                                                   \
 do {                                                                                              \
  cli_result r_ = (r);                                                                             \
  CHECK_MSG(r_.code == (want) && strstr(r_.err, (text)),                                           \
            "exit code %d, wanted %d; stderr wants \"%s\":\n%s", r_.code, (want), (text), r_.err); \
 } while (0)

/* The smallest network of the cloud recipe: milliseconds a step. */
#define CLI_SMALL                                                                                  \
 "cloud/tiny batch=2 frames=1 height=8 width=8 'model.channels=[2, 2, 2]' "                        \
 "'model.dense=[4, 4]' model.film_hidden=4 eval.batches=1 data.samples=32 "                        \
 "data.eval_samples=8 "

/* The losses in the log of a run below the test's folder, one after the other, as text. */
void cli_losses(const char *run, char *to, size_t cap);

#endif
