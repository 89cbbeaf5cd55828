/* renamed.c - see renamed.h. */
#include "tests/lib/renamed.h"

#include "base/dtype.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static bool holds_one(const char *name, const char *texts)
{
    while (texts && *texts) {
        char text[64];
        size_t n = strcspn(texts, ",");
        snprintf(text, sizeof text, "%.*s", (int)n, texts);
        if (strstr(name, text)) return true;
        texts += n + (texts[n] == ',');
    }
    return false;
}

static pl_type type_of(const pl_st_tensor *t, const renamed_file *o)
{
    pl_type type = t->type;
    if (o->bf16) type.dtype = PL_BF16;
    while (o->flat && type.rank > 2 && type.dim[type.rank - 1] == 1) type.rank--;
    return pl_type_make(type.dtype, type.rank, type.dim);
}

static pl_status write_one(const pl_st_reader *from, const pl_st_tensor *t, pl_st_writer *w, int at,
                           bool bf16)
{
    size_t bytes = (size_t)(t->end - t->begin);
    float *data = malloc(bytes);
    uint16_t *half = malloc(bytes);
    pl_status rc = pl_st_read(from, t, data, bytes);
    for (size_t e = 0; bf16 && e < bytes / 4; e++) half[e] = pl_f32_to_bf16(data[e]);
    if (rc == PL_OK)
        rc = bf16 ? pl_st_writer_write(w, at, half, bytes / 2)
                  : pl_st_writer_write(w, at, data, bytes);
    free(data);
    free(half);
    return rc;
}

static pl_status write_all(const pl_st_reader *from, pl_st_writer *w, const renamed_file *o)
{
    char name[256];
    int index[1024], n = 0, k = 0;
    for (int i = 0; i < pl_st_count(from) && n < 1024; i++) {
        const pl_st_tensor *t = pl_st_at(from, i);
        if (!begins(t->name, o->of) || holds_one(t->name, o->without)) continue;
        if (k++ % o->parts != o->part) continue;
        o->name(t->name, name, sizeof name);
        if (o->leave_out && strcmp(o->leave_out, name) == 0) continue;
        pl_type type = type_of(t, o);
        PL_TRY(pl_st_writer_add(w, name, &type));
        index[n++] = i;
    }
    pl_type one = PL_TYPE(PL_F32, 1);
    float zero = 0;
    if (o->add) PL_TRY(pl_st_writer_add(w, o->add, &one));
    PL_TRY(pl_st_writer_begin(w));
    for (int i = 0; i < n + (o->add != NULL); i++) {
        int at = pl_st_writer_order(w, i);
        PL_TRY(at == n ? pl_st_writer_write(w, at, &zero, sizeof zero)
                       : write_one(from, pl_st_at(from, index[at]), w, at, o->bf16));
    }
    return pl_st_writer_finish(w);
}

pl_status renamed_write(const char *model, const char *path, renamed_file o)
{
    pl_st_reader *from;
    pl_st_writer *w = NULL;
    PL_TRY(pl_st_open(model, &from));
    pl_status rc = pl_st_writer_new(path, &w);
    if (rc == PL_OK) rc = write_all(from, w, &o);
    pl_st_writer_free(w);
    pl_st_close(from);
    return rc;
}

static bool same_numbers(const pl_st_reader *x, const pl_st_tensor *t, const pl_st_reader *y,
                         bool rounded)
{
    const pl_st_tensor *u = pl_st_find(y, t->name);
    size_t bytes = (size_t)(t->end - t->begin);
    float *p = malloc(bytes), *q = malloc(bytes);
    bool same = u && pl_st_read(x, t, p, bytes) == PL_OK && pl_st_read(y, u, q, bytes) == PL_OK;
    for (size_t e = 0; same && e < bytes / 4; e++)
        same = (rounded ? pl_bf16_to_f32(pl_f32_to_bf16(p[e])) : p[e]) == q[e];
    free(p);
    free(q);
    return same;
}

pl_status renamed_compare(const char *a, const char *b, const char *of, bool rounded, int *off,
                          int *others_same)
{
    pl_st_reader *x, *y;
    PL_TRY(pl_st_open(a, &x));
    pl_status rc = pl_st_open(b, &y);
    *off = *others_same = 0;
    for (int i = 0; rc == PL_OK && i < pl_st_count(x); i++) {
        const pl_st_tensor *t = pl_st_at(x, i);
        bool weight = strstr(t->name, "weight") && !strstr(t->name, "norm");
        if (begins(t->name, of))
            *off += !same_numbers(x, t, y, rounded);
        else if (weight)
            *others_same += same_numbers(x, t, y, rounded);
    }
    if (rc == PL_OK) pl_st_close(y);
    pl_st_close(x);
    return rc;
}
