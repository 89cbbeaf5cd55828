/* config.c - the schema, loading, overrides and getters of plimsoll_config.h.
 *
 * A document is walked key by key; the path from the top joined by dots is looked up in the schema,
 * so `train: {steps: 5}` and `train.steps: 5` are the same. What a document extends is loaded
 * first; the chain of documents being loaded is a linked list on the stack, which finds cycles. A
 * load changes the config's values directly and restores the old ones when it fails.
 */
#include "base/sys.h"
#include "io/config_int.h"
#include "io/config_tree.h"
#include "io/json.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_EXTENDS = 16, NEAR = 4 };

/* ---- schema ----------------------------------------------------------------------------- */

int pl__config_find(const pl_config *c, const char *key)
{
    int lo = 0, hi = c->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2, d = strcmp(c->entry[c->by_key[mid]]->key, key);
        if (d == 0) return c->by_key[mid];
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

/* Whether some key lies below `path`: "train" for "train.steps". */
static bool is_section(const pl_config *c, const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < c->n; i++)
        if (strncmp(c->entry[i]->key, path, n) == 0 && c->entry[i]->key[n] == '.') return true;
    return false;
}

static pl_status check_entry(const pl_config_entry *e)
{
    PL_FAIL_IF(e->type < PL_CONFIG_BOOL || e->type > PL_CONFIG_TREE || !e->doc ||
                   (e->type == PL_CONFIG_CHOICE) != (e->choices != NULL),
               PL_ERR_ARG, "schema: %s has no doc line, or its type and choices do not match",
               e->key);
    PL_FAIL_IF((e->cache == PL_CACHE_FILE || e->cache == PL_CACHE_WEIGHTS) &&
                   e->type != PL_CONFIG_TEXT,
               PL_ERR_ARG, "schema: %s names a file and is not of type text", e->key);
    PL_FAIL_IF(strcmp(e->key, "extends") == 0, PL_ERR_ARG,
               "schema: %s is a reserved key, it cannot have a value", e->key);
    PL_FAIL_IF(e->min > e->max, PL_ERR_ARG, "schema: %s has min %g above max %g", e->key, e->min,
               e->max);
    return PL_OK;
}

static pl_status set_default(pl_config *c, int i)
{
    const pl_config_entry *e = c->entry[i];
    if (!e->fallback) return PL_OK;
    pl_arena scratch = PL_ARENA_INIT;
    config_source s = {.file = "default"};
    const pl_yaml *node = NULL;
    pl_yaml empty = {.kind = PL_YAML_SCALAR, .text = "", .plain = e->type != PL_CONFIG_TEXT};
    pl_status rc = pl_yaml_parse(e->fallback, strlen(e->fallback), "default", &scratch, &node);
    if (rc == PL_OK) rc = pl__config_parse(&c->arena, e, &s, node ? node : &empty, &c->value[i]);
    pl_arena_release(&scratch);
    return rc == PL_OK || rc == PL_ERR_MEMORY ? rc
                                              : pl__fail_prefix(PL_ERR_ARG, "schema: %s", e->key);
}

/* Insertion sort: a schema has a few hundred keys, and is often nearly sorted. */
static pl_status sort_keys(pl_config *c)
{
    for (int i = 0; i < c->n; i++) {
        int j = i;
        for (; j > 0 && strcmp(c->entry[c->by_key[j - 1]]->key, c->entry[i]->key) > 0; j--)
            c->by_key[j] = c->by_key[j - 1];
        c->by_key[j] = i;
    }
    for (int i = 1; i < c->n; i++)
        PL_FAIL_IF(strcmp(c->entry[c->by_key[i - 1]]->key, c->entry[c->by_key[i]]->key) == 0,
                   PL_ERR_ARG, "schema: %s is listed twice", c->entry[c->by_key[i]]->key);
    return PL_OK;
}

static pl_status fill(pl_config *c, const pl_config_entry *const *tables, int n_tables)
{
    int n = 0;
    for (int t = 0; t < n_tables; t++)
        for (const pl_config_entry *e = tables[t]; e->key; e++) n++;
    c->entry = pl_arena_new(&c->arena, const pl_config_entry *, n);
    c->value = pl_arena_new(&c->arena, config_value, n);
    c->by_key = pl_arena_new(&c->arena, int, n);
    if (!c->entry || !c->value || !c->by_key) return PL_ERR_MEMORY;
    for (int t = 0; t < n_tables; t++)
        for (const pl_config_entry *e = tables[t]; e->key; e++) c->entry[c->n++] = e;
    PL_TRY(sort_keys(c));
    for (int i = 0; i < c->n; i++) PL_TRY(check_entry(c->entry[i]));
    for (int i = 0; i < c->n; i++) PL_TRY(set_default(c, i));
    return PL_OK;
}

/* Numbers of configurations, logs and files have a point. A program that calls this library may
 * have set a locale with a comma, and strtod would end at the point. */
static pl_status check_locale(void)
{
    const char *point = localeconv()->decimal_point;
    PL_FAIL_IF(strcmp(point, ".") != 0, PL_ERR_CONFIG,
               "this process writes numbers with \"%s\" in place of \".\": call "
               "setlocale(LC_NUMERIC, \"C\") after setting its locale",
               point);
    return PL_OK;
}

pl_status pl_config_new(const pl_config_entry *const *tables, int n_tables, pl_config **out)
{
    PL_TRY(check_locale());
    pl_config *c = pl_sys_alloc(sizeof *c);
    if (!c) return PL_ERR_MEMORY;
    pl_status rc = fill(c, tables, n_tables);
    if (rc != PL_OK)
        pl_config_free(c);
    else
        *out = c;
    return rc;
}

void pl_config_free(pl_config *c)
{
    if (!c) return;
    pl_arena_release(&c->arena);
    pl_sys_free(c);
}

void pl_config_set_presets(pl_config *c, pl_config_find_fn find, void *ctx)
{
    c->find = find;
    c->find_ctx = ctx;
}

/* ---- walking a document ----------------------------------------------------------------- */

int pl_text_nearest(const char *word, const char *const *words, int n)
{
    size_t len = strlen(word);
    int best = -1, least = len <= 3 ? 2 : len <= 6 ? 3 : 4; /* fewer edits than this are near */
    for (int i = 0; i < n; i++) {
        int d = pl_str_distance(word, words[i]);
        if (d >= least) continue;
        least = d;
        best = i;
    }
    return best;
}

/* Most edits between a word of that length and a word that may have been meant. */
static int near_edits(size_t length)
{
    int edits = (int)length / 3 + 1;
    return edits < NEAR ? edits : NEAR;
}

/* The number of letters at the beginning that both words have. */
static int same_start(const char *a, const char *b)
{
    int n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

bool pl_config_nearest(const pl_config *c, const char *path, char *buf, size_t cap)
{
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path, *best = NULL;
    int best_d = near_edits(strlen(path)) + 1, best_n = 0, best_start = 0;
    for (int i = 0; i < c->n; i++) {
        const char *key = c->entry[i]->key;
        for (size_t n = strcspn(key, ".");; n += 1 + strcspn(key + n + 1, ".")) {
            char part[64];
            snprintf(part, sizeof part, "%.*s", (int)n, key);
            int d = pl_str_distance(path, part);
            /* Where the group is right, the edits are all in the last word. */
            bool same_group = dot && strncmp(path, part, (size_t)(last - path)) == 0;
            bool own_group = strncmp(path, part, n) == 0 && path[n] == '.';
            /* `los` is loss and not log: a letter is left out more often than mistyped. */
            int start = same_start(path, part);
            if ((d < best_d || (best && d == best_d && start > best_start)) && !own_group &&
                !(same_group && d > near_edits(strlen(last)))) {
                best_d = d;
                best_start = start;
                best = key;
                best_n = (int)n;
            }
            if (!key[n]) break;
        }
    }
    /* A whole word of another group is meant more often than a word two edits away. Of several
     * groups that have it, train: every recipe has that one. */
    bool whole = false;
    for (int i = 0; best_d > 1 && i < c->n; i++) {
        const char *key = c->entry[i]->key, *key_dot = strrchr(key, '.');
        if (strcmp(key_dot ? key_dot + 1 : key, last) != 0) continue;
        if (whole && strncmp(key, "train.", 6) != 0) continue;
        whole = true;
        best = key;
        best_n = (int)strlen(key);
    }
    if (best) snprintf(buf, cap, "%.*s", best_n, best);
    return best != NULL;
}

/* Lists the next words of the keys that begin with the first `group` bytes of a path, as "a, b"; of
 * a long list, the beginning. false: there are none. */
static bool group_keys(const pl_config *c, const char *path, size_t group, char *out, size_t cap)
{
    size_t n = 0;
    for (int i = 0; group && i < c->n; i++) {
        const char *key = c->entry[i]->key, *word = key + group;
        if (strncmp(key, path, group) != 0) continue;
        size_t len = strcspn(word, ".");
        bool repeated = i > 0 && strncmp(c->entry[i - 1]->key, key, group + len) == 0 &&
                        strchr(".", c->entry[i - 1]->key[group + len]);
        if (repeated) continue;
        if (n + len + 8 > cap) {
            snprintf(out + n, cap - n, ", ...");
            return true;
        }
        n += (size_t)snprintf(out + n, cap - n, "%s%.*s", n ? ", " : "", (int)len, word);
    }
    return n > 0;
}

static pl_status unknown(const pl_config *c, const config_source *s, const pl_yaml *at,
                         const char *path)
{
    char near[120], keys[240];
    const char *ours, *note, *dot = strrchr(path, '.');
    bool hinted = pl_config_hint(c, path, &ours, &note);
    if (hinted && !ours)
        return pl__config_fail(s, at, "unknown key %.80s; no such key is needed: %s", path, note);
    if (hinted)
        return pl__config_fail(s, at, "unknown key %.80s; did you mean %s?%s%s%s", path, ours,
                               note ? " (" : "", note ? note : "", note ? ")" : "");
    bool found = pl_config_nearest(c, path, near, sizeof near);
    size_t group = dot ? (size_t)(dot - path) + 1 : 0;
    bool listed = !(found && strncmp(near, path, group) == 0) &&
                  group_keys(c, path, group, keys, sizeof keys);
    return pl__config_fail(s, at, "unknown key %.80s%s%s%s%s%s%s", path,
                           found ? "; did you mean " : "", found ? near : "", found ? "?" : "",
                           !listed ? ""
                           : found ? " (keys of this group: "
                                   : "; keys of this group: ",
                           listed ? keys : "", listed && found ? ")" : "");
}

static pl_status set_value(pl_config *c, const config_source *s, int i, const pl_yaml *node)
{
    config_value v = {0}, *old = &c->value[i];
    if (old->load == c->n_loads && old->where)
        return pl__config_fail(s, node, "%s is set twice, before at %d:%d", c->entry[i]->key,
                               old->line, old->column);
    PL_TRY(pl__config_parse(&c->arena, c->entry[i], s, node, &v));
    v.line = node->line;
    v.column = node->column;
    v.where = s->override
                  ? s->file
                  : pl_arena_printf(&c->arena, "%s:%d:%d", s->file, node->line, node->column);
    if (!v.where) return PL_ERR_MEMORY;
    v.load = c->n_loads;
    *old = v;
    return PL_OK;
}

static pl_status walk(pl_config *c, const config_source *s, const pl_yaml *mapping,
                      const char *prefix);

static pl_status walk_key(pl_config *c, const config_source *s, const pl_yaml *at, const char *path,
                          const pl_yaml *node)
{
    const char *rest;
    int i = pl__config_find(c, path);
    if (i >= 0) return set_value(c, s, i, node);
    if ((i = pl__tree_entry(c, path, &rest)) >= 0) return pl__tree_set(c, s, i, rest, node);
    if (!is_section(c, path)) return unknown(c, s, at, path);
    if (node->kind == PL_YAML_MAPPING) return walk(c, s, node, path);
    if (pl__yaml_is_null(node)) return PL_OK; /* a section whose keys are all commented out */
    return pl__config_fail(s, node, "%s is a section with keys below it, not a value", path);
}

/* Paths are as deep as the schema's keys: a longer path is not a section, and fails. */
static pl_status walk(pl_config *c, const config_source *s, const pl_yaml *mapping,
                      const char *prefix)
{
    for (const pl_yaml *v = mapping->first; v; v = v->next) {
        const char *key = v->key->text;
        if (!prefix && strcmp(key, "extends") == 0) continue;
        pl_str path = PL_STR_INIT;
        if (prefix) pl_str_addf(&path, "%s.", prefix);
        pl_str_add(&path, key);
        pl_status rc = path.failed ? PL_ERR_MEMORY : walk_key(c, s, v->key, path.text, v);
        pl_str_release(&path);
        PL_TRY(rc);
    }
    return PL_OK;
}

/* ---- documents and what they extend ----------------------------------------------------- */

typedef struct document {
    const char *name; /* path, or the preset's name */
    const char *text;
    size_t len;
    char *owned; /* text read from a file */
    bool file;
    dev_t device; /* of a file: its identity, for every path to it */
    ino_t inode;
    const struct document *parent; /* the document that extends this one */
    const pl_yaml *root;
} document;

typedef struct finder {
    pl_config_find_fn find;
    void *ctx;
    pl_arena *arena; /* names and trees */
} finder;

/* Returns the path of `name` relative to the folder of a file. */
static const char *path_beside(pl_arena *a, const document *from, const char *name)
{
    const char *slash = from && from->file ? strrchr(from->name, '/') : NULL;
    if (name[0] == '/' || !slash) return pl_arena_strdup(a, name);
    return pl_arena_printf(a, "%.*s%s", (int)(slash - from->name) + 1, from->name, name);
}

static pl_status find_document(const finder *f, const char *name, document *d)
{
    const char *preset = f->find ? f->find(f->ctx, name) : NULL;
    if (preset) {
        d->name = pl_arena_strdup(f->arena, name);
        d->text = preset;
        d->len = strlen(preset);
        return d->name ? PL_OK : PL_ERR_MEMORY;
    }
    struct stat st;
    d->name = path_beside(f->arena, d->parent, name);
    if (!d->name) return PL_ERR_MEMORY;
    PL_FAIL_IF(stat(d->name, &st) != 0, PL_ERR_CONFIG,
               "there is no preset \"%.80s\" and no file %.200s", name, d->name);
    pl_status rc = pl_sys_read_file(d->name, PL_YAML_MAX_BYTES, &d->owned, &d->len);
    if (rc != PL_OK) return rc == PL_ERR_MEMORY ? rc : PL_ERR_CONFIG; /* the message is kept */
    d->text = d->owned;
    d->file = true;
    d->device = st.st_dev;
    d->inode = st.st_ino;
    return PL_OK;
}

static bool same_document(const document *a, const document *b)
{
    if (a->file != b->file) return false;
    return a->file ? a->device == b->device && a->inode == b->inode : strcmp(a->name, b->name) == 0;
}

static pl_status parse_document(const finder *f, document *d)
{
    int depth = 0;
    for (const document *p = d->parent; p; p = p->parent, depth++)
        PL_FAIL_IF(same_document(p, d), PL_ERR_CONFIG, "%.200s extends itself, through %.200s",
                   d->name, d->parent->name);
    PL_FAIL_IF(depth >= MAX_EXTENDS, PL_ERR_CONFIG,
               "%.200s: a chain of extends has more than %d files", d->name, MAX_EXTENDS);
    PL_TRY(pl_yaml_parse(d->text, d->len, d->name, f->arena, &d->root));
    config_source s = {.file = d->name};
    if (d->root && d->root->kind != PL_YAML_MAPPING && !pl__yaml_is_null(d->root))
        return pl__config_fail(&s, d->root, "a configuration is a mapping (key: value), this is %s",
                               pl_yaml_kind_text(d->root));
    return PL_OK;
}

/* The name d extends, or NULL. */
static pl_status get_extends(const document *d, const char **out)
{
    const pl_yaml *e = pl_yaml_get(d->root, "extends");
    config_source s = {.file = d->name};
    *out = NULL;
    if (!e || pl__yaml_is_null(e)) return PL_OK;
    if (e->kind != PL_YAML_SCALAR || !e->text[0])
        return pl__config_fail(&s, e, "extends: the name of one preset or file is expected");
    *out = e->text;
    return PL_OK;
}

/* Finds and parses what d extends into *base; *has is false when it extends nothing. */
static pl_status open_base(const finder *f, const document *d, document *base, bool *has)
{
    const char *name = NULL;
    PL_TRY(get_extends(d, &name));
    *has = name != NULL;
    if (!name) return PL_OK;
    *base = (document){.parent = d};
    pl_status rc = find_document(f, name, base);
    if (rc == PL_OK) return parse_document(f, base);
    const pl_yaml *at = pl_yaml_get(d->root, "extends");
    if (rc == PL_ERR_MEMORY) return rc;
    return pl__fail_prefix(PL_ERR_CONFIG, "%.200s:%d:%d: extends", d->name, at->line, at->column);
}

/* Applies what d extends, then the values of d. */
static pl_status apply(pl_config *c, const finder *f, const document *d)
{
    document base = {0};
    bool has = false;
    pl_status rc = open_base(f, d, &base, &has);
    if (rc == PL_OK && has) rc = apply(c, f, &base);
    if (rc == PL_OK && d->root && d->root->kind == PL_YAML_MAPPING) {
        config_source s = {.file = pl_arena_strdup(&c->arena, d->name)};
        c->n_loads++;
        rc = s.file ? walk(c, &s, d->root, NULL) : PL_ERR_MEMORY;
    }
    pl_sys_free(base.owned);
    return rc;
}

/* Applies d; on failure the values do not change. */
static pl_status load(pl_config *c, const finder *f, const document *d)
{
    size_t bytes = (size_t)c->n * sizeof *c->value;
    config_value *old = pl_arena_alloc(f->arena, bytes);
    if (!old) return PL_ERR_MEMORY;
    memcpy(old, c->value, bytes);
    pl_status rc = apply(c, f, d);
    if (rc != PL_OK) memcpy(c->value, old, bytes);
    return rc;
}

pl_status pl_config_apply(pl_config *c, const char *file, const pl_yaml *mapping, bool dry)
{
    pl_arena scratch = PL_ARENA_INIT;
    size_t bytes = (size_t)c->n * sizeof *c->value;
    config_value *old = pl_arena_alloc(&scratch, bytes);
    config_source s = {.file = pl_arena_strdup(&c->arena, file)};
    pl_status rc = old && s.file ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK) {
        memcpy(old, c->value, bytes);
        c->n_loads++;
        rc = walk(c, &s, mapping, NULL);
        if (rc != PL_OK || dry) memcpy(c->value, old, bytes);
    }
    pl_arena_release(&scratch);
    return rc;
}

pl_status pl_config_load(pl_config *c, const char *name_or_path)
{
    pl_arena scratch = PL_ARENA_INIT;
    finder f = {c->find, c->find_ctx, &scratch};
    document d = {0};
    pl_status rc = find_document(&f, name_or_path, &d);
    if (rc == PL_OK) rc = parse_document(&f, &d);
    if (rc == PL_OK) rc = load(c, &f, &d);
    pl_sys_free(d.owned);
    pl_arena_release(&scratch);
    return rc;
}

pl_status pl_config_load_text(pl_config *c, const char *name, const char *text, size_t len)
{
    pl_arena scratch = PL_ARENA_INIT;
    finder f = {c->find, c->find_ctx, &scratch};
    document d = {.name = name, .text = text, .len = len};
    struct stat st;
    if (strchr(name, '/') && stat(name, &st) == 0) { /* text of a file that is there */
        d.file = true;
        d.device = st.st_dev;
        d.inode = st.st_ino;
    }
    pl_status rc = parse_document(&f, &d);
    if (rc == PL_OK) rc = load(c, &f, &d);
    pl_arena_release(&scratch);
    return rc;
}

/* The node of a key, or of a path of keys, "text_config.heads"; NULL: none. */
static const pl_yaml *node_at(const pl_yaml *node, const char *key)
{
    const pl_yaml *hit = pl_yaml_get(node, key);
    for (const char *dot; !hit && node && (dot = strchr(key, '.')); key = dot + 1) {
        char part[64];
        snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
        node = pl_yaml_get(node, part);
        hit = pl_yaml_get(node, dot + 1);
    }
    return hit;
}

pl_status pl_config_peek(const char *name_or_path, const char *key, pl_config_find_fn find,
                         void *ctx, char **text)
{
    pl_arena scratch = PL_ARENA_INIT;
    finder f = {find, ctx, &scratch};
    document chain[MAX_EXTENDS + 2] = {0};
    int n = 1;
    bool more = true;
    const pl_yaml *hit = NULL;
    pl_status rc = find_document(&f, name_or_path, &chain[0]);
    if (rc == PL_OK) rc = parse_document(&f, &chain[0]);
    while (rc == PL_OK && more && !(hit = node_at(chain[n - 1].root, key))) {
        rc = open_base(&f, &chain[n - 1], &chain[n], &more);
        n += more; /* parse_document bounds the chain */
    }
    pl_str copy = PL_STR_INIT;
    if (rc == PL_OK) *text = NULL;
    if (rc == PL_OK && hit && hit->kind == PL_YAML_SCALAR) {
        pl_str_add(&copy, hit->text);
        rc = pl_str_take(&copy, text);
    }
    for (int i = 0; i < n; i++) pl_sys_free(chain[i].owned);
    pl_arena_release(&scratch);
    return rc;
}

/* ---- overrides -------------------------------------------------------------------------- */

/* Text keys take the rest of the argument unchanged, unless it is quoted: the shell has already
 * processed quotes, and a path may contain anything. */
static pl_status override_node(const pl_config *c, int i, const config_source *s, const char *value,
                               pl_arena *scratch, const pl_yaml **out)
{
    pl_yaml *raw = pl_arena_new(scratch, pl_yaml, 1);
    if (!raw) return PL_ERR_MEMORY;
    *raw = (pl_yaml){.kind = PL_YAML_SCALAR, .plain = true, .text = value, .line = 1, .column = 1};
    *out = raw;
    bool text =
        i >= 0 && (c->entry[i]->type == PL_CONFIG_TEXT || c->entry[i]->type == PL_CONFIG_CHOICE);
    if (text && value[0] != '"' && value[0] != '\'') {
        if (!pl_utf8_valid(value, strlen(value)))
            return pl__config_fail(s, NULL, "the value is not UTF-8");
        return PL_OK;
    }
    const pl_yaml *node = NULL;
    PL_TRY(pl_yaml_parse(value, strlen(value), s->override, scratch, &node));
    if (node) *out = node;
    return PL_OK;
}

pl_status pl_config_override(pl_config *c, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    PL_FAIL_IF(!equals || equals == assignment, PL_ERR_CONFIG,
               "override \"%.100s\": key=value is expected, e.g. train.steps=500", assignment);
    pl_arena scratch = PL_ARENA_INIT;
    config_source s = {.file = "command line", .override = assignment};
    const pl_yaml *node = NULL;
    char *key = pl_arena_strndup(&scratch, assignment, (size_t)(equals - assignment));
    size_t bytes = (size_t)c->n * sizeof *c->value;
    config_value *old = key ? pl_arena_alloc(&scratch, bytes) : NULL;
    pl_status rc = old ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK) {
        memcpy(old, c->value, bytes);
        rc = override_node(c, pl__config_find(c, key), &s, equals + 1, &scratch, &node);
    }
    if (rc == PL_OK) {
        c->n_loads++;
        rc = walk_key(c, &s, NULL, key, node);
        if (rc != PL_OK) memcpy(c->value, old, bytes);
    }
    pl_arena_release(&scratch);
    return rc;
}

pl_status pl_config_check(const pl_config *c)
{
    for (int i = 0; i < c->n; i++)
        PL_FAIL_IF(!c->value[i].set, PL_ERR_CONFIG,
                   "%s has no value and needs one (%.150s); set it in the file or give %s=...",
                   c->entry[i]->key, c->entry[i]->doc, c->entry[i]->key);
    return PL_OK;
}
