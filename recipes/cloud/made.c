/* made.c - writes generated skies as flights, in the authors' file format (flights.c).
 *
 * Two flights are for training, one for evaluation. A sample takes one second of a flight per
 * frame, and the lidar measures once, in the middle, so that the frames around a label are the
 * sample's own.
 *
 *     DIR/30Oct24_camera.h5, 30Oct24_lidar_30oct24.hdf5, 30Oct24_nav.h5, ...
 *     DIR/flights.txt     one flight per line, for data.flights
 */
#include "cloud.h"
#include "plimsoll_hdf5.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLIGHTS = 3, LAYERS = 10, LONGEST = 86400, TEXT = 4096 };

/* Day of its year, and that day's first second since 1970. */
static const struct {
    const char *name, *date;
    int day;
    double begins;
    pl_subset subset;
} flown[FLIGHTS] = {{"30Oct24", "30oct24", 304, 1730246400, PL_SUBSET_TRAIN},
                    {"10Feb25", "10feb25", 41, 1739145600, PL_SUBSET_TRAIN},
                    {"12Feb25", "12feb25", 43, 1739318400, PL_SUBSET_EVAL}};

/* A flight being written: samples [first, first + n) of a subset. */
typedef struct journey {
    void *sky;
    pl_subset subset;
    int64_t first, n, frames, height, width, first_row;
    void (*done)(void *ctx, pl_subset subset, int64_t sample);
    void *ctx;
    char path[TEXT]; /* of the file being written */
} journey;

/* The camera's frame: rows above the swath are dark. */
static pl_status camera_row(void *ctx, int64_t row, void *to)
{
    const journey *j = ctx;
    float *x = to;
    int64_t above = j->first_row * j->width, pixels = j->height * j->width,
            sample = j->first + row / j->frames;
    for (int64_t i = 0; i < above; i++) x[i] = 200;
    cloud_sky_frame(j->sky, j->subset, sample, row % j->frames, x + above);
    for (int64_t i = 0; i < pixels; i++) x[above + i] = x[above + i] * CLOUD_KELVINS + CLOUD_KELVIN;
    if (j->done && row % j->frames == j->frames - 1) j->done(j->ctx, j->subset, sample);
    return PL_OK;
}

static pl_status write_camera(journey *j, const char *path, double begins)
{
    int64_t n = j->n * j->frames;
    double *time = malloc((size_t)n * sizeof *time);
    if (!time) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) time[i] = begins + (double)i;
    const pl_hdf5_array fields[] = {{"Product/Signal",
                                     PL_TYPE(PL_F32, n, j->first_row + j->height, j->width), NULL,
                                     camera_row, j},
                                    {"Time/TimeUTC", PL_TYPE(PL_F64, n), time, NULL, NULL}};
    pl_status rc = pl_hdf5_write(path, fields, 2);
    free(time);
    return rc;
}

/* There is only one layer; the sea is everywhere. */
static pl_status write_lidar(const journey *j, const char *path, int day)
{
    size_t n = (size_t)j->n;
    double *when = malloc(n * 2 * sizeof *when);
    float *base = malloc(n * LAYERS * sizeof *base), *level = calloc(n, sizeof *level);
    pl_status rc = when && base && level ? PL_OK : PL_ERR_MEMORY;
    for (size_t i = 0; i < n && rc == PL_OK; i++) {
        int64_t second = (int64_t)i * j->frames + j->frames / 2;
        when[2 * i] = when[2 * i + 1] = day + (double)second / 86400;
        base[LAYERS * i] = (float)cloud_sky_truth(j->subset, j->first + (int64_t)i).km;
        for (size_t k = 1; k < LAYERS; k++) base[LAYERS * i + k] = -9999;
    }
    const pl_hdf5_array fields[] = {
        {"layer_descriptor/Profile_Decimal_Julian_Day", PL_TYPE(PL_F64, j->n, 2), when, NULL, NULL},
        {"layer_descriptor/Layer_Base_Altitude", PL_TYPE(PL_F32, j->n, LAYERS), base, NULL, NULL},
        {"layer_descriptor/Lidar_Surface_Altitude", PL_TYPE(PL_F32, j->n), level, NULL, NULL},
        {"layer_descriptor/DEM_Surface_Altitude", PL_TYPE(PL_F32, j->n), level, NULL, NULL}};
    if (rc == PL_OK) rc = pl_hdf5_write(path, fields, 4);
    free(when), free(base), free(level);
    return rc;
}

static pl_status write_nav(const journey *j, const char *path)
{
    int64_t n = j->n * j->frames;
    double *angle[2] = {malloc((size_t)n * sizeof **angle), malloc((size_t)n * sizeof **angle)};
    pl_status rc = angle[0] && angle[1] ? PL_OK : PL_ERR_MEMORY;
    for (int64_t i = 0; i < n && rc == PL_OK; i++) {
        cloud_truth w = cloud_sky_truth(j->subset, j->first + i / j->frames);
        angle[0][i] = w.zenith;
        angle[1][i] = w.azimuth;
    }
    const pl_hdf5_array fields[] = {{"nav/solarZenith", PL_TYPE(PL_F64, n), angle[0], NULL, NULL},
                                    {"nav/sunAzGrd", PL_TYPE(PL_F64, n), angle[1], NULL, NULL}};
    if (rc == PL_OK) rc = pl_hdf5_write(path, fields, 2);
    free(angle[0]), free(angle[1]);
    return rc;
}

static pl_status write_flight(journey *j, const char *dir, int k, FILE *list)
{
    char *path = j->path;
    if (j->n * j->frames >= LONGEST)
        return pl_fail(
            PL_ERR_CONFIG,
            "a flight of %lld samples of %lld frames is longer than a day; --samples and "
            "--eval-samples need fewer",
            (long long)j->n, (long long)j->frames);
    snprintf(path, TEXT, "%s/%s_camera.h5", dir, flown[k].name);
    pl_status rc = write_camera(j, path, flown[k].begins);
    snprintf(path, TEXT, "%s/%s_lidar_%s.hdf5", dir, flown[k].name, flown[k].date);
    if (rc == PL_OK) rc = write_lidar(j, path, flown[k].day);
    snprintf(path, TEXT, "%s/%s_nav.h5", dir, flown[k].name);
    if (rc == PL_OK) rc = write_nav(j, path);
    fprintf(list, "%1$s=%1$s_camera.h5,%1$s_lidar_%2$s.hdf5,%1$s_nav.h5\n", flown[k].name,
            flown[k].date);
    return rc;
}

pl_status cloud_flights_write(const pl_config *c, void *sky, const char *dir,
                              const int64_t count[2],
                              void (*done)(void *ctx, pl_subset subset, int64_t sample), void *ctx)
{
    int64_t half = (count[PL_SUBSET_TRAIN] + 1) / 2;
    const int64_t n[FLIGHTS] = {half, count[PL_SUBSET_TRAIN] - half, count[PL_SUBSET_EVAL]},
                  first[FLIGHTS] = {0, half, 0};
    journey j = {.sky = sky,
                 .frames = pl_config_int(c, "frames"),
                 .height = pl_config_int(c, "height"),
                 .width = pl_config_int(c, "width"),
                 .first_row = pl_config_int(c, "data.first_row"),
                 .done = done,
                 .ctx = ctx};
    snprintf(j.path, sizeof j.path, "%s/flights.txt", dir);
    FILE *list = fopen(j.path, "w");
    if (!list) return pl_fail(PL_ERR_FILE, "cannot write %s", j.path);
    pl_status rc = PL_OK;
    for (int k = 0; k < FLIGHTS && rc == PL_OK; k++) {
        j.subset = flown[k].subset;
        j.first = first[k];
        j.n = n[k];
        if (n[k] > 0) rc = write_flight(&j, dir, k, list);
    }
    if (fclose(list) != 0 && rc == PL_OK)
        rc = pl_fail(PL_ERR_FILE, "cannot write %s/flights.txt", dir);
    return rc;
}
