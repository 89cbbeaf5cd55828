/* checkpoint.c - a run's state to disk and back; see plimsoll_checkpoint.h.
 *
 * Everything that outlives a step is a slot of the store or the number of steps done: moments, EMA,
 * counters, the loss scale, the plateau's state and the key of random draws are slots, and the
 * order of samples is a function of seed and position. Not written: accumulated gradients, which
 * are zero between steps, so that a run may resume with another number of micro-batches; and
 * weights that nothing changes (frozen.c).
 */
#include "train/files/checkpoint.h"

#include "base/str.h"
#include "base/sys.h"
#include "train/data/classes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

pl_status pl__path(char out[PL_PATH_BYTES], const char *dir, const char *name)
{
    int n = snprintf(out, PL_PATH_BYTES, "%s/%s", dir, name);
    PL_FAIL_IF(n < 0 || n >= PL_PATH_BYTES, PL_ERR_IO, "path too long: %.100s/%.100s", dir, name);
    return PL_OK;
}

bool pl__slot_in_state(const pl_slot *s)
{
    return !pl__slot_in_model(s) && strncmp(s->name, "accum.", 6) != 0;
}

/* ---- saving ----------------------------------------------------------------------------- */
static void add_file(pl_checkpoint *c, const char *name, uint64_t bytes, uint64_t hash)
{
    int i = c->n_files++;
    snprintf(c->file[i].name, sizeof c->file[i].name, "%s", name);
    c->file[i].bytes = bytes;
    c->file[i].hash = hash;
    c->bytes += bytes;
}

static pl_status save_slots(pl_run *r, const char *dir, const char *name, bool model,
                            pl_slot_test test, bool leave, pl_checkpoint *c)
{
    char path[PL_PATH_BYTES];
    uint64_t bytes, hash;
    PL_TRY(pl__path(path, dir, name));
    PL_TRY(pl__slots_write(r, path, model, test, leave, &bytes, &hash));
    add_file(c, name, bytes, hash);
    return PL_OK;
}

/* Not inlined: two paths are too much of one stack frame. */
__attribute__((noinline)) static pl_status save_config(pl_run *r, const char *dir, pl_checkpoint *c)
{
    char path[PL_PATH_BYTES], *text;
    PL_TRY(pl__path(path, dir, "config.yaml"));
    PL_TRY(pl_config_print(r->config, &text));
    size_t n = strlen(text);
    pl_status rc = pl_sys_write_file(path, text, n);
    if (rc == PL_OK) add_file(c, "config.yaml", n, XXH64(text, n, 0));
    pl_text_free(text);
    return rc;
}

static void fill_head(pl_run *r, pl_checkpoint *c)
{
    time_t now = time(NULL);
    struct tm tm;
    c->step = pl_run_steps_done(r);
    c->phase_step = r->steps.done;
    c->phase = r->phases.now;
    snprintf(c->phase_name, sizeof c->phase_name, "%s",
             r->phases.now < 0 ? "" : r->phases.list[r->phases.now].name);
    c->samples = pl__run_samples(r);
    c->accumulate = r->build->accumulate;
    c->host_updates = r->build->host_updates;
    c->threads = pl_threads();
    snprintf(c->recipe, sizeof c->recipe, "%s", r->recipe->name);
    snprintf(c->version, sizeof c->version, "%s", pl_version());
    snprintf(c->device, sizeof c->device, "%.63s", pl_config_text(r->config, "device"));
    if (!gmtime_r(&now, &tm) || !strftime(c->written, sizeof c->written, "%Y-%m-%dT%H:%M:%SZ", &tm))
        c->written[0] = 0;
    c->n_files = 0;
    c->bytes = 0;
}

static pl_status save_files(pl_run *r, const char *dir, bool leave, pl_checkpoint *c)
{
    char path[PL_PATH_BYTES];
    PL_TRY(save_slots(r, dir, "model.safetensors", true, pl__slot_in_model, leave, c));
    PL_TRY(save_slots(r, dir, "state.safetensors", false, pl__slot_in_state_file, false, c));
    PL_TRY(pl__ranks_save_parts(r, dir, c));
    PL_TRY(save_config(r, dir, c));
    PL_TRY(pl__path(path, dir, "manifest.json"));
    return pl__manifest_write(path, c);
}

/* Returns an upper bound of the bytes that a checkpoint takes. */
static uint64_t bytes_needed(const pl_run *r, bool leave)
{
    uint64_t sum = (1 << 16) + (r->data.classes ? strlen(pl__classes_json(r->data.classes)) : 0);
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        sum += 512 + strlen(s->name);
        if (leave && r->files.leaving[i]) continue;
        if (pl__slot_in_model(s) || pl__slot_in_state(s)) sum += pl_type_bytes(&s->type);
    }
    return sum;
}

/* What this user may still write in a file system; UINT64_MAX: unknown. */
typedef struct room {
    uint64_t bytes, files;
} room;

static room room_of(const char *dir)
{
    struct statvfs v;
    room r = {UINT64_MAX, UINT64_MAX};
    if (statvfs(dir, &v) != 0) return r;
    if (v.f_blocks) r.bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (v.f_files) r.files = v.f_favail;
    return r;
}

static pl_status fail_save(const char *dir, uint64_t need, room left, const char *why)
{
    enum { FEW = 8 }; /* files of a checkpoint */
    char a[32], b[32], files[64] = "";
    if (left.files < FEW)
        snprintf(files, sizeof files, " and room for %d more files", (int)left.files);
    PL_FAIL(PL_ERR_IO, "cannot save %s: %s (a checkpoint takes %s, the disk has %s free%s)", dir,
            why, pl_str_bytes(need, a, sizeof a),
            left.bytes == UINT64_MAX ? "an unknown number of bytes"
                                     : pl_str_bytes(left.bytes, b, sizeof b),
            files);
}

/* The paths of a save. */
typedef struct places {
    const char *dir, *name; /* the checkpoint's folder, and its last name */
    char parent[PL_PATH_BYTES];
    char temp[PL_PATH_BYTES], aside[PL_PATH_BYTES]; /* in the parent */
} places;

static pl_status find_places(const char *dir, places *p)
{
    const char *slash = strrchr(dir, '/');
    long pid = (long)getpid();
    p->dir = dir;
    p->name = slash ? slash + 1 : dir;
    snprintf(p->parent, sizeof p->parent, "%.*s", slash ? (int)(slash - dir) : 1,
             slash ? dir : ".");
    int n = snprintf(p->aside, sizeof p->aside, "%s/.trash-%s-%ld", p->parent, p->name, pid);
    PL_FAIL_IF(n < 0 || (size_t)n >= sizeof p->aside, PL_ERR_IO, "path too long: %.200s", dir);
    snprintf(p->temp, sizeof p->temp, "%s/.tmp-%s-%ld", p->parent, p->name, pid); /* shorter */
    return PL_OK;
}

/* Renames the finished folder into place. A damaged checkpoint of that name is moved away first. */
static pl_status move_into_place(const places *p)
{
    bool moved = rename(p->dir, p->aside) == 0;
    PL_FAIL_IF(rename(p->temp, p->dir) != 0, PL_ERR_IO, "cannot rename %s to %s: %s", p->temp,
               p->dir, strerror(errno));
    pl_sys_sync_folder(p->dir);
    if (moved) pl__checkpoint_remove(p->aside);
    return PL_OK;
}

static pl_status save(pl_run *r, const places *p, pl_checkpoint *c)
{
    bool leave;
    PL_TRY(pl__frozen_leave(r, &leave));
    uint64_t need = bytes_needed(r, leave);
    room left = room_of(p->parent);
    if (left.bytes < need) return fail_save(p->dir, need, left, strerror(ENOSPC));
    PL_FAIL_IF(mkdir(p->temp, 0777) != 0 && errno != EEXIST, PL_ERR_IO, "cannot make folder %s: %s",
               p->temp, strerror(errno));
    fill_head(r, c);
    pl_status rc = save_files(r, p->temp, leave, c);
    if (rc == PL_OK) rc = move_into_place(p);
    if (rc == PL_OK) return rc;
    char why[512];
    left = room_of(p->parent);
    pl__checkpoint_remove(p->temp);
    snprintf(why, sizeof why, "%s", pl_error_text());
    return rc == PL_ERR_IO ? fail_save(p->dir, need, left, why) : rc;
}

pl_status pl_checkpoint_save(pl_run *r, const char *dir, pl_checkpoint *c)
{
    PL_FAIL_IF(!r->session, PL_ERR_ARG, "the run is not started");
    places *p = pl_sys_alloc(sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    pl_status rc = find_places(dir, p);
    if (rc == PL_OK) rc = save(r, p, c);
    pl_sys_free(p);
    return rc;
}

void pl__checkpoint_remove(const char *dir)
{
    static const char *const names[] = {"manifest.json",         "config.yaml",
                                        "state.safetensors",     "model.safetensors",
                                        "model_ema.safetensors", "eval.csv"};
    char path[PL_PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (pl__path(path, dir, names[i]) == PL_OK) unlink(path);
    pl__remove_matching(dir, "part-*-of-*.safetensors");
    pl__remove_matching(dir, "*.tmp-*");
    rmdir(dir);
}

/* ---- loading ---------------------------------------------------------------------------- */
/* The manifest of a checkpoint, which the caller frees. */
static pl_status read_manifest(const char *dir, pl_checkpoint **out)
{
    pl_checkpoint *c = pl_sys_alloc(sizeof *c);
    if (!c) return PL_ERR_MEMORY;
    pl_status rc = pl_checkpoint_read(dir, c);
    if (rc == PL_OK)
        *out = c;
    else
        pl_sys_free(c);
    return rc;
}

pl_status pl_run_resume(pl_run *r, const char *dir)
{
    pl_checkpoint *c;
    PL_FAIL_IF(r->session, PL_ERR_ARG, "the run is started already");
    PL_TRY(read_manifest(dir, &c));
    r->files.resume_accumulate = c->accumulate;
    r->files.resume_host = c->host_updates;
    pl_sys_free(c);
    r->files.resume = pl_arena_strdup(&r->arena, dir);
    return r->files.resume ? PL_OK : PL_ERR_MEMORY;
}

static pl_status load(pl_run *r, const char *dir, const pl_checkpoint *c)
{
    char path[PL_PATH_BYTES];
    PL_FAIL_IF(strcmp(c->recipe, r->recipe->name) != 0, PL_ERR_FILE,
               "%s belongs to recipe %s, but this run is of recipe %s", dir, c->recipe,
               r->recipe->name);
    PL_FAIL_IF(
        c->samples != pl__run_samples(r), PL_ERR_DATA,
        "%s was written with %lld training samples, there are %lld now: the order of samples "
        "would change; choose a new folder, or start over with --fresh",
        dir, (long long)c->samples, (long long)pl__run_samples(r));
    PL_TRY(pl__path(path, dir, "model.safetensors"));
    PL_TRY(pl__slots_read(r, path, true, pl__slot_in_model, false));
    PL_TRY(pl__frozen_check(r, path));
    PL_TRY(pl__ranks_read_state(r, dir, c));
    r->steps.done = c->phase_step;
    r->phases.steps_before = c->step - c->phase_step;
    r->steps.ahead = false;
    return PL_OK;
}

pl_status pl__checkpoint_load(pl_run *r, const char *dir)
{
    pl_checkpoint *c;
    PL_TRY(read_manifest(dir, &c));
    pl_status rc = load(r, dir, c);
    pl_sys_free(c);
    return rc;
}

int64_t pl_run_steps_done(const pl_run *r)
{
    return r->phases.steps_before + r->steps.done;
}

void pl_run_set_stop(pl_run *r, const volatile int *stop)
{
    r->stop = stop;
}
