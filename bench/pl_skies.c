/* pl_skies.c - skies rendered from photographs, as arrays for the cloud recipe.
 *
 *   pl_skies OUT TRAIN EVAL FRAMES HEIGHT WIDTH TRAIN_DIR EVAL_DIR
 *
 * Writes OUT/train and OUT/eval: frames.npy, angles.npy, target.npy, of TRAIN and EVAL samples. The
 * brightness of a photograph, cut off at the wanted cover, is the cloud field; that of another one
 * is the warmth of the ground. Samples of EVAL use the photographs of EVAL_DIR only, so that no
 * texture of the evaluation was trained on.
 *
 * Geometry and temperatures are those of recipes/cloud/sky.c: a camera at 20 km, cloud colder than
 * the ground by the lapse rate, a layer nearer to the camera than the ground, a shadow that falls
 * height x tan(zenith) away from the sun. The size of cells does not depend on the height. Prints
 * what simple rules reach on the evaluation samples: the mean height of the training samples, and a
 * straight line through the temperature range of the first frame (least squares).
 */
#include "io/npy.h"
#include "lib/picture.h"
#include "recipes/cloud/cloud.h"

#include <math.h>

enum { ROWS = 512, MOST = 64 };
#define CAMERA_KM 20.0
#define SWATH_KM  12.0
#define FRAME_KM  0.12
#define RADIANS   (3.14159265358979323846 / 180)

/* Brightness of a photograph in 0 to 1. */
typedef struct texture {
    int w, h;
    float *at;
} texture;

typedef struct textures {
    texture t[MOST];
    int n;
} textures;

static pl_status read_textures(const char *dir, textures *out)
{
    listing l;
    *out = (textures){0};
    pl_status rc = listing_read(dir, &l);
    for (int i = 0; i < l.n && i < MOST && rc == PL_OK; i++) {
        picture p, q = {0};
        rc = listing_picture(dir, &l, i, ROWS, &p);
        if (rc == PL_OK) rc = picture_resize(&p, (int)((int64_t)p.w * ROWS / p.h), ROWS, &q);
        texture *t = &out->t[i];
        *t = (texture){q.w, q.h, malloc((size_t)q.w * (size_t)q.h * sizeof *t->at)};
        if (rc == PL_OK && !t->at) rc = PL_ERR_MEMORY;
        for (int64_t k = 0; rc == PL_OK && k < (int64_t)q.w * q.h; k++)
            t->at[k] =
                (0.299f * q.rgb[3 * k] + 0.587f * q.rgb[3 * k + 1] + 0.114f * q.rgb[3 * k + 2]) /
                255;
        out->n = i + 1;
        picture_free(&p);
        picture_free(&q);
    }
    listing_free(&l);
    return rc;
}

static void free_textures(textures *t)
{
    for (int i = 0; i < t->n; i++) free(t->t[i].at);
}

/* Mirrored at the borders. */
static int inside(int64_t i, int n)
{
    int64_t m = ((i % (2 * n)) + 2 * n) % (2 * n);
    return (int)(m < n ? m : 2 * n - 1 - m);
}

/* A photograph laid on the ground or on the layer: turned, scaled, moved. */
typedef struct field {
    const texture *t;
    double x0, y0, cosine, sine; /* texels; texels per km */
    double clear;                /* brightness of a sky without clouds, at most */
} field;

static double bright(const field *f, double x, double y)
{
    double u = f->x0 + f->cosine * x - f->sine * y, v = f->y0 + f->sine * x + f->cosine * y;
    double iu = floor(u), iv = floor(v), a = u - iu, b = v - iv;
    int x0 = inside((int64_t)iu, f->t->w), x1 = inside((int64_t)iu + 1, f->t->w);
    const float *r0 = f->t->at + (size_t)inside((int64_t)iv, f->t->h) * (size_t)f->t->w;
    const float *r1 = f->t->at + (size_t)inside((int64_t)iv + 1, f->t->h) * (size_t)f->t->w;
    return (1 - b) * ((1 - a) * (double)r0[x0] + a * (double)r0[x1]) +
           b * ((1 - a) * (double)r1[x0] + a * (double)r1[x1]);
}

static double opacity(const field *f, double x, double y)
{
    double t = (bright(f, x, y) - f->clear) / 0.12 + 0.5;
    return t <= 0 ? 0 : t >= 1 ? 1 : t * t * (3 - 2 * t);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Draws a field; its limit leaves `cover` of the view under cloud. */
static field field_of(const textures *all, uint64_t *state, double cover)
{
    enum { SIDE = 24 };
    float seen[SIDE * SIDE];
    const texture *t = &all->t[(int)(picture_random(state) * all->n)];
    double scale = 25 + 35 * picture_random(state), turn = 360 * picture_random(state) * RADIANS;
    field f = {.t = t, .cosine = scale * cos(turn), .sine = scale * sin(turn)};
    f.x0 = picture_random(state) * t->w;
    f.y0 = picture_random(state) * t->h;
    for (int i = 0; i < SIDE * SIDE; i++)
        seen[i] = (float)bright(&f, ((double)(i % SIDE) / SIDE - 0.5) * SWATH_KM,
                                ((double)(i / SIDE) / SIDE - 0.5) * SWATH_KM);
    qsort(seen, SIDE * SIDE, sizeof *seen, by_value);
    f.clear = (double)seen[(int)((1 - cover) * (SIDE * SIDE - 1))];
    return f;
}

typedef struct sky {
    field cloud, ground;
    double km, zenith, azimuth, ground_k, lapse, emission;
} sky;

static sky sky_of(const textures *all, uint64_t *state)
{
    sky s = {.km = CLOUD_MIN_KM + (CLOUD_MAX_KM - CLOUD_MIN_KM) * picture_random(state)};
    s.zenith = 10 + 60 * picture_random(state);
    s.azimuth = 360 * picture_random(state);
    s.ground_k = 290 + 5 * (picture_random(state) - 0.5);
    s.lapse = 6.5 + 1.2 * (picture_random(state) - 0.5);
    s.emission = 0.85 + 0.15 * picture_random(state);
    s.cloud = field_of(all, state, 0.4 + 0.2 * picture_random(state));
    s.ground = field_of(all, state, 0.5);
    return s;
}

static void render(const sky *s, uint64_t *state, int frame, int h, int w, float *out)
{
    double pixel = SWATH_KM / w, flown = FRAME_KM * frame, nearer = (CAMERA_KM - s->km) / CAMERA_KM;
    double away = s->km * tan(s->zenith * RADIANS);
    double dx = away * sin(s->azimuth * RADIANS), dy = away * cos(s->azimuth * RADIANS);
    for (int r = 0; r < h; r++)
        for (int c = 0; c < w; c++) {
            double x = (c - 0.5 * w) * pixel, y = (r - 0.5 * h) * pixel;
            double shade = opacity(&s->cloud, x - dx, y + flown - dy);
            double layer = opacity(&s->cloud, x * nearer, y * nearer + flown);
            double ground =
                s->ground_k + 4 * (bright(&s->ground, x, y + flown) - 0.5) - 1.2 * shade;
            double top = s->ground_k - 0.5 - s->lapse * s->km;
            double k = ground + (top - ground) * s->emission * layer;
            k += (picture_random(state) - 0.5) * 3.4641016 * 0.4;
            *out++ = (float)((k - CLOUD_KELVIN) / CLOUD_KELVINS);
        }
}

/* ---- a subset --------------------------------------------------------------------------- */
typedef struct subset {
    int n, frames, h, w;
    float *frame, *angle, *target;
    double *range; /* of the first frame's temperatures, 5 % cut off at both ends */
} subset;

static double range_of(const float *frame, int n, float *sorted)
{
    memcpy(sorted, frame, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return (double)sorted[n - 1 - n / 20] - (double)sorted[n / 20];
}

static pl_status fill(subset *s, const textures *all, uint64_t seed)
{
    int pixels = s->h * s->w;
    float *sorted = malloc((size_t)pixels * sizeof *sorted);
    if (!sorted) return PL_ERR_MEMORY;
    for (int i = 0; i < s->n; i++) {
        uint64_t state = seed + (uint64_t)i * 0x10001;
        sky y = sky_of(all, &state);
        float *first = s->frame + (size_t)i * (size_t)s->frames * (size_t)pixels;
        for (int t = 0; t < s->frames; t++)
            render(&y, &state, t, s->h, s->w, first + (size_t)t * (size_t)pixels);
        s->range[i] = range_of(first, pixels, sorted);
        s->angle[2 * i] = (float)((y.zenith - CLOUD_ZENITH_MEAN) / CLOUD_ZENITH_STD);
        s->angle[2 * i + 1] = (float)((y.azimuth - CLOUD_AZIMUTH_MEAN) / CLOUD_AZIMUTH_STD);
        s->target[i] = (float)((y.km - CLOUD_MEAN_KM) / CLOUD_STD_KM);
    }
    free(sorted);
    return PL_OK;
}

static pl_status write(const char *dir, const char *of, const char *name, pl_type type,
                       const float *data)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/%s.npy", dir, of, name);
    return pl_npy_write(path, &type, data);
}

static pl_status make(subset *s, const char *pictures, const char *out, const char *name,
                      uint64_t seed)
{
    textures all;
    size_t n = (size_t)s->n;
    s->frame = malloc(n * (size_t)(s->frames * s->h * s->w) * sizeof(float));
    s->angle = malloc(n * 2 * sizeof(float)), s->target = malloc(n * sizeof(float));
    s->range = malloc(n * sizeof(double));
    if (!s->frame || !s->angle || !s->target || !s->range) return PL_ERR_MEMORY;
    pl_status rc = read_textures(pictures, &all);
    if (rc == PL_OK) rc = fill(s, &all, seed);
    free_textures(&all);
    if (rc == PL_OK)
        rc = write(out, name, "frames", PL_TYPE(PL_F32, s->n, s->frames, s->h, s->w), s->frame);
    if (rc == PL_OK) rc = write(out, name, "angles", PL_TYPE(PL_F32, s->n, 2), s->angle);
    return rc == PL_OK ? write(out, name, "target", PL_TYPE(PL_F32, s->n), s->target) : rc;
}

static void release(subset *s)
{
    free(s->frame), free(s->angle), free(s->target), free(s->range);
}

/* Prints the mean absolute errors of two simple rules. */
static void tell_rules(const subset *a, const subset *e)
{
    double x = 0, y = 0, xx = 0, xy = 0, flat = 0, line = 0;
    for (int i = 0; i < a->n; i++) {
        double u = a->range[i], v = (double)a->target[i];
        x += u / a->n, y += v / a->n, xx += u * u / a->n, xy += u * v / a->n;
    }
    double slope = (xy - x * y) / (xx - x * x);
    for (int i = 0; i < e->n; i++) {
        double v = (double)e->target[i];
        flat += fabs(v - y) / e->n;
        line += fabs(v - y - slope * (e->range[i] - x)) / e->n;
    }
    printf("%d evaluation samples: mean height %.3f km off, straight line in the temperature range "
           "%.3f km off\n",
           e->n, flat * CLOUD_STD_KM, line * CLOUD_STD_KM);
}

int main(int argc, char **argv)
{
    if (argc != 9) {
        fprintf(stderr, "usage: pl_skies OUT TRAIN EVAL FRAMES HEIGHT WIDTH TRAIN_DIR EVAL_DIR\n");
        return 2;
    }
    subset a = {.n = atoi(argv[2]), .frames = atoi(argv[4])}, e = {.n = atoi(argv[3])};
    a.h = atoi(argv[5]), a.w = atoi(argv[6]);
    e.frames = a.frames, e.h = a.h, e.w = a.w;
    if (a.n < 2 || e.n < 1 || a.frames < 1 || a.h < 8 || a.w < 8) {
        fprintf(stderr,
                "pl_skies: samples, frames and sizes of at least 8 pixels are whole numbers\n");
        return 2;
    }
    pl_status rc = make(&a, argv[7], argv[1], "train", 1);
    if (rc == PL_OK) rc = make(&e, argv[8], argv[1], "eval", (uint64_t)1 << 40);
    if (rc == PL_OK)
        tell_rules(&a, &e);
    else
        fprintf(stderr, "pl_skies: %s\n", pl_error_text());
    release(&a);
    release(&e);
    return rc == PL_OK ? 0 : 1;
}
