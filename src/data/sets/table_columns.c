/* table_columns.c - see table_columns.h. The table is read once for each input and kept as text. */
#include "data/sets/table_columns.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "plimsoll_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct pl_table_part {
    pl_table *table;
    char *path;
    pl_type type;
    int *column;
    int n;
};

/* The column of number i of a field: x0, x_0, x.0 or x[0]; -1: none. */
static int numbered(const pl_table *t, const char *field, int i)
{
    static const char *const forms[][2] = {{"", ""}, {"_", ""}, {".", ""}, {"[", "]"}};
    char name[256];
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        int n = snprintf(name, sizeof name, "%s%s%d%s", field, forms[k][0], i, forms[k][1]);
        int at = n > 0 && (size_t)n < sizeof name ? pl_table_find(t, name) : -1;
        if (at >= 0) return at;
    }
    return -1;
}

/* Whether a column is one of another input: its name, or a name of its list. */
static bool is_taken(const pl_table *t, int column, const char *field, const char *const *others)
{
    const char *name = pl_table_name(t, column);
    size_t n = strlen(name);
    for (; others && *others; others++) {
        if (strcmp(*others, field) == 0) continue;
        for (const char *at = *others; *at;) {
            size_t len = strcspn(at, "+");
            if (len == n && memcmp(at, name, n) == 0) return true;
            at += len + (at[len] == '+');
        }
    }
    return false;
}

/* "age+height": exactly these. */
static pl_status take_listed(pl_table_part *c, const char *field)
{
    char name[256];
    for (const char *at = field; *at;) {
        size_t len = strcspn(at, "+");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        int column = pl_table_find(c->table, name);
        PL_FAIL_IF(column < 0, PL_ERR_DATA, "%s has no column \"%s\"", c->path, name);
        c->column[c->n++] = column;
        at += len + (at[len] == '+');
    }
    return PL_OK;
}

static pl_status choose(pl_table_part *c, const char *field, const char *const *others,
                        int64_t wanted)
{
    const pl_table *t = c->table;
    int one = pl_table_find(t, field), first = numbered(t, field, 0) >= 0 ? 0 : 1;
    if (one < 0 && strchr(field, '+')) return take_listed(c, field);
    if (one >= 0) {
        c->column[c->n++] = one;
        return PL_OK;
    }
    for (int at; (at = numbered(t, field, first + c->n)) >= 0 && c->n < pl_table_columns(t);)
        c->column[c->n++] = at;
    if (c->n) return PL_OK;
    for (int i = 0; i < pl_table_columns(t); i++)
        if (!is_taken(t, i, field, others)) c->column[c->n++] = i;
    PL_FAIL_IF(c->n != wanted, PL_ERR_DATA,
               "%s has no column \"%s\", and %d columns that no other input names; the input has "
               "%lld numbers: name its columns, data.fields=\"%s=COLUMN+COLUMN\"",
               c->path, field, c->n, (long long)wanted, field);
    return PL_OK;
}

static pl_status number_at(const pl_table_part *c, int64_t row, int i, pl_dtype dtype, double *v)
{
    bool ok = pl_table_number(c->table, row, c->column[i], v);
    bool whole = !ok || dtype == PL_F32 || dtype == PL_F64 || *v == floor(*v);
    const char *text = pl_table_text(c->table, row, c->column[i]);
    PL_FAIL_IF(!ok || !whole, PL_ERR_DATA, "%s:%lld: column %s is \"%.60s\": a %s is expected; %s",
               c->path, (long long)pl_table_line(c->table, row),
               pl_table_name(c->table, c->column[i]), text, whole ? "number" : "whole number",
               *text ? "write numbers in this column (classes are 0, 1, 2, ...)"
                     : "fill in the cell, or remove the row");
    return PL_OK;
}

/* A cell without a number ends a run before its first step. */
static pl_status check_cells(const pl_table_part *c, pl_dtype dtype)
{
    for (int64_t row = 0; row < pl_table_rows(c->table); row++)
        for (int i = 0; i < c->n; i++) {
            double v;
            PL_TRY(number_at(c, row, i, dtype, &v));
        }
    return PL_OK;
}

pl_status pl_table_part_open(const char *path, const char *field, const char *const *others,
                             const pl_type *sample, pl_table_part **out)
{
    size_t bytes = strlen(path) + 1;
    pl_table_part *c = pl_sys_alloc(sizeof *c + bytes);
    if (!c) return PL_ERR_MEMORY;
    c->path = memcpy(c + 1, path, bytes);
    pl_status rc = pl_table_open(path, &c->table);
    if (rc == PL_OK) {
        size_t columns = (size_t)pl_table_columns(c->table) + strlen(field) + 1;
        c->column = pl_sys_alloc(columns * sizeof *c->column);
        rc = c->column ? choose(c, field, others, pl_type_elems(sample)) : PL_ERR_MEMORY;
    }
    if (rc == PL_OK && c->n != pl_type_elems(sample))
        rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__,
                      "%s has %d column%s for \"%s\", the input has %lld numbers: name them, "
                      "data.fields=\"%s=COLUMN+COLUMN\"",
                      path, c->n, c->n == 1 ? "" : "s", field, (long long)pl_type_elems(sample),
                      field);
    if (rc == PL_OK) rc = check_cells(c, sample->dtype);
    if (rc != PL_OK) {
        pl_table_part_close(c);
        return rc;
    }
    c->type = pl_type_make(PL_F64, 1, &(int64_t){pl_table_rows(c->table)});
    for (int i = 0; i < sample->rank; i++) c->type.dim[c->type.rank++] = sample->dim[i];
    *out = c;
    return PL_OK;
}

void pl_table_part_close(pl_table_part *c)
{
    if (!c) return;
    pl_table_close(c->table);
    pl_sys_free(c->column);
    pl_sys_free(c);
}

pl_type pl_table_part_type(const pl_table_part *c)
{
    return c->type;
}

pl_status pl_table_part_read(const pl_table_part *c, int64_t row, pl_dtype dtype, void *to)
{
    for (int i = 0; i < c->n; i++) {
        double v;
        PL_TRY(number_at(c, row, i, dtype, &v));
        pl_elem_set(dtype, to, i, v);
    }
    return PL_OK;
}
