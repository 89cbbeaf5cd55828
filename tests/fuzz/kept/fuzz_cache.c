/* fuzz_cache.c - any bytes as cache.json of data.cache: the cache is used, or a reason is given.
 * One file of the cache is there, so that checksums are reached. */
#include "base/sys.h"
#include "plimsoll_train.h"
#include "train/data/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];
static pl_run *run;

static void put(const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) abort();
}

static void end(void)
{
    static const char *const names[] = {"cache.json", "config.yaml", "a", "cache.checked"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    pl_run_free(run);
}

/* A run whose data.cache is a new folder with the run's own configuration. */
static void begin(void)
{
    char cache[80], *text = NULL;
    snprintf(folder, sizeof folder, "%s/fuzz_cache_XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) abort();
    snprintf(cache, sizeof cache, "data.cache=%s", folder);
    const char *overrides[] = {cache};
    if (pl_run_open("stablesr/tiny", overrides, 1, &run) != PL_OK ||
        pl_config_print(run->config, &text) != PL_OK)
        abort();
    put("config.yaml", text, strlen(text));
    put("a", "abc", 3);
    pl_text_free(text);
    atexit(end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool fresh = true;
    char why[256];
    if (!run) begin();
    put("cache.json", data, size);
    pl_status rc = pl__cache_fresh(run, &fresh, why, sizeof why);
    if (rc == PL_OK && fresh == (why[0] != 0)) abort();
    if (rc != PL_OK && fresh) abort();
    return 0;
}
