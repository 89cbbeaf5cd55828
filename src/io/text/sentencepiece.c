/* sentencepiece.c - T5's tokenizer: a model of the SentencePiece library, through the plug-in. */
#include "base/sys.h"
#include "io/text/sentencepiece_plugin.h"
#include "io/text/tokenizer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- the plug-in -------------------------------------------------------------------------- */
/* Opened once: a process cannot have the library twice. */
static struct {
    pthread_once_t once;
    const pl_sentencepiece_plugin *library; /* NULL: missing */
    char why[4400];
} plugin = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    char path[4200];
    void *file = pl_plugin_open("sentencepiece", RTLD_NOW | RTLD_LOCAL, path, sizeof path);
    const pl_sentencepiece_plugin *found = file ? dlsym(file, "pl_sentencepiece") : NULL;
    bool same = found && found->abi == PL_SENTENCEPIECE_ABI &&
                strcmp(found->version, PL_VERSION_STRING) == 0;
    if (same)
        plugin.library = found;
    else if (file)
        snprintf(
            plugin.why, sizeof plugin.why,
            "%s was built for another version of this program: build both from the same sources",
            path);
    else if (path[0])
        snprintf(plugin.why, sizeof plugin.why, "the SentencePiece plug-in cannot be loaded: %s",
                 dlerror());
    else
        snprintf(plugin.why, sizeof plugin.why,
                 "no SentencePiece plug-in (apt-get install libsentencepiece-dev g++, then build "
                 "again)");
}

const char *pl_sentencepiece_missing(void)
{
    pthread_once(&plugin.once, load);
    return plugin.library ? NULL : plugin.why;
}

/* ---- the model ---------------------------------------------------------------------------- */
pl_status pl_sentencepiece_read(pl_tokenizer *t, const char *path)
{
    static const char *const names[] = {"spiece.model", "tokenizer.model", "sentencepiece.model",
                                        "sentencepiece.bpe.model", NULL};
    const char *file;
    char *bytes;
    size_t n;
    PL_TRY(pl_tokenizer_find(t, path, names, &file));
    pl_status rc = pl_sys_read_file(file, PL_MAX_VOCAB_FILE, &bytes, &n);
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_DATA, "%s", pl_error_text());
    PL_TRY(rc);
    t->library = plugin.library;
    const char *why = t->library->open(bytes, n, &t->model);
    pl_sys_free(bytes);
    PL_FAIL_IF(why, PL_ERR_DATA, "%s is not a SentencePiece model: %s", file, why);
    t->count = t->library->count(t->model);
    t->end = t->library->end(t->model);
    t->pad = t->library->pad(t->model);
    PL_FAIL_IF(t->end < 0 || t->end >= t->count, PL_ERR_DATA,
               "%s: the model has no end token </s>: is this T5's?", file);
    if (t->pad < 0 || t->pad >= t->count) t->pad = 0;
    return PL_OK;
}

void pl_sentencepiece_close(pl_tokenizer *t)
{
    if (t->model) t->library->close(t->model);
    t->model = NULL;
}

pl_status pl_sentencepiece_split(const pl_tokenizer *t, const char *text, size_t n,
                                 pl_token_sink *out)
{
    int64_t room = out->n < out->cap ? out->cap - out->n : 0;
    int64_t count = t->library->encode(t->model, text, n, out->to + (room ? out->n : 0), room);
    PL_FAIL_IF(count < 0, PL_ERR_DATA, "the SentencePiece library cannot encode \"%.60s\"", text);
    for (int64_t i = 0; i < count && i < room; i++) {
        int32_t id = out->to[out->n + i];
        PL_FAIL_IF(id < 0 || id >= t->count, PL_ERR_DATA,
                   "the SentencePiece model gives token %d of %d", id, t->count);
    }
    out->n += count;
    return PL_OK;
}
