/* test_device_far.c - ops over tensors of more than 2^31 elements on a card.
 *
 * An op is run over one image, list or matrix that is long along one dim, and over its end alone:
 * the ends of both results are the same. On the CPU, where this only tries the harness, long is
 * some dozens.
 */
#include "base/dtype.h"
#include "rt/device.h"
#include "tests/lib/test.h"
#include "tests/ops/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 96 };

/* L is the length, D twice that. */
typedef struct far_case {
    const char *op, *attr, *in[2];
    int64_t length, end; /* on a card, and of the end alone */
    bool rounds;         /* the order of sums may differ */
} far_case;

/* clang-format off */
static const far_case cases[] = {
    {"pad", "lo=[0,1,1,0], hi=[0,1,1,0], inner=[0,0,0,0], value=0.5", {"f32[1,L,3000,3]"}, 240000, 8, false},
    {"pad", "lo=[1], hi=[3], inner=[0], value=0.5", {"f32[L]"}, 2200000001, 4097, false},
    {"concat", "axis=0", {"f32[L]", "f32[L]"}, 1100000001, 1001, false},
    {"permute", "perm=[0,2,1]", {"f32[L,2000,1000]"}, 1100, 1, false},
    {"slice", "start=[0,1], stop=[L,1000], step=[2,3]", {"f32[L,1000]"}, 6600000, 64, false},
    {"unfold", "kernel=[2,2]", {"f32[1,L,3000,3]"}, 61000, 8, false},
    {"max_pool", "kernel=[2,2], stride=[1,1]", {"f32[1,L,3000,3]"}, 240000, 8, false},
    {"avg_pool", "kernel=[2,2], stride=[1,1], count_pad=false", {"f32[1,L,3000,3]"}, 240000, 8, true},
    {"resize", "size=[D,6000], mode=nearest, align_corners=false", {"f32[1,L,3000,3]"}, 61000, 8, false},
    {"add", "", {"f32[L]", "f32[L]"}, 2200000001, 4097, false},
    {"sum", "axes=[1], keep=false", {"f32[L,1000]"}, 2200000, 64, true},
    {"cumsum", "axis=1, reverse=false", {"f32[L,1000]"}, 2200000, 64, true},
    {"conv", "pad_lo=[1,1], pad_hi=[1,1]", {"f32[1,L,1000,8]", "f32[8,3,3,8]"}, 270000, 12, true},
    {"matmul", "ta=false, tb=false", {"f32[L,1024]", "f32[1024,1024]"}, 2200000, 64, true},
};
/* clang-format on */

/* One of the two runs. */
typedef struct side {
    const pl_device *dev;
    char text[3][TEXT];
    pl_case cs;
    inst t;
    void *in[2], *out[PL_MAX_OUT], *work;
    pl_exec exec;
} side;

static void put_lengths(char *to, const char *from, int64_t length)
{
    size_t n = 0;
    for (; *from && n + 24 < TEXT; from++) {
        if (*from == 'L' || *from == 'D')
            n += (size_t)snprintf(to + n, TEXT - n, "%lld",
                                  (long long)(*from == 'L' ? length : 2 * length));
        else
            to[n++] = *from;
    }
    to[n] = 0;
}

static bool side_make(side *s, const pl_device *dev, const far_case *f, int64_t length)
{
    memset(s, 0, sizeof *s);
    s->dev = dev;
    for (int i = 0; i < 2 && f->in[i]; i++) {
        put_lengths(s->text[i], f->in[i], length);
        s->cs.in[i] = s->text[i];
    }
    put_lengths(s->text[2], f->attr, length);
    s->cs.attr = s->text[2];
    return inst_new(&s->t, pl_op_find(f->op), &s->cs, 0, PL_F16);
}

static pl_status side_alloc(side *s)
{
    uint32_t nodes[1] = {s->t.node};
    pl_unit unit = {.kind = PL_UNIT_KERNEL, .n_nodes = 1, .nodes = nodes};
    PL_TRY(s->dev->prepare(s->t.g, &unit, &s->t.call, false, &s->exec));
    if (s->dev->ready) PL_TRY(s->dev->ready());
    for (int i = 0; i < s->t.n_in; i++)
        PL_TRY(s->dev->alloc(pl_type_bytes(&s->t.in_type[i]), &s->in[i]));
    for (int k = 0; k < s->t.call.n_out; k++)
        PL_TRY(s->dev->alloc(pl_type_bytes(&s->t.out_type[k]), &s->out[k]));
    return s->dev->alloc(s->exec.work_bytes, &s->work);
}

static pl_status side_run(side *s)
{
    pl_bound_unit l = {.exec = &s->exec, .call = s->t.call};
    uint32_t at;
    const void *in[2] = {s->in[0], s->in[1]};
    l.call.in = in;
    l.call.out = s->out;
    l.call.work = s->work;
    l.call.prep = s->exec.prep;
    return s->dev->run(&l, 1, NULL, &at);
}

static void side_free(side *s)
{
    for (int i = 0; i < s->t.n_in; i++) s->dev->free(s->in[i], pl_type_bytes(&s->t.in_type[i]));
    for (int k = 0; k < s->t.call.n_out; k++)
        s->dev->free(s->out[k], pl_type_bytes(&s->t.out_type[k]));
    s->dev->free(s->work, s->exec.work_bytes);
    s->dev->discard(&s->exec);
    inst_free(&s->t);
}

/* Values of input i, by the device where it makes them. */
static pl_status fill_input(side *s, int i)
{
    const pl_type *t = &s->t.in_type[i];
    pl_slot_draws from = {.seed = 5, .stream = (uint32_t)i, .init = {PL_INIT_UNIFORM, -1, 1}};
    int64_t n = pl_type_elems(t);
    if (s->dev->draw) return s->dev->draw(s->in[i], t->dtype, &from, 0, n);
    uint16_t *host = malloc((size_t)n * sizeof *host);
    uint64_t seed = 5 + (uint64_t)i;
    if (!host) return PL_ERR_MEMORY;
    for (int64_t k = 0; k < n; k++) pl_elem_set(t->dtype, host, k, pl_test_noise(&seed));
    pl_status rc = s->dev->write(s->in[i], host, (size_t)n * sizeof *host);
    free(host);
    return rc;
}

/* The end of the long side's input is the short side's. */
static pl_status copy_end(const side *from, const side *to, int i)
{
    size_t all = pl_type_bytes(&from->t.in_type[i]), bytes = pl_type_bytes(&to->t.in_type[i]);
    void *host = malloc(bytes);
    if (!host) return PL_ERR_MEMORY;
    pl_status rc = from->dev->read(host, (char *)from->in[i] + all - bytes, bytes);
    if (rc == PL_OK) rc = to->dev->write(to->in[i], host, bytes);
    free(host);
    return rc;
}

/* The last half of what the short side has: its beginning may feel where it was cut off. */
static void compare(const side *a, const side *b, bool rounds, const char *op)
{
    const pl_type *t = &b->t.out_type[0];
    size_t elem = pl_dtype_bytes(t->dtype), n = ((size_t)pl_type_elems(t) + 1) / 2,
           bytes = n * elem;
    char *x = malloc(bytes), *y = malloc(bytes);
    CHECK(x && y && bytes > 0);
    CHECK_OK(a->dev->read(x, (char *)a->out[0] + pl_type_bytes(&a->t.out_type[0]) - bytes, bytes));
    CHECK_OK(b->dev->read(y, (char *)b->out[0] + pl_type_bytes(t) - bytes, bytes));
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double p = pl_elem_get(t->dtype, x, (int64_t)i), q = pl_elem_get(t->dtype, y, (int64_t)i);
        most = fmax(most, fabs(q));
        CHECK_MSG(p == q || (rounds && fabs(p - q) <= 2e-3 * (fabs(q) + 1)),
                  "%s: %g instead of %g, %zu from the end", op, p, q, n - i);
    }
    CHECK_MSG(most > 0, "%s: nothing but zeros", op);
    free(x);
    free(y);
}

static void check_far(const pl_device *dev, const far_case *f, int64_t length)
{
    side far, end;
    CHECK_MSG(side_make(&far, dev, f, length) && side_make(&end, dev, f, f->end), "%s: %s", f->op,
              pl_error_text());
    pl_status rc = side_alloc(&far);
    if (rc == PL_OK) rc = side_alloc(&end);
    for (int i = 0; rc == PL_OK && i < far.t.n_in; i++) {
        rc = fill_input(&far, i);
        if (rc == PL_OK) rc = copy_end(&far, &end, i);
    }
    if (rc == PL_OK) rc = side_run(&far);
    if (rc == PL_OK) rc = side_run(&end);
    CHECK_MSG(rc == PL_OK, "%s: %s", f->op, pl_error_text());
    compare(&far, &end, f->rounds, f->op);
    if (getenv("PL_TEST_DEVICE"))
        printf("    %s of %.3g elements: same end\n", f->op,
               (double)pl_type_elems(&far.t.in_type[0]));
    side_free(&far);
    side_free(&end);
}

TEST(device_ops_match_the_cpu_beyond_32_bits)
{
    const char *name = getenv("PL_TEST_DEVICE");
    const pl_device *dev = NULL;
    bool card = name && strncmp(name, "cuda", 4) == 0;
    CHECK_OK(pl_device_find(name ? name : "apart", &dev));
    if (card && dev->room((uint64_t)24 << 30) != PL_OK) SKIP("the card has no 24 GiB to spare");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const far_case *f = &cases[i];
        bool list = strstr(f->in[0], "[L]") != NULL; /* nothing but the length */
        check_far(dev, f, card ? f->length : list ? 4 * f->end + 1 : 3 * f->end + 2);
    }
}
