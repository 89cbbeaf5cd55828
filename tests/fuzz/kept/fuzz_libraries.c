/* fuzz_libraries.c - any lines with right checksums as libraries.txt of the cache, the kept memory
 * of compiled kernels: what is taken from the file is near what was measured, and is then kept. */
#include "base/cache_dir.h"
#include "train/build/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64], path[96];

static void end(void)
{
    unlink(path);
    rmdir(folder);
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "%s/fuzz_libraries_XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder) || setenv("PLIMSOLL_CACHE", folder, 1) != 0) abort();
    snprintf(path, sizeof path, "%s/libraries.txt", folder);
    atexit(end);
}

/* The lines of the input, each with its checksum; after a '!', the bytes as they are. */
static void write_lines(const uint8_t *data, size_t size)
{
    char line[256];
    FILE *f = fopen(path, "wb");
    if (size && data[0] == '!') {
        if (!f || fwrite(data + 1, 1, size - 1, f) != size - 1) abort();
        size = 0;
    }
    for (size_t at = 0; f && at < size; at++) {
        size_t n = 0;
        for (; at < size && data[at] != '\n' && n + 24 < sizeof line; at++)
            if (data[at]) line[n++] = (char)data[at];
        line[n] = 0;
        if (pl_cache_seal(line, sizeof line)) fprintf(f, "%s\n", line);
    }
    if (!f || fclose(f) != 0 || chmod(path, 0600) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t key = 1, measured = 9u << 20, step = 1u << 20;
    if (!folder[0]) begin();
    write_lines(data, size);
    uint64_t bytes = pl__library_bytes(key, measured);
    if (bytes + step < measured || bytes >= measured + 2 * step || bytes % step) abort();
    if (pl__library_bytes(key, measured) != bytes) abort();
    return 0;
}
