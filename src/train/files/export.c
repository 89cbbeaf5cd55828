/* export.c - weights as other programs read them (pl_run_export).
 *
 *     weight files ──► slots (weight_source.h) ──► published tensors (pl_naming) ──► files
 *
 * Nothing is computed and no session is needed: values go from file to file in blocks, in the order
 * of elements that files have. A published tensor has one part for each slot that it holds (q, k
 * and v joined), or is a constant of the naming. All tensors of all files are collected and checked
 * before the first file is written.
 */
#include "base/dtype.h"
#include "base/str.h"
#include "base/sys.h"
#include "io/file.h"
#include "train/files/checkpoint.h"
#include "train/files/weight_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK = 8192, TEXT_BYTES = 1 << 16 }; /* BLOCK: in elements */

typedef struct part {
    int slot;
    int64_t row; /* in the published tensor */
    double add;
    int64_t add_count;
    struct part *next; /* by row */
} part;

typedef struct tensor {
    const char *name;
    pl_type type;
    part *parts;  /* NULL: a constant */
    int constant; /* its number */
    int64_t rows; /* of a joined tensor: how many are covered; 0: one part */
    int rank, index;
    int module; /* index of the first tensor of the same module */
    bool buffer;
} tensor;

typedef struct export_file {
    const pl_export_file *as;
    const char *path;
    tensor *tensor;
    int n;
} export_file;

typedef struct exporter {
    pl_run *r;
    const pl_export_opts *o;
    pl_export_info *info;
    pl_weight_source s;
    pl_arena mem;
    bool convert, own; /* own: the form "plimsoll" */
    pl_dtype dtype;
    export_file *file;
    int n_files;
    char *raw, *block;
} exporter;

/* ---- forms -------------------------------------------------------------------------------- */
static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

static bool is_tensor_file(const char *path)
{
    static const char *const tail[] = {".safetensors", ".pt", ".pth", ".ckpt", ".bin"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
        if (ends_with(path, tail[i])) return true;
    return false;
}

static pl_status fail_form(const exporter *e)
{
    pl_str names = PL_STR_INIT;
    pl_str_addf(&names, "plimsoll, onnx");
    for (const pl_export *f = e->r->recipe->exports; f && f->name; f++)
        if (strcmp(f->name, "onnx") != 0) pl_str_addf(&names, ", %s", f->name);
    (void)pl__fail(PL_ERR_CONFIG, __FILE__, __LINE__,
                   "--as %s: recipe %s has no such form; its forms: %s", e->o->form,
                   e->r->recipe->name, names.text ? names.text : "");
    pl_str_release(&names);
    return PL_ERR_CONFIG;
}

static pl_status find_files(exporter *e, const pl_export_file **files)
{
    static const pl_export_file plimsoll[] = {{.name = "model.safetensors", .under = "state_dict"},
                                              {.name = NULL}};
    *files = NULL;
    e->own = strcmp(e->o->form, "plimsoll") == 0;
    if (e->own) *files = plimsoll;
    for (const pl_export *f = e->r->recipe->exports; f && f->name; f++)
        if (strcmp(f->name, e->o->form) == 0) *files = f->files;
    if (!*files) return fail_form(e);
    for (e->n_files = 0; (*files)[e->n_files].name; e->n_files++) continue;
    PL_FAIL_IF(e->n_files == 1 && !is_tensor_file(e->o->out), PL_ERR_CONFIG,
               "--out %s: the name says the format, and ends in .safetensors, .pt, .pth, .ckpt or "
               ".bin",
               e->o->out);
    return PL_OK;
}

static pl_status set_dtype(exporter *e)
{
    static const struct {
        const char *name;
        pl_dtype dtype;
    } known[] = {{"f32", PL_F32}, {"f16", PL_F16}, {"bf16", PL_BF16}, {"f64", PL_F64}};
    for (size_t i = 0; e->o->dtype && i < 4; i++) {
        if (strcmp(known[i].name, e->o->dtype) != 0) continue;
        e->dtype = known[i].dtype;
        e->convert = true;
    }
    PL_FAIL_IF(e->o->dtype && !e->convert, PL_ERR_CONFIG, "--dtype %s: f32, f16, bf16 or f64",
               e->o->dtype);
    return PL_OK;
}

/* ---- which slots -------------------------------------------------------------------------- */
/* Whether a slot belongs to a frozen network: nothing trains it. A buffer does if the weights of
 * its key of the recipe are frozen. */
static bool is_frozen(const exporter *e, int slot)
{
    const pl_run *r = e->r;
    const char *name = pl_store_slot(r->store, slot)->name;
    if (pl_store_slot(r->store, slot)->kind == PL_SLOT_PARAM) return r->files.frozen[slot];
    for (const pl_weights *w = r->recipe->weights; w && w->key; w++) {
        if (strcmp(w->key, "init_from") == 0 || !pl_nn_match(w->slots, name)) continue;
        for (int i = 0; i < pl_store_count(r->store); i++)
            if (r->files.frozen[i] && pl_nn_match(w->slots, pl_store_slot(r->store, i)->name))
                return true;
    }
    return false;
}

static bool is_chosen(const exporter *e, const pl_export_file *f, int slot)
{
    const pl_slot *s = pl_store_slot(e->r->store, slot);
    if (!pl__slot_in_model(s)) return false;
    if (f->slots) return pl_nn_match(f->slots, s->name);
    return !is_frozen(e, slot) || (e->own && e->o->frozen);
}

/* ---- tensors ------------------------------------------------------------------------------ */
static bool is_real(pl_dtype d)
{
    return d == PL_F32 || d == PL_BF16 || d == PL_F16 || d == PL_F64;
}

static tensor *find_tensor(export_file *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->tensor[i].name, name) == 0) return &f->tensor[i];
    return NULL;
}

static pl_status new_tensor(exporter *e, export_file *f, const char *name, pl_type type,
                            tensor **out)
{
    tensor *t = &f->tensor[f->n];
    *t = (tensor){.name = pl_arena_strdup(&e->mem, name), .type = type, .index = f->n};
    if (!t->name) return PL_ERR_MEMORY;
    if (e->convert && is_real(type.dtype)) t->type.dtype = e->dtype;
    f->n++;
    *out = t;
    return PL_OK;
}

static void put_part(tensor *t, part *p)
{
    part **at = &t->parts;
    while (*at && (*at)->row < p->row) at = &(*at)->next;
    p->next = *at;
    *at = p;
}

/* Puts dimensions of 1 where `shape` says. */
static pl_type reshape(pl_type t, const char *shape)
{
    int64_t dim[PL_MAX_RANK], kept = 0;
    int rank = 0;
    for (int i = 0; i < t.rank; i++) kept += t.dim[i] != 1;
    for (; *shape; shape++) {
        if (*shape == '1' && rank < PL_MAX_RANK) dim[rank++] = 1;
        for (int i = 0; *shape == '*' && i < t.rank && rank < PL_MAX_RANK; i++)
            if (t.dim[i] != 1 || (!kept && i == 0)) dim[rank++] = t.dim[i];
    }
    return pl_type_make(t.dtype, rank, dim);
}

/* The type of the whole published tensor. */
static pl_type type_of(const pl_naming *naming, const pl_published *p, const pl_slot *s)
{
    pl_type type = pl__slot_file_type(s);
    const pl_tensor_shape *x = naming ? naming->shapes : NULL;
    while (x && x->names && !pl_nn_match(x->names, p->name)) x++;
    if (x && x->names) type = reshape(type, x->shape);
    if (p->rows && type.rank) type.dim[0] = p->rows;
    return type;
}

static pl_status add_slot(exporter *e, export_file *f, int slot)
{
    const pl_slot *s = pl_store_slot(e->r->store, slot);
    const pl_naming *naming = f->as->naming;
    pl_published p = {.rows = 0};
    int file;
    bool named = naming ? pl__naming_find(naming, e->r->config, s, &p)
                        : snprintf(p.name, sizeof p.name, "%s", s->name) < (int)sizeof p.name;
    if (!named) {
        if (!e->info->unnamed++)
            snprintf(e->info->first_unnamed, sizeof e->info->first_unnamed, "%.100s", s->name);
        return PL_OK;
    }
    if (!p.name[0]) return PL_OK; /* their files have no such tensor */
    const pl_published *from = e->s.from[slot];
    const pl_st_tensor *x = from ? pl__source_find(&e->s, slot, &file) : NULL;
    pl_type type = pl__slot_file_type(s);
    if (!x && f->as->optional) return PL_OK;
    PL_FAIL_IF(!x, PL_ERR_FILE, "%s has no tensor %s for the model's %s, which form %s needs",
               e->o->model, from ? from->name : s->name, s->name, e->o->form);
    PL_FAIL_IF(!x->loadable || is_real(x->type.dtype) != is_real(type.dtype), PL_ERR_FILE,
               "%s: tensor \"%s\" has the number format %s, which is not converted (f16, bf16, f32 "
               "and f64 are)",
               e->o->model, x->name, pl_st_dtype_name(x->dtype));
    PL_FAIL_IF(!pl__naming_shape(from, &x->type, &type), PL_ERR_FILE,
               "%s: tensor \"%s\" has another shape than the model's %s", e->o->model, x->name,
               s->name);
    tensor *t = find_tensor(f, p.name);
    if (t && !p.rows) return PL_OK; /* tied weights */
    if (!t) PL_TRY(new_tensor(e, f, p.name, type_of(naming, &p, s), &t));
    part *q = pl_arena_new(&e->mem, part, 1);
    if (!q) return PL_ERR_MEMORY;
    *q = (part){slot, p.row, p.add, p.add_count, NULL};
    put_part(t, q);
    if (p.rows) t->rows += pl__slot_file_type(s).dim[0];
    return PL_OK;
}

static pl_status add_constants(exporter *e, export_file *f)
{
    const pl_naming *n = f->as->naming;
    char name[PL_TENSOR_NAME], whole[2 * PL_TENSOR_NAME];
    pl_type type;
    tensor *t;
    for (int i = 0; n && n->constant && n->constant(e->r->config, i, name, &type, NULL); i++) {
        snprintf(whole, sizeof whole, "%s%s", n->prefix ? n->prefix : "", name);
        if (find_tensor(f, whole)) continue;
        PL_TRY(new_tensor(e, f, whole, type, &t));
        t->type = type; /* a table keeps its type */
        t->constant = i;
    }
    return PL_OK;
}

static int count_constants(const exporter *e, const pl_naming *n)
{
    char name[PL_TENSOR_NAME];
    pl_type type;
    int i = 0;
    while (n && n->constant && n->constant(e->r->config, i, name, &type, NULL)) i++;
    return i;
}

/* Position of a part of a name in a list "a,b,c"; -1: the list does not have it. */
static int position(const char *list, const char *text, size_t n)
{
    for (int i = 0; *list; i++) {
        size_t m = strcspn(list, ",");
        if (m == n && memcmp(list, text, n) == 0) return i;
        list += m + (list[m] == ',');
    }
    return -1;
}

/* Compares two names by the first part in which they differ; 0: no list has both parts. */
static int by_siblings(const char *const *lists, const char *a, const char *b)
{
    size_t at = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.') at = i + 1;
    for (; lists && *lists; lists++) {
        int x = position(*lists, a + at, strcspn(a + at, ".")),
            y = position(*lists, b + at, strcspn(b + at, "."));
        if (x >= 0 && y >= 0) return x - y;
    }
    return 0;
}

static int by_rank(const void *a, const void *b, void *ctx)
{
    const tensor *x = a, *y = b;
    const pl_naming *naming = ctx;
    if (x->rank != y->rank) return x->rank - y->rank;
    int listed = by_siblings(naming ? naming->siblings : NULL, x->name, y->name);
    if (listed) return listed;
    if (x->module != y->module) return x->module - y->module;
    return x->buffer != y->buffer ? x->buffer - y->buffer : x->index - y->index;
}

/* The first tensor whose name begins with the same module, "a.b." of "a.b.weight". */
static int module_of(const export_file *f, const char *name)
{
    const char *dot = strrchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) + 1 : 0;
    for (int i = 0; i < f->n; i++)
        if (strncmp(f->tensor[i].name, name, n) == 0 && !strchr(f->tensor[i].name + n, '.'))
            return i;
    return 0;
}

/* By the order of the naming, then by module, its parameters before its buffers, as state_dict
 * lists them; siblings in a module by their lists. */
static void sort_tensors(const exporter *e, export_file *f)
{
    const char *const *order = f->as->naming ? f->as->naming->order : NULL;
    for (int i = 0; i < f->n; i++) {
        tensor *t = &f->tensor[i];
        t->module = module_of(f, t->name);
        t->buffer = !t->parts || pl_store_slot(e->r->store, t->parts->slot)->kind == PL_SLOT_BUFFER;
        while (order && order[t->rank] && !pl_nn_match(order[t->rank], t->name)) t->rank++;
    }
    if (f->n)
        qsort_r(f->tensor, (size_t)f->n, sizeof *f->tensor, by_rank,
                (void *)(uintptr_t)f->as->naming);
}

static pl_status collect(exporter *e, export_file *f)
{
    int n = pl_store_count(e->r->store);
    if (f->as->text) return PL_OK;
    size_t most = (size_t)(n + count_constants(e, f->as->naming)) + 1;
    f->tensor = pl_arena_new(&e->mem, tensor, most);
    if (!f->tensor) return PL_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        if (is_chosen(e, f->as, i)) PL_TRY(add_slot(e, f, i));
    if (!f->n) return PL_OK; /* the run does not have that network */
    PL_TRY(add_constants(e, f));
    for (int i = 0; i < f->n; i++)
        PL_FAIL_IF(f->tensor[i].rows && f->tensor[i].rows != f->tensor[i].type.dim[0], PL_ERR_FILE,
                   "form %s: tensor %s has %lld rows, the weights of the run give %lld", e->o->form,
                   f->tensor[i].name, (long long)f->tensor[i].type.dim[0],
                   (long long)f->tensor[i].rows);
    sort_tensors(e, f);
    return PL_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */
/* Values of a slot, in the order of files: the constant of the source is subtracted, the constant
 * of the form is added, both in f64. */
static pl_status write_part(exporter *e, pl_st_writer *w, int k, const tensor *t, const part *p)
{
    const pl_slot *s = pl_store_slot(e->r->store, p->slot);
    const pl_published *from = e->s.from[p->slot];
    int file = 0;
    const pl_st_tensor *x = pl__source_find(&e->s, p->slot, &file);
    pl_type type = pl__slot_file_type(s);
    int64_t elems = pl_type_elems(&type), rows = type.rank ? type.dim[0] : 1;
    int64_t first = from->rows && rows ? from->row * (elems / rows) : 0;
    size_t in = pl_dtype_bytes(x->type.dtype), out = pl_dtype_bytes(t->type.dtype);
    bool plain = x->type.dtype == t->type.dtype && !p->add_count && !from->add_count;
    const pl_st_reader *reader = pl_st_set_file(e->s.set, file);
    const void *values = plain ? e->raw : e->block;
    for (int64_t at = 0; at < elems; at += BLOCK) {
        int64_t n = elems - at < BLOCK ? elems - at : BLOCK;
        PL_TRY(pl_st_read_range(reader, x, (uint64_t)(first + at) * in, (size_t)n * in, e->raw));
        for (int64_t i = 0; !plain && i < n; i++) {
            double v = pl_elem_get(x->type.dtype, e->raw, i);
            if (at + i < from->add_count) v -= from->add;
            if (at + i < p->add_count) v += p->add;
            pl_elem_set(t->type.dtype, e->block, i, v);
        }
        PL_TRY(pl__weights_check(reader, x, e->raw, t->type.dtype, values, at, n));
        PL_TRY(pl_st_writer_write(w, k, values, (size_t)n * out));
    }
    return PL_OK;
}

/* Counts a tensor whose values are random, as the model file notes. */
static void count_random(exporter *e, const tensor *t)
{
    pl_export_info *info = e->info;
    bool random = false;
    int file = 0;
    for (const part *p = t->parts; p && !random; p = p->next) {
        const pl_st_tensor *x = pl__source_find(&e->s, p->slot, &file);
        random = pl__random_frozen_noted(pl_st_set_file(e->s.set, file), x->name);
    }
    if (random && !info->random++)
        snprintf(info->first_random, sizeof info->first_random, "%s", t->name);
}

static pl_status write_tensor(exporter *e, const export_file *f, pl_st_writer *w, int k)
{
    const tensor *t = &f->tensor[k];
    size_t bytes = pl_type_bytes(&t->type);
    e->info->tensors++;
    e->info->bytes += bytes;
    count_random(e, t);
    for (const part *p = t->parts; p; p = p->next) PL_TRY(write_part(e, w, k, t, p));
    if (t->parts) return PL_OK;
    char name[PL_TENSOR_NAME];
    pl_type type;
    void *data = pl_sys_alloc(bytes + 1);
    if (!data) return PL_ERR_MEMORY;
    bool there = f->as->naming->constant(e->r->config, t->constant, name, &type, data);
    pl_status rc = there ? pl_st_writer_write(w, k, data, bytes) : PL_ERR_ARG;
    pl_sys_free(data);
    return rc;
}

/* "step" in an entry is the number of steps done. */
static pl_status add_entry(const exporter *e, pl_st_writer *w, const pl_export_entry *x)
{
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)e->o->step);
    return pl_st_writer_entry(w, x->key, strcmp(x->json, "step") == 0 ? number : x->json);
}

static pl_status declare(exporter *e, const export_file *f, pl_st_writer *w)
{
    for (int i = 0; i < f->n; i++)
        PL_TRY(pl_st_writer_add(w, f->tensor[i].name, &f->tensor[i].type));
    if (f->as->under) PL_TRY(pl_st_writer_under(w, f->as->under));
    for (const pl_export_entry *x = f->as->entries; x && x->key; x++) PL_TRY(add_entry(e, w, x));
    if (e->own || !f->as->under) PL_TRY(pl_st_writer_meta(w, "format", "pt"));
    if (!e->own) return PL_OK;
    const char *random = pl__source_meta(&e->s, PL_RANDOM_NOTE);
    if (random) PL_TRY(pl_st_writer_meta(w, PL_RANDOM_NOTE, random));
    PL_TRY(pl__meta_write(e->r, w));
    PL_TRY(pl_st_writer_meta(w, "plimsoll.recipe", e->r->recipe->name));
    return pl_st_writer_meta(w, "plimsoll.version", pl_version());
}

static pl_status write_tensors(exporter *e, const export_file *f)
{
    pl_st_writer *w;
    PL_TRY(pl_st_writer_new(f->path, &w));
    pl_status rc = declare(e, f, w);
    if (rc == PL_OK) rc = pl_st_writer_begin(w);
    for (int i = 0; i < f->n && rc == PL_OK; i++)
        rc = write_tensor(e, f, w, pl_st_writer_order(w, i));
    if (rc == PL_OK) rc = pl_st_writer_finish(w);
    pl_st_writer_free(w);
    return rc;
}

static pl_status write_text(exporter *e, const export_file *f)
{
    char *text = pl_arena_new(&e->mem, char, TEXT_BYTES);
    if (!text) return PL_ERR_MEMORY;
    int n = f->as->text(e->r->config, text, TEXT_BYTES);
    PL_FAIL_IF(n < 0 || n >= TEXT_BYTES, PL_ERR_ARG, "%s: the text has more than %d bytes", f->path,
               TEXT_BYTES);
    pl_file_writer *w;
    PL_TRY(pl_file_writer_new(f->path, &w));
    pl_status rc = pl_file_writer_write(w, text, (size_t)n);
    if (rc == PL_OK) rc = pl_file_writer_commit(w);
    pl_file_writer_free(w);
    return rc;
}

/* One file: --out is its path. Several: --out is their folder. Folders are made. */
static pl_status name_files(exporter *e)
{
    const char *out = e->o->out;
    for (int i = 0; i < e->n_files; i++) {
        export_file *f = &e->file[i];
        f->path = e->n_files > 1 ? pl_arena_printf(&e->mem, "%s/%s", out, f->as->name) : out;
        if (!f->path) return PL_ERR_MEMORY;
        const char *slash = strrchr(f->path, '/');
        char *folder = pl_arena_strndup(&e->mem, f->path, slash ? (size_t)(slash - f->path) : 0);
        if (!folder) return PL_ERR_MEMORY;
        if (folder[0]) PL_TRY(pl_sys_make_dirs(folder));
    }
    return PL_OK;
}

/* A form that the recipe writes itself; NULL: it has no such form. */
static const pl_export *written_form(const exporter *e)
{
    for (const pl_export *f = e->r->recipe->exports; f && f->name; f++)
        if (f->write && strcmp(f->name, e->o->form) == 0) return f;
    return NULL;
}

static pl_status write_form(exporter *e, const pl_export *f)
{
    struct stat st;
    PL_FAIL_IF(e->o->dtype, PL_ERR_CONFIG,
               "--as %s keeps the number formats of the file: leave out --dtype", f->name);
    PL_TRY(f->write(e->r->recipe->own, e->o->model, e->o->out, &e->info->tensors));
    e->info->files = 1;
    if (stat(e->o->out, &st) == 0) e->info->bytes = (uint64_t)st.st_size;
    return PL_OK;
}

/* A folder of several files gets their checksums. */
static pl_status write_sums(const exporter *e)
{
    pl_str s = PL_STR_INIT;
    pl_status rc = PL_OK;
    for (int i = 0; i < e->n_files && rc == PL_OK; i++)
        if (e->file[i].as->text || e->file[i].n)
            rc = pl__sums_add(&s, e->o->out, e->file[i].as->name);
    if (rc == PL_OK) rc = pl__sums_write(e->o->out, &s);
    pl_str_release(&s);
    return rc;
}

static pl_status export_all(exporter *e)
{
    const pl_export_file *files = NULL;
    const pl_export *form = written_form(e);
    if (form) return write_form(e, form);
    if (strcmp(e->o->form, "onnx") == 0) return pl__export_onnx(e->r, e->o, e->info);
    PL_TRY(set_dtype(e));
    PL_TRY(find_files(e, &files));
    PL_TRY(pl__frozen_list(e->r));
    pl_status rc = pl__source_open(&e->s);
    if (rc == PL_ERR_IO) rc = PL_ERR_FILE; /* --model names no file */
    PL_TRY(rc);
    e->file = pl_arena_new(&e->mem, export_file, (size_t)e->n_files + 1);
    e->raw = pl_arena_new(&e->mem, char, BLOCK * 8);
    e->block = pl_arena_new(&e->mem, char, BLOCK * 8);
    if (!e->file || !e->raw || !e->block) return PL_ERR_MEMORY;
    for (int i = 0; i < e->n_files; i++) {
        e->file[i].as = &files[i];
        PL_TRY(collect(e, &e->file[i]));
    }
    int some = 0;
    for (int i = 0; i < e->n_files; i++) some += e->file[i].n;
    PL_FAIL_IF(!some, PL_ERR_CONFIG, "form %s has no name for any weight of this run", e->o->form);
    PL_TRY(name_files(e));
    for (int i = 0; i < e->n_files; i++) {
        if (!files[i].text && !e->file[i].n) continue;
        PL_TRY(files[i].text ? write_text(e, &e->file[i]) : write_tensors(e, &e->file[i]));
        e->info->files++;
    }
    return e->n_files > 1 ? write_sums(e) : PL_OK;
}

pl_status pl_run_export(pl_run *r, const pl_export_opts *o, pl_export_info *info)
{
    exporter e = {.r = r, .o = o, .info = info};
    *info = (pl_export_info){.files = 0};
    e.s = (pl_weight_source){.r = r, .key = "--model", .path = o->model, .slots = "*"};
    if (r->recipe->start) e.s.namings = r->recipe->start->naming;
    pl_status rc = pl__recorded_check(o->model);
    if (rc == PL_ERR_IO) rc = PL_ERR_FILE;
    if (rc == PL_OK) rc = export_all(&e);
    pl__source_close(&e.s);
    pl_arena_release(&e.mem);
    return rc;
}
