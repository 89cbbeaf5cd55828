/* fuzz_index.c - any index beside any weight files is refused, or is a set whose tensors can all be
 * read. The first two bytes: where the index ends and a.safetensors begins, and where that ends and
 * b.safetensors begins, in parts of 256 of the rest. */
#include "io/st_set.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
    close(fd);
}

static void read_all(const pl_st_set *s)
{
    static char some[64];
    for (int f = 0; f < pl_st_set_files(s); f++) {
        const pl_st_reader *r = pl_st_set_file(s, f);
        for (int i = 0; i < pl_st_count(r); i++) {
            const pl_st_tensor *t = pl_st_at(r, i);
            int at = -1;
            if (pl_st_set_find(s, t->name, &at) != t || at != f) abort();
            size_t n = t->end - t->begin < sizeof some ? (size_t)(t->end - t->begin) : 0;
            if (n && pl_st_read_range(r, t, 0, n, some) != PL_OK && t->dtype != PL_ST_BOOL) abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[48], index[96];
    if (size < 2) return 0;
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/dev/shm/pl_fuzz_%d", (int)getpid());
        if (mkdir(folder, 0700) != 0) abort();
        snprintf(index, sizeof index, "%s/model.safetensors.index.json", folder);
    }
    size_t rest = size - 2, first = rest * data[0] / 256,
           second = first + (rest - first) * data[1] / 256;
    put(folder, "model.safetensors.index.json", data + 2, first);
    put(folder, "a.safetensors", data + 2 + first, second - first);
    put(folder, "b.safetensors", data + 2 + second, rest - second);
    const char *const paths[] = {index, folder};
    for (int i = 0; i < 2; i++) {
        pl_st_set *s = NULL;
        if (pl_st_set_open(paths[i], &s) != PL_OK) continue;
        read_all(s);
        pl_st_set_close(s);
    }
    return 0;
}
