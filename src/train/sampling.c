/* sampling.c - which sample comes when.
 *
 * An epoch visits every sample once, in an order that is a pure function of (seed, epoch). The
 * permutation is a four-round Feistel network over the next even power of two, walked until it lands
 * inside the range: no table, O(1) memory for any size, any position reached at once (so resuming
 * needs no replay of the order).
 */
#include "train/train_int.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

int64_t pl__sample_at(uint64_t seed, int64_t size, int64_t p)
{
    if (size <= 1) return 0;
    uint64_t epoch = (uint64_t)(p / size), x = (uint64_t)(p % size);
    int half = 1;
    while (((uint64_t)1 << (2 * half)) < (uint64_t)size) half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    const uint64_t key = mix(seed * 0x9E3779B97F4A7C15u + epoch + 1);
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (mix(key + (round << 56) + right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)size);
    return (int64_t)x;
}
