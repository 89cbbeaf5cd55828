/* config_value.c - one configuration value: from a YAML node by its entry's type, and back to
 * text.
 *
 * Plain scalars mean what YAML 1.2's core schema says: only true and false are booleans, 012 is
 * twelve, quotes make text. In addition, a whole float (1e6) counts as an integer, and sizes and
 * durations have units. Every message says what was given, what is expected, and shows an example.
 */
#include "io/config_int.h"
#include "io/json.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct type_row {
    const char *expected, *example;
} type_rows[] = {
    [PL_CONFIG_BOOL] = {"true or false", "true"},
    [PL_CONFIG_INT] = {"a whole number", "8"},
    [PL_CONFIG_FLOAT] = {"a number", "0.001"},
    [PL_CONFIG_TEXT] = {"text", "some-text"},
    [PL_CONFIG_CHOICE] = {"one word", "word"},
    [PL_CONFIG_SIZE] = {"a size in bytes", "7.5GiB"},
    [PL_CONFIG_DURATION] = {"a duration", "30min"},
    [PL_CONFIG_INTS] = {"a list of whole numbers", "[32, 64]"},
    [PL_CONFIG_FLOATS] = {"a list of numbers", "[0.9, 0.999]"},
    [PL_CONFIG_TEXTS] = {"a list of texts", "[a, b]"},
    [PL_CONFIG_TREE] = {"a list or a mapping", "[{name: a}]"},
};

const char *pl__config_expected(pl_config_type type)
{
    return type_rows[type].expected;
}

pl_status pl__config_fail(const config_source *s, const pl_yaml *node, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    PL_FAIL_IF(s->override, PL_ERR_CONFIG, "override %.100s: %s", s->override, what);
    PL_FAIL_IF(!node, PL_ERR_CONFIG, "%.200s: %s", s->file, what);
    PL_FAIL_IF(!node->line, PL_ERR_CONFIG, "command line: %s", what);
    PL_FAIL(PL_ERR_CONFIG, "%.200s:%d:%d: %s", s->file, node->line, node->column, what);
}

/* ---- the core schema -------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

static bool core_null(const char *t)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    return is_one_of(t, words, 5);
}

bool pl__yaml_is_null(const pl_yaml *node)
{
    return !node || (node->kind == PL_YAML_SCALAR && node->plain && core_null(node->text));
}

static bool core_bool(const char *t, bool *out)
{
    static const char *const words[] = {"true", "True", "TRUE", "false", "False", "FALSE"};
    *out = is_one_of(t, words, 3);
    return *out || is_one_of(t, words + 3, 3);
}

static size_t digits(const char *t)
{
    return strspn(t, "0123456789");
}

/* [-+]? ( .d+ | d+ (. d*)? ) ( [eE] [-+]? d+ )?  Returns its length, 0 if t does not begin so.
 */
static size_t float_length(const char *t)
{
    const char *p = t + (*t == '-' || *t == '+');
    size_t whole = digits(p), part = p[whole] == '.' ? digits(p + whole + 1) : 0;
    if (whole + part == 0) return 0;
    p += whole + (p[whole] == '.') + part;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1 + (p[1] == '-' || p[1] == '+');
        if (digits(q)) p = q + digits(q);
    }
    return (size_t)(p - t);
}

static bool core_float(const char *t, double *out)
{
    const char *unsigned_part = t + (*t == '-' || *t == '+');
    static const char *const inf[] = {".inf", ".Inf", ".INF"};
    if (is_one_of(unsigned_part, inf, 3)) {
        *out = *t == '-' ? -HUGE_VAL : HUGE_VAL;
        return true;
    }
    size_t n = float_length(t);
    if (n == 0 || t[n] != 0) return false;
    *out = strtod(t, NULL);
    return true;
}

/* Parses the integer forms of the core schema, and floats that are whole and exact. */
static bool core_int(const char *t, int64_t *out)
{
    int base = t[0] == '0' && t[1] == 'x' ? 16 : t[0] == '0' && t[1] == 'o' ? 8 : 10;
    const char *p = base == 10 ? t + (*t == '-' || *t == '+') : t + 2;
    const char *set = base == 16 ? "0123456789abcdefABCDEF" : base == 8 ? "01234567" : "0123456789";
    size_t most = base == 16 ? 15 : 18; /* digits that cannot overflow */
    if (*p && p[strspn(p, set)] == 0 && strlen(p) <= most) {
        *out = (int64_t)strtoll(base == 10 ? t : p, NULL, base);
        return true;
    }
    double f;
    if (base != 10 || !core_float(t, &f) || !(fabs(f) <= 0x1p53) || floor(f) != f) return false;
    *out = (int64_t)f;
    return true;
}

/* ---- messages --------------------------------------------------------------------------- */

static const char *leaf(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

static bool is_list(pl_config_type t)
{
    return t == PL_CONFIG_INTS || t == PL_CONFIG_FLOATS || t == PL_CONFIG_TEXTS;
}

/* One value in the place of a list is shown as a list of one. */
static const char *example(const pl_config_entry *e, const pl_yaml *node, char *buf, size_t cap)
{
    if (is_list(e->type) && node->kind == PL_YAML_SCALAR && !pl__yaml_is_null(node)) {
        snprintf(buf, cap, "[%.40s]", node->text);
        return buf;
    }
    if (e->fallback && e->fallback[0] && !core_null(e->fallback)) return e->fallback;
    if (e->type != PL_CONFIG_CHOICE) return type_rows[e->type].example;
    snprintf(buf, cap, "%.*s", (int)strcspn(e->choices, "|"), e->choices);
    return buf;
}

static pl_status wrong_type(const pl_config_entry *e, const config_source *s, const pl_yaml *node,
                            const char *hint)
{
    char buf[64], given[64];
    const char *quote = node->plain ? "" : "\"";
    if (node->kind != PL_YAML_SCALAR)
        snprintf(given, sizeof given, "%s", pl_yaml_kind_text(node));
    else if (pl__yaml_is_null(node))
        snprintf(given, sizeof given, "nothing (null)");
    else
        snprintf(given, sizeof given, "%s%.40s%s", quote, node->text, quote);
    return pl__config_fail(s, node, "%s: %s is expected, %s was given%s; write e.g. %s: %s", e->key,
                           type_rows[e->type].expected, given, hint, leaf(e->key),
                           example(e, node, buf, sizeof buf));
}

static pl_status check_range(const pl_config_entry *e, const config_source *s, const pl_yaml *node,
                             double v)
{
    if (e->min == 0 && e->max == 0) return PL_OK;
    if (v >= e->min && v <= e->max) return PL_OK;
    if (isinf(e->max))
        return pl__config_fail(s, node, "%s: %.40s is out of range, it must be at least %.15g",
                               e->key, node->text, e->min);
    if (isinf(e->min))
        return pl__config_fail(s, node, "%s: %.40s is out of range, it must be at most %.15g",
                               e->key, node->text, e->max);
    return pl__config_fail(s, node, "%s: %.40s is out of range, it must be from %.15g to %.15g",
                           e->key, node->text, e->min, e->max);
}

/* ---- one scalar of each kind ------------------------------------------------------------ */

/* A quoted number is text; the message says so, because the digits look right. */
static const char *quote_hint(const pl_yaml *node)
{
    return node->kind == PL_YAML_SCALAR && !node->plain ? " in quotes (remove them)" : "";
}

static pl_status parse_bool(const pl_config_entry *e, const config_source *s, const pl_yaml *node,
                            bool *out)
{
    if (!node->plain || !core_bool(node->text, out))
        return wrong_type(e, s, node, quote_hint(node));
    return PL_OK;
}

static pl_status parse_int(const pl_config_entry *e, const config_source *s, const pl_yaml *node,
                           int64_t *out)
{
    if (node->kind != PL_YAML_SCALAR || !node->plain || !core_int(node->text, out))
        return wrong_type(e, s, node, quote_hint(node));
    return check_range(e, s, node, (double)*out);
}

static pl_status parse_float(const pl_config_entry *e, const config_source *s, const pl_yaml *node,
                             double *out)
{
    int64_t i;
    if (node->kind != PL_YAML_SCALAR || !node->plain)
        return wrong_type(e, s, node, quote_hint(node));
    if (!core_float(node->text, out)) { /* 0x10 and 0o17 are numbers too */
        if (!core_int(node->text, &i)) return wrong_type(e, s, node, "");
        *out = (double)i;
    }
    return check_range(e, s, node, *out);
}

static pl_status parse_text(pl_arena *a, const pl_config_entry *e, const config_source *s,
                            const pl_yaml *node, const char **out)
{
    if (node->kind != PL_YAML_SCALAR) return wrong_type(e, s, node, "");
    *out = pl_arena_strdup(a, node->text);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

static pl_status parse_choice(pl_arena *a, const pl_config_entry *e, const config_source *s,
                              const pl_yaml *node, const char **out)
{
    char near[96] = "";
    int best = 3;
    for (const char *p = e->choices; *p;) {
        size_t n = strcspn(p, "|");
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        if (strcmp(word, node->text) == 0) return parse_text(a, e, s, node, out);
        int d = pl_str_distance(word, node->text);
        if (d < best) {
            best = d;
            snprintf(near, sizeof near, "; did you mean %s?", word);
        }
        p += n + (p[n] == '|');
    }
    const char *meant = pl__config_value_hint(e->key, node->text);
    if (meant) snprintf(near, sizeof near, "; did you mean %s?", meant);
    return pl__config_fail(s, node, "%s: \"%.40s\" is not one of %.200s%s", e->key, node->text,
                           e->choices, near);
}

static pl_status parse_size(const pl_config_entry *e, const config_source *s, const pl_yaml *node,
                            int64_t *out)
{
    const char *t = node->text;
    uint64_t bytes;
    bool hex = t[0] == '0' && (t[1] == 'x' || t[1] == 'X');
    if (!(isdigit((unsigned char)t[0]) || t[0] == '.') || hex ||
        pl_str_parse_bytes(t, &bytes) != PL_OK)
        return wrong_type(e, s, node, "");
    *out = (int64_t)bytes; /* below 2^60 */
    return check_range(e, s, node, (double)bytes);
}

static pl_status parse_duration(const pl_config_entry *e, const config_source *s,
                                const pl_yaml *node, double *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1},     {"s", 1},  {"sec", 1},  {"ms", 1e-3},
                 {"min", 60}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    const char *t = node->text;
    size_t n = *t == '-' || *t == '+' ? 0 : float_length(t);
    const char *unit = t + n + strspn(t + n, " ");
    for (size_t i = 0; n && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].unit) != 0) continue;
        *out = strtod(t, NULL) * units[i].seconds;
        if (!isfinite(*out)) break;
        return check_range(e, s, node, *out);
    }
    return wrong_type(e, s, node, "");
}

/* ---- lists ------------------------------------------------------------------------------ */

static pl_status parse_list(pl_arena *a, const pl_config_entry *e, const config_source *s,
                            const pl_yaml *node, config_value *v)
{
    if (node->kind != PL_YAML_SEQUENCE) return wrong_type(e, s, node, "");
    v->n = node->n_items;
    v->ints = pl_arena_alloc(a, 8 * (size_t)v->n); /* every kind of item has 8 bytes */
    if (!v->ints) return PL_ERR_MEMORY;
    int i = 0;
    for (const pl_yaml *item = node->first; item; item = item->next, i++) {
        if (e->type == PL_CONFIG_INTS) PL_TRY(parse_int(e, s, item, &v->ints[i]));
        if (e->type == PL_CONFIG_FLOATS) PL_TRY(parse_float(e, s, item, &v->floats[i]));
        if (e->type == PL_CONFIG_TEXTS) PL_TRY(parse_text(a, e, s, item, &v->texts[i]));
    }
    return PL_OK;
}

_Static_assert(sizeof(const char *) == 8 && sizeof(double) == 8, "items of lists have 8 bytes");

static pl_status parse_tree(pl_arena *a, const pl_config_entry *e, const config_source *s,
                            const pl_yaml *node, config_value *v)
{
    if (node->kind == PL_YAML_SCALAR) return wrong_type(e, s, node, "");
    v->tree = pl__tree_copy(a, node, !s->override);
    v->file = s->file;
    return v->tree ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl__config_parse(pl_arena *a, const pl_config_entry *e, const config_source *s,
                           const pl_yaml *node, config_value *out)
{
    config_value v = {.set = true};
    pl_status rc = PL_OK;
    bool list = e->type >= PL_CONFIG_INTS;
    if (pl__yaml_is_null(node)) {
        if (!e->fallback || !core_null(e->fallback)) return wrong_type(e, s, node, "");
        v.null = true;
    } else if (!list && node->kind != PL_YAML_SCALAR) {
        return wrong_type(e, s, node, "");
    } else {
        switch (e->type) {
        case PL_CONFIG_BOOL: rc = parse_bool(e, s, node, &v.b); break;
        case PL_CONFIG_INT: rc = parse_int(e, s, node, &v.i); break;
        case PL_CONFIG_FLOAT: rc = parse_float(e, s, node, &v.f); break;
        case PL_CONFIG_TEXT: rc = parse_text(a, e, s, node, &v.s); break;
        case PL_CONFIG_CHOICE: rc = parse_choice(a, e, s, node, &v.s); break;
        case PL_CONFIG_SIZE: rc = parse_size(e, s, node, &v.i); break;
        case PL_CONFIG_DURATION: rc = parse_duration(e, s, node, &v.f); break;
        case PL_CONFIG_INTS:
        case PL_CONFIG_FLOATS:
        case PL_CONFIG_TEXTS: rc = parse_list(a, e, s, node, &v); break;
        case PL_CONFIG_TREE: rc = parse_tree(a, e, s, node, &v); break;
        }
    }
    if (rc == PL_OK) *out = v;
    return rc;
}

/* ---- back to text ----------------------------------------------------------------------- */

static void format_float(double v, pl_str *out)
{
    char buf[PL_FLOAT_TEXT_BYTES];
    pl_str_add(out, isfinite(v) ? pl_float_text(v, buf) : v > 0 ? ".inf" : "-.inf");
}

/* Plain where no YAML reader, also of 1.1, could misread it. */
void pl__text_format(const char *t, pl_str *out)
{
    static const char *const words[] = {"yes", "no",  "on", "off", "y",   "n",  "Yes", "No",
                                        "On",  "Off", "Y",  "N",   "YES", "NO", "ON",  "OFF"};
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    bool b, plain = (isalpha((unsigned char)t[0]) || t[0] == '/' || t[0] == '_') &&
                    t[strspn(t, safe)] == 0 && !core_null(t) && !core_bool(t, &b) &&
                    !is_one_of(t, words, (int)(sizeof words / sizeof words[0]));
    if (plain)
        pl_str_add(out, t);
    else
        pl_json_quote(out, t, strlen(t));
}

/* In the unit that leaves the smallest number. 22.4 MB are also 21875 KiB, a number that nobody
 * types. */
static void format_size(int64_t bytes, pl_str *out)
{
    static const char *const units[2][5] = {{"", "KiB", "MiB", "GiB", "TiB"},
                                            {"", "KB", "MB", "GB", "TB"}};
    int64_t left[2] = {bytes, bytes};
    int u[2] = {0};
    for (int k = 0; k < 2; k++)
        for (int base = k ? 1000 : 1024; u[k] < 4 && left[k] && left[k] % base == 0; u[k]++)
            left[k] /= base;
    int k = left[1] < left[0] || (u[0] == 1 && u[1] && left[1] < 2 * left[0]);
    pl_str_addf(out, "%lld%s", (long long)left[k], units[k][u[k]]);
}

static void format_list(const pl_config_entry *e, const config_value *v, pl_str *out)
{
    pl_str_add(out, "[");
    for (int i = 0; i < v->n; i++) {
        if (i) pl_str_add(out, ", ");
        if (e->type == PL_CONFIG_INTS) pl_str_addf(out, "%lld", (long long)v->ints[i]);
        if (e->type == PL_CONFIG_FLOATS) format_float(v->floats[i], out);
        if (e->type == PL_CONFIG_TEXTS) pl__text_format(v->texts[i], out);
    }
    pl_str_add(out, "]");
}

void pl__config_format(const pl_config_entry *e, const config_value *v, pl_str *out)
{
    if (!v->set || v->null) {
        pl_str_add(out, "null");
        return;
    }
    switch (e->type) {
    case PL_CONFIG_BOOL: pl_str_add(out, v->b ? "true" : "false"); break;
    case PL_CONFIG_INT: pl_str_addf(out, "%lld", (long long)v->i); break;
    case PL_CONFIG_FLOAT: format_float(v->f, out); break;
    case PL_CONFIG_TEXT:
    case PL_CONFIG_CHOICE: pl__text_format(v->s, out); break;
    case PL_CONFIG_SIZE: format_size(v->i, out); break;
    case PL_CONFIG_DURATION:
        format_float(v->f, out);
        pl_str_add(out, "s");
        break;
    case PL_CONFIG_INTS:
    case PL_CONFIG_FLOATS:
    case PL_CONFIG_TEXTS: format_list(e, v, out); break;
    case PL_CONFIG_TREE: pl__tree_format(v->tree, out); break;
    }
}
