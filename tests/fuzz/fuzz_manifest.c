/* fuzz_manifest.c - any bytes are refused as a checkpoint's manifest, or name files that cannot
 * leave the checkpoint's folder. Checksums are passed over, so that the members are reached. */
#include "train/files/checkpoint.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_FILES = sizeof((pl_checkpoint *)0)->file / sizeof *((pl_checkpoint *)0)->file };

static bool ends(const char *text, size_t cap)
{
    return memchr(text, 0, cap) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_checkpoint c;
    (void)!pl_checkpoint_parse((const char *)data, size, "fuzz", &c);
    memset(&c, 0, sizeof c);
    if (pl__manifest_members((const char *)data, size, "fuzz", &c) != PL_OK) return 0;
    if (c.step < 0 || c.n_files < 1 || c.n_files > MOST_FILES || c.n_notes > PL_MAX_NOTES) abort();
    if (!ends(c.recipe, sizeof c.recipe) || !ends(c.written, sizeof c.written)) abort();
    for (int i = 0; i < c.n_files; i++)
        if (!ends(c.file[i].name, sizeof c.file[i].name) || strchr(c.file[i].name, '/')) abort();
    return 0;
}
