/* config_tree.c - values that are trees: copies, parts that an override changes, text.
 *
 * A path into a tree follows the key: phases.0.set.optim.lr. An item of a list is found by its
 * number or by its member `name`, and * means every item. In a mapping the rest of the path is one
 * key with dots in it, or a key and a path below it, whichever exists: a configuration may be
 * written either way. A path that does not exist is added.
 *
 * Overrides never change trees in place: a load that fails restores the old values.
 */
#include "io/config_tree.h"

#include "base/sys.h"
#include "io/config_int.h"
#include "io/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Depth of the recursions is bounded by yaml.h's levels. */
pl_yaml *pl__tree_copy(pl_arena *a, const pl_yaml *node, bool placed)
{
    pl_yaml *copy = pl_arena_new(a, pl_yaml, 1), **end = copy ? &copy->first : NULL;
    if (!copy) return NULL;
    *copy = *node;
    copy->first = copy->next = NULL;
    if (!placed) copy->line = 0;
    if (node->text && !(copy->text = pl_arena_strdup(a, node->text))) return NULL;
    if (node->key && !(copy->key = pl__tree_copy(a, node->key, placed))) return NULL;
    for (const pl_yaml *item = node->first; item; item = item->next) {
        if (!(*end = pl__tree_copy(a, item, placed))) return NULL;
        end = &(*end)->next;
    }
    return copy;
}

int pl__tree_entry(const pl_config *c, const char *path, const char **rest)
{
    for (int i = 0; i < c->n; i++) {
        const char *key = c->entry[i]->key;
        size_t n = strlen(key);
        if (c->entry[i]->type != PL_CONFIG_TREE || strncmp(path, key, n) != 0 || path[n] != '.')
            continue;
        *rest = path + n + 1;
        return i;
    }
    return -1;
}

/* ---- changing a part -------------------------------------------------------------------- */
typedef struct edit {
    pl_arena *arena;
    const config_source *s;
    const char *key; /* of the entry */
    const pl_yaml *value;
} edit;

static pl_status place(const edit *e, pl_yaml *node, const char *path);

/* Replaces the node by the value. */
static pl_status replace(const edit *e, pl_yaml *node)
{
    pl_yaml *copy = pl__tree_copy(e->arena, e->value, !e->s->override);
    if (!copy) return PL_ERR_MEMORY;
    copy->next = node->next;
    copy->key = node->key;
    *node = *copy;
    return PL_OK;
}

static pl_status place_below(const edit *e, pl_yaml *node, const char *rest)
{
    return *rest ? place(e, node, rest) : replace(e, node);
}

static pl_status add_key(const edit *e, pl_yaml *mapping, const char *path)
{
    pl_yaml **end = &mapping->first, *copy = pl__tree_copy(e->arena, e->value, !e->s->override);
    pl_yaml *key = pl_arena_new(e->arena, pl_yaml, 1);
    if (!copy || !key) return PL_ERR_MEMORY;
    *key = (pl_yaml){
        .kind = PL_YAML_SCALAR, .plain = true, .line = copy->line, .column = copy->column};
    if (!(key->text = pl_arena_strdup(e->arena, path))) return PL_ERR_MEMORY;
    copy->key = key;
    copy->next = NULL;
    while (*end) end = &(*end)->next;
    *end = copy;
    mapping->n_items++;
    return PL_OK;
}

static bool is_item(const pl_yaml *item, int number, const char *name, size_t n)
{
    char text[16];
    const pl_yaml *own = pl_yaml_get(item, "name");
    snprintf(text, sizeof text, "%d", number);
    if (n == 1 && name[0] == '*') return true;
    if (strlen(text) == n && memcmp(text, name, n) == 0) return true;
    return own && own->kind == PL_YAML_SCALAR && strlen(own->text) == n &&
           memcmp(own->text, name, n) == 0;
}

static pl_status place_in_list(const edit *e, pl_yaml *list, const char *path)
{
    size_t n = strcspn(path, ".");
    const char *rest = path[n] ? path + n + 1 : path + n;
    pl_str names = PL_STR_INIT;
    int number = 0, found = 0;
    for (pl_yaml *item = list->first; item; item = item->next, number++) {
        if (!is_item(item, number, path, n)) continue;
        PL_TRY(place_below(e, item, rest));
        found++;
    }
    if (found) return PL_OK;
    number = 0;
    for (const pl_yaml *item = list->first; item; item = item->next, number++) {
        const pl_yaml *name = pl_yaml_get(item, "name");
        pl_str_addf(&names, "%s%d", number ? ", " : "", number);
        if (name && name->text) pl_str_addf(&names, " (%s)", name->text);
    }
    pl_status rc = pl__config_fail(e->s, e->value, "%s has no item \"%.*s\"; it has %.200s", e->key,
                                   (int)n, path, names.failed || !names.len ? "none" : names.text);
    pl_str_release(&names);
    return rc;
}

static pl_status place_in_mapping(const edit *e, pl_yaml *mapping, const char *path)
{
    int found = 0;
    for (pl_yaml *v = mapping->first; v; v = v->next) {
        const char *key = v->key->text;
        size_t n = strlen(key);
        bool all = path[0] == '*' && path[1] == '.';
        if (strcmp(key, path) == 0) return replace(e, v);
        if (all) {
            PL_TRY(place(e, v, path + 2));
            found++;
        } else if (strncmp(path, key, n) == 0 && path[n] == '.' && v->kind != PL_YAML_SCALAR) {
            return place(e, v, path + n + 1);
        }
    }
    return found ? PL_OK : add_key(e, mapping, path);
}

static pl_status place(const edit *e, pl_yaml *node, const char *path)
{
    if (node->kind == PL_YAML_SEQUENCE) return place_in_list(e, node, path);
    if (node->kind == PL_YAML_MAPPING) return place_in_mapping(e, node, path);
    return pl__config_fail(e->s, e->value, "%s: there is nothing below \"%.80s\" (%.80s)", e->key,
                           node->text, path);
}

pl_status pl__tree_set(pl_config *c, const config_source *s, int i, const char *path,
                       const pl_yaml *node)
{
    config_value *v = &c->value[i];
    if (v->null) {
        pl_yaml *empty = pl_arena_new(&c->arena, pl_yaml, 1);
        if (!empty) return PL_ERR_MEMORY;
        empty->kind = PL_YAML_MAPPING;
        *v = (config_value){.set = true, .tree = empty, .file = s->file};
    }
    pl_yaml *tree = pl__tree_copy(&c->arena, v->tree, true);
    if (!tree) return PL_ERR_MEMORY;
    PL_TRY(place(&(edit){&c->arena, s, c->entry[i]->key, node}, tree, path));
    v->tree = tree;
    v->where = s->file;
    v->load = c->n_loads;
    return PL_OK;
}

/* ---- text ------------------------------------------------------------------------------- */
/* Quotes plain text that a list on one line would break: numbers, words and sizes never are. */
static void format_scalar(const pl_yaml *node, pl_str *out)
{
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (!node->plain)
        pl_json_quote(out, node->text, strlen(node->text));
    else if (pl__yaml_is_null(node))
        pl_str_add(out, "null");
    else if (node->text[strspn(node->text, safe)] == 0)
        pl_str_add(out, node->text);
    else
        pl_json_quote(out, node->text, strlen(node->text));
}

void pl__tree_format(const pl_yaml *node, pl_str *out)
{
    bool list = node->kind == PL_YAML_SEQUENCE;
    if (node->kind == PL_YAML_SCALAR) {
        format_scalar(node, out);
        return;
    }
    pl_str_add(out, list ? "[" : "{");
    for (const pl_yaml *item = node->first; item; item = item->next) {
        if (item != node->first) pl_str_add(out, ", ");
        if (!list) {
            pl__text_format(item->key->text, out);
            pl_str_add(out, ": ");
        }
        pl__tree_format(item, out);
    }
    pl_str_add(out, list ? "]" : "}");
}

pl_status pl_yaml_print(const pl_yaml *node, char **text)
{
    pl_str out = PL_STR_INIT;
    pl__tree_format(node, &out);
    return pl_str_take(&out, text);
}

/* ---- for the library -------------------------------------------------------------------- */
static config_value *tree_value(const pl_config *c, const char *key)
{
    int i = pl__config_find(c, key);
    if (i < 0 || c->entry[i]->type != PL_CONFIG_TREE)
        PL_BUG("config: no tree \"%s\" in the schema", key);
    return &c->value[i];
}

const pl_yaml *pl_config_tree(const pl_config *c, const char *key)
{
    const config_value *v = tree_value(c, key);
    return v->set && !v->null ? v->tree : NULL;
}

pl_yaml *pl_config_tree_edit(pl_config *c, const char *key)
{
    config_value *v = tree_value(c, key);
    pl_yaml *copy = pl__tree_copy(&c->arena, v->tree, true);
    if (copy) v->tree = copy;
    return copy;
}

const char *pl_config_pair(const pl_config *c, const char *key, int i, const char **value)
{
    const pl_yaml *tree = pl_config_tree(c, key), *at = tree ? tree->first : NULL;
    for (; at && i > 0; i--) at = at->next;
    if (!at || !at->key || at->kind != PL_YAML_SCALAR) return NULL;
    *value = at->text;
    return at->key->text;
}

static bool is_number(const pl_yaml *v)
{
    char *end;
    strtod(v->text, &end);
    return end != v->text && !*end;
}

pl_status pl_config_pairs_check(const pl_config *c, const char *key, bool numbers)
{
    const pl_yaml *tree = pl_config_tree(c, key);
    const char *file = pl_config_tree_file(c, key);
    if (tree && tree->kind != PL_YAML_MAPPING)
        return pl_config_fail_at(file, tree, "%s: a mapping is expected, {NAME: %s}, this is %s",
                                 key, numbers ? "NUMBER" : "VALUE", pl_yaml_kind_text(tree));
    for (const pl_yaml *v = tree ? tree->first : NULL; v; v = v->next)
        if (v->kind != PL_YAML_SCALAR || (numbers && !is_number(v)))
            return pl_config_fail_at(file, v, "%s.%s: %s is expected, this is %s%s%s", key,
                                     v->key->text, numbers ? "a number" : "a single value",
                                     v->kind == PL_YAML_SCALAR ? "\"" : pl_yaml_kind_text(v),
                                     v->kind == PL_YAML_SCALAR ? v->text : "",
                                     v->kind == PL_YAML_SCALAR ? "\"" : "");
    return PL_OK;
}

const char *pl_config_tree_file(const pl_config *c, const char *key)
{
    const config_value *v = tree_value(c, key);
    return v->file ? v->file : "default";
}

bool pl_config_is_newest(const pl_config *c, const char *key)
{
    int i = pl__config_find(c, key);
    return i >= 0 && c->value[i].where && c->value[i].load == c->n_loads;
}

pl_status pl_config_fail_at(const char *file, const pl_yaml *node, const char *fmt, ...)
{
    char what[400];
    config_source s = {.file = file};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return pl__config_fail(&s, node, "%s", what);
}
