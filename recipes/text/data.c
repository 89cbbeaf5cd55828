/* data.c - the tokens of a text file or a file of tokens, and stretches of them as samples.
 *
 * A text is kept whole as tokens, in 1, 2 or 4 bytes each; a file of tokens is read as needed. The
 * last data.eval_share of the tokens are for evaluation. With context T, sample i of the training
 * text begins at token i*T, shifted by a random number below T that changes with each pass, so that
 * words are cut elsewhere each time. Evaluation samples are not shifted.
 *
 * Without a file the text is generated: sums in words, "seven plus five is twelve.".
 */
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct text {
    pl_token_file *file; /* NULL: tokens */
    void *tokens;
    int bytes;    /* of a token: 1, 2 or 4 */
    int64_t n[2]; /* tokens for training, and behind them for evaluation */
    int64_t context;
    uint64_t seed;
} text;

static int bytes_for(int32_t vocabulary)
{
    return vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4;
}

static int32_t token_at(const text *x, int64_t i)
{
    if (x->bytes == 1) return ((const uint8_t *)x->tokens)[i];
    return x->bytes == 2 ? ((const uint16_t *)x->tokens)[i] : ((const int32_t *)x->tokens)[i];
}

/* ---- generated text ----------------------------------------------------------------------- */
enum { LONGEST = 48 }; /* bytes of a generated sentence */

static int sentence(uint64_t seed, int64_t i, char out[LONGEST])
{
    static const char *const word[] = {"zero",    "one",     "two",       "three",    "four",
                                       "five",    "six",     "seven",     "eight",    "nine",
                                       "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                       "fifteen", "sixteen", "seventeen", "eighteen"};
    uint64_t s = pl_sample_seed(seed, PL_SUBSET_TRAIN, i);
    int a = (int)(10 * pl_sample_uniform(s, 0)), b = (int)(10 * pl_sample_uniform(s, 1));
    return snprintf(out, LONGEST, "%s plus %s is %s.\n", word[a], word[b], word[a + b]);
}

static pl_status generate(const pl_config *c, char **out, size_t *n)
{
    int64_t count = pl_config_int(c, "data.samples");
    char *all = malloc((size_t)count * LONGEST);
    if (!all) return PL_ERR_MEMORY;
    *n = 0;
    for (int64_t i = 0; i < count; i++)
        *n += (size_t)sentence((uint64_t)pl_config_int(c, "seed"), i, all + *n);
    *out = all;
    return PL_OK;
}

/* ---- files -------------------------------------------------------------------------------- */
static pl_status read_file(const char *path, char **out, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe does not wait for a writer */
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!f) return pl_fail(PL_ERR_DATA, "data.text %s: %s", path, strerror(errno));
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
        fclose(f);
        return pl_fail(PL_ERR_DATA, "data.text %s is not a file", path);
    }
    char *all = malloc((size_t)st.st_size + 1);
    *n = all ? fread(all, 1, (size_t)st.st_size, f) : 0;
    bool bad = all && ferror(f);
    fclose(f);
    if (!all) return PL_ERR_MEMORY;
    if (bad) {
        free(all);
        return pl_fail(PL_ERR_DATA, "data.text %s cannot be read", path);
    }
    *out = all;
    return PL_OK;
}

/* Replaces the text by its tokens, in x->bytes each. */
static pl_status tokenise(const pl_tokens *t, char *all, size_t n, text *x, int64_t *count)
{
    x->bytes = bytes_for(pl_tokens_count(t));
    if (pl_tokens_count(t) == 256 && x->bytes == 1) { /* the bytes are the tokens */
        x->tokens = all;
        *count = (int64_t)n;
        return PL_OK;
    }
    int32_t *wide = malloc((n + 1) * sizeof *wide);
    pl_status rc = wide ? pl_tokens_encode(t, all, n, wide, count) : PL_ERR_MEMORY;
    free(all);
    if (rc == PL_OK && x->bytes < 4)
        for (int64_t i = 0; i < *count; i++) {
            if (x->bytes == 1)
                ((uint8_t *)wide)[i] = (uint8_t)wide[i];
            else
                ((uint16_t *)wide)[i] = (uint16_t)wide[i];
        }
    if (rc != PL_OK) {
        free(wide);
        return rc;
    }
    void *narrow = realloc(wide, (size_t)*count * (size_t)x->bytes + 1);
    x->tokens = narrow ? narrow : (void *)wide;
    return PL_OK;
}

static pl_status open_tokens(const pl_config *c, int64_t vocabulary, pl_token_file **out)
{
    pl_status rc = pl_token_file_open(pl_config_text(c, "data.tokens"),
                                      (int)pl_config_int(c, "data.token_bytes"), vocabulary, out);
    if (rc != PL_ERR_DATA) return rc;
    return pl_fail(rc, "data.tokens %s; data.token_bytes is %d", pl_error_text(),
                   (int)pl_config_int(c, "data.token_bytes"));
}

static pl_status read_tokens(const pl_token_file *f, int64_t at, int64_t n, int32_t *to)
{
    pl_status rc = pl_token_file_read(f, at, n, to);
    if (rc != PL_ERR_DATA) return rc;
    return pl_fail(rc,
                   "data.tokens %s: check data.vocabulary, model.vocabulary and data.token_bytes "
                   "(%d)",
                   pl_error_text(), pl_token_file_width(f));
}

/* Cuts the tokens into training and evaluation; each needs one sample. */
static pl_status split(const pl_config *c, text *x, int64_t count)
{
    double share = pl_config_float(c, "data.eval_share");
    int64_t sample = x->context + 1, eval = (int64_t)((double)count * share);
    if (share > 0 && eval < sample) eval = sample;
    x->n[1] = eval;
    x->n[0] = count - eval;
    if (x->n[0] >= sample) return PL_OK;
    return pl_fail(PL_ERR_DATA,
                   "the text has %lld tokens; training and evaluation need %lld (context %lld): "
                   "use a longer text or a smaller context",
                   (long long)count, (long long)((share > 0 ? 2 : 1) * sample),
                   (long long)x->context);
}

pl_status text_data_open(const pl_config *c, void **data)
{
    char *all = NULL;
    size_t n = 0;
    int64_t count = 0;
    pl_tokens *t = NULL;
    text_sizes sizes;
    text *x = calloc(1, sizeof *x);
    if (!x) return PL_ERR_MEMORY;
    x->context = pl_config_int(c, "context");
    x->seed = (uint64_t)pl_config_int(c, "seed");
    bool numbers = !pl_config_is_null(c, "data.tokens");
    pl_status rc = text_sizes_of(c, &sizes);
    if (rc == PL_OK && numbers) rc = open_tokens(c, sizes.vocabulary, &x->file);
    if (rc == PL_OK && numbers) count = pl_token_file_count(x->file);
    if (rc == PL_OK && !numbers) rc = text_tokens_open(c, &t);
    if (rc == PL_OK && !numbers)
        rc = pl_config_is_null(c, "data.text")
                 ? generate(c, &all, &n)
                 : read_file(pl_config_text(c, "data.text"), &all, &n);
    if (rc == PL_OK && !numbers) rc = tokenise(t, all, n, x, &count);
    if (rc == PL_OK) rc = split(c, x, count);
    pl_tokens_close(t);
    if (rc != PL_OK)
        text_data_close(x);
    else
        *data = x;
    return rc;
}

void text_data_close(void *data)
{
    text *x = data;
    pl_token_file_close(x->file);
    free(x->tokens);
    free(x);
}

/* While it is read the text is there as bytes and, with a vocabulary, as 4 bytes a token. */
uint64_t text_data_bytes(const pl_config *c)
{
    struct stat st;
    uint64_t n = (uint64_t)pl_config_int(c, "data.samples") * LONGEST;
    if (!pl_config_is_null(c, "data.tokens")) return 0;
    if (!pl_config_is_null(c, "data.text"))
        n = stat(pl_config_text(c, "data.text"), &st) == 0 ? (uint64_t)st.st_size : 0;
    return pl_config_is_null(c, "data.vocabulary") ? n : 5 * n + ((uint64_t)64 << 20);
}

int64_t text_data_size(void *data, pl_subset subset)
{
    const text *x = data;
    return (x->n[subset == PL_SUBSET_EVAL] - 1) / x->context;
}

pl_status text_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch)
{
    const text *x = data;
    bool eval = subset == PL_SUBSET_EVAL;
    int64_t stretch = x->context + 1;
    int32_t *to = pl_batch_input(batch, "tokens", NULL);
    for (int k = 0; k < n; k++) {
        int64_t at = sample[k] * x->context;
        if (!eval) {
            uint64_t pass = (uint64_t)pl_batch_pass(batch, k);
            uint64_t s = pl_sample_seed(x->seed + (pass << 32), subset, sample[k]);
            at += (int64_t)((double)x->context * pl_sample_uniform(s, 0));
        }
        if (at > x->n[eval] - stretch) at = x->n[eval] - stretch;
        at += eval ? x->n[0] : 0;
        if (x->file) {
            pl_status rc = read_tokens(x->file, at, stretch, to + k * stretch);
            if (rc != PL_OK) return rc;
        }
        for (int64_t i = 0; !x->file && i < stretch; i++) to[k * stretch + i] = token_at(x, at + i);
    }
    return PL_OK;
}
