/* authors_trip.c - the authors' weight files to slots and back; see authors.h. */
#include "tests/authors/authors.h"

#include "base/sys.h"
#include "io/st_set.h"

#include <ftw.h>
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
static pl_status same_tensor(const pl_st_set *a, const pl_st_set *b, const char *name, bool *same)
{
    int i = 0, k = 0;
    const pl_st_tensor *x = pl_st_set_find(a, name, &i), *y = pl_st_set_find(b, name, &k);
    *same = x && y && x->loadable && y->loadable && pl_type_equal(&x->type, &y->type);
    if (!*same) return PL_OK;
    size_t bytes = pl_type_bytes(&x->type);
    char *p = pl_sys_alloc(2 * bytes + 1);
    pl_status rc = p ? pl_st_read(pl_st_set_file(a, i), x, p, bytes) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = pl_st_read(pl_st_set_file(b, k), y, p + bytes, bytes);
    if (rc == PL_OK) *same = memcmp(p, p + bytes, bytes) == 0;
    pl_sys_free(p);
    return rc;
}

/* Counts the tensors of `a` that `b` has not, or has otherwise. */
static pl_status count_other(const pl_st_set *a, const pl_st_set *b, int *n, int *other,
                             const char **first)
{
    for (int f = 0; f < pl_st_set_files(a); f++)
        for (int i = 0; i < pl_st_count(pl_st_set_file(a, f)); i++) {
            const char *name = pl_st_at(pl_st_set_file(a, f), i)->name;
            bool same;
            PL_TRY(same_tensor(a, b, name, &same));
            ++*n;
            if (!same && !(*other)++) *first = name;
        }
    return PL_OK;
}

static void compare_sets(authors *a, const pl_st_set *theirs, const pl_st_set *ours)
{
    int n = 0, other = 0, own = 0, added = 0;
    const char *first = NULL;
    char note[640];
    pl_status rc = count_other(theirs, ours, &n, &other, &first);
    if (rc == PL_OK) rc = count_other(ours, theirs, &own, &added, &first);
    if (rc != PL_OK) {
        authors_fail(a, "round trip", "%s", pl_error_text());
        return;
    }
    snprintf(note, sizeof note, "%d tensors, bytes compared%s%s", n, first ? ", other: " : "",
             first ? first : "");
    authors_line(a, "round trip: tensors that differ", n ? other + added : 1, 0, note);
}

/* The number format of the files' first floating-point tensor, as pl_export_opts names it. */
static const char *format_of(const pl_st_set *files)
{
    for (int f = 0; f < pl_st_set_files(files); f++)
        for (int i = 0; i < pl_st_count(pl_st_set_file(files, f)); i++) {
            const pl_st_tensor *t = pl_st_at(pl_st_set_file(files, f), i);
            if (!t->loadable) continue;
            if (t->type.dtype == PL_F16) return "f16";
            if (t->type.dtype == PL_BF16) return "bf16";
            if (t->type.dtype == PL_F32) return "f32";
        }
    return NULL;
}

static pl_status export_to(const char *config, const authors_keys *k, const char *theirs,
                           const char *out, const char *dtype)
{
    pl_run *run = NULL;
    pl_export_info info;
    pl_export_opts o = {.form = "authors", .model = theirs, .out = out, .dtype = dtype};
    pl_status rc = pl_run_open(config, k->text, k->n, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_export(run, &o, &info);
    pl_run_free(run);
    return rc;
}

void authors_round_trip(authors *a, const char *config, const authors_keys *k, const char *theirs,
                        const char *out)
{
    char folder[1024], path[1100];
    pl_st_set *want = NULL, *got = NULL;
    if (!make_folder(folder, sizeof folder)) {
        authors_fail(a, "round trip", "no temporary folder: set TMPDIR");
        return;
    }
    snprintf(path, sizeof path, "%s/%s", folder, out ? out : "out");
    pl_status rc = pl_st_set_open(theirs, &want);
    if (rc == PL_OK) rc = export_to(config, k, theirs, path, format_of(want));
    if (rc == PL_OK) rc = pl_st_set_open(path, &got);
    if (rc == PL_OK)
        compare_sets(a, want, got);
    else
        authors_fail(a, "round trip", "%s", pl_error_text());
    pl_st_set_close(want);
    pl_st_set_close(got);
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}
