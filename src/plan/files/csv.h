/* csv.h - offset problems and solutions as text.
 *
 * In: a header line that names the columns id, lower, upper, size and, if wanted, align, in any
 * order; other columns are ignored. Out: id,lower,upper,size,offset. Times are half-open
 * intervals [lower,upper). Ids are text, kept as written (a quoted id keeps its quotes).
 */
#ifndef PL_PLAN_FILES_CSV_H
#define PL_PLAN_FILES_CSV_H

#include "base/arena.h"
#include "plan/pack/pack.h"

typedef struct pl_pack_csv {
    char **ids; /* owned by arena, like the rest */
    pl_pack_buffer *buffers;
    size_t n;
    uint64_t align; /* least common multiple of the align column; 1 without that column */
    pl_arena arena;
} pl_pack_csv;

#define PL_PACK_CSV_INIT                                                                           \
 {                                                                                                 \
  0                                                                                                \
 }
void pl_pack_csv_release(pl_pack_csv *c);

/* PL_ERR_DATA with the line number when the text is wrong; *out is then empty. */
pl_status pl_pack_csv_parse(const char *text, size_t len, pl_pack_csv *out) PL_MUST_USE;
pl_status pl_pack_csv_read(const char *path, pl_pack_csv *out) PL_MUST_USE;
/* Sets *text to the solution; the caller frees it with pl_sys_free. */
pl_status pl_pack_csv_print(const pl_pack_csv *c, char **text, size_t *len) PL_MUST_USE;
pl_status pl_pack_csv_write(const pl_pack_csv *c, const char *path) PL_MUST_USE;

#endif
