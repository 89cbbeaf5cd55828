/* levels_oracle.h - the shortest step of a small problem with three levels of memory, for tests
 * only.
 *
 * Time is counted in ticks, memory in blocks. Units first run in their order and make one value
 * each. A value may be dropped and recomputed, or copied to the host, from there to disk, and back;
 * copies run beside units, one at a time on each channel. */
#ifndef PL_TESTS_LEVELS_ORACLE_H
#define PL_TESTS_LEVELS_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LEVELS_MAX_UNITS = 24,
    LEVELS_MAX_VALUES = 32,
    LEVELS_NO_UNIT = 255,
    LEVELS_UNKNOWN = UINT32_MAX
};

typedef struct levels_case {
    uint32_t n_units, n_values;
    uint32_t cost[LEVELS_MAX_UNITS];     /* ticks */
    uint32_t reads[LEVELS_MAX_UNITS];    /* values as bits */
    uint32_t makes[LEVELS_MAX_UNITS];    /* value */
    uint32_t made_by[LEVELS_MAX_VALUES]; /* unit; LEVELS_NO_UNIT: there from the start */
    uint32_t blocks[LEVELS_MAX_VALUES];
    uint32_t on_host, on_disk; /* values as bits: slots that live there, and are only read */
    uint32_t wanted;           /* values as bits: on the device at the end */
    uint32_t device_blocks;
    uint32_t host_blocks; /* without slots; 0: there is no host, values move to disk directly */
    bool has_disk;        /* with room for everything */
    uint32_t ticks[4];    /* of a block on each channel: down, up, write, read */
} levels_case;

/* Returns the least ticks of a step, at most `known`, the ticks of a schedule that is known
 * (LEVELS_UNKNOWN: none). *proven is false when more than max_states states were seen: then no
 * schedule is shorter than what is returned, and perhaps none is as short. */
uint32_t levels_oracle(const levels_case *c, uint32_t known, uint32_t max_states, bool *proven);

#endif
