/* spike.c - the action of a run after a step whose update the guard skipped (keys guard.*).
 *
 * The step itself has decided (src/nn/guard.c): its terms "spiked" count the steps in a row that
 * were not applied, for each optimiser. Rollback takes all slots from a checkpoint, except those
 * counts, and keeps the position in the data: the batches since the checkpoint are left out. A run
 * that is killed after a rollback resumes from the same checkpoint, meets the same spike and rolls
 * back again, so it ends with the same bits.
 */
#include "base/sys.h"
#include "plimsoll_checkpoint.h"
#include "train/files/checkpoint.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* Returns a term of the program that has the term at index i ("disc.spiked" -> "disc.usual_norm");
 * 0 if there is none. */
static double beside(const pl_step_info *info, int i, const char *name)
{
    size_t prefix = strlen(info->term_name[i]) - strlen("spiked");
    for (int k = 0; k < info->n_terms; k++)
        if (strncmp(info->term_name[k], info->term_name[i], prefix) == 0 &&
            strcmp(info->term_name[k] + prefix, name) == 0)
            return info->term[k];
    return 0;
}

static pl_status refuse(pl_run *r, const pl_step_info *info, int i, const char *why)
{
    PL_FAIL(PL_ERR_NUMERIC,
            "step %lld was not applied: gradient norm %.4g (usual %.4g), loss %.4g (usual %.4g), "
            "guard.spike is %g; %s; lower %s.lr (it is %g), set clip.norm, or raise guard.spike",
            (long long)info->step, beside(info, i, "grad_norm"), beside(info, i, "usual_norm"),
            beside(info, i, "loss"), beside(info, i, "usual_loss"),
            pl_config_float(r->config, "guard.spike"), why, pl__train_section(r), info->lr);
}

pl_status pl__guard_check(pl_run *r, pl_step_info *info)
{
    char why[96];
    int64_t limit = pl_config_int(r->config, "guard.limit");
    for (int i = 0; i < info->n_terms; i++) {
        if (!ends_with(info->term_name[i], "spiked") || !(info->term[i] > 0)) continue;
        info->spiked = true;
        if (strcmp(pl_config_text(r->config, "guard.action"), "stop") == 0)
            return refuse(r, info, i, "guard.action is stop");
        snprintf(why, sizeof why, "that is step %.0f in a row, guard.limit is %lld", info->term[i],
                 (long long)limit);
        if (info->term[i] > (double)limit) return refuse(r, info, i, why);
    }
    return PL_OK;
}

static bool counts_row(const pl_slot *s)
{
    return s->kind == PL_SLOT_COUNTER && ends_with(s->name, ".guard." PL_GUARD_ROW);
}

/* Reads (write false) or writes the counts of steps in a row, at most `most` of them. */
static pl_status move_rows(pl_run *r, float *row, int most, bool write)
{
    int n = pl_store_count(r->store);
    for (int i = 0, k = 0; i < n && k < most; i++) {
        if (!counts_row(pl_store_slot(r->store, i))) continue;
        PL_TRY(write ? pl_session_write_slot(r->session, i, 0, &row[k], sizeof *row)
                     : pl_session_read_slot(r->session, i, 0, &row[k], sizeof *row));
        k++;
    }
    return PL_OK;
}

pl_status pl_run_rollback(pl_run *r, const char *dir)
{
    enum { SECTIONS = 32 };
    float row[SECTIONS];
    pl_run_steps steps = r->steps;
    int64_t before = r->phases.steps_before;
    PL_FAIL_IF(!r->session, PL_ERR_ARG, "the run is not started");
    PL_TRY(move_rows(r, row, SECTIONS, false));
    PL_TRY(pl__checkpoint_load(r, dir));
    r->steps = steps;
    r->phases.steps_before = before;
    return move_rows(r, row, SECTIONS, true);
}
