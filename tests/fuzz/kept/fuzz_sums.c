/* fuzz_sums.c - any bytes as SUMS.xxh64 of a folder with one file: a line is refused with a reason,
 * or its checksum is the one of the file. A line of the file itself is always found right. */
#include "base/sys.h"
#include "train/files/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64], file[96], sums[96];
static pl_str right = PL_STR_INIT; /* the line of the file */

static void end(void)
{
    unlink(file);
    unlink(sums);
    rmdir(folder);
    pl_str_release(&right);
}

static void put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) abort();
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "%s/fuzz_sums_XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) abort();
    snprintf(file, sizeof file, "%s/a", folder);
    snprintf(sums, sizeof sums, "%s/" PL_SUMS, folder);
    put(file, "bytes", 5);
    if (pl__sums_add(&right, folder, "a") != PL_OK) abort();
    atexit(end);
}

static void count(void *ctx, const char *why)
{
    if (!why[0]) abort();
    *(int *)ctx += 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int files, bad = 0, more, worse = 0;
    if (!folder[0]) begin();
    put(sums, data, size);
    pl_status rc = pl_sums_verify(folder, count, &bad, &files);
    if (files < 0 || bad > files || (rc == PL_OK) != (bad == 0)) abort();
    if (memchr(data, 0, size)) return 0; /* the text ends there */

    pl_str longer = PL_STR_INIT;
    pl_str_addf(&longer, "%.*s\n%s", (int)size, (const char *)data, right.text);
    put(sums, longer.text, longer.len);
    rc = pl_sums_verify(folder, count, &worse, &more);
    if (more != files + 1 || worse != bad || (rc == PL_OK) != (worse == 0)) abort();
    pl_str_release(&longer);
    return 0;
}
