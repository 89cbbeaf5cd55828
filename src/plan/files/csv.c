/* csv.c - reads offset problems, writes solutions.
 *
 * A field is a slice of the text. A field that opens with a quote ends at the closing quote ("" is
 * a quote inside), so an id may contain commas; it is never unquoted, since it is only written
 * back.
 */
#include "plan/files/csv.h"

#include "base/str.h"
#include "base/sys.h"

#include <string.h>

#define MAX_FILE_BYTES ((size_t)1 << 30)
#define MAX_COLUMNS    64

enum column { ID, LOWER, UPPER, SIZE, ALIGN, N_KNOWN };
static const char *const COLUMN_NAMES[N_KNOWN] = {"id", "lower", "upper", "size", "align"};

typedef struct field {
    const char *text;
    size_t len;
} field;

/* One record: its fields and its line. */
typedef struct row {
    field fields[MAX_COLUMNS];
    size_t n;
    size_t line;
} row;

typedef struct reader {
    const char *at, *end;
    size_t line;         /* of the next record */
    int column[N_KNOWN]; /* which field holds it; -1: none */
} reader;

/* ---- records ---------------------------------------------------------------------------- */

static field trim(const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t')) from++;
    while (from < to && (to[-1] == ' ' || to[-1] == '\t' || to[-1] == '\r')) to--;
    return (field){from, (size_t)(to - from)};
}

/* The end of the field that starts at p: a comma, a newline or the end of the text. */
static pl_status field_end(const reader *r, const char *p, const char **out)
{
    while (p < r->end && (*p == ' ' || *p == '\t')) p++;
    if (p < r->end && *p == '"') {
        for (p++; p < r->end && *p != '\n'; p++)
            if (*p == '"' && !(p + 1 < r->end && p[1] == '"'))
                break;
            else if (*p == '"')
                p++;
        PL_FAIL_IF(p >= r->end || *p != '"', PL_ERR_DATA, "line %zu: a quote is not closed",
                   r->line);
        p++;
    }
    while (p < r->end && *p != ',' && *p != '\n') p++;
    *out = p;
    return PL_OK;
}

/* The next record that is not blank; n is 0 at the end of the text. */
static pl_status next_row(reader *r, row *out)
{
    do {
        out->n = 0;
        out->line = r->line;
        bool more = r->at < r->end;
        while (more) {
            const char *stop = NULL;
            PL_TRY(field_end(r, r->at, &stop));
            PL_FAIL_IF(out->n == MAX_COLUMNS, PL_ERR_DATA, "line %zu has more than %d columns",
                       r->line, MAX_COLUMNS);
            out->fields[out->n++] = trim(r->at, stop);
            more = stop < r->end && *stop == ',';
            r->at = stop < r->end ? stop + 1 : stop;
        }
        r->line++;
    } while (out->n == 1 && out->fields[0].len == 0);
    return PL_OK;
}

/* ---- numbers ---------------------------------------------------------------------------- */

static pl_status parse_u64(const row *w, field f, enum column c, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    bool bad = f.len == 0;
    for (size_t i = 0; i < f.len && !bad; i++) {
        unsigned digit = (unsigned)(unsigned char)f.text[i] - '0';
        bad = digit > 9 || v > (max - digit) / 10;
        if (!bad) v = v * 10 + digit;
    }
    PL_FAIL_IF(bad, PL_ERR_DATA,
               "line %zu: %s is \"%.*s\"; it must be a whole number of at most %llu", w->line,
               COLUMN_NAMES[c], f.len < 40 ? (int)f.len : 40, f.text, (unsigned long long)max);
    *out = v;
    return PL_OK;
}

static pl_status parse_time(const row *w, field f, enum column c, int64_t *out)
{
    bool negative = f.len > 0 && f.text[0] == '-';
    uint64_t v = 0;
    if (negative) f.text++, f.len--;
    PL_TRY(parse_u64(w, f, c, INT64_MAX, &v));
    *out = negative ? -(int64_t)v : (int64_t)v;
    return PL_OK;
}

/* Offsets that are multiples of both alignments are multiples of their least common multiple.
 */
static pl_status add_align(const row *w, uint64_t align, uint64_t *all)
{
    PL_FAIL_IF(align == 0, PL_ERR_DATA, "line %zu: align is 0; it must be at least 1", w->line);
    uint64_t a = *all, b = align;
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    PL_FAIL_IF(align / a > ((uint64_t)1 << 40) / *all, PL_ERR_DATA,
               "line %zu: align %llu and those before it have no common multiple below 2^40",
               w->line, (unsigned long long)align);
    *all *= align / a;
    return PL_OK;
}

/* ---- reading ---------------------------------------------------------------------------- */

static pl_status read_header(reader *r)
{
    row w;
    if (r->end - r->at >= 3 && memcmp(r->at, "\xef\xbb\xbf", 3) == 0) r->at += 3;
    PL_TRY(next_row(r, &w));
    PL_FAIL_IF(w.n == 0, PL_ERR_DATA,
               "the file is empty; it needs a header line \"id,lower,upper,size\"");
    for (int c = 0; c < N_KNOWN; c++) {
        r->column[c] = -1;
        for (size_t i = 0; i < w.n; i++) {
            field f = w.fields[i];
            if (f.len != strlen(COLUMN_NAMES[c]) || memcmp(f.text, COLUMN_NAMES[c], f.len) != 0)
                continue;
            PL_FAIL_IF(r->column[c] >= 0, PL_ERR_DATA, "line %zu: column %s appears twice", w.line,
                       COLUMN_NAMES[c]);
            r->column[c] = (int)i;
        }
        PL_FAIL_IF(r->column[c] < 0 && c != ALIGN, PL_ERR_DATA,
                   "line %zu: the header has no column %s; it needs id,lower,upper,size", w.line,
                   COLUMN_NAMES[c]);
    }
    return PL_OK;
}

static pl_status read_row(const reader *r, const row *w, pl_pack_csv *out)
{
    field f[N_KNOWN] = {0};
    for (int c = 0; c < N_KNOWN; c++) {
        if (r->column[c] < 0) continue;
        PL_FAIL_IF((size_t)r->column[c] >= w->n, PL_ERR_DATA,
                   "line %zu has %zu columns, so column %s is missing", w->line, w->n,
                   COLUMN_NAMES[c]);
        f[c] = w->fields[r->column[c]];
    }
    pl_pack_buffer *b = &out->buffers[out->n];
    PL_TRY(parse_time(w, f[LOWER], LOWER, &b->lo));
    PL_TRY(parse_time(w, f[UPPER], UPPER, &b->hi));
    PL_FAIL_IF(b->hi < b->lo, PL_ERR_DATA,
               "line %zu: it ends before it begins: lower %lld, upper %lld", w->line,
               (long long)b->lo, (long long)b->hi);
    PL_TRY(parse_u64(w, f[SIZE], SIZE, UINT64_MAX, &b->size));
    if (r->column[ALIGN] >= 0) {
        uint64_t align = 0;
        PL_TRY(parse_u64(w, f[ALIGN], ALIGN, (uint64_t)1 << 40, &align));
        PL_TRY(add_align(w, align, &out->align));
    }
    out->ids[out->n] = pl_arena_strndup(&out->arena, f[ID].text, f[ID].len);
    if (!out->ids[out->n]) return PL_ERR_MEMORY;
    out->n++;
    return PL_OK;
}

static pl_status read_all(const char *text, size_t len, pl_pack_csv *out)
{
    reader r = {.at = text, .end = text + len, .line = 1};
    row w;
    size_t lines = 1;
    for (size_t i = 0; i < len; i++) {
        PL_FAIL_IF(text[i] == 0, PL_ERR_DATA, "line %zu holds a zero byte: not a text file", lines);
        lines += text[i] == '\n';
    }
    out->align = 1;
    out->ids = pl_arena_new(&out->arena, char *, lines);
    out->buffers = pl_arena_new(&out->arena, pl_pack_buffer, lines);
    if (!out->ids || !out->buffers) return PL_ERR_MEMORY;
    PL_TRY(read_header(&r));
    for (;;) {
        PL_TRY(next_row(&r, &w));
        if (w.n == 0) return PL_OK;
        PL_TRY(read_row(&r, &w, out));
    }
}

void pl_pack_csv_release(pl_pack_csv *c)
{
    pl_arena_release(&c->arena);
    *c = (pl_pack_csv)PL_PACK_CSV_INIT;
}

pl_status pl_pack_csv_parse(const char *text, size_t len, pl_pack_csv *out)
{
    *out = (pl_pack_csv)PL_PACK_CSV_INIT;
    pl_status rc = read_all(text, len, out);
    if (rc != PL_OK) pl_pack_csv_release(out);
    return rc;
}

pl_status pl_pack_csv_read(const char *path, pl_pack_csv *out)
{
    char *text = NULL;
    size_t len = 0;
    PL_TRY(pl_sys_read_file(path, MAX_FILE_BYTES, &text, &len));
    pl_status rc = pl_pack_csv_parse(text, len, out);
    pl_sys_free(text);
    return rc == PL_ERR_DATA ? pl__fail_prefix(rc, "%s", path) : rc;
}

/* ---- writing ---------------------------------------------------------------------------- */

pl_status pl_pack_csv_print(const pl_pack_csv *c, char **text, size_t *len)
{
    pl_str s = PL_STR_INIT;
    pl_str_add(&s, "id,lower,upper,size,offset\n");
    for (size_t i = 0; i < c->n; i++) {
        const pl_pack_buffer *b = &c->buffers[i];
        pl_str_add(&s, c->ids[i]);
        pl_str_addf(&s, ",%lld,%lld,%llu,%llu\n", (long long)b->lo, (long long)b->hi,
                    (unsigned long long)b->size, (unsigned long long)b->offset);
    }
    *len = s.len;
    return pl_str_take(&s, text);
}

pl_status pl_pack_csv_write(const pl_pack_csv *c, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    PL_TRY(pl_pack_csv_print(c, &text, &len));
    pl_status rc = pl_sys_write_file(path, text, len);
    pl_sys_free(text);
    return rc;
}
