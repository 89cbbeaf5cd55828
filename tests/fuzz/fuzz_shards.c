/* fuzz_shards.c - any tar beside any index, and any captions beside images: refused, or a list
 * whose ranges lie inside the file. The input is the tar; its first byte says where the index
 * begins. */
#include "data/sets/items.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool put(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool ok = fd >= 0 && write(fd, bytes, n) == (ssize_t)n;
    if (fd >= 0) close(fd);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char dir[64], tar[96], index[104], meta[96], image[96];
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/tmp/pl_fuzz_shards_%d", (int)getpid());
        mkdir(dir, 0700);
        snprintf(tar, sizeof tar, "%s/a.tar", dir);
        snprintf(index, sizeof index, "%s.idx", tar);
        snprintf(meta, sizeof meta, "%s/metadata.jsonl", dir);
        snprintf(image, sizeof image, "%s/x.jpg", dir);
    }
    if (size < 1) return 0;
    bool folder = data[0] & 1;
    unlink(index);
    unlink(tar);
    unlink(meta);
    if (folder) {
        put(image, "x", 1);
        put(meta, data + 1, size - 1);
    } else {
        /* The head of the index is right, so that its lines are read. */
        struct stat st;
        char head[128];
        put(tar, data + 1, size - 1);
        if (data[0] & 2 && stat(tar, &st) == 0) {
            int n =
                snprintf(head, sizeof head, "plimsoll tar index 1 %lld %lld.%09ld\n",
                         (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
            char *text = malloc((size_t)n + size);
            for (int i = 0; i < n; i++) text[i] = head[i];
            for (size_t i = 1; i < size; i++) text[(size_t)n + i - 1] = (char)data[i];
            put(index, text, (size_t)n + size - 1);
            free(text);
        }
    }
    pl_items_opts o = {.path = folder ? dir : tar, .eval_share = 0.5};
    pl_items *s = NULL;
    if (pl_items_open(&o, &s) != PL_OK) return 0;
    for (int64_t i = 0; i < s->n; i++) {
        const pl_item *k = &s->item[i];
        if (!k->name || k->label < 0) abort();
        if (k->shard >= 0 && (k->offset > size || (uint64_t)k->bytes > size - k->offset)) abort();
    }
    pl_items_close(s);
    return 0;
}
