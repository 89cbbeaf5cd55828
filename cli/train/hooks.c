/* hooks.c - see hooks.h. */
#include "hooks.h"

#include "cli/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 256, GRACE_S = 2 };

/* Splits a command line in place into at most cap - 1 words and a NULL. Returns how many, 0 for a
 * blank text, -1 when a quote is not closed or there are too many. */
static int split_words(char *text, char **word, int cap)
{
    int n = 0;
    const char *p = text;
    char *to = text, quote = 0;
    while (*p) {
        while (*p == ' ' || *p == '\t' || *p == '\n') p++;
        if (!*p) break;
        if (n == cap - 1) return -1;
        word[n++] = to;
        for (; *p && (quote || (*p != ' ' && *p != '\t' && *p != '\n')); p++) {
            if (quote ? *p == quote : *p == '\'' || *p == '"')
                quote = quote ? 0 : *p;
            else if (*p == '\\' && quote != '\'' && p[1])
                *to++ = *++p;
            else
                *to++ = *p;
        }
        if (quote) return -1;
        if (*p) p++; /* before the zero, which may overwrite the blank */
        *to++ = 0;
    }
    word[n] = NULL;
    return n;
}

/* Copies the command of a key. "": none. */
static pl_status read_key(const pl_run *run, const char *key, char **out)
{
    const char *value = pl_config_text(pl_run_config(run), key);
    char *word[WORDS], *copy = strdup(value), *parts = copy ? strdup(value) : NULL;
    int n = parts ? split_words(parts, word, WORDS) : 0;
    bool enough = parts != NULL;
    free(parts);
    if (n > 0) *out = copy;
    if (n <= 0) free(copy);
    if (!enough) cli_error("%s: not enough memory for the command", key);
    if (!enough) return PL_ERR_MEMORY;
    if (n >= 0) return PL_OK;
    cli_error("%s: %s: a quote is not closed, or there are more than %d words", key, value,
              WORDS - 1);
    return PL_ERR_CONFIG;
}

static void rank_failed(void *ctx, int code, const char *text)
{
    hooks_run(ctx, code, text);
}

pl_status hooks_open(hooks *h, const pl_run *run, pl_world *world)
{
    if (pl_world_rank(world) > 0) return PL_OK;
    h->timeout = pl_config_duration(pl_run_config(run), "hook_timeout");
    pl_status rc = read_key(run, "on_end", &h->on_end);
    if (rc == PL_OK) rc = read_key(run, "on_error", &h->on_error);
    if (rc == PL_OK) pl_world_on_failure(world, rank_failed, h);
    return rc;
}

void hooks_close(hooks *h)
{
    free(h->on_end);
    free(h->on_error);
    h->on_end = h->on_error = NULL;
}

/* ---- running ---------------------------------------------------------------------------- */
/* In the child of vfork, which shares this process's memory: becomes the command. mpirun ends the
 * group of a failed rank with SIGTERM, which may come before the child has left the group; ignoring
 * a signal discards one that is pending. */
static void become(char **word, char **env, int null)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2};
    sigset_t none;
    sigemptyset(&none);
    setsid();
    dup2(null, 0);
    dup2(2, 1);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        signal(caught[i], SIG_IGN);
        signal(caught[i], SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvpe(word[0], word, env);
}

/* Starts the command in a separate session, so that a terminal's Ctrl-C and the end of the ranks do
 * not reach the command. Returns 0 or an errno. */
static int start(char **word, char **env, pid_t *pid)
{
    sigset_t all, before;
    volatile int why = 0; /* the child writes it */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of ours runs in the child */
    *pid = vfork();
    if (*pid == 0) {
        become(word, env, null);
        why = errno;
        _exit(127);
    }
    if (*pid < 0) why = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (null >= 0) close(null);
    if (*pid > 0 && why) waitpid(*pid, NULL, 0);
    return why;
}

/* Waits at most so long; false: the command still runs. */
static bool wait_for(pid_t pid, double seconds, int *status)
{
    double began = cli_seconds();
    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR)) return true;
        if (cli_seconds() - began >= seconds) return false;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static void wait_and_warn(const hooks *h, const char *key, pid_t pid)
{
    int status = 0;
    if (!wait_for(pid, h->timeout, &status)) {
        kill(-pid, SIGTERM);
        if (!wait_for(pid, GRACE_S, &status)) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
        }
        cli_error("warning: %s ran longer than %g s (hook_timeout) and was ended", key, h->timeout);
    } else if (WIFSIGNALED(status)) {
        cli_error("warning: %s was ended by signal %d", key, WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0) {
        cli_error("warning: %s failed with exit code %d", key, WEXITSTATUS(status));
    }
}

/* The environment of this process with the four variables; the caller frees the array only. */
static char **environment(char *const *added, int n_added)
{
    size_t n = 0, at = 0;
    while (environ[n]) n++;
    char **env = calloc(n + (size_t)n_added + 1, sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (strncmp(environ[i], "PL_RUN=", 7) != 0 && strncmp(environ[i], "PL_STATUS=", 10) != 0 &&
            strncmp(environ[i], "PL_STEP=", 8) != 0 && strncmp(environ[i], "PL_MESSAGE=", 11) != 0)
            env[at++] = environ[i];
    for (int i = 0; env && i < n_added; i++) env[at++] = added[i];
    return env;
}

static bool is_end(int code)
{
    return code == 0 || code == pl_status_exit_code(PL_ERR_STOPPED) || code == 128 + SIGHUP ||
           code == 128 + SIGINT || code == 128 + SIGTERM;
}

void hooks_run(hooks *h, int code, const char *message)
{
    const char *key = is_end(code) ? "on_end" : "on_error";
    const char *command = is_end(code) ? h->on_end : h->on_error;
    if (!command || h->ran) return;
    h->ran = true;
    char status[32], step[48], text[1200];
    char *word[WORDS], *copy = strdup(command), *path = h->path ? realpath(h->path, NULL) : NULL;
    char *run = cli_text("PL_RUN=%s", path ? path : "");
    snprintf(status, sizeof status, "PL_STATUS=%d", code);
    snprintf(step, sizeof step, "PL_STEP=%lld", (long long)h->step);
    snprintf(text, sizeof text, "PL_MESSAGE=%s", message);
    char *added[] = {run, status, step, text}, **env = environment(added, 4);
    pid_t pid = 0;
    fflush(NULL);
    int rc = !copy || !run || !env || split_words(copy, word, WORDS) < 1 ? ENOMEM
                                                                         : start(word, env, &pid);
    if (rc == 0)
        wait_and_warn(h, key, pid);
    else
        cli_error("warning: %s: cannot run %s: %s", key, command, strerror(rc));
    free(path);
    free(run);
    free(copy);
    free(env);
}
