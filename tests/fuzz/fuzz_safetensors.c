/* fuzz_safetensors.c - any bytes are refused or give tensors that can all be read. */
#include "base/sys.h"
#include "io/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_st_reader *r = NULL;
    if (pl_st_open_memory(data, size, "fuzz", &r) != PL_OK) return 0;
    uint64_t total = 0;
    for (int i = 0; i < pl_st_count(r); i++) {
        const pl_st_tensor *t = pl_st_at(r, i);
        size_t bytes = (size_t)(t->end - t->begin);
        if (pl_st_find(r, t->name) != t) abort();
        if (t->loadable && pl_type_bytes(&t->type) != bytes) abort();
        void *buf = pl_sys_alloc(bytes);
        /* only a BOOL tensor may fail to read */
        if (buf && pl_st_read(r, t, buf, bytes) != PL_OK && t->dtype != PL_ST_BOOL) abort();
        pl_sys_free(buf);
        total += bytes;
    }
    for (int i = 0; i < pl_st_meta_count(r); i++) {
        const char *key, *value;
        pl_st_meta_at(r, i, &key, &value);
        if (pl_st_meta_get(r, key) != value) abort();
    }
    if (total > size) abort(); /* a small file never asks for more memory than it has bytes */
    pl_st_close(r);
    return 0;
}
