/* cmd_version.c - `plimsoll version`: prints the parts of this program and the libraries that it
 * finds on this machine. For bug reports, and to see why a plug-in or a data format is missing. */
#include "cli/commands/parts.h"
#include "cli/ui.h"
#include "plimsoll_json.h"
#include "plimsoll_unstable.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_CAP = 4200 };

typedef struct version_info {
    char compiler[64], onednn[32];
    char cuda_plugin[PATH_CAP], mpi_plugin[PATH_CAP]; /* "": not found */
    pl_device_info cpu;
    const char *instructions; /* end of cpu.about */
    cli_part parts[CLI_PARTS_MAX];
    int n_parts;
} version_info;

static void collect(version_info *v)
{
#ifdef __clang__
    snprintf(v->compiler, sizeof v->compiler, "clang %d.%d.%d", __clang_major__, __clang_minor__,
             __clang_patchlevel__);
#else
    snprintf(v->compiler, sizeof v->compiler, "gcc %d.%d.%d", __GNUC__, __GNUC_MINOR__,
             __GNUC_PATCHLEVEL__);
#endif
    const dnnl_version_t *dnn = dnnl_version();
    snprintf(v->onednn, sizeof v->onednn, "%d.%d.%d", dnn->major, dnn->minor, dnn->patch);
    pl_plugin_find("cuda", v->cuda_plugin, PATH_CAP);
    pl_plugin_find("mpi", v->mpi_plugin, PATH_CAP);
    pl_device_list(&v->cpu, 1);
    const char *comma = strrchr(v->cpu.about, ',');
    v->instructions = comma ? comma + strspn(comma, ", ") : v->cpu.about;
    v->n_parts = cli_parts(v->parts);
}

static void parts_json(const version_info *v, pl_json *j, bool formats)
{
    pl_json_array(j, formats ? "formats" : "parts");
    for (int i = 0; i < v->n_parts; i++) {
        if (v->parts[i].format != formats) continue;
        pl_json_object(j, NULL);
        pl_json_string(j, "name", v->parts[i].name);
        pl_json_bool(j, formats ? "readable" : "usable", !v->parts[i].missing);
        pl_json_string(j, "why_not", v->parts[i].why_not);
        pl_json_end(j);
    }
    pl_json_end(j);
}

static pl_status version_json(const version_info *v)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_string(j, "version", pl_version());
    pl_json_string(j, "compiler", v->compiler);
    pl_json_string(j, "instruction_set", v->instructions);
    pl_json_string(j, "onednn", v->onednn);
    pl_json_string(j, "cuda_plugin", v->cuda_plugin[0] ? v->cuda_plugin : NULL);
    pl_json_string(j, "mpi_plugin", v->mpi_plugin[0] ? v->mpi_plugin : NULL);
    parts_json(v, j, true);
    parts_json(v, j, false);
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

static void version_print(const version_info *v)
{
    printf("%splimsoll %s%s\n", cli_bold(stdout), pl_version(), cli_plain(stdout));
    printf("compiler         %s\n", v->compiler);
    printf("instruction set  %s\n", v->instructions);
    printf("oneDNN           %s\n", v->onednn);
    printf("CUDA plug-in     %s\n", v->cuda_plugin[0] ? v->cuda_plugin : "not found");
    printf("MPI plug-in      %s\n", v->mpi_plugin[0] ? v->mpi_plugin : "not found");
    for (int i = 0; i < v->n_parts; i++)
        printf("%-16s %s\n", v->parts[i].name,
               v->parts[i].missing ? v->parts[i].why_not : v->parts[i].works);
}

typedef struct version_options {
    bool json;
} version_options;

const cli_help cli_help_version = {
    .usage = "plimsoll version",
    .about = "Prints version, compiler, instruction set, and the optional parts that this program "
             "finds.\n`plimsoll doctor` says what to install for the others.",
    .examples = "  plimsoll version\n  plimsoll version --json\n",
    .options =
        (const cli_option[]){
            {"--json", NULL, offsetof(version_options, json), "print one JSON object"},
            {NULL},
        },
};

int cmd_version(int argc, char **argv)
{
    version_options o = {.json = false};
    cli_args a;
    cli_parse(argc, argv, &cli_help_version, &o, &a);
    cli_want(&a, 0, 0, "version", "no arguments");
    version_info *v = cli_new(sizeof *v);
    collect(v);
    pl_status rc = o.json ? version_json(v) : PL_OK;
    if (!o.json) version_print(v);
    free(v);
    return rc == PL_OK ? 0 : cli_fail(rc);
}
