/* fuzz_hdf5.c - any bytes are refused as an HDF5 file, or give rows of the shape that was asked
 * for.
 *
 * What is held to account is this program's own code around libhdf5, here in one process with the
 * library. libhdf5 itself crashes on some of these files; a run survives that, because a process
 * apart reads them (sandbox.h). So a crash counts only where code of ours is at fault: the file
 * hdf5.library names the library whose crashes are sorted out (go, run.sh). */
#include "data/sets/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char dir[64], path[96];
    pl_hdf5_trust();
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/dev/shm/pl_fuzz_hdf5_%d", (int)getpid());
        snprintf(path, sizeof path, "%s.h5", dir);
    }
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    if (fwrite(data, 1, size, f) != size) abort();
    fclose(f);
    const char *paths[1] = {path};
    pl_type sample = pl_type_make(PL_F32, 1, (int64_t[]){3});
    pl_array *a = NULL;
    if (pl_array_open(paths, 1, "x", "x", NULL, &sample, &a) == PL_OK) {
        float *row = malloc(3 * sizeof *row); /* exactly: the sanitizer sees what is past it */
        int64_t n = pl_array_rows(a);
        if (n < 1) abort();
        for (int64_t i = 0; i < n && i < 4; i++)
            if (pl_array_read(a, i, row) != PL_OK) break;
        if (pl_array_read(a, n - 1, row) != PL_OK) unlink(path);
        free(row);
        pl_array_close(a);
    }
    unlink(path);
    return 0;
}
