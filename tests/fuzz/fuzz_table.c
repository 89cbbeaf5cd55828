/* fuzz_table.c - any CSV file is refused, or every field of it can be read. */
#include "plimsoll_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[96];
    pl_table *t;
    double x;
    snprintf(path, sizeof path, "/dev/shm/pl_fuzz_table_%d", (int)getpid());
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size) abort();
    fclose(f);
    if (pl_table_open(path, &t) == PL_OK) {
        for (int c = 0; c < pl_table_columns(t); c++) {
            if (pl_table_find(t, pl_table_name(t, c)) != c) abort();
            for (int64_t r = 0; r < pl_table_rows(t); r++) {
                if (strlen(pl_table_text(t, r, c)) > size) abort();
                pl_table_number(t, r, c, &x);
            }
        }
        pl_table_close(t);
    }
    unlink(path);
    return 0;
}
