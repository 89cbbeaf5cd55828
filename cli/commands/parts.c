/* parts.c - see parts.h. */
#include "cli/commands/parts.h"

#include "cli/report/watch.h"
#include "plimsoll_levels.h"
#include "plimsoll_onnx.h"
#include "plimsoll_ranks.h"
#include "plimsoll_tokens.h"
#include "plimsoll_train.h"

#include <stdio.h>

/* why_not is copied, because the text of some libraries is valid until the next question only. */
static cli_part part_of(const char *name, const char *works, bool format, const char *why_not)
{
    cli_part p = {.name = name, .works = works, .format = format, .missing = why_not != NULL};
    snprintf(p.why_not, sizeof p.why_not, "%s", why_not ? why_not : "");
    return p;
}

int cli_parts(cli_part *out)
{
    static const struct {
        const char *name;
        pl_tokenizer_kind kind;
    } tokenizers[] = {{"WordPiece", PL_TOKENIZER_WORDPIECE},
                      {"CLIP", PL_TOKENIZER_CLIP},
                      {"SentencePiece", PL_TOKENIZER_SENTENCEPIECE}};
    enum { OTHERS = sizeof tokenizers / sizeof *tokenizers + 4, FORMATS = CLI_PARTS_MAX - OTHERS };
    pl_data_format formats[FORMATS];
    int n = 0, found = pl_data_formats(formats, FORMATS);
    for (int i = 0; i < found && i < FORMATS; i++)
        out[n++] = part_of(formats[i].name, "can be read", true, formats[i].why_not);
    for (int i = 0; i < OTHERS - 4; i++)
        out[n++] = part_of(tokenizers[i].name, "texts can be split into tokens", false,
                           pl_tokenizer_missing(tokenizers[i].kind));
    out[n++] = part_of("ONNX", "models can be read", false, pl_onnx_missing());
    out[n++] = part_of("watch", "a run can be shown in a browser", false, watch_missing());
    out[n++] = part_of("libsodium", "ranks on several machines prove who they are", false,
                       pl_world_keys_missing());
    out[n++] = part_of("io_uring", "several requests to a disk below the device at a time", false,
                       pl_io_uring_missing());
    return n;
}
