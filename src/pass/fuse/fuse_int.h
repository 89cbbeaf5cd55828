/* fuse_int.h - shared by the files of the fuser: the partition while it is built.
 *
 * Invariant: every unit has a number, and every edge between units goes from a lower to a higher
 * number. That keeps units a DAG (groups are convex). A node joins a group only if everything it
 * reads comes from that group or from lower numbers.
 */
#ifndef PL_PASS_FUSE_INT_H
#define PL_PASS_FUSE_INT_H

#include "ir/group/fused.h"
#include "pass/fuse/fuse.h"

#define PL_NONE UINT32_MAX

/* The size of a core member's values in its group. */
typedef enum pl_stand {
    PL_STAND_FULL, /* one value per position */
    PL_STAND_ROW,  /* one value per row, usable inside */
    PL_STAND_EDGE, /* a reduction whose result leaves the group */
    PL_STAND_SMALL /* fewer values than positions: read through the map `small` */
} pl_stand;

typedef struct pl_fgroup {
    uint32_t number;      /* of the unit */
    uint32_t n_nodes;     /* members, recomputed ones included */
    uint32_t n_loads;     /* upper bound of loads from outside */
    uint32_t first, last; /* core members through next[] */
    uint32_t extra;       /* head of the list of recomputed members, PL_NONE if none */
    int64_t elems, row;
    pl_grid grid;
    uint32_t into; /* the group it was merged into, PL_NONE */
    bool split;    /* left over from a group that could not be described (ir/group/fused.h) */
} pl_fgroup;

typedef struct pl_fextra {
    uint32_t node, next;
} pl_fextra;

/* Group `group` reads a value; gone: the read was removed. */
typedef struct pl_fread {
    uint32_t group, next;
    bool gone;
} pl_fread;

/* A unit other than a group: a kernel, a view, or an inline node that needs a buffer. */
typedef struct pl_fsingle {
    uint32_t number, node;
} pl_fsingle;

typedef struct pl_fuser {
    const pl_graph *g;
    const pl_fuse_opts *o;
    pl_arena *a; /* scratch */
    pl_role *role;
    bool *needed;         /* per node: an effect depends on it */
    uint32_t *number;     /* per value: number of the unit that computes it; 0: a source */
    uint32_t *group;      /* per node: the group of a core member; else PL_NONE */
    uint32_t *next;       /* per node: the next member of its group */
    uint8_t *stand;       /* per node: pl_stand */
    pl_amap *small;       /* per node: PL_STAND_SMALL's reading */
    uint32_t *kernel_use; /* per value: highest number of a kernel or effect that reads it */
    uint32_t *read;       /* per value: head of the groups that read it, in reads[]; PL_NONE */
    pl_fread *reads;
    uint32_t n_reads, cap_reads;
    uint32_t *reader;        /* per value: the last group that read it whole */
    bool *single;            /* per node: has a separate unit */
    uint32_t *stamp, stamps; /* per node */
    pl_fgroup *groups;
    uint32_t n_groups;
    pl_fsingle *singles;
    uint32_t n_singles;
    pl_fextra *extras;
    uint32_t n_extras, cap_extras;
    uint32_t count;       /* units numbered so far */
    uint32_t last_kernel; /* number of the newest kernel */
} pl_fuser;

/* Follows a reading through inline nodes to its root, as far as it stays affine. */
void pl_fuse_root(const pl_fuser *f, uint32_t *val, pl_amap *map);
/* Returns the map through which member `node` of a group is computed. */
pl_amap pl_fuse_map(const pl_fuser *f, const pl_fgroup *g, uint32_t node);
/* Returns the bytes of a value; assumes that bools are stored as bits where the device supports
 * it. */
static inline int64_t pl_fuse_bytes(const pl_fuser *f, uint32_t val)
{
    const pl_type *t = pl_type_of(f->g, val);
    bool bits = f->o->bits && t->dtype == PL_BOOL;
    return bits ? (pl_type_elems(t) + 7) / 8 : (int64_t)pl_type_bytes(t);
}

/* The stages, in order. */
void pl_fuse_join(pl_fuser *f);        /* fuse.c: nodes into groups */
pl_status pl_fuse_merge(pl_fuser *f);  /* fuse_merge.c: groups into their only reader */
pl_status pl_fuse_repeat(pl_fuser *f); /* fuse_repeat.c: recompute cheap producers */
pl_status pl_fuse_finish(pl_fuser *f, pl_units *out);    /* fuse_units.c */
pl_status pl_fuse_bits(const pl_fuser *f, pl_units *us); /* fuse_bits.c: which are bits */
/* fuse_product.c: products into groups */
pl_status pl_fuse_products(const pl_graph *g, const pl_fuse_opts *o, pl_units *us);

/* Returns the highest number that reads the value, other than group `except` (PL_NONE: all count).
 * Effects read last. */
uint32_t pl_fuse_last_use(const pl_fuser *f, uint32_t val, uint32_t except);
/* Returns the group that group id was merged into, or id itself. */
uint32_t pl_fuse_now(const pl_fuser *f, uint32_t id);
/* Records that a group reads a value. */
bool pl_fuse_add_read(pl_fuser *f, uint32_t val, uint32_t group);
/* Adds the boundaries of a value that is computed where it is read (a constant, a ramp, a draw). */
bool pl_fuse_add_made(const pl_fuser *f, pl_grid *grid, uint32_t val, const pl_amap *map);

/* Sets *ok: whether the group, with every result stored that can be, can be described
 * (ir/group/fused.h) within the limits of the device. */
pl_status pl_fuse_valid(pl_fuser *f, uint32_t id, bool *ok);

#endif
