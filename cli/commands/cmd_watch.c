/* cmd_watch.c - `plimsoll watch RUN`: the report of a run in a browser, while it trains. */
#include "cli/report/watch.h"

#include "cli/ui.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    stop = number;
}

typedef struct watch_options {
    const char *port;
} watch_options;

const cli_help cli_help_watch = {
    .usage = "plimsoll watch RUN",
    .about = "Serves the report of a run on this machine and keeps it up to date: curves, "
             "progress, memory,\nthe last lines of the log, and whether the run is training, "
             "ended or stalled.\nPrints the address, which has a random token. RUN is the folder "
             "of train --out; Ctrl-C ends.",
    .examples = "  plimsoll watch runs/first\n"
                "  plimsoll watch runs/first --port 8080\n",
    .options =
        (const cli_option[]){
            {"--port", "N", offsetof(watch_options, port), "port of 127.0.0.1", "a free one"},
            {NULL},
        },
};

int cmd_watch(int argc, char **argv)
{
    watch_options o = {.port = NULL};
    cli_args a;
    struct stat s;
    cli_parse(argc, argv, &cli_help_watch, &o, &a);
    cli_want(&a, 1, 1, "watch", "one run folder");
    char *end = NULL;
    long port = o.port ? strtol(o.port, &end, 10) : 0;
    if (o.port && (*end || end == o.port || port < 1 || port > 65535)) {
        cli_error("--port takes a number from 1 to 65535, not \"%s\"", o.port);
        return 2;
    }
    if (stat(a.positional[0], &s) != 0 || !S_ISDIR(s.st_mode)) {
        cli_error("%s is not a folder; watch takes the run folder of plimsoll train --out",
                  a.positional[0]);
        return 1;
    }
    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
    return watch_run(a.positional[0], (int)port, &stop);
}
