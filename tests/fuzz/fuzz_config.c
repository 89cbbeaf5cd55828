/* fuzz_config.c - any text is refused or gives a configuration whose printed form loads back to
 * the same values. A text that begins with '!' is taken as a key=value override. */
#include "plimsoll_config.h"

#include <stdlib.h>
#include <string.h>

static const pl_config_entry entries[] = {
    {"seed", PL_CONFIG_INT, "0", 0, 0, NULL, "An integer."},
    {"a.int", PL_CONFIG_INT, "5", 1, 1e9, NULL, "An integer with limits."},
    {"a.float", PL_CONFIG_FLOAT, "1e-3", 0, 0, NULL, "A number."},
    {"a.bool", PL_CONFIG_BOOL, "true", 0, 0, NULL, "A switch."},
    {"a.b.choice", PL_CONFIG_CHOICE, "x", 0, 0, "x|y|long-word", "A choice."},
    {"a.b.text", PL_CONFIG_TEXT, "\"\"", 0, 0, NULL, "A text."},
    {"size", PL_CONFIG_SIZE, "null", 0, PL_CONFIG_NO_LIMIT, NULL, "A size."},
    {"time", PL_CONFIG_DURATION, "10min", 0, 0, NULL, "A duration."},
    {"l.ints", PL_CONFIG_INTS, "[1]", 0, 0, NULL, "Integers."},
    {"l.floats", PL_CONFIG_FLOATS, "[0.5]", 0, 1, NULL, "Numbers."},
    {"l.texts", PL_CONFIG_TEXTS, "[]", 0, 0, NULL, "Texts."},
    {"need", PL_CONFIG_TEXT, NULL, 0, 0, NULL, "Required."},
    {0}};

/* libfyaml 0.7.12 leaks a scratch buffer on some quoted scalars it refuses; that is not ours.
 */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

/* Every name is a preset, so that no file is ever touched. */
static const char *find(void *ctx, const char *name)
{
    (void)ctx;
    return strcmp(name, "base") == 0 ? "seed: 3\n" : "extends: base\n";
}

static pl_config *fresh(void)
{
    const pl_config_entry *tables[] = {entries};
    pl_config *c = NULL;
    if (pl_config_new(tables, 1, &c) != PL_OK) abort();
    pl_config_set_presets(c, find, NULL);
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_config *c = fresh(), *d = fresh();
    uint64_t before = pl_config_hash(c);
    char *text = calloc(1, size + 1), *printed = NULL;
    if (!text) abort();
    memcpy(text, data, size);
    pl_status rc = text[0] == '!' ? pl_config_override(c, text + 1)
                                  : pl_config_load_text(c, "fuzz", text, size);
    if (rc != PL_OK && pl_config_hash(c) != before) abort();
    if (rc == PL_OK) {
        if (pl_config_print(c, &printed) != PL_OK) abort();
        if (pl_config_load_text(d, "printed", printed, strlen(printed)) != PL_OK) abort();
        if (pl_config_hash(c) != pl_config_hash(d)) abort();
    }
    free(text);
    pl_text_free(printed);
    pl_config_free(c);
    pl_config_free(d);
    return 0;
}
