/* checkpoint.c - facts about an encoder that its weight file gives: names and shapes of its
 * tensors, and the settings of config.json beside it. */
#include "encoders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <plimsoll_tensors.h>

/* ---- tensors ------------------------------------------------------------------------------ */
static pl_dtype dtype_of(const char *name)
{
    return strcmp(name, "BF16") == 0 ? PL_BF16 : strcmp(name, "F16") == 0 ? PL_F16 : PL_F32;
}

static void add(void *ctx, const pl_tensor_info *t)
{
    enc_file *f = ctx;
    if (t->rank > 2 || t->rank < 1 || f->no_memory) return;
    if (f->n == f->cap) {
        int cap = f->cap ? 2 * f->cap : 256;
        enc_tensor *more = realloc(f->tensor, (size_t)cap * sizeof *more);
        f->no_memory = !more;
        if (!more) return;
        f->tensor = more;
        f->cap = cap;
    }
    enc_tensor *to = &f->tensor[f->n];
    *to = (enc_tensor){.name = strdup(t->name), .dtype = dtype_of(t->dtype), .rank = t->rank};
    memcpy(to->dim, t->dim, (size_t)t->rank * sizeof *t->dim);
    if (to->name)
        f->n++;
    else
        f->no_memory = true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const enc_tensor *)a)->name, ((const enc_tensor *)b)->name);
}

pl_status enc_file_read(const char *path, enc_file *f)
{
    *f = (enc_file){.path = path};
    pl_status rc = pl_model_file_list(path, add, NULL, f);
    if (rc == PL_ERR_IO) rc = pl_fail(PL_ERR_FILE, "weights: %s", pl_error_text());
    if (rc == PL_OK && f->no_memory)
        rc = pl_fail(PL_ERR_MEMORY, "no memory for the tensors of %s", path);
    if (rc == PL_OK && f->n == 0)
        rc = pl_fail(PL_ERR_FILE,
                     "%s has no tensors of one or two dimensions: it is not a text encoder", path);
    if (rc == PL_OK)
        qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_name);
    else
        enc_file_release(f);
    return rc;
}

void enc_file_release(enc_file *f)
{
    for (int i = 0; i < f->n; i++) free(f->tensor[i].name);
    free(f->tensor);
    f->tensor = NULL;
    f->n = f->cap = 0;
}

const enc_tensor *enc_find(const enc_file *f, const char *name)
{
    enc_tensor key = {.name = (char *)(uintptr_t)name}; /* compared only */
    return f->n ? bsearch(&key, f->tensor, (size_t)f->n, sizeof key, by_name) : NULL;
}

static bool ends_with(const char *text, size_t n, const char *tail)
{
    size_t m = strlen(tail);
    return n >= m && memcmp(text + n - m, tail, m) == 0;
}

const enc_tensor *enc_find_tail(const enc_file *f, const char *tail, const char *but, char *prefix,
                                size_t cap)
{
    for (int i = 0; i < f->n; i++) {
        const char *name = f->tensor[i].name;
        size_t n = strlen(name);
        if (!ends_with(name, n, tail)) continue;
        n -= strlen(tail);
        if ((n && name[n - 1] != '.') || n >= cap || (but && ends_with(name, n, but))) continue;
        snprintf(prefix, cap, "%.*s", (int)n, name);
        return &f->tensor[i];
    }
    return NULL;
}

int enc_layers(const enc_file *f, const char *prefix, const char *format)
{
    enum { MOST = 4096 };
    for (int i = 0; i < MOST; i++) {
        char tail[ENC_NAME], name[384];
        snprintf(name, sizeof name, "%s%s", prefix, enc_name(tail, format, i, 0));
        if (!enc_find(f, name)) return i;
    }
    return MOST;
}

/* ---- config.json -------------------------------------------------------------------------- */
/* Writes the path of `name` beside one of the files; false: there is none. */
static bool find_beside(const enc_file *f, const char *name, char *path, size_t cap)
{
    struct stat st;
    for (const char *part = f->path; part; part = strchr(part, ',')) {
        part += *part == ',';
        int n = (int)strcspn(part, ",");
        snprintf(path, cap, "%.*s", n, part);
        bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        const char *slash = memrchr(part, '/', (size_t)n);
        int len =
            folder ? snprintf(path, cap, "%.*s/%s", n, part, name)
                   : snprintf(path, cap, "%.*s%s", slash ? (int)(slash - part) + 1 : 0, part, name);
        if (len > 0 && (size_t)len < cap && access(path, R_OK) == 0) return true;
    }
    return false;
}

/* Reads one key of one file; a key that is null counts as missing. */
static pl_status peek(const char *path, const char *key, char **text)
{
    pl_status rc = pl_config_peek(path, key, NULL, NULL, text);
    if (rc == PL_ERR_CONFIG) return pl_fail(PL_ERR_FILE, "%s", pl_error_text());
    if (rc != PL_OK || !*text || strcmp(*text, "null") != 0) return rc;
    pl_text_free(*text);
    *text = NULL;
    return PL_OK;
}

pl_status enc_setting(const enc_file *f, const char *key, char **text)
{
    char path[4096], inner[96];
    *text = NULL;
    /* OpenCLIP's own file has other names for some */
    bool heads = strcmp(key, "num_attention_heads") == 0;
    if (heads && find_beside(f, "open_clip_config.json", path, sizeof path))
        return peek(path, "model_cfg.text_cfg.heads", text);
    if (!find_beside(f, "config.json", path, sizeof path)) return PL_OK;
    /* a model of text and images keeps the settings of the text apart */
    snprintf(inner, sizeof inner, "text_config.%s", key);
    pl_status rc = peek(path, inner, text);
    return rc == PL_OK && !*text ? peek(path, key, text) : rc;
}

pl_status enc_setting_number(const enc_file *f, const char *key, double *value)
{
    char *text, *end;
    pl_status rc = enc_setting(f, key, &text);
    if (rc != PL_OK || !text) return rc;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= 0 && v < 1e9))
        rc = pl_fail(PL_ERR_FILE, "config.json beside %s: %s: \"%.60s\" is not a number that fits",
                     f->path, key, text);
    else
        *value = v;
    pl_text_free(text);
    return rc;
}
