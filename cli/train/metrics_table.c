/* metrics_table.c - see metrics_table.h. */
#include "metrics_table.h"

#include "cli/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char fixed[] =
    "step,epoch,loss,lr,grad_norm,step_ms,data_wait_ms,device_ms,used_bytes";

/* Opens without waiting and without changing anything; a link only if it is this user's. */
static int open_plain(const char *path, int flags)
{
    struct stat st;
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode), own = st.st_uid == geteuid();
    if (link && !own) cli_error("%s is a link of another user: remove it", path);
    if (!link || !own) flags |= O_NOFOLLOW;
    int fd;
    do {
        fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))) return fd;
    close(fd);
    errno = S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
    return -1;
}

FILE *plain_open(const char *path, const char *mode)
{
    bool new = mode[0] == 'w', reads = mode[1] == '+';
    int fd = open_plain(path, (reads ? O_RDWR : O_WRONLY) | (new ? O_CREAT : 0));
    FILE *f = fd < 0 || (new &&ftruncate(fd, 0) != 0) ? NULL : fdopen(fd, mode);
    if (!f && fd >= 0) close(fd);
    return f;
}

FILE *table_open(const char *path, int64_t from)
{
    FILE *f = plain_open(path, from ? "r+e" : "we");
    if (!f && from) f = plain_open(path, "w+e");
    if (!f) return NULL;
    char *line = NULL;
    size_t cap = 0;
    long at = 0;
    ssize_t n;
    while ((n = cli_line(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
        if (at > 0 && atoll(line) > from) break;
        at += (long)n;
    }
    free(line);
    if (ftruncate(fileno(f), at) != 0 || fseek(f, at, SEEK_SET) != 0) {
        fclose(f);
        return NULL;
    }
    return f;
}

void table_cell(FILE *f, double v)
{
    fputc(',', f);
    if (!isnan(v)) fprintf(f, "%.9g", v);
}

/* ---- columns ---------------------------------------------------------------------------- */
/* Returns the end of the name that begins at text: a comma or the end of the line. */
static size_t name_bytes(const char *text)
{
    return strcspn(text, ",\n");
}

/* Returns whether a list "a,b,c" has the name. */
static bool has_name(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (;;) {
        size_t here = name_bytes(list);
        if (here == n && memcmp(list, name, n) == 0) return true;
        if (list[here] != ',') return false;
        list += here + 1;
    }
}

/* Adds a column; characters that end a cell become "_". */
static bool add_column(metrics_table *t, const char *name, size_t n)
{
    char *copy = strndup(name, n);
    char **more = copy ? realloc(t->column, ((size_t)t->n + 1) * sizeof *more) : NULL;
    if (!more) {
        free(copy);
        return false;
    }
    for (char *p = copy; *p; p++)
        if (strchr(",\"\r\n", *p)) *p = '_';
    t->column = more;
    t->column[t->n++] = copy;
    return true;
}

static bool has_column(const metrics_table *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->column[i], name) == 0) return true;
    return false;
}

/* Adds the columns of a header that are not the first ones of every run. */
static bool read_columns(metrics_table *t, const char *header)
{
    bool ok = true;
    for (const char *p = header; ok; p++) {
        size_t n = name_bytes(p);
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (!has_name(fixed, name) && strcmp(name, "phase") != 0) ok = add_column(t, p, n);
        p += n;
        if (*p != ',') break;
    }
    return ok;
}

/* Adds the run's terms that have no column. */
static bool add_terms(metrics_table *t, const pl_run *run)
{
    bool ok = true;
    for (int i = 0; ok && i < pl_run_term_count(run); i++) {
        const char *name = pl_run_term_name(run, i);
        if (has_name(fixed, name) || has_column(t, name)) continue;
        ok = add_column(t, name, strlen(name));
    }
    return ok;
}

static void put_header(const metrics_table *t, FILE *f, bool phases)
{
    fputs(fixed, f);
    if (phases) fputs(",phase", f);
    for (int i = 0; i < t->n; i++) fprintf(f, ",%s", t->column[i]);
    fputc('\n', f);
}

/* Copies the table with the new header and `more` empty cells at the end of each row, and puts the
 * copy in its place. */
static bool widen(metrics_table *t, const char *path, bool phases, int more)
{
    char to[4300], *line = NULL;
    size_t cap = 0;
    ssize_t n;
    snprintf(to, sizeof to, "%s.tmp-%ld", path, (long)getpid());
    FILE *f = plain_open(to, "we");
    bool ok = f && fseek(t->f, 0, SEEK_SET) == 0 && cli_line(&line, &cap, t->f) > 0;
    if (ok) put_header(t, f, phases);
    while (ok && (n = cli_line(&line, &cap, t->f)) > 0) {
        fwrite(line, 1, (size_t)n - 1, f);
        for (int i = 0; i < more; i++) fputc(',', f);
        fputc('\n', f);
    }
    free(line);
    ok = ok && fflush(f) == 0 && fsync(fileno(f)) == 0 && !ferror(t->f) && rename(to, path) == 0;
    if (!ok) {
        int why = errno;
        if (f) fclose(f);
        unlink(to);
        errno = why;
        return false;
    }
    fclose(t->f);
    t->f = f;
    return true;
}

static bool fix_columns(metrics_table *t, const char *path, const pl_run *run, bool phases)
{
    long at = ftell(t->f);
    if (at == 0) {
        if (!add_terms(t, run)) return false;
        put_header(t, t->f, phases);
        return fflush(t->f) == 0;
    }
    char *line = NULL;
    size_t cap = 0;
    bool ok =
        fseek(t->f, 0, SEEK_SET) == 0 && cli_line(&line, &cap, t->f) > 0 && read_columns(t, line);
    free(line);
    int known = t->n;
    if (!ok || !add_terms(t, run)) return false;
    if (t->n > known) return widen(t, path, phases, t->n - known);
    return fseek(t->f, at, SEEK_SET) == 0;
}

/* ---- the table -------------------------------------------------------------------------- */
bool metrics_open(metrics_table *t, const char *path, const pl_run *run, int64_t from, bool phases)
{
    *t = (metrics_table){.f = table_open(path, from)};
    if (!t->f) return false;
    if (fix_columns(t, path, run, phases)) return true;
    int why = errno;
    metrics_close(t);
    errno = why;
    return false;
}

static double term_value(const pl_step_info *s, const char *name)
{
    for (int i = 0; i < s->n_terms; i++)
        if (strcmp(s->term_name[i], name) == 0) return s->term[i];
    return (double)NAN;
}

bool metrics_row(const metrics_table *t, const pl_step_info *s, uint64_t used, const char *phase)
{
    FILE *f = t->f;
    fprintf(f, "%lld", (long long)s->step);
    table_cell(f, s->epoch);
    table_cell(f, s->loss);
    table_cell(f, s->lr);
    table_cell(f, s->grad_norm);
    table_cell(f, s->step_ms);
    table_cell(f, s->data_ms);
    table_cell(f, s->device_ms > 0 ? s->device_ms : (double)NAN);
    fprintf(f, ",%llu%s%s", (unsigned long long)used, phase ? "," : "", phase ? phase : "");
    for (int i = 0; i < t->n; i++) table_cell(f, term_value(s, t->column[i]));
    fputc('\n', f);
    return fflush(f) == 0;
}

void metrics_close(metrics_table *t)
{
    if (t->f) fclose(t->f);
    for (int i = 0; i < t->n; i++) free(t->column[i]);
    free(t->column);
    *t = (metrics_table){0};
}
