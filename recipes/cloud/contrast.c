/* contrast.c - normalises a frame: scaled to [0,1], contrast equalised locally, standardised.
 *
 * The middle step is contrast-limited adaptive histogram equalisation (CLAHE): the frame is divided
 * into 8 x 8 fields, each with a histogram of 256 bins; bins are clipped at the limit and the
 * excess is spread over all bins. A pixel is mapped by the cumulative histograms of the four fields
 * around it, interpolated by its distance to their centres.
 */
#include "cloud.h"

#include <math.h>

enum { FIELDS = 8, BINS = CLOUD_CONTRAST_ROOM / (FIELDS * FIELDS) };

/* map[b]: the share of the field's pixels up to bin b, after clipping at limit (a share of the
 * field). */
static void equalise(const float *x, int64_t width, int64_t top, int64_t bottom, int64_t left,
                     int64_t right, double limit, float *map)
{
    double histogram[BINS] = {0}, count = (double)((bottom - top) * (right - left)), above = 0,
           sum = 0;
    for (int64_t r = top; r < bottom; r++)
        for (int64_t c = left; c < right; c++) histogram[(int)(x[r * width + c] * (BINS - 1))]++;
    double most = fmax(1, limit * count);
    for (int b = 0; b < BINS; b++)
        if (histogram[b] > most) above += histogram[b] - most, histogram[b] = most;
    for (int b = 0; b < BINS; b++) {
        sum += histogram[b] + above / BINS;
        map[b] = (float)(sum / count);
    }
}

/* Sets the two fields around position i of n, and returns the weight of the second. */
static double between(int64_t i, int64_t n, int *first, int *second)
{
    double at = ((double)i + 0.5) * FIELDS / (double)n - 0.5, low = floor(at);
    *first = low < 0 ? 0 : (int)low;
    *second = low + 1 >= FIELDS ? FIELDS - 1 : (int)low + 1;
    return at - low;
}

static void even_out(float *x, int64_t height, int64_t width, double limit, float (*map)[BINS])
{
    for (int64_t i = 0; i < FIELDS * FIELDS; i++) {
        int64_t r = i / FIELDS, c = i % FIELDS;
        equalise(x, width, height * r / FIELDS, height * (r + 1) / FIELDS, width * c / FIELDS,
                 width * (c + 1) / FIELDS, limit, map[i]);
    }
    for (int64_t r = 0; r < height; r++)
        for (int64_t c = 0; c < width; c++) {
            int r0, r1, c0, c1, bin = (int)(x[r * width + c] * (BINS - 1));
            double v = between(r, height, &r0, &r1), u = between(c, width, &c0, &c1);
            double upper = (1 - u) * (double)map[r0 * FIELDS + c0][bin] +
                           u * (double)map[r0 * FIELDS + c1][bin];
            double lower = (1 - u) * (double)map[r1 * FIELDS + c0][bin] +
                           u * (double)map[r1 * FIELDS + c1][bin];
            x[r * width + c] = (float)((1 - v) * upper + v * lower);
        }
}

void cloud_contrast(float *x, int64_t height, int64_t width, double limit, bool standardise,
                    float *room)
{
    int64_t n = height * width;
    float lo = INFINITY, hi = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) x[i] = 0;
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    for (int64_t i = 0; i < n; i++) x[i] = hi > lo ? (x[i] - lo) / (hi - lo) : 0;
    if (limit > 0 && height >= FIELDS && width >= FIELDS)
        even_out(x, height, width, limit, (float(*)[BINS])room);
    if (!standardise) return;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    double std = sqrt(squares / (double)n) + 1e-8;
    for (int64_t i = 0; i < n; i++) x[i] = (float)(((double)x[i] - mean) / std);
}
