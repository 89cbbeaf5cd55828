/* ranks.c - see ranks.h. */
#include "ranks.h"

#include <string.h>

bool ranks_follows(const trainer *t)
{
    return pl_world_rank(t->world) > 0;
}

pl_status ranks_take_folder(trainer *t)
{
    run_folder found = t->folder, *f = &t->folder;
    if (!t->world) return PL_OK;
    pl_status rc = pl_world_tell(t->world, &found, sizeof found);
    if (rc != PL_OK || !ranks_follows(t)) return rc;
    t->shown_by_0 = found.path != NULL;
    found.path = f->path; /* pointers are rank 0's */
    found.folder = f->folder;
    found.log = f->log;
    found.log_file = f->log_file;
    found.quiet = true;
    *f = found;
    return f->dir[0] && !f->finished ? pl_run_resume(t->run, f->dir) : PL_OK;
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
        fprintf(stderr, "%6d  %-24s %8d %8d %12s\n", i, a.host, a.pid, a.threads, cli_bytes(a.memory_bytes));
    }
}
