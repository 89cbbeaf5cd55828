/* fault_lab.c - see fault_lab.h. */
#include "tests/fault/fault_lab.h"

#include "tests/lib/alloc_count.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The library lies beside the program, or where PL_FAULT says. */
const char *fault_library(void)
{
    static char path[4096];
    const char *named = getenv("PL_FAULT");
    snprintf(path, sizeof path, "%s%s", named ? named : cli_fakes(), named ? "" : "/fault.so");
    return path;
}

bool fault_here(void)
{
    return pl_test_allocs_counted() && access(fault_library(), R_OK) == 0;
}

cli_result fault_run(const fault *f, const char *args)
{
    return cli_run("cd %s && FAULT_KIND=%s FAULT_NAME=%s FAULT_AT=%ld FAULT_DO=%s FAULT_COUNT=%s/n "
                   "LD_PRELOAD=%s $P %s",
                   pl_test_dir(), f->kind, f->name, f->k, f->what, pl_test_dir(), fault_library(),
                   args);
}

cli_result fault_free(const char *args)
{
    return cli_run("cd %s && $P %s", pl_test_dir(), args);
}

long fault_count(const fault *f, const char *args)
{
    fault none = *f;
    none.k = 0;
    if (fault_run(&none, args).code != 0) return -1;
    return atol(cli_read(pl_test_path("n")));
}
