/* items.c - see items.h. */
#include "data/sets/items_int.h"

#include "base/sys.h"
#include "data/image/image.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

bool pl__is_image_name(const char *name)
{
    static const char *const read[] = {".jpg", ".jpeg", ".png",  ".webp",
                                       ".bmp", ".tif",  ".tiff", ".gif"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof read / sizeof *read; i++)
        if (strcasecmp(dot, read[i]) == 0) return true;
    return false;
}

/* Files that belong to images: captions, labels, lists, indexes. */
static bool is_companion(const char *dot)
{
    static const char *const tails[] = {".txt", ".json", ".jsonl", ".cls",
                                        ".tsv", ".csv",  ".idx",   ".md"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (strcasecmp(dot, tails[i]) == 0) return true;
    return false;
}

void pl__items_skip(pl_items *s, const char *name)
{
    const char *base = strrchr(name, '/'), *dot = strrchr(base ? base : name, '.');
    char kind[sizeof s->skipped[0].kind] = "without an ending";
    if (dot && is_companion(dot)) return;
    if (dot && strlen(dot) < sizeof kind) snprintf(kind, sizeof kind, "%s", dot);
    for (char *c = kind; *c; c++) *c = (char)tolower((unsigned char)*c);
    s->ignored++;
    int i = 0;
    while (i < s->n_skipped && strcmp(s->skipped[i].kind, kind) != 0) i++;
    if (i == PL_SKIPPED_KINDS) i--; /* the last kind counts all others */
    if (i == s->n_skipped) snprintf(s->skipped[s->n_skipped++].kind, sizeof kind, "%s", kind);
    if (++s->skipped[i].n && i == PL_SKIPPED_KINDS - 1)
        snprintf(s->skipped[i].kind, sizeof kind, "others");
}

const char *pl_items_skipped(const pl_items *s, char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < s->n_skipped && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%lld %s", i ? ", " : "",
                               (long long)s->skipped[i].n, s->skipped[i].kind);
    return buf;
}

pl_item *pl__items_add(pl_items *s)
{
    if (s->n == s->cap) {
        int64_t cap = s->cap ? 2 * s->cap : 256;
        pl_item *more =
            pl_sys_realloc(s->item, (size_t)s->cap * sizeof *more, (size_t)cap * sizeof *more);
        if (!more) return NULL;
        s->item = more;
        s->cap = cap;
    }
    pl_item *i = &s->item[s->n++];
    *i = (pl_item){.shard = -1, .weight = 1};
    return i;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* scandir would allocate outside sys.h; a folder is read twice instead: to count, and to store. */
pl_status pl__list_names(pl_arena *mem, const char *dir, const char ***names, int *n)
{
    *n = 0;
    *names = NULL;
    for (int pass = 0; pass < 2; pass++) {
        DIR *d = opendir(dir);
        PL_FAIL_IF(!d, PL_ERR_DATA, "%s: %s", dir, strerror(errno));
        int k = 0;
        bool failed = false;
        for (struct dirent *e; !failed && (e = readdir(d));) {
            if (e->d_name[0] == '.') continue;
            if (pass && k < *n) failed = !((*names)[k] = pl_arena_strdup(mem, e->d_name));
            k++;
        }
        closedir(d);
        if (failed) return PL_ERR_MEMORY;
        if (!pass || k < *n) *n = k;
        if (!pass && !(*names = pl_arena_new(mem, const char *, *n + 1))) return PL_ERR_MEMORY;
    }
    qsort(*names, (size_t)*n, sizeof **names, by_bytes);
    return PL_OK;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static bool holds_tar(const char *folder)
{
    DIR *d = opendir(folder);
    bool is = false;
    for (struct dirent *e; d && !is && (e = readdir(d));) is = ends_with(e->d_name, ".tar");
    if (d) closedir(d);
    return is;
}

const char *pl__eval_name(int i)
{
    static const char *const names[] = {"eval", "val", "valid", "validation", "test"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

int pl__eval_name_find(const char *name, size_t n)
{
    const char *known;
    for (int i = 0; (known = pl__eval_name(i)); i++)
        if (strlen(known) == n && memcmp(name, known, n) == 0) return i;
    return -1;
}

bool pl_items_is_tar(const char *path)
{
    char below[4096];
    if (ends_with(path, ".tar") || holds_tar(path)) return true;
    snprintf(below, sizeof below, "%s/train", path);
    bool is = holds_tar(below);
    for (int i = 0; !is && pl__eval_name(i); i++) {
        snprintf(below, sizeof below, "%s/%s", path, pl__eval_name(i));
        is = holds_tar(below);
    }
    return is;
}

/* Returns a number in [0,1) that depends on the name alone. */
static double place_of(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93u;
    return (double)(h >> 11) * 0x1p-53;
}

bool pl_name_in_share(const char *name, double share)
{
    return place_of(name) < share;
}

/* With few images the share may select none, or all: then the first, or all but the last, by that
 * number. A share of 1 selects all. */
static void split(pl_items *s, double share)
{
    int64_t n = 0, first = 0, last = 0;
    for (int64_t i = 0; i < s->n; i++) n += s->item[i].eval;
    if (n || share <= 0) return;
    for (int64_t i = 0; i < s->n; i++) {
        double at = place_of(s->item[i].name);
        n += s->item[i].eval = at < share;
        if (at < place_of(s->item[first].name)) first = i;
        if (at > place_of(s->item[last].name)) last = i;
    }
    if (n == 0 && s->n > 1) s->item[first].eval = true;
    if (n == s->n && share < 1) s->item[last].eval = false;
}

/* Whether a file beside the images may give labels. */
static bool has_metadata(pl_items *s, const pl_items_opts *o)
{
    const char *meta = pl_arena_printf(&s->mem, "%s/metadata.jsonl", o->path);
    const char *labels = pl_arena_printf(&s->mem, "%s/labels.csv", o->path);
    return !meta || !labels || access(meta, F_OK) == 0 || access(labels, F_OK) == 0 ||
           (o->captions && ends_with(o->captions, ".jsonl"));
}

static pl_status list_all(pl_items *s, const pl_items_opts *o)
{
    struct stat st;
    PL_FAIL_IF(stat(o->path, &st) != 0, PL_ERR_DATA, "%s%s: %s", o->plain ? "" : "data.path ",
               o->path, strerror(errno));
    s->root = pl_arena_strdup(&s->mem, o->path);
    if (!s->root) return PL_ERR_MEMORY;
    pl_items_opts all = *o;
    all.only_classes &= !has_metadata(s, o);
    PL_TRY(pl_items_is_tar(o->path) ? pl__items_tar(s, &all) : pl__items_folder(s, &all));
    PL_TRY(pl__items_settle_classes(s));
    if (all.only_classes && s->n_classes) return PL_OK;
    char skipped[256];
    pl_items_skipped(s, skipped, sizeof skipped);
    PL_FAIL_IF(s->n == 0, PL_ERR_DATA, "%s holds no " PL_IMAGE_NAMES " image%s%s", o->path,
               s->ignored ? "; other files are not read, convert them: " : "", skipped);
    PL_FAIL_IF(s->n > INT32_MAX, PL_ERR_DATA, "%s holds more than 2^31 images", o->path);
    split(s, o->eval_share);
    for (int64_t i = 0; i < s->n; i++)
        if (s->item[i].bytes > s->max_bytes) s->max_bytes = s->item[i].bytes;
    return PL_OK;
}

pl_status pl_items_open(const pl_items_opts *o, pl_items **out)
{
    pl_items *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    pl_status rc = list_all(s, o);
    if (rc != PL_OK) {
        pl_items_close(s);
        return rc;
    }
    *out = s;
    return PL_OK;
}

void pl_items_close(pl_items *s)
{
    if (!s) return;
    pl_sys_free(s->item);
    pl_arena_release(&s->mem);
    pl_sys_free(s);
}

const char *pl_item_path(const pl_items *s, const pl_item *i, char *buf, size_t cap)
{
    if (i->shard >= 0)
        snprintf(buf, cap, "%s: %s", s->shards[i->shard], i->name);
    else
        snprintf(buf, cap, "%s/%s", s->root, i->name);
    return buf;
}
