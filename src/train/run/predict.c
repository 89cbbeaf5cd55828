/* predict.c - predictions with a trained model: the interface for a recipe's pl_predict.run.
 *
 * A run that is limited to predictions (PL_GOAL_PREDICT) has the recipe's programs of predictions
 * in the places of the programs of a step, the weights that these read, and no data set. Inputs
 * come from the path that the user names: pictures through the reader that evaluations use, so that
 * a picture is cropped and scaled in the same way; other files through the recipe itself.
 *
 * Invariant: a result file has its name only when the whole prediction has succeeded.
 */
#include "base/sys.h"
#include "data/sets/array.h"
#include "data/sets/images.h"
#include "data/sets/prompts.h"
#include "io/file.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "train/data/images/image_set.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 64, MAX_ARRAYS = 64, MAX_TENSORS = 4, MAX_LINE = 4096 };

/* A result file that is being written: bytes, an array, or tensors. */
typedef struct result_file {
    char *name; /* NULL: --out itself */
    pl_file_writer *w;
    pl_npy_writer *array;
    pl_st_writer *tensors;
    size_t left[MAX_TENSORS]; /* bytes of each tensor that are still to come */
    int n_tensors;
} result_file;

struct pl_prediction {
    pl_run *r;
    const pl_predict_opts *o;
    pl_predict_info info;
    pl_arena mem;
    result_file file[MAX_FILES];
    int n_files;
    pl_pictures pictures; /* pictures.set is NULL until they are listed */
    pl_pictures beside;   /* of pl_predict_beside; the same */
    pl_npy *array;        /* --input as an array; NULL until it is opened */
    pl_array *rows[MAX_ARRAYS];
    int n_rows;
    pl_prompts *prompts; /* texts or lines; NULL: not open, or embeddings */
    int embeddings;      /* number in rows */
    pl_prompts *known;   /* data.prompts, whose embeddings are in data.embeddings; NULL: not open */
    pl_type text_row;
};

pl_status pl_run_predict_only(pl_run *r)
{
    PL_FAIL_IF(pl__train(r), PL_ERR_ARG, "the run is built already");
    PL_FAIL_IF(!r->recipe->predict, PL_ERR_CONFIG,
               "recipe %s makes no predictions; plimsoll eval RUN --out DIR writes its samples",
               r->recipe->name);
    r->purpose.goal = PL_GOAL_PREDICT;
    return PL_OK;
}

uint64_t pl__prediction_bytes(const pl_run *r)
{
    uint64_t (*own)(const pl_config *) = r->recipe->predict->bytes;
    return (own ? own(r->config) : 0) + pl__pictures_bytes(r);
}

/* ---- the user's options ------------------------------------------------------------------- */
const pl_config *pl_predict_config(const pl_prediction *p)
{
    return p->r->config;
}

void *pl_predict_own(const pl_prediction *p)
{
    return p->r->recipe->own;
}

const char *pl_predict_input(const pl_prediction *p)
{
    return p->o->input;
}

const char *pl_predict_out(const pl_prediction *p)
{
    return p->o->out;
}

const char *pl_predict_prompt(const pl_prediction *p)
{
    return p->o->prompt;
}

/* ---- programs ----------------------------------------------------------------------------- */
/* The program of that name, NULL: the main one; NULL when there is none. */
static pl_program *program_of(const pl_prediction *p, const char *name)
{
    const pl_variant *v = p->r->build->now;
    for (int i = 0; name && i < v->n_step_programs; i++)
        if (v->step_programs[i].name && strcmp(v->step_programs[i].name, name) == 0)
            return v->step_programs[i].run;
    return name ? NULL : v->train;
}

void *pl_predict_set(pl_prediction *p, const char *program, const char *name, pl_type *type)
{
    const pl_program *of = program_of(p, program);
    return of ? pl_session_input(p->r->session, of, name, type) : NULL;
}

pl_status pl_predict_run(pl_prediction *p, const char *program)
{
    pl_program *of = program_of(p, program);
    PL_FAIL_IF(!of, PL_ERR_ARG, "recipe %s: its predictions have no program \"%s\"",
               p->r->recipe->name, program);
    PL_TRY(pl_session_run(p->r->session, of));
    return pl_session_wait(p->r->session);
}

const void *pl_predict_get(pl_prediction *p, const char *program, const char *name, pl_type *type)
{
    const pl_program *of = program_of(p, program);
    return of ? pl_session_output(p->r->session, of, name, type) : NULL;
}

bool pl_predict_type(const pl_prediction *p, const char *program, const char *output, pl_type *type)
{
    const pl_program *of = program_of(p, program);
    for (int i = 0; of && i < pl_program_output_count(of); i++)
        if (strcmp(pl_program_output_name(of, i), output) == 0) {
            *type = pl_program_output_type(of, i);
            return true;
        }
    return false;
}

const char *pl_predict_class(const pl_prediction *p, int i)
{
    const pl_classes *c = p->r->data.classes;
    return i >= 0 && i < pl_classes_count(c) ? pl_classes_name(c, i) : NULL;
}

pl_status pl_predict_progress(pl_prediction *p, int64_t done, int64_t total)
{
    p->info.samples = done;
    if (p->o->progress) p->o->progress(p->o->ctx, done, total);
    PL_FAIL_IF(p->r->stop && *p->r->stop, PL_ERR_STOPPED, "stopped: no result is written");
    return PL_OK;
}

/* ---- result files ------------------------------------------------------------------------- */
static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

pl_status pl_predict_path(pl_prediction *p, const char *name, char *path, size_t cap)
{
    int n = snprintf(path, cap, "%s/%s", p->o->out, name);
    PL_FAIL_IF(n < 0 || (size_t)n >= cap, PL_ERR_IO, "%.100s...: the path is too long", name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    pl_status rc = pl_sys_make_dirs(path);
    *slash = '/';
    return rc;
}

/* The next result file, without a writer, and its path; makes the folders. */
static pl_status next_result(pl_prediction *p, const char *name, char path[4096], result_file **out)
{
    const char *to = p->o->out, *slash = strrchr(to, '/');
    PL_FAIL_IF(p->n_files == MAX_FILES, PL_ERR_UNSUPPORTED, "more than %d result files", MAX_FILES);
    result_file *f = &p->file[p->n_files];
    snprintf(path, 4096, "%s%s%s", to, name ? "/" : "", name ? name : "");
    PL_FAIL_IF(!name && is_folder(to), PL_ERR_IO, "--out %s is a folder; recipe %s writes %s", to,
               p->r->recipe->name, p->r->recipe->predict->out);
    if (name) {
        PL_TRY(pl_sys_make_dirs(to));
    } else if (slash && slash != to) {
        char *folder = pl_arena_strndup(&p->mem, to, (size_t)(slash - to));
        if (!folder) return PL_ERR_MEMORY;
        PL_TRY(pl_sys_make_dirs(folder));
    }
    f->name = name ? pl_arena_strdup(&p->mem, name) : NULL;
    if (name && !f->name) return PL_ERR_MEMORY;
    *out = f;
    return PL_OK;
}

/* Writes to a file of tensors: the bytes of one after the other. */
static pl_status write_tensors(result_file *f, const char *data, size_t bytes)
{
    for (int i = 0; i < f->n_tensors && bytes; i++) {
        size_t n = f->left[i] < bytes ? f->left[i] : bytes;
        if (n) PL_TRY(pl_st_writer_write(f->tensors, i, data, n));
        f->left[i] -= n;
        data += n;
        bytes -= n;
    }
    PL_FAIL_IF(bytes, PL_ERR_ARG, "%zu bytes more were given than the tensors of the result have",
               bytes);
    return PL_OK;
}

pl_status pl_predict_write(pl_prediction *p, const char *name, const void *data, size_t bytes)
{
    result_file *f = NULL;
    for (int i = 0; i < p->n_files && !f; i++) {
        const char *own = p->file[i].name;
        if (name && own ? strcmp(name, own) == 0 : name == own) f = &p->file[i];
    }
    if (!f) {
        char path[4096];
        PL_TRY(next_result(p, name, path, &f));
        PL_TRY(pl_file_writer_new(path, &f->w));
        p->n_files++;
    }
    return f->tensors ? write_tensors(f, data, bytes)
           : f->array ? pl_npy_writer_write(f->array, data, bytes)
                      : pl_file_writer_write(f->w, data, bytes);
}

pl_status pl_predict_npy(pl_prediction *p, const char *name, pl_type type)
{
    result_file *f;
    char path[4096];
    PL_TRY(next_result(p, name, path, &f));
    PL_TRY(pl_npy_writer_new(path, &type, &f->array));
    p->n_files++;
    return PL_OK;
}

pl_status pl_predict_tensors(pl_prediction *p, const char *name, int n, const char *const *tensor,
                             const pl_type *type)
{
    result_file *f;
    char path[4096];
    PL_FAIL_IF(n < 1 || n > MAX_TENSORS, PL_ERR_ARG, "a result file has 1 to %d tensors, not %d",
               MAX_TENSORS, n);
    PL_TRY(next_result(p, name, path, &f));
    PL_TRY(pl_st_writer_new(path, &f->tensors));
    p->n_files++;
    f->n_tensors = n;
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_st_writer_add(f->tensors, tensor[i], &type[i]));
        f->left[i] = pl_type_bytes(&type[i]);
    }
    PL_TRY(pl_st_writer_begin(f->tensors));
    for (int i = 0; i < n; i++)
        PL_FAIL_IF(pl_st_writer_order(f->tensors, i) != i, PL_ERR_ARG,
                   "the tensors of a result file must be sorted by type, widest first");
    return PL_OK;
}

static pl_status close_result(result_file *f, pl_status rc)
{
    if (rc == PL_OK)
        rc = f->tensors ? pl_st_writer_finish(f->tensors)
             : f->array ? pl_npy_writer_finish(f->array)
                        : pl_file_writer_commit(f->w);
    pl_st_writer_free(f->tensors);
    pl_npy_writer_free(f->array);
    pl_file_writer_free(f->w);
    return rc;
}

pl_status pl_predict_print(pl_prediction *p, const char *name, const char *fmt, ...)
{
    char line[MAX_LINE];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    PL_FAIL_IF(n < 0 || n >= MAX_LINE, PL_ERR_UNSUPPORTED, "a line of a result has over %d bytes",
               MAX_LINE - 1);
    return pl_predict_write(p, name, line, (size_t)n);
}

pl_status pl_predict_field(pl_prediction *p, const char *name, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) return pl_predict_write(p, name, text, strlen(text));
    PL_TRY(pl_predict_write(p, name, "\"", 1));
    for (; *text; text++)
        PL_TRY(pl_predict_write(p, name, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1));
    return pl_predict_write(p, name, "\"", 1);
}

/* ---- pictures ----------------------------------------------------------------------------- */
pl_status pl_predict_pictures(pl_prediction *p, int64_t *n)
{
    if (!p->pictures.set) PL_TRY(pl__pictures_open(p->r, p->o->input, &p->pictures));
    *n = pl_image_set_size(p->pictures.set, true);
    return PL_OK;
}

pl_status pl_predict_picture(pl_prediction *p, int64_t i, const char **name, int *width,
                             int *height)
{
    pl_image_info info;
    *name = pl_image_set_items(p->pictures.set)->item[i].name;
    if (!width) return PL_OK;
    pl_status rc = pl_image_set_look(p->pictures.set, true, i, 0, &info);
    if (rc != PL_OK) return pl__fail_prefix(rc, "%s", *name);
    *width = info.width;
    *height = info.height;
    return PL_OK;
}

pl_status pl_predict_result(pl_prediction *p, int64_t i, const char *ending, char *path, size_t cap)
{
    const pl_items *items = pl_image_set_items(p->pictures.set);
    const char *of = items->item[i].name;
    char name[4096];
    int stem = pl__pictures_stem(items, i);
    int n = snprintf(name, sizeof name, "%.*s%s", stem, of, ending);
    PL_FAIL_IF(n < 0 || (size_t)n >= sizeof name, PL_ERR_IO, "%.100s...: the path is too long", of);
    return pl_predict_path(p, name, path, cap);
}

static void count_bad(pl_prediction *p, int64_t picture)
{
    if (p->info.bad++) return;
    snprintf(p->info.first_bad, sizeof p->info.first_bad, "%s",
             pl_image_set_items(p->pictures.set)->item[picture].name);
}

pl_status pl_predict_read(pl_prediction *p, int64_t first, int n, bool *ok)
{
    for (int k = 0; k < n; k++) {
        pl_status rc = pl__pictures_read(p->r, &p->pictures, first + k, k);
        ok[k] = rc == PL_OK;
        if (ok[k]) continue;
        if (rc != PL_ERR_DATA || p->pictures.fail) return rc;
        count_bad(p, first + k);
    }
    return PL_OK;
}

pl_status pl_predict_pixels(pl_prediction *p, int64_t i, int w, int h, uint8_t *rgb, bool *ok)
{
    pl_status rc = pl__pictures_pixels(&p->pictures, i, w, h, rgb);
    *ok = rc == PL_OK;
    if (*ok) return PL_OK;
    if (rc != PL_ERR_DATA || p->pictures.fail) return rc;
    count_bad(p, i);
    return PL_OK;
}

/* Whether two paths are the same but for their endings. */
static bool same_stem(const char *a, const char *b)
{
    const char *x = strrchr(a, '.'), *y = strrchr(b, '.');
    size_t n = x ? (size_t)(x - a) : strlen(a), m = y ? (size_t)(y - b) : strlen(b);
    return n == m && memcmp(a, b, n) == 0;
}

pl_status pl_predict_beside(pl_prediction *p, const char *dir, int64_t i, int w, int h,
                            uint8_t *rgb)
{
    const char *name = pl_image_set_items(p->pictures.set)->item[i].name;
    if (!p->beside.set) PL_TRY(pl__pictures_open(p->r, dir, &p->beside));
    const pl_items *all = pl_image_set_items(p->beside.set);
    for (int64_t k = 0; k < all->n; k++)
        if (same_stem(all->item[k].name, name))
            return pl__pictures_pixels(&p->beside, k, w, h, rgb);
    PL_FAIL(PL_ERR_DATA, "%s has no picture with the same name as %s (with any ending)", dir, name);
}

/* ---- an array ----------------------------------------------------------------------------- */
pl_status pl_predict_array(pl_prediction *p, pl_type *type)
{
    if (!p->array) PL_TRY(pl_npy_open(p->o->input, &p->array));
    *type = pl_npy_type(p->array);
    return PL_OK;
}

pl_status pl_predict_array_rows(pl_prediction *p, int64_t first, int64_t n, void *to)
{
    return pl_npy_read(p->array, first, n, to);
}

pl_status pl_predict_rows(pl_prediction *p, const char *path, const char *field, const pl_type *row,
                          int *rows, int64_t *n)
{
    /* columns of a table of training samples that are not inputs */
    static const char *const targets[] = {"label", "target", NULL};
    PL_FAIL_IF(p->n_rows == MAX_ARRAYS, PL_ERR_UNSUPPORTED, "more than %d arrays", MAX_ARRAYS);
    PL_TRY(pl_array_open(&path, 1, field, field, targets, row, &p->rows[p->n_rows]));
    *n = pl_array_rows(p->rows[p->n_rows]);
    *rows = p->n_rows++;
    return PL_OK;
}

pl_status pl_predict_row(pl_prediction *p, int rows, int64_t i, void *to)
{
    return pl_array_read(p->rows[rows], i, to);
}

/* ---- texts -------------------------------------------------------------------------------- */
static bool has_arrays(const char *path)
{
    size_t n = strlen(path);
    return pl_array_is_bundle(path) || (n > 4 && strcmp(path + n - 4, ".npy") == 0);
}

/* Texts without embeddings: pl_image_feed.encode replaces the text encoder, whose weights the
 * recipe does not have. */
static pl_status allow_words(pl_prediction *p)
{
    PL_FAIL_IF(!pl_config_bool(p->r->config, "allow_random_frozen"), PL_ERR_CONFIG,
               "recipe %s has no text encoder, and the text vectors of prompts would be random: "
               "--input is the file of embeddings that `plimsoll embed` writes (.npy), or "
               "data.prompts and data.embeddings have the prompts; allow_random_frozen=true "
               "continues with random text vectors",
               p->r->recipe->name);
    pl_predict_note(p, "text vectors are random, results mean little: set data.embeddings");
    return PL_OK;
}

/* Looks texts up in the prompts that the model was trained on. */
static pl_status open_known(pl_prediction *p, const pl_type *row)
{
    const pl_config *c = p->r->config;
    int64_t n;
    PL_FAIL_IF(pl_config_is_null(c, "data.prompts") || pl_config_is_null(c, "data.embeddings"),
               PL_ERR_CONFIG,
               "recipe %s takes embeddings of prompts: --input is the file that `plimsoll embed` "
               "writes (.npy), or data.prompts and data.embeddings have the prompts",
               p->r->recipe->name);
    PL_TRY(pl_prompts_open(pl_config_text(c, "data.prompts"), &p->known));
    PL_TRY(pl_predict_rows(p, pl_config_text(c, "data.embeddings"), p->r->recipe->images->text, row,
                           &p->embeddings, &n));
    PL_FAIL_IF(n != pl_prompts_count(p->known), PL_ERR_DATA, "%s has %lld rows, %s has %lld lines",
               pl_config_text(c, "data.embeddings"), (long long)n,
               pl_config_text(c, "data.prompts"), (long long)pl_prompts_count(p->known));
    for (int64_t i = 0; i < pl_prompts_count(p->prompts); i++)
        PL_FAIL_IF(pl_prompts_find(p->known, pl_prompts_at(p->prompts, i)) < 0, PL_ERR_DATA,
                   "\"%.80s\" is not a line of %s; `plimsoll embed` makes embeddings of new "
                   "prompts, for --input",
                   pl_prompts_at(p->prompts, i), pl_config_text(c, "data.prompts"));
    return PL_OK;
}

pl_status pl_predict_texts(pl_prediction *p, const pl_type *row, int64_t *n)
{
    const char *path = p->o->input, *prompt = p->o->prompt;
    PL_FAIL_IF(path && prompt, PL_ERR_CONFIG, "--input and --prompt exclude each other: give one");
    p->text_row = *row;
    if (path && has_arrays(path))
        return pl_predict_rows(p, path, p->r->recipe->images->text, row, &p->embeddings, n);
    PL_TRY(prompt ? pl_prompts_parse(prompt, strlen(prompt), "--prompt", &p->prompts)
                  : pl_prompts_open(path, &p->prompts));
    *n = pl_prompts_count(p->prompts);
    PL_FAIL_IF(*n == 0, PL_ERR_DATA, "%s has no prompt", path ? path : "--prompt");
    bool words = p->r->recipe->images->encode && pl_config_is_null(p->r->config, "data.embeddings");
    return words ? allow_words(p) : open_known(p, row);
}

pl_status pl_predict_text(pl_prediction *p, int64_t i, void *row, const char **text)
{
    const char *words = p->prompts ? pl_prompts_at(p->prompts, i) : NULL;
    if (text) *text = words;
    if (words && !p->known)
        return p->r->recipe->images->encode(p->r->config, words, row, &p->text_row);
    return pl_predict_row(p, p->embeddings, words ? pl_prompts_find(p->known, words) : i, row);
}

/* ---- lines and notes ---------------------------------------------------------------------- */
pl_status pl_predict_lines(pl_prediction *p, int64_t *n)
{
    if (!p->prompts) PL_TRY(pl_prompts_open(p->o->input, &p->prompts));
    *n = pl_prompts_count(p->prompts);
    return PL_OK;
}

const char *pl_predict_line(pl_prediction *p, int64_t i)
{
    return pl_prompts_at(p->prompts, i);
}

void pl_predict_note(pl_prediction *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->info.note, sizeof p->info.note, fmt, args);
    va_end(args);
}

/* ---- all of it ---------------------------------------------------------------------------- */
static pl_status check_given(const pl_run *r, const pl_predict_opts *o)
{
    const pl_predict *of = r->recipe->predict;
    PL_FAIL_IF(!r->session || r->purpose.goal != PL_GOAL_PREDICT, PL_ERR_ARG,
               "the run is not started for predictions");
    bool prompted = of->takes_prompt && o->prompt;
    PL_FAIL_IF(of->input && !o->input && !prompted, PL_ERR_CONFIG, "--input is missing: %s",
               of->input);
    PL_FAIL_IF(!of->input && o->input, PL_ERR_CONFIG, "--input: recipe %s takes none",
               r->recipe->name);
    PL_FAIL_IF(!o->out, PL_ERR_CONFIG, "--out is missing: %s", of->out);
    PL_FAIL_IF(o->prompt && !of->takes_prompt, PL_ERR_CONFIG, "--prompt: recipe %s takes none",
               r->recipe->name);
    return PL_OK;
}

/* Length of the part of a path that exists. */
static size_t there(const char *path, char *part, size_t cap)
{
    struct stat s;
    snprintf(part, cap, "%s", path);
    for (size_t n = strlen(part); n > 0; part[--n] = 0)
        if ((n == strlen(path) || path[n] == '/') && stat(part, &s) == 0) return n;
    return 0;
}

/* Removes the empty folders at the end of --out that this prediction made. */
static void remove_empty(const char *path, size_t kept, char *part, size_t cap)
{
    snprintf(part, cap, "%s", path);
    for (size_t n = strlen(part); n > kept; part[--n] = 0)
        if ((n == strlen(path) || path[n] == '/') && rmdir(part) != 0) return;
}

/* Runs the recipe's prediction and closes its files. */
static pl_status predict(pl_prediction *p)
{
    pl_status rc = p->r->recipe->predict->run(p);
    for (int i = 0; i < p->n_files; i++) rc = close_result(&p->file[i], rc);
    pl__pictures_close(&p->pictures);
    pl__pictures_close(&p->beside);
    pl_npy_close(p->array);
    for (int i = 0; i < p->n_rows; i++) pl_array_close(p->rows[i]);
    pl_prompts_close(p->prompts);
    pl_prompts_close(p->known);
    pl_arena_release(&p->mem);
    return rc;
}

pl_status pl_run_predict(pl_run *r, const pl_predict_opts *o, pl_predict_info *info)
{
    PL_TRY(check_given(r, o));
    char part[4096];
    size_t kept = o->out ? there(o->out, part, sizeof part) : 0;
    pl_prediction *p = pl_sys_alloc(sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    *p = (pl_prediction){.r = r, .o = o};
    pl_status rc = predict(p);
    if (rc == PL_OK)
        *info = p->info;
    else if (o->out)
        remove_empty(o->out, kept, part, sizeof part);
    pl_sys_free(p);
    return rc;
}
