/* level.h - levels of memory below the device, and the channels between them.
 *
 *     device  --DOWN-->  host  --WRITE-->  disk
 *             <---UP---        <--READ---
 *
 * On the CPU, whose device memory is the host's, READ and WRITE join device and disk. With all
 * three levels a value goes from device to disk and back through the host, by two moves.
 *
 * A value or a slot whose level is not the device is never touched by a kernel: a move brings a
 * copy of it to the arena, or takes a copy away.
 */
#ifndef PL_IR_LEVEL_H
#define PL_IR_LEVEL_H

#include <stdint.h>

typedef enum pl_memory_level {
    PL_LEVEL_DEVICE, /* arena and state */
    PL_LEVEL_HOST,   /* one block of pinned host memory; devices with their own memory only */
    PL_LEVEL_DISK,   /* one file */
    PL_N_LEVELS
} pl_memory_level;

typedef enum pl_channel {
    PL_CHANNEL_DOWN,  /* device to host */
    PL_CHANNEL_UP,    /* host to device */
    PL_CHANNEL_WRITE, /* to disk */
    PL_CHANNEL_READ,  /* from disk */
    PL_N_CHANNELS
} pl_channel;

/* Every offset and every size at a lower level is a multiple of this: direct file I/O needs it. */
#define PL_LEVEL_ALIGN 4096u

static inline uint64_t pl_level_round_up(uint64_t bytes)
{
    return (bytes + PL_LEVEL_ALIGN - 1) / PL_LEVEL_ALIGN * PL_LEVEL_ALIGN;
}

/* Returns the channel of a move between two levels. */
static inline pl_channel pl_channel_between(unsigned from, unsigned to)
{
    if (to == PL_LEVEL_DISK) return PL_CHANNEL_WRITE;
    if (from == PL_LEVEL_DISK) return PL_CHANNEL_READ;
    return from == PL_LEVEL_DEVICE ? PL_CHANNEL_DOWN : PL_CHANNEL_UP;
}

/* Where the slots of a store live. */
typedef struct pl_homes {
    uint32_t n;                  /* slots; slots beyond are on the device */
    uint8_t *level;              /* per slot: enum pl_memory_level */
    uint64_t *offset;            /* per slot below the device: in its level's block */
    uint64_t bytes[PL_N_LEVELS]; /* what slots take of each level's block, from offset 0 on */
} pl_homes;

/* Returns the level of a slot; homes may be NULL: all slots are on the device. */
static inline uint8_t pl_home_level(const pl_homes *h, int slot)
{
    return h && slot >= 0 && (uint32_t)slot < h->n ? h->level[slot] : PL_LEVEL_DEVICE;
}

#endif
