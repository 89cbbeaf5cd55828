/* guarded.h - memory with guard bytes, which finds kernels that write outside their operands.
 *
 *     | guard | data, bytes | guard |        data is aligned to 64 bytes, or lies `off` past that
 *
 * The address sanitizer sees reads past the end too, if nothing lies there: in its builds a block
 * has no guards.
 */
#ifndef PL_TESTS_GUARDED_H
#define PL_TESTS_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

typedef struct guarded_block {
    unsigned char *base, *data;
    size_t bytes;
} guarded_block;

/* Returns a block whose data and guards hold GUARDED_BYTE; ends the process without memory.
 * guarded_free releases the block. */
enum { GUARDED_BYTE = 0xA5 };
guarded_block guarded_new(size_t bytes);
/* The same with data `off` bytes past an aligned address. */
guarded_block guarded_new_at(size_t bytes, size_t off);
/* Returns a new block with the data of b. */
guarded_block guarded_copy(const guarded_block *b);
/* Writes `byte` to all data. */
void guarded_fill(guarded_block *b, int byte);
/* Whether every guard byte is as guarded_new left it. */
bool guarded_intact(const guarded_block *b);
void guarded_free(guarded_block *b);
void guarded_free_all(guarded_block *b, int n);

#endif
