/* world.c - joins the world that a launcher started; see plimsoll_ranks.h. */
#include "dist/world.h"

#include "base/sys.h"
#include "base/threads.h"
#include "base/trust/secret.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the plug-in ------------------------------------------------------------------------ */
/* MPI opens its own plug-ins, which look for its symbols: so they are global. */
pl_status pl_mpi_load(const pl_mpi_plugin_info **out)
{
    char path[4200];
    void *library = pl_plugin_open("mpi", RTLD_NOW | RTLD_GLOBAL, path, sizeof path);
    PL_FAIL_IF(!library && path[0], PL_ERR_PEER, "the MPI plug-in cannot be loaded: %s", dlerror());
    PL_FAIL_IF(
        !library, PL_ERR_PEER,
        "several ranks need MPI, and libplimsoll_mpi.so is missing beside the program: install "
        "libopenmpi-dev and openmpi-bin, and build again");
    const pl_mpi_plugin_info *info = dlsym(library, "pl_mpi_plugin");
    PL_FAIL_IF(!info || info->abi != PL_MPI_ABI || strcmp(info->version, PL_VERSION_STRING) != 0,
               PL_ERR_PEER,
               "%s was built for another version of this program: build both from the same sources",
               path);
    *out = info;
    return PL_OK;
}

/* ---- joining ---------------------------------------------------------------------------- */
static pl_status check_size(const pl_world *w)
{
    PL_FAIL_IF(
        w->comm.size != w->env.size || w->comm.rank != w->env.rank, PL_ERR_PEER,
        "%s started %d ranks, MPI sees %d of them: %s", w->env.launcher, w->env.size, w->comm.size,
        strcmp(w->env.launcher, "srun") == 0 ? "try srun --mpi=pmix (srun --mpi=list shows the "
                                               "choices), or mpirun"
                                             : "start them with the mpirun of the MPI that this "
                                               "program was built with");
    return PL_OK;
}

static pl_status meet(pl_world *w)
{
    pl_member own;
    memset(&own, 0, sizeof own);
    if (gethostname(own.host, sizeof own.host - 1) != 0)
        snprintf(own.host, sizeof own.host, "unknown");
    own.pid = (int32_t)getpid();
    own.threads = pl_threads_count();
    own.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = pl_cgroup_own()->memory_bytes;
    if (limit && limit < own.memory_bytes) own.memory_bytes = limit;
    own.memory_id = limit ? pl_cgroup_own()->memory_id : 0;
    w->member = pl_sys_alloc((size_t)w->comm.size * sizeof *w->member);
    if (!w->member) return PL_ERR_MEMORY;
    return pl_world_share(w, &own, sizeof own, w->member);
}

/* ---- the control channel ---------------------------------------------------------------- */
static void say_doing(void *ctx, char *out, size_t cap)
{
    const pl_world *w = ctx;
    const char *phase = atomic_load(&w->phase);
    char text[sizeof w->comm.said];
    unsigned long long calls = pl_comm_noted(&w->comm, text);
    snprintf(out, cap, "%s at step %lld, %s (exchange %llu)", phase ? phase : PL_CONTROL_START,
             (long long)atomic_load(&w->step), text[0] ? text : "no exchange", calls);
}

static pl_status open_line(pl_world *w, const pl_control_at *at)
{
    char host[PL_HOST_BYTES] = "", hub[PL_HOST_BYTES + 16] = "the process that started the ranks";
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "unknown");
    if (w->member) snprintf(hub, sizeof hub, "rank 0 host %s", w->member[0].host);
    return pl_line_open(at, w->env.rank, host, hub, w->hub, say_doing, w, &w->line);
}

/* The process that started the ranks has the hub: ranks connect before they enter MPI, which waits
 * for all of them. */
static pl_status find_hub(pl_world *w)
{
    const char *given = getenv("PLIMSOLL_CONTROL");
    pl_control_at at;
    return given && pl_control_parse(given, &at) ? open_line(w, &at) : PL_OK;
}

/* What a rank says of its secret. The fingerprint shows whether two ranks have the same secret, and
 * reveals nothing about the secret. */
typedef struct secret_note {
    bool here;
    uint8_t fingerprint[PL_TAG_BYTES];
    char why[320]; /* why there is none */
} secret_note;

static secret_note read_secret(pl_key *secret)
{
    secret_note note;
    memset(&note, 0, sizeof note);
    const char *missing = pl_keyed_missing();
    note.here = !missing && pl_secret_read(secret) == PL_OK;
    if (!note.here) {
        snprintf(note.why, sizeof note.why, "%s", missing ? missing : pl_error_text());
        return note;
    }
    pl_key print = pl_keyed_hash(secret, "plimsoll fingerprint", "", 0, "", 0);
    memcpy(note.fingerprint, print.byte, sizeof note.fingerprint);
    return note;
}

static pl_status compare_secrets(const pl_world *w, const secret_note *all)
{
    for (int r = 0; r < w->comm.size; r++) {
        PL_FAIL_IF(!all[r].here, PL_ERR_PEER,
                   "ranks on several machines authenticate their messages, and rank %d on host %s "
                   "cannot: %s",
                   r, w->member[r].host, all[r].why);
        PL_FAIL_IF(memcmp(all[r].fingerprint, all[0].fingerprint, sizeof all[r].fingerprint) != 0,
                   PL_ERR_PEER,
                   "rank %d on host %s has a different secret from rank 0 on host %s: copy "
                   "~/.config/plimsoll/secret to both, or pass the secret to all ranks (export "
                   "PLIMSOLL_SECRET=$(openssl rand -hex 32); mpirun -x PLIMSOLL_SECRET ...)",
                   r, w->member[r].host, w->member[0].host);
    }
    return PL_OK;
}

/* Ranks on several machines: the key of this run follows from the secret of the user, which every
 * machine has, and the token of the hub, so nothing secret is sent. */
static pl_status agree_on_key(pl_world *w, pl_control_at *at)
{
    pl_key secret;
    secret_note own = read_secret(&secret);
    secret_note *all = pl_sys_alloc((size_t)w->comm.size * sizeof *all);
    if (!all) return PL_ERR_MEMORY;
    pl_status rc = pl_world_share(w, &own, sizeof own, all);
    if (rc == PL_OK) rc = compare_secrets(w, all);
    pl_sys_free(all);
    PL_TRY(rc);
    at->key =
        pl_keyed_hash(&secret, "plimsoll control channel", &at->token, sizeof at->token, "", 0);
    at->keyed = true;
    if (w->hub) pl_hub_set_key(w->hub, &at->key);
    return PL_OK;
}

/* No process has a hub: rank 0 creates one and sends its address; on one machine also the key. */
static pl_status make_hub(pl_world *w)
{
    pl_control_at at;
    bool local = w->local_size == w->comm.size;
    if (w->line) return PL_OK;
    memset(&at, 0, sizeof at);
    if (w->comm.rank == 0) PL_TRY(pl_hub_new(w->comm.size, local, &w->hub));
    if (w->hub && local) PL_TRY(pl_hub_draw_key(w->hub));
    if (w->hub) pl_hub_where(w->hub, &at);
    pl_control_at *all = pl_sys_alloc((size_t)w->comm.size * sizeof *all);
    if (!all) return PL_ERR_MEMORY;
    pl_status rc = pl_world_share(w, &at, sizeof at, all);
    at = all[0];
    at.keyed = at.keyed && local; /* the other machine says nothing about keys */
    pl_sys_free(all);
    if (rc == PL_OK && !local) rc = agree_on_key(w, &at);
    return rc == PL_OK ? open_line(w, &at) : rc;
}

/* srun without an MPI plug-in: MPI would abort, or create worlds of one rank each. */
static pl_status check_launcher(const pl_rank_env *env)
{
    PL_FAIL_IF(strcmp(env->launcher, "srun") == 0 && !getenv("PMIX_RANK"), PL_ERR_PEER,
               "srun started %d processes, but MPI cannot connect them: use srun --mpi=pmix (srun "
               "--mpi=list shows the choices), or mpirun",
               env->size);
    return PL_OK;
}

static pl_status join(pl_world *w)
{
    PL_TRY(check_launcher(&w->env));
    PL_TRY(pl_mpi_load(&w->mpi));
    PL_TRY(find_hub(w));
    const char *why = w->mpi->open(&w->comm);
    PL_FAIL_IF(why, PL_ERR_PEER, "MPI cannot be initialised: %s", why);
    PL_TRY(check_size(w));
    size_t n = (size_t)w->comm.size;
    w->comm.send = pl_sys_alloc(2 * n * sizeof *w->comm.send);
    if (!w->comm.send) return PL_ERR_MEMORY;
    w->comm.recv = w->comm.send + n;
    why = w->mpi->local(&w->comm, &w->local_rank, &w->local_size);
    PL_FAIL_IF(why, PL_ERR_PEER, "MPI cannot be initialised: %s", why);
    PL_TRY(meet(w));
    PL_TRY(make_hub(w));
    return pl_async_open(&w->comm);
}

pl_status pl_world_launched(int *size)
{
    pl_rank_env env;
    PL_TRY(pl_rank_env_read(&env));
    *size = env.size;
    return PL_OK;
}

const char *pl_world_keys_missing(void)
{
    return pl_keyed_missing();
}

pl_status pl_world_open(pl_world **out)
{
    pl_rank_env env;
    *out = NULL;
    PL_TRY(pl_rank_env_read(&env));
    if (env.size == 1) return PL_OK;
    pl_world *w = pl_sys_alloc(sizeof *w);
    if (!w) return PL_ERR_MEMORY;
    w->env = env;
    pl_status rc = join(w);
    if (rc == PL_OK) *out = w;
    return rc;
}

void pl_world_set_limit(pl_world *w, double seconds)
{
    if (!w || !w->line) return;
    pl_line_set_limit(w->line, seconds);
}

void pl_world_doing(pl_world *w, const char *phase, int64_t step)
{
    if (!w) return;
    atomic_store(&w->phase, phase);
    atomic_store(&w->step, step);
}

void pl_world_fail(pl_world *w, int code, const char *text)
{
    if (w && w->line) pl_line_fail(w->line, code, text);
}

void pl_world_on_failure(pl_world *w, void (*fn)(void *ctx, int code, const char *text), void *ctx)
{
    if (w && w->line) pl_line_on_failure(w->line, fn, ctx);
}

void pl_world_close(pl_world *w, int code)
{
    if (!w) return;
    pl_async_close(&w->comm);
    if (w->comm.self) w->mpi->close(&w->comm);
    pl_line_close(w->line, w->comm.size, code);
    pl_hub_free(w->hub);
    pl_sys_free(w->comm.send);
    pl_sys_free(w->member);
    pl_sys_free(w);
}

/* ---- reading ---------------------------------------------------------------------------- */
int pl_world_rank(const pl_world *w)
{
    return w ? w->comm.rank : 0;
}

int pl_world_size(const pl_world *w)
{
    return w ? w->comm.size : 1;
}

int pl_world_local_rank(const pl_world *w)
{
    return w ? w->local_rank : 0;
}

int pl_world_local_size(const pl_world *w)
{
    return w ? w->local_size : 1;
}

int pl_world_in_container(const pl_world *w)
{
    int n = 0;
    if (!w || !w->member) return pl_world_local_size(w); /* ranks that are threads of a test */
    const pl_member *own = &w->member[w->comm.rank];
    for (int i = 0; i < w->comm.size; i++)
        n += w->member[i].memory_id == own->memory_id && strcmp(w->member[i].host, own->host) == 0;
    return n;
}

void pl_world_info(const pl_world *w, int rank, pl_rank_info *out)
{
    const pl_member *m = &w->member[rank];
    *out = (pl_rank_info){m->host, m->pid, m->threads, m->memory_bytes};
}

struct pl_comm *pl_world_comm(pl_world *w)
{
    return w ? &w->comm : NULL;
}

pl_status pl_world_share(pl_world *w, const void *own, size_t bytes, void *all)
{
    pl_comm *c = &w->comm;
    memcpy((char *)all + (size_t)c->rank * bytes, own, bytes);
    for (int r = 0; r < c->size; r++) {
        c->send[r] = (pl_parcel){(char *)all + (size_t)c->rank * bytes, bytes};
        c->recv[r] = (pl_parcel){(char *)all + (size_t)r * bytes, bytes};
    }
    c->op = "agreement";
    c->name = "";
    return pl_comm_exchange(c, PL_TRAFFIC_CONTROL);
}
