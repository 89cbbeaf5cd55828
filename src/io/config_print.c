/* config_print.c - a configuration as commented YAML, its hash, and what differs between two.
 *
 * Tables may separate the keys of one section, and YAML needs each section once. So printing goes
 * section by section: first the keys directly in it, in the order of the tables, then each section
 * below it, in the order of first appearance.
 */
#include "base/sys.h"
#include "io/config_int.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

/* Whether key lies below the section prefix[0..n) (n 0: the top); sets *rest to the rest of the
 * key. */
static bool below(const char *key, const char *prefix, size_t n, const char **rest)
{
    if (n && (strncmp(key, prefix, n) != 0 || key[n] != '.')) return false;
    *rest = n ? key + n + 1 : key;
    return true;
}

static void print_comment(const pl_config_entry *e, int indent, pl_str *out)
{
    pl_str_addf(out, "%*s# %s", indent, "", e->doc);
    if (e->choices) pl_str_addf(out, " [%s]", e->choices);
    bool limits = e->min != 0 || e->max != 0;
    if (limits && isinf(e->max))
        pl_str_addf(out, " [at least %.15g]", e->min);
    else if (limits && isinf(e->min))
        pl_str_addf(out, " [at most %.15g]", e->max);
    else if (limits)
        pl_str_addf(out, " [%.15g to %.15g]", e->min, e->max);
    pl_str_add(out, "\n");
}

static void print_entry(const pl_config_entry *e, const config_value *v, const char *leaf,
                        int indent, pl_str *out)
{
    print_comment(e, indent, out);
    pl_str_addf(out, "%*s%s%s: ", indent, "", v->set ? "" : "# required, not set: ", leaf);
    if (v->set) pl__config_format(e, v, out);
    pl_str_add(out, "\n");
}

static bool any_set(const pl_config *c, const char *prefix, size_t n)
{
    const char *rest;
    for (int i = 0; i < c->n; i++)
        if (c->value[i].set && below(c->entry[i]->key, prefix, n, &rest)) return true;
    return false;
}

static bool is_key(const pl_config *c, const char *key, size_t n)
{
    for (int i = 0; i < c->n; i++)
        if (strncmp(c->entry[i]->key, key, n) == 0 && !c->entry[i]->key[n]) return true;
    return false;
}

/* Keys below a key that has a value itself, which YAML cannot nest: "init_from.missing: allow". */
static void print_dotted(const pl_config *c, const char *prefix, size_t n, size_t skip, int indent,
                         pl_str *out)
{
    const char *rest;
    for (int i = 0; i < c->n; i++)
        if (below(c->entry[i]->key, prefix, n, &rest))
            print_entry(c->entry[i], &c->value[i], c->entry[i]->key + skip, indent, out);
}

/* Depth of the recursion is the number of dots in a key of the schema. */
static void print_section(const pl_config *c, const char *prefix, size_t n, int indent, pl_str *out)
{
    const char *rest, *earlier;
    for (int i = 0; i < c->n; i++)
        if (below(c->entry[i]->key, prefix, n, &rest) && !strchr(rest, '.'))
            print_entry(c->entry[i], &c->value[i], rest, indent, out);
    for (int i = 0; i < c->n; i++) {
        const char *key = c->entry[i]->key;
        if (!below(key, prefix, n, &rest) || !strchr(rest, '.')) continue;
        size_t m = (size_t)(strchr(rest, '.') - key);
        bool seen = false;
        for (int j = 0; j < i && !seen; j++) seen = below(c->entry[j]->key, key, m, &earlier);
        if (seen) continue;
        if (is_key(c, key, m)) {
            print_dotted(c, key, m, n ? n + 1 : 0, indent, out);
            continue;
        }
        if (indent == 0) pl_str_add(out, "\n");
        pl_str_addf(out, "%*s%.*s:%s\n", indent, "", (int)(key + m - rest), rest,
                    any_set(c, key, m) ? "" : " {}");
        print_section(c, key, m, indent + 2, out);
    }
}

pl_status pl_config_print(const pl_config *c, char **text)
{
    pl_str out = PL_STR_INIT;
    print_section(c, "", 0, 0, &out);
    return pl_str_take(&out, text);
}

/* ---- hash ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    return XXH3_64bits_withSeed(data, n, h);
}

/* Chained: the hash so far is the seed of the next piece, so nothing need be collected. Lengths are
 * hashed too, so that pieces cannot run into each other. */
static uint64_t mix_text(uint64_t h, const char *s)
{
    uint64_t n = strlen(s);
    return mix(mix(h, &n, sizeof n), s, n);
}

static uint64_t mix_tree(uint64_t h, const pl_yaml *tree)
{
    pl_str text = PL_STR_INIT;
    pl__tree_format(tree, &text);
    if (!text.failed) h = mix_text(h, text.text);
    pl_str_release(&text);
    return h;
}

static uint64_t mix_value(uint64_t h, const pl_config_entry *e, const config_value *v)
{
    int32_t state[4] = {(int32_t)e->type, v->set, v->null, v->n};
    h = mix(h, state, sizeof state);
    if (!v->set || v->null) return h;
    switch (e->type) {
    case PL_CONFIG_BOOL: return mix(h, &(uint8_t){v->b}, 1);
    case PL_CONFIG_INT:
    case PL_CONFIG_SIZE: return mix(h, &v->i, 8);
    case PL_CONFIG_FLOAT:
    case PL_CONFIG_DURATION: return mix(h, &v->f, 8);
    case PL_CONFIG_TEXT:
    case PL_CONFIG_CHOICE: return mix_text(h, v->s);
    case PL_CONFIG_INTS:
    case PL_CONFIG_FLOATS: return mix(h, v->ints, 8 * (size_t)v->n);
    case PL_CONFIG_TEXTS: break;
    case PL_CONFIG_TREE: return mix_tree(h, v->tree);
    }
    for (int i = 0; i < v->n; i++) h = mix_text(h, v->texts[i]);
    return h;
}

uint64_t pl_config_hash(const pl_config *c)
{
    uint64_t h = 0;
    for (int i = 0; i < c->n; i++) {
        int k = c->by_key[i];
        h = mix_value(mix_text(h, c->entry[k]->key), c->entry[k], &c->value[k]);
    }
    return h;
}

/* ---- difference ------------------------------------------------------------------------- */

typedef void (*diff_fn)(void *ctx, const char *key, const char *old_value, const char *new_value);

/* Formats entry k of c, or nothing for k < 0, and returns the text or NULL. */
static const char *text_of(const pl_config *c, int k, pl_str *out)
{
    out->len = 0;
    if (k < 0) return NULL;
    pl__config_format(c->entry[k], &c->value[k], out);
    return out->text;
}

/* Merges the two sorted lists of keys. */
pl_status pl_config_diff(const pl_config *a, const pl_config *b, diff_fn each, void *ctx)
{
    pl_str x = PL_STR_INIT, y = PL_STR_INIT;
    for (int i = 0, j = 0; (i < a->n || j < b->n) && !x.failed && !y.failed;) {
        const char *p = i < a->n ? a->entry[a->by_key[i]]->key : NULL;
        const char *q = j < b->n ? b->entry[b->by_key[j]]->key : NULL;
        int order = !p ? 1 : !q ? -1 : strcmp(p, q);
        const char *s = text_of(a, order <= 0 ? a->by_key[i++] : -1, &x);
        const char *t = text_of(b, order >= 0 ? b->by_key[j++] : -1, &y);
        if (x.failed || y.failed) break;
        if (!s || !t || strcmp(s, t) != 0) each(ctx, order <= 0 ? p : q, s, t);
    }
    bool failed = x.failed || y.failed;
    pl_str_release(&x);
    pl_str_release(&y);
    PL_FAIL_IF(failed, PL_ERR_MEMORY, "out of memory while comparing configurations");
    return PL_OK;
}
