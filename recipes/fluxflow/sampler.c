/* sampler.c - from noise to tokens: the steps of two samplers, from velocities of the flow.
 *
 * At time t tokens are x = a clean + s noise, with a^2 = flux_signal_share(t) and s^2 = 1 - a^2,
 * and the network gives v = a noise - s clean; so clean = a x - s v and noise = s x + a v.
 *
 * DDIM goes to the next time with the same clean tokens and noise. DPM-Solver++ integrates in
 * l = log(a/s), with the slope of the clean tokens between this step and the one before (second
 * order); its first and last steps have no slope, and the last ends at clean tokens. Reference: Lu
 * et al., "DPM-Solver++", 2022, algorithm 2M.
 */
#include "fluxflow.h"

#include <math.h>
#include <string.h>

enum { TIMES = 1000 };

void flux_sampler_times(flux_sampler *s)
{
    for (int i = 0; i < s->steps; i++)
        s->times[i] = s->dpm ? (int64_t)nearbyint(TIMES - i * (double)TIMES / s->steps) - 1
                             : TIMES - 1 - (int64_t)i * TIMES / s->steps;
}

/* Amounts of signal and noise at times[i]; past the last there is no noise. */
typedef struct amounts {
    double a, s;
} amounts;

static amounts amounts_at(const flux_sampler *s, int i)
{
    double share = i < s->steps ? flux_signal_share(s->times[i]) : 1;
    return (amounts){sqrt(share), sqrt(1 - share)};
}

static double log_ratio(amounts t)
{
    return log(t.a) - log(t.s);
}

/* The next tokens are keep * x + first * clean + second * (clean - last). */
static void dpm_weights(const flux_sampler *s, int i, double *keep, double *first, double *second)
{
    amounts now = amounts_at(s, i), then = amounts_at(s, i + 1);
    *second = 0;
    if (i + 1 == s->steps) {
        *keep = 0;
        *first = 1;
        return;
    }
    double h = log_ratio(then) - log_ratio(now);
    *keep = then.s / now.s;
    *first = -then.a * expm1(-h);
    if (i > 0) *second = 0.5 * *first * h / (log_ratio(now) - log_ratio(amounts_at(s, i - 1)));
}

void flux_sampler_step(flux_sampler *s, int i, float *x, const float *v, int64_t n)
{
    amounts now = amounts_at(s, i), then = amounts_at(s, i + 1);
    double keep = 0, first = 0, second = 0;
    if (s->dpm) dpm_weights(s, i, &keep, &first, &second);
    for (int64_t k = 0; k < n; k++) {
        double at = (double)x[k], clean = now.a * at - now.s * (double)v[k];
        if (s->dpm) {
            double slope = second != 0 ? clean - (double)s->last[k] : 0;
            x[k] = (float)(keep * at + first * clean + second * slope);
            s->last[k] = (float)clean;
        } else {
            double noise = now.s * at + now.a * (double)v[k];
            x[k] = (float)(then.a * clean + then.s * noise);
        }
    }
}
