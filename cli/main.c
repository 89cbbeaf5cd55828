/* main.c - finds the command by its name and calls it. commands/commands.def lists the commands. */
#include "cli/help/help.h"
#include "ui.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#ifdef __GLIBC__
# include <malloc.h>
#endif
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define RAISED "PLIMSOLL_STACK_RAISED"

const cli_command cli_commands[] = {
#define COMMAND(name, about) {#name, about, cmd_##name, &cli_help_##name},
#include "cli/commands/commands.def"
#undef COMMAND
    {NULL, NULL, NULL, NULL},
};

/* Prints the folder of plimsoll.h: beside an installed program, or in the source tree. */
static int print_include_dir(void)
{
    static const char *const places[] = {"/../include", "/../../include"};
    enum { ROOM = 64 };
    char path[PATH_MAX + ROOM];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    char *end = strrchr(path, '/');
    if (!end) return 1;
    for (int i = 0; i < 2; i++) {
        snprintf(end, ROOM, "%s/plimsoll.h", places[i]);
        if (access(path, R_OK) != 0) continue;
        snprintf(end, ROOM, "%s", places[i]);
        char *real = realpath(path, NULL);
        printf("%s\n", real ? real : path);
        free(real);
        return 0;
    }
    *end = 0;
    cli_error(
        "cannot find plimsoll.h near this program (%s); the Debian package libplimsoll-dev has the "
        "headers, and so has the source tree",
        path);
    return 1;
}

static int run_command(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        help_beginner(stderr);
        return 2;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
        help_all(stdout);
        return 0;
    }
    if (!strcmp(name, "help")) return help_run(argc - 1, argv + 1);
    if (!strcmp(name, "--version")) {
        printf("plimsoll %s\n", pl_version());
        return 0;
    }
    if (!strcmp(name, "--include-dir")) return print_include_dir();
    const cli_command *c = cli_find_command(name);
    return c ? c->run(argc - 1, argv + 1) : 2;
}

/* ---- limits of the process ---------------------------------------------------------------- */
/* Threads get the stack size that the process was started with, so a larger limit needs a fresh
 * execution of the program. Returns an exit code, or -1: the stack is large enough. */
static int check_stack(char **argv)
{
    enum { LEAST = 1 << 20, WANTED = 8 << 20 };
    struct rlimit r;
    if (getrlimit(RLIMIT_STACK, &r) != 0 || r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= LEAST)
        return -1;
    rlim_t before = r.rlim_cur, most = r.rlim_max;
    r.rlim_cur = most == RLIM_INFINITY || most > WANTED ? WANTED : most;
    if (r.rlim_cur >= LEAST && !getenv(RAISED) && setrlimit(RLIMIT_STACK, &r) == 0 &&
        setenv(RAISED, "1", 1) == 0)
        execv("/proc/self/exe", argv);
    cli_error("the limit of the stack is %llu KiB (ulimit -s), at least %d KiB are needed",
              (unsigned long long)before / 1024, LEAST / 1024);
    return pl_status_exit_code(PL_ERR_FIT);
}

/* Tar shards, ranks and plug-ins take open files. */
static void raise_files(void)
{
    enum { WANTED = 4096 };
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= WANTED) return;
    r.rlim_cur = r.rlim_max < WANTED ? r.rlim_max : WANTED;
    (void)setrlimit(RLIMIT_NOFILE, &r);
}

/* A file that is opened gets the number of a closed standard stream, and messages would be written
 * into it. The stand-in cannot be written: output is an error, as it is on a closed stream. */
static void hold_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!open("/dev/null", O_RDONLY);
}

/* Large blocks are always mapped: only touched pages of them are resident, and they go back to the
 * system when they are freed. By default glibc stops mapping blocks of a size once one was freed,
 * so that the memory of a process would depend on its earlier work. */
static void map_large_blocks(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
#endif
}

/* A program inherits blocked signals and an ignored SIGCHLD from the program that starts it (some
 * supervisors and shells do that). A blocked SIGTERM would never arrive, and with SIGCHLD ignored
 * the exit codes of child processes are lost. */
static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int main(int argc, char **argv)
{
    map_large_blocks();
    hold_streams();
    reset_signals();
    setlocale(LC_NUMERIC, "C"); /* in case that a preloaded library has set another */
    int code = check_stack(argv);
    if (code >= 0) return code;
    unsetenv(RAISED);
    raise_files();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` is an error with a message */
    return cli_check_output(run_command(argc, argv));
}
