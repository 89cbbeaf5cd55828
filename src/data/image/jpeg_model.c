/* jpeg_model.c - JPEG artefacts by formula: the loss of JPEG without its files.
 *
 * A macroblock of 16 x 16 pixels is four blocks of brightness and one of each colour difference,
 * which is the mean over 2 x 2 pixels. Each block of 8 x 8 goes through the cosine transform, is
 * rounded to multiples of a table times the quality's factor, and back. Unlike a codec: the quality
 * is a real number, the table is not rounded to integers, borders are padded with black, colour
 * differences are repeated, and results are not rounded to bytes. Macroblocks are independent, so
 * no memory is needed beside the picture.
 */
#include "data/image/degrade.h"

#include <math.h>
#include <string.h>

enum { SIDE = 8, MACRO = 16 };

/* The usual tables of ITU T.81, annex K; [v][u] is for vertical frequency v. The training programs
 * that this model reproduces use them transposed. */
static const uint8_t bright_steps[SIDE][SIDE] = {
    {16, 11, 10, 16, 24, 40, 51, 61},     {12, 12, 14, 19, 26, 58, 60, 55},
    {14, 13, 16, 24, 40, 57, 69, 56},     {14, 17, 22, 29, 51, 87, 80, 62},
    {18, 22, 37, 56, 68, 109, 103, 77},   {24, 35, 55, 64, 81, 104, 113, 92},
    {49, 64, 78, 87, 103, 121, 120, 101}, {72, 92, 95, 98, 112, 100, 103, 99}};
static const uint8_t colour_steps[SIDE][SIDE] = {
    {17, 18, 24, 47, 99, 99, 99, 99}, {18, 21, 26, 66, 99, 99, 99, 99},
    {24, 26, 56, 99, 99, 99, 99, 99}, {47, 66, 99, 99, 99, 99, 99, 99},
    {99, 99, 99, 99, 99, 99, 99, 99}, {99, 99, 99, 99, 99, 99, 99, 99},
    {99, 99, 99, 99, 99, 99, 99, 99}, {99, 99, 99, 99, 99, 99, 99, 99}};

typedef float block[SIDE][SIDE];

/* wave[u][x]: cosine u at position x, scaled so that the transform is its own transpose's
 * inverse. */
static void waves(block wave)
{
    for (int u = 0; u < SIDE; u++)
        for (int x = 0; x < SIDE; x++)
            wave[u][x] = (float)((u ? 0.5 : sqrt(0.125)) * cos((2 * x + 1) * u * M_PI / 16));
}

/* y = a x b^T, or, transposed, a^T x b. */
static void transform(const block wave, const block x, block y, bool back)
{
    block half;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            half[i][j] = 0;
            for (int k = 0; k < SIDE; k++) half[i][j] += (back ? wave[k][i] : wave[i][k]) * x[k][j];
        }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            y[i][j] = 0;
            for (int k = 0; k < SIDE; k++) y[i][j] += half[i][k] * (back ? wave[k][j] : wave[j][k]);
        }
}

/* Rounds a block in its frequencies; values are around 0. */
static void lose(const block wave, block x, const uint8_t steps[SIDE][SIDE], float factor)
{
    block f;
    transform(wave, x, f, false);
    for (int v = 0; v < SIDE; v++)
        for (int u = 0; u < SIDE; u++) {
            float step = (float)steps[u][v] * factor;
            f[v][u] = rintf(f[v][u] / step) * step;
        }
    transform(wave, f, x, true);
}

/* One macroblock at px, of which w x h pixels are in the picture. */
static void macroblock(const block wave, float *px, size_t row, int w, int h, float factor)
{
    block bright[2][2], colour[2];
    memset(colour, 0, sizeof colour);
    for (int y = 0; y < MACRO; y++)
        for (int x = 0; x < MACRO; x++) {
            bool in = x < w && y < h;
            const float *p = px + (in ? (size_t)y * row + (size_t)x * 3 : 0);
            float r = in ? 255 * p[0] : 0, g = in ? 255 * p[1] : 0, b = in ? 255 * p[2] : 0;
            bright[y / SIDE][x / SIDE][y % SIDE][x % SIDE] =
                0.299f * r + 0.587f * g + 0.114f * b - 128;
            colour[0][y / 2][x / 2] += (-0.168736f * r - 0.331264f * g + 0.5f * b) / 4;
            colour[1][y / 2][x / 2] += (0.5f * r - 0.418688f * g - 0.081312f * b) / 4;
        }
    for (int i = 0; i < 4; i++) lose(wave, bright[i / 2][i % 2], bright_steps, factor);
    for (int i = 0; i < 2; i++) lose(wave, colour[i], colour_steps, factor);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            float *p = px + (size_t)y * row + (size_t)x * 3;
            float l = bright[y / SIDE][x / SIDE][y % SIDE][x % SIDE] + 128;
            float b = colour[0][y / 2][x / 2], r = colour[1][y / 2][x / 2];
            p[0] = (l + 1.402f * r) / 255;
            p[1] = (l - 0.344136f * b - 0.714136f * r) / 255;
            p[2] = (l + 1.772f * b) / 255;
            for (int c = 0; c < 3; c++) p[c] = p[c] < 0 ? 0 : p[c] > 1 ? 1 : p[c];
        }
}

void pl_jpeg_model(float *px, int w, int h, double quality)
{
    block wave;
    double factor = quality < 50 ? 50 / quality : 2 - quality / 50;
    if (factor < 1e-6) factor = 1e-6; /* quality 100 */
    waves(wave);
    for (int y = 0; y < h; y += MACRO)
        for (int x = 0; x < w; x += MACRO)
            macroblock(wave, px + ((size_t)y * (size_t)w + (size_t)x) * 3, (size_t)w * 3,
                       w - x < MACRO ? w - x : MACRO, h - y < MACRO ? h - y : MACRO, (float)factor);
}
