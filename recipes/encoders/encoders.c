/* encoders.c - the recipe behind `plimsoll embed`: prompts to the outputs of a text encoder.
 *
 * It has predictions only: no training program, no presets to choose. Sizes come from the weight
 * file, so build reads the list of its tensors. Prompts are tokenised twice: once all of them
 * before the first run, so that a bad line is found early and lengths are known, and again batch by
 * batch.
 */
#include "encoders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const pl_config_entry schema[] = {
    {"encoder", PL_CONFIG_CHOICE, "umt5", .choices = "umt5|distilbert|openclip",
     .doc = "Which text encoder the weights are of."},
    {"encoder_weights", PL_CONFIG_TEXT, "null",
     .doc = "Weights of the encoder: a file, a folder of shards or its index.json."},
    {"tokenizer", PL_CONFIG_TEXT, "null",
     .doc = "Tokenizer: spiece.model, vocab.txt, vocab.json beside merges.txt, a list of merges, a "
            "tokenizer.json, or their folder."},
    {"length", PL_CONFIG_INT, "0", .min = 0, .max = 65536,
     .doc = "Tokens per prompt, with padding; 0: 226 (umt5), 128 (distilbert), 77 (openclip), at "
            "most the positions of the weights."},
    {"heads", PL_CONFIG_INT, "0", .min = 0, .max = 1024,
     .doc = "Attention heads; 0: from config.json beside the weights, else width / 64."},
    {"layer", PL_CONFIG_CHOICE, "auto", .choices = "auto|last|penultimate",
     .doc =
         "openclip: layer whose output is used; auto: the penultimate layer for OpenCLIP's files, "
         "the last layer for files with names of transformers."},
    {"pool", PL_CONFIG_CHOICE, "auto", .choices = "auto|none|mean|all",
     .doc =
         "distilbert: one vector per prompt: mean over tokens, or over all positions; auto: none, "
         "or FluxFlow's head where the weights have it."},
    {"dtype", PL_CONFIG_CHOICE, "f32", .choices = "f32|f16", .doc = "Number format of the result."},
    {"tensor", PL_CONFIG_TEXT, "null",
     .doc = "Name of the result in a safetensors file; null: context (openclip) or text."},
    {0},
};

/* ---- the encoder and its tokenizer -------------------------------------------------------- */
static const enc_kind *kind_of(const pl_config *c)
{
    static const enc_kind *const kinds[] = {&enc_umt5, &enc_distilbert, &enc_clip};
    const char *name = pl_config_text(c, "encoder");
    for (int i = 0; i < 2; i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return kinds[2];
}

/* Rows of a token table without a token: tables are padded, and programs add further tokens, umT5
 * and T5 some hundreds. More are missing where the file of the tokenizer is cut short. */
static int64_t spare_rows(pl_tokenizer_kind kind, int64_t vocabulary)
{
    bool pieces = kind == PL_TOKENIZER_SENTENCEPIECE;
    int64_t most = pieces ? 1024 : 64, share = vocabulary / (pieces ? 2 : 16);
    return share < most ? share : most;
}

/* vocabulary: rows of the token table. */
static pl_status open_tokenizer(const pl_config *c, int64_t vocabulary, pl_tokenizer **out)
{
    if (pl_config_is_null(c, "tokenizer"))
        return pl_fail(PL_ERR_CONFIG, "tokenizer is missing: the file or folder of its vocabulary");
    const char *path = pl_config_text(c, "tokenizer");
    pl_tokenizer_kind kind = kind_of(c)->tokenizer;
    pl_status rc = pl_tokenizer_open(path, kind, out);
    if (rc != PL_OK) return rc;
    int64_t n = pl_tokenizer_count(*out);
    if (n <= vocabulary && n >= vocabulary - spare_rows(kind, vocabulary)) return PL_OK;
    rc = pl_fail(PL_ERR_DATA, "%s has %lld tokens, the weights have %lld: %s", path, (long long)n,
                 (long long)vocabulary,
                 n > vocabulary ? "they belong to another model"
                                : "the file is cut short, or belongs to another model");
    pl_tokenizer_close(*out);
    *out = NULL;
    return rc;
}

/* ---- building ----------------------------------------------------------------------------- */
static pl_status choose_length(encoder *e, const enc_kind *k)
{
    int64_t asked = pl_config_int(e->c, "length");
    e->length = asked ? asked : e->positions && e->positions < k->length ? e->positions : k->length;
    if (e->length < 2)
        return pl_fail(PL_ERR_CONFIG, "length %lld has no room for a text: at least 2 are needed",
                       (long long)e->length);
    if (e->positions && e->length > e->positions)
        return pl_fail(PL_ERR_CONFIG,
                       "length %lld is more than the %lld positions that the weights have",
                       (long long)e->length, (long long)e->positions);
    return PL_OK;
}

static pl_status choose_heads(encoder *e)
{
    if (pl_config_int(e->c, "heads")) e->heads = (int)pl_config_int(e->c, "heads");
    if (e->heads > 0 &&
        (strcmp(pl_config_text(e->c, "encoder"), "umt5") == 0 || e->width % e->heads == 0))
        return PL_OK;
    return pl_fail(
        PL_ERR_CONFIG,
        "%d heads do not divide the width %lld: set heads=N (or put config.json beside the "
        "weights)",
        e->heads, (long long)e->width);
}

static pl_status build_from(pl_builder *b, const enc_file *f)
{
    const pl_config *c = pl_builder_config(b);
    const enc_kind *k = kind_of(c);
    encoder e = {.f = f, .c = c, .m = pl_builder_predict(b, NULL), .batch = pl_builder_batch(b)};
    pl_status rc = k->open(&e);
    if (rc == PL_OK) rc = choose_length(&e, k);
    if (rc == PL_OK) rc = choose_heads(&e);
    /* an unusable tokenizer is reported before the weights are read */
    pl_tokenizer *t = NULL;
    if (rc == PL_OK) rc = open_tokenizer(c, e.vocabulary, &t);
    pl_tokenizer_close(t);
    if (rc != PL_OK) return rc;
    e.m->frozen = true;
    e.ids = pl_input(e.m->g, "ids", PL_TYPE(PL_I32, e.batch, e.length));
    e.mask = pl_input(e.m->g, "mask", PL_TYPE(PL_F32, e.batch, e.length));
    pl_val out = k->build(&e);
    if (strcmp(pl_config_text(c, "dtype"), "f16") == 0) out = pl_cast(e.m->g, out, PL_F16);
    pl_output(e.m->g, "out", out);
    return PL_OK;
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    enc_file f;
    if (pl_config_is_null(c, "encoder_weights"))
        return pl_fail(PL_ERR_CONFIG, "weights is missing: the file or folder of the text encoder");
    pl_status rc = enc_file_read(pl_config_text(c, "encoder_weights"), &f);
    if (rc == PL_OK) rc = build_from(b, &f);
    enc_file_release(&f);
    return rc;
}

/* ---- running ------------------------------------------------------------------------------ */
typedef struct job {
    pl_prediction *p;
    const enc_kind *kind;
    encoder about; /* sizes only */
    int64_t buckets, farthest;
    pl_tokenizer *t;
    int64_t prompts, cut;
    int64_t *count; /* tokens of each prompt, after the cut */
    int32_t *ids;   /* of one prompt */
} job;

static const char *prompt_at(job *j, int64_t i)
{
    const char *given = pl_predict_prompt(j->p);
    return given ? given : pl_predict_line(j->p, i);
}

static pl_status tokenise(job *j, int64_t i, int32_t *ids, int64_t *count)
{
    const char *text = prompt_at(j, i);
    pl_status rc = pl_tokenizer_encode(j->t, text, strlen(text), ids, j->about.length, count);
    if (rc == PL_ERR_DATA)
        return pl_fail(rc, "%s: line %lld: %s",
                       pl_predict_prompt(j->p) ? "--prompt" : pl_predict_input(j->p),
                       (long long)i + 1, pl_error_text());
    return rc;
}

/* Opens tokenizer and prompts and tokenises every prompt once. */
static pl_status read_prompts(job *j)
{
    pl_status rc = open_tokenizer(pl_predict_config(j->p), j->about.vocabulary, &j->t);
    j->prompts = 1;
    if (rc == PL_OK && !pl_predict_prompt(j->p)) rc = pl_predict_lines(j->p, &j->prompts);
    if (rc != PL_OK) return rc;
    j->count = calloc((size_t)j->prompts, sizeof *j->count);
    j->ids = calloc((size_t)j->about.length, sizeof *j->ids);
    if (!j->count || !j->ids) return pl_fail(PL_ERR_MEMORY, "no memory for the prompts");
    for (int64_t i = 0; i < j->prompts && rc == PL_OK; i++) {
        rc = tokenise(j, i, j->ids, &j->count[i]);
        if (j->count[i] <= j->about.length) continue;
        j->count[i] = j->about.length;
        j->cut++;
    }
    return rc;
}

/* The result file: an array, or safetensors with the lengths beside it. */
static pl_status open_result(job *j, bool *with_lengths)
{
    const pl_config *c = pl_predict_config(j->p);
    const char *out = pl_predict_out(j->p), *dot = strrchr(out, '.');
    pl_type row = {0}, type[2] = {PL_TYPE(PL_I64, j->prompts)};
    pl_predict_type(j->p, NULL, "out", &row);
    row.dim[0] = j->prompts;
    type[1] = row;
    bool clip = j->kind == &enc_clip;
    const char *name[2] = {"lengths", !pl_config_is_null(c, "tensor") ? pl_config_text(c, "tensor")
                                      : clip                          ? "context"
                                                                      : "text"};
    *with_lengths = false;
    if (dot && strcmp(dot, ".npy") == 0) return pl_predict_npy(j->p, NULL, row);
    /* CLIP's readers take all rows, padding too */
    *with_lengths = !clip && row.rank == 3;
    return *with_lengths ? pl_predict_tensors(j->p, NULL, 2, name, type)
                         : pl_predict_tensors(j->p, NULL, 1, name + 1, type + 1);
}

/* Fills the inputs with prompts [first, first + n); further rows have padding only. */
static pl_status fill(job *j, int64_t first, int64_t n)
{
    pl_type type;
    int32_t *ids = pl_predict_set(j->p, NULL, "ids", &type), *places;
    float *mask = pl_predict_set(j->p, NULL, "mask", NULL);
    int64_t length = type.dim[1], count = 0;
    for (int64_t i = 0; i < type.dim[0]; i++) {
        /* a row without a prompt is a copy of the last one: its result is not kept */
        int64_t which = first + (i < n ? i : n - 1);
        pl_status rc = tokenise(j, which, ids + i * length, &count);
        if (rc != PL_OK) return rc;
        for (int64_t k = 0; mask && k < length; k++) mask[i * length + k] = k < count;
    }
    if ((places = pl_predict_set(j->p, NULL, "buckets", NULL)))
        enc_umt5_buckets(j->buckets, j->farthest, length, places);
    return PL_OK;
}

static pl_status embed(job *j)
{
    pl_type type;
    bool with_lengths;
    pl_status rc = open_result(j, &with_lengths);
    if (rc == PL_OK && with_lengths)
        rc = pl_predict_write(j->p, NULL, j->count, (size_t)j->prompts * sizeof *j->count);
    if (rc != PL_OK || !pl_predict_type(j->p, NULL, "out", &type)) return rc;
    int64_t batch = type.dim[0];
    size_t row = pl_type_bytes(&type) / (size_t)batch;
    for (int64_t at = 0; at < j->prompts && rc == PL_OK; at += batch) {
        int64_t n = j->prompts - at < batch ? j->prompts - at : batch;
        rc = fill(j, at, n);
        if (rc == PL_OK) rc = pl_predict_run(j->p, NULL);
        const void *out = rc == PL_OK ? pl_predict_get(j->p, NULL, "out", &type) : NULL;
        if (rc == PL_OK) rc = pl_predict_write(j->p, NULL, out, (size_t)n * row);
        if (rc == PL_OK) rc = pl_predict_progress(j->p, at + n, j->prompts);
    }
    if (rc == PL_OK && j->cut)
        pl_predict_note(j->p,
                        "%lld of %lld prompts have more than %lld tokens and are cut (--length)",
                        (long long)j->cut, (long long)j->prompts, (long long)j->about.length);
    return rc;
}

static pl_status run(pl_prediction *p)
{
    const pl_config *c = pl_predict_config(p);
    enc_file f;
    job j = {.p = p, .kind = kind_of(c)};
    pl_status rc = enc_file_read(pl_config_text(c, "encoder_weights"), &f);
    j.about = (encoder){.f = &f, .c = c};
    if (rc == PL_OK) rc = j.kind->open(&j.about);
    if (rc == PL_OK) rc = choose_length(&j.about, j.kind);
    if (rc == PL_OK && j.kind->buckets) rc = enc_umt5_distances(&f, &j.buckets, &j.farthest);
    enc_file_release(&f);
    if (rc == PL_OK) rc = read_prompts(&j);
    if (rc == PL_OK) rc = embed(&j);
    pl_tokenizer_close(j.t);
    free(j.count);
    free(j.ids);
    return rc;
}

static uint64_t file_bytes(const char *folder, const char *name)
{
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s%s%s", folder, name ? "/" : "", name ? name : "");
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

/* A tokenizer takes at most some 24 times the bytes of its files: a tree of JSON, hash tables, the
 * library's own tables. */
static uint64_t bytes(const pl_config *c)
{
    static const char *const names[] = {"spiece.model", "tokenizer.model", "vocab.txt",
                                        "vocab.json", "merges.txt"};
    const char *path = pl_config_text(c, "tokenizer");
    uint64_t files = file_bytes(path, NULL), all = file_bytes(path, "tokenizer.json");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) files += file_bytes(path, names[i]);
    return ((uint64_t)2 << 20) + 24 * (files ? files : all);
}

static const pl_predict predict = {
    .input = "a text file with one prompt per line",
    .out = "an .npy or .safetensors file",
    .build = build,
    .run = run,
    .bytes = bytes,
    .takes_prompt = true,
};

/* ---- the recipe --------------------------------------------------------------------------- */
static pl_status refuse(pl_builder *b)
{
    (void)b;
    return pl_fail(PL_ERR_CONFIG,
                   "text encoders are not trained here: plimsoll embed applies them");
}

static pl_status no_data(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch)
{
    (void)data, (void)subset, (void)sample, (void)n, (void)batch;
    return pl_fail(PL_ERR_CONFIG, "text encoders have no data to train on");
}

/* Slots have the names of the file; what else the file has (a decoder, an image tower) is not
 * read. */
static const pl_naming naming[] = {{.name = "its own", .ignored = "*"}, {0}};
static const pl_weights weights[] = {{"encoder_weights", "*", naming}, {0}};

const pl_recipe pl_recipe_encoders = {
    .abi = PL_RECIPE_ABI,
    .name = "encoders",
    .about = "text encoders of plimsoll embed",
    .schema = schema,
    .build = refuse,
    .data_read = no_data,
    .weights = weights,
    .predict = &predict,
};
