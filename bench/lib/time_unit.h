/* time_unit.h - the time of one unit of a program on a device.
 *
 * Operands are random numbers. A time is that of one call among many equal calls, replayed as one
 * CUDA graph, as in a step, so it excludes the host time to enqueue the call, which is longer than
 * many kernels. The shortest of several replays counts.
 */
#ifndef PL_BENCH_TIME_UNIT_H
#define PL_BENCH_TIME_UNIT_H

#include "base/dtype.h"
#include "base/sys.h"
#include "plimsoll.h"
#include "rt/device.h"
#include "rt/rt_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLAYS = 5, MOST_CALLS = 24, RANDOM = 1 << 20 };

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, pl_error_text());
    exit(1);
}

static void *random_operand(const pl_device *dev, const pl_type *t)
{
    int64_t drawn = pl_type_elems(t) < RANDOM ? pl_type_elems(t) : RANDOM;
    size_t bytes = pl_type_bytes(t), period = (size_t)drawn * pl_dtype_bytes(t->dtype);
    void *p = NULL;
    char *host = pl_sys_alloc(period + 1);
    uint32_t s = 12345;
    if (!host || dev->alloc(bytes + 64, &p) != PL_OK) die("memory");
    for (int64_t i = 0; i < drawn; i++) {
        s = s * 1664525u + 1013904223u;
        pl_elem_set(t->dtype, host, i, (double)s / 2147483648.0 - 1);
    }
    for (size_t at = 0; period && at < bytes; at += period)
        if (dev->write((char *)p + at, host, bytes - at < period ? bytes - at : period) != PL_OK)
            die("write");
    pl_sys_free(host);
    return p;
}

/* Milliseconds of one of n calls in a graph. */
static double replayed(const pl_device *dev, const pl_bound_unit *list, uint32_t n)
{
    const pl_capture_plan plan = {.units = list, .n_units = n};
    void *captured = NULL;
    uint32_t failed;
    double least = 0;
    if (dev->capture_new(&plan, &captured, &failed) != PL_OK) die("record");
    for (int i = 0; i <= REPLAYS; i++) {
        if (dev->capture_run(captured, 0, false) != PL_OK ||
            dev->capture_wait(captured, 0) != PL_OK)
            die("run");
        double ms = dev->capture_ms(captured, 0) / n;
        if (i == 1 || (i > 1 && ms < least)) least = ms;
    }
    dev->capture_free(captured);
    return least;
}

/* As many calls as take about two milliseconds. */
static double time_launch(const pl_device *dev, const pl_exec *e, const pl_call *c)
{
    const double ALL_MS = 2;
    pl_bound_unit list[MOST_CALLS];
    uint64_t ns[2] = {0};
    uint32_t failed, n = MOST_CALLS;
    for (int i = 0; i < MOST_CALLS; i++) list[i] = (pl_bound_unit){.exec = e, .call = *c};
    if (dev->run(list, 2, ns, &failed) != PL_OK) die("run");
    while (n > 1 && (double)ns[1] * 1e-6 * n > ALL_MS) n--;
    return replayed(dev, list, n);
}

/* Milliseconds of the unit's call; the kernel's name in `name`. Infinite where the kernel is
 * `unless`. */
static double time_call(const pl_program *p, uint32_t unit, bool plainest, const char *unless,
                        const char **name)
{
    const pl_device *dev = p->dev;
    pl_call c = p->call[unit];
    pl_exec e = {0};
    void *in[8], *out[4], *work = NULL;
    if (dev->prepare(p->base_graph, &p->base_units->unit[unit], &c, plainest, &e) != PL_OK ||
        dev->ready() != PL_OK)
        die("prepare");
    *name = e.kernel->name;
    if (unless && strcmp(*name, unless) == 0) {
        dev->discard(&e);
        return HUGE_VAL;
    }
    for (int i = 0; i < c.n_in; i++) in[i] = random_operand(dev, &c.in_type[i]);
    for (int k = 0; k < c.n_out; k++)
        if (dev->alloc(pl_type_bytes(&c.out_type[k]) + 64, &out[k]) != PL_OK) die("memory");
    if (e.work_bytes && dev->alloc(e.work_bytes, &work) != PL_OK) die("memory");
    c.in = (const void *const *)in;
    c.out = out;
    c.work = work;
    c.prep = e.prep;
    double ms = time_launch(dev, &e, &c);
    for (int i = 0; i < c.n_in; i++) dev->free(in[i], pl_type_bytes(&c.in_type[i]) + 64);
    for (int k = 0; k < c.n_out; k++) dev->free(out[k], pl_type_bytes(&c.out_type[k]) + 64);
    if (work) dev->free(work, e.work_bytes);
    dev->discard(&e);
    return ms;
}

#endif
