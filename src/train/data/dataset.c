/* dataset.c - see dataset.h. */
#include "train/data/dataset.h"

#include "train/data/mix_batch.h"

#include "base/hash.h"
#include "base/sys.h"
#include "data/sets/array.h"
#include "plimsoll_hdf5.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct column {
    const char *input, *field;
    pl_type type; /* of the input */
    size_t row_bytes;
    pl_array *array;
} column;

typedef struct part {
    column *columns;
    int n;
    int64_t rows; /* samples */
    /* A set that is divided (row_of): rows of the files, rows of a block, which of its rows. */
    int64_t all, block;
    bool held_out;
} part;

struct pl_dataset {
    pl_arena mem;
    const char *dir, *fields;
    bool mixed;
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

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* One file with all arrays: BASE.safetensors, BASE.h5, ...; NULL: there is none. */
static const char *bundle(pl_dataset *d, const char *base)
{
    static const char *const tails[] = {"safetensors", "h5", "hdf5", "npz", "csv", "bin"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char *path = pl_arena_printf(&d->mem, "%s.%s", base, tails[i]);
        if (path && access(path, R_OK) == 0) return path;
    }
    return NULL;
}

/* Sets *base to where the arrays of a subset are: the folder DIR/train, the file DIR/train.h5,
 * or the whole of data.path for a training set that has no such name; NULL: there are none. */
static pl_status find_base(pl_dataset *d, pl_subset subset, const char **base)
{
    static const char *const names[2][6] = {{"train"},
                                            {"eval", "val", "valid", "validation", "test"}};
    *base = NULL;
    for (int i = 0; names[subset][i] && !pl_array_is_bundle(d->dir) && !*base; i++) {
        char *folder = pl_arena_printf(&d->mem, "%s/%s", d->dir, names[subset][i]);
        if (!folder) return PL_ERR_MEMORY;
        *base = is_folder(folder) ? folder : bundle(d, folder);
    }
    if (!*base && subset == PL_SUBSET_TRAIN) *base = d->dir;
    return PL_OK;
}

static pl_status find_files(pl_dataset *d, const char *base, const char *input, const char ***paths,
                            int *n)
{
    char *plain = pl_arena_printf(&d->mem, "%s/%s.npy", base, input);
    char *pieces = pl_arena_printf(&d->mem, "%s/%s", base, input);
    const char **one = pl_arena_new(&d->mem, const char *, 1);
    if (!plain || !pieces || !one) return PL_ERR_MEMORY;
    *paths = one;
    *n = 1;
    *one = pl_array_is_bundle(base) ? base : plain;
    if (access(*one, R_OK) == 0) return PL_OK;
    PL_TRY(list(d, pieces, is_piece, paths, n));
    if (*n) return PL_OK;
    PL_TRY(list(d, base, pl_array_is_bundle, paths, n));
    if (*n) return PL_OK;
    *paths = one; /* opening reports a missing file */
    *n = 1;
    return PL_OK;
}

/* ---- processes ---------------------------------------------------------------------------- */
/* Counts HDF5 files in a folder, at most PL_HDF5_AWAKE: more do not run at a time. */
static int count_hdf5(const char *path, int depth)
{
    char below[4096];
    size_t n = strlen(path);
    if ((n > 3 && strcmp(path + n - 3, ".h5") == 0) ||
        (n > 5 && strcmp(path + n - 5, ".hdf5") == 0))
        return 1;
    DIR *folder = depth && is_folder(path) ? opendir(path) : NULL;
    int found = 0;
    for (struct dirent *e; folder && found < PL_HDF5_AWAKE && (e = readdir(folder));)
        if (e->d_name[0] != '.' &&
            (size_t)snprintf(below, sizeof below, "%s/%s", path, e->d_name) < sizeof below)
            found += count_hdf5(below, depth - 1);
    if (folder) closedir(folder);
    return found;
}

uint64_t pl_dataset_process_bytes(const char *dir, int n_inputs, uint64_t row_bytes)
{
    return pl_hdf5_process_bytes(count_hdf5(dir, 3) * (n_inputs > 0 ? n_inputs : 1), row_bytes);
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

/* ---- a set without evaluation files -------------------------------------------------------- */
/* Of every `block` rows one is for evaluation, chosen by a hash of the block's number: neither
 * sorted nor periodic rows make an evaluation set of one kind, and no list of rows is needed. */
static int64_t held_out(int64_t block, int64_t k)
{
    return (int64_t)(pl_mix64((uint64_t)block + 0x5EA1u) % (uint64_t)k);
}

static int64_t row_of(const part *p, int64_t sample)
{
    int64_t k = p->block;
    if (!k) return sample;
    if (p->held_out || k == 1) return sample * k + held_out(sample, k);
    int64_t block = sample / (k - 1), at = sample % (k - 1);
    if (block >= p->all / k) return p->all / k * k + (sample - p->all / k * (k - 1));
    return block * k + at + (at >= held_out(block, k));
}

static int64_t block_of(int64_t rows, double share)
{
    int64_t k = (int64_t)(1 / share + 0.5);
    if (k > rows) k = rows;
    return rows < 2 ? 0 : k;
}

/* Divides the rows of the training files between the two subsets. */
static void divide(part *p, bool held, double share)
{
    p->all = p->rows;
    p->block = block_of(p->rows, share);
    p->held_out = held;
    if (!p->block) p->rows = held ? 0 : p->all;
    if (p->block) p->rows = held ? p->all / p->block : p->all - p->all / p->block;
}

/* ---- opening ------------------------------------------------------------------------------ */
static pl_status open_column(pl_dataset *d, part *p, column *c, const char *base,
                             const pl_type *input, const char *const *others)
{
    const char **paths;
    int n;
    PL_TRY(find_files(d, base, c->input, &paths, &n));
    PL_FAIL_IF(input->rank < 1, PL_ERR_DATA,
               "input \"%s\" is a scalar: it has no rows to read from %s", c->input, paths[0]);
    pl_type sample = pl_type_make(input->dtype, input->rank - 1, input->dim + 1);
    c->row_bytes = pl_type_bytes(&sample);
    PL_TRY(pl_array_open(paths, n, c->input, c->field, others, &sample, &c->array));
    int64_t rows = pl_array_rows(c->array);
    PL_FAIL_IF(p->rows && rows != p->rows, PL_ERR_DATA,
               "%s has %lld rows, %s has %lld: each needs one row per sample", paths[0],
               (long long)rows, pl_array_path(p->columns[0].array, 0), (long long)p->rows);
    p->rows = rows;
    return PL_OK;
}

/* Returns the name of input i of the programs that read a part; NULL after the last. */
static const char *input_at(const pl_dataset_opts *o, pl_subset subset, int i, pl_type *type)
{
    if (subset == PL_SUBSET_TRAIN) return pl__step_input(o->train, i, type);
    if (i == pl_program_input_count(o->eval)) return NULL;
    *type = pl_program_input_type(o->eval, i);
    return pl_program_input_name(o->eval, i);
}

static pl_status open_part(pl_dataset *d, const pl_dataset_opts *o, pl_subset subset,
                           const char *base)
{
    part *p = &d->parts[subset];
    int n = 0;
    pl_type type;
    while (input_at(o, subset, n, &type)) n++;
    p->columns = pl_arena_new(&d->mem, column, (size_t)n + 1);
    const char **fields = pl_arena_new(&d->mem, const char *, (size_t)n + 1);
    if (!p->columns || !fields) return PL_ERR_MEMORY;
    int columns = 0;
    for (int i = 0; i < n; i++) {
        column *c = &p->columns[columns];
        const char *name = input_at(o, subset, i, &c->type);
        if (d->mixed && pl__mix_fills(name)) continue;
        c->input = pl_arena_strdup(&d->mem, name);
        c->field = c->input ? pl_dataset_field(&d->mem, d->fields, c->input) : NULL;
        if (!c->field) return PL_ERR_MEMORY;
        fields[columns++] = c->field;
    }
    for (int i = 0; i < columns; i++) {
        p->n++;
        PL_TRY(open_column(d, p, &p->columns[i], base, &p->columns[i].type, fields));
    }
    return PL_OK;
}

static bool is_input(const pl_dataset_opts *o, const char *name, size_t len)
{
    pl_type type;
    for (int k = 0; k < 2; k++) {
        const char *input;
        if (k == PL_SUBSET_EVAL && !o->eval) continue;
        for (int i = 0; (input = input_at(o, (pl_subset)k, i, &type)); i++)
            if (strlen(input) == len && memcmp(input, name, len) == 0) return true;
    }
    return false;
}

/* A misspelt name would leave its input without the array that it was given. */
static pl_status check_fields(const pl_dataset *d, const pl_dataset_opts *o)
{
    for (const char *at = d->fields; *at;) {
        size_t len = strcspn(at, ",");
        while (*at == ' ' && len) at++, len--;
        size_t n = strcspn(at, "=,");
        if (n < len && !is_input(o, at, n)) {
            char inputs[256] = "";
            pl_type type;
            const char *name;
            for (int i = 0; (name = input_at(o, PL_SUBSET_TRAIN, i, &type)); i++)
                snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), "%s%s",
                         i ? ", " : "", name);
            PL_FAIL(PL_ERR_CONFIG, "data.fields: data fill no input \"%.*s\" (%s)", (int)n, at,
                    inputs);
        }
        at += len;
        if (*at == ',') at++;
    }
    return PL_OK;
}

/* Separate evaluation files, else a share of the training files. */
static pl_status open_parts(pl_dataset *d, const pl_dataset_opts *o)
{
    const char *base[2];
    part *train = &d->parts[PL_SUBSET_TRAIN], *eval = &d->parts[PL_SUBSET_EVAL];
    if (o->train) PL_TRY(check_fields(d, o)); /* evaluation may read fewer inputs */
    PL_TRY(find_base(d, PL_SUBSET_TRAIN, &base[0]));
    PL_TRY(find_base(d, PL_SUBSET_EVAL, &base[1]));
    bool divided = o->eval && !o->folded && !base[1] && o->eval_share > 0;
    if (o->folded || divided) base[1] = base[0];
    if (o->train) PL_TRY(open_part(d, o, PL_SUBSET_TRAIN, base[0]));
    if (o->eval && base[1]) PL_TRY(open_part(d, o, PL_SUBSET_EVAL, base[1]));
    PL_FAIL_IF(o->eval && !base[1] && !o->train, PL_ERR_DATA,
               "%s has no evaluation set: make the folder %s/eval, or set data.eval_share", d->dir,
               d->dir);
    if (divided) divide(train, false, o->eval_share);
    PL_FAIL_IF(divided && o->train && !train->rows, PL_ERR_DATA,
               "%s: data.eval_share=%g leaves no row for training", d->dir, o->eval_share);
    if (divided) divide(eval, true, o->eval_share);
    return PL_OK;
}

pl_status pl_dataset_open(const char *dir, const pl_dataset_opts *o, pl_dataset **out)
{
    pl_dataset *d = pl_sys_alloc(sizeof *d);
    if (!d) return PL_ERR_MEMORY;
    d->dir = pl_arena_strdup(&d->mem, dir);
    d->fields = pl_arena_strdup(&d->mem, o->fields);
    d->mixed = o->mixed;
    pl_status rc = d->dir && d->fields ? open_parts(d, o) : PL_ERR_MEMORY;
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
        if (strcmp(p->columns[i].input, input) == 0)
            return pl_array_path(p->columns[i].array, row_of(p, row));
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
            PL_TRY(pl_array_read(c->array, row_of(p, sample[k]), dst + (size_t)k * c->row_bytes));
    }
    return PL_OK;
}
