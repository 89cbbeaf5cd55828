/* fuzz_pt.c - any bytes are refused, or are a latent whose numbers all lie inside the file. */
#include "recipes/lgt/lgt.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { SIDE = 4 };
    static int fd = -1;
    static char path[40];
    float out[4 * SIDE * SIDE];
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    (void)!lgt_pt_read(path, SIDE, out);
    return 0;
}
