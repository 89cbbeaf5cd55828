/* fuzz_times.c - any bytes as lines of a table of measured times: the table is read as a whole or
 * is empty, and times that follow from it are finite and positive. The first line and the checksum
 * are added, so that the lines are reached. */
#include "plan/cost/cost_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_all(int fd, const void *data, size_t n)
{
    if (write(fd, data, n) != (ssize_t)n) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char head[] = "plimsoll times 1\nowner fuzz\n";
    char path[64], end[32];
    pl_time_table *t;
    int fd = memfd_create("times", 0);
    if (fd < 0) return 0;
    XXH64_state_t *sum = XXH64_createState();
    XXH64_reset(sum, 0);
    XXH64_update(sum, head, sizeof head - 1);
    XXH64_update(sum, data, size);
    XXH64_update(sum, "\n", 1);
    write_all(fd, head, sizeof head - 1);
    write_all(fd, data, size);
    write_all(fd, "\n", 1);
    snprintf(end, sizeof end, "end %016llx\n", (unsigned long long)XXH64_digest(sum));
    write_all(fd, end, strlen(end));
    XXH64_freeState(sum);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);

    if (pl_time_table_load(path, "fuzz", &t) == PL_OK) {
        pl_cost cost = {.flops = 1000, .bytes = 1000};
        double ns = 1;
        if (pl_time_table_like(t, "add.tile.f32", &cost, &ns) && !(ns > 0 && isfinite(ns))) abort();
        pl_time_table_free(t);
    }
    close(fd);
    return 0;
}
