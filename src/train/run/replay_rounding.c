/* replay_rounding.c - how far rounding alone moves the numbers of a replay.
 *
 * The first run records every value that it compares with the peer, and how far the peer is. A
 * nudged run starts from weights of which each is moved by one unit in the last place; in f32, its
 * values are as correct as the values of the first run. The largest distance between a value of the
 * first run and of the nudged runs is its spread. A difference from the peer is explained by
 * rounding when it is at most TIMES the spread: the peer rounds in every kernel, the nudge only
 * once. A wrong formula or an inexact kernel stays visible, because it differs by more than a nudge
 * does; if the spread is large, only a comparison in f64 can decide.
 */
#include "base/dtype.h"
#include "base/hash.h"
#include "base/sys.h"
#include "train/run/replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TIMES 2.0

typedef struct value {
    char name[128];
    pl_type type;
    void *first; /* the first run's numbers; NULL: the peer agrees, the value is not followed */
    double distance, spread;
} value;

struct pl_rounding {
    value *value;
    int n, cap, next;
};

pl_rounding *pl__rounding_new(void)
{
    return pl_sys_alloc(sizeof(pl_rounding));
}

void pl__rounding_free(pl_rounding *r)
{
    for (int i = 0; r && i < r->n; i++) pl_sys_free(r->value[i].first);
    if (r) pl_sys_free(r->value);
    pl_sys_free(r);
}

void pl__rounding_rewind(pl_rounding *r)
{
    r->next = 0;
}

void pl__rounding_nudge(int nudge, int slot, float *x, int64_t n)
{
    uint64_t key = pl_mix64(((uint64_t)nudge << 32) + (uint64_t)slot);
    for (int64_t i = 0; i < n; i++)
        x[i] = nextafterf(x[i], pl_mix64(key + (uint64_t)i) & 1 ? INFINITY : -INFINITY);
}

static pl_status append(pl_rounding *r, const char *name, const pl_type *t, const void *numbers,
                        double distance, bool differs)
{
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 64;
        value *more = pl_sys_alloc((size_t)cap * sizeof *more);
        if (!more) return PL_ERR_MEMORY;
        if (r->n) memcpy(more, r->value, (size_t)r->n * sizeof *more);
        pl_sys_free(r->value);
        r->value = more;
        r->cap = cap;
    }
    value *v = &r->value[r->n++];
    *v = (value){.type = *t, .distance = distance};
    snprintf(v->name, sizeof v->name, "%s", name);
    if (!differs) return PL_OK;
    size_t bytes = pl_type_bytes(t);
    v->first = pl_sys_alloc(bytes + 1);
    if (!v->first) return PL_ERR_MEMORY;
    memcpy(v->first, numbers, bytes);
    return PL_OK;
}

static double distance_of(const pl_type *t, const void *x, const void *y)
{
    double s = 0;
    for (int64_t i = 0; i < pl_type_elems(t); i++) {
        double d = pl_elem_get(t->dtype, x, i) - pl_elem_get(t->dtype, y, i);
        s += d * d;
    }
    return sqrt(s);
}

pl_status pl__rounding_record(pl_replaying *p, const char *name, const pl_type *t,
                              const void *numbers, double distance, bool differs)
{
    pl_rounding *r = p->rounding;
    if (p->nudge == 0) return append(r, name, t, numbers, distance, differs);
    PL_FAIL_IF(
        r->next >= r->n || !pl_type_equal(&r->value[r->next].type, t), PL_ERR_ARG,
        "the replay with rounded inputs compares other tensors than the first replay, from \"%s\" "
        "on",
        name);
    value *v = &r->value[r->next++];
    if (!v->first) return PL_OK;
    double far = distance_of(t, numbers, v->first);
    if (far > v->spread) v->spread = far;
    return PL_OK;
}

int pl__rounding_judge(const pl_rounding *r, int *explained, char *text, size_t cap)
{
    int differ = 0;
    double worst = 0;
    *explained = 0;
    text[0] = 0;
    for (int i = 0; i < r->n; i++) {
        const value *v = &r->value[i];
        if (!v->first) continue;
        differ++;
        if (!(v->distance <= TIMES * v->spread)) continue;
        ++*explained;
        if (v->distance <= worst * v->spread) continue;
        worst = v->distance / v->spread;
        snprintf(text, cap, "%s: %.3g from the peer, %.3g between nudged runs", v->name,
                 v->distance, v->spread);
    }
    return differ;
}
