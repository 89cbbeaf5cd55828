/* text_table.c - see plimsoll_table.h.
 *
 * The file is kept as it is read and cut in place: separators and line ends become the ends of
 * texts, quotes are taken off by moving the field to the left. A field is the offset of its text.
 */
#include "plimsoll_table.h"

#include "base/str.h"
#include "base/sys.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 0x7fffffff, MAX_COLUMNS = 1 << 16 };

struct pl_table {
    char *text;
    uint32_t *field; /* offsets in text: names of the columns, then the fields of the rows */
    uint32_t *line;  /* by row */
    int columns;
    int64_t rows, cap;
    locale_t plain;
    char separator;
};

/* The file being cut. */
typedef struct reader {
    pl_table *t;
    const char *path;
    char *at, *end;
    int64_t line;
} reader;

static char find_separator(const char *text, const char *end)
{
    static const char choice[] = {',', ';', '\t'};
    int64_t count[3] = {0, 0, 0};
    bool quoted = false;
    while (text < end && (*text == '\n' || *text == '\r')) text++;
    for (; text < end && (quoted || *text != '\n'); text++) {
        if (*text == '"') quoted = !quoted;
        for (int i = 0; i < 3 && !quoted; i++) count[i] += *text == choice[i];
    }
    int best = 0;
    for (int i = 1; i < 3; i++)
        if (count[i] > count[best]) best = i;
    return choice[best];
}

/* A field in quotes, whose first quote is at r->at: moves it over the quotes. Returns its end. */
static pl_status cut_quoted(reader *r, char **field, char **field_end)
{
    int64_t began = r->line;
    char *to = ++r->at;
    *field = to;
    for (;; r->at++) {
        PL_FAIL_IF(r->at == r->end, PL_ERR_DATA, "%s:%lld: a quote is not closed", r->path,
                   (long long)began);
        r->line += *r->at == '\n';
        if (*r->at != '"') {
            *to++ = *r->at;
        } else if (r->at + 1 < r->end && r->at[1] == '"') {
            *to++ = '"';
            r->at++;
        } else {
            break;
        }
    }
    r->at++;
    *field_end = to;
    while (r->at < r->end && *r->at == ' ') r->at++;
    bool ends = r->at == r->end || *r->at == r->t->separator || *r->at == '\n' || *r->at == '\r';
    PL_FAIL_IF(!ends, PL_ERR_DATA, "%s:%lld: text after a closing quote", r->path,
               (long long)r->line);
    return PL_OK;
}

/* The next field. *last: the line ends with it. */
static pl_status cut_field(reader *r, uint32_t *out, bool *last)
{
    char *field = r->at, *field_end = r->at;
    while (r->at < r->end && *r->at == ' ') r->at++;
    if (r->at < r->end && *r->at == '"') {
        PL_TRY(cut_quoted(r, &field, &field_end));
    } else {
        field = r->at;
        while (r->at < r->end && *r->at != r->t->separator && *r->at != '\n') r->at++;
        field_end = r->at;
        while (field_end > field && (field_end[-1] == ' ' || field_end[-1] == '\r')) field_end--;
    }
    if (r->at < r->end && *r->at == '\r') r->at++;
    *last = r->at == r->end || *r->at == '\n';
    if (r->at < r->end) {
        r->line += *r->at == '\n';
        r->at++;
    }
    *field_end = 0; /* the text has one byte more than the file */
    *out = (uint32_t)(field - r->t->text);
    return PL_OK;
}

static void skip_empty_lines(reader *r)
{
    while (r->at < r->end &&
           (*r->at == '\n' || (*r->at == '\r' && r->at + 1 < r->end && r->at[1] == '\n'))) {
        r->line += *r->at == '\n';
        r->at++;
    }
}

static pl_status grow(pl_table *t)
{
    int64_t cap = t->cap ? 2 * t->cap : 64;
    size_t row = (size_t)t->columns * sizeof *t->field;
    uint32_t *field =
        pl_sys_realloc(t->field, (size_t)(t->cap ? t->cap + 1 : 1) * row, (size_t)(cap + 1) * row);
    if (!field) return PL_ERR_MEMORY;
    t->field = field;
    uint32_t *line =
        pl_sys_realloc(t->line, (size_t)t->cap * sizeof *line, (size_t)cap * sizeof *line);
    if (!line) return PL_ERR_MEMORY;
    t->line = line;
    t->cap = cap;
    return PL_OK;
}

static pl_status cut_header(reader *r)
{
    pl_table *t = r->t;
    bool last = false;
    t->field = pl_sys_alloc(MAX_COLUMNS * sizeof *t->field);
    if (!t->field) return PL_ERR_MEMORY;
    skip_empty_lines(r);
    PL_FAIL_IF(r->at == r->end, PL_ERR_DATA, "%s is empty: it needs a header line", r->path);
    while (!last) {
        PL_FAIL_IF(t->columns == MAX_COLUMNS, PL_ERR_DATA, "%s: more than %d columns", r->path,
                   MAX_COLUMNS);
        PL_TRY(cut_field(r, &t->field[t->columns++], &last));
    }
    uint32_t *exact = pl_sys_alloc((size_t)t->columns * sizeof *exact);
    if (!exact) return PL_ERR_MEMORY;
    memcpy(exact, t->field, (size_t)t->columns * sizeof *exact);
    pl_sys_free(t->field);
    t->field = exact;
    for (int i = 0; i < t->columns; i++) {
        PL_FAIL_IF(!t->text[t->field[i]], PL_ERR_DATA, "%s: column %d has no name in the header",
                   r->path, i + 1);
        for (int k = 0; k < i; k++)
            PL_FAIL_IF(strcmp(t->text + t->field[i], t->text + t->field[k]) == 0, PL_ERR_DATA,
                       "%s: two columns are named \"%s\"", r->path, t->text + t->field[i]);
    }
    return PL_OK;
}

static pl_status cut_rows(reader *r)
{
    pl_table *t = r->t;
    for (skip_empty_lines(r); r->at < r->end; skip_empty_lines(r)) {
        bool last = false;
        int64_t line = r->line;
        int n = 0;
        if (t->rows == t->cap) PL_TRY(grow(t));
        uint32_t *row = t->field + (t->rows + 1) * t->columns, beyond;
        while (!last) {
            PL_TRY(cut_field(r, n < t->columns ? &row[n] : &beyond, &last));
            n++;
        }
        PL_FAIL_IF(n != t->columns, PL_ERR_DATA, "%s:%lld: %d fields, the header has %d", r->path,
                   (long long)line, n, t->columns);
        t->line[t->rows++] = (uint32_t)line;
    }
    return PL_OK;
}

static pl_status read_table(pl_table *t, const char *path)
{
    size_t len;
    PL_FAIL_IF(!t->plain, PL_ERR_UNSUPPORTED, "the C library has no locale C");
    pl_status rc = pl_sys_read_file(path, MAX_BYTES, &t->text, &len);
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_DATA, "%s", pl_error_text());
    PL_TRY(rc);
    PL_FAIL_IF(memchr(t->text, 0, len), PL_ERR_DATA, "%s is not a text file: it has a byte 0",
               path);
    reader r = {.t = t, .path = path, .at = t->text, .end = t->text + len, .line = 1};
    if (len >= 3 && memcmp(t->text, "\xEF\xBB\xBF", 3) == 0) r.at += 3;
    t->separator = find_separator(r.at, r.end);
    PL_TRY(cut_header(&r));
    return cut_rows(&r);
}

pl_status pl_table_open(const char *path, pl_table **out)
{
    pl_table *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    t->plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    pl_status rc = read_table(t, path);
    if (rc != PL_OK) {
        pl_table_close(t);
        return rc;
    }
    *out = t;
    return PL_OK;
}

void pl_table_close(pl_table *t)
{
    if (!t) return;
    if (t->plain) freelocale(t->plain);
    pl_sys_free(t->text);
    pl_sys_free(t->field);
    pl_sys_free(t->line);
    pl_sys_free(t);
}

int pl_table_columns(const pl_table *t)
{
    return t->columns;
}

int64_t pl_table_rows(const pl_table *t)
{
    return t->rows;
}

const char *pl_table_name(const pl_table *t, int column)
{
    return t->text + t->field[column];
}

int pl_table_find(const pl_table *t, const char *name)
{
    for (int i = 0; i < t->columns; i++)
        if (strcmp(pl_table_name(t, i), name) == 0) return i;
    return -1;
}

const char *pl_table_text(const pl_table *t, int64_t row, int column)
{
    return t->text + t->field[(row + 1) * t->columns + column];
}

bool pl_table_number(const pl_table *t, int64_t row, int column, double *out)
{
    const char *text = pl_table_text(t, row, column);
    char *end;
    if (!*text || isspace((unsigned char)*text)) return false;
    *out = strtod_l(text, &end, t->plain);
    return !*end && isfinite(*out) && !strpbrk(text, "xXpP");
}

int64_t pl_table_line(const pl_table *t, int64_t row)
{
    return t->line[row];
}
