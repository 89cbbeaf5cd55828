/* cmd_embed.c - `plimsoll embed`: prompts to the outputs of a text encoder, for recipes that read
 * embeddings.
 *
 * The encoder is a program like any other: planned within --memory, with as many prompts at a time
 * as fit. The recipe `encoders` reads weights and tokenizer and writes the result; this file turns
 * options into its keys and shows the progress.
 */
#include "cli/trained.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_AT_ONCE = 8, PATH = 4200 };

typedef struct embedder {
    const char *encoder, *tokenizer, *text, *prompt, *out;
    const char *length, *dtype, *layer, *pool, *tensor;
    trained_model t; /* its options memory, device, json and quiet, and its run */
    /* texts of overrides, which the run reads while it opens */
    char words[10][PATH];
} embedder;

/* Returns how many prompts are computed at a time: as many as there are, at most MOST_AT_ONCE; 0:
 * the file cannot be read, and an error was printed. */
static int prompts_at_once(const embedder *e)
{
    FILE *f = e->text ? fopen(e->text, "rb") : NULL;
    if (e->text && !f) {
        cli_error("--text %s: %s", e->text, strerror(errno));
        return 0;
    }
    int n = 0, c, last = '\n';
    for (; f && n < MOST_AT_ONCE && (c = fgetc(f)) != EOF; last = c) n += c == '\n';
    if (f) fclose(f);
    if (last != '\n' && n < MOST_AT_ONCE) n++;
    return n ? n : 1;
}

static pl_status open_run(embedder *e, cli_args *a, int prompts)
{
    char at_once[16];
    int n = 0;
    snprintf(at_once, sizeof at_once, "%d", prompts);
    const struct {
        const char *key, *value;
    } keys[] = {
        {"batch", at_once},          {"encoder", e->encoder}, {"encoder_weights", e->t.model},
        {"tokenizer", e->tokenizer}, {"length", e->length},   {"dtype", e->dtype},
        {"layer", e->layer},         {"pool", e->pool},       {"tensor", e->tensor},
        {"device", e->t.device}};
    /* key=value arguments of the user come after the options and override them */
    cli_args all = {.positional = {"encoders"}, .n_positional = 1};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        cli_override(&all, keys[i].key, keys[i].value, e->words[n++], PATH);
    for (int i = 0; i < a->n_overrides; i++) {
        if (all.n_overrides == CLI_MAX_ARGS) return pl_fail(PL_ERR_ARG, "too many overrides");
        all.overrides[all.n_overrides++] = a->overrides[i];
    }
    pl_status rc = cli_open_run(&all, e->t.memory, &e->t.run);
    return rc == PL_OK ? pl_run_predict_only(e->t.run) : rc;
}

static int embed(embedder *e, cli_args *a)
{
    int prompts = prompts_at_once(e);
    if (!prompts) return pl_status_exit_code(PL_ERR_DATA);
    snprintf(e->t.model_path, sizeof e->t.model_path, "%s", e->t.model);
    pl_status rc = open_run(e, a, prompts);
    if (rc == PL_OK) rc = trained_start(&e->t);
    if (rc != PL_OK) return cli_fail(rc);
    return trained_predict(
        &e->t, (pl_predict_opts){.input = e->text, .out = e->out, .prompt = e->prompt}, "prompts");
}

const cli_help cli_help_embed = {
    .usage = "plimsoll embed --encoder NAME --weights FILE --tokenizer FILE --text FILE --out FILE "
             "[key=value ...]",
    .about = "Computes the outputs of a text encoder (umT5, DistilBERT, OpenCLIP) for prompts, one "
             "per line of a\ntext file, and writes them as an array [prompts, tokens, width] for "
             "data.embeddings and\ncontext_from. Sizes come from the weight file.",
    .examples =
        "  plimsoll embed --encoder umt5 --weights umt5-xxl --tokenizer spiece.model --text "
        "prompts.txt --out text.npy\n"
        "  plimsoll embed --encoder distilbert --weights text_encoder.safetensors --tokenizer "
        "vocab.txt --text captions.txt --out text.npy\n"
        "  plimsoll embed --encoder openclip --weights open_clip.safetensors --tokenizer vocab "
        "--prompt '' --out empty.safetensors\n",
    .options =
        (const cli_option[]){
            {"--encoder", "NAME", offsetof(embedder, encoder), "umt5, distilbert or openclip"},
            {"--weights", "FILE", offsetof(embedder, t.model),
             "weights of the encoder: a file, or a folder of shards"},
            {"--tokenizer", "FILE", offsetof(embedder, tokenizer),
             "tokenizer of the encoder: a file (spiece.model, vocab.txt, vocab.json, ...), or its "
             "folder"},
            {"--text", "FILE", offsetof(embedder, text),
             "prompts, one per line; empty lines count"},
            {"--prompt", "TEXT", offsetof(embedder, prompt), "one prompt, instead of --text"},
            {"--out", "FILE", offsetof(embedder, out), "result: a .npy or .safetensors file"},
            {"--length", "N", offsetof(embedder, length),
             "tokens per prompt, with padding; longer prompts are cut",
             "226 (umt5), 128 (distilbert), 77 (openclip)"},
            {"--dtype", "TYPE", offsetof(embedder, dtype),
             "number format of the result: f32 or f16", "f32"},
            {"--layer", "NAME", offsetof(embedder, layer),
             "openclip: last or penultimate layer, through the final norm",
             "penultimate for OpenCLIP's files, last for files of transformers"},
            {"--pool", "NAME", offsetof(embedder, pool),
             "distilbert: none, mean (of tokens) or all (mean over all positions)",
             "none, or FluxFlow's head where the weights have it"},
            {"--tensor", "NAME", offsetof(embedder, tensor),
             "name of the result in a .safetensors file", "context (openclip) or text"},
            {"--memory", "SIZE", offsetof(embedder, t.memory),
             "memory budget of the whole process (same as memory=SIZE)"},
            {"--device", "DEVICE", offsetof(embedder, t.device),
             "device to compute on (same as device=DEVICE)"},
            {"--json", NULL, offsetof(embedder, t.json), "print one JSON object"},
            {"--quiet", NULL, offsetof(embedder, t.progress.quiet), "no progress bar"},
            {NULL},
        },
};

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

/* Whether the options make sense together; false: an error was printed. */
static bool check(const embedder *e)
{
    const struct {
        const char *name, *value;
    } needed[] = {{"--encoder", e->encoder},
                  {"--weights", e->t.model},
                  {"--tokenizer", e->tokenizer},
                  {"--text", e->prompt ? e->prompt : e->text},
                  {"--out", e->out}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!needed[i].value) {
            cli_error("embed needs %s (plimsoll embed --help shows examples)", needed[i].name);
            return false;
        }
    if (e->prompt && e->text) {
        cli_error("--text and --prompt: give one of them");
        return false;
    }
    if (ends_with(e->out, ".npy") || ends_with(e->out, ".safetensors")) return true;
    cli_error("--out %s: the name must end in .npy or .safetensors", e->out);
    return false;
}

int cmd_embed(int argc, char **argv)
{
    embedder *e = cli_new(sizeof *e);
    cli_args a;
    cli_parse(argc, argv, &cli_help_embed, e, &a);
    cli_want(&a, 0, 0, "embed", "options and key=value only");
    trained_prepare(&e->t, "embed");
    int code = check(e) ? embed(e, &a) : 2;
    pl_run_free(e->t.run);
    free(e);
    return code;
}
