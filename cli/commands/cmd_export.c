/* cmd_export.c - `plimsoll export`: the weights of a trained model as other programs read them.
 *
 * The recipe says the forms (pl_recipe.exports): names, files and what else is in them. The run is
 * built, which gives the names and shapes of its weights, and not started: values go from file to
 * file.
 */
#include "cli/trained.h"
#include "plimsoll_checkpoint.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct exporter {
    trained_model t;
    const char *as, *out, *dtype, *program;
    bool frozen;
} exporter;

/* Number of steps of the run's newest checkpoint; 0: there is none. */
static int64_t steps_of(const char *folder)
{
    int64_t step = 0;
    return pl_folder_steps(folder, &step, 1) > 0 ? step : 0;
}

static int export_model(exporter *e, cli_args *a, int64_t step)
{
    static char memory[16];
    pl_export_info info;
    pl_export_opts o = {.form = e->as ? e->as : "plimsoll",
                        .model = e->t.model_path,
                        .out = e->out,
                        .dtype = e->dtype,
                        .frozen = e->frozen,
                        .program = e->program,
                        .step = step};
    bool onnx = strcmp(o.form, "onnx") == 0;
    e->t.device = "cpu"; /* nothing runs */
    cli_override(a, "memory", "null", memory, sizeof memory);
    pl_status rc = trained_open(&e->t, a, e->program && strcmp(e->program, "sample") == 0);
    if (rc == PL_OK) rc = trained_enter(&e->t);
    onnx &= rc == PL_OK && !pl_run_has_form(e->t.run, "onnx");
    if (onnx) rc = pl_run_onnx_only(e->t.run, e->program);
    if (rc == PL_OK && !e->t.progress.quiet) cli_busy("reading names and shapes");
    if (rc == PL_OK) rc = onnx ? trained_start(&e->t) : pl_run_build(e->t.run);
    cli_idle();
    if (rc == PL_OK) rc = pl_run_export(e->t.run, &o, &info);
    if (rc != PL_OK) return cli_fail(rc);
    if (info.unnamed && !e->t.progress.quiet)
        fprintf(stderr, "left out: %d tensor%s without a name in form %s (%s%s)\n", info.unnamed,
                info.unnamed == 1 ? "" : "s", o.form, info.first_unnamed,
                info.unnamed == 1 ? "" : ", ...");
    if (info.random && !e->t.progress.quiet)
        cli_error(
            "warning: %d of the %d tensors are random, frozen networks without weights (%s%s)",
            info.random, info.tensors, info.first_random, info.random == 1 ? "" : ", ...");
    if (info.draws && !e->t.progress.quiet)
        fprintf(stderr, "%d draw%s of random numbers became inputs: draw.0%s\n", info.draws,
                info.draws == 1 ? "" : "s", info.draws == 1 ? "" : ", ...");
    if (!e->t.progress.quiet)
        cli_say("%s: %d tensors, %s, form %s\n", e->out, info.tensors, cli_bytes(info.bytes),
                o.form);
    return 0;
}

const cli_help cli_help_export = {
    .usage = "plimsoll export RUN --as FORM --out FILE [key=value ...]\n"
             "plimsoll export CONFIG --model FILE --as FORM --out FILE [key=value ...]",
    .about =
        "Writes the weights of a trained model for other programs. FORM is `plimsoll` "
        "(what was trained,\nunder Plimsoll's names), or a form of the recipe: `authors` "
        "(names and files that the authors'\nprogram loads), for stablesr also `diffusers`, or `onnx`: a program of "
        "the recipe with its weights, for ONNX Runtime\n(of an ONNX model: the file with the trained "
        "weights). The ending of FILE says the format: .safetensors,\nor PyTorch's .pt, .pth, .ckpt and "
        ".bin. A form of several files takes a folder. Nothing is trained\nor computed.",
    .examples = "  plimsoll export runs/first --out first.safetensors\n"
                "  plimsoll export runs/first --as authors --out epoch_0100.pt --ema\n"
                "  plimsoll export runs/first --as plimsoll --frozen --dtype f16 --out all.pt\n"
                "  plimsoll export runs/first --as onnx --out first.onnx batch=1\n",
    .options =
        (const cli_option[]){
            {"--as", "FORM", offsetof(exporter, as), "names and files to write", "plimsoll"},
            {"--out", "FILE", offsetof(exporter, out), "file, or folder, to write"},
            {"--dtype", "TYPE", offsetof(exporter, dtype),
             "number format of the tensors: f32, f16, bf16 or f64", "that of the weights"},
            {"--frozen", NULL, offsetof(exporter, frozen),
             "form plimsoll: write frozen networks too"},
            {"--program", "NAME", offsetof(exporter, program),
             "form onnx: program to write, e.g. predict, eval or sample", "predict, else eval"},
            {"--model", "FILE", offsetof(exporter, t.model), "weights to export",
             "the model of the run"},
            {"--ema", NULL, offsetof(exporter, t.ema),
             "export the averaged weights (model_ema.safetensors)"},
            {"--phase", "NAME", offsetof(exporter, t.phase), "use the settings of this phase",
             "the phase of the model"},
            {"--quiet", NULL, offsetof(exporter, t.progress.quiet), "print errors only"},
            {NULL},
        },
};

int cmd_export(int argc, char **argv)
{
    exporter *e = cli_new(sizeof *e);
    cli_args a;
    int code = 2;
    cli_parse(argc, argv, &cli_help_export, e, &a);
    cli_want(&a, 1, 1, "export", "one run folder or configuration");
    int64_t step = steps_of(a.positional[0]);
    if (!e->out)
        cli_error("export needs --out FILE (plimsoll export --help shows examples)");
    else if (!e->t.model && trained_is_network(a.positional[0]))
        cli_error("%s is the ONNX file before training: name the folder of a finished run (train "
                  "it, plimsoll train %s), or add --model FILE",
                  a.positional[0], a.positional[0]);
    else if (trained_find(&e->t, a.positional[0]))
        code = export_model(e, &a, step);
    pl_run_free(e->t.run);
    free(e);
    return code;
}
