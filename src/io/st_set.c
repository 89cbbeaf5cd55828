/* st_set.c - see st_set.h. */
#include "io/st_set.h"

#include "base/arena.h"
#include "base/sys.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILES = 4096, MAX_INDEX = 256 << 20 };

struct pl_st_set {
    pl_arena mem;
    const char **path;
    pl_st_reader **file;
    int n;
};

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* Adds a file of the set, unless it is already in the set. */
static pl_status add_path(pl_st_set *s, const char *path)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->path[i], path) == 0) return PL_OK;
    PL_FAIL_IF(s->n == MAX_FILES, PL_ERR_FILE, "%s: more than %d files", path, MAX_FILES);
    if (!s->path && !(s->path = pl_arena_new(&s->mem, const char *, MAX_FILES)))
        return PL_ERR_MEMORY;
    s->path[s->n] = pl_arena_strdup(&s->mem, path);
    if (!s->path[s->n]) return PL_ERR_MEMORY;
    s->n++;
    return PL_OK;
}

/* ---- index -------------------------------------------------------------------------------- */
static pl_status add_indexed(pl_st_set *s, const char *index, json_t *map)
{
    const char *name, *slash = strrchr(index, '/');
    int folder = slash ? (int)(slash - index) + 1 : 0;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        const char *file = json_string_value(value);
        PL_FAIL_IF(!file || strchr(file, '/'), PL_ERR_FILE,
                   "%s: tensor \"%.80s\" is in no file beside the index", index, name);
        char *path = pl_arena_printf(&s->mem, "%.*s%s", folder, index, file);
        if (!path) return PL_ERR_MEMORY;
        PL_TRY(add_path(s, path));
    }
    return PL_OK;
}

static pl_status open_each(pl_st_set *s)
{
    s->file = pl_arena_new(&s->mem, pl_st_reader *, (size_t)s->n + 1);
    if (!s->file) return PL_ERR_MEMORY;
    for (int i = 0; i < s->n; i++) {
        PL_TRY(pl_st_open(s->path[i], &s->file[i]));
        PL_TRY(pl_st_verify(s->file[i], NULL));
    }
    return PL_OK;
}

/* Refuses a tensor that two files have. */
static pl_status check_names(const pl_st_set *s)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < pl_st_count(s->file[i]); k++) {
            int at = i;
            const char *name = pl_st_at(s->file[i], k)->name;
            pl_st_set_find(s, name, &at);
            PL_FAIL_IF(at != i, PL_ERR_FILE, "tensor \"%.80s\" is in %s and in %s", name,
                       s->path[at], s->path[i]);
        }
    return PL_OK;
}

static pl_status open_files(pl_st_set *s)
{
    PL_TRY(open_each(s));
    return check_names(s);
}

static pl_status check_index(const pl_st_set *s, const char *index, json_t *map)
{
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        int at = 0;
        PL_FAIL_IF(!pl_st_set_find(s, name, &at) ||
                       !ends_with(s->path[at], json_string_value(value)),
                   PL_ERR_FILE, "%s lists tensor \"%.80s\" in %s, which has no such tensor", index,
                   name, json_string_value(value));
    }
    return PL_OK;
}

static pl_status open_index(pl_st_set *s, const char *index)
{
    char *text;
    size_t len;
    json_error_t e;
    PL_TRY(pl_sys_read_file(index, MAX_INDEX, &text, &len));
    json_t *root = json_loadb(text, len, 0, &e);
    pl_sys_free(text);
    json_t *map = json_object_get(root, "weight_map");
    pl_status rc = PL_OK;
    if (!json_is_object(map))
        rc = pl__fail(PL_ERR_FILE, __FILE__, __LINE__,
                      "%s has no object \"weight_map\": it is not an index of tensors", index);
    if (rc == PL_OK) rc = add_indexed(s, index, map);
    if (rc == PL_OK) rc = open_files(s);
    if (rc == PL_OK) rc = check_index(s, index, map);
    json_decref(root);
    return rc;
}

/* ---- folder ------------------------------------------------------------------------------- */
static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum { SAFETENSORS, PYTORCH, KINDS };
static const char *const tails[KINDS][5] = {{".safetensors"}, {".bin", ".pt", ".pth", ".ckpt"}};
static const char *const index_tail[KINDS] = {".safetensors.index.json", ".bin.index.json"};

static bool has_tail(const char *name, const char *const *tail)
{
    for (; *tail; tail++)
        if (ends_with(name, *tail)) return true;
    return false;
}

/* Whether a path names a variant of a file, as diffusers names variants: x.fp16.safetensors is a
 * variant of x.safetensors. */
static bool is_variant(const char *path, const char *of)
{
    size_t same = 0;
    while (of[same] && path[same] == of[same]) same++;
    while (same && path[same - 1] != '.') same--; /* "x." */
    const char *dot = strchr(path + same, '.');   /* behind the word */
    return same && dot > path + same && strcmp(dot + 1, of + same) == 0;
}

/* Leaves out variants whose tensors the plain file has, too. */
static void drop_variants(pl_st_set *s)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->n; k++) {
            if (!is_variant(s->path[i], s->path[k]) || !pl_st_count(s->file[i]) ||
                !pl_st_find(s->file[k], pl_st_at(s->file[i], 0)->name))
                continue;
            pl_st_close(s->file[i]);
            s->n--;
            memmove(s->path + i, s->path + i + 1, (size_t)(s->n - i) * sizeof *s->path);
            memmove(s->file + i, s->file + i + 1, (size_t)(s->n - i) * sizeof *s->file);
            i--;
            break;
        }
}

/* Finds the index and the files of one kind. */
static pl_status list_folder(pl_st_set *s, DIR *d, const char *folder, int kind, const char **index)
{
    for (struct dirent *e; (e = readdir(d));) {
        bool lists = ends_with(e->d_name, index_tail[kind]);
        if (e->d_name[0] == '.' || (!lists && !has_tail(e->d_name, tails[kind]))) continue;
        char *path = pl_arena_printf(&s->mem, "%s/%s", folder, e->d_name);
        if (!path) return PL_ERR_MEMORY;
        if (lists && *index && is_variant(path, *index)) continue;
        PL_FAIL_IF(lists && *index && !is_variant(*index, path), PL_ERR_FILE,
                   "%s has two indexes: name one of them", folder);
        if (lists)
            *index = path;
        else
            PL_TRY(add_path(s, path));
    }
    return PL_OK;
}

/* Fails for a folder without weights; the message names the folders inside it. */
static pl_status fail_empty(pl_st_set *s, const char *folder)
{
    char names[256] = "";
    size_t at = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0) != 0) continue;
        if (S_ISDIR(st.st_mode) && add_path(s, e->d_name) != PL_OK) break;
    }
    if (d) closedir(d);
    if (s->n) qsort(s->path, (size_t)s->n, sizeof *s->path, by_text);
    for (int i = 0; i < s->n && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", s->path[i]);
    PL_FAIL(PL_ERR_FILE, "%s holds no .safetensors, .bin, .pt, .pth or .ckpt%s%s%s", folder,
            s->n ? "; name one of its folders: " : "", names, at < sizeof names ? "" : ", ...");
}

static pl_status open_folder(pl_st_set *s, const char *folder)
{
    const char *index = NULL;
    for (int kind = 0; kind < KINDS && !s->n && !index; kind++) {
        DIR *d = opendir(folder);
        PL_FAIL_IF(!d, PL_ERR_FILE, "%s: %s", folder, strerror(errno));
        pl_status rc = list_folder(s, d, folder, kind, &index);
        closedir(d);
        PL_TRY(rc);
    }
    if (index) {
        s->n = 0;
        return open_index(s, index);
    }
    if (!s->n) return fail_empty(s, folder);
    qsort(s->path, (size_t)s->n, sizeof *s->path, by_text);
    PL_TRY(open_each(s));
    drop_variants(s);
    return check_names(s);
}

/* ---- the set ------------------------------------------------------------------------------ */
/* Opens the files of a list: "a.safetensors,b.safetensors". */
static pl_status open_list(pl_st_set *s, const char *list)
{
    for (const char *end; *list; list = end + (*end == ',')) {
        end = list + strcspn(list, ",");
        if (end == list) continue;
        char *path = pl_arena_strndup(&s->mem, list, (size_t)(end - list));
        if (!path) return PL_ERR_MEMORY;
        PL_TRY(add_path(s, path));
    }
    return open_files(s);
}

static pl_status open_any(pl_st_set *s, const char *path)
{
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode)) return open_folder(s, path);
    if (!there && strchr(path, ',')) return open_list(s, path);
    if (ends_with(path, ".json")) return open_index(s, path);
    PL_TRY(add_path(s, path));
    return open_files(s);
}

pl_status pl_st_set_open(const char *path, pl_st_set **out)
{
    pl_st_set *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    pl_status rc = open_any(s, path);
    if (rc != PL_OK) {
        pl_st_set_close(s);
        return rc;
    }
    *out = s;
    return PL_OK;
}

void pl_st_set_close(pl_st_set *s)
{
    if (!s) return;
    for (int i = 0; s->file && i < s->n; i++) pl_st_close(s->file[i]);
    pl_arena_release(&s->mem);
    pl_sys_free(s);
}

int pl_st_set_files(const pl_st_set *s)
{
    return s->n;
}

const pl_st_reader *pl_st_set_file(const pl_st_set *s, int file)
{
    return s->file[file];
}

const char *pl_st_set_path(const pl_st_set *s, int file)
{
    return s->path[file];
}

const pl_st_tensor *pl_st_set_find(const pl_st_set *s, const char *name, int *file)
{
    for (int i = 0; i < s->n; i++) {
        const pl_st_tensor *t = pl_st_find(s->file[i], name);
        if (!t) continue;
        *file = i;
        return t;
    }
    return NULL;
}
