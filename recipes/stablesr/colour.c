/* colour.c - sizes and colours of pictures on the host.
 *
 * A diffusion model shifts colours. AdaIN gives the result the means and deviations of the input's
 * channels. The wavelet correction keeps the fine part of the result and takes the coarse part of
 * the input: coarse is what five blurs leave, each a 3 x 3 kernel (1 2 1) x (1 2 1) / 16 whose taps
 * lie 1, 2, 4, 8 and 16 pixels apart. Blurs are linear, so the result is x + blurs of (like - x).
 */
#include "predict.h"

#include <math.h>
#include <string.h>

static int64_t clamp(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* ---- sizes ------------------------------------------------------------------------------ */
/* Weights of four neighbours at a distance `at` behind the second: Keys' cubic, a = -0.75, as
 * PyTorch's bicubic. */
static void cubic(double at, double w[4])
{
    const double a = -0.75;
    for (int k = 0; k < 4; k++) {
        double d = fabs(at + 1 - k);
        w[k] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                      : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

void sr_enlarge(const uint8_t *from, int64_t h, int64_t w, float *to, int64_t to_h, int64_t to_w)
{
    for (int64_t y = 0; y < to_h; y++) {
        double wy[4], sy = ((double)y + 0.5) * (double)h / (double)to_h - 0.5;
        int64_t fy = (int64_t)floor(sy);
        cubic(sy - (double)fy, wy);
        for (int64_t x = 0; x < to_w; x++) {
            double wx[4], sum[3] = {0}, sx = ((double)x + 0.5) * (double)w / (double)to_w - 0.5;
            int64_t fx = (int64_t)floor(sx);
            cubic(sx - (double)fx, wx);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) {
                    const uint8_t *p = from + (clamp(fy - 1 + i, h) * w + clamp(fx - 1 + j, w)) * 3;
                    for (int c = 0; c < 3; c++) sum[c] += wy[i] * wx[j] * p[c];
                }
            for (int c = 0; c < 3; c++) {
                double v = sum[c] / 127.5 - 1;
                to[(y * to_w + x) * 3 + c] = (float)(v < -1 ? -1 : v > 1 ? 1 : v);
            }
        }
    }
}

/* A result pixel lies at or before the pixels that it is the mean of, so the reduction works in
 * place, from the first row on. */
void sr_reduce(float *x, int64_t h, int64_t w, int64_t to_h, int64_t to_w)
{
    for (int64_t y = 0; y < to_h; y++)
        for (int64_t k = 0; k < to_w; k++) {
            int64_t y0 = y * h / to_h, y1 = ((y + 1) * h + to_h - 1) / to_h;
            int64_t x0 = k * w / to_w, x1 = ((k + 1) * w + to_w - 1) / to_w;
            double sum[3] = {0};
            for (int64_t i = y0; i < y1; i++)
                for (int64_t j = x0; j < x1; j++)
                    for (int c = 0; c < 3; c++) sum[c] += (double)x[(i * w + j) * 3 + c];
            for (int c = 0; c < 3; c++)
                x[(y * to_w + k) * 3 + c] = (float)(sum[c] / (double)((y1 - y0) * (x1 - x0)));
        }
}

/* ---- colours ---------------------------------------------------------------------------- */
static void moments(const float *x, int64_t n, int c, double *mean, double *deviation)
{
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i * 3 + c];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i * 3 + c] - *mean;
        square += d * d;
    }
    *deviation = sqrt(square / (double)(n > 1 ? n - 1 : 1) + 1e-5);
}

void sr_colour_adain(float *x, const float *like, int64_t n)
{
    for (int c = 0; c < 3; c++) {
        double mean, deviation, want, spread;
        moments(x, n, c, &mean, &deviation);
        moments(like, n, c, &want, &spread);
        for (int64_t i = 0; i < n; i++)
            x[i * 3 + c] = (float)(((double)x[i * 3 + c] - mean) / deviation * spread + want);
    }
}

/* Blurs n pixels that lie `step` numbers apart, with taps `radius` apart; the ends repeat. */
static void blur_line(float *x, int64_t n, int64_t step, int64_t radius, float *line)
{
    for (int64_t i = 0; i < n; i++) memcpy(line + 3 * i, x + i * step, 3 * sizeof *line);
    for (int64_t i = 0; i < n; i++) {
        const float *left = line + 3 * clamp(i - radius, n),
                    *right = line + 3 * clamp(i + radius, n);
        for (int c = 0; c < 3; c++)
            x[i * step + c] = 0.25f * left[c] + 0.5f * line[3 * i + c] + 0.25f * right[c];
    }
}

void sr_colour_wavelet(float *x, float *like, int64_t h, int64_t w, float *line)
{
    for (int64_t i = 0; i < h * w * 3; i++) like[i] -= x[i];
    for (int64_t radius = 1; radius <= 16; radius *= 2) {
        for (int64_t y = 0; y < h; y++) blur_line(like + y * w * 3, w, 3, radius, line);
        for (int64_t k = 0; k < w; k++) blur_line(like + k * 3, h, w * 3, radius, line);
    }
    for (int64_t i = 0; i < h * w * 3; i++) x[i] += like[i];
}
