/* monitor.c - see monitor.h.
 *
 * The files of a run contain every step once: a run that resumes after step S removes the rows of
 * later steps and starts a new event file that tells TensorBoard to drop them.
 *
 * Memory is read every 5 seconds, not every step, because asking a driver takes time. A warning is
 * printed once when the limit is exceeded, and again only after memory was below the limit.
 */
#include "monitor.h"

#include "cli/ui.h"
#include "plimsoll_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { READ_MEMORY_S = 5 };

/* ---- tables ----------------------------------------------------------------------------- */
static pl_status fail_write(monitor *m, const char *name)
{
    m->error_printed = true;
    cli_error("cannot write %s/%s: %s", m->dir, name, strerror(errno));
    return PL_ERR_IO;
}

static pl_status open_files(monitor *m, int64_t from)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/metrics.csv", m->dir);
    if (!metrics_open(&m->metrics, path, m->run, from, m->phase != NULL))
        return fail_write(m, "metrics.csv");
    snprintf(path, sizeof path, "%s/eval.csv", m->evals_dir);
    /* an evaluation that is not in the checkpoint is repeated, or was not due */
    int64_t seen = m->evaluated ? from : from - 1;
    m->evals = table_open(path, from > m->before ? seen : 0);
    if (!m->evals) return fail_write(m, "eval.csv");
    if (!pl_config_bool(pl_run_config(m->run), "log.tensorboard")) return PL_OK;
    return pl_events_open(m->dir, from, &m->events);
}

static bool sync_file(FILE *f)
{
    return !f || (fflush(f) == 0 && fsync(fileno(f)) == 0);
}

/* Some file systems (of networks, of user space) cannot sync a folder, and answer EINVAL. */
static bool sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL || errno == EOPNOTSUPP);
    if (fd >= 0) close(fd);
    return ok;
}

pl_status monitor_sync(monitor *m)
{
    if (!m->metrics.f) return PL_OK;
    if (!sync_file(m->metrics.f)) return fail_write(m, "metrics.csv");
    if (!sync_file(m->evals)) return fail_write(m, "eval.csv");
    if (!sync_dir(m->dir) || !sync_dir(m->evals_dir)) return fail_write(m, "");
    return pl_events_sync(m->events);
}

/* ---- events ----------------------------------------------------------------------------- */
static void add(monitor *m, const char *tag, double v)
{
    if (!isnan(v)) pl_events_scalar(m->events, tag, v);
}

pl_status monitor_step(monitor *m, const pl_step_info *s)
{
    char tag[192];
    if (!m->metrics.f) return PL_OK;
    if (!metrics_row(&m->metrics, s, pl_run_used_bytes(m->run), m->phase))
        return fail_write(m, "metrics.csv");
    if (!m->events) return PL_OK;
    const double MIB = 1024.0 * 1024;
    add(m, "train/loss", s->loss);
    add(m, "train/lr", s->lr);
    add(m, "train/grad_norm", s->grad_norm);
    add(m, "train/loss_scale", s->loss_scale);
    add(m, "train/epoch", s->epoch);
    add(m, "speed/steps_per_second", s->step_ms > 0 ? 1000 / s->step_ms : (double)NAN);
    add(m, "speed/step_ms", s->step_ms);
    add(m, "speed/data_wait_percent", s->step_ms > 0 ? 100 * s->data_ms / s->step_ms : (double)NAN);
    add(m, "memory/used_MiB", (double)pl_run_used_bytes(m->run) / MIB);
    add(m, "memory/arena_MiB", (double)pl_session_arena_bytes(pl_run_session(m->run)) / MIB);
    if (m->total) add(m, "memory/device_held_MiB", (double)m->held / MIB);
    for (int i = 0; i < s->n_terms; i++) {
        snprintf(tag, sizeof tag, "terms/%s", s->term_name[i]);
        add(m, tag, s->term[i]);
    }
    return pl_events_write(m->events, s->step);
}

pl_status monitor_eval(monitor *m, int64_t step, const pl_eval_info *e)
{
    char tag[128];
    if (!m->evals) return PL_OK;
    if (ftell(m->evals) == 0) {
        fprintf(m->evals, "step");
        for (int i = 0; i < e->n; i++) fprintf(m->evals, ",%s", e->name[i]);
        fputc('\n', m->evals);
    }
    fprintf(m->evals, "%lld", (long long)step);
    for (int i = 0; i < e->n; i++) {
        table_cell(m->evals, e->value[i]);
        snprintf(tag, sizeof tag, "eval/%s", e->name[i]);
        add(m, tag, e->value[i]);
    }
    fputc('\n', m->evals);
    if (fflush(m->evals) != 0) return fail_write(m, "eval.csv");
    return pl_events_write(m->events, step);
}

/* ---- pictures --------------------------------------------------------------------------- */
static pl_status make_folder(monitor *m, char *path, size_t cap)
{
    snprintf(path, cap, "%s/samples", m->dir);
    return pl_folder_make(path);
}

pl_status monitor_picture(monitor *m, int64_t step, const pl_sheet *g, char *path, size_t cap)
{
    char tag[128];
    pl_status rc = make_folder(m, path, cap);
    if (rc != PL_OK) return rc;
    snprintf(path, cap, "%s/samples/%08lld-%s.png", m->dir, (long long)step, g->name);
    rc = pl_png_save(path, g->width, g->height, g->channels, g->pixels);
    if (rc == PL_ERR_UNSUPPORTED) {
        if (!m->warned_png) cli_error("warning: pictures are not written: %s", pl_error_text());
        m->warned_png = true;
        path[0] = 0;
        return PL_OK;
    }
    if (rc != PL_OK) return rc;
    snprintf(tag, sizeof tag, "samples/%s", g->name);
    pl_events_image(m->events, tag, g->width, g->height, g->channels, g->pixels);
    return PL_OK;
}

pl_status monitor_arrays(monitor *m, int64_t step, char *path, size_t cap)
{
    pl_status rc = make_folder(m, path, cap);
    snprintf(path, cap, "%s/samples/%08lld.safetensors", m->dir, (long long)step);
    return rc == PL_OK ? pl_run_sample_save(m->run, path) : rc;
}

pl_status monitor_pictures_end(monitor *m, int64_t step)
{
    return pl_events_write(m->events, step);
}

/* ---- memory ----------------------------------------------------------------------------- */
static void read_memory(monitor *m)
{
    uint64_t total, left;
    m->asked = cli_seconds();
    if (pl_device_memory(m->device, &total, &left)) m->total = total, m->held = total - left;
    if (pl_device_memory("cpu", &total, &left)) m->host_total = total, m->host_held = total - left;
}

static double share(uint64_t held, uint64_t total)
{
    return total ? (double)held / (double)total : 0;
}

static void held_row(FILE *out, const char *name, uint64_t held, uint64_t total)
{
    fprintf(out, "  %-26s %11s of %s (%.0f %%), by all processes\n", name, cli_bytes(held),
            cli_bytes(total), 100 * share(held, total));
}

void monitor_memory(monitor *m, FILE *out)
{
    pl_run_memory p = pl_run_memory_get(m->run);
    bool card = strcmp(m->device, "cpu") != 0;
    read_memory(m);
    fprintf(out, "%smemory%s\n", cli_bold(out), cli_plain(out));
    fprintf(out, "  %-26s %11s = arena %s + state %s, allocated once for the whole run\n",
            "planned, to the byte", cli_bytes(p.arena + p.state), cli_bytes(p.arena),
            cli_bytes(p.state));
    fprintf(out, "  %-26s %11s, at most %s so far", "this process holds",
            cli_bytes(pl_run_used_bytes(m->run)), cli_bytes(pl_run_peak_used_bytes(m->run)));
    if (p.budget) fprintf(out, "; budget %s", cli_bytes(p.budget));
    fputc('\n', out);
    if (card && m->total) held_row(out, m->device, m->held, m->total);
    if (m->host_total) held_row(out, "host", m->host_held, m->host_total);
}

/* Returns true once each time the limit is exceeded. */
static bool exceeds(bool *warned, double part, double limit)
{
    bool past = limit > 0 && part > limit, fresh = past && !*warned;
    *warned = past;
    return fresh;
}

static void warn(FILE *out, const char *what, uint64_t held, uint64_t total, uint64_t ours)
{
    fprintf(out, "%swarning:%s %s %.0f %% full: %s of %s, this process holds %s; ", cli_red(out),
            cli_plain(out), what, 100 * share(held, total), cli_bytes(held), cli_bytes(total),
            cli_bytes(ours));
    fprintf(out, "this run already holds all the memory it needs; other processes may fail\n");
}

bool monitor_due(monitor *m, int64_t step, bool asked)
{
    bool periodic = m->memory_every && step > 0 && step % m->memory_every == 0;
    return m->verbose && (asked || periodic || cli_seconds() - m->asked > READ_MEMORY_S);
}

void monitor_tell(monitor *m, int64_t step, bool asked, FILE *out)
{
    read_memory(m);
    bool card = strcmp(m->device, "cpu") != 0;
    if (card && exceeds(&m->warned_device, share(m->held, m->total), m->warn))
        warn(out, m->device, m->held, m->total, pl_run_used_bytes(m->run));
    if (exceeds(&m->warned_host, share(m->host_held, m->host_total), m->warn))
        warn(out, "host memory", m->host_held, m->host_total, pl_process_bytes());
    if (asked || (m->memory_every && step > 0 && step % m->memory_every == 0))
        monitor_memory(m, out);
}

/* ---- opening ---------------------------------------------------------------------------- */
pl_status monitor_open(monitor *m, pl_run *run, const char *dir, const char *phase_dir,
                       int64_t last, bool evaluated, bool verbose)
{
    const pl_config *c = pl_run_config(run);
    int phase = pl_run_phase(run);
    *m = (monitor){.run = run,
                   .verbose = verbose,
                   .evaluated = evaluated,
                   .steps = last,
                   .before = pl_run_steps_before(run)};
    m->phase = phase < 0 ? NULL : pl_run_phase_at(run, phase)->name;
    m->device = pl_config_text(c, "device");
    m->memory_every = pl_config_int(c, "log.memory_every");
    m->warn = pl_config_float(c, "log.warn_memory");
    read_memory(m);
    if (!dir) return PL_OK;
    snprintf(m->dir, sizeof m->dir, "%s", dir);
    snprintf(m->evals_dir, sizeof m->evals_dir, "%s", phase_dir ? phase_dir : dir);
    return open_files(m, pl_run_steps_done(run));
}

void monitor_close(monitor *m)
{
    metrics_close(&m->metrics);
    if (m->evals) fclose(m->evals);
    pl_events_close(m->events);
    m->evals = NULL;
    m->events = NULL;
}
