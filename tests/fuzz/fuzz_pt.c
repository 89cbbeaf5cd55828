/* fuzz_pt.c - any bytes are refused, or are tensors whose numbers all lie inside the file. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char some[256];
    pl_st_reader *r;
    if (pl_st_open_memory(data, size, "fuzz", &r) != PL_OK) return 0;
    for (int i = 0; i < pl_st_count(r); i++) {
        const pl_st_tensor *t = pl_st_at(r, i);
        uint64_t bytes = t->end - t->begin, elem = (uint64_t)pl_st_dtype_bits(t->dtype) / 8;
        if (pl_st_find(r, t->name) != t) abort();
        if (!elem) continue;
        uint64_t n = bytes < 64 ? bytes / elem * elem : 64;
        /* the first and the last elements; only a BOOL byte may be bad */
        pl_status rc = pl_st_read_range(r, t, 0, (size_t)n, some);
        if (rc == PL_OK) rc = pl_st_read_range(r, t, bytes - n, (size_t)n, some);
        if (rc != PL_OK && t->dtype != PL_ST_BOOL) abort();
    }
    for (int i = 0; i < pl_st_meta_count(r); i++) {
        const char *key, *value;
        pl_st_meta_at(r, i, &key, &value);
        if (!pl_st_meta_get(r, key) || strlen(value) > size + 32) abort();
    }
    pl_st_close(r);
    return 0;
}
