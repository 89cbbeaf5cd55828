/* test_program.c - which functions of the system a program replaces, and that the library replaces
 * none. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of symbols that `nm --defined-only` lists for the file beside the program and whose names
 * start with operator new or delete, GOMP_ or omp_; -1: nm does not run. */
static int count_replaced(const char *file)
{
    const char *program = getenv("PL_BIN"), *slash = program ? strrchr(program, '/') : NULL;
    char command[1024], line[1024];
    if (!slash) return -1;
    snprintf(command, sizeof command, "nm --defined-only '%.*s/%s' 2>&1", (int)(slash - program),
             program, file);
    FILE *f = popen(command, "r");
    int found = 0, lines = 0;
    while (f && fgets(line, sizeof line, f)) {
        const char *name = strrchr(line, ' ');
        lines++;
        if (!name) continue;
        name++;
        found += strncmp(name, "_Zn", 3) == 0 || strncmp(name, "_Zd", 3) == 0 ||
                 strncmp(name, "GOMP_", 5) == 0 || strncmp(name, "omp_", 4) == 0;
    }
    if (f) pclose(f);
    return lines > 1000 ? found : -1;
}

TEST(program_replaces_system_functions_and_the_library_none)
{
    int program = count_replaced("plimsoll"), library = count_replaced("libplimsoll.a");
    if (program < 0 || library < 0) SKIP("PL_BIN is not built, or there is no nm");
    CHECK_MSG(program >= 5, "the program replaces %d functions", program);
    CHECK_INT(library, 0);
}
