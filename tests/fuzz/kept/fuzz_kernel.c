/* fuzz_kernel.c - any bytes as files of the cache: a compiled kernel behind its magic number and
 * key, and, after a '!', lines of rates of links with right checksums. A kernel is returned only if
 * it was written with pl_code_cache_write; rates are those of a link. */
/* also: src/cuda/codegen/codegen_cache.c */
#include "base/cache_dir.h"
#include "base/sys.h"
#include "cuda/codegen/codegen_cache.h"
#include "rt/levels/link_rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64], kernel[160], links[96];
static pl_code_key key;

static void end(void)
{
    unlink(kernel);
    unlink(links);
    rmdir(folder);
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "%s/fuzz_kernel_XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder) || setenv("PLIMSOLL_CACHE", folder, 1) != 0 ||
        setenv("PLIMSOLL_SECRET",
               "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 1) != 0)
        abort();
    key = pl_code_key_of("kernel", 6, "fuzz");
    snprintf(kernel, sizeof kernel, "%s/kernel-%016llx%016llx", folder, (unsigned long long)key.hi,
             (unsigned long long)key.lo);
    snprintf(links, sizeof links, "%s/links.txt", folder);
    atexit(end);
}

static void put(const char *path, const void *head, size_t m, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(head, 1, m, f) != m || fwrite(data, 1, n, f) != n || fclose(f) != 0) abort();
    if (chmod(path, 0600) != 0) abort();
}

static void check_links(const uint8_t *data, size_t size)
{
    char line[1024];
    pl_link_rates r;
    FILE *f = fopen(links, "wb");
    for (size_t at = 0; f && at < size; at++) {
        size_t n = 0;
        for (; at < size && data[at] != '\n' && n + 16 < sizeof line; at++)
            if (data[at]) line[n++] = (char)data[at];
        line[n] = 0;
        if (pl_cache_seal(line, sizeof line)) fprintf(f, "%s\n", line);
    }
    if (!f || fclose(f) != 0 || chmod(links, 0600) != 0) abort();
    if (pl_link_rates_find("card", &r) && !(r.up > 1e3 && r.down > 1e3)) abort();
    if (pl_link_rates_put("card", &(pl_link_rates){5e9, 6e9}) != PL_OK) abort();
    if (!pl_link_rates_find("card", &r) || r.up != 5e9 || r.down != 6e9) abort();
}

/* Whether the file of a kernel that was taken is the file that pl_code_cache_write makes of the
 * kernel: a fuzzer sees what hashes are compared with, and so finds the right one at times. */
static bool is_written(const void *code, size_t n, const uint8_t *data, size_t size)
{
    char head[24], *file;
    size_t bytes;
    pl_code_cache_write(folder, key, code, n);
    if (pl_sys_read_file(kernel, 1 << 24, &file, &bytes) != PL_OK) abort();
    bool same = bytes == sizeof head + size && memcmp(file + sizeof head, data, size) == 0;
    pl_sys_free(file);
    return same;
}

static void check_kernel(const uint8_t *data, size_t size)
{
    char head[24] = "PLKERN2";
    size_t n = 0;
    memcpy(head + 8, &key, sizeof key);
    put(kernel, head, sizeof head, data, size);
    void *taken = pl_code_cache_read(folder, key, &n);
    if (taken && !is_written(taken, n, data, size)) abort();
    pl_sys_free(taken);
    if (size == 0) return;
    pl_code_cache_write(folder, key, data, size);
    void *back = pl_code_cache_read(folder, key, &n);
    if (!back || n != size || memcmp(back, data, n) != 0) abort();
    pl_sys_free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!folder[0]) begin();
    if (size && data[0] == '!')
        check_links(data + 1, size - 1);
    else
        check_kernel(data, size);
    return 0;
}
