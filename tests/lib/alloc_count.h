/* alloc_count.h - counts what the test process takes from the C library.
 *
 * alloc_count.c replaces malloc and its kin in the test binary by wrappers around glibc's own,
 * so that calls of every library are seen, ours, oneDNN's and libgomp's. Not under a sanitizer,
 * which replaces them itself.
 */
#ifndef PL_TEST_ALLOC_COUNT_H
#define PL_TEST_ALLOC_COUNT_H

#include <stdbool.h>
#include <stdint.h>

bool pl_test_allocs_counted(void); /* false in a sanitized build */
/* Calls of malloc, calloc, realloc, the aligned forms and mmap since the process began. */
uint64_t pl_test_allocs(void);

#endif
