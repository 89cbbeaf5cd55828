/* sky.c - generated skies: low clouds over the sea, seen by an infrared camera at 20 km.
 *
 * A sample is a pure function of its number. Cloud base height h is uniform in 0.1..2 km. The
 * frames show it in the ways nature does: cloud is colder than the sea by the lapse rate (about 6.5
 * K/km), cells grow with the depth of the boundary layer, the layer lies nearer to the camera (a
 * larger scale, and a faster drift from frame to frame), and clouds cool the sea in their shadow,
 * which falls h*tan(zenith) away from the sun. The sea's temperature, the cover, the lapse rate and
 * how much of the sea shines through the cloud vary too, so no single pixel determines the height.
 */
#include "cloud.h"
#include "recipes/mix.h"

#include <math.h>
#include <stdlib.h>

#define CAMERA_KM 20.0
#define SWATH_KM  12.0 /* across a frame's width at sea level */
#define FRAME_KM  0.12 /* flown between frames */
#define RADIANS   (3.14159265358979323846 / 180)

typedef struct sky {
    int64_t samples, eval_samples, frames, height, width;
    double noise;
    cloud_scaler scaler;
} sky;

/* One sample's weather. */
typedef struct weather {
    uint64_t seed;
    double height_km, sea_k, cover, cell_km, zenith, azimuth;
    double lapse;    /* K/km */
    double emission; /* of the thickest cloud; the rest is the sea below */
} weather;

/* ---- noise ------------------------------------------------------------------------------ */
static double lattice(uint64_t seed, int64_t x, int64_t y)
{
    return mix_unit(seed + (uint64_t)x * MIX_STEP + (uint64_t)y * 0xC2B2AE3D27D4EB4Fu);
}

#define OCTAVES 3
#define FAR     (1 << 20)

/* One octave of smooth value noise in [0,1]. Neighbouring pixels mostly share a cell of the
 * lattice, so its four corners are kept. */
typedef struct octave {
    uint64_t seed;
    double scale, weight;
    int64_t i, j;
    double a, b, c, d; /* corners of cell (i, j) as a + b u + c v + d u v */
} octave;

static double smooth(octave *o, double x, double y)
{
    x *= o->scale;
    y *= o->scale;
    /* floor by truncation, of coordinates that lie within +-FAR cells */
    int64_t i = (int64_t)(x + FAR) - FAR, j = (int64_t)(y + FAR) - FAR;
    double u = x - (double)i, v = y - (double)j;
    if (i != o->i || j != o->j) {
        double p = lattice(o->seed, i, j), q = lattice(o->seed, i + 1, j);
        double r = lattice(o->seed, i, j + 1), s = lattice(o->seed, i + 1, j + 1);
        o->a = p;
        o->b = q - p;
        o->c = r - p;
        o->d = p - q - r + s;
        o->i = i;
        o->j = j;
    }
    u = u * u * (3 - 2 * u);
    v = v * v * (3 - 2 * v);
    return o->a + o->b * u + o->c * v + o->d * u * v;
}

/* A cloud field: three octaves, thresholded by the cover. */
typedef struct field {
    octave octaves[OCTAVES];
    double clear; /* share of the sky without cloud */
} field;

static field field_of(const weather *w)
{
    static const double scale[OCTAVES] = {1, 2, 5}, weight[OCTAVES] = {0.6, 0.3, 0.1};
    field f = {.clear = 1 - w->cover};
    for (int k = 0; k < OCTAVES; k++)
        f.octaves[k] = (octave){.seed = w->seed + (uint64_t)k,
                                .scale = scale[k] / w->cell_km,
                                .weight = weight[k],
                                .i = INT64_MIN};
    return f;
}

/* Opacity of the cloud layer at a place (km), in [0,1]. */
static double opacity(field *f, double x, double y)
{
    double sum = 0;
    for (int k = 0; k < OCTAVES; k++) sum += f->octaves[k].weight * smooth(&f->octaves[k], x, y);
    double t = (sum - f->clear) / 0.12 + 0.5;
    return t <= 0 ? 0 : t >= 1 ? 1 : t * t * (3 - 2 * t);
}

/* ---- samples ---------------------------------------------------------------------------- */
static weather weather_of(uint64_t seed)
{
    weather w = {.seed = mix(seed)};
    w.height_km = CLOUD_MIN_KM + (CLOUD_MAX_KM - CLOUD_MIN_KM) * mix_unit(w.seed + 11);
    w.sea_k = 290 + 5 * (mix_unit(w.seed + 12) - 0.5);
    w.cover = 0.4 + 0.2 * mix_unit(w.seed + 13);
    w.cell_km = (0.8 + 0.9 * w.height_km) * (0.85 + 0.3 * mix_unit(w.seed + 14));
    w.zenith = 10 + 60 * mix_unit(w.seed + 15);
    w.azimuth = 360 * mix_unit(w.seed + 16);
    w.lapse = 6.5 + 1.2 * (mix_unit(w.seed + 17) - 0.5);
    w.emission = 0.85 + 0.15 * mix_unit(w.seed + 18);
    return w;
}

/* Values that the pixels of a sample share: the layer and its shadow on the sea. */
typedef struct view {
    field cloud, shadow;
    double nearer;           /* the layer's scale relative to the sea's */
    double shade_x, shade_y; /* km from a cloud to its shadow */
    double sea_k, top_k, emission;
} view;

static view view_of(const weather *w)
{
    double away = w->height_km * tan(w->zenith * RADIANS);
    return (view){.cloud = field_of(w),
                  .shadow = field_of(w),
                  .nearer = (CAMERA_KM - w->height_km) / CAMERA_KM,
                  .shade_x = away * sin(w->azimuth * RADIANS),
                  .shade_y = away * cos(w->azimuth * RADIANS),
                  .sea_k = w->sea_k,
                  .top_k = w->sea_k - 0.5 - w->lapse * w->height_km,
                  .emission = w->emission};
}

/* Temperature of the pixel whose line of sight meets the sea at (x, y) relative to the camera. */
static double kelvin(view *v, double x, double y, double flown)
{
    double shade = opacity(&v->shadow, x - v->shade_x, y + flown - v->shade_y);
    double layer = opacity(&v->cloud, x * v->nearer, y * v->nearer + flown);
    double sea = v->sea_k - 1.2 * shade;
    return sea + (v->top_k - sea) * v->emission * layer;
}

static void render_frame(const sky *s, view *v, uint64_t seed, int64_t t, float *out)
{
    double pixel = SWATH_KM / (double)s->width, flown = FRAME_KM * (double)t;
    for (int64_t r = 0; r < s->height; r++)
        for (int64_t c = 0; c < s->width; c++) {
            double x = ((double)c - 0.5 * (double)s->width) * pixel;
            double y = ((double)r - 0.5 * (double)s->height) * pixel;
            uint64_t n = (uint64_t)((t * s->height + r) * s->width + c);
            double noise = (mix_unit(seed + n * MIX_STEP) - 0.5) * 3.4641016 * s->noise;
            *out++ = (float)((kelvin(v, x, y, flown) + noise - CLOUD_KELVIN) / CLOUD_KELVINS);
        }
}

pl_status cloud_sky_open(const pl_config *c, void **data)
{
    cloud_scaler scaler;
    pl_status rc = cloud_scaler_of(c, &scaler);
    if (rc != PL_OK) return rc;
    sky *s = calloc(1, sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    *s = (sky){.samples = pl_config_int(c, "data.samples"),
               .eval_samples = pl_config_int(c, "data.eval_samples"),
               .frames = pl_config_int(c, "frames"),
               .height = pl_config_int(c, "height"),
               .width = pl_config_int(c, "width"),
               .noise = pl_config_float(c, "data.noise_kelvin"),
               .scaler = scaler};
    *data = s;
    return PL_OK;
}

void cloud_sky_close(void *data)
{
    free(data);
}

int64_t cloud_sky_size(void *data, pl_subset subset)
{
    const sky *s = data;
    return subset == PL_SUBSET_TRAIN ? s->samples : s->eval_samples;
}

static weather weather_at(pl_subset subset, int64_t sample)
{
    uint64_t world = subset == PL_SUBSET_TRAIN ? 0x5EA0000000000000u : 0xE7A1000000000000u;
    return weather_of(world + (uint64_t)sample);
}

cloud_truth cloud_sky_truth(pl_subset subset, int64_t sample)
{
    weather w = weather_at(subset, sample);
    return (cloud_truth){w.height_km, w.zenith, w.azimuth};
}

void cloud_sky_frame(void *data, pl_subset subset, int64_t sample, int64_t t, float *out)
{
    weather w = weather_at(subset, sample);
    view v = view_of(&w);
    render_frame(data, &v, mix(w.seed + 77), t, out);
}

pl_status cloud_sky_read(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch)
{
    const sky *s = data;
    float *frames = pl_batch_input(batch, "frames", NULL);
    float *angles = pl_batch_input(batch, "angles", NULL);
    float *target = pl_batch_input(batch, "target", NULL);
    int64_t pixels = s->height * s->width;
    for (int i = 0; i < n; i++) {
        cloud_truth w = cloud_sky_truth(subset, sample[i]);
        for (int64_t t = 0; frames && t < s->frames; t++)
            cloud_sky_frame(data, subset, sample[i], t, frames + (i * s->frames + t) * pixels);
        if (angles) {
            angles[2 * i] = (float)((w.zenith - CLOUD_ZENITH_MEAN) / CLOUD_ZENITH_STD);
            angles[2 * i + 1] = (float)((w.azimuth - CLOUD_AZIMUTH_MEAN) / CLOUD_AZIMUTH_STD);
        }
        if (target) target[i] = (float)((w.km - s->scaler.mean) / s->scaler.std);
    }
    return PL_OK;
}
