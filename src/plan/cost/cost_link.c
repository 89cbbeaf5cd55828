/* cost_link.c - see cost_link.h.
 *
 * A ring moves the fewest bytes but pays one latency for every rank; a tree pays latencies for the
 * logarithm of the ranks but moves twice the bytes for a sum. Libraries use the faster one, and so
 * does the estimate. The slowest level that a ring passes bounds its bandwidth; latencies add up.
 */
#include "plan/cost/cost_link.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct profile {
    const char *name, *about;
    pl_link_level level;
} profile;

#define PL_LINK(name, about, gbs, us) {name, about, {(gbs)*1e9, (us)*1e3}},
static const profile profiles[] = {
#include "plan/cost/links.def"
};
#undef PL_LINK

static pl_status find(const char *name, size_t n, pl_link_level *out)
{
    char list[256] = "";
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        if (strlen(profiles[i].name) == n && memcmp(profiles[i].name, name, n) == 0) {
            *out = profiles[i].level;
            return PL_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", profiles[i].name);
    }
    PL_FAIL(PL_ERR_CONFIG,
            "unknown link \"%.*s\"; known links: %s; two levels are written as nvlink/8+ib", (int)n,
            name, list);
}

pl_status pl_link_parse(const char *text, pl_rank_link *out)
{
    const char *slash = strchr(text, '/'), *plus = strchr(text, '+');
    *out = (pl_rank_link){.per_node = 0};
    PL_TRY(find(text, slash ? (size_t)(slash - text) : strlen(text), &out->inner));
    if (!slash) return PL_OK;
    out->per_node = atoi(slash + 1);
    PL_FAIL_IF(!plus || out->per_node < 1, PL_ERR_CONFIG,
               "link \"%s\": two levels are written LINK/RANKS+LINK, e.g. nvlink/8+ib", text);
    return find(plus + 1, strlen(plus + 1), &out->outer);
}

double pl_link_ns(const pl_rank_link *l, const pl_cost *c)
{
    bool two = l->per_node && c->k > l->per_node;
    double nodes = two ? ceil(c->k / l->per_node) : 1, inside = two ? l->per_node : c->k;
    double bandwidth = two ? fmin(l->inner.bandwidth, l->outer.bandwidth) : l->inner.bandwidth;
    double passes = c->n / fmax(c->k - 1, 1); /* 2 for a sum that comes back, else 1 */
    double hops = passes * ((inside - 1) * l->inner.latency_ns + (nodes - 1) * l->outer.latency_ns);
    double logs = passes * (ceil(log2(inside)) * l->inner.latency_ns +
                            ceil(log2(nodes)) * l->outer.latency_ns);
    double ring = hops + 1e9 * c->m / bandwidth;
    double tree = logs + 1e9 * c->m / bandwidth * c->k / fmax(c->k - 1, 1);
    return fmin(ring, tree);
}
