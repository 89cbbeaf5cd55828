/* class_names.c - the classes of an image set: names, numbers, and images that have neither.
 *
 * A label is an index of pl_items.classes. Folders name classes in the order of their names, those
 * of training first. Where metadata.jsonl names classes, the classes are the names that images
 * have, sorted. Where labels are numbers (.cls of a tar, numbers in metadata.jsonl), the name of a
 * class is its number as text, so that names decide everywhere. Cost: a name is looked up by a walk
 * over the classes.
 */
#include "data/sets/items_int.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

/* Makes room for one class more: the list doubles when its length is a power of two. */
static bool grow(pl_items *s)
{
    if (s->n_classes & (s->n_classes - 1)) return true;
    const char **more = pl_arena_new(&s->mem, const char *, s->n_classes ? 2 * s->n_classes : 1);
    if (!more) return false;
    if (s->n_classes) memcpy(more, s->classes, (size_t)s->n_classes * sizeof *more);
    s->classes = more;
    return true;
}

pl_status pl__items_class(pl_items *s, const char *name, int32_t *label)
{
    for (int i = 0; i < s->n_classes; i++)
        if (strcmp(s->classes[i], name) == 0) {
            *label = i;
            return PL_OK;
        }
    PL_FAIL_IF(s->n_classes == MOST, PL_ERR_DATA, "%s: more than %d classes", s->root, MOST);
    const char *own = pl_arena_strdup(&s->mem, name);
    if (!own || !grow(s)) return PL_ERR_MEMORY;
    *label = s->n_classes;
    s->classes[s->n_classes++] = own;
    return PL_OK;
}

typedef struct ranked {
    const char *name;
    int32_t was;
} ranked;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ranked *)a)->name, ((const ranked *)b)->name);
}

/* Keeps the classes that images have, sorted by name. */
static pl_status sort_used(pl_items *s)
{
    size_t n = (size_t)s->n_classes, kept = 0;
    ranked *list = pl_sys_alloc((n + 1) * sizeof *list);
    int32_t *now = pl_sys_alloc((n + 1) * sizeof *now);
    if (list && now) {
        for (int64_t i = 0; i < s->n; i++)
            if (s->item[i].labelled == PL_LABEL_NAME) now[s->item[i].label] = 1;
        for (size_t k = 0; k < n; k++)
            if (now[k]) list[kept++] = (ranked){s->classes[k], (int32_t)k};
        qsort(list, kept, sizeof *list, by_name);
        for (size_t k = 0; k < kept; k++) {
            s->classes[k] = list[k].name;
            now[list[k].was] = (int32_t)k;
        }
        for (int64_t i = 0; i < s->n; i++)
            if (s->item[i].labelled == PL_LABEL_NAME) s->item[i].label = now[s->item[i].label];
        s->n_classes = (int)kept;
    }
    pl_status rc = list && now ? PL_OK : PL_ERR_MEMORY;
    pl_sys_free(list);
    pl_sys_free(now);
    return rc;
}

/* The names of numbers up to the largest label. */
static pl_status name_numbers(pl_items *s)
{
    int32_t most = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->item[i].label > most) most = s->item[i].label;
    s->n_classes = 0;
    if (most >= MOST) {
        s->unlabelled = pl_arena_printf(&s->mem, "%s has label %d: labels are below %d", s->root,
                                        (int)most, MOST);
        return s->unlabelled ? PL_OK : PL_ERR_MEMORY;
    }
    s->classes = pl_arena_new(&s->mem, const char *, (size_t)most + 1);
    if (!s->classes) return PL_ERR_MEMORY;
    for (; s->n_classes <= most; s->n_classes++)
        if (!(s->classes[s->n_classes] = pl_arena_printf(&s->mem, "%d", s->n_classes)))
            return PL_ERR_MEMORY;
    return PL_OK;
}

pl_status pl__items_settle_classes(pl_items *s)
{
    int64_t count[3] = {0}, first[3] = {0};
    for (int64_t i = s->n; i-- > 0;) {
        count[s->item[i].labelled]++;
        first[s->item[i].labelled] = i;
    }
    if (s->named) PL_TRY(sort_used(s));
    if (count[PL_LABEL_NUMBER] && !count[PL_LABEL_NAME]) PL_TRY(name_numbers(s));
    if (!s->n || s->unlabelled) return PL_OK;
    const char *way = s->n_shards
                          ? "give each sample a .cls with the number of its class"
                          : "move each image into the folder of its class (CLASS/x.jpg), or give "
                            "it a \"label\" in metadata.jsonl";
    const char *none = s->item[first[PL_LABEL_NONE]].name;
    if (count[PL_LABEL_NONE] == s->n)
        s->unlabelled = pl_arena_printf(&s->mem, "%s has no labels: %s", s->root, way);
    else if (count[PL_LABEL_NAME] && count[PL_LABEL_NUMBER])
        s->unlabelled = pl_arena_printf(
            &s->mem,
            "%s: %s has the name of a class as its label, %s has a number: give all labels as "
            "names or all as numbers",
            s->root, s->item[first[PL_LABEL_NAME]].name, s->item[first[PL_LABEL_NUMBER]].name);
    else if (count[PL_LABEL_NONE])
        s->unlabelled =
            pl_arena_printf(&s->mem, "%s: %lld of its %lld images have no label, e.g. %s: %s",
                            s->root, (long long)count[PL_LABEL_NONE], (long long)s->n, none, way);
    else
        return PL_OK;
    return s->unlabelled ? PL_OK : PL_ERR_MEMORY;
}
