/* str.h - a growing text buffer with sticky failure, and small text helpers. */
#ifndef PL_BASE_STR_H
#define PL_BASE_STR_H

#include "base/err.h"

PL_SHARED_BEGIN

typedef struct pl_str {
    char *text; /* NUL-terminated once anything was added; NULL before */
    size_t len, cap;
    bool failed; /* memory ran out: later additions do nothing */
} pl_str;

#define PL_STR_INIT                                                                                \
 {                                                                                                 \
  0                                                                                                \
 }
void pl_str_release(pl_str *s);
void pl_str_add(pl_str *s, const char *text);
void pl_str_addn(pl_str *s, const char *text, size_t n);
void pl_str_addf(pl_str *s, const char *fmt, ...) PL_PRINTF(2, 3);
/* Moves the text out (caller frees with pl_sys_free); ERR_MEMORY if anything failed. */
pl_status pl_str_take(pl_str *s, char **out) PL_MUST_USE;

/* Returns the edit distance with swaps, case ignored, for "did you mean"; capped above 4. */
int pl_str_distance(const char *a, const char *b);
/* Writes "1.50 GiB", "12.0 MiB" or "340 B" to buf; "1.61 GB" in powers of 1000 after
 * pl_str_bytes_follow. Returns buf. */
const char *pl_str_bytes(uint64_t bytes, char *buf, size_t cap);
/* Makes texts of sizes follow a budget: powers of 1000 where the budget is a round number of them,
 * of 1024 where it is one of those; any other changes nothing. */
void pl_str_bytes_follow(uint64_t typed);
bool pl_str_bytes_decimal(void);
/* Parses "7.5GiB", "20GB", "512M", "1048576" to bytes (GB = 1e9, GiB = 2^30, G = 2^30). */
pl_status pl_str_parse_bytes(const char *text, uint64_t *out) PL_MUST_USE;

PL_SHARED_END

#endif
