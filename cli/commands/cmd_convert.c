/* cmd_convert.c - `plimsoll convert`: a configuration of another program as one of ours. */
#include "cli/ui.h"

#include <stdlib.h>

typedef struct convert_options {
    const char *recipe;
    bool quiet;
} convert_options;

const cli_help cli_help_convert = {
    .usage = "plimsoll convert FILE [--recipe NAME]",
    .about =
        "Reads the YAML or JSON configuration of a program that a recipe reproduces, and prints\n"
        "a configuration of the recipe. Comments name the key that each value comes from, the\n"
        "keys that are not needed with the reason, and the keys that are not known.",
    .examples = "  plimsoll convert config.json > my.yaml && plimsoll plan my.yaml\n"
                "  plimsoll convert v2-finetune_edge.yaml --recipe stablesr > sr.yaml\n",
    .options =
        (const cli_option[]){
            {"--recipe", "NAME", offsetof(convert_options, recipe), "recipe of the result",
             "recognised by the keys"},
            {"--quiet", NULL, offsetof(convert_options, quiet), "print no summary"},
            {NULL},
        },
};

int cmd_convert(int argc, char **argv)
{
    convert_options o = {.recipe = NULL};
    pl_convert_info info;
    cli_args a;
    char *yaml = NULL;
    cli_parse(argc, argv, &cli_help_convert, &o, &a);
    cli_want(&a, 1, 1, "convert", "one file");
    if (a.n_overrides > 0) {
        cli_error("convert takes no key=value: add them to the file, or to plan and train");
        return 2;
    }
    pl_status rc = pl_convert(a.positional[0], o.recipe, &info, &yaml);
    if (rc != PL_OK) return cli_fail(rc);
    fputs(yaml, stdout);
    pl_text_free(yaml);
    if (!o.quiet)
        fprintf(stderr,
                "recipe %s: %d keys converted; %d keys not needed or to be set by hand; %d keys "
                "unknown\n",
                info.recipe, info.converted, info.skipped, info.unknown);
    return 0;
}
