/* library_bytes.c - memory of kernels that libraries compile, the same in every process.
 *
 * The memory of a process differs by some kilobytes from run to run, so a measurement near the edge
 * of a step is now in this step and now in the next, and so would be the plan. The first process
 * stores its measurement in a file of the cache, under the build of the kernels; later processes
 * use the stored number while it matches their own measurement. Without a cache every process has
 * its own measurement.
 *
 * The file has lines of "key bytes", each with its checksum (pl_cache_seal). Lines are appended
 * whole, and of two with the same key the later one counts, so no lock is needed. A file that has
 * grown to MAX_FILE is emptied.
 */
#include "base/cache_dir.h"
#include "base/sys.h"
#include "train/build/build.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 15, MAX_LINE = 80 };

static const uint64_t step = (uint64_t)1 << 20;

/* Returns the bytes of the last line with this key; 0: none. */
static uint64_t find(const char *text, uint64_t key)
{
    uint64_t found = 0;
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        uint64_t k, bytes;
        size_t n = pl_cache_sealed(at, (size_t)(end - at));
        if (n && n < MAX_LINE && sscanf(at, "%16" SCNx64 " %" SCNu64, &k, &bytes) == 2 && k == key)
            found = bytes;
    }
    return found;
}

static uint64_t read_kept(const char *path, uint64_t key, size_t *size)
{
    static char text[MAX_FILE + 1]; /* programs are built by one thread */
    *size = 0;
    int fd = pl_sys_open(path, O_RDONLY, 0);
    if (fd < 0) return 0;
    ssize_t n = pread(fd, text, MAX_FILE, 0);
    close(fd);
    *size = n > 0 ? (size_t)n : 0;
    text[*size] = 0;
    return find(text, key);
}

static void keep(const char *path, uint64_t key, uint64_t bytes, size_t size)
{
    char line[MAX_LINE];
    /* a line before it may have been cut off */
    line[0] = '\n';
    snprintf(line + 1, sizeof line - 1, "%016" PRIx64 " %" PRIu64, key, bytes);
    if (!pl_cache_seal(line + 1, sizeof line - 2) || pl_cache_make(path) != PL_OK) return;
    memcpy(line + strlen(line), "\n", 2);
    int more = size + MAX_LINE > MAX_FILE ? O_TRUNC : 0;
    int fd = pl_sys_open(path, O_WRONLY | O_CREAT | O_APPEND | more, 0600);
    if (fd < 0) return;
    (void)!write(fd, line, strlen(line)); /* a line that is cut off is none */
    close(fd);
}

/* Returns whether the stored number may replace the measured number: more than it by less than two
 * steps, or less by what the margin covers. */
static bool agrees(uint64_t kept, uint64_t measured)
{
    return kept + step / 4 >= measured && kept < measured + 2 * step;
}

uint64_t pl__library_bytes(uint64_t key, uint64_t measured)
{
    char path[4096];
    size_t size;
    uint64_t rounded = (measured + step - 1) / step * step;
    if (!pl_cache_path("libraries.txt", path, sizeof path) || !pl_cache_trusts(path))
        return rounded;
    uint64_t kept = read_kept(path, key, &size);
    if (kept && kept % step == 0 && agrees(kept, measured)) return kept;
    keep(path, key, rounded, size);
    return rounded;
}
