/* folder.c - the images of a folder; see items.h. */
#include "data/sets/items_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 16 };

typedef struct walk {
    pl_items *s;
    const pl_items_opts *o;
    bool eval;
    int32_t label;
    pl_labelled labelled;
} walk;

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static char *join(pl_arena *mem, const char *a, const char *b)
{
    return a[0] ? pl_arena_printf(mem, "%s/%s", a, b) : pl_arena_strdup(mem, b);
}

/* ---- folders of runs ---------------------------------------------------------------------- */
static bool is_run_at(int folder, const char *name)
{
    struct stat lock, checkpoints;
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is = fd >= 0 && fstatat(fd, "lock", &lock, 0) == 0 && S_ISREG(lock.st_mode) &&
              fstatat(fd, "checkpoints", &checkpoints, 0) == 0 && S_ISDIR(checkpoints.st_mode);
    if (fd >= 0) close(fd);
    return is;
}

bool pl_is_run_folder(const char *path)
{
    return is_run_at(AT_FDCWD, path);
}

/* Opens a folder inside another one; NULL: it is none. */
static DIR *open_below(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !d) close(fd);
    return d;
}

/* Whether a folder holds a picture outside of run folders; the search ends at the first one. Sets
 * *runs where it finds a run folder. */
static bool has_picture(int folder, const char *name, int depth, bool *runs)
{
    DIR *d = open_below(folder, name);
    bool picture = false;
    for (struct dirent *e; d && !picture && (e = readdir(d));) {
        bool run = e->d_name[0] != '.' && is_run_at(dirfd(d), e->d_name);
        *runs |= run;
        if (e->d_name[0] == '.' || run) continue;
        picture = pl__is_image_name(e->d_name) ||
                  (depth < MAX_DEPTH && has_picture(dirfd(d), e->d_name, depth + 1, runs));
    }
    if (d) closedir(d);
    return picture;
}

static bool holds_only_runs(const char *path)
{
    bool runs = false, picture = has_picture(AT_FDCWD, path, 0, &runs);
    return runs && !picture;
}

/* Whether the folder `full`, which is `name` in `dir`, belongs to runs and not to the set. Pictures
 * of runs are samples that the runs made; a later run would train on them. */
static bool is_of_runs(const char *dir, const char *name, const char *full)
{
    static const char *const own[] = {"checkpoints", "phases", "samples"};
    bool is = pl_is_run_folder(full) || holds_only_runs(full);
    for (int i = 0; i < 3 && !is; i++) is = strcmp(name, own[i]) == 0 && pl_is_run_folder(dir);
    return is;
}

/* ---- larger versions of pictures -------------------------------------------------------- */
/* Names of a folder, sorted by bytes. */
typedef struct listing {
    const char **name;
    int n;
} listing;

/* Returns the first name that is not before the text. */
static int lower_bound(const listing *l, const char *text)
{
    int lo = 0, hi = l->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (strcmp(l->name[mid], text) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Whether a name is a larger version of a picture in the same folder. */
static bool is_larger(const walk *w, const listing *l, const char *name)
{
    const char *prefix = w->o->larger, *dot = strrchr(name, '.');
    char stem[1024];
    if (!prefix || strncmp(name, prefix, strlen(prefix)) != 0 || !dot || strcmp(dot, ".webp") != 0)
        return false;
    int n = snprintf(stem, sizeof stem, "%.*s.", (int)(dot - name) - (int)strlen(prefix),
                     name + strlen(prefix));
    if (n < 2 || (size_t)n >= sizeof stem) return false;
    for (int i = lower_bound(l, stem); i < l->n && strncmp(l->name[i], stem, (size_t)n) == 0; i++)
        if (!strchr(l->name[i] + n, '.') && pl__is_image_name(l->name[i])) return true;
    return false;
}

/* Finds the larger version of rel, whose last part is `name`. */
static pl_status find_larger(walk *w, const listing *l, const char *name, pl_item *i)
{
    char want[1024], full[4096];
    struct stat st;
    const char *dot = strrchr(name, '.');
    size_t before = strlen(i->name) - strlen(name);
    if (!w->o->larger || !dot) return PL_OK;
    int n = snprintf(want, sizeof want, "%s%.*s.webp", w->o->larger, (int)(dot - name), name);
    int at = n > 0 && (size_t)n < sizeof want ? lower_bound(l, want) : l->n;
    if (at == l->n || strcmp(l->name[at], want) != 0) return PL_OK;
    i->larger = pl_arena_printf(&w->s->mem, "%.*s%s", (int)before, i->name, want);
    if (!i->larger) return PL_ERR_MEMORY;
    snprintf(full, sizeof full, "%s/%s", w->s->root, i->larger);
    if (stat(full, &st) == 0 && st.st_size > w->s->max_bytes) w->s->max_bytes = st.st_size;
    return PL_OK;
}

/* ---- walking ---------------------------------------------------------------------------- */
/* A file of the listing. */
static pl_status add_file(walk *w, const listing *l, const char *name, const char *rel,
                          const char *full)
{
    struct stat st;
    if (!pl__is_image_name(rel)) {
        pl__items_skip(w->s, name);
        return PL_OK;
    }
    if (is_larger(w, l, name)) return PL_OK;
    /* A link to nothing is a bad image: data.on_bad says what becomes of it. */
    bool dangles = stat(full, &st) != 0;
    if (dangles) st.st_size = 0;
    if (!dangles && !S_ISREG(st.st_mode)) return PL_OK;
    pl_item *i = pl__items_add(w->s);
    if (!i) return PL_ERR_MEMORY;
    i->name = rel;
    i->bytes = st.st_size;
    i->label = w->label;
    i->labelled = (uint8_t)w->labelled;
    i->eval = w->eval;
    PL_TRY(find_larger(w, l, name, i));
    if (w->o->progress && w->s->n % 256 == 0) w->o->progress(w->o->ctx, w->s->n, 0, 0);
    return PL_OK;
}

/* Adds every image below root/rel, sorted. */
static pl_status walk_folder(walk *w, const char *rel, int depth)
{
    pl_arena *mem = &w->s->mem;
    char *dir = join(mem, w->s->root, rel);
    const char **names;
    int n;
    if (!dir) return PL_ERR_MEMORY;
    if (!rel[0]) dir = pl_arena_strdup(mem, w->s->root);
    PL_FAIL_IF(depth > MAX_DEPTH, PL_ERR_DATA, "%s: more than %d folders deep", dir, MAX_DEPTH);
    PL_TRY(pl__list_names(mem, dir, &names, &n));
    for (int i = 0; i < n; i++) {
        char *below = join(mem, rel, names[i]), *full = join(mem, dir, names[i]);
        if (!below || !full) return PL_ERR_MEMORY;
        if (is_folder(full) && is_of_runs(dir, names[i], full) && !w->o->plain) continue;
        PL_TRY(is_folder(full) ? walk_folder(w, below, depth + 1)
                               : add_file(w, &(listing){names, n}, names[i], below, full));
    }
    return PL_OK;
}

/* Folders below root/rel are classes. */
static pl_status walk_classes(walk *w, const char *rel)
{
    pl_items *s = w->s;
    char *dir = rel[0] ? join(&s->mem, s->root, rel) : pl_arena_strdup(&s->mem, s->root);
    const char **names;
    int n;
    if (!dir) return PL_ERR_MEMORY;
    PL_TRY(pl__list_names(&s->mem, dir, &names, &n));
    for (int i = 0; i < n; i++) {
        char *below = join(&s->mem, rel, names[i]), *full = join(&s->mem, dir, names[i]);
        if (!below || !full) return PL_ERR_MEMORY;
        w->label = 0;
        w->labelled = PL_LABEL_NONE;
        if (!is_folder(full)) {
            PL_TRY(add_file(w, &(listing){names, n}, names[i], below, full));
            continue;
        }
        if (is_of_runs(dir, names[i], full)) continue;
        PL_TRY(pl__items_class(s, names[i], &w->label));
        w->labelled = PL_LABEL_NAME;
        if (!w->o->only_classes) PL_TRY(walk_folder(w, below, 1));
    }
    return PL_OK;
}

/* Whether the root has folders and all of them are named like evaluation sets. */
static pl_status only_evaluates(pl_items *s, bool *is)
{
    const char **names;
    int n, folders = 0, known = 0;
    PL_TRY(pl__list_names(&s->mem, s->root, &names, &n));
    for (int i = 0; i < n; i++) {
        char *full = join(&s->mem, s->root, names[i]);
        if (!full) return PL_ERR_MEMORY;
        if (!is_folder(full) || is_of_runs(s->root, names[i], full)) continue;
        folders++;
        known += pl__eval_name_find(names[i], strlen(names[i])) >= 0;
    }
    *is = folders && known == folders;
    return PL_OK;
}

/* ---- masks -------------------------------------------------------------------------------- */
/* The mask of an image images/NAME.x is masks/NAME.png. rel: what both folders lie in. */
static pl_status find_mask(walk *w, const char *rel, pl_item *i)
{
    char full[4096];
    struct stat st;
    size_t skip = strlen(rel) + (rel[0] ? 1 : 0) + strlen("images/");
    const char *below = i->name + skip, *dot = strrchr(below, '.');
    i->mask = pl_arena_printf(&w->s->mem, "%s%smasks/%.*s.png", rel, rel[0] ? "/" : "",
                              (int)(dot - below), below);
    if (!i->mask) return PL_ERR_MEMORY;
    snprintf(full, sizeof full, "%s/%s", w->s->root, i->mask);
    PL_FAIL_IF(stat(full, &st) != 0, PL_ERR_DATA, "%s/%s has no mask: %s does not exist",
               w->s->root, i->name, full);
    if (st.st_size > w->s->max_bytes) w->s->max_bytes = st.st_size;
    return PL_OK;
}

static pl_status walk_masked(walk *w, const char *rel)
{
    char *images = join(&w->s->mem, rel, "images"), *full;
    int64_t first = w->s->n;
    if (!images || !(full = join(&w->s->mem, w->s->root, images))) return PL_ERR_MEMORY;
    PL_FAIL_IF(!is_folder(full), PL_ERR_DATA,
               "there is no folder %s; pictures are in images/ and their masks in masks/", full);
    PL_TRY(walk_folder(w, images, 1));
    for (int64_t i = first; i < w->s->n; i++) PL_TRY(find_mask(w, rel, &w->s->item[i]));
    return PL_OK;
}

/* The path is one image: its folder is the root. */
static pl_status add_alone(walk *w)
{
    const char *path = w->s->root, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    PL_FAIL_IF(!pl__is_image_name(name), PL_ERR_DATA,
               "%s is not a picture, or its format is not supported", path);
    w->s->root = !slash          ? "."
                 : slash == path ? "/"
                                 : pl_arena_strndup(&w->s->mem, path, (size_t)(slash - path));
    if (!w->s->root) return PL_ERR_MEMORY;
    return add_file(w, &(listing){&name, 1}, name, name, path);
}

static pl_status walk_part(walk *w, const char *rel)
{
    return w->o->masks ? walk_masked(w, rel) : walk_classes(w, rel);
}

pl_status pl__items_folder(pl_items *s, const pl_items_opts *o)
{
    if (o->plain) {
        walk all = {.s = s, .o = o, .eval = true};
        return is_folder(s->root) ? walk_folder(&all, "", 0) : add_alone(&all);
    }
    walk w = {.s = s, .o = o};
    char *train = join(&s->mem, s->root, "train");
    bool eval = false;
    if (!train) return PL_ERR_MEMORY;
    bool trains = is_folder(train);
    if (!trains) PL_TRY(only_evaluates(s, &eval));
    if (!trains && !eval) {
        PL_TRY(walk_part(&w, ""));
        return pl__items_captions(s, o->captions);
    }
    if (trains) PL_TRY(walk_part(&w, "train"));
    w.eval = true;
    for (int i = 0; pl__eval_name(i); i++) {
        char *dir = join(&s->mem, s->root, pl__eval_name(i));
        if (!dir) return PL_ERR_MEMORY;
        if (!is_folder(dir)) continue;
        PL_TRY(walk_part(&w, pl__eval_name(i)));
        break;
    }
    return pl__items_captions(s, o->captions);
}
