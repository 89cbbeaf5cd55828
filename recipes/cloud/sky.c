/* sky.c - generated skies: what an infrared camera at 20 km sees of low clouds over the sea.
 *
 * A sample is a pure function of its number. Cloud base height h is uniform in 0.1..2 km. The frames
 * show it in the ways nature does: cloud is colder than the sea by the lapse rate (6.5 K/km), cells
 * grow with the depth of the boundary layer, the layer lies nearer to the camera (a larger scale, and
 * a faster drift from frame to frame), and clouds cool the sea in their shadow, which falls h*tan(zenith)
 * away from the sun. The sea's own temperature, cover and noise vary, so no single pixel tells the
 * height.
 */
#include "cloud.h"

#include <math.h>
#include <stdlib.h>

#define CAMERA_KM 20.0
#define SWATH_KM 12.0        /* across a frame's width at sea level */
#define FRAME_KM 0.12        /* flown between frames */
#define LAPSE_K_PER_KM 6.5
#define RADIANS (3.14159265358979323846 / 180)

typedef struct sky {
    int64_t samples, eval_samples, frames, height, width;
    double noise;
} sky;

/* One sample's weather. */
typedef struct weather {
    uint64_t seed;
    double height_km, sea_k, cover, cell_km, zenith, azimuth;
} weather;

/* ---- noise ----------------------------------------------------------------------------------- */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double unit(uint64_t x)
{
    return (double)(mix(x) >> 11) * 0x1p-53;
}

static double lattice(uint64_t seed, int64_t x, int64_t y)
{
    return unit(seed + (uint64_t)x * 0x9E3779B97F4A7C15u + (uint64_t)y * 0xC2B2AE3D27D4EB4Fu);
}

/* Smooth value noise in [0,1]. */
static double smooth(uint64_t seed, double x, double y)
{
    double fx = floor(x), fy = floor(y), u = x - fx, v = y - fy;
    int64_t i = (int64_t)fx, j = (int64_t)fy;
    u = u * u * (3 - 2 * u);
    v = v * v * (3 - 2 * v);
    double a = lattice(seed, i, j), b = lattice(seed, i + 1, j);
    double c = lattice(seed, i, j + 1), d = lattice(seed, i + 1, j + 1);
    return a + (b - a) * u + (c - a) * v + (a - b - c + d) * u * v;
}

/* Opacity of the cloud layer at a place (km), in [0,1]. */
static double opacity(const weather *w, double x, double y)
{
    double s = 1 / w->cell_km;
    double f = 0.6 * smooth(w->seed, x * s, y * s) + 0.3 * smooth(w->seed + 1, 2 * x * s, 2 * y * s) +
               0.1 * smooth(w->seed + 2, 5 * x * s, 5 * y * s);
    double t = (f - (1 - w->cover)) / 0.12 + 0.5;
    return t <= 0 ? 0 : t >= 1 ? 1 : t * t * (3 - 2 * t);
}

/* ---- samples --------------------------------------------------------------------------------- */
static weather weather_of(uint64_t seed)
{
    weather w = {.seed = mix(seed)};
    w.height_km = CLOUD_MIN_KM + (CLOUD_MAX_KM - CLOUD_MIN_KM) * unit(w.seed + 11);
    w.sea_k = 290 + 5 * (unit(w.seed + 12) - 0.5);
    w.cover = 0.4 + 0.2 * unit(w.seed + 13);
    w.cell_km = (0.8 + 0.9 * w.height_km) * (0.85 + 0.3 * unit(w.seed + 14));
    w.zenith = 10 + 60 * unit(w.seed + 15);
    w.azimuth = 360 * unit(w.seed + 16);
    return w;
}

/* Temperature of the pixel whose line of sight meets the sea at (x, y) relative to the camera. */
static double kelvin(const weather *w, double x, double y, double flown)
{
    double nearer = (CAMERA_KM - w->height_km) / CAMERA_KM;
    double away = w->height_km * tan(w->zenith * RADIANS);
    double shade = opacity(w, x - away * sin(w->azimuth * RADIANS),
                           y + flown - away * cos(w->azimuth * RADIANS));
    double cloud = opacity(w, x * nearer, y * nearer + flown);
    double sea = w->sea_k - 1.2 * shade;
    double top = w->sea_k - 0.5 - LAPSE_K_PER_KM * w->height_km;
    return sea + (top - sea) * cloud;
}

static void render_frame(const sky *s, const weather *w, int64_t t, float *out)
{
    double pixel = SWATH_KM / (double)s->width, flown = FRAME_KM * (double)t;
    for (int64_t r = 0; r < s->height; r++)
        for (int64_t c = 0; c < s->width; c++) {
            double x = ((double)c - 0.5 * (double)s->width) * pixel;
            double y = ((double)r - 0.5 * (double)s->height) * pixel;
            uint64_t n = (uint64_t)((t * s->height + r) * s->width + c);
            double noise = (unit(w->seed ^ mix(n + 77)) - 0.5) * 3.4641016 * s->noise;
            *out++ = (float)((kelvin(w, x, y, flown) + noise - 286) / 5);
        }
}

pl_status cloud_data_open(const pl_config *c, void **data)
{
    sky *s = calloc(1, sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    *s = (sky){.samples = pl_config_int(c, "data.samples"),
               .eval_samples = pl_config_int(c, "data.eval_samples"),
               .frames = pl_config_int(c, "frames"),
               .height = pl_config_int(c, "height"),
               .width = pl_config_int(c, "width"),
               .noise = pl_config_float(c, "data.noise_kelvin")};
    *data = s;
    return PL_OK;
}

void cloud_data_close(void *data)
{
    free(data);
}

int64_t cloud_data_size(void *data, pl_subset subset)
{
    const sky *s = data;
    return subset == PL_SUBSET_TRAIN ? s->samples : s->eval_samples;
}

pl_status cloud_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                          pl_batch *batch)
{
    const sky *s = data;
    float *frames = pl_batch_input(batch, "frames", NULL);
    float *angles = pl_batch_input(batch, "angles", NULL);
    float *target = pl_batch_input(batch, "target", NULL);
    int64_t pixels = s->height * s->width;
    for (int i = 0; i < n; i++) {
        uint64_t world = subset == PL_SUBSET_TRAIN ? 0x5EA0000000000000u : 0xE7A1000000000000u;
        weather w = weather_of(world + (uint64_t)sample[i]);
        for (int64_t t = 0; frames && t < s->frames; t++)
            render_frame(s, &w, t, frames + (i * s->frames + t) * pixels);
        if (angles) {
            angles[2 * i] = (float)((w.zenith - 40) / 17.3);
            angles[2 * i + 1] = (float)((w.azimuth - 180) / 103.9);
        }
        if (target) target[i] = (float)((w.height_km - CLOUD_MEAN_KM) / CLOUD_STD_KM);
    }
    return PL_OK;
}
