/* test_base.c - the base folder: arenas, text, sizes, conversions, random draws. */
#include "tests/lib/test.h"

#include "base/arena.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/sys.h"
#include "base/threads.h"

#include <sched.h>
#include <string.h>

TEST(arena_rewind_gives_zeroed_memory_again)
{
    pl_arena a = PL_ARENA_INIT;
    CHECK(pl_arena_alloc(&a, 100) != NULL);

    pl_arena_mark m = pl_arena_mark_get(&a);
    char *p = pl_arena_alloc(&a, 1 << 20);
    CHECK(p != NULL && p[12345] == 0);
    memset(p, 7, 1 << 20);
    pl_arena_rewind(&a, m);
    char *q = pl_arena_alloc(&a, 64);
    bool zero = true;
    for (int i = 0; i < 64; i++) zero = zero && q[i] == 0;
    pl_arena_release(&a);
    CHECK(zero);
}

TEST(failing_allocation_is_reported)
{
    pl_arena a = PL_ARENA_INIT;
    pl_sys_fail_nth(1);
    void *p = pl_arena_alloc(&a, 16);
    bool hit = pl_sys_fail_hit();
    pl_sys_fail_nth(0);
    pl_arena_release(&a);
    CHECK(p == NULL && hit && strstr(pl_error_text(), "cannot allocate"));
}

/* The message of a failure may contain the message of the failure before. */
TEST(an_error_may_quote_the_error_before_it)
{
    CHECK(pl__fail(PL_ERR_IO, __FILE__, __LINE__, "cannot open %s", "a") == PL_ERR_IO);
    CHECK(pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "%s", pl_error_text()) == PL_ERR_DATA);
    CHECK(strcmp(pl_error_text(), "cannot open a") == 0);
    CHECK(pl_fail(PL_ERR_DATA, "data: %s", pl_error_text()) == PL_ERR_DATA);
    CHECK(strcmp(pl_error_text(), "data: cannot open a") == 0);
}

TEST(words_are_compared_as_people_mistype_them)
{
    static const struct {
        const char *a, *b;
        int edits;
    } cases[] = {
        {"", "", 0},           {"", "abc", 3},       {"adam", "adamw", 1},
        {"admaw", "adamw", 1}, {"admaw", "adam", 2}, {"AdamW", "adamw", 0},
        {"ba", "ab", 1},       {"ca", "abc", 3},     {"resnet", "unrelated", 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int got = pl_str_distance(cases[i].a, cases[i].b),
            back = pl_str_distance(cases[i].b, cases[i].a);
        CHECK_MSG(got == cases[i].edits && back == got, "%s %s: %d and %d edits", cases[i].a,
                  cases[i].b, got, back);
    }
}

TEST(byte_sizes_are_shown_in_the_units_of_the_budget)
{
    static const struct {
        const char *typed, *shown;
    } rows[] = {
        {"6GB", "6.00 GB"},     {"6GiB", "6.00 GiB"},    {"35.2MB", "35.2 MB"},
        {"7.5GiB", "7.50 GiB"}, {"512MB", "512.0 MB"},   {"512MiB", "512.0 MiB"},
        {"1024MB", "1.02 GB"},  {"1024MiB", "1.00 GiB"}, {"2.56MB", "2.56 MB"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t n;
        char text[32];

        CHECK_OK(pl_str_parse_bytes(rows[i].typed, &n));
        pl_str_bytes_follow(n);
        pl_str_bytes(n, text, sizeof text);

        CHECK_MSG(strcmp(text, rows[i].shown) == 0, "%s: %s", rows[i].typed, text);
    }
    pl_str_bytes_follow(1 << 30);
}

TEST(byte_sizes_parse_with_every_unit)
{
    uint64_t n;
    CHECK_OK(pl_str_parse_bytes("7.5GiB", &n));
    CHECK_INT(n, 8053063680);
    CHECK_OK(pl_str_parse_bytes("20GB", &n));
    CHECK_INT(n, 20000000000);
    CHECK(pl_str_parse_bytes("lots", &n) == PL_ERR_CONFIG);
    CHECK(pl_str_parse_bytes("-1GB", &n) == PL_ERR_CONFIG);
}

TEST(half_types_round_trip_every_value)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = pl_f16_to_f32((uint16_t)h), b = pl_bf16_to_f32((uint16_t)h);
        if (!isnan(f)) CHECK_INT(pl_f32_to_f16(f), h);
        if (!isnan(b)) CHECK_INT(pl_f32_to_bf16(b), h);
    }

    uint16_t all[64];
    float many[64];
    int differ = 0;
    for (uint32_t h = 0; h < 65536; h += 64) {
        for (uint32_t k = 0; k < 64; k++) all[k] = (uint16_t)(h + k);
        pl_f16s_to_f32(all, 64, many);
        for (uint32_t k = 0; k < 64; k++) {
            float one = pl_f16_to_f32(all[k]);
            differ += memcmp(&one, &many[k], sizeof one) != 0; /* NaN, too, bit for bit */
        }
    }
    CHECK_INT(differ, 0);

    CHECK_INT(pl_f32_to_f16(65519.996f), 0x7bff);
    CHECK_INT(pl_f32_to_f16(65520.0f), 0x7c00);
    CHECK_INT(pl_f32_to_f16(5.9604645e-8f), 1);
    CHECK(isnan((double)pl_f16_to_f32(pl_f32_to_f16(NAN))));
}

/* Known answers of Philox4x32-10 for counter and key all zeros and all ones. */
TEST(philox_gives_the_published_numbers)
{
    uint32_t w[4];
    pl_rng_block(0, 0, 0, 0, w);
    CHECK_INT(w[0], 0x6627e8d5u);
    CHECK_INT(w[1], 0xe169c58du);
    CHECK_INT(w[2], 0xbc57ac4cu);
    CHECK_INT(w[3], 0x9b00dbd8u);

    pl_rng_block(UINT64_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX, w);
    CHECK_INT(w[0], 0x408f276du);
    CHECK_INT(w[1], 0x41c83b0eu);
    CHECK_INT(w[2], 0xa20bc7c6u);
    CHECK_INT(w[3], 0x6d5451fdu);
}

TEST(cores_are_counted_by_affinity)
{
    cpu_set_t all, one;
    CHECK_INT(sched_getaffinity(0, sizeof all, &all), 0);
    CHECK_INT(pl_sys_cores(), CPU_COUNT(&all));

    int first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK_INT(sched_setaffinity(0, sizeof one, &one), 0);

    int alone = pl_sys_cores();
    CHECK_INT(sched_setaffinity(0, sizeof all, &all), 0);
    CHECK_INT(alone, 1);
}

static void mark_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    ((int *)ctx)[task]++;
}

TEST(pool_runs_every_task_once)
{
    int count[1000] = {0};
    pl_threads_for(1000, mark_task, count);
    for (int i = 0; i < 1000; i++) CHECK_INT(count[i], 1);
}
