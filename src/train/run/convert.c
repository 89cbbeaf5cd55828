/* convert.c - a configuration of another program as one of ours (pl_recipe.foreign).
 *
 * The file becomes a list of leaves, each a dotted path with a value. The recipe's function runs
 * first, for keys of ours that several of theirs decide; then the recipe's rows name a key of ours
 * for a leaf, or the reason why none is needed. Each value is checked against the schema before it
 * is written, so the result always loads. A leaf that no row names is listed as not known.
 */
#include "base/str.h"
#include "base/sys.h"
#include "io/yaml.h"
#include "train/run/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct leaf {
    const char *path;
    const pl_yaml *node;
    bool done, refused; /* refused: its value is not what it must be */
    const char *why;    /* reason why no key of ours is needed; NULL: the leaf is converted */
} leaf;

/* A key of ours, its value, and the leaves that the value comes from. */
typedef struct line {
    const char *ours, *value, *from;
} line;

enum { LEAVES = 4096, LINES = 512 };

struct pl_foreign_doc {
    pl_arena mem;
    pl_config *config; /* checks values */
    const pl_yaml *root;
    leaf *leaf;
    line *line;
    int n_leaves, n_lines;
    pl_status rc; /* the first failure */
};

/* ---- leaves ----------------------------------------------------------------------------- */
static bool has_mapping(const pl_yaml *list)
{
    for (const pl_yaml *v = list->first; v; v = v->next)
        if (v->kind == PL_YAML_MAPPING) return true;
    return false;
}

/* Adds the leaves below a node; the parser bounds the depth. */
static pl_status add_leaves(pl_foreign_doc *d, const pl_yaml *node, const char *path)
{
    bool opens =
        node->kind == PL_YAML_MAPPING || (node->kind == PL_YAML_SEQUENCE && has_mapping(node));
    if (!opens || !node->first) {
        PL_FAIL_IF(d->n_leaves == LEAVES, PL_ERR_CONFIG, "more than %d keys", LEAVES);
        d->leaf[d->n_leaves++] = (leaf){.path = path, .node = node};
        return PL_OK;
    }
    int i = 0;
    for (const pl_yaml *v = node->first; v; v = v->next, i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        const char *below = pl_arena_printf(&d->mem, "%s%s%s", path, path[0] ? "." : "",
                                            v->key ? v->key->text : number);
        if (!below) return PL_ERR_MEMORY;
        PL_TRY(add_leaves(d, v, below));
    }
    return PL_OK;
}

static leaf *find_leaf(const pl_foreign_doc *d, const char *path)
{
    for (int i = 0; i < d->n_leaves; i++)
        if (strcmp(d->leaf[i].path, path) == 0) return &d->leaf[i];
    return NULL;
}

static bool is_null(const pl_yaml *v)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    for (int i = 0; i < 5; i++)
        if (v->kind == PL_YAML_SCALAR && v->plain && strcmp(v->text, words[i]) == 0) return true;
    return false;
}

/* ---- values ----------------------------------------------------------------------------- */
/* YAML of a text: plain where that is safe in every place, else in double quotes. */
static void put_text(pl_str *to, const char *text, bool plain)
{
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (plain && (strcmp(text, "True") == 0 || strcmp(text, "TRUE") == 0)) text = "true";
    if (plain && (strcmp(text, "False") == 0 || strcmp(text, "FALSE") == 0)) text = "false";
    if (plain && text[0] && text[strspn(text, safe)] == 0 && strcmp(text, "-") != 0) {
        pl_str_add(to, text);
        return;
    }
    pl_str_add(to, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            pl_str_addf(to, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            pl_str_addf(to, "\\x%02x", c);
        else
            pl_str_addn(to, text, 1);
    }
    pl_str_add(to, "\"");
}

static void put_value(pl_str *to, const pl_yaml *v)
{
    if (v->kind == PL_YAML_SCALAR) {
        put_text(to, v->text, v->plain);
        return;
    }
    bool map = v->kind == PL_YAML_MAPPING;
    pl_str_add(to, map ? "{" : "[");
    for (const pl_yaml *k = v->first; k; k = k->next) {
        if (k != v->first) pl_str_add(to, ", ");
        if (map) put_text(to, k->key->text, true);
        if (map) pl_str_add(to, ": ");
        put_value(to, k);
    }
    pl_str_add(to, map ? "}" : "]");
}

/* Moves the text into the document's memory; NULL: no memory. */
static const char *keep(pl_foreign_doc *d, pl_str *s)
{
    const char *text = s->failed ? NULL : pl_arena_strdup(&d->mem, s->text ? s->text : "");
    pl_str_release(s);
    if (!text) d->rc = PL_ERR_MEMORY;
    return text;
}

/* Looks a word up in "AdamW=adamw|Lion=lion"; false: the word is not there. */
static bool translate(const char *values, const char *word, pl_str *to)
{
    for (size_t n; *values; values += n + (values[n] == '|')) {
        n = strcspn(values, "|");
        size_t k = strcspn(values, "=");
        if (k >= n || k != strlen(word) || memcmp(values, word, k) != 0) continue;
        pl_str_addn(to, values + k + 1, n - k - 1);
        return true;
    }
    return false;
}

/* Writes the value of a leaf as a value of the row's key; false: the row does not know it. */
static bool convert_value(const pl_foreign_doc *d, const pl_foreign_key *row, const pl_yaml *v,
                          pl_str *to)
{
    const pl_config_entry *e = pl_config_row(d->config, row->ours);
    bool list = e && (e->type == PL_CONFIG_INTS || e->type == PL_CONFIG_FLOATS ||
                      e->type == PL_CONFIG_TEXTS);
    if (!list && v->kind == PL_YAML_SEQUENCE && v->first) v = v->first;
    pl_str own = PL_STR_INIT;
    put_value(&own, v);
    bool ok = own.text != NULL;
    if (ok && row->values)
        ok =
            translate(row->values, v->kind == PL_YAML_SCALAR && !v->plain ? v->text : own.text, to);
    else if (ok && row->factor != 0)
        pl_str_addf(to, "%.9g", strtod(own.text, NULL) * row->factor);
    else if (ok && list && v->kind != PL_YAML_SEQUENCE)
        pl_str_addf(to, "[%s]", own.text);
    else if (ok)
        pl_str_add(to, own.text);
    pl_str_release(&own);
    return ok;
}

/* ---- lines ------------------------------------------------------------------------------ */
static bool is_set(const pl_foreign_doc *d, const char *ours)
{
    for (int i = 0; i < d->n_lines; i++)
        if (strcmp(d->line[i].ours, ours) == 0) return true;
    return false;
}

/* Adds a line if the schema takes the value; else *why says why not. */
static bool add_line(pl_foreign_doc *d, const char *ours, const char *value, const char *from,
                     const char **why)
{
    char *text = pl_arena_printf(&d->mem, "%s=%s", ours, value);
    *why = "an earlier key sets the same";
    if (!text || d->n_lines == LINES || is_set(d, ours)) return false;
    if (pl_config_override(d->config, text) != PL_OK) {
        *why = pl_arena_printf(&d->mem, "%s does not take it (%.200s)", ours, pl_error_text());
        return false;
    }
    d->line[d->n_lines++] = (line){ours, value, from};
    return true;
}

static void convert_leaf(pl_foreign_doc *d, const pl_foreign *f, leaf *l)
{
    const pl_foreign_key *row = f->keys;
    while (row->theirs && !pl_nn_match(row->theirs, l->path)) row++;
    if (!row->theirs) return;
    l->done = true;
    l->why = row->why ? row->why : "";
    if (!row->ours) return;
    if (is_null(l->node)) {
        l->why = "no value: the default applies";
        return;
    }
    pl_str to = PL_STR_INIT;
    bool known = convert_value(d, row, l->node, &to);
    const char *value = keep(d, &to);
    if (!value) return;
    if (!known && row->why) return;
    if (!known)
        l->why =
            pl_arena_printf(&d->mem, "this value has no counterpart; %s is the key", row->ours);
    else if (add_line(d, row->ours, value, l->path, &l->why))
        l->why = NULL;
}

/* ---- for the recipes -------------------------------------------------------------------- */
const char *pl_foreign_text(pl_foreign_doc *d, const char *theirs)
{
    const leaf *l = find_leaf(d, theirs);
    return l && l->node->kind == PL_YAML_SCALAR && !is_null(l->node) ? l->node->text : NULL;
}

/* Lists a leaf whose value is not valid; no line is written for it. */
static void refuse(pl_foreign_doc *d, const char *theirs, const char *what)
{
    leaf *l = find_leaf(d, theirs);
    if (!l || l->refused) return;
    l->why = pl_arena_printf(&d->mem, "%s is expected, \"%.60s\" was given", what, l->node->text);
    l->done = l->refused = true;
}

double pl_foreign_number(pl_foreign_doc *d, const char *theirs, double fallback)
{
    const char *text = pl_foreign_text(d, theirs);
    char *end = NULL;
    double v = text ? strtod(text, &end) : fallback;
    if (!text || (end != text && !*end && isfinite(v))) return v;
    refuse(d, theirs, "a number");
    return fallback;
}

int64_t pl_foreign_whole(pl_foreign_doc *d, const char *theirs, int64_t fallback)
{
    double v = pl_foreign_number(d, theirs, (double)fallback);
    if (v >= 0 && v <= 1e9 && v == floor(v)) return (int64_t)v;
    refuse(d, theirs, "a whole number up to 1000000000");
    return fallback;
}

bool pl_foreign_numbers(pl_foreign_doc *d, const char *theirs, int n, double *out)
{
    const leaf *l = find_leaf(d, theirs);
    if (!l || l->node->kind != PL_YAML_SEQUENCE || l->node->n_items != n) return false;
    for (const pl_yaml *v = l->node->first; v; v = v->next) {
        char *end = NULL;
        if (v->kind != PL_YAML_SCALAR) return false;
        *out++ = strtod(v->text, &end);
        if (end == v->text || *end) return false;
    }
    return true;
}

bool pl_foreign_true(pl_foreign_doc *d, const char *theirs)
{
    const char *text = pl_foreign_text(d, theirs);
    return text &&
           (strcmp(text, "true") == 0 || strcmp(text, "True") == 0 || strcmp(text, "TRUE") == 0);
}

int pl_foreign_count(pl_foreign_doc *d, const char *theirs)
{
    const leaf *l = find_leaf(d, theirs);
    char path[256];
    int n = 0;
    if (l) return l->node->kind == PL_YAML_SEQUENCE ? l->node->n_items : 0;
    for (int i = 0; i < d->n_leaves; i++) { /* a list of mappings: the leaves have numbers */
        snprintf(path, sizeof path, "%s.%d.*", theirs, n);
        if (pl_nn_match(path, d->leaf[i].path)) {
            n++;
            i = -1;
        }
    }
    return n;
}

void pl_foreign_set(pl_foreign_doc *d, const char *from, const char *ours, const char *fmt, ...)
{
    char value[4096];
    const char *why;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    char *copy = pl_arena_strdup(&d->mem, value);
    if (n < 0 || (size_t)n >= sizeof value || !copy) return; /* the leaves stay to be converted */
    bool any = false;
    const leaf *refused = NULL;
    for (int i = 0; i < d->n_leaves; i++) {
        if (!pl_nn_match(from, d->leaf[i].path)) continue;
        any = true;
        if (d->leaf[i].refused) refused = &d->leaf[i];
    }
    if (!any) return;
    if (refused) why = refused->why;
    bool taken = !refused && add_line(d, ours, copy, from, &why);
    for (int i = 0; i < d->n_leaves; i++) {
        leaf *l = &d->leaf[i];
        if (!pl_nn_match(from, l->path) || l->done) continue;
        l->done = true;
        l->why = taken ? NULL : why;
    }
}

void pl_foreign_skip(pl_foreign_doc *d, const char *theirs, const char *why)
{
    for (int i = 0; i < d->n_leaves; i++) {
        if (!pl_nn_match(theirs, d->leaf[i].path) || d->leaf[i].done) continue;
        d->leaf[i].done = true;
        d->leaf[i].why = why;
    }
}

/* ---- writing ---------------------------------------------------------------------------- */
/* Adds text of a foreign file to a comment: at most 160 printable characters of ASCII, so that it
 * stays a comment for any content of the file. */
static void put_comment(pl_str *to, const char *text)
{
    for (int n = 0; *text && n < 160; text++, n++) {
        char c = *text >= 0x20 && *text < 0x7f ? *text : '?';
        pl_str_addn(to, &c, 1);
    }
    if (*text) pl_str_add(to, "...");
}

/* Lists the leaves with the same reason together, in lines of a comment. */
static void put_reason(pl_foreign_doc *d, const char *why, pl_str *to)
{
    size_t at = to->len;
    const char *between = "";
    pl_str_add(to, "#   ");
    for (int i = 0; i < d->n_leaves; i++) {
        leaf *l = &d->leaf[i];
        if (!l->why || strcmp(l->why, why) != 0) continue;
        bool full = to->len - at > 80;
        pl_str_addf(to, "%s%s", between, full ? "\n#   " : between[0] ? " " : "");
        if (full) at = to->len;
        put_comment(to, l->path);
        between = ",";
        l->why = NULL;
    }
    pl_str_add(to, to->len - at > 60 ? ":\n#     " : ": ");
    put_comment(to, why);
    pl_str_add(to, "\n");
}

static int put_reasons(pl_foreign_doc *d, pl_str *to)
{
    int n = 0;
    for (int i = 0; i < d->n_leaves; i++) n += d->leaf[i].why != NULL;
    if (n) pl_str_add(to, "\n# Not needed, or to be set by hand:\n");
    for (int i = 0; i < d->n_leaves; i++)
        if (d->leaf[i].why) put_reason(d, d->leaf[i].why, to);
    return n;
}

static int put_unknown(pl_foreign_doc *d, pl_str *to)
{
    int n = 0;
    for (int i = 0; i < d->n_leaves; i++) {
        if (d->leaf[i].done) continue;
        pl_str value = PL_STR_INIT;
        put_value(&value, d->leaf[i].node);
        pl_str_add(to, n++ ? "#   " : "\n# Not known, check by hand:\n#   ");
        put_comment(to, d->leaf[i].path);
        pl_str_add(to, ": ");
        put_comment(to, value.text ? value.text : "");
        pl_str_add(to, "\n");
        pl_str_release(&value);
    }
    return n;
}

static pl_status write_yaml(pl_foreign_doc *d, const pl_foreign *f, const char *path,
                            pl_convert_info *info, char **yaml)
{
    pl_str to = PL_STR_INIT;
    const char *slash = strrchr(path, '/');
    pl_str_add(&to, "# plimsoll convert ");
    put_comment(&to, slash ? slash + 1 : path);
    pl_str_addf(&to, ": %s\nextends: %s\n", f->about, f->preset);
    for (int i = 0; i < d->n_lines; i++) {
        pl_str_addf(&to, "%s: %s  # ", d->line[i].ours, d->line[i].value);
        put_comment(&to, d->line[i].from);
        pl_str_add(&to, "\n");
    }
    info->converted = d->n_lines;
    info->skipped = put_reasons(d, &to);
    info->unknown = put_unknown(d, &to);
    return pl_str_take(&to, yaml);
}

/* ---- whose configuration ---------------------------------------------------------------- */
/* Returns the number of marks if the document has all of them, else 0. */
static int marks_found(const pl_foreign_doc *d, const pl_foreign *f)
{
    int n = 0;
    for (const char *const *m = f->marks; *m; m++, n++) {
        bool found = false;
        for (int i = 0; i < d->n_leaves && !found; i++) found = pl_nn_match(*m, d->leaf[i].path);
        if (!found) return 0;
    }
    return n;
}

static const pl_recipe *recognise(const pl_foreign_doc *d, const char *only, const pl_foreign **of)
{
    const pl_recipe *best = NULL;
    int most = 0;
    for (int i = 0; i < pl_recipe_count(); i++) {
        const pl_recipe *r = pl_recipe_at(i);
        if (only && strcmp(only, r->name) != 0) continue;
        for (const pl_foreign *f = r->foreign; f && f->about; f++) {
            int n = marks_found(d, f) + (only && !best);
            if (n <= most) continue;
            most = n;
            best = r;
            *of = f;
        }
    }
    return best;
}

static pl_status unrecognised(const char *path, const char *only)
{
    pl_str list = PL_STR_INIT;
    for (int i = 0; i < pl_recipe_count(); i++)
        for (const pl_foreign *f = pl_recipe_at(i)->foreign; f && f->about; f++)
            pl_str_addf(&list, "%s%s (%s)", list.len ? ", " : "", f->about, pl_recipe_at(i)->name);
    pl_status rc = only ? pl__fail(PL_ERR_CONFIG, __FILE__, __LINE__,
                                   "there is no conversion to recipe %.60s; there are conversions "
                                   "to %s",
                                   only, list.text ? list.text : "")
                        : pl__fail(PL_ERR_CONFIG, __FILE__, __LINE__,
                                   "%s is not a configuration of a known program: %s; --recipe "
                                   "NAME converts it anyway",
                                   path, list.text ? list.text : "");
    pl_str_release(&list);
    return rc;
}

/* Loads the result as a user would; on failure it is freed. */
static pl_status check_result(pl_run *run, const char *path, char **yaml)
{
    pl_config *c = NULL;
    pl_status rc = pl__run_config_new(run, &c);
    if (rc == PL_OK) rc = pl_config_load_text(c, path, *yaml, strlen(*yaml));
    pl_config_free(c);
    if (rc == PL_OK) return PL_OK;
    pl_text_free(*yaml);
    *yaml = NULL;
    return rc;
}

static pl_status convert(pl_foreign_doc *d, const char *path, const char *only,
                         pl_convert_info *info, char **yaml)
{
    const pl_foreign *f = NULL;
    pl_run *run = NULL;
    PL_FAIL_IF(!d->root || d->root->kind != PL_YAML_MAPPING, PL_ERR_CONFIG,
               "%s is not a configuration: it has no keys", path);
    d->leaf = pl_arena_new(&d->mem, leaf, LEAVES);
    d->line = pl_arena_new(&d->mem, line, LINES);
    if (!d->leaf || !d->line) return PL_ERR_MEMORY;
    PL_TRY(add_leaves(d, d->root, ""));
    const pl_recipe *r = recognise(d, only, &f);
    if (!r) return unrecognised(path, only);
    PL_TRY(pl_run_open(f->preset, NULL, 0, &run));
    pl_status rc = pl__run_config_new(run, &d->config);
    if (rc == PL_OK && f->make) f->make(d);
    for (int i = 0; rc == PL_OK && i < d->n_leaves; i++)
        if (!d->leaf[i].done) convert_leaf(d, f, &d->leaf[i]);
    if (rc == PL_OK) rc = d->rc;
    if (rc == PL_OK) rc = write_yaml(d, f, path, info, yaml);
    if (rc == PL_OK) rc = check_result(run, path, yaml);
    info->recipe = r->name;
    pl_config_free(d->config);
    pl_run_free(run);
    return rc;
}

pl_status pl__convert_text(const char *name, const char *text, size_t len, const char *recipe,
                           pl_convert_info *info, char **yaml)
{
    pl_foreign_doc d = {.rc = PL_OK};
    *info = (pl_convert_info){.recipe = NULL};
    pl_status rc = pl_yaml_parse(text, len, name, &d.mem, &d.root);
    if (rc == PL_OK) rc = convert(&d, name, recipe, info, yaml);
    pl_arena_release(&d.mem);
    return rc;
}

pl_status pl_convert(const char *path, const char *recipe, pl_convert_info *info, char **yaml)
{
    char *text = NULL;
    size_t len = 0;
    pl_status rc = pl_sys_read_file(path, PL_YAML_MAX_BYTES, &text, &len);
    if (rc != PL_OK) return rc == PL_ERR_MEMORY ? rc : PL_ERR_CONFIG; /* the message is kept */
    rc = pl__convert_text(path, text, len, recipe, info, yaml);
    pl_sys_free(text);
    return rc;
}

/* ---- hints about unknown keys ------------------------------------------------------------- */
/* Returns whether an item of a row's list, "training.lr,lr", ends with the word `last`. */
static bool row_ends_with(const char *theirs, const char *last)
{
    size_t want = strlen(last);
    for (const char *item = theirs; *item; item += *item == ',') {
        size_t n = strcspn(item, ","), word = n;
        while (word > 0 && item[word - 1] != '.') word--;
        if (n - word == want && strncasecmp(item + word, last, want) == 0) return true;
        item += n;
    }
    return false;
}

bool pl__foreign_hint(void *recipe, const char *key, const char **ours, const char **note)
{
    const pl_recipe *r = recipe;
    const char *dot = strrchr(key, '.'), *last = dot ? dot + 1 : key;
    const pl_foreign_key *found = NULL;
    for (const pl_foreign *f = r->foreign; f && f->about; f++)
        for (const pl_foreign_key *k = f->keys; k->theirs; k++)
            if ((!found || (!found->ours && k->ours)) && row_ends_with(k->theirs, last)) found = k;
    if (!found) return false;
    *ours = found->ours;
    *note = found->why;
    return true;
}
