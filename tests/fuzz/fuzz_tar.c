/* fuzz_tar.c - any bytes are refused or are members that lie inside them. */
#include "data/sets/tar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pl_tar_member m;
    pl_tar t;
    bool more = true;
    pl_tar_open_memory(data, size, &t);
    for (uint64_t before = 0; pl_tar_next(&t, &m, &more) == PL_OK && more; before = t.at) {
        if (t.at <= before || m.offset > size || m.bytes > size - m.offset) abort();
        if (memchr(m.name, 0, sizeof m.name) == NULL) abort();
    }
    return 0;
}
