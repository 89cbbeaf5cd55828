/* run_ranks.c - a run as one of several ranks: its samples, its draws, and agreements of all ranks.
 *
 * Micro-batch b of a run is the next `ranks * micro` samples of the endless stream; rank k has the
 * k-th `micro` of them. A draw over samples takes its rows of the numbers that a single rank would
 * draw for all samples. So the number of ranks changes neither the samples of a step nor its random
 * numbers. With synchronised BatchNorm, or none, it changes only the rounding of sums.
 */
#include "base/number/packed.h"
#include "base/sys.h"
#include "base/threads.h"
#include "dist/world.h"
#include "ir/graph.h"
#include "rt/device.h"
#include "train/data/prefetch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

int64_t pl__ranks(const pl_run *r)
{
    return r->ranks.nn.ranks > 1 ? r->ranks.nn.ranks : 1;
}

int64_t pl__run_batch(const pl_run *r)
{
    return r->build ? r->build->micro * r->build->accumulate * pl__ranks(r) : 0;
}

int64_t pl__ranks_position(const pl_run *r, int64_t number, int64_t i)
{
    return (number * pl__ranks(r) + r->ranks.nn.rank) * r->build->micro + i;
}

/* ---- keys ------------------------------------------------------------------------------- */
static const char *const shard_names[] = {"none", "optimizer", "gradients", "weights"};

static pl_shard shard_of(const char *name)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(shard_names[i], name) == 0) return (pl_shard)i;
    return PL_SHARD_NONE;
}

/* Divides the cores of a machine among its ranks, unless the launcher has pinned them. */
static void share_cores(const pl_run *r)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), quota = pl_sys_cores();
    if (pl_cgroup_own()->cpus > 0 && quota < cores) cores = quota;
    int local = pl_world_local_size(r->ranks.world);
    if (local < 2 || pl_config_int(r->config, "threads") || pl_threads_count() < cores) return;
    pl_threads_set(cores / local > 1 ? (int)(cores / local) : 1);
}

pl_status pl_run_join(pl_run *r, pl_world *w)
{
    r->ranks.world = w;
    r->compile.comm = pl_world_comm(w);
    if (w) share_cores(r);
    return PL_OK;
}

/* Whether an optimiser of the run packs its moments: parts of ranks are then whole blocks. */
static bool packs_state(const pl_run *r)
{
    static const char *const none[] = {NULL};
    const char *const *section = r->recipe->optims ? r->recipe->optims : none;
    bool packs = strcmp(pl_config_text(r->config, "optim.state"), "8bit") == 0;
    for (; *section; section++) {
        char key[128];
        snprintf(key, sizeof key, "%s.state", *section);
        packs |= strcmp(pl_config_text(r->config, key), "8bit") == 0;
    }
    return packs;
}

pl_status pl__ranks_configure(pl_run *r)
{
    long long ranks = (long long)pl_config_int(r->config, "ranks"),
              world = pl_world_size(r->ranks.world);
    long long batch = (long long)pl_config_int(r->config, "batch");
    PL_FAIL_IF(r->ranks.world && ranks != world, PL_ERR_CONFIG,
               "ranks is %lld, but the launcher started %lld", ranks, world);
    PL_FAIL_IF(ranks > 1 && strcmp(pl_config_text(r->config, "distributed"), "off") == 0,
               PL_ERR_CONFIG, "distributed: off, but there are %lld ranks", ranks);
    PL_FAIL_IF(batch % ranks, PL_ERR_CONFIG, "batch: %lld cannot be shared equally by %lld ranks",
               batch, ranks);
    r->ranks.nn =
        (pl_nn_ranks){.ranks = (int)ranks,
                      .rank = pl_world_rank(r->ranks.world),
                      .shard = shard_of(pl_config_text(r->config, "shard")),
                      .always = strcmp(pl_config_text(r->config, "distributed"), "always") == 0,
                      .sync_norm = pl_config_bool(r->config, "sync_batch_norm"),
                      .bucket_bytes = (uint64_t)pl_config_size(r->config, "gradient_bucket"),
                      .part_align = packs_state(r) ? PL_PACKED_BLOCK : 0};
    r->compile.comm = pl_world_comm(r->ranks.world);
    r->compile.link =
        pl_config_is_null(r->config, "link") ? NULL : pl_config_text(r->config, "link");
    return PL_OK;
}

bool pl__ranks_share_more(pl_run *r)
{
    bool automatic = strcmp(pl_config_text(r->config, "shard"), "auto") == 0;
    if (!automatic || pl__ranks(r) == 1 || r->ranks.nn.shard == PL_SHARD_WEIGHTS) return false;
    if (pl_run_memory_get(r).fits) return false;
    r->ranks.nn.shard = (pl_shard)(r->ranks.nn.shard + 1);
    return true;
}

const char *pl__ranks_device(pl_run *r)
{
    const char *device = pl_config_text(r->config, "device");
    if (pl_world_local_size(r->ranks.world) < 2 || strcmp(device, "cuda") != 0) return device;
    int devices = pl_device_plugged_count();
    if (devices < 2) return device;
    snprintf(r->ranks.device, sizeof r->ranks.device, "cuda:%d",
             pl_world_local_rank(r->ranks.world) % devices);
    return r->ranks.device;
}

/* ---- draws over samples ----------------------------------------------------------------- */
/* Returns 1 + the axis in which two shapes of a draw differ; 0: they are equal. */
static int8_t differing_axis(const pl_type *a, const pl_type *b)
{
    for (int i = 0; i < a->rank && a->rank == b->rank; i++)
        if (a->dim[i] != b->dim[i]) return (int8_t)(i + 1);
    return 0;
}

/* Lists the output type of each random stream of a graph; rank -1: no node draws from it. */
static pl_status list_draws(pl_arena *a, const pl_graph *g, pl_type **out)
{
    pl_type *t = pl_arena_new(a, pl_type, (size_t)g->n_streams + 1);
    if (!t) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i <= g->n_streams; i++) t[i].rank = -1;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = pl_node_get(g, n);
        pl_drawing d;
        if (!r->op->drawing) continue;
        r->op->drawing(r->attr, &d);
        if (d.stream <= g->n_streams) t[d.stream] = *pl_type_of(g, r->out);
    }
    *out = t;
    return PL_OK;
}

static pl_status compare_draws(pl_run *r, const pl_graph *a, const pl_graph *b, pl_spread *out)
{
    pl_type *x, *y;
    PL_FAIL_IF(
        a->n_streams != b->n_streams, PL_ERR_GRAPH,
        "the network draws different random numbers at a different batch size, so ranks cannot "
        "share the batch");
    int8_t *axis = pl_arena_new(&r->arena, int8_t, (size_t)a->n_streams + 1);
    if (!axis) return PL_ERR_MEMORY;
    PL_TRY(list_draws(&r->arena, a, &x));
    PL_TRY(list_draws(&r->arena, b, &y));
    for (uint32_t i = 0; i <= a->n_streams; i++)
        if (x[i].rank >= 0 && y[i].rank >= 0) axis[i] = differing_axis(&x[i], &y[i]);
    *out = (pl_spread){r->ranks.nn.ranks, r->ranks.nn.rank, axis, a->n_streams + 1};
    return PL_OK;
}

static pl_status find_draws(pl_run *r, int64_t micro)
{
    pl_builder a, b;
    memset(&b, 0, sizeof b);
    int64_t batch = micro > 1 ? micro : 2;
    pl_status rc = pl__probe(r, batch, NULL, &a);
    if (rc == PL_OK) rc = pl__probe(r, 2 * batch, NULL, &b);
    for (int i = 0; rc == PL_OK && i < a.n_step_programs && i < b.n_step_programs; i++)
        rc = compare_draws(r, a.step_programs[i].run.g, b.step_programs[i].run.g,
                           &r->ranks.spread[i]);
    pl__probe_release(&b);
    pl__probe_release(&a);
    return rc;
}

static pl_status check_coupling(pl_run *r, int64_t accumulate)
{
    static const pl_nn_ranks blind = {.ranks = 1, .blind_norm = true};
    const char *why = NULL;
    if (pl_config_bool(r->config, "accumulate_coupled")) return PL_OK;
    PL_TRY(pl__run_couples(r, accumulate * r->ranks.nn.ranks, &blind, &why));
    PL_FAIL_IF(why, PL_ERR_CONFIG,
               "%d ranks would train differently from one rank, because samples of different "
               "ranks are coupled (%s); set accumulate_coupled: true to split the batch anyway",
               r->ranks.nn.ranks, why);
    return PL_OK;
}

pl_status pl__ranks_prepare(pl_run *r, int64_t accumulate, pl_builder *b)
{
    /* One rank computes synchronised BatchNorm by the same sums as many ranks. */
    if (r->ranks.nn.sync_norm || r->ranks.nn.always) b->ranks = &r->ranks.nn;
    if (pl__ranks(r) == 1) return PL_OK;
    if (!r->ranks.spread_known) {
        PL_TRY(find_draws(r, b->batch));
        PL_TRY(check_coupling(r, accumulate));
    }
    r->ranks.spread_known = true;
    b->ranks = &r->ranks.nn;
    b->spread = r->ranks.spread;
    return PL_OK;
}

/* ---- the same everywhere ----------------------------------------------------------------- */
/* 0 where the program cannot be read. */
static pl_status hash_program(uint64_t *h)
{
    char *data;
    size_t n;
    *h = 0;
    pl_status rc = pl_sys_read_file("/proc/self/exe", (size_t)1 << 30, &data, &n);
    if (rc != PL_OK) return rc == PL_ERR_MEMORY ? rc : PL_OK;
    *h = XXH64(data, n, 0);
    pl_sys_free(data);
    return PL_OK;
}

/* Hashes the configuration without the path of a compiled recipe, which may differ between
 * hosts. */
static pl_status hash_config(const pl_run *r, uint64_t *h)
{
    char *text;
    PL_TRY(pl_config_print(r->config, &text));
    const char *recipe = strstr(text, "\nrecipe:"), *end = recipe ? strchr(recipe + 1, '\n') : NULL;
    *h = XXH64(text, (size_t)((end ? recipe : text + strlen(text)) - text), 0);
    if (end) *h = XXH64(end, strlen(end), *h);
    pl_text_free(text);
    return PL_OK;
}

/* Hashes order and sizes. Offsets of shards differ between ranks and are not included. */
static uint64_t hash_plan(const pl_run *r)
{
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    uint64_t h = 0;
    for (int i = 0; i < n; i++) {
        const pl_plan_info *p = pl_program_plan(programs[i]);
        uint64_t sizes[2] = {p->arena_bytes, p->state_bytes};
        h = XXH64(sizes, sizeof sizes, h);
        for (int k = 0; k < p->positions; k++) {
            const char *label = pl_program_position_label(programs[i], k);
            h = XXH64(label, strlen(label), h);
        }
    }
    return h;
}

pl_status pl__ranks_check(pl_run *r)
{
    static const char *const what[] = {"program", "configuration", "plan", "data set"};
    uint64_t own[4], *all;
    if (!r->ranks.world) return PL_OK;
    int n = pl_world_size(r->ranks.world), bad = 0, kind = 0;
    PL_TRY(hash_program(&own[0]));
    PL_TRY(hash_config(r, &own[1]));
    own[2] = hash_plan(r);
    PL_TRY(pl_prefetch_hash(r, &own[3]));
    all = pl_sys_alloc((size_t)n * sizeof own);
    if (!all) return PL_ERR_MEMORY;
    pl_status rc = pl_world_share(r->ranks.world, own, sizeof own, all);
    for (int i = n - 1; rc == PL_OK && i > 0; i--)
        for (int k = 3; k >= 0; k--)
            if (all[4 * i + k] != all[k]) bad = i, kind = k;
    pl_sys_free(all);
    PL_TRY(rc);
    const char *host = bad && r->ranks.world->member ? r->ranks.world->member[bad].host : "";
    PL_FAIL_IF(bad, PL_ERR_CONFIG,
               "rank %d%s%s has a different %s from rank 0: all ranks must use the same", bad,
               host[0] ? " on " : "", host, what[kind]);
    return PL_OK;
}

/* ---- agreements ------------------------------------------------------------------------- */
/* Exchanges n numbers of every rank and passes each rank's, in order, to `take`. */
static pl_status gather(pl_run *r, const double *own, int n,
                        void (*take)(double *sum, const double *v, int n), double *out)
{
    size_t bytes = (size_t)n * sizeof *own, all = bytes * (size_t)pl_world_size(r->ranks.world);
    /* only a thousand ranks or more exceed the stage */
    char *room = all <= PL_STAGE_BYTES ? r->files.stage : pl_sys_alloc(all);
    if (!room) return PL_ERR_MEMORY;
    pl_status rc = pl_world_share(r->ranks.world, own, bytes, room);
    for (int i = 0; rc == PL_OK && i < pl_world_size(r->ranks.world); i++)
        take(out, (const double *)(const void *)(room + (size_t)i * bytes), n);
    if (room != r->files.stage) pl_sys_free(room);
    return rc;
}

static void add(double *sum, const double *v, int n)
{
    for (int i = 0; i < n; i++) sum[i] += v[i];
}

static void keep_least(double *least, const double *v, int n)
{
    for (int i = 0; i < n; i++) least[i] = v[i] < least[i] ? v[i] : least[i];
}

pl_status pl__ranks_terms(pl_run *r, pl_step_info *info, double *bad)
{
    double own[PL_MAX_TERMS + 2], sum[PL_MAX_TERMS + 2] = {0};
    int n = info->n_terms;
    double share = 1.0 / (double)pl__ranks(r);
    if (!r->ranks.world) return PL_OK;
    memcpy(own, info->term, (size_t)n * sizeof *own);
    own[n] = info->loss;
    own[n + 1] = isnan(*bad) ? 0 : *bad;
    PL_TRY(gather(r, own, n + 2, add, sum));
    for (int i = 0; i < n; i++) info->term[i] = sum[i] * share;
    info->loss = sum[n] * share;
    *bad = sum[n + 1];
    return PL_OK;
}

pl_status pl__ranks_sum(pl_run *r, double *value, int n)
{
    double sum[PL_MAX_METRICS] = {0};
    if (!r->ranks.world || n == 0) return PL_OK;
    PL_TRY(gather(r, value, n, add, sum));
    memcpy(value, sum, (size_t)n * sizeof *sum);
    return PL_OK;
}

pl_status pl__ranks_least(pl_run *r, uint64_t *value)
{
    double own = (double)*value, least = own;
    if (!r->ranks.world) return PL_OK;
    PL_TRY(gather(r, &own, 1, keep_least, &least));
    *value = (uint64_t)least;
    return PL_OK;
}

pl_status pl_run_agree(pl_run *r, uint64_t *bits)
{
    uint64_t own = *bits;
    if (!r->ranks.world) return PL_OK;
    PL_TRY(pl_world_share(r->ranks.world, &own, sizeof own, r->files.stage));
    for (int i = 0; i < pl_world_size(r->ranks.world); i++)
        *bits |= ((const uint64_t *)(const void *)r->files.stage)[i];
    return PL_OK;
}

static void add_links(pl_run_links *sum, const pl_program *program, double times)
{
    const pl_plan_info *p = program ? pl_program_plan(program) : NULL;
    if (!p) return;
    sum->bytes += times * p->link_bytes;
    sum->ms += times * p->link_ms;
    sum->wait_ms += times * p->wait_ms;
}

pl_run_links pl_run_links_get(const pl_run *r)
{
    pl_run_links sum = {.shard = r->ranks.nn.shard};
    for (int i = 0; i < pl_run_step_program_count(r); i++) {
        pl_run_step_program t = pl_run_step_program_at(r, i);
        add_links(&sum, t.run, t.share * (double)r->build->accumulate);
        add_links(&sum, t.apply, t.share);
    }
    return sum;
}

const char *pl_shard_name(pl_shard s)
{
    return shard_names[s];
}

pl_run_traffic pl_run_traffic_get(const pl_run *r)
{
    const pl_comm *c = pl_world_comm(r->ranks.world);
    if (!c) return (pl_run_traffic){0};
    const uint64_t *b = c->sent_bytes;
    return (pl_run_traffic){b[PL_TRAFFIC_ALL_REDUCE], b[PL_TRAFFIC_REDUCE_SCATTER],
                            b[PL_TRAFFIC_ALL_GATHER], b[PL_TRAFFIC_BROADCAST],
                            b[PL_TRAFFIC_CONTROL]};
}
