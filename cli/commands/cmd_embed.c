/* cmd_embed.c - `plimsoll embed`: prompts to the outputs of a text encoder, for recipes that read
 * embeddings.
 *
 * The encoder is a program like any other: planned within --memory, with as many prompts at a time
 * as fit. The recipe `encoders` reads weights and tokenizer and writes the result; this file turns
 * options into its keys and shows the progress.
 */
#include "cli/ui.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_AT_ONCE = 8, PATH = 4200 };

typedef struct embedder {
    const char *encoder, *weights, *tokenizer, *text, *prompt, *out;
    const char *length, *dtype, *layer, *pool, *tensor, *memory, *device;
    bool json;
    cli_progress progress;
    pl_run *run;
    /* texts of overrides, which the run reads while it opens */
    char words[10][PATH];
} embedder;

static void show(void *ctx, int64_t done, int64_t total)
{
    cli_show_progress(ctx, PL_SUBSET_EVAL, done, total);
}

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
    } keys[] = {{"batch", at_once},          {"encoder", e->encoder}, {"weights", e->weights},
                {"tokenizer", e->tokenizer}, {"length", e->length},   {"dtype", e->dtype},
                {"layer", e->layer},         {"pool", e->pool},       {"tensor", e->tensor},
                {"device", e->device}};
    /* what the user writes as key=value comes after the options, and counts */
    cli_args all = {.positional = {"encoders"}, .n_positional = 1};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        cli_override(&all, keys[i].key, keys[i].value, e->words[n++], PATH);
    for (int i = 0; i < a->n_overrides; i++) {
        if (all.n_overrides == CLI_MAX_ARGS) return pl_fail(PL_ERR_ARG, "too many overrides");
        all.overrides[all.n_overrides++] = a->overrides[i];
    }
    pl_status rc = cli_open_run(&all, e->memory, &e->run);
    return rc == PL_OK ? pl_run_predict_only(e->run) : rc;
}

static pl_status print_json(const embedder *e, const pl_predict_info *info, double seconds)
{
    pl_run_memory m = pl_run_memory_get(e->run);
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_string(j, "out", e->out);
    pl_json_int(j, "prompts", info->samples);
    pl_json_int(j, "batch", pl_run_split_get(e->run).micro);
    pl_json_int(j, "parameters", pl_run_parameters(e->run, false));
    pl_json_float(j, "wall_s", seconds);
    pl_json_uint(j, "arena_bytes", m.arena);
    pl_json_uint(j, "state_bytes", m.state);
    pl_json_uint(j, "peak_used_bytes", pl_run_peak_used_bytes(e->run));
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

static int embed(embedder *e, cli_args *a)
{
    pl_predict_info info = {0};
    int prompts = prompts_at_once(e);
    if (!prompts) return pl_status_exit_code(PL_ERR_DATA);
    pl_status rc = open_run(e, a, prompts);
    if (!e->progress.quiet) cli_busy("planning and reading the weights");
    if (rc == PL_OK) rc = pl_run_build(e->run);
    if (rc == PL_OK) rc = pl_run_start(e->run);
    cli_idle();
    if (rc != PL_OK) return cli_fail(rc);
    pl_predict_opts o = {.input = e->text,
                         .out = e->out,
                         .prompt = e->prompt,
                         .progress = show,
                         .ctx = &e->progress};
    double began = cli_seconds();
    rc = pl_run_predict(e->run, &o, &info);
    double seconds = cli_seconds() - began;
    if (rc != PL_OK) return cli_fail(rc);
    if (info.note[0]) cli_error("%s", info.note);
    if (e->json) {
        rc = print_json(e, &info, seconds);
        return rc == PL_OK ? 0 : cli_fail(rc);
    }
    printf("%s: %s prompt%s in %s, peak memory of the process %s\n", e->out,
           cli_count(info.samples), info.samples == 1 ? "" : "s", cli_duration(seconds),
           cli_bytes(pl_run_peak_used_bytes(e->run)));
    return 0;
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
            {"--weights", "FILE", offsetof(embedder, weights),
             "weights of the encoder: a file, or a folder of shards"},
            {"--tokenizer", "FILE", offsetof(embedder, tokenizer),
             "its tokenizer: a file (spiece.model, vocab.txt, vocab.json, ...), or its folder"},
            {"--text", "FILE", offsetof(embedder, text),
             "prompts, one per line; empty lines count"},
            {"--prompt", "TEXT", offsetof(embedder, prompt), "one prompt, instead of --text"},
            {"--out", "FILE", offsetof(embedder, out), "result: a .npy or .safetensors file"},
            {"--length", "N", offsetof(embedder, length),
             "tokens per prompt, with padding; longer prompts are cut",
             "226 (umt5), 128 (distilbert), 77 (openclip)"},
            {"--dtype", "TYPE", offsetof(embedder, dtype), "f32 or f16: numbers of the result",
             "f32"},
            {"--layer", "NAME", offsetof(embedder, layer),
             "openclip: last or penultimate layer, through the final norm",
             "penultimate for OpenCLIP's files, last for files of transformers"},
            {"--pool", "NAME", offsetof(embedder, pool),
             "distilbert: none, mean (of tokens) or all (mean over all positions)",
             "none, or FluxFlow's head where the weights have it"},
            {"--tensor", "NAME", offsetof(embedder, tensor),
             "name of the result in a .safetensors file", "context (openclip) or text"},
            {"--memory", "SIZE", offsetof(embedder, memory),
             "memory budget of the whole process (same as memory=SIZE)"},
            {"--device", "DEVICE", offsetof(embedder, device),
             "device to compute on (same as device=DEVICE)"},
            {"--json", NULL, offsetof(embedder, json), "print one JSON object"},
            {"--quiet", NULL, offsetof(embedder, progress.quiet), "no progress bar"},
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
                  {"--weights", e->weights},
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
    e->progress.percent = -1;
    e->progress.what = "embed";
    e->progress.bar = cli_terminal(stderr);
    e->progress.quiet |= e->json;
    int code = check(e) ? embed(e, &a) : 2;
    pl_run_free(e->run);
    free(e);
    return code;
}
