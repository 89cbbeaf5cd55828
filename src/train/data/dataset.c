/* dataset.c - see dataset.h. */
#include "train/data/dataset.h"

#include "base/sys.h"
#include "data/sets/array.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct column {
    const char *input, *field;
    size_t row_bytes;
    pl_array *array;
} column;

typedef struct part {
    column *columns;
    int n;
    int64_t rows;
} part;

struct pl_dataset {
    pl_arena mem;
    const char *dir, *fields;
    part parts[2]; /* by pl_subset */
};

const char *pl_subset_name(pl_subset subset)
{
    return subset == PL_SUBSET_TRAIN ? "train" : "eval";
}

/* ---- which files -------------------------------------------------------------------------- */
static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_piece(const char *name)
{
    size_t n = strlen(name);
    return (n >= 4 && strcmp(name + n - 4, ".npy") == 0) || pl_array_is_bundle(name);
}

/* Lists the files of a folder for which `wanted` is true, sorted; *n is 0 without any. */
static pl_status list(pl_dataset *d, const char *dir, bool (*wanted)(const char *),
                      const char ***paths, int *n)
{
    *n = 0;
    for (int pass = 0; pass < 2; pass++) {
        DIR *folder = opendir(dir);
        int k = 0;
        bool failed = false;
        if (!folder) return PL_OK;
        for (struct dirent *e; !failed && (e = readdir(folder));) {
            if (e->d_name[0] == '.' || !wanted(e->d_name)) continue;
            if (pass && k < *n)
                failed = !((*paths)[k] = pl_arena_printf(&d->mem, "%s/%s", dir, e->d_name));
            k++;
        }
        closedir(folder);
        if (failed) return PL_ERR_MEMORY;
        if (!pass || k < *n) *n = k;
        if (!pass && !(*paths = pl_arena_new(&d->mem, const char *, *n + 1))) return PL_ERR_MEMORY;
    }
    qsort(*paths, (size_t)*n, sizeof **paths, by_bytes);
    return PL_OK;
}

/* One file with all arrays: DIR/train.safetensors, DIR/train.h5, or, for training, the path itself.
 */
static const char *bundle(pl_dataset *d, pl_subset subset)
{
    static const char *const tails[] = {"safetensors", "h5", "hdf5"};
    if (pl_array_is_bundle(d->dir)) return subset == PL_SUBSET_TRAIN ? d->dir : NULL;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char *path = pl_arena_printf(&d->mem, "%s/%s.%s", d->dir, pl_subset_name(subset), tails[i]);
        if (path && access(path, R_OK) == 0) return path;
    }
    return NULL;
}

static pl_status find_files(pl_dataset *d, pl_subset subset, const char *input, const char ***paths,
                            int *n)
{
    const char *name = pl_subset_name(subset);
    char *plain = pl_arena_printf(&d->mem, "%s/%s/%s.npy", d->dir, name, input);
    char *pieces = pl_arena_printf(&d->mem, "%s/%s/%s", d->dir, name, input);
    char *folder = pl_arena_printf(&d->mem, "%s/%s", d->dir, name);
    const char **one = pl_arena_new(&d->mem, const char *, 1);
    if (!plain || !pieces || !folder || !one) return PL_ERR_MEMORY;
    *paths = one;
    *n = 1;
    *one = plain;
    if (access(plain, R_OK) == 0) return PL_OK;
    PL_TRY(list(d, pieces, is_piece, paths, n));
    if (*n) return PL_OK;
    PL_TRY(list(d, folder, pl_array_is_bundle, paths, n));
    if (*n) return PL_OK;
    const char *all = bundle(d, subset);
    *one = all ? all : plain; /* opening reports a missing file */
    *paths = one;
    *n = 1;
    return PL_OK;
}

const char *pl_dataset_field(pl_arena *mem, const char *fields, const char *input)
{
    size_t n = strlen(input);
    for (const char *at = fields; *at;) {
        size_t len = strcspn(at, ",");
        while (*at == ' ' && len) at++, len--;
        if (len > n + 1 && memcmp(at, input, n) == 0 && at[n] == '=')
            return pl_arena_strndup(mem, at + n + 1, len - n - 1);
        at += len;
        if (*at == ',') at++;
    }
    return input;
}

/* ---- opening ------------------------------------------------------------------------------ */
static pl_status open_column(pl_dataset *d, part *p, column *c, pl_subset subset,
                             const pl_type *input)
{
    const char **paths;
    int n;
    PL_TRY(find_files(d, subset, c->input, &paths, &n));
    PL_FAIL_IF(input->rank < 1, PL_ERR_DATA,
               "input \"%s\" is a scalar: it has no rows to read from %s", c->input, paths[0]);
    pl_type sample = pl_type_make(input->dtype, input->rank - 1, input->dim + 1);
    c->row_bytes = pl_type_bytes(&sample);
    PL_TRY(pl_array_open(paths, n, c->input, c->field, &sample, &c->array));
    int64_t rows = pl_array_rows(c->array);
    PL_FAIL_IF(p->rows && rows != p->rows, PL_ERR_DATA,
               "%s has %lld rows, %s has %lld: each needs one row per sample", paths[0],
               (long long)rows, pl_array_path(p->columns[0].array, 0), (long long)p->rows);
    p->rows = rows;
    return PL_OK;
}

/* from: the subset whose files are read. */
static pl_status open_part(pl_dataset *d, pl_subset subset, pl_subset from, const pl_program *prog)
{
    part *p = &d->parts[subset];
    int n = pl_program_input_count(prog);
    p->columns = pl_arena_new(&d->mem, column, (size_t)n + 1);
    if (!p->columns) return PL_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        column *c = &p->columns[p->n];
        c->input = pl_arena_strdup(&d->mem, pl_program_input_name(prog, i));
        c->field = c->input ? pl_dataset_field(&d->mem, d->fields, c->input) : NULL;
        if (!c->field) return PL_ERR_MEMORY;
        p->n++;
        pl_type input = pl_program_input_type(prog, i);
        PL_TRY(open_column(d, p, c, from, &input));
    }
    return PL_OK;
}

pl_status pl_dataset_open(const char *dir, const char *fields, const pl_program *train,
                          const pl_program *eval, bool folded, pl_dataset **out)
{
    pl_dataset *d = pl_sys_alloc(sizeof *d);
    if (!d) return PL_ERR_MEMORY;
    d->dir = pl_arena_strdup(&d->mem, dir);
    d->fields = pl_arena_strdup(&d->mem, fields);
    pl_status rc = d->dir && d->fields ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK && train) rc = open_part(d, PL_SUBSET_TRAIN, PL_SUBSET_TRAIN, train);
    if (rc == PL_OK && eval)
        rc = open_part(d, PL_SUBSET_EVAL, folded ? PL_SUBSET_TRAIN : PL_SUBSET_EVAL, eval);
    if (rc != PL_OK) {
        pl_dataset_close(d);
        return rc;
    }
    *out = d;
    return PL_OK;
}

void pl_dataset_close(pl_dataset *d)
{
    if (!d) return;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < d->parts[s].n; i++) pl_array_close(d->parts[s].columns[i].array);
    pl_arena_release(&d->mem);
    pl_sys_free(d);
}

/* ---- reading ------------------------------------------------------------------------------ */
int64_t pl_dataset_rows(const pl_dataset *d, pl_subset subset)
{
    return d->parts[subset].rows;
}

const char *pl_dataset_path(const pl_dataset *d, pl_subset subset, const char *input, int64_t row)
{
    const part *p = &d->parts[subset];
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->columns[i].input, input) == 0) return pl_array_path(p->columns[i].array, row);
    return "";
}

pl_status pl_dataset_read(const pl_dataset *d, pl_subset subset, const int64_t *sample, int n,
                          pl_batch *batch)
{
    const part *p = &d->parts[subset];
    for (int i = 0; i < p->n; i++) {
        const column *c = &p->columns[i];
        char *dst = pl_batch_input(batch, c->input, NULL);
        for (int k = 0; dst && k < n; k++)
            PL_TRY(pl_array_read(c->array, sample[k], dst + (size_t)k * c->row_bytes));
    }
    return PL_OK;
}
