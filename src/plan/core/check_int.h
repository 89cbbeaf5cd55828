/* check_int.h - shared by the files of the checker (check.c); the planner uses none of it. */
#ifndef PL_PLAN_CHECK_INT_H
#define PL_PLAN_CHECK_INT_H

#include "plan/core/plan.h"

/* ---- check_bits.c ---- */
/* Fails with PL_ERR_PLAN and says what is wrong, at which unit (PL_NO_UNIT: at the end of the run),
 * with which value (0: none). */
pl_status pl_check_wrong(const pl_graph *g, const pl_units *units, uint32_t unit, const char *what,
                         uint32_t val) PL_MUST_USE;
/* Checks that only groups read and write bit-packed values, and that moves keep them packed. */
pl_status pl_check_bits(const pl_graph *g, const pl_units *units) PL_MUST_USE;

/* ---- check_line.c: a line of bytes, each with the tag of its last write --------------- */
/* Bytes from `at` on hold bytes of the content from `off` on. */
typedef struct pl_check_line_tag {
    uint32_t content; /* value id, or n_vals + slot for a slot's old value */
    uint64_t at, off;
} pl_check_line_tag;

typedef struct pl_check_line {
    uint64_t *border; /* sorted addresses; leaf i is [border[i], border[i+1]) */
    uint32_t n_borders, n_leaves;
    uint32_t *tree;          /* tag of a whole subtree, or mixed */
    pl_check_line_tag *tags; /* [0] is garbage */
    uint32_t n_tags;
} pl_check_line;

/* ranges: limit of the ranges that it reports; writes: limit of the writes. */
pl_status pl_check_line_new(pl_arena *mem, size_t ranges, size_t writes,
                            pl_check_line *out) PL_MUST_USE;
/* Adds an address at which a range begins or ends; after the last, pl_check_line_close. */
void pl_check_line_border(pl_check_line *l, uint64_t at);
void pl_check_line_close(pl_check_line *l);
/* Writes a range and returns its tag. */
uint32_t pl_check_line_write(pl_check_line *l, uint64_t lo, uint64_t hi, uint32_t content,
                             uint64_t off);
/* Returns the tag that all bytes of the range carry; UINT32_MAX: they carry several. */
uint32_t pl_check_line_read(const pl_check_line *l, uint64_t lo, uint64_t hi);
/* Returns the content of a tag; NULL: several tags, or garbage. */
const pl_check_line_tag *pl_check_line_tag_of(const pl_check_line *l, uint32_t tag);

#endif
