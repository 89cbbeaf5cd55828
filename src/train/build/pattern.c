/* pattern.c - patterns of parameter names in the configuration: each part must name something. */
#include "train/build/builder.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PART = 128 };

static bool names_one(const pl_store *s, const char *part)
{
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        if (slot->kind == PL_SLOT_PARAM && pl_nn_match(part, slot->name)) return true;
    }
    return false;
}

/* The letters of a part of a pattern without its stars and the dots around them: "bais" of
 * "*.bais". */
static const char *core_of(const char *part, char core[MAX_PART])
{
    size_t n = strlen(part);
    while (n && strchr("*?.", part[n - 1])) n--;
    while (n && strchr("*?.", *part)) part++, n--;
    snprintf(core, MAX_PART, "%.*s", (int)n, part);
    return core;
}

/* The component of a parameter's name, or the whole name, that is nearest to the text; "": none. */
static const char *nearest(const pl_store *s, const char *text, char best[MAX_PART])
{
    best[0] = 0;
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        if (slot->kind != PL_SLOT_PARAM) continue;
        char name[MAX_PART], *save = NULL;
        const char *words[3] = {best, slot->name};
        snprintf(name, sizeof name, "%s", slot->name);
        for (char *w = strtok_r(name, ".", &save);; w = strtok_r(NULL, ".", &save)) {
            words[2] = w ? w : slot->name;
            int k = pl_text_nearest(text, words, 3);
            if (k > 0) snprintf(best, MAX_PART, "%s", words[k]);
            if (!w) break;
        }
    }
    return best;
}

static bool check_part(pl_nn *m, const pl_store *s, const char *key, const char *part)
{
    char core[MAX_PART], best[MAX_PART];
    if (names_one(s, part)) return true;
    nearest(s, core_of(part, core), best);
    pl_nn_fail(m, PL_ERR_CONFIG,
               "%s: no parameter has a name like \"%s\"%s%s%s; plimsoll inspect CONFIG lists them",
               key, part, best[0] ? "; nearest: \"" : "", best, best[0] ? "\"" : "");
    return false;
}

bool pl__pattern_check(pl_nn *m, const pl_store *s, const char *key, const char *pattern)
{
    for (const char *at = pattern; *at;) {
        char part[MAX_PART];
        size_t n = strcspn(at, ",");
        bool no = *at == '!';
        snprintf(part, sizeof part, "%.*s", (int)(n - no), at + no);
        if (n < MAX_PART && !check_part(m, s, key, part)) return false;
        at += n + (at[n] == ',');
    }
    return true;
}
