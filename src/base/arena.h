/* arena.h - bump allocation with one lifetime.
 *
 * An arena returns zeroed, 16-byte aligned blocks from chunks that it allocates through sys.h, and
 * frees everything at once. Mark and rewind free the tail: tables of one pass live between a mark
 * and a rewind. Under AddressSanitizer rewound bytes are poisoned.
 */
#ifndef PL_BASE_ARENA_H
#define PL_BASE_ARENA_H

#include "base/err.h"

PL_SHARED_BEGIN

typedef struct pl_arena_chunk pl_arena_chunk;
typedef struct pl_arena {
    pl_arena_chunk *head; /* the chunk being filled */
    size_t used;          /* bytes used in it */
    size_t total;         /* bytes taken from the system */
} pl_arena;
typedef struct pl_arena_mark {
    pl_arena_chunk *head;
    size_t used;
} pl_arena_mark;

#define PL_ARENA_INIT                                                                              \
 {                                                                                                 \
  0                                                                                                \
 }
void pl_arena_release(pl_arena *a); /* leaves an empty, usable arena */
/* Returns NULL with the message set when the system is out of memory. */
void *pl_arena_alloc(pl_arena *a, size_t bytes);
char *pl_arena_strdup(pl_arena *a, const char *s);
char *pl_arena_strndup(pl_arena *a, const char *s, size_t n);
char *pl_arena_printf(pl_arena *a, const char *fmt, ...) PL_PRINTF(2, 3);
pl_arena_mark pl_arena_mark_get(const pl_arena *a);
void pl_arena_rewind(pl_arena *a, pl_arena_mark m);

/* pl_arena_new(a, T, n): n zeroed T's. */
#define pl_arena_new(a, T, n) ((T *)pl_arena_alloc((a), sizeof(T) * (size_t)(n)))

PL_SHARED_END

#endif
