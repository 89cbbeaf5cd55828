/* step_line.c - the progress line of a terminal.
 *
 *   [00:15:23] Epoch 5/100 | Batch 127/500 | 2.80 s/batch | loss 0.0931 | lr 2.3e-03 |
 *       GPU 14.2/16.0 GiB | host 1.2 GiB | wait 1% | ETA 1 h 59 min
 *
 * On a narrow terminal these fields are dropped, in this order: learning rate, host memory,
 * waiting, memory, rate. The loss and the time left always stay.
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

void step_line(monitor *m, const pl_step_info *s, double elapsed, double per, double wait,
               int width, char *out, size_t cap)
{
    char where[160], memory[96], rate[48], lr[32], waiting[32];
    put_where(m, s, where, sizeof where);
    snprintf(rate, sizeof rate, per >= 1 ? " | %.2f s/batch" : " | %.1f batches/s",
             per >= 1 ? per : 1 / per);
    snprintf(lr, sizeof lr, " | lr %.1e", s->lr);
    snprintf(waiting, sizeof waiting, " | wait %.0f%%", wait);
    for (int less = 0; less < 6; less++) {
        put_memory(m, less < 2, memory, sizeof memory);
        int n =
            snprintf(out, cap, "[%s] %s%s | loss %.4f%s%s%s | ETA %s", cli_clock(elapsed), where,
                     less < 5 ? rate : "", s->loss, less < 1 ? lr : "", less < 4 ? memory : "",
                     less < 3 ? waiting : "", cli_duration(per * (double)(m->steps - s->step)));
        if (n < width) break;
    }
}
