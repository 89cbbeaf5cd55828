/* captions.c - texts, labels and weights that come beside the images.
 *
 * metadata.jsonl has one object a line, keyed by "file_name" (Hugging Face's rule); a file of lines
 * has NAME<tab>CAPTION; labels.csv has a column of names and one of classes. Names are paths below
 * the root. A line that names no image of the set is allowed: the image may have been removed. A
 * file in which no line names an image of the set is an error: the file belongs to other images. A
 * line that cannot be read is an error with the number of the line.
 */
#include "data/sets/items_int.h"

#include "base/sys.h"
#include "plimsoll_table.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TEXT = 1 << 30 };

static int by_name(const void *a, const void *b)
{
    const pl_item *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static pl_item *find(pl_item **sorted, int64_t n, const char *name)
{
    pl_item key = {.name = name}, *p = &key;
    pl_item **hit = bsearch(&p, sorted, (size_t)n, sizeof *sorted, by_name);
    return hit ? *hit : NULL;
}

static const char *text_of(const json_t *o)
{
    static const char *const keys[] = {"text", "caption", "prompt"};
    const char *text = NULL;
    for (size_t i = 0; !text && i < sizeof keys / sizeof *keys; i++)
        text = json_string_value(json_object_get(o, keys[i]));
    return text;
}

pl_status pl__sample_json(pl_arena *mem, const char *json, size_t n, const char **text,
                          int64_t *label)
{
    json_t *o = json_loadb(json, n, JSON_REJECT_DUPLICATES, NULL);
    pl_status rc = json_is_object(o) ? PL_OK : PL_ERR_DATA;
    const char *found = rc == PL_OK ? text_of(o) : NULL;
    json_t *number = rc == PL_OK ? json_object_get(o, "label") : NULL;
    if (found && !(*text = pl_arena_strdup(mem, found))) rc = PL_ERR_MEMORY;
    if (json_is_integer(number)) *label = json_integer_value(number);
    json_decref(o);
    return rc;
}

/* "label": the name of a class, or its number. */
static pl_status read_label(pl_items *s, pl_item *i, const json_t *label)
{
    const char *name = json_string_value(label);
    json_int_t number = json_integer_value(label);
    if (name) {
        PL_FAIL_IF(!name[0], PL_ERR_DATA, "the label is an empty text");
        i->labelled = PL_LABEL_NAME;
        s->named = true;
        return pl__items_class(s, name, &i->label);
    }
    PL_FAIL_IF(!json_is_integer(label), PL_ERR_DATA,
               "the label is neither the name of a class nor a whole number");
    PL_FAIL_IF(number < 0 || number > INT32_MAX, PL_ERR_DATA, "label %lld", (long long)number);
    i->labelled = PL_LABEL_NUMBER;
    i->label = (int32_t)number;
    return PL_OK;
}

static pl_status read_object(pl_items *s, pl_item **sorted, const json_t *o, int64_t *found)
{
    const char *name = json_string_value(json_object_get(o, "file_name"));
    PL_FAIL_IF(!name, PL_ERR_DATA, "the line has no \"file_name\"");
    pl_item *i = find(sorted, s->n, name);
    if (!i) return PL_OK;
    ++*found;
    const char *text = text_of(o);
    const json_t *label = json_object_get(o, "label"), *weight = json_object_get(o, "weight");
    if (text && !(i->caption = pl_arena_strdup(&s->mem, text))) return PL_ERR_MEMORY;
    if (label && !json_is_null(label)) PL_TRY(read_label(s, i, label));
    if (json_is_number(weight)) i->weight = (float)json_number_value(weight);
    PL_FAIL_IF(!(i->weight >= 0 && i->weight <= 1e30f), PL_ERR_DATA, "weight %g",
               (double)i->weight);
    return PL_OK;
}

static pl_status json_line(pl_items *s, pl_item **sorted, const char *line, size_t n,
                           int64_t *found)
{
    json_error_t e;
    json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, &e);
    PL_FAIL_IF(!o, PL_ERR_DATA, "%s", e.text);
    pl_status rc = read_object(s, sorted, o, found);
    json_decref(o);
    return rc;
}

static pl_status tab_line(pl_items *s, pl_item **sorted, char *line, int64_t *found)
{
    char *tab = strchr(line, '\t');
    PL_FAIL_IF(!tab, PL_ERR_DATA, "the line has no tab between name and caption");
    *tab = 0;
    pl_item *i = find(sorted, s->n, line);
    *found += i != NULL;
    if (i && !(i->caption = pl_arena_strdup(&s->mem, tab + 1))) return PL_ERR_MEMORY;
    return PL_OK;
}

static pl_status read_lines(pl_items *s, pl_item **sorted, const char *path)
{
    char *text;
    size_t len, n = strlen(path);
    pl_status rc = pl_sys_read_file(path, MAX_TEXT, &text, &len);
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_DATA, "captions: %s", pl_error_text());
    if (rc != PL_OK) return rc;
    bool json = n > 6 && strcmp(path + n - 6, ".jsonl") == 0;
    int64_t number = 0, found = 0;
    for (char *line = text, *next; rc == PL_OK && line < text + len; line = next) {
        char *end = memchr(line, '\n', (size_t)(text + len - line));
        next = end ? end + 1 : text + len;
        if (!end) end = text + len;
        if (end > line && end[-1] == '\r') end--;
        *end = 0;
        number++;
        if (end == line) continue;
        rc = json ? json_line(s, sorted, line, (size_t)(end - line), &found)
                  : tab_line(s, sorted, line, &found);
        if (rc != PL_OK) pl__fail_prefix(rc, "%s:%lld", path, (long long)number);
    }
    pl_sys_free(text);
    PL_FAIL_IF(rc == PL_OK && !found && s->n, PL_ERR_DATA,
               "%s: none of its %lld lines names an image below %s; one line names \"%s\"", path,
               (long long)number, s->root, s->item[0].name);
    return rc;
}

/* ---- labels.csv --------------------------------------------------------------------------- */
/* The first of these columns that the table has, else column `other`. */
static int column_of(const pl_table *t, const char *const *names, int other)
{
    for (; *names; names++)
        if (pl_table_find(t, *names) >= 0) return pl_table_find(t, *names);
    return other;
}

/* A table of names of images and of their classes. */
static pl_status read_labels(pl_items *s, pl_item **sorted, const pl_table *t, const char *path)
{
    static const char *const files[] = {"file_name", "filename", "file", "path", "image", NULL};
    static const char *const labels[] = {"label", "class", "category", NULL};
    int64_t found = 0;
    PL_FAIL_IF(pl_table_columns(t) < 2, PL_ERR_DATA,
               "%s has one column; it needs a column of file names and a column of labels", path);
    int file = column_of(t, files, 0), label = column_of(t, labels, file == 1 ? 0 : 1);
    for (int64_t i = 0; i < pl_table_rows(t); i++) {
        pl_item *item = find(sorted, s->n, pl_table_text(t, i, file));
        const char *name = pl_table_text(t, i, label);
        if (!item) continue;
        PL_FAIL_IF(!name[0], PL_ERR_DATA, "%s:%lld: \"%s\" has no label", path,
                   (long long)pl_table_line(t, i), item->name);
        PL_TRY(pl__items_class(s, name, &item->label));
        item->labelled = PL_LABEL_NAME;
        s->named = true;
        found++;
    }
    PL_FAIL_IF(!found && s->n, PL_ERR_DATA,
               "%s: none of its %lld rows names an image below %s; one row names \"%s\"", path,
               (long long)pl_table_rows(t), s->root, s->item[0].name);
    return PL_OK;
}

static pl_status open_labels(pl_items *s, pl_item **sorted, const char *path)
{
    pl_table *t;
    PL_TRY(pl_table_open(path, &t));
    pl_status rc = read_labels(s, sorted, t, path);
    pl_table_close(t);
    return rc;
}

pl_status pl__items_captions(pl_items *s, const char *captions)
{
    char *meta = pl_arena_printf(&s->mem, "%s/metadata.jsonl", s->root);
    char *labels = pl_arena_printf(&s->mem, "%s/labels.csv", s->root);
    if (!meta || !labels) return PL_ERR_MEMORY;
    bool has_meta = access(meta, R_OK) == 0, has_labels = access(labels, R_OK) == 0;
    if (!has_meta && !has_labels && !captions) return PL_OK;
    pl_item **sorted = pl_sys_alloc((size_t)(s->n + 1) * sizeof *sorted);
    if (!sorted) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < s->n; i++) sorted[i] = &s->item[i];
    qsort(sorted, (size_t)s->n, sizeof *sorted, by_name);
    pl_status rc = has_meta ? read_lines(s, sorted, meta) : PL_OK;
    if (rc == PL_OK && has_labels) rc = open_labels(s, sorted, labels);
    if (rc == PL_OK && captions) rc = read_lines(s, sorted, captions);
    pl_sys_free(sorted);
    return rc;
}
