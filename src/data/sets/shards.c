/* shards.c - WebDataset tars as a list of images; see items.h.
 *
 * The index beside a shard is text: a line with the tar's size and time, then one line per sample,
 *     OFFSET BYTES LABEL TEXT_OFFSET TEXT_BYTES NAME
 * It is rebuilt when the tar has changed, and kept only in memory where it cannot be written or
 * where another program has a file of that name.
 */
#include "base/str.h"
#include "base/sys.h"
#include "data/sets/items_int.h"
#include "data/sets/tar.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "plimsoll tar index "
enum { MAX_INDEX = 1 << 30, MAX_SIDE = 1 << 20 };

typedef struct shards {
    pl_items *s;
    const pl_items_opts *o;
    int32_t shard;
    bool *eval;           /* by shard: its samples are for evaluation */
    uint64_t done, total; /* bytes of tars */
} shards;

/* Length of a member's key: its name up to the first dot of the last part. */
static size_t key_length(const char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash : name, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

static bool same_key(const char *a, const char *b)
{
    size_t n = key_length(a);
    return n == key_length(b) && memcmp(a, b, n) == 0;
}

/* A sample being collected: its image may come before or after its other members. */
typedef struct sample {
    char key[PL_TAR_NAME];
    bool any, image;
    pl_item item;
    const char *text;
} sample;

static pl_status finish_sample(shards *b, sample *c)
{
    if (c->any && c->image) {
        pl_item *i = pl__items_add(b->s);
        if (!i) return PL_ERR_MEMORY;
        *i = c->item;
        i->shard = b->shard;
        i->caption = c->text;
    }
    c->any = c->image = false;
    return PL_OK;
}

static bool has_tail(const char *name, const char *tail)
{
    size_t n = strlen(name), m = strlen(tail);
    return n >= m && strcmp(name + n - m, tail) == 0;
}

static pl_status read_side(shards *b, const pl_tar *t, const pl_tar_member *m, sample *c)
{
    char text[4096];
    int64_t label = -1;
    if (has_tail(m->name, ".txt") && m->bytes < MAX_SIDE) {
        c->item.text_at = m->offset;
        c->item.text_bytes = (int32_t)m->bytes;
    } else if (has_tail(m->name, ".cls") && m->bytes < 32) {
        PL_TRY(pl_tar_read(t, m->offset, text, (size_t)m->bytes));
        text[m->bytes] = 0;
        char *end;
        label = strtoll(text, &end, 10);
        while (isspace((unsigned char)*end)) end++;
        if (end == text || *end) label = -1;
    } else if (has_tail(m->name, ".json") && m->bytes < sizeof text) {
        PL_TRY(pl_tar_read(t, m->offset, text, (size_t)m->bytes));
        if (pl__sample_json(&b->s->mem, text, (size_t)m->bytes, &c->text, &label) == PL_ERR_MEMORY)
            return PL_ERR_MEMORY;
    }
    if (label < 0 || label > INT32_MAX) return PL_OK;
    c->item.label = (int32_t)label;
    c->item.labelled = PL_LABEL_NUMBER;
    return PL_OK;
}

static pl_status add_member(shards *b, const pl_tar *t, const pl_tar_member *m, sample *c)
{
    if (!m->file) return PL_OK;
    if (!c->any || !same_key(c->key, m->name)) {
        PL_TRY(finish_sample(b, c));
        *c = (sample){.any = true, .item = {.weight = 1}};
        memcpy(c->key, m->name, sizeof c->key);
    }
    if (!pl__is_image_name(m->name)) {
        pl__items_skip(b->s, m->name);
        return read_side(b, t, m, c);
    }
    if (c->image) return PL_OK; /* a second view of the sample */
    c->image = true;
    c->item.offset = m->offset;
    c->item.bytes = (int64_t)m->bytes;
    c->item.name = pl_arena_strdup(&b->s->mem, m->name);
    return c->item.name ? PL_OK : PL_ERR_MEMORY;
}

static pl_status walk_tar(shards *b, const char *path)
{
    pl_tar t;
    pl_tar_member *m = pl_sys_alloc(sizeof *m);
    sample *c = pl_sys_alloc(sizeof *c);
    bool more = true;
    pl_status rc = m && c ? pl_tar_open(path, &t) : PL_ERR_MEMORY;
    if (rc != PL_OK) more = false;
    bool opened = rc == PL_OK;
    for (int64_t k = 0; rc == PL_OK && more; k++) {
        rc = pl_tar_next(&t, m, &more);
        if (rc == PL_OK && more) rc = add_member(b, &t, m, c);
        if (b->o->progress && k % 256 == 0)
            b->o->progress(b->o->ctx, b->s->n, (int64_t)(b->done + t.at), (int64_t)b->total);
    }
    if (rc == PL_OK) rc = finish_sample(b, c);
    if (opened) pl_tar_close(&t);
    pl_sys_free(m);
    pl_sys_free(c);
    return rc;
}

/* ---- the index ---------------------------------------------------------------------------- */
static void index_head(const struct stat *st, char *buf, size_t cap)
{
    snprintf(buf, cap, MAGIC "2 %lld %lld.%09ld\n", (long long)st->st_size,
             (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

static pl_status read_line(shards *b, char *line, uint64_t size)
{
    pl_item i = {.shard = b->shard, .weight = 1};
    int at = 0;
    int n = sscanf(line, "%" SCNu64 " %" SCNd64 " %" SCNd32 " %" SCNu64 " %" SCNd32 " %n",
                   &i.offset, &i.bytes, &i.label, &i.text_at, &i.text_bytes, &at);
    bool inside = n == 5 && at && i.offset <= size && i.bytes >= 0 &&
                  (uint64_t)i.bytes <= size - i.offset && i.label >= -1 && i.text_at <= size &&
                  i.text_bytes >= 0 && (uint64_t)i.text_bytes <= size - i.text_at;
    if (!inside) return PL_ERR_DATA;
    i.labelled = i.label < 0 ? PL_LABEL_NONE : PL_LABEL_NUMBER;
    if (i.label < 0) i.label = 0;
    char *text = strchr(line + at, '\t');
    if (text) *text++ = 0;
    i.name = pl_arena_strdup(&b->s->mem, line + at);
    if (text && !(i.caption = pl_arena_strdup(&b->s->mem, text))) return PL_ERR_MEMORY;
    pl_item *to = i.name ? pl__items_add(b->s) : NULL;
    if (!to) return PL_ERR_MEMORY;
    *to = i;
    return PL_OK;
}

/* Whether the file is an index of ours, perhaps cut short; other programs have files of that name,
 * too. */
static bool is_index(const char *path)
{
    char head[sizeof MAGIC] = "";
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    int fd = pl_sys_open(path, O_RDONLY, 0);
    ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof MAGIC - 1);
    if (fd >= 0) close(fd);
    return n >= 0 && memcmp(head, MAGIC, (size_t)n) == 0;
}

/* PL_ERR_DATA, and nothing added, when there is no index or it belongs to another file. */
static pl_status read_index(shards *b, const char *path, const struct stat *st)
{
    char head[128], *text = NULL;
    size_t len, n;
    int64_t before = b->s->n;
    index_head(st, head, sizeof head);
    n = strlen(head);
    if (!is_index(path)) return PL_ERR_DATA;
    PL_TRY(pl_sys_read_file(path, MAX_INDEX, &text, &len));
    pl_status rc = len >= n && memcmp(text, head, n) == 0 ? PL_OK : PL_ERR_DATA;
    for (char *line = text + n, *end; rc == PL_OK && line < text + len; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) {
            rc = PL_ERR_DATA;
            break;
        }
        *end = 0;
        rc = read_line(b, line, (uint64_t)st->st_size);
    }
    pl_sys_free(text);
    if (rc != PL_OK) b->s->n = before;
    return rc;
}

/* Whether a caption fits on a line: a set whose captions contain a tab or a line end has no
 * index. */
static bool fits_a_line(const char *text)
{
    return !text || !strpbrk(text, "\t\n");
}

static void write_index(const pl_items *s, int64_t first, const char *path, const struct stat *st)
{
    pl_str out = PL_STR_INIT;
    char head[128];
    struct stat there;
    if (lstat(path, &there) == 0 && !is_index(path)) return; /* another program's file */
    index_head(st, head, sizeof head);
    pl_str_add(&out, head);
    bool fits = true;
    for (int64_t k = first; k < s->n; k++) {
        const pl_item *i = &s->item[k];
        fits &= fits_a_line(i->name) && fits_a_line(i->caption);
        pl_str_addf(&out, "%" PRIu64 " %" PRId64 " %" PRId32 " %" PRIu64 " %" PRId32 " %s%s%s\n",
                    i->offset, i->bytes, i->labelled ? i->label : -1, i->text_at, i->text_bytes,
                    i->name, i->caption ? "\t" : "", i->caption ? i->caption : "");
    }
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    /* A folder that cannot be written is not an error: the next run walks the tar again. */
    if (fits && !out.failed && access(slash ? folder : ".", W_OK) == 0 &&
        pl_sys_write_file(path, out.text, out.len) != PL_OK)
        (void)unlink(path);
    pl_str_release(&out);
}

static pl_status list_shard(shards *b, const char *path)
{
    struct stat st;
    PL_FAIL_IF(stat(path, &st) != 0, PL_ERR_DATA, "%s: %s", path, strerror(errno));
    char *index = pl_arena_printf(&b->s->mem, "%s.idx", path);
    if (!index) return PL_ERR_MEMORY;
    int64_t first = b->s->n;
    pl_status rc = read_index(b, index, &st);
    if (rc == PL_ERR_DATA || rc == PL_ERR_FILE) {
        PL_TRY(walk_tar(b, path));
        write_index(b->s, first, index, &st);
        rc = PL_OK;
    }
    b->done += (uint64_t)st.st_size;
    return rc;
}

/* ---- which shards ---------------------------------------------------------------------------- */
/* The number of the word of a file name that names an evaluation set, "imagenet-val-0003.tar"; -1:
 * it has none. */
static int eval_word(const char *name)
{
    int found = -1;
    for (const char *at = name; *at && found < 0;) {
        size_t n = 0;
        while (isalpha((unsigned char)at[n])) n++;
        found = n ? pl__eval_name_find(at, n) : -1;
        at += n ? n : 1;
    }
    return found;
}

static pl_status add_shard(shards *b, const char *path, bool eval)
{
    struct stat st;
    if (!path) return PL_ERR_MEMORY;
    if (stat(path, &st) == 0) b->total += (uint64_t)st.st_size;
    b->eval[b->s->n_shards] = eval;
    b->s->shards[b->s->n_shards++] = path;
    return PL_OK;
}

static pl_status reserve(shards *b, int n)
{
    b->s->shards = pl_arena_new(&b->s->mem, const char *, n + 1);
    b->eval = pl_arena_new(&b->s->mem, bool, n + 1);
    return b->s->shards && b->eval ? PL_OK : PL_ERR_MEMORY;
}

/* The tars of the root. Those with an evaluation word in their names are for evaluation, unless all
 * have one; of several words the first counts, as with folders, and tars with others are left. */
static pl_status add_root(shards *b, int n, const char *const *names)
{
    int tars = 0, words = 0, first = INT32_MAX;
    for (int i = 0; i < n; i++) {
        if (!has_tail(names[i], ".tar")) continue;
        int word = eval_word(names[i]);
        tars++;
        words += word >= 0;
        if (word >= 0 && word < first) first = word;
    }
    for (int i = 0; i < n; i++) {
        int word = words < tars && !b->o->plain ? eval_word(names[i]) : -1;
        if (!has_tail(names[i], ".tar") || (word >= 0 && word != first)) continue;
        PL_TRY(add_shard(b, pl_arena_printf(&b->s->mem, "%s/%s", b->s->root, names[i]), word >= 0));
    }
    return PL_OK;
}

/* The tars of train/ and of the first evaluation folder. */
static pl_status add_folders(shards *b)
{
    pl_items *s = b->s;
    const char **names[2] = {NULL, NULL}, *dir[2] = {NULL, NULL};
    int n[2] = {0, 0};
    for (int i = -1; i < 0 || (pl__eval_name(i) && !n[1]); i++) {
        int k = i >= 0;
        struct stat st;
        dir[k] = pl_arena_printf(&s->mem, "%s/%s", s->root, k ? pl__eval_name(i) : "train");
        if (!dir[k]) return PL_ERR_MEMORY;
        if (stat(dir[k], &st) != 0 || !S_ISDIR(st.st_mode)) continue;
        PL_TRY(pl__list_names(&s->mem, dir[k], &names[k], &n[k]));
        int tars = 0;
        for (int j = 0; j < n[k]; j++)
            if (has_tail(names[k][j], ".tar")) names[k][tars++] = names[k][j];
        n[k] = tars;
        if (k && tars) break;
    }
    PL_TRY(reserve(b, n[0] + n[1]));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n[k]; i++)
            PL_TRY(add_shard(b, pl_arena_printf(&s->mem, "%s/%s", dir[k], names[k][i]), k == 1));
    return PL_OK;
}

static pl_status find_shards(shards *b)
{
    const char **names;
    int n;
    if (has_tail(b->s->root, ".tar")) {
        PL_TRY(reserve(b, 1));
        return add_shard(b, b->s->root, false);
    }
    PL_TRY(pl__list_names(&b->s->mem, b->s->root, &names, &n));
    PL_TRY(reserve(b, n));
    PL_TRY(add_root(b, n, names));
    return b->s->n_shards ? PL_OK : add_folders(b);
}

pl_status pl__items_tar(pl_items *s, const pl_items_opts *o)
{
    shards b = {.s = s, .o = o};
    PL_TRY(find_shards(&b));
    for (b.shard = 0; b.shard < s->n_shards; b.shard++) {
        int64_t first = s->n;
        PL_TRY(list_shard(&b, s->shards[b.shard]));
        for (int64_t i = first; i < s->n; i++) s->item[i].eval = o->plain || b.eval[b.shard];
    }
    return PL_OK;
}
