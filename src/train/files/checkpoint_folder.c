/* checkpoint_folder.c - a run folder: its lock, its checkpoints, and which of them are kept.
 *
 * Invariant: a folder named step-N is complete. A checkpoint is written as .tmp-step-N-PID and
 * renamed into place; a checkpoint to be removed is first renamed to .trash-step-N-PID. The next
 * process that holds the lock removes both kinds, so a process killed at any instant leaves
 * complete checkpoints and nothing else for long.
 */
#include "train/files/checkpoint.h"

#include "base/str.h"
#include "base/sys.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct pl_folder {
    char path[PL_PATH_BYTES], checkpoints[PL_PATH_BYTES];
    int lock;     /* file descriptor */
    dev_t device; /* device and inode of the lock's file */
    ino_t inode;
    size_t existing; /* bytes of path: the part that existed before pl_folder_open */
    bool locked;     /* the folder had a lock before: a run began in it */
};

/* ---- names ------------------------------------------------------------------------------ */
/* Returns the step of a checkpoint's name; 0: the name is not a checkpoint's. */
static int64_t step_of(const char *name)
{
    char again[64];
    if (strncmp(name, "step-", 5) != 0) return 0;
    int64_t step = strtoll(name + 5, NULL, 10);
    snprintf(again, sizeof again, "step-%08lld", (long long)step);
    return strcmp(again, name) == 0 && step > 0 ? step : 0;
}

void pl_folder_checkpoint(const char *path, int64_t step, char *dir, size_t cap)
{
    snprintf(dir, cap, "%s/checkpoints/step-%08lld", path, (long long)step);
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int pl_folder_steps(const char *path, int64_t *steps, int cap)
{
    char dir[PL_PATH_BYTES];
    if (pl__path(dir, path, "checkpoints") != PL_OK) return 0;
    DIR *d = opendir(dir);
    int n = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        int64_t step = step_of(e->d_name);
        if (!step) continue;
        if (n < cap) {
            steps[n] = step;
        } else { /* the newest stay */
            int least = 0;
            for (int i = 1; i < cap; i++)
                if (steps[i] < steps[least]) least = i;
            if (cap && step > steps[least]) steps[least] = step;
        }
        n++;
    }
    if (d) closedir(d);
    if (n) qsort(steps, (size_t)(n < cap ? n : cap), sizeof *steps, newest_first);
    return n;
}

int64_t pl_folder_best(const char *path)
{
    char to[PL_PATH_BYTES];
    int fd = pl_sys_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return 0;
    ssize_t n = readlinkat(fd, "best", to, sizeof to - 1);
    close(fd);
    if (n <= 0) return 0;
    to[n] = 0;
    const char *slash = strrchr(to, '/');
    return slash ? step_of(slash + 1) : 0;
}

/* ---- removing --------------------------------------------------------------------------- */
void pl__remove_matching(const char *dir, const char *pattern)
{
    char path[PL_PATH_BYTES];
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (fnmatch(pattern, e->d_name, 0) == 0 && pl__path(path, dir, e->d_name) == PL_OK)
            unlink(path);
    if (d) closedir(d);
}

/* Removes one checkpoint folder with such a name per listing: removing may upset readdir. */
static bool remove_one(const char *dir, const char *pattern)
{
    char path[PL_PATH_BYTES] = "";
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && !path[0] && (e = readdir(d));)
        if (fnmatch(pattern, e->d_name, FNM_PERIOD) == 0 && pl__path(path, dir, e->d_name) != PL_OK)
            path[0] = 0;
    if (d) closedir(d);
    if (!path[0]) return false;
    pl__checkpoint_remove(path);
    return access(path, F_OK) != 0;
}

/* Removes incomplete files of a killed process in RUN/phases/NAME. */
static void clear_phases(const pl_folder *f)
{
    char path[PL_PATH_BYTES], inside[sizeof "phases/" + NAME_MAX];
    DIR *d = pl__path(path, f->path, "phases") == PL_OK ? opendir(path) : NULL;
    for (const struct dirent *e; d && (e = readdir(d));) {
        snprintf(inside, sizeof inside, "phases/%s", e->d_name);
        if (e->d_name[0] != '.' && pl__path(path, f->path, inside) == PL_OK)
            pl__remove_matching(path, "*.tmp-*");
    }
    if (d) closedir(d);
}

/* Not inlined, as clear_phases: two paths are too much of one stack frame. */
__attribute__((noinline)) static void clear_samples(const pl_folder *f)
{
    char path[PL_PATH_BYTES];
    if (pl__path(path, f->path, "samples") == PL_OK) pl__remove_matching(path, "*.tmp-*");
}

static void clear_leftovers(const pl_folder *f)
{
    while (remove_one(f->checkpoints, ".tmp-step-*")) {
    }
    while (remove_one(f->checkpoints, ".trash-step-*")) {
    }
    pl__remove_matching(f->path, "config.yaml.tmp-*");
    pl__remove_matching(f->path, "finished.json.tmp-*");
    pl__remove_matching(f->path, PL_SUMS ".tmp-*");
    pl__remove_matching(f->path, "model*.safetensors.tmp-*");
    pl__remove_matching(f->path, "plan.json.tmp-*");
    pl__remove_matching(f->path, "metrics.csv.tmp-*");
    clear_samples(f);
    pl__remove_matching(f->path, "best.tmp-*");
    clear_phases(f);
}

/* Not inlined, so that its path does not add to the stack frame of pl_folder_save. */
__attribute__((noinline)) static void remove_step(const pl_folder *f, int64_t step)
{
    char name[64], trash[64], path[PL_PATH_BYTES];
    snprintf(name, sizeof name, "step-%08lld", (long long)step);
    snprintf(trash, sizeof trash, ".trash-%s-%ld", name, (long)getpid());
    int fd = pl_sys_open(f->checkpoints, O_RDONLY | O_DIRECTORY, 0);
    bool moved = pl__path(path, f->checkpoints, trash) == PL_OK && fd >= 0 &&
                 renameat(fd, name, fd, trash) == 0;
    if (fd >= 0) close(fd);
    if (moved) pl__checkpoint_remove(path);
}

pl_status pl_folder_clear(pl_folder *f)
{
    static const char *const names[] = {
        "best", "log.jsonl", "model.safetensors", "model_ema.safetensors", "config.yaml", PL_SUMS};
    char path[PL_PATH_BYTES];
    int64_t step;
    PL_TRY(pl_folder_mine(f));
    PL_TRY(pl_folder_unfinish(f));
    PL_TRY(pl__path(path, f->path, "samples"));
    pl__remove_matching(path, "[0-9]*.png");
    pl__remove_matching(path, "[0-9]*.safetensors*"); /* and incomplete files of a killed process */
    rmdir(path);
    PL_TRY(pl__path(path, f->path, "phases"));
    while (remove_one(path, "*")) {
    }
    rmdir(path);
    while (pl_folder_steps(f->path, &step, 1) > 0) {
        remove_step(f, step);
        pl_folder_checkpoint(f->path, step, path, sizeof path);
        PL_FAIL_IF(access(path, F_OK) == 0, PL_ERR_IO, "cannot remove %s: %s", path,
                   strerror(errno));
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        PL_TRY(pl__path(path, f->path, names[i]));
        PL_FAIL_IF(unlink(path) != 0 && errno != ENOENT, PL_ERR_IO, "cannot remove %s: %s", path,
                   strerror(errno));
    }
    return PL_OK;
}

/* ---- the lock --------------------------------------------------------------------------- */
/* Retries for a moment: a process that was just killed holds its lock until the system has removed
 * it. A file system without locks (some network ones) is used unlocked. */
static bool lock_free(int fd)
{
    enum { TRIES = 150 };
    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return false;
}

/* Opens and locks the file. *gone: the file was removed or replaced in between, so that the lock
 * excludes no process. */
static pl_status lock_file(pl_folder *f, const char *path, bool *gone)
{
    char pid[32] = "";
    struct stat held, named;
    f->lock = pl_sys_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    PL_FAIL_IF(f->lock < 0, PL_ERR_IO, "cannot write into %s: file lock: %s", f->path,
               strerror(errno));
    if (!lock_free(f->lock)) {
        ssize_t n = pread(f->lock, pid, sizeof pid - 1, 0);
        pid[n > 0 ? n : 0] = 0;
        pid[strcspn(pid, "\n")] = 0;
        PL_FAIL(PL_ERR_IO,
                "%s is being trained in by process %s; wait for it, stop it (kill -TERM), or "
                "choose another folder",
                f->path, pid[0] ? pid : "of another machine");
    }
    PL_FAIL_IF(fstat(f->lock, &held) != 0 || !S_ISREG(held.st_mode), PL_ERR_IO,
               "%s is not a regular file", path);
    f->device = held.st_dev;
    f->inode = held.st_ino;
    *gone = stat(path, &named) != 0 || named.st_ino != f->inode || named.st_dev != f->device;
    if (*gone) close(f->lock);
    return PL_OK;
}

static pl_status take_lock(pl_folder *f)
{
    char path[PL_PATH_BYTES], pid[32] = "";
    bool gone = true;
    PL_TRY(pl__path(path, f->path, "lock"));
    for (int i = 0; i < 100 && gone; i++) {
        f->lock = -1;
        PL_TRY(pl_sys_make_dirs(f->path));
        PL_TRY(lock_file(f, path, &gone));
    }
    if (gone) f->lock = -1;
    PL_FAIL_IF(gone, PL_ERR_IO, "%s is removed again and again by another process", path);
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    PL_FAIL_IF(ftruncate(f->lock, 0) != 0 || pwrite(f->lock, pid, (size_t)n, 0) != n, PL_ERR_IO,
               "cannot write %s: %s", path, strerror(errno));
    return PL_OK;
}

/* ---- a run that never began ------------------------------------------------------------- */
static void note_existing(pl_folder *f)
{
    char path[PL_PATH_BYTES];
    struct stat s;
    f->locked = pl__path(path, f->path, "lock") != PL_OK || lstat(path, &s) == 0;
    snprintf(path, sizeof path, "%s", f->path);
    for (f->existing = strlen(path); f->existing > 0; path[f->existing] = 0) {
        if (stat(path, &s) == 0) return;
        do f->existing--;
        while (f->existing > 0 && path[f->existing] != '/');
    }
}

/* Returns whether the folder has nothing but the lock and `checkpoints`. */
static bool has_only_lock(const pl_folder *f)
{
    DIR *d = opendir(f->path);
    bool only = d != NULL;
    for (struct dirent *e; only && (e = readdir(d));)
        only = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
               strcmp(e->d_name, "lock") == 0 || strcmp(e->d_name, "checkpoints") == 0;
    if (d) closedir(d);
    return only;
}

/* Removes what pl_folder_open created, if nothing was written into the folder since. The lock is
 * held: a process that waits for it sees that its file is gone, and creates the folder again. */
static void remove_unused(const pl_folder *f)
{
    char path[PL_PATH_BYTES];
    if (f->locked || !f->inode || pl_folder_mine(f) != PL_OK || !has_only_lock(f)) return;
    if (rmdir(f->checkpoints) != 0 && errno != ENOENT) return;
    if (pl__path(path, f->path, "lock") != PL_OK || unlink(path) != 0) return;
    snprintf(path, sizeof path, "%s", f->path);
    for (size_t n = strlen(path); n > f->existing && rmdir(path) == 0; path[n] = 0) {
        do n--;
        while (n > f->existing && path[n] != '/');
    }
}

static pl_status open_folder(pl_folder *f, const char *path)
{
    int n = snprintf(f->path, sizeof f->path - 64, "%s", path);
    PL_FAIL_IF(n < 0 || (size_t)n >= sizeof f->path - 64, PL_ERR_IO, "path too long: %.200s", path);
    while (n > 1 && f->path[n - 1] == '/') f->path[--n] = 0;
    PL_TRY(pl__path(f->checkpoints, f->path, "checkpoints"));
    note_existing(f);
    PL_TRY(take_lock(f));
    PL_TRY(pl_sys_make_dirs(f->checkpoints));
    clear_leftovers(f);
    return PL_OK;
}

pl_status pl_folder_make(const char *path)
{
    return pl_sys_make_dirs(path);
}

pl_status pl_folder_open(const char *path, pl_folder **out)
{
    pl_folder *f = pl_sys_alloc(sizeof *f);
    if (!f) return PL_ERR_MEMORY;
    f->lock = -1;
    pl_status rc = open_folder(f, path);
    if (rc != PL_OK) {
        pl_folder_close(f);
        return rc;
    }
    *out = f;
    return PL_OK;
}

void pl_folder_close(pl_folder *f)
{
    if (!f) return;
    if (f->lock >= 0) {
        remove_unused(f);
        close(f->lock);
    }
    pl_sys_free(f);
}

/* Not inlined: a caller's stack would hold its name too. */
__attribute__((noinline)) pl_status pl_folder_mine(const pl_folder *f)
{
    char path[PL_PATH_BYTES];
    struct stat s;
    PL_TRY(pl__path(path, f->path, "lock"));
    PL_FAIL_IF(stat(path, &s) != 0 || s.st_ino != f->inode || s.st_dev != f->device, PL_ERR_FILE,
               "%s was removed, moved or replaced while process %ld trained in it; this run stops "
               "and writes nothing there",
               f->path, (long)getpid());
    return PL_OK;
}

/* ---- checkpoints ------------------------------------------------------------------------ */
static pl_status verify_step(const char *dir, int64_t step, pl_checkpoint *c)
{
    PL_TRY(pl_checkpoint_verify(dir, c));
    PL_FAIL_IF(c->step != step, PL_ERR_FILE, "%s has the wrong name: it holds step %lld", dir,
               (long long)c->step);
    return PL_OK;
}

pl_status pl_folder_newest(pl_folder *f, pl_checkpoint *c, char *dir, size_t cap,
                           void (*damaged)(void *ctx, const char *dir, const char *why), void *ctx)
{
    enum { TRIED = 64 };
    int64_t steps[TRIED];
    int n = pl_folder_steps(f->path, steps, TRIED);
    for (int i = 0; i < n && i < TRIED; i++) {
        pl_folder_checkpoint(f->path, steps[i], dir, cap);
        c->format = 0;
        pl_status rc = verify_step(dir, steps[i], c);
        /* What a newer version wrote is not damaged: an older checkpoint would replace it. */
        if (rc != PL_ERR_FILE || c->format > PL_CHECKPOINT_FORMAT) return rc;
        if (damaged) damaged(ctx, dir, pl_error_text());
    }
    memset(c, 0, sizeof *c);
    dir[0] = 0;
    PL_FAIL_IF(n, PL_ERR_FILE, "%s: all %d checkpoints are damaged; --fresh starts a new run",
               f->path, n);
    return PL_OK;
}

/* Removes checkpoints older than the newest `keep`, and checkpoints newer than this save: they
 * belong to a run that did not continue, or are damaged. */
static void prune(const pl_folder *f, int64_t now, int64_t keep)
{
    enum { SEEN = 1024 };
    int64_t *steps = pl_sys_alloc(SEEN * sizeof *steps), kept = 0, best = pl_folder_best(f->path);
    int n = steps ? pl_folder_steps(f->path, steps, SEEN) : 0; /* the next save prunes, too */
    for (int i = 0; i < n && i < SEEN; i++) {
        if (steps[i] == best) continue;
        if (steps[i] > now || kept >= keep)
            remove_step(f, steps[i]);
        else
            kept++;
    }
    pl_sys_free(steps);
}

pl_status pl_folder_save(pl_folder *f, pl_run *r, pl_checkpoint *c, int64_t keep)
{
    char dir[PL_PATH_BYTES];
    PL_TRY(pl_folder_mine(f));
    pl_sys_sync_folder(f->checkpoints); /* names of files in RUN that the checkpoint relies on */
    pl_folder_checkpoint(f->path, pl_run_steps_done(r), dir, sizeof dir);
    PL_TRY(pl_checkpoint_save(r, dir, c));
    PL_TRY(pl_folder_mine(f));
    prune(f, c->step, keep);
    return PL_OK;
}

pl_status pl_folder_set_best(pl_folder *f, int64_t step)
{
    char link[PL_PATH_BYTES], temp[64], to[64];
    PL_TRY(pl_folder_mine(f));
    PL_TRY(pl__path(link, f->path, "best"));
    if (step == 0) {
        if (unlink(link) == 0) pl_sys_sync_folder(link);
        return PL_OK;
    }
    snprintf(to, sizeof to, "checkpoints/step-%08lld", (long long)step);
    snprintf(temp, sizeof temp, "best.tmp-%ld", (long)getpid());
    int fd = pl_sys_open(f->path, O_RDONLY | O_DIRECTORY, 0);
    if (fd >= 0) unlinkat(fd, temp, 0);
    bool linked = fd >= 0 && symlinkat(to, fd, temp) == 0 && renameat(fd, temp, fd, "best") == 0;
    int err = errno;
    if (fd >= 0) close(fd);
    PL_FAIL_IF(!linked, PL_ERR_IO, "cannot write %s: %s", link, strerror(err));
    pl_sys_sync_folder(link);
    return PL_OK;
}

/* ---- other files ------------------------------------------------------------------------ */
pl_status pl_folder_copy(pl_folder *f, const char *from, const char *name)
{
    char path[PL_PATH_BYTES], *buffer = pl_sys_alloc(PL_STAGE_BYTES);
    if (!buffer) return PL_ERR_MEMORY;
    pl_status rc = pl_folder_mine(f);
    if (rc == PL_OK) rc = pl__path(path, f->path, name);
    if (rc == PL_OK) rc = pl_file_copy(from, path, buffer, PL_STAGE_BYTES);
    pl_sys_free(buffer);
    return rc;
}

pl_status pl_folder_write(pl_folder *f, const char *name, const char *text)
{
    char path[PL_PATH_BYTES];
    PL_TRY(pl_folder_mine(f));
    PL_TRY(pl__path(path, f->path, name));
    return pl_sys_write_file(path, text, strlen(text));
}

/* Sums of the files of a run that the manifest does not list. Other files in the folder are not of
 * the run: a data set, notes, the page of `report`. They may be large or change later. */
static pl_status write_sums(const pl_folder *f)
{
    static const char *const own[] = {"samples", "phases", "events.out.tfevents.*", NULL};
    pl_str s = PL_STR_INIT;
    pl_status rc = pl__sums_add_all(&s, f->path, own);
    if (rc == PL_OK) rc = pl__sums_write(f->path, &s);
    pl_str_release(&s);
    return rc;
}

pl_status pl_folder_finish(pl_folder *f, const pl_checkpoint *last, const char *const *names, int n)
{
    char path[PL_PATH_BYTES];
    PL_TRY(pl_folder_mine(f));
    PL_TRY(write_sums(f));
    pl_checkpoint *c = pl_sys_alloc(sizeof *c);
    if (!c) return PL_ERR_MEMORY;
    *c = *last;
    c->n_files = 0;
    c->bytes = 0;
    pl_status rc = PL_OK;
    for (int i = 0; i < n && rc == PL_OK; i++) {
        rc = pl__path(path, f->path, names[i]);
        if (rc == PL_OK && access(path, F_OK) == 0) rc = pl__manifest_add(f->path, names[i], c);
    }
    if (rc == PL_OK) rc = pl__manifest_add(f->path, PL_SUMS, c);
    if (rc == PL_OK) rc = pl__path(path, f->path, PL_FINISHED);
    if (rc == PL_OK) rc = pl__manifest_write(path, c);
    pl_sys_free(c);
    return rc;
}

pl_status pl_folder_finished(const char *path, bool models_only, pl_checkpoint *out)
{
    static const char *const rebuilt[] = {"*.safetensors", "config.yaml", "plan.json",
                                          "classes.txt", PL_SUMS};
    PL_TRY(pl__manifest_read(path, PL_FINISHED, "a finished run", out));
    if (!models_only) return pl__manifest_verify(path, out, "*");
    for (size_t i = 0; i < sizeof rebuilt / sizeof *rebuilt; i++)
        PL_TRY(pl__manifest_verify(path, out, rebuilt[i]));
    return PL_OK;
}

pl_status pl_folder_unfinish(pl_folder *f)
{
    char path[PL_PATH_BYTES];
    PL_TRY(pl_folder_mine(f));
    PL_TRY(pl__path(path, f->path, PL_FINISHED));
    PL_FAIL_IF(unlink(path) != 0 && errno != ENOENT, PL_ERR_IO, "cannot remove %s: %s", path,
               strerror(errno));
    pl_sys_sync_folder(path);
    return PL_OK;
}
