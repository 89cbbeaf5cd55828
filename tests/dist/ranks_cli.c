/* ranks_cli.c - see ranks_cli.h. */
#include "tests/dist/ranks_cli.h"

#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *ranks_why_not(void)
{
    static char path[4096];
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return "MPI's own memory is no business of sanitizers";
#endif
    setenv("D", pl_test_dir(), 1);
    if (!cli_bin()) return "PL_BIN is not set";
    snprintf(path, sizeof path, "%s", cli_bin());
    char *slash = strrchr(path, '/');
    if (slash) snprintf(slash, sizeof path - (size_t)(slash - path), "/libplimsoll_mpi.so");
    if (access(path, R_OK) != 0) return "the MPI plug-in is not built (no mpicc)";
    return cli_run("command -v mpirun").code != 0 ? "no mpirun on this machine" : NULL;
}

int ranks_losses(const char *json, double *out, int cap)
{
    int n = 0;
    for (const char *at = json; n < cap && (at = strstr(at, "\"event\":\"step\"")); at++) {
        const char *loss = strstr(at, "\"loss\":");
        if (loss) out[n++] = atof(loss + 7);
    }
    return n;
}

double ranks_number(const char *json, const char *key)
{
    char quoted[96];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(json, quoted);
    return at ? atof(at + strlen(quoted)) : -1;
}
