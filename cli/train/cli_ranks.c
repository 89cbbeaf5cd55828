/* cli_ranks.c - see cli_ranks.h. */
#include "cli_ranks.h"

#include <stdlib.h>
#include <string.h>

bool ranks_follows(const trainer *t)
{
    return pl_world_rank(t->world) > 0;
}

int ranks_here(const trainer *t)
{
    pl_rank_info own, other;
    int n = 0;
    if (!t->world) return 1;
    pl_world_info(t->world, pl_world_rank(t->world), &own);
    for (int i = 0; i < pl_world_size(t->world); i++) {
        pl_world_info(t->world, i, &other);
        n += strcmp(own.host, other.host) == 0;
    }
    return n;
}

pl_status ranks_take_folder(trainer *t, bool resume)
{
    run_folder *f = &t->folder;
    const char *path = f->path;
    pl_folder *folder = f->folder;
    pl_json *log = f->log;
    FILE *log_file = f->log_file;
    if (!t->world) return PL_OK;
    pl_status rc = pl_world_tell(t->world, f, sizeof *f);
    if (!ranks_follows(t)) return rc;
    t->shown_by_0 = f->path != NULL;
    f->path = path; /* the pointers of rank 0 mean nothing here */
    f->folder = folder;
    f->log = log;
    f->log_file = log_file;
    f->quiet = true;
    if (rc != PL_OK) return rc;
    return resume && f->dir[0] && !f->finished ? pl_run_resume(t->run, f->dir) : PL_OK;
}

pl_status ranks_take_phase(trainer *t)
{
    struct {
        int phase;
        bool resumes;
        int64_t before;
        char handed[sizeof t->handed];
    } of_0;
    if (!t->world) return PL_OK;
    memset(&of_0, 0, sizeof of_0);
    of_0.phase = t->phase;
    of_0.before = t->before;
    of_0.resumes = t->resumes;
    memcpy(of_0.handed, t->handed, sizeof of_0.handed);
    pl_status rc = pl_world_tell(t->world, &of_0, sizeof of_0);
    if (rc != PL_OK || !ranks_follows(t)) return rc;
    t->phase = of_0.phase;
    t->before = of_0.before;
    t->resumes = of_0.resumes;
    memcpy(t->handed, of_0.handed, sizeof of_0.handed);
    return PL_OK;
}

pl_status ranks_share_peaks(trainer *t)
{
    uint64_t own = trainer_peak(t);
    if (!t->world) return PL_OK;
    t->peaks = calloc((size_t)pl_world_size(t->world), sizeof own);
    return t->peaks ? pl_world_share(t->world, &own, sizeof own, t->peaks) : PL_ERR_MEMORY;
}

void ranks_tell_peaks(const trainer *t)
{
    int most = 0;
    for (int i = 1; t->peaks && i < pl_world_size(t->world); i++)
        if (t->peaks[i] > t->peaks[most]) most = i;
    if (t->peaks)
        fprintf(stderr, "highest peak memory of all ranks: %s on rank %d\n",
                cli_bytes(t->peaks[most]), most);
}

pl_status ranks_agree(trainer *t, volatile int *stop, bool *save)
{
    enum { SAVE = 1 << 8 };
    uint64_t bits = (uint64_t)*stop | (*save && !ranks_follows(t) ? SAVE : 0);
    if (!t->world) return PL_OK;
    pl_status rc = pl_run_agree(t->run, &bits);
    *save = bits & SAVE;
    if (!*stop) *stop = (int)(bits & (SAVE - 1));
    return rc;
}

pl_status ranks_serve(trainer *t, bool *saved)
{
    return pl_run_serve(t->run, saved);
}

void ranks_table(const trainer *t)
{
    pl_rank_info a;
    fprintf(stderr, "%6s  %-24s %8s %8s %12s\n", "rank", "host", "process", "threads", "memory");
    for (int i = 0; i < pl_world_size(t->world); i++) {
        pl_world_info(t->world, i, &a);
        fprintf(stderr, "%6d  %-24s %8d %8d %12s\n", i, a.host, a.pid, a.threads,
                cli_bytes(a.memory_bytes));
    }
}
