/* fuzz_npy.c - any bytes are refused or are an array that can be read by rows. */
#include "base/sys.h"
#include "io/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_npy *a = NULL;
    if (pl_npy_open_memory(data, size, "fuzz", &a) != PL_OK) return 0;
    pl_type t = pl_npy_type(a);
    size_t bytes = (size_t)pl_npy_rows(a) * pl_npy_row_bytes(a);
    if (bytes > size || pl_type_bytes(&t) != bytes) abort();
    void *buf = pl_sys_alloc(bytes);
    if (buf && pl_npy_read(a, 0, pl_npy_rows(a), buf) != PL_OK && t.dtype != PL_BOOL) abort();
    pl_sys_free(buf);
    pl_npy_close(a);
    return 0;
}
