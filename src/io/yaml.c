/* yaml.c - builds the tree of yaml.h from libfyaml's events.
 *
 * Events are used instead of the library's own document tree so that every limit (nodes, levels,
 * aliases) is checked while parsing, and nothing that grows with hostile input is built first. The
 * builder keeps a stack of open collections; an anchor is a list entry that points to its finished
 * node, so an alias inside its own anchor finds nothing and is an error, and the tree is finite.
 *
 * A text that looks like JSON is first searched for // and block comments: YAML would read them as
 * part of a plain scalar and report a misleading error.
 */
#include "io/yaml.h"

#include "io/json.h"

#include <errno.h>
#include <libfyaml.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_NODES = 20000,
    MAX_LEVELS = 32,
    MAX_ALIASES = 100,
    MAX_BLANK_LINES = 200,
    MAX_SPACES = 500
};

typedef struct anchor {
    const char *name;
    const pl_yaml *node; /* NULL while it is open */
    struct anchor *next;
} anchor;

typedef struct level {
    pl_yaml *node;
    pl_yaml *last; /* last item */
    pl_yaml *key;  /* mapping: key waiting for its value */
    anchor *anchor;
} level;

typedef struct builder {
    const char *name;
    pl_arena *arena;
    pl_yaml *root;
    anchor *anchors;
    int depth, n_nodes, n_aliases, n_documents;
    level stack[MAX_LEVELS];
} builder;

const pl_yaml *pl_yaml_get(const pl_yaml *node, const char *key)
{
    if (!node || node->kind != PL_YAML_MAPPING) return NULL;
    for (const pl_yaml *v = node->first; v; v = v->next)
        if (strcmp(v->key->text, key) == 0) return v;
    return NULL;
}

const char *pl_yaml_kind_text(const pl_yaml *node)
{
    return node->kind == PL_YAML_MAPPING    ? "a mapping"
           : node->kind == PL_YAML_SEQUENCE ? "a list"
                                            : "a value";
}

#define FAIL_AT(b, node, ...) return fail_at((b)->name, (node)->line, (node)->column, __VA_ARGS__)

static pl_status fail_at(const char *name, int line, int column, const char *what,
                         const char *detail)
{
    PL_FAIL(PL_ERR_CONFIG, "%.200s:%d:%d: %s%.100s", name, line, column, what, detail);
}

/* ---- comments in JSON ------------------------------------------------------------------- */

/* Consecutive blank lines are counted because libfyaml takes quadratic time for them in a block
 * scalar: minutes for a text of the allowed size. */
static pl_status check_characters(const char *text, size_t len, const char *name)
{
    PL_FAIL_IF(!pl_utf8_valid(text, len), PL_ERR_CONFIG, "%.200s: not a text in UTF-8", name);
    int line = 1, breaks = 0, spaces = 0;
    size_t line_start = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') {
            line++;
            line_start = i + 1;
        }
        PL_FAIL_IF((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F, PL_ERR_CONFIG,
                   "%.200s:%d:%d: a control character (0x%02x); in double quotes write \\x%02x",
                   name, line, (int)(i - line_start) + 1, c, c);
        bool space = c == ' ' || c == '\t', newline = c == '\n' || c == '\r';
        spaces = space ? spaces + 1 : 0;
        breaks = newline ? breaks + 1 : space ? breaks : 0;
        PL_FAIL_IF(breaks > MAX_BLANK_LINES || spaces > MAX_SPACES, PL_ERR_CONFIG,
                   "%.200s:%d:%d: more than %d blank lines, or %d spaces, in a row", name, line,
                   (int)(i - line_start) + 1, MAX_BLANK_LINES, MAX_SPACES);
    }
    return PL_OK;
}

static bool looks_like_json(const char *text, size_t len, const char *name)
{
    size_t n = strlen(name), i = 0;
    if (n >= 5 && strcmp(name + n - 5, ".json") == 0) return true;
    while (i < len && strchr(" \t\r\n", text[i])) i++;
    return i < len && text[i] == '{';
}

/* A C comment begins where a JSON token could: after white space or punctuation, not inside double
 * quotes, not after a YAML comment's #, and not in the middle of a plain scalar (a URL). */
static pl_status check_json_comments(const char *text, size_t len, const char *name)
{
    int line = 1;
    size_t line_start = 0;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i], before = i ? text[i - 1] : ' ';
        if (c == '\n') {
            line++;
            line_start = i + 1;
        } else if (quoted) {
            if (c == '\\' && i + 1 < len && text[i + 1] != '\n') i++;
            if (c == '"') quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '#' && strchr(" \t\n", before)) {
            while (i + 1 < len && text[i + 1] != '\n') i++;
        } else if (c == '/' && i + 1 < len && (text[i + 1] == '/' || text[i + 1] == '*') &&
                   strchr(" \t\r\n,{}[]\"", before)) {
            PL_FAIL(PL_ERR_CONFIG,
                    "%.200s:%d:%d: JSON has no comments; rename the file to .yaml and begin "
                    "comments with # (the rest of the file is valid YAML)",
                    name, line, (int)(i - line_start) + 1);
        }
    }
    return PL_OK;
}

/* ---- building --------------------------------------------------------------------------- */

static pl_status new_node(builder *b, pl_yaml_kind kind, int line, int column, pl_yaml **out)
{
    if (++b->n_nodes > MAX_NODES)
        return fail_at(b->name, line, column, "too many values for a configuration", "");
    pl_yaml *n = pl_arena_new(b->arena, pl_yaml, 1);
    if (!n) return PL_ERR_MEMORY;
    n->kind = kind;
    n->line = line;
    n->column = column;
    *out = n;
    return PL_OK;
}

static pl_status take_key(builder *b, level *l, pl_yaml *node)
{
    if (node->kind != PL_YAML_SCALAR)
        FAIL_AT(b, node, "a key must be text, not ", pl_yaml_kind_text(node));
    if (node->plain && strcmp(node->text, "<<") == 0)
        FAIL_AT(b, node,
                "merge keys (<<) are not read; use extends:, or an alias for the whole mapping",
                "");
    if (pl_yaml_get(l->node, node->text)) FAIL_AT(b, node, "this key is set twice: ", node->text);
    l->key = node;
    return PL_OK;
}

/* Adds a complete or newly opened node to its parent. */
static pl_status place(builder *b, pl_yaml *node)
{
    if (b->depth == 0) {
        b->root = node;
        return PL_OK;
    }
    level *l = &b->stack[b->depth - 1];
    if (l->node->kind == PL_YAML_MAPPING && !l->key) return take_key(b, l, node);
    node->key = l->key;
    l->key = NULL;
    if (l->last)
        l->last->next = node;
    else
        l->node->first = node;
    l->last = node;
    l->node->n_items++;
    return PL_OK;
}

/* Copies an anchored node for an alias at line:column; text is shared. */
static pl_status copy_tree(builder *b, const pl_yaml *from, int line, int column, int levels,
                           pl_yaml **out)
{
    if (levels > MAX_LEVELS) return fail_at(b->name, line, column, "nested too deep", "");
    pl_yaml *n = NULL, **tail;
    PL_TRY(new_node(b, from->kind, line, column, &n));
    n->plain = from->plain;
    n->text = from->text;
    n->n_items = from->n_items;
    tail = &n->first;
    for (const pl_yaml *c = from->first; c; c = c->next) {
        PL_TRY(copy_tree(b, c, line, column, levels + 1, tail));
        (*tail)->key = c->key;
        tail = &(*tail)->next;
    }
    *out = n;
    return PL_OK;
}

static pl_status token_text(builder *b, struct fy_token *t, int line, int column, const char **out)
{
    size_t n = 0;
    const char *text = t ? fy_token_get_text(t, &n) : "";
    if (!text) {
        text = "";
        n = 0;
    }
    if (memchr(text, 0, n) || !pl_utf8_valid(text, n))
        return fail_at(b->name, line, column, "text with a zero byte or bad UTF-8", "");
    *out = pl_arena_strndup(b->arena, text, n);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

/* Records the anchor of a node. An anchor may be set again: the latest counts. */
static pl_status note_anchor(builder *b, struct fy_token *t, const pl_yaml *at, anchor **out)
{
    *out = NULL;
    if (!t) return PL_OK;
    anchor *a = pl_arena_new(b->arena, anchor, 1);
    if (!a) return PL_ERR_MEMORY;
    PL_TRY(token_text(b, t, at->line, at->column, &a->name));
    a->next = b->anchors;
    b->anchors = a;
    *out = a;
    return PL_OK;
}

static pl_status on_scalar(builder *b, struct fy_event *e, int line, int column)
{
    pl_yaml *n = NULL;
    anchor *a = NULL;
    PL_TRY(new_node(b, PL_YAML_SCALAR, line, column, &n));
    if (e->scalar.tag) FAIL_AT(b, n, "tags (!...) are not read in a configuration", "");
    PL_TRY(token_text(b, e->scalar.value, line, column, &n->text));
    n->plain = !e->scalar.value || fy_token_scalar_style(e->scalar.value) == FYSS_PLAIN;
    PL_TRY(note_anchor(b, e->scalar.anchor, n, &a));
    if (a) a->node = n;
    return place(b, n);
}

static pl_status on_open(builder *b, pl_yaml_kind kind, struct fy_token *tag,
                         struct fy_token *anchor_token, int line, int column)
{
    pl_yaml *n = NULL;
    PL_TRY(new_node(b, kind, line, column, &n));
    if (tag) FAIL_AT(b, n, "tags (!...) are not read in a configuration", "");
    if (b->depth == MAX_LEVELS) FAIL_AT(b, n, "nested too deep", "");
    PL_TRY(place(b, n));
    level *l = &b->stack[b->depth++];
    *l = (level){.node = n};
    return note_anchor(b, anchor_token, n, &l->anchor);
}

static pl_status on_close(builder *b)
{
    level *l = &b->stack[--b->depth];
    if (l->anchor) l->anchor->node = l->node;
    return PL_OK;
}

static pl_status on_alias(builder *b, struct fy_event *e, int line, int column)
{
    const char *name = NULL;
    pl_yaml *n = NULL;
    PL_TRY(token_text(b, e->alias.anchor, line, column, &name));
    if (++b->n_aliases > MAX_ALIASES) return fail_at(b->name, line, column, "too many aliases", "");
    const anchor *a = b->anchors;
    while (a && strcmp(a->name, name) != 0) a = a->next;
    if (!a || !a->node)
        return fail_at(b->name, line, column, "no complete anchor of this name before: *", name);
    PL_TRY(copy_tree(b, a->node, line, column, b->depth, &n));
    return place(b, n);
}

static pl_status on_event(builder *b, struct fy_event *e)
{
    const struct fy_mark *m = fy_event_start_mark(e);
    int line = m ? m->line + 1 : 1, column = m ? m->column + 1 : 1;
    switch (e->type) {
    case FYET_DOCUMENT_START:
        if (++b->n_documents > 1)
            return fail_at(b->name, line, column, "a second document; a configuration is one", "");
        return PL_OK;
    case FYET_SCALAR: return on_scalar(b, e, line, column);
    case FYET_ALIAS: return on_alias(b, e, line, column);
    case FYET_MAPPING_START:
        return on_open(b, PL_YAML_MAPPING, e->mapping_start.tag, e->mapping_start.anchor, line,
                       column);
    case FYET_SEQUENCE_START:
        return on_open(b, PL_YAML_SEQUENCE, e->sequence_start.tag, e->sequence_start.anchor, line,
                       column);
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END: return on_close(b);
    default: return PL_OK;
    }
}

/* ---- parsing ---------------------------------------------------------------------------- */

/* Converts the first error that libfyaml collected. */
static pl_status library_error(struct fy_diag *diag, const char *name)
{
    void *at = NULL;
    const struct fy_diag_error *e = fy_diag_errors_iterate(diag, &at);
    PL_FAIL_IF((!e || !e->msg) && errno == ENOMEM, PL_ERR_MEMORY,
               "out of memory for the YAML parser");
    PL_FAIL_IF(!e || !e->msg, PL_ERR_CONFIG, "%.200s: not valid YAML", name);
    return fail_at(name, e->line > 0 ? e->line : 1, e->column > 0 ? e->column : 1,
                   "not valid YAML: ", e->msg);
}

static pl_status parse_events(builder *b, const char *text, size_t len, struct fy_diag *diag)
{
    struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG |
                                        FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
                               .diag = diag};
    struct fy_parser *p = fy_parser_create(&cfg);
    pl_status rc = PL_OK;
    errno = 0; /* libfyaml does not say that memory was the reason */
    if (!p || fy_parser_set_string(p, text, len) != 0)
        rc = pl__fail(PL_ERR_MEMORY, __FILE__, __LINE__, "out of memory for the YAML parser");
    for (struct fy_event *e; rc == PL_OK && (e = fy_parser_parse(p)) != NULL;) {
        rc = on_event(b, e);
        bool end = e->type == FYET_STREAM_END;
        fy_parser_event_free(p, e);
        if (end) break;
    }
    if (rc == PL_OK && fy_parser_get_stream_error(p)) rc = library_error(diag, b->name);
    if (p) fy_parser_destroy(p);
    return rc;
}

pl_status pl_yaml_parse(const char *text, size_t len, const char *name, pl_arena *arena,
                        const pl_yaml **out)
{
    PL_FAIL_IF(len > PL_YAML_MAX_BYTES, PL_ERR_CONFIG,
               "%.200s has %zu bytes; a configuration may have at most %d", name, len,
               PL_YAML_MAX_BYTES);
    PL_TRY(check_characters(text, len, name));
    if (looks_like_json(text, len, name)) PL_TRY(check_json_comments(text, len, name));
    builder *b = pl_arena_new(arena, builder, 1);
    if (!b) return PL_ERR_MEMORY;
    b->name = name;
    b->arena = arena;
    struct fy_diag_cfg dcfg;
    fy_diag_cfg_default(&dcfg);
    dcfg.fp = NULL;
    dcfg.colorize = false;
    struct fy_diag *diag = fy_diag_create(&dcfg);
    PL_FAIL_IF(!diag, PL_ERR_MEMORY, "out of memory for the YAML parser");
    fy_diag_set_collect_errors(diag, true);
    pl_status rc = parse_events(b, text, len, diag);
    fy_diag_destroy(diag);
    if (rc == PL_OK) *out = b->root;
    return rc;
}
