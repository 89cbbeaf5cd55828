/* authors_trip.c - the authors' weight files to slots and back; see authors.h. */
#include "tests/authors/authors.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "io/st_set.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a folder that is removed ------------------------------------------------------------- */
static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static bool make_folder(char *path, size_t cap)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, cap, "%s/pl_authors.XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(path) != NULL;
}

/* ---- comparison --------------------------------------------------------------------------- */
typedef struct trip {
    const pl_run *run;
    pl_st_set *theirs, *ours;
    int n, other, tables; /* tensors of theirs; that differ; tables that differ in rounding */
    const char *first;    /* that differs */
} trip;

static bool is_real(pl_dtype d)
{
    return d == PL_F32 || d == PL_BF16 || d == PL_F16;
}

/* Types but for the number format: an export has one, a file may have several. */
static bool same_shape(const pl_type *x, const pl_type *y)
{
    pl_type as = *y;
    if (is_real(x->dtype) && is_real(y->dtype)) as.dtype = x->dtype;
    return pl_type_equal(x, &as);
}

/* The bytes of a tensor, in number format `as`. */
static pl_status read_as(const pl_st_set *s, int file, const pl_st_tensor *t, pl_dtype as, void *to)
{
    size_t bytes = pl_type_bytes(&t->type);
    void *raw = pl_sys_alloc(bytes + 1);
    pl_status rc = raw ? pl_st_read(pl_st_set_file(s, file), t, raw, bytes) : PL_ERR_MEMORY;
    if (rc == PL_OK && as == t->type.dtype) memcpy(to, raw, bytes);
    for (int64_t i = 0; rc == PL_OK && as != t->type.dtype && i < pl_type_elems(&t->type); i++)
        pl_elem_set(as, to, i, pl_elem_get(t->type.dtype, raw, i));
    pl_sys_free(raw);
    return rc;
}

/* Whether a tensor is a table that export computes (pl_naming.constant). */
static bool is_table(const pl_run *run, const char *tensor)
{
    const char *dot = strrchr(tensor, '.');
    for (const pl_export *e = pl_run_recipe(run)->exports; e && e->name; e++)
        for (const pl_export_file *f = e->files; f->name; f++) {
            char name[PL_TENSOR_NAME];
            pl_type type;
            if (!f->naming || !f->naming->constant) continue;
            for (int i = 0; f->naming->constant(pl_run_config(run), i, name, &type, NULL); i++)
                if (strcmp(dot ? dot + 1 : tensor, name) == 0) return true;
        }
    return false;
}

/* The vectorised functions of the authors' numpy differ from correct rounding by up to 4 units in
 * the last place, on each machine in its own way. */
static bool same_table(const pl_type *t, const void *x, const void *y)
{
    for (int64_t i = 0; i < pl_type_elems(t); i++) {
        double a = pl_elem_get(t->dtype, x, i), b = pl_elem_get(t->dtype, y, i);
        if (!(fabs(a - b) <= 4 * 0x1p-23 * fabs(a))) return false;
    }
    return t->dtype == PL_F32;
}

/* Compares a tensor of theirs with ours, in their number format. */
static pl_status compare_tensor(trip *p, const char *name)
{
    int i = 0, k = 0;
    const pl_st_tensor *x = pl_st_set_find(p->theirs, name, &i),
                       *y = pl_st_set_find(p->ours, name, &k);
    bool same = x && y && x->loadable && y->loadable && same_shape(&x->type, &y->type);
    if (same) {
        size_t bytes = pl_type_bytes(&x->type);
        char *v = pl_sys_alloc(2 * bytes + 1);
        pl_status rc = v ? read_as(p->theirs, i, x, x->type.dtype, v) : PL_ERR_MEMORY;
        if (rc == PL_OK) rc = read_as(p->ours, k, y, x->type.dtype, v + bytes);
        same = rc == PL_OK && memcmp(v, v + bytes, bytes) == 0;
        if (rc == PL_OK && !same && is_table(p->run, name) && same_table(&x->type, v, v + bytes))
            same = true, p->tables++;
        pl_sys_free(v);
        if (rc != PL_OK) return rc;
    }
    if (!same && !p->other++) p->first = name;
    return PL_OK;
}

static pl_status compare_sets(trip *p)
{
    const pl_st_set *sets[] = {p->theirs, p->ours};
    for (int s = 0; s < 2; s++)
        for (int f = 0; f < pl_st_set_files(sets[s]); f++)
            for (int i = 0; i < pl_st_count(pl_st_set_file(sets[s], f)); i++) {
                const char *name = pl_st_at(pl_st_set_file(sets[s], f), i)->name;
                int file;
                if (s && pl_st_set_find(p->theirs, name, &file)) continue;
                PL_TRY(compare_tensor(p, name));
                p->n += !s;
            }
    return PL_OK;
}

/* The first name of theirs that follows another one than in our file; NULL: the order is theirs. */
static const char *other_order(const pl_st_reader *theirs, const pl_st_reader *ours)
{
    int n = pl_st_count(theirs);
    if (pl_st_count(ours) != n) return NULL; /* other tensors: the comparison names them */
    for (int i = 0; i < n; i++)
        if (strcmp(pl_st_at(theirs, i)->name, pl_st_at(ours, i)->name) != 0)
            return pl_st_at(theirs, i)->name;
    return NULL;
}

static void compare_order(trip *p)
{
    if (pl_st_set_files(p->theirs) != pl_st_set_files(p->ours)) return;
    for (int f = 0; f < pl_st_set_files(p->theirs); f++) {
        const char *name = other_order(pl_st_set_file(p->theirs, f), pl_st_set_file(p->ours, f));
        if (name && !p->other++) p->first = name;
    }
}

static void print(authors *a, const trip *p)
{
    char note[640], tables[64] = "";
    if (p->tables) snprintf(tables, sizeof tables, ", %d table in 4 units", p->tables);
    snprintf(note, sizeof note, "%d tensors, bytes compared%s%s%s", p->n, tables,
             p->first ? ", other: " : "", p->first ? p->first : "");
    authors_line(a, "round trip: tensors that differ", p->n ? p->other : 1, 0, note);
}

/* The number format that loses nothing of the files, as pl_export_opts names it. */
static const char *format_of(const pl_st_set *files)
{
    bool has[3] = {false, false, false};
    for (int f = 0; f < pl_st_set_files(files); f++)
        for (int i = 0; i < pl_st_count(pl_st_set_file(files, f)); i++) {
            const pl_st_tensor *t = pl_st_at(pl_st_set_file(files, f), i);
            if (!t->loadable || !is_real(t->type.dtype)) continue;
            has[t->type.dtype == PL_F16 ? 0 : t->type.dtype == PL_BF16 ? 1 : 2] = true;
        }
    return has[2] || (has[0] && has[1]) ? "f32" : has[0] ? "f16" : has[1] ? "bf16" : NULL;
}

static pl_status export_to(pl_run *run, const char *theirs, const char *out, const char *dtype)
{
    pl_export_info info;
    pl_export_opts o = {.form = "authors", .model = theirs, .out = out, .dtype = dtype};
    PL_TRY(pl_run_build(run));
    return pl_run_export(run, &o, &info);
}

void authors_round_trip(authors *a, const char *config, const authors_keys *k, const char *theirs,
                        const char *out)
{
    char folder[1024], path[1100];
    trip p = {0};
    pl_run *run = NULL;
    if (!make_folder(folder, sizeof folder)) {
        authors_fail(a, "round trip", "no temporary folder: set TMPDIR");
        return;
    }
    snprintf(path, sizeof path, "%s/%s", folder, out ? out : "out");
    pl_status rc = pl_st_set_open(theirs, &p.theirs);
    if (rc == PL_OK) rc = pl_run_open(config, k->text, k->n, &run);
    if (rc == PL_OK) rc = export_to(run, theirs, path, format_of(p.theirs));
    if (rc == PL_OK) rc = pl_st_set_open(path, &p.ours);
    p.run = run;
    if (rc == PL_OK) rc = compare_sets(&p);
    bool merged = strncmp(theirs, a->dir, strlen(a->dir)) != 0; /* its order is ours */
    if (rc == PL_OK && !merged) compare_order(&p);
    if (rc == PL_OK)
        print(a, &p);
    else
        authors_fail(a, "round trip", "%s", pl_error_text());
    pl_st_set_close(p.theirs);
    pl_st_set_close(p.ours);
    pl_run_free(run);
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- a file of two ------------------------------------------------------------------------ */
typedef struct merge {
    pl_st_set *set;
    const pl_st_tensor *tensor[4096];
    int file[4096], n;
    pl_st_writer *w;
} merge;

/* Declares the tensors below `under` of the files, each under the name that `keep` gives. */
static pl_status merge_declare(merge *m, const char *under, authors_keep keep)
{
    size_t cut = strlen(under) + 1;
    for (int f = 0; f < pl_st_set_files(m->set); f++)
        for (int i = 0; i < pl_st_count(pl_st_set_file(m->set, f)); i++) {
            const pl_st_tensor *t = pl_st_at(pl_st_set_file(m->set, f), i);
            char name[512];
            if (strncmp(t->name, under, cut - 1) != 0 || t->name[cut - 1] != '.') continue;
            snprintf(name, sizeof name, "%s", t->name + cut);
            if (!t->loadable || m->n == 4096 || !keep(f, name, sizeof name)) continue;
            PL_TRY(pl_st_writer_add(m->w, name, &t->type));
            m->file[m->n] = f;
            m->tensor[m->n++] = t;
        }
    return PL_OK;
}

static pl_status merge_write(merge *m, const char *under)
{
    PL_TRY(pl_st_writer_under(m->w, under));
    PL_TRY(pl_st_writer_begin(m->w));
    for (int i = 0; i < m->n; i++) {
        int k = pl_st_writer_order(m->w, i);
        size_t bytes = pl_type_bytes(&m->tensor[k]->type);
        void *raw = pl_sys_alloc(bytes + 1);
        pl_status rc =
            raw ? read_as(m->set, m->file[k], m->tensor[k], m->tensor[k]->type.dtype, raw)
                : PL_ERR_MEMORY;
        if (rc == PL_OK) rc = pl_st_writer_write(m->w, k, raw, bytes);
        pl_sys_free(raw);
        PL_TRY(rc);
    }
    return pl_st_writer_finish(m->w);
}

pl_status authors_merge(const char *files, const char *under, authors_keep keep, const char *path)
{
    merge *m = pl_sys_alloc(sizeof *m);
    if (!m) return PL_ERR_MEMORY;
    *m = (merge){0};
    pl_status rc = pl_st_set_open(files, &m->set);
    if (rc == PL_OK) rc = pl_st_writer_new(path, &m->w);
    if (rc == PL_OK) rc = merge_declare(m, under, keep);
    if (rc == PL_OK) rc = merge_write(m, under);
    pl_st_writer_free(m->w);
    pl_st_set_close(m->set);
    pl_sys_free(m);
    return rc;
}
