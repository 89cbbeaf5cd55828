/* cmd_cache.c - `plimsoll cache`: runs a recipe's frozen encoder once and stores its outputs. */
#include "cli/ui.h"

static pl_status make(pl_run *run, cli_progress *s, pl_cache_info *info)
{
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    if (rc == PL_OK && !s->quiet) cli_start_warning(run);
    return rc == PL_OK ? pl_run_cache(run, cli_show_progress, s, info) : rc;
}

typedef struct cache_options {
    bool force, quiet;
} cache_options;

const cli_help cli_help_cache = {
    .usage = "plimsoll cache CONFIG data.cache=DIR [key=value ...]",
    .about = "Runs the recipe's frozen encoder (a VAE, a text encoder) once over the data set and "
             "writes\nits outputs into DIR. `train` with the same configuration reads them, and "
             "its plan has no\nencoder. A cache that is up to date is kept; otherwise the reason "
             "is printed.",
    .examples =
        "  plimsoll cache my.yaml data.path=photos data.cache=latents data.cache_dtype=bf16\n"
        "  plimsoll train my.yaml data.path=photos data.cache=latents data.cache_dtype=bf16\n",
    .options =
        (const cli_option[]){
            {"--force", NULL, offsetof(cache_options, force), "rebuild a cache that is up to date"},
            {"--quiet", NULL, offsetof(cache_options, quiet), "print errors only"},
            {NULL},
        },
};

int cmd_cache(int argc, char **argv)
{
    cache_options o = {.force = false};
    cli_args a;
    cli_parse(argc, argv, &cli_help_cache, &o, &a);
    cli_progress s = {.percent = -1, .quiet = o.quiet};
    cli_want(&a, 1, 1, "cache", "one configuration");
    s.bar = cli_terminal(stderr);
    pl_run *run = NULL;
    bool fresh = false;
    char why[512] = "";
    pl_cache_info info = {0};
    pl_status rc = pl_run_open(a.positional[0], a.overrides, a.n_overrides, &run);
    if (rc == PL_OK) rc = pl_run_encode_only(run);
    if (rc == PL_OK) rc = pl_run_cache_fresh(run, &fresh, why, sizeof why);
    bool make_it = rc == PL_OK && (!fresh || o.force);
    if (make_it && !s.quiet && !fresh) fprintf(stderr, "building the cache: %s\n", why);
    if (make_it) rc = make(run, &s, &info);
    if (make_it && rc == PL_OK) bad_files_print(run);
    if (rc == PL_OK && !s.quiet) {
        const char *dir = pl_config_text(pl_run_config(run), "data.cache");
        if (make_it)
            cli_say("%s: %lld training samples, %lld evaluation samples, %s in %d files\n", dir,
                    (long long)info.samples, (long long)info.eval_samples, cli_bytes(info.bytes),
                    info.files);
        else
            cli_say("%s is up to date\n", dir);
    }
    pl_run_free(run);
    return rc == PL_OK ? 0 : cli_fail(rc);
}
