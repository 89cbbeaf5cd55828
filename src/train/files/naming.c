/* naming.c - see naming.h.
 *
 * A naming asks its function first and its rules next. Both translate from our names to theirs
 * only: import and export walk the slots and look up the published tensor of each.
 */
#include "train/files/naming.h"

#include "train/files/run_files.h"

#include <stdio.h>
#include <string.h>

enum { MAX_CAPTURES = 8 };

typedef struct span {
    const char *at;
    size_t n;
} span;

/* Whether name matches the pattern; the texts that its stars match go to cap. */
static bool fits(const char *pattern, const char *name, span cap[MAX_CAPTURES], int *n)
{
    *n = 0;
    while (*pattern) {
        if (*pattern != '*') {
            if (*pattern++ != *name++) return false;
            continue;
        }
        size_t len = pattern[1] == '*' ? strlen(name) : strcspn(name, ".");
        if (*n == MAX_CAPTURES || !len) return false;
        cap[(*n)++] = (span){name, len};
        pattern += pattern[1] == '*' ? 2 : 1;
        name += len;
    }
    return !*name;
}

/* Writes the pattern with its stars replaced in order. */
static bool replace(const char *pattern, const span *cap, int n, char out[PL_TENSOR_NAME])
{
    size_t at = 0;
    int k = 0;
    while (*pattern && at + 1 < PL_TENSOR_NAME) {
        if (*pattern != '*') {
            out[at++] = *pattern++;
            continue;
        }
        if (k == n || at + cap[k].n >= PL_TENSOR_NAME) return false;
        memcpy(out + at, cap[k].at, cap[k].n);
        at += cap[k++].n;
        pattern += pattern[1] == '*' ? 2 : 1;
    }
    out[at] = 0;
    return !*pattern && k == n;
}

static bool by_rules(const pl_naming *naming, const char *ours, char out[PL_TENSOR_NAME])
{
    if (!naming->rules && !naming->map)
        return snprintf(out, PL_TENSOR_NAME, "%s", ours) < PL_TENSOR_NAME;
    for (const pl_rename *r = naming->rules; r && r->theirs; r++) {
        span cap[MAX_CAPTURES];
        int n;
        if (fits(r->ours, ours, cap, &n)) return replace(r->theirs, cap, n, out);
    }
    return false;
}

static bool put_prefix(const char *prefix, char name[PL_TENSOR_NAME])
{
    size_t n = prefix ? strlen(prefix) : 0, length = strlen(name);
    if (!n || !length) return true;
    if (n + length >= PL_TENSOR_NAME) return false;
    memmove(name + n, name, length + 1);
    memcpy(name, prefix, n);
    return true;
}

bool pl__naming_find(const pl_naming *naming, const pl_config *c, const pl_slot *slot,
                     pl_published *to)
{
    pl_type type = pl__slot_file_type(slot);
    memset(to, 0, sizeof *to);
    bool mapped = naming->map && naming->map(c, slot->name, &type, to);
    if (!mapped) memset(to, 0, sizeof *to);
    return (mapped || by_rules(naming, slot->name, to->name)) &&
           put_prefix(naming->prefix, to->name);
}

/* Whether the shapes are equal except for dimensions of 1. */
static bool same_shape(const pl_type *a, const pl_type *b)
{
    int i = 0, k = 0;
    for (;;) {
        while (i < a->rank && a->dim[i] == 1) i++;
        while (k < b->rank && b->dim[k] == 1) k++;
        if (i == a->rank || k == b->rank) return i == a->rank && k == b->rank;
        if (a->dim[i++] != b->dim[k++]) return false;
    }
}

bool pl__naming_shape(const pl_published *to, const pl_type *file, const pl_type *slot)
{
    if (!to->rows) return same_shape(file, slot);
    if (!file->rank || !slot->rank || file->dim[0] != to->rows || to->row < 0 ||
        to->row > to->rows - slot->dim[0])
        return false;
    pl_type cut = *file;
    cut.dim[0] = slot->dim[0];
    return same_shape(&cut, slot);
}
