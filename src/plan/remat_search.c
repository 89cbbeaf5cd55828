/* remat_search.c - many runs of the simulator: a grid of settings, then perturbed weights.
 *
 * No single setting of the eviction score wins everywhere, so all of the grid run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/sys.h"
#include "plan/remat_int.h"

static const float size_powers[] = {1, 0.5f, 1.5f}, gap_powers[] = {0.5f, 1, 0.25f, 0},
                   kins[] = {0.3f, 0, 1};

pl_status pl__remat_grid(pl__remat_best *b, pl__remat_sim *sim)
{
    for (int t = 0; t < 1; t++)
    for (int i = 0; i < 36; i++) {
        pl__remat_setting set = {.size_power = size_powers[i % 3], .gap_power = gap_powers[i / 3 % 4],
                                 .kin = kins[i / 12], .tight = 1, .by_index = getenv("IDX")!=NULL};
        bool ok, better;
        double limit = b->seq.n ? b->seq.cost * 1.5 : INFINITY;
        uint64_t t0 = pl_sys_now_ns();
        PL_TRY(pl__remat_sim_run(sim, &set, b->budget, NULL, limit, &ok));
        uint64_t t1 = pl_sys_now_ns();
        if (getenv("V")) printf("B %.2f G %.2f L %.2f: %s %.4f  %.1f ms work %.1f\n", set.size_power, set.gap_power, set.kin,
         ok?"ok":"-", pl__remat_sim_seq(sim)->cost/b->m->base_cost,(double)(t1-t0)/1e6, (double)pl__remat_sim_work(sim)/1e6);
        if (!ok) continue;
        PL_TRY(pl__remat_offer(b, pl__remat_sim_seq(sim)->op, pl__remat_sim_seq(sim)->n, "grid", &better));
        if (getenv("V")) printf("   filled %.4f %.1f ms peak %.4f\n", b->work.cost/b->m->base_cost,(double)(pl_sys_now_ns()-t1)/1e6, (double)b->work.peak/(double)b->budget);
    }
    return PL_OK;
}

pl_status pl__remat_search(pl__remat_best *b, pl__remat_sim *sim)
{
    (void)b; (void)sim;
    return PL_OK;
}
pl_status pl__remat_chain(pl__remat_best *b) { (void)b; return PL_OK; }
pl_status pl__remat_exact(pl__remat_best *b) { (void)b; return PL_OK; }
