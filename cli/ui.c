/* ui.c - see ui.h. */
#include "ui.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int cli_check_output(int code)
{
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && code == 0) cli_error("cannot write to standard output: %s", strerror(errno));
    return lost && code == 0 ? 1 : code;
}

/* ---- terminal --------------------------------------------------------------------------- */
bool cli_terminal(FILE *f)
{
    const char *term = getenv("TERM");
    return isatty(fileno(f)) && !(term && strcmp(term, "dumb") == 0);
}

bool cli_color(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *force = getenv("FORCE_COLOR");
    if (no && *no) return false;
    return (force && *force) || cli_terminal(f);
}

int cli_width(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    return 100;
}

const char *cli_bold(FILE *f)
{
    return cli_color(f) ? "\033[1m" : "";
}

const char *cli_dim(FILE *f)
{
    return cli_color(f) ? "\033[2m" : "";
}

const char *cli_red(FILE *f)
{
    return cli_color(f) ? "\033[31m" : "";
}

const char *cli_plain(FILE *f)
{
    return cli_color(f) ? "\033[0m" : "";
}

void cli_put(FILE *f, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        bool c1 = *p == 0xC2 && p[1] >= 0x80 && p[1] <= 0x9F;
        if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7F || c1)
            fprintf(f, c1 ? "\\x%02x\\x%02x" : "\\x%02x", *p, p[1]);
        else
            fputc(*p, f);
        p += c1;
    }
}

void cli_say(const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) >= 0) cli_put(stdout, text);
    va_end(args);
    free(text);
}

static char last_error[1024]; /* of this process: the message of its end */

void cli_error(const char *fmt, ...)
{
    static char text[8192];
    cli_idle();
    fflush(stdout);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(last_error, sizeof last_error, "%.1023s", text);
    fprintf(stderr, "%splimsoll:%s ", cli_red(stderr), cli_plain(stderr));
    cli_put(stderr, text);
    fputc('\n', stderr);
}

const char *cli_last_error(void)
{
    return last_error;
}

void *cli_new(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (p) return p;
    cli_error("no memory for %zu bytes", bytes);
    exit(pl_status_exit_code(PL_ERR_MEMORY));
}

char *cli_text(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

FILE *cli_open_plain(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return NULL;
    FILE *f = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (f) return f;
    close(fd);
    errno = EINVAL;
    return NULL;
}

pl_device_info *cli_devices(bool profiles, int *n)
{
    enum { MOST = 64 };
    pl_device_info *d = calloc(MOST, sizeof *d);
    *n = !d ? 0 : profiles ? pl_device_profiles(d, MOST) : pl_device_list(d, MOST);
    if (*n > MOST) *n = MOST;
    return d;
}

int cli_fail(pl_status rc)
{
    cli_error("%s", pl_error_text()[0] ? pl_error_text() : pl_status_text(rc));
    return pl_status_exit_code(rc);
}

/* ---- numbers ---------------------------------------------------------------------------- */
static char *next_buffer(void)
{
    static char ring[16][64];
    static int at;
    at = (at + 1) % 16;
    return ring[at];
}

const char *cli_bytes(uint64_t bytes)
{
    return pl_bytes_text(bytes, next_buffer(), 64);
}

const char *cli_size(uint64_t bytes)
{
    static const char *const units[2][5] = {{"", "KiB", "MiB", "GiB", "TiB"},
                                            {"", "KB", "MB", "GB", "TB"}};
    bool ten = pl_bytes_decimal();
    double v = (double)bytes, base = ten ? 1000 : 1024;
    int u = 0;
    for (; v >= base && u < 4; u++) v /= base;
    double step = v < 10 ? 100 : v < 100 ? 10 : 1; /* three digits, rounded up */
    char *b = next_buffer();
    snprintf(b, 64, "%.10g%s", ceil(v * step - 1e-9) / step, units[ten][u]);
    return b;
}

const char *cli_count(int64_t n)
{
    char digits[32], *b = next_buffer(), *w = b;
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0 && digits[i - 1] != '-') *w++ = ',';
        *w++ = digits[i];
    }
    *w = 0;
    return b;
}

const char *cli_ms(double ms)
{
    if (ms >= 59950) return cli_duration(ms / 1000);
    char *b = next_buffer();
    snprintf(b, 64,
             ms < 10     ? "%.2f ms"
             : ms < 1000 ? "%.0f ms"
                         : "%.1f s",
             ms < 1000 ? ms : ms / 1000);
    return b;
}

const char *cli_duration(double seconds)
{
    char *b = next_buffer();
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0, min = (s + 30) / 60, h = min / 60;
    if (seconds < 59.95)
        snprintf(b, 64, seconds < 9.95 ? "%.1f s" : "%.0f s", seconds > 0 ? seconds : 0);
    else if (s < 600)
        snprintf(b, 64, "%ld min %ld s", s / 60, s % 60);
    else if (min < 60)
        snprintf(b, 64, "%ld min", min);
    else if (h < 48)
        snprintf(b, 64, "%ld h %ld min", h, min % 60);
    else
        snprintf(b, 64, "%ld d %ld h", (h + (min % 60 >= 30)) / 24, (h + (min % 60 >= 30)) % 24);
    return b;
}

const char *cli_clock(double seconds)
{
    char *b = next_buffer();
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
    snprintf(b, 64, "%02ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return b;
}

const char *cli_bar(double share, int cells)
{
    static const char *eighth[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    static char text[512];
    int parts = (int)(share * cells * 8 + 0.5);
    if (parts < 0) parts = 0;
    if (parts > cells * 8) parts = cells * 8;
    text[0] = 0;
    for (int i = 0; i < parts / 8; i++) strncat(text, "█", sizeof text - strlen(text) - 1);
    strncat(text, eighth[parts % 8], sizeof text - strlen(text) - 1);
    return text;
}

/* ---- progress ---------------------------------------------------------------------------- */
void cli_show_progress(void *ctx, pl_subset subset, int64_t done, int64_t total)
{
    cli_progress *s = ctx;
    const char *name = s->what ? s->what : subset == PL_SUBSET_TRAIN ? "train" : "eval";
    int percent = (int)(100 * done / total);
    if (s->quiet || (percent == s->percent && done < total)) return;
    s->percent = percent;
    if (s->bar)
        fprintf(stderr, "\r\033[K%s %lld/%lld %3d%% |%s", name, (long long)done, (long long)total,
                percent, cli_bar((double)done / (double)total, 30));
    else if (percent % 25 == 0)
        fprintf(stderr, "%s=%lld/%lld\n", name, (long long)done, (long long)total);
    if (s->bar && done == total) fprintf(stderr, "\n");
    fflush(stderr);
}

double cli_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ssize_t cli_line(char **line, size_t *cap, FILE *f)
{
    const size_t most = (size_t)64 << 20;
    size_t n = 0;
    int c;
    while ((c = getc_unlocked(f)) != EOF) {
        if (n + 2 > *cap) {
            size_t more = *cap ? 2 * *cap : 256;
            char *p = n < most ? realloc(*line, more) : NULL;
            if (!p) return -1;
            *line = p;
            *cap = more;
        }
        (*line)[n++] = (char)c;
        if (c == '\n') break;
    }
    if (n) (*line)[n] = 0;
    return n ? (ssize_t)n : -1;
}
