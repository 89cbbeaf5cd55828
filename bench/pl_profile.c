/* pl_profile.c - where the time and the memory of a training step go.
 *
 *     pl_profile CONFIG [STEPS] [key=value ...]
 *
 * Trains STEPS steps (default 5) after two warm-up steps. For every program of a step it prints the
 * peak of the plan with the buffers alive there, the most expensive kernels, and sums by kind of op
 * and kernel; a program that did not run in these steps has no times.
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

/* The texts that `text_of` makes of the programs of a step, each under its name. */
static pl_status show_programs(pl_run *r,
                               pl_status (*text_of)(pl_run *r, const pl_program *p, char **text))
{
    pl_status rc = PL_OK;
    for (int i = 0; rc == PL_OK && i < pl_run_step_program_count(r); i++) {
        pl_run_step_program t = pl_run_step_program_at(r, i);
        char *text = NULL;
        rc = text_of(r, t.run, &text);
        if (rc == PL_OK && pl_run_step_program_count(r) > 1)
            printf("== %s, %g times a step\n", t.name, t.share);
        if (rc == PL_OK) show(text);
    }
    return rc;
}

static pl_status planned(pl_run *r, const pl_program *p, char **text)
{
    (void)r;
    return pl_program_report(p, 20, text);
}

static pl_status measured(pl_run *r, const pl_program *p, char **text)
{
    return pl_session_profile_text(pl_run_session(r), p, 40, text);
}

static pl_status profile(pl_run *r, int steps)
{
    pl_step_info info;
    pl_status rc = pl_run_build(r);
    if (rc == PL_OK) rc = pl_run_start(r);
    if (rc == PL_OK) rc = show_programs(r, planned);
    for (int i = 0; rc == PL_OK && i < 2; i++) rc = pl_run_step(r, &info);
    if (rc == PL_OK) rc = pl_session_profile(pl_run_session(r), true);
    for (int i = 0; rc == PL_OK && i < steps; i++) rc = pl_run_step(r, &info);
    return rc == PL_OK ? show_programs(r, measured) : rc;
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
