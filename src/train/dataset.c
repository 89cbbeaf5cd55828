/* dataset.c - see dataset.h. */
#include "train/dataset.h"

#include "base/sys.h"
#include "io/npy.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

typedef struct column {
    const char *input, *path;
    pl_npy *array;
} column;

typedef struct part {
    column *columns;
    int n;
    int64_t rows;
} part;

struct pl_dataset {
    pl_arena mem;
    part parts[2]; /* by pl_subset */
};

const char *pl_subset_name(pl_subset subset)
{
    return subset == PL_SUBSET_TRAIN ? "train" : "eval";
}

/* One sample of an input: its type without the batch dimension. */
static pl_type sample_type(const pl_type *input)
{
    return pl_type_make(input->dtype, input->rank - 1, input->dim + 1);
}

static bool rows_match(const pl_type *array, const pl_type *sample)
{
    if (array->dtype != sample->dtype || array->rank != sample->rank + 1) return false;
    for (int i = 0; i < sample->rank; i++)
        if (array->dim[i + 1] != sample->dim[i]) return false;
    return true;
}

static pl_status open_column(pl_dataset *d, part *p, column *c, const pl_type *input)
{
    PL_FAIL_IF(input->rank < 1, PL_ERR_DATA,
               "input \"%s\" is a scalar: it has no rows to read from %s", c->input, c->path);
    PL_FAIL_IF(access(c->path, R_OK) != 0, PL_ERR_DATA,
               "input \"%s\" wants the array %s: %s", c->input, c->path, strerror(errno));
    PL_TRY(pl_npy_open(c->path, &c->array));
    pl_type have = pl_npy_type(c->array), want = sample_type(input);
    char a[96], b[96];
    PL_FAIL_IF(!rows_match(&have, &want), PL_ERR_DATA,
               "%s is %s; input \"%s\" wants samples of %s in its rows", c->path,
               pl_type_text(&have, a, sizeof a), c->input, pl_type_text(&want, b, sizeof b));
    PL_FAIL_IF(have.dim[0] == 0, PL_ERR_DATA, "%s holds no samples", c->path);
    PL_FAIL_IF(p->rows && have.dim[0] != p->rows, PL_ERR_DATA,
               "%s has %lld rows, %s has %lld: one row a sample in each", c->path,
               (long long)have.dim[0], d->parts[p - d->parts].columns[0].path,
               (long long)p->rows);
    p->rows = have.dim[0];
    return PL_OK;
}

static pl_status open_part(pl_dataset *d, const char *dir, pl_subset subset, const pl_program *prog)
{
    part *p = &d->parts[subset];
    int n = pl_program_input_count(prog);
    p->columns = pl_arena_new(&d->mem, column, (size_t)n + 1);
    if (!p->columns) return PL_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        column *c = &p->columns[p->n];
        c->input = pl_arena_strdup(&d->mem, pl_program_input_name(prog, i));
        c->path = pl_arena_printf(&d->mem, "%s/%s/%s.npy", dir, pl_subset_name(subset), c->input);
        if (!c->input || !c->path) return PL_ERR_MEMORY;
        p->n++;
        pl_type input = pl_program_input_type(prog, i);
        PL_TRY(open_column(d, p, c, &input));
    }
    return PL_OK;
}

pl_status pl_dataset_open(const char *dir, const pl_program *train, const pl_program *eval,
                          pl_dataset **out)
{
    pl_dataset *d = pl_sys_alloc(sizeof *d);
    if (!d) return PL_ERR_MEMORY;
    pl_status rc = open_part(d, dir, PL_SUBSET_TRAIN, train);
    if (rc == PL_OK && eval) rc = open_part(d, dir, PL_SUBSET_EVAL, eval);
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
        for (int i = 0; i < d->parts[s].n; i++) pl_npy_close(d->parts[s].columns[i].array);
    pl_arena_release(&d->mem);
    pl_sys_free(d);
}

int64_t pl_dataset_rows(const pl_dataset *d, pl_subset subset)
{
    return d->parts[subset].rows;
}

const char *pl_dataset_path(const pl_dataset *d, pl_subset subset, const char *input)
{
    const part *p = &d->parts[subset];
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->columns[i].input, input) == 0) return p->columns[i].path;
    return "";
}

pl_status pl_dataset_read(const pl_dataset *d, pl_subset subset, const int64_t *sample, int n,
                          pl_batch *batch)
{
    const part *p = &d->parts[subset];
    for (int i = 0; i < p->n; i++) {
        const column *c = &p->columns[i];
        char *dst = pl_batch_input(batch, c->input, NULL);
        size_t row = pl_npy_row_bytes(c->array);
        for (int k = 0; dst && k < n; k++)
            PL_TRY(pl_npy_read(c->array, sample[k], 1, dst + (size_t)k * row));
    }
    return PL_OK;
}
