/* pl_profile.c - where the time and the memory of a training step go.
 *
 *     pl_profile CONFIG [STEPS] [key=value ...]
 *
 * Trains STEPS steps (5) after two to warm up; prints the plan's peak with who is alive there, the
 * most expensive steps of the program, and sums by kind of op and kernel.
 */
#include "plimsoll_train.h"
#include "plimsoll_unstable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show(char *text)
{
    puts(text);
    pl_text_free(text);
}

static pl_status profile(pl_run *r, int steps)
{
    char *text = NULL;
    pl_step_info info;
    pl_status rc = pl_run_build(r);
    if (rc == PL_OK) rc = pl_run_start(r);
    if (rc == PL_OK) rc = pl_program_report(pl_run_train_program(r), 20, &text);
    if (rc == PL_OK) show(text);
    for (int i = 0; rc == PL_OK && i < 2; i++) rc = pl_run_step(r, &info);
    if (rc == PL_OK) rc = pl_session_profile(pl_run_session(r), true);
    for (int i = 0; rc == PL_OK && i < steps; i++) rc = pl_run_step(r, &info);
    if (rc != PL_OK) return rc;
    rc = pl_session_profile_text(pl_run_session(r), pl_run_train_program(r), 40, &text);
    if (rc == PL_OK) show(text);
    return rc;
}

int main(int argc, char **argv)
{
    int first = 2, steps = 5;
    if (argc < 2) {
        fprintf(stderr, "usage: pl_profile CONFIG [STEPS] [key=value ...]\n");
        return 2;
    }
    if (argc > 2 && !strchr(argv[2], '=')) {
        steps = atoi(argv[2]);
        first = 3;
    }
    pl_run *r = NULL;
    int n = argc > first ? argc - first : 0;
    pl_status rc = pl_run_open(argv[1], (const char *const *)argv + first, n, &r);
    if (rc == PL_OK) rc = profile(r, steps);
    if (rc != PL_OK) fprintf(stderr, "pl_profile: %s\n", pl_error_text());
    pl_run_free(r);
    return pl_status_exit_code(rc);
}
