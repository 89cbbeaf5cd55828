/* test_init.c - initial state against its definition, element by element. */
#include "base/dtype.h"
#include "base/rng.h"
#include "base/threads.h"
#include "plimsoll_ops.h"
#include "plimsoll_unstable.h"
#include "tests/cudasim/sim.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { N = 1100003 }; /* several parts of the host's block, not a multiple of anything */

static const pl_slot slots[] = {
    {.name = "normal", .type = {{N}, 1, PL_F32}, .init = {PL_INIT_NORMAL, 0.5, 0.02}},
    {.name = "even", .type = {{N}, 1, PL_F32}, .init = {PL_INIT_UNIFORM, -0.25, 0.75}},
    {.name = "half", .type = {{N}, 1, PL_F16}, .init = {PL_INIT_UNIFORM, 1, 2}},
    {.name = "tight", .type = {{N}, 1, PL_BF16}, .init = {PL_INIT_UNIFORM, 1, 1.006}},
    {.name = "brain", .type = {{N}, 1, PL_BF16}, .init = {PL_INIT_NORMAL, 0, 1}},
    {.name = "wide", .type = {{1003}, 1, PL_F64}, .init = {PL_INIT_UNIFORM, 0, 1}},
    {.name = "ones", .type = {{3 * N}, 1, PL_BF16}, .init = {PL_INIT_CONST, 1, 0}},
    {.name = "zeros", .type = {{N}, 1, PL_F32}, .init = {PL_INIT_CONST, 0, 0}},
    {.name = "count", .type = {{7}, 1, PL_I64}, .init = {PL_INIT_CONST, -3, 0}},
};
enum { N_SLOTS = sizeof slots / sizeof *slots };

/* The definition of plimsoll.h: a function of seed, name and index. */
static void expected(const pl_slot *slot, uint64_t seed, int64_t i, void *out)
{
    uint64_t h = XXH64(slot->name, strlen(slot->name), 0);
    uint32_t w[4];
    float z[4];
    double a = slot->init.a, b = slot->init.b, v = a;
    pl_rng_block(seed ^ (h & 0xffffffff00000000u), (uint32_t)h, 0, (uint64_t)i / 4, w);
    pl_rng_normal2(w[0], w[1], z);
    pl_rng_normal2(w[2], w[3], z + 2);
    if (slot->init.kind == PL_INIT_NORMAL) v = a + b * (double)z[i % 4];
    if (slot->init.kind == PL_INIT_UNIFORM) v = a + (b - a) * (double)pl_rng_uniform(w[i % 4]);
    pl_elem_set(slot->type.dtype, out, 0, v);
    if (slot->init.kind == PL_INIT_UNIFORM && pl_elem_get(slot->type.dtype, out, 0) >= b)
        pl_elem_set(slot->type.dtype, out, 0, a);
}

static void check_slot(pl_session *s, int at, uint64_t seed)
{
    const pl_slot *slot = &slots[at];
    size_t elem = pl_dtype_bytes(slot->type.dtype);
    int64_t n = pl_type_elems(&slot->type), wrong = 0;
    char *got = malloc((size_t)n * elem), want[8];
    CHECK(got != NULL);
    CHECK_OK(pl_session_read_slot(s, at, 0, got, (size_t)n * elem));
    for (int64_t i = 0; i < n; i += i < n - 60000 ? 7 : 1) { /* the end has the last parts */
        expected(slot, seed, i, want);
        wrong += memcmp(want, got + (size_t)i * elem, elem) != 0;
    }
    free(got);
    CHECK_MSG(wrong == 0, "%s: %lld of %lld elements are not those of the definition", slot->name,
              (long long)wrong, (long long)n);
}

static pl_program *nothing_to_do(pl_store *store, const char *device)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_graph *g = pl_graph_new(store);
    pl_program *p = NULL;
    o.device = device;
    pl_output(g, "y", pl_neg(g, pl_input(g, "x", PL_TYPE(PL_F32, 4))));
    return pl_compile(g, &o, &p) == PL_OK ? p : NULL;
}

static void check_device(const char *device)
{
    pl_store *store = pl_store_new();
    pl_session *s = NULL;
    for (int i = 0; i < N_SLOTS; i++) CHECK_INT(pl_store_add(store, &slots[i]), i);
    pl_program *p = nothing_to_do(store, device);
    CHECK_MSG(p != NULL, "%s", pl_error_text());
    CHECK_OK(pl_session_new(store, 1, &p, &s));
    CHECK_OK(pl_session_init(s, 5));
    CHECK_OK(pl_session_init(s, 77)); /* over other contents, zeros too */
    for (int i = 0; i < N_SLOTS; i++) check_slot(s, i, 77);
    pl_session_free(s);
    pl_program_free(p);
    pl_store_free(store);
}

TEST(init_values_match_their_definition)
{
    check_device("cpu");
    check_device("apart");
}

TEST(device_initial_values_match_their_definition)
{
    const char *device = getenv("PL_TEST_DEVICE");
    check_device(device ? device : "apart");
}

/* A GPU generates the values itself: the same bits, wherever a part begins and however it is
 * aligned. */
static void check_part(const pl_slot *slot, int64_t first, int64_t n, size_t offset)
{
    size_t elem = pl_dtype_bytes(slot->type.dtype);
    uint64_t h = XXH64(slot->name, strlen(slot->name), 0), seed = 77 ^ (h & 0xffffffff00000000u);
    char *got = malloc(((size_t)n + 8) * elem), want[8], guard[8];
    int64_t wrong = 0;
    CHECK(got != NULL);
    memset(got, 0xee, ((size_t)n + 8) * elem);
    memset(guard, 0xee, sizeof guard);
    char *at = got + offset * elem;
    CHECK_OK(pl_cuda_start_values(at, slot->type.dtype, seed, (uint32_t)h, &slot->init, first, n));
    for (int64_t i = 0; i < n; i++) {
        expected(slot, 77, first + i, want);
        wrong += memcmp(want, at + (size_t)i * elem, elem) != 0;
    }
    CHECK_MSG(wrong == 0, "%s from %lld: %lld of %lld elements are not those of the definition",
              slot->name, (long long)first, (long long)wrong, (long long)n);
    CHECK_MSG(memcmp(at + (size_t)n * elem, guard, elem) == 0, "%s: writes behind its end",
              slot->name);
    CHECK_MSG(!offset || memcmp(at - elem, guard, elem) == 0, "%s: writes before its beginning",
              slot->name);
    free(got);
}

TEST(init_on_a_card_has_the_same_bits)
{
    pl_slot minus = {.name = "minus", .type = {{9}, 1, PL_F32}, .init = {PL_INIT_CONST, -0.0, 0}};
    check_part(&minus, 0, 9, 0);
    for (int i = 0; i < N_SLOTS; i++) {
        if (!pl_dtype_is_float(slots[i].type.dtype)) continue;
        check_part(&slots[i], 0, 9999, 0);
        check_part(&slots[i], 0, 4096, 1);
        check_part(&slots[i], 70001, 3001, 0);
        check_part(&slots[i], 70002, 1, 3);
        /* a block's number takes both words */
        check_part(&slots[i], ((int64_t)1 << 33) + 3, 517, 0);
    }
}

/* Truncated draws lie within their bounds, keep the shape of the distribution, and are the normal
 * draws where those are within; a slot that begins with data has these bytes. */
TEST(init_truncated_and_given_values_match_their_definition)
{
    enum { M = 100003 };
    static const int32_t given[6] = {7, -1, 0, 2147483647, 5, 6};
    const pl_slot normal = {.name = "w", .type = {{M}, 1, PL_F32}, .init = {PL_INIT_NORMAL, 0, 1}};
    pl_slot cut = normal, table = {.name = "t", .type = {{2, 3}, 2, PL_I32}};
    cut.init = (pl_init){.kind = PL_INIT_TRUNC_NORMAL, .a = 0, .b = 1, .lo = -1, .hi = 2};
    table.init = (pl_init){.kind = PL_INIT_DATA, .data = given};
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    int at = pl_store_add(store, &cut), of = pl_store_add(store, &table);
    pl_output(g, "y", pl_sum(g, pl_state(g, at), PL_AXES_ALL, false));
    pl_output(g, "t", pl_state(g, of));
    pl_program *p = NULL;
    pl_session *s = NULL;
    CHECK_OK(pl_compile(g, NULL, &p));
    CHECK_OK(pl_session_new(store, 1, &p, &s));

    CHECK_OK(pl_session_init(s, 3));

    const float *w = pl_session_slot(s, at);
    double sum = 0, squares = 0;
    int same = 0, within = 0;
    for (int64_t i = 0; i < M; i++) {
        float z;
        expected(&normal, 3, i, &z);
        CHECK(w[i] >= -1 && w[i] <= 2);
        if (z >= -1 && z <= 2) within++, same += z == w[i];
        sum += (double)w[i];
        squares += (double)w[i] * (double)w[i];
    }
    CHECK_INT(same, within);
    /* mean (f(-1) - f(2)) / (F(2) - F(-1)) and second moment of a standard normal in [-1, 2] */
    CHECK_NEAR(sum / M, 0.22964, 0.01);
    CHECK_NEAR(squares / M, 1 + (-0.241971 - 2 * 0.053991) / 0.818595, 0.01);
    CHECK(memcmp(pl_session_slot(s, of), given, sizeof given) == 0);
    pl_session_free(s);
    pl_program_free(p);
    pl_store_free(store);
}
