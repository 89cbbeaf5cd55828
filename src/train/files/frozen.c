/* frozen.c - weights that no program changes, which checkpoints leave out: a teacher, LPIPS, an
 * autoencoder.
 *
 * They come from `seed`, `init_from` and the recipe's weight files; a resumed run rebuilds them
 * from there. The metadata of a checkpoint's model file hold their number and a checksum of their
 * bytes. A reader (a resumed run, or `init_from`) compares its own checksum with that one. The
 * checksum is a sum over blocks of 16 elements, each hashed with its name and position, and does
 * not depend on their order, so ranks that hold shards add theirs. A run with phases leaves nothing
 * out, because a phase starts with the weights of another; weights that are sharded across ranks
 * are never left out.
 */
#include "base/dtype.h"
#include "base/str.h"
#include "dist/world.h"
#include "io/st_set.h"
#include "rt/rt_int.h"
#include "train/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define LEFT_OUT "plimsoll.frozen" /* metadata: "12 0123456789abcdef" */

/* ---- which -------------------------------------------------------------------------------- */
void pl__frozen_start(const pl_run *r, bool *frozen)
{
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        frozen[i] = s->kind == PL_SLOT_PARAM && !s->trainable;
    }
}

void pl__frozen_unmark(const pl_graph *g, bool *frozen)
{
    for (uint32_t k = 1; g && k < g->n_nodes; k++) {
        int slot = pl_node_get(g, k)->op->n_out == 0 ? pl_node_slot(g, k) : -1;
        if (slot >= 0) frozen[slot] = false;
    }
}

/* Once: after the build the programs do not change. */
pl_status pl__frozen_list(pl_run *r)
{
    int n = pl_store_count(r->store), programs;
    pl_program *const *program = pl__run_programs(r, &programs);
    if (r->files.frozen) return PL_OK;
    bool *frozen = pl_arena_new(&r->arena, bool, (size_t)n + 1);
    r->files.remade = pl_arena_new(&r->arena, bool, (size_t)n + 1);
    if (!frozen || !r->files.remade) return PL_ERR_MEMORY;
    pl__frozen_start(r, frozen);
    for (int i = 0; i < programs; i++) pl__frozen_unmark(program[i]->base_graph, frozen);
    r->files.frozen = frozen;
    return PL_OK;
}

/* ---- their checksum ----------------------------------------------------------------------- */
/* Adds the sum of this rank's elements of a slot. */
static pl_status add_slot(pl_run *r, int slot, uint64_t *sum)
{
    enum { BLOCK = 16 }; /* elements; shards begin at multiples of it */
    const pl_slot *s = pl_store_slot(r->store, slot);
    size_t elem = pl_dtype_bytes(s->type.dtype);
    int64_t first, n = pl__slot_range(s, &first),
                   chunk = (int64_t)(PL_STAGE_BYTES / elem / BLOCK * BLOCK);
    uint64_t name = XXH64(s->name, strlen(s->name), 0);
    for (int64_t at = 0; at < n; at += chunk) {
        int64_t m = n - at < chunk ? n - at : chunk;
        PL_TRY(pl_session_read_slot(r->session, slot, (uint64_t)at * elem, r->files.stage,
                                    (size_t)m * elem));
        for (int64_t k = 0; k < m; k += BLOCK) {
            size_t bytes = (size_t)(m - k < BLOCK ? m - k : BLOCK) * elem;
            *sum += XXH64(r->files.stage + (size_t)k * elem, bytes,
                          name + (uint64_t)((first + at + k) / BLOCK));
        }
    }
    return PL_OK;
}

/* The sum over all ranks. */
static pl_status add_ranks(pl_run *r, uint64_t parts, uint64_t *sum)
{
    int n = pl_world_size(r->ranks.world);
    uint64_t *all = pl_sys_alloc((size_t)n * sizeof *all);
    if (!all) return PL_ERR_MEMORY;
    pl_status rc = pl_world_share(r->ranks.world, &parts, sizeof parts, all);
    for (int i = 0; rc == PL_OK && i < n; i++) *sum += all[i];
    pl_sys_free(all);
    return rc;
}

static pl_status sum_slots(pl_run *r, const bool *which, uint64_t *sum)
{
    uint64_t parts = 0;
    bool shared = false;
    *sum = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        if (!which[i]) continue;
        bool part = pl_store_slot(r->store, i)->shards > 0;
        PL_TRY(add_slot(r, i, part ? &parts : sum));
        shared |= part;
    }
    return shared ? add_ranks(r, parts, sum) : PL_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */
pl_status pl__frozen_leave(pl_run *r, bool *any)
{
    *any = false;
    if (pl_config_bool(r->config, "checkpoint.frozen") || r->phases.now >= 0) return PL_OK;
    PL_TRY(pl__frozen_list(r));
    if (!r->files.leaving) {
        int n = pl_store_count(r->store);
        bool *leaving = pl_arena_new(&r->arena, bool, (size_t)n + 1);
        if (!leaving) return PL_ERR_MEMORY;
        for (int i = 0; i < n; i++) {
            leaving[i] = r->files.frozen[i] && !pl_store_slot(r->store, i)->shards;
            r->files.n_leaving += leaving[i];
        }
        PL_TRY(sum_slots(r, leaving, &r->files.leaving_sum)); /* once: the values never change */
        r->files.leaving = leaving;
    }
    *any = r->files.n_leaving > 0;
    return PL_OK;
}

pl_status pl__frozen_tell(const pl_run *r, pl_st_writer *w)
{
    char text[64];
    snprintf(text, sizeof text, "%d %016" PRIx64, r->files.n_leaving, r->files.leaving_sum);
    return pl_st_writer_meta(w, LEFT_OUT, text);
}

/* ---- reading ------------------------------------------------------------------------------ */
bool pl__frozen_left_out(const pl_st_reader *f)
{
    return pl_st_meta_get(f, LEFT_OUT) != NULL;
}

pl_status pl__frozen_absent(pl_run *r, const pl_st_reader *f, int slot, bool *absent)
{
    *absent = false;
    if (!pl__frozen_left_out(f) || pl_st_find(f, pl_store_slot(r->store, slot)->name)) return PL_OK;
    PL_TRY(pl__frozen_list(r));
    *absent = r->files.frozen[slot];
    r->files.remade[slot] |= *absent;
    return PL_OK;
}

/* Where frozen weights come from, for messages. */
static void name_sources(const pl_run *r, pl_str *text)
{
    pl_str_addf(text, "seed, init_from");
    for (const pl_weights *w = r->recipe->weights; w && w->key; w++)
        if (strcmp(w->key, "init_from") != 0) pl_str_addf(text, ", %s", w->key);
}

static pl_status fail_check(const pl_run *r, const char *path, int n, int want)
{
    pl_str sources = PL_STR_INIT;
    const char *first = "";
    for (int i = pl_store_count(r->store) - 1; i >= 0; i--)
        if (r->files.remade[i]) first = pl_store_slot(r->store, i)->name;
    name_sources(r, &sources);
    pl_status rc = pl__fail(
        PL_ERR_FILE, __FILE__, __LINE__,
        "%s leaves out %d frozen tensors, and the %d frozen tensors of this run (%s, ...) have other values: "
        "they are made from %s, and one of these has changed; checkpoint.frozen=true saves frozen tensors "
        "in checkpoints",
        path, want, n, first, sources.text ? sources.text : "");
    pl_str_release(&sources);
    return rc;
}

pl_status pl__frozen_check(pl_run *r, const char *path)
{
    pl_st_set *set;
    int n = 0, want = 0;
    uint64_t sum = 0, given = 0;
    const char *text = NULL;
    PL_TRY(pl_st_set_open(path, &set));
    for (int i = 0; i < pl_st_set_files(set) && !text; i++)
        text = pl_st_meta_get(pl_st_set_file(set, i), LEFT_OUT);
    bool told = text && sscanf(text, "%d %" SCNx64, &want, &given) == 2;
    bool lacks = text != NULL;
    pl_st_set_close(set);
    if (!lacks) return PL_OK;
    PL_TRY(pl__frozen_list(r));
    for (int i = 0; i < pl_store_count(r->store); i++) n += r->files.remade[i];
    PL_TRY(sum_slots(r, r->files.remade, &sum));
    bool same = told && n == want && sum == given;
    pl_status rc = same ? PL_OK : fail_check(r, path, n, want);
    memset(r->files.remade, 0, (size_t)pl_store_count(r->store) * sizeof *r->files.remade);
    return rc;
}
