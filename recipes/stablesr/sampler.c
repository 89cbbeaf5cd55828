/* sampler.c - from a noisy latent to a clean one, in few of the 1000 times of training.
 *
 * At time t a latent is x = sqrt(a) clean + sqrt(1-a) noise, a = sr_signal(t). Spaced sampling (the
 * authors': as guided diffusion does it) treats the chosen times as a separate schedule, with beta
 * = 1 - a / a of the time before. DDPM draws from the posterior of the latent at the time before;
 * DDIM goes there with the same clean latent and noise.
 */
#include "predict.h"

#include <math.h>

enum { TIMES = 1000 };

double sr_signal(int64_t t)
{
    const double first = sqrt(0.00085), last = sqrt(0.012);
    double a = 1;
    for (int64_t i = 0; i <= t; i++) {
        double root = first + (last - first) / (TIMES - 1) * (double)i;
        a *= 1 - root * root;
    }
    return a;
}

void sr_sampler_times(sr_sampler *s)
{
    for (int i = 0; i < s->steps; i++)
        s->times[i] =
            s->steps == 1 ? s->start : (int64_t)nearbyint(i * (double)s->start / (s->steps - 1));
}

void sr_sampler_step(const sr_sampler *s, int i, float *x, const float *eps, const float *fresh,
                     int64_t n)
{
    double a = sr_signal(s->times[i]), before = i ? sr_signal(s->times[i - 1]) : 1;
    double beta = 1 - a / before, keep = (1 - before) * sqrt(1 - beta) / (1 - a);
    double share = beta * sqrt(before) / (1 - a), spread = sqrt(beta * (1 - before) / (1 - a));
    for (int64_t k = 0; k < n; k++) {
        double noise = (double)eps[k], clean = ((double)x[k] - sqrt(1 - a) * noise) / sqrt(a);
        if (s->ddim)
            x[k] = (float)(sqrt(before) * clean + sqrt(1 - before) * noise);
        else
            x[k] =
                (float)(share * clean + keep * (double)x[k] + (i ? spread * (double)fresh[k] : 0));
    }
}
