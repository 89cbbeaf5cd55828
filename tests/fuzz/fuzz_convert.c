/* fuzz_convert.c - any text is refused, or becomes a configuration that loads (pl__convert_text
 * checks that before it returns; a failure there would be a bug). */
#include "train/run/run.h"

#include <stdlib.h>
#include <string.h>

/* libfyaml 0.7.12 leaks a scratch buffer on some quoted scalars it refuses; that is not ours. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const recipes[] = {NULL,       "lgt",        "cloud",
                                          "fluxflow", "wandistill", "stablesr"};
    pl_convert_info info;
    char *yaml = NULL;
    if (size < 1) return 0;
    char *text = malloc(size);
    if (!text) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    pl_status rc = pl__convert_text("input", text, size - 1, recipes[data[0] % 6], &info, &yaml);
    if (rc == PL_OK && strncmp(yaml, "# plimsoll convert input: ", 26) != 0) abort();
    if (rc == PL_OK) pl_text_free(yaml);
    /* a result that does not load is refused with the line of the result */
    if (rc != PL_OK && info.converted) abort();
    free(text);
    return 0;
}
