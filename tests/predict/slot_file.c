/* slot_file.c - see slot_file.h. */
#include "tests/predict/slot_file.h"

#include "base/sys.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <string.h>

static bool has(const slot_file *o, const pl_slot *s)
{
    return strncmp(s->name, o->of, strlen(o->of)) == 0 &&
           (!o->leave_out || strcmp(o->leave_out, s->name) != 0);
}

static pl_status declare(const pl_store *store, pl_st_writer *w, const slot_file *o)
{
    pl_type zeros = PL_TYPE(PL_F32, 8);
    for (int i = 0; i < pl_store_count(store); i++) {
        const pl_slot *s = pl_store_slot(store, i);
        char name[512];
        pl_type t = s->type;
        if (!has(o, s)) continue;
        for (int k = 0; k < s->layout.rank; k++) t.dim[k] = s->type.dim[s->layout.perm[k]];
        snprintf(name, sizeof name, "%s", s->name + strlen(o->of));
        if (o->rename) o->rename(name, sizeof name);
        PL_TRY(pl_st_writer_add(w, name, &t));
    }
    for (int i = 0; i < o->n_add; i++) PL_TRY(pl_st_writer_add(w, o->add[i], &zeros));
    return PL_OK;
}

/* Writes the k-th declared tensor. */
static pl_status write_one(const pl_store *store, pl_st_writer *w, const slot_file *o, int k)
{
    static const float zeros[8];
    for (int i = 0, at = 0; i < pl_store_count(store); i++) {
        const pl_slot *s = pl_store_slot(store, i);
        if (!has(o, s) || at++ != k) continue;
        int64_t n = pl_type_elems(&s->type);
        float *v = pl_sys_alloc((size_t)n * sizeof *v);
        if (!v) return PL_ERR_MEMORY;
        for (int64_t e = 0; e < n; e++) v[e] = o->value(s->name, e);
        pl_status rc = pl_st_writer_write(w, k, v, (size_t)n * sizeof *v);
        pl_sys_free(v);
        return rc;
    }
    return pl_st_writer_write(w, k, zeros, sizeof zeros);
}

pl_status slot_file_write(const pl_store *store, const char *path, const slot_file *o)
{
    pl_st_writer *w;
    int n = o->n_add;
    PL_TRY(pl_st_writer_new(path, &w));
    for (int i = 0; i < pl_store_count(store); i++) n += has(o, pl_store_slot(store, i));
    pl_status rc = declare(store, w, o);
    if (rc == PL_OK && strstr(path, ".ckpt")) rc = pl_st_writer_under(w, "state_dict");
    if (rc == PL_OK) rc = pl_st_writer_begin(w);
    for (int i = 0; i < n && rc == PL_OK; i++)
        rc = write_one(store, w, o, pl_st_writer_order(w, i));
    if (rc == PL_OK) rc = pl_st_writer_finish(w);
    pl_st_writer_free(w);
    return rc;
}
