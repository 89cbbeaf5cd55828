/* cli_run.c - see cli_run.h. */
#include "tests/lib/cli_run.h"

#include "tests/lib/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds of sleep, or half as many seconds of a core, that no test needs: see cli_hangs. A
 * sanitizer is ten times as slow. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { LIMIT_S = 1200 };
#else
enum { LIMIT_S = 300 };
#endif
enum { CAP = 4 << 20 };

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

const char *cli_bin(void)
{
    static char path[PATH_MAX];
    const char *bin = getenv("PL_BIN");
    return realpath(bin ? bin : "build/release/plimsoll", path) ? path : NULL;
}

const char *cli_fakes(void)
{
    static char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s", cli_bin());
    char *slash = strrchr(path, '/');
    if (slash) snprintf(slash, sizeof path - (size_t)(slash - path), "/fake");
    return path;
}

/* Reads a file into one of a few static texts. */
static const char *load(const char *path, int which)
{
    static char *text[3];
    if (!text[which]) text[which] = malloc(CAP);
    if (!text[which]) return "";
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t k = 1; fd >= 0 && k > 0 && n + 1 < CAP; n += (size_t)(k > 0 ? k : 0))
        k = read(fd, text[which] + n, CAP - 1 - n);
    if (fd >= 0) close(fd);
    text[which][n] = 0;
    return text[which];
}

const char *cli_read(const char *path)
{
    return load(path, 2);
}

bool cli_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(text, f) >= 0;
    return f && fclose(f) == 0 && ok;
}

json_t *cli_event(const char *text, const char *event, int n)
{
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        size_t len = end ? (size_t)(end - line) : strlen(line);
        json_t *j = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
        const char *have = json_string_value(json_object_get(j, "event"));
        if (have && strcmp(have, event) == 0 && n-- == 0) return j;
        json_decref(j);
        line += len + (end != NULL);
    }
    return NULL;
}

int64_t cli_told_minimum(const char *err)
{
    static const char before[] = "the smallest budget is ";
    const char *at = strstr(err, before);
    return at ? atoll(at + sizeof before - 1) : -1;
}

int64_t cli_member(const json_t *j, const char *name)
{
    return json_integer_value(json_object_get(j, name));
}

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Executes the command in this process. Signals that nohup or a background shell ignores reach
 * it. The program gets one thread, because about as many tests run at once as there are cores:
 * on the small networks of tests, threads that wait for each other cost half of the time again.
 * Long runs (make check-all) and tests that set threads= use more. */
static void become(const char *command)
{
    if (!pl_test_long()) setenv("PL_THREADS", "1", 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    setenv("P", cli_bin() ? cli_bin() : "/nonexistent", 1);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static void paths(char out[PATH_MAX], char err[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/.stdout", pl_test_dir());
    snprintf(err, PATH_MAX, "%s/.stderr", pl_test_dir());
}

static pid_t start(const char *command)
{
    static char out[PATH_MAX], err[PATH_MAX];
    paths(out, err);
    unlink(out);
    unlink(err);
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) abort();           /* a signal to group -pid would go astray */
    if (pid > 0) setpgid(pid, pid); /* both processes call it, because either may run first */
    if (pid != 0) return pid;
    setpgid(0, 0);
    int o = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int e = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int in = open("/dev/null", O_RDONLY);
    dup2(in, 0);
    dup2(o, 1);
    dup2(e, 2);
    become(command);
    return -1;
}

bool cli_hangs(cli_watch *w, double wall, double used, double limit_s)
{
    if (used > 2 * limit_s || wall > 10 * limit_s) return true;
    if (wall - w->wall <= limit_s) return false;
    bool asleep = used - w->used < 0.01 * limit_s;
    *w = (cli_watch){wall, used};
    return asleep;
}

double cli_used(pid_t group)
{
    DIR *all = opendir("/proc");
    long ticks = 0;
    for (struct dirent *d; all && (d = readdir(all));) {
        char path[PATH_MAX], text[1024];
        int its = 0;
        long t[4] = {0};
        if (d->d_name[0] < '0' || d->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%s/stat", d->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue; /* it ended */
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        const char *after = strrchr(text, ')'); /* the name may contain any character */
        if (after &&
            sscanf(after, ") %*c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld %ld %ld", &its, t,
                   t + 1, t + 2, t + 3) == 5 &&
            its == group)
            ticks += t[0] + t[1] + t[2] + t[3];
    }
    if (all) closedir(all);
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* Whether the process group of a program that started at that time hangs; checks once a second,
 * because the check reads all of /proc. */
static bool hangs(cli_watch *w, double *asked, pid_t group, double began)
{
    if (now() - *asked < 1) return false;
    *asked = now();
    return cli_hangs(w, now() - began, cli_used(group), LIMIT_S);
}

/* Waits for the end; kills the whole group if the program hangs. */
static cli_result gather(pid_t pid, double began)
{
    static char out[PATH_MAX], err[PATH_MAX];
    paths(out, err);
    int status = 0;
    bool late = false;
    cli_watch watch = {0};
    double asked = began;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        late = hangs(&watch, &asked, pid, began);
        if (late) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
        nap();
    }
    return (cli_result){late ? 124 : exit_code(status), load(out, 0), load(err, 1), now() - began};
}

cli_result cli_run(const char *fmt, ...)
{
    static char command[8192];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    double began = now();
    return gather(start(command), began);
}

const char *cli_python(const char *module)
{
    const char *const candidates[] = {getenv("PL_ORACLE"), "/opt/oracle/bin/python3", "python3"};
    char command[512];
    for (int i = 0; i < 3; i++) {
        if (!candidates[i]) continue;
        snprintf(command, sizeof command, "%s -c 'import %s' >/dev/null 2>&1", candidates[i],
                 module);
        if (system(command) == 0) return candidates[i];
    }
    return NULL;
}

cli_result cli_run_signal(const char *command, const char *wait_for, int signal_number)
{
    static char out[PATH_MAX], err[PATH_MAX];
    paths(out, err);
    double began = now();
    pid_t pid = start(command);
    cli_watch watch = {0};
    double asked = began;
    while (!strstr(load(err, 1), wait_for) && !hangs(&watch, &asked, pid, began)) nap();
    kill(-pid, signal_number);
    return gather(pid, began);
}

bool cli_has_terminals(void)
{
    int fd = -1, slave = -1;
    bool has = openpty(&fd, &slave, NULL, NULL, NULL) == 0;
    if (has) {
        close(fd);
        close(slave);
    }
    return has;
}

cli_result cli_run_terminal(const char *command, const char *wait_for, double kill_after)
{
    static char text[1 << 20];
    struct winsize size = {.ws_row = 24, .ws_col = 120};
    double began = now(), seen = 0;
    int fd;
    fflush(NULL);
    pid_t pid = forkpty(&fd, NULL, NULL, &size);
    if (pid < 0) return (cli_result){-1, "", "", 0}; /* never send a signal to process -1 */
    if (pid == 0) {
        setenv("TERM", "xterm", 1);
        become(command);
    }
    size_t n = 0;
    int status = 0;
    bool killed = false;
    cli_watch watch = {0};
    double asked = began;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (;;) {
        ssize_t k = n + 1 < sizeof text ? read(fd, text + n, sizeof text - 1 - n) : -1;
        if (k > 0) n += (size_t)k;
        text[n] = 0;
        if (seen == 0 && wait_for && strstr(text, wait_for)) seen = now();
        if (seen > 0 && kill_after > 0 && !killed && now() - seen > kill_after)
            killed = kill(pid, SIGINT) == 0;
        if (k <= 0 && waitpid(pid, &status, WNOHANG) == pid) break;
        if (hangs(&watch, &asked, pid, began)) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
        if (k <= 0) nap();
    }
    for (ssize_t k = 1; k > 0; n += (size_t)(k > 0 ? k : 0)) /* output before the end */
        k = n + 1 < sizeof text ? read(fd, text + n, sizeof text - 1 - n) : -1;
    text[n] = 0;
    close(fd);
    return (cli_result){exit_code(status), text, "", now() - began};
}

bool cli_same(const char *a, const char *b)
{
    return cli_run("cmp %s/%s %s/%s", pl_test_dir(), a, pl_test_dir(), b).code == 0;
}

const char *cli_bad_log(const char *run, int64_t n)
{
    static char why[256];
    char path[512];
    snprintf(path, sizeof path, "%s/%s/log.jsonl", pl_test_dir(), run);
    int64_t next = 1;
    for (const char *p = cli_read(path); *p;) {
        const char *end = strchr(p, '\n');
        json_t *j = end ? json_loadb(p, (size_t)(end - p), 0, NULL) : NULL;
        const char *event = json_string_value(json_object_get(j, "event"));
        int64_t step = json_integer_value(json_object_get(j, "step"));
        bool is_step = event && strcmp(event, "step") == 0;
        json_decref(j);
        if (!j || (is_step && step != next)) {
            snprintf(why, sizeof why, "step %lld where %lld should be: %.100s", (long long)step,
                     (long long)next, p);
            return why;
        }
        next += is_step;
        p = end + 1;
    }
    snprintf(why, sizeof why, "ends before step %lld of %lld", (long long)next, (long long)n);
    return next == n + 1 ? NULL : why;
}

void cli_losses(const char *run, char *to, size_t cap)
{
    char path[512];
    size_t used = 0;
    snprintf(path, sizeof path, "%s/%s/log.jsonl", pl_test_dir(), run);
    to[0] = 0;
    for (const char *at = cli_read(path); (at = strstr(at, "\"loss\":")); at++) {
        size_t n = strcspn(at, ",}");
        if (used + n + 2 > cap) break;
        memcpy(to + used, at, n);
        used += n;
        to[used] = 0;
    }
}
