/* step_line.c - the progress line of a terminal.
 *
 *   [00:15:23] Epoch 5/100 | Batch 127/500 | 2.80 s/batch | loss 0.0931 | kl 0.4013 |
 *       lr 2.3e-03 | GPU 14.2/16.0 GiB | host 1.2 GiB | wait 1% | ETA 1 h 59 min
 *
 * On a narrow terminal these fields are dropped, in this order: learning rate, host memory,
 * waiting, memory, rate, terms of the loss. The loss and the time left always stay.
 */
#include "cli/ui.h"
#include "monitor.h"

#include <math.h>
#include <string.h>

/* Writes epoch and batch, or the step where the data set has no end. */
static void put_where(const monitor *m, const pl_step_info *s, char *out, size_t cap)
{
    int64_t step = s->step - m->before, steps = m->steps - m->before;
    int n = m->phase ? snprintf(out, cap, "%s | ", m->phase) : 0;
    double batches = s->epoch > 0 ? round((double)step / s->epoch) : 0;
    out += n;
    cap -= (size_t)n;
    if (batches < 1) {
        snprintf(out, cap, "Step %lld/%lld", (long long)step, (long long)steps);
        return;
    }
    int64_t per = (int64_t)batches, epoch = (step - 1) / per + 1;
    snprintf(out, cap, "Epoch %lld/%lld | Batch %lld/%lld", (long long)epoch,
             (long long)((steps + per - 1) / per), (long long)((step - 1) % per + 1),
             (long long)per);
}

static void put_memory(monitor *m, bool both, char *out, size_t cap)
{
    const double giga = pl_bytes_decimal() ? 1e9 : 0x1p30;
    const char *unit = pl_bytes_decimal() ? "GB" : "GiB";
    bool card = strcmp(m->device, "cpu") != 0;
    const char *used = cli_bytes(pl_run_used_bytes(m->run));
    if (!m->total)
        snprintf(out, cap, " | %s", used);
    else if (card)
        snprintf(out, cap, " | GPU %.1f/%.1f %s", (double)m->held / giga, (double)m->total / giga,
                 unit);
    else
        snprintf(out, cap, " | %s", used);
    if (!both) return;
    size_t n = strlen(out);
    if (card)
        snprintf(out + n, cap - n, " | host %s", cli_bytes(pl_process_bytes()));
    else if (m->host_total)
        snprintf(out + n, cap - n, " | host %.1f/%.1f %s", (double)m->host_held / giga,
                 (double)m->host_total / giga, unit);
}

/* Returns the index of the first term of "a|b|c" that the step has; -1: none. */
static int find_term(const pl_step_info *s, const char *names)
{
    for (size_t n;; names += n + 1) {
        n = strcspn(names, "|");
        for (int i = 0; i < s->n_terms; i++)
            if (strlen(s->term_name[i]) == n && memcmp(s->term_name[i], names, n) == 0) return i;
        if (!names[n]) return -1;
    }
}

void step_terms(const pl_run *run, const pl_step_info *s, const char *before, const char *between,
                char *out, size_t cap)
{
    const char *const *shown = pl_run_recipe(run)->shown;
    size_t at = 0;
    out[0] = 0;
    for (; shown && *shown; shown++) {
        int i = find_term(s, *shown);
        if (i < 0) continue;
        int n = snprintf(out + at, cap - at, "%s%.*s%s%.4g", before, (int)strcspn(*shown, "|"),
                         *shown, between, s->term[i]);
        if (n < 0 || (size_t)n >= cap - at) {
            out[at] = 0; /* no half term */
            return;
        }
        at += (size_t)n;
    }
}

void step_line(monitor *m, const pl_step_info *s, double elapsed, double per, double wait,
               int width, char *out, size_t cap)
{
    char where[160], memory[96], rate[48], lr[32], waiting[32], terms[128];
    put_where(m, s, where, sizeof where);
    snprintf(rate, sizeof rate, per >= 1 ? " | %.2f s/batch" : " | %.1f batches/s",
             per >= 1 ? per : 1 / per);
    snprintf(lr, sizeof lr, " | lr %.1e", s->lr);
    snprintf(waiting, sizeof waiting, " | wait %.0f%%", wait);
    step_terms(m->run, s, " | ", " ", terms, sizeof terms);
    for (int less = 0; less < 7; less++) {
        put_memory(m, less < 2, memory, sizeof memory);
        int n = snprintf(out, cap, "[%s] %s%s | loss %.4f%s%s%s%s | ETA %s", cli_clock(elapsed),
                         where, less < 5 ? rate : "", s->loss, less < 6 ? terms : "",
                         less < 1 ? lr : "", less < 4 ? memory : "", less < 3 ? waiting : "",
                         cli_duration(per * (double)(m->steps - s->step)));
        if (n < width) break;
    }
}
