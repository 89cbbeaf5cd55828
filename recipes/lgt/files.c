/* files.c - the authors' latents: a folder for each style, a .pt file for each picture.
 *
 *     data.latents/style0/a.pt        [C,H,W], a picture's latent of an autoencoder, times 0.18215
 *     data.latents/style1/...
 *     data.latents/eval/style0/...    optional; without it data.eval_share of all, chosen by name
 *
 * All latents are read when the set is opened and stay in memory, as in the original (0.12 GB for
 * 7,359 latents of 32 x 32). A sample is a latent in its own style. Its target style, and the
 * latent that shows that style, are drawn each time from the whole set, so a style is drawn as
 * often as it occurs.
 */
#include "lgt.h"
#include "recipes/mix.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

typedef struct latent_file {
    char *name; /* below the root */
    int style;
    pl_subset subset;
} latent_file;

struct lgt_files {
    latent_file *file;
    int64_t n, cap;
    lgt_shape shape;
    int styles;
    float *data;       /* n latents (H,W,C) */
    int64_t *order[2]; /* by subset: its latents, style after style */
    int64_t *from[2];  /* by subset: where each style begins in it; styles + 1 numbers */
};

static uint64_t hash_of(const char *s)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 0x100000001B3u;
    return mix(h);
}

static bool is_latent(const char *name)
{
    size_t n = strlen(name);
    return n > 3 && name[0] != '.' && strcmp(name + n - 3, ".pt") == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const latent_file *)a)->name, ((const latent_file *)b)->name);
}

static pl_status add_file(lgt_files *s, latent_file f)
{
    if (s->n == s->cap) {
        int64_t cap = s->cap ? 2 * s->cap : 256;
        latent_file *more = realloc(s->file, (size_t)cap * sizeof *more);
        if (!more) return PL_ERR_MEMORY;
        s->file = more;
        s->cap = cap;
    }
    s->file[s->n] = f;
    s->file[s->n].name = strdup(f.name);
    return s->file[s->n++].name ? PL_OK : PL_ERR_MEMORY;
}

/* Lists the files of root/below/style, in the order of their names. share: fraction for
 * evaluation. */
static pl_status list_folder(lgt_files *s, const char *root, const char *below, const char *folder,
                             int style, pl_subset subset, double share)
{
    char path[PATH_BYTES];
    int64_t first = s->n;
    snprintf(path, sizeof path, "%s/%s%s", root, below, folder);
    DIR *d = opendir(path);
    if (!d && subset == PL_SUBSET_EVAL) return PL_OK; /* a style may be missing there */
    if (!d)
        return pl_fail(PL_ERR_DATA, "%s: no such folder (data.latents/data.style_dirs[%d])", path,
                       style);
    pl_status rc = PL_OK;
    for (struct dirent *e; rc == PL_OK && (e = readdir(d));) {
        if (!is_latent(e->d_name)) continue;
        snprintf(path, sizeof path, "%s%s/%s", below, folder, e->d_name);
        bool kept = share > 0 && (double)(hash_of(path) >> 11) * 0x1p-53 < share;
        rc = add_file(s, (latent_file){path, style, kept ? PL_SUBSET_EVAL : subset});
    }
    closedir(d);
    if (rc == PL_OK && s->n == first && subset == PL_SUBSET_TRAIN)
        return pl_fail(PL_ERR_DATA, "%s/%s: no .pt files", root, folder);
    qsort(s->file + first, (size_t)(s->n - first), sizeof *s->file, by_name);
    return rc;
}

static pl_status list_all(const pl_config *c, lgt_files *s)
{
    const char *root = pl_config_text(c, "data.latents");
    int n;
    const char *const *folder = pl_config_texts(c, "data.style_dirs", &n);
    char path[PATH_BYTES];
    struct stat st;
    if (n != s->styles)
        return pl_fail(PL_ERR_CONFIG, "data.style_dirs names %d folders, model.styles is %d", n,
                       s->styles);
    snprintf(path, sizeof path, "%s/eval", root);
    bool apart = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    double share = apart ? 0 : pl_config_float(c, "data.eval_share");
    pl_status rc = PL_OK;
    for (int i = 0; i < n && rc == PL_OK; i++) {
        rc = list_folder(s, root, "", folder[i], i, PL_SUBSET_TRAIN, share);
        if (rc == PL_OK && apart)
            rc = list_folder(s, root, "eval/", folder[i], i, PL_SUBSET_EVAL, 0);
    }
    return rc;
}

/* Sorts the latents of each subset by style. If none is for evaluation, evaluation uses the
 * training latents. */
static pl_status sort_out(lgt_files *s)
{
    for (int k = 0; k < 2; k++) {
        int64_t at = 0;
        s->order[k] = calloc((size_t)s->n + 1, sizeof *s->order[k]);
        s->from[k] = calloc((size_t)s->styles + 1, sizeof *s->from[k]);
        if (!s->order[k] || !s->from[k]) return PL_ERR_MEMORY;
        for (int style = 0; style < s->styles; style++) {
            s->from[k][style] = at;
            for (int64_t i = 0; i < s->n; i++)
                if ((int)s->file[i].subset == k && s->file[i].style == style) s->order[k][at++] = i;
        }
        s->from[k][s->styles] = at;
    }
    if (s->from[PL_SUBSET_EVAL][s->styles]) return PL_OK;
    memcpy(s->order[PL_SUBSET_EVAL], s->order[PL_SUBSET_TRAIN], (size_t)s->n * sizeof *s->order[0]);
    memcpy(s->from[PL_SUBSET_EVAL], s->from[PL_SUBSET_TRAIN],
           ((size_t)s->styles + 1) * sizeof *s->from[0]);
    return PL_OK;
}

static pl_status load_all(const char *root, lgt_files *s)
{
    char path[PATH_BYTES];
    int64_t size = lgt_numbers(s->shape);
    s->data = calloc((size_t)(s->n * size) + 1, sizeof *s->data);
    if (!s->data)
        return pl_fail(PL_ERR_MEMORY, "no memory for %lld latents of %s", (long long)s->n, root);
    for (int64_t i = 0; i < s->n; i++) {
        snprintf(path, sizeof path, "%s/%s", root, s->file[i].name);
        pl_status rc = lgt_pt_read(path, s->shape, s->data + i * size);
        if (rc != PL_OK) return rc;
    }
    return PL_OK;
}

pl_status lgt_files_open(const pl_config *c, lgt_files **out)
{
    lgt_files *s = calloc(1, sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    s->shape = lgt_shape_of(c);
    s->styles = (int)pl_config_int(c, "model.styles");
    pl_status rc = list_all(c, s);
    if (rc == PL_OK) rc = sort_out(s);
    if (rc == PL_OK) rc = load_all(pl_config_text(c, "data.latents"), s);
    if (rc == PL_OK)
        *out = s;
    else
        lgt_files_close(s);
    return rc;
}

void lgt_files_close(lgt_files *s)
{
    if (!s) return;
    for (int64_t i = 0; i < s->n; i++) free(s->file[i].name);
    for (int k = 0; k < 2; k++) free(s->order[k]), free(s->from[k]);
    free(s->file);
    free(s->data);
    free(s);
}

/* Counts the list only: the files are read later. */
uint64_t lgt_files_bytes(const pl_config *c)
{
    lgt_files s = {.shape = lgt_shape_of(c), .styles = (int)pl_config_int(c, "model.styles")};
    uint64_t bytes =
        list_all(c, &s) == PL_OK ? (uint64_t)(s.n * lgt_numbers(s.shape)) * sizeof(float) : 0;
    for (int64_t i = 0; i < s.n; i++) free(s.file[i].name);
    free(s.file);
    return bytes;
}

int64_t lgt_files_size(const lgt_files *s, pl_subset subset)
{
    return s->from[subset][s->styles];
}

/* A number below n from a seed. */
static int64_t below(uint64_t seed, int64_t n)
{
    return (int64_t)(mix_unit(seed) * (double)n);
}

lgt_pair lgt_files_pair(const lgt_files *s, pl_subset subset, int64_t sample, int64_t pass)
{
    int64_t size = lgt_numbers(s->shape), i = s->order[subset][sample];
    uint64_t seed = mix((uint64_t)sample * MIX_STEP + (uint64_t)pass) + (uint64_t)subset;
    /* The target is a style of the training set: evaluation may have too few latents to show
     * one. */
    int64_t any = s->order[PL_SUBSET_TRAIN][below(seed, lgt_files_size(s, PL_SUBSET_TRAIN))];
    int to = s->file[any].style;
    const int64_t *from = s->from[PL_SUBSET_TRAIN];
    int64_t ref = s->order[PL_SUBSET_TRAIN][from[to] + below(seed + 1, from[to + 1] - from[to])];
    return (lgt_pair){
        .src = s->data + i * size, .ref = s->data + ref * size, .from = s->file[i].style, .to = to};
}
