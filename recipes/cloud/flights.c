/* flights.c - the authors' files: a camera's frames, a lidar's layers and the aircraft's
 * navigation.
 *
 * Each flight has three HDF5 files:
 *
 *   camera   Product/Signal [N, rows, columns], Time/TimeUTC [N] (seconds since 1970)
 *   lidar    layer_descriptor/Profile_Decimal_Julian_Day [M, ..], Layer_Base_Altitude [M, ..] (km),
 *            Lidar_Surface_Altitude [M], DEM_Surface_Altitude [M] (m); the year is the two digits
 *            before the first dot of the file's name
 *   nav      nav/solarZenith [N], nav/sunAzGrd [N] (degrees)
 *
 * A sample is a frame with the frames around it, where the lidar saw a cloud's base of 0.1 to 2 km
 * (data.min_km, data.max_km) over the sea within half a second. All labels are computed when the
 * set is opened; frames are read on demand. A frame is divided by the flight's mean frame, scaled
 * to [0,1], its contrast equalised (contrast.c), and standardised. At a flight's ends the nearest
 * frame replaces missing ones.
 *
 * Patterns select the flights for training and for evaluation; without flights for evaluation, the
 * last fifth of each flight's samples is used. Flights of data.heavy_flights are repeated: with a
 * factor of 3.5 each of their samples counts seven times, and each sample of other flights twice.
 *
 * Predictions need no labels: they take every frame, one flight at a time, and a flight may come
 * without its lidar, NAME=CAMERA,NAV.
 */
#include "cloud.h"
#include "plimsoll_hdf5.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FLIGHTS = 64, FLAT_FRAMES = 100, HALVES = 2, AT_ONCE = 4 };

typedef struct flight {
    char name[64];
    pl_hdf5 *frames;
    int64_t n, rows, columns; /* of the camera */
    double *zenith, *azimuth;
    float *km;    /* per frame; NaN: no label; NULL in predictions */
    double *time; /* per frame, seconds since 1970; NULL in training */
    float *flat;  /* factor of each pixel, used rows only; NULL: none */
} flight;

typedef struct place {
    int32_t flight, frame;
} place;

typedef struct flights {
    flight flight[MOST_FLIGHTS];
    int n;
    int64_t frames, height, width, first_row;
    double clip, min_km, max_km;
    cloud_scaler scaler;
    bool standardise, unlabelled; /* unlabelled: for predictions */
    const char *from;             /* what names the flights, for messages */
    place *samples[2];            /* by pl_subset */
    int64_t count[2];
    float *whole; /* one camera frame; guarded by lock, because HDF5 serves one reader at a time */
    pthread_mutex_t lock;
    /* scratch of cloud_contrast, for so many threads at once */
    struct scratch {
        pthread_mutex_t lock;
        float room[CLOUD_CONTRAST_ROOM];
    } scratch[AT_ONCE];
} flights;

/* ---- one flight ------------------------------------------------------------------------- */
static pl_status read_labels(const flights *s, flight *f, const char *camera, const char *lidar)
{
    static const char *const fields[] = {
        "layer_descriptor/Profile_Decimal_Julian_Day", "layer_descriptor/Layer_Base_Altitude",
        "layer_descriptor/Lidar_Surface_Altitude", "layer_descriptor/DEM_Surface_Altitude"};
    double *column[4] = {NULL}, *time = NULL;
    int64_t n = 0, n_times = 0;
    int year = cloud_year_of(lidar);
    pl_status rc = year ? cloud_columns(lidar, fields, 4, column, &n)
                        : pl_fail(PL_ERR_DATA,
                                  "%s: the file name has no year (two digits before the first "
                                  "dot, as in CPL_L2_V1-02_01kmLay_30oct24.hdf5)",
                                  lidar);
    if (rc == PL_OK) rc = cloud_column(camera, "Time/TimeUTC", &time, &n_times);
    if (rc == PL_OK && n_times < f->n)
        rc = pl_fail(PL_ERR_DATA, "%s: %lld frames and %lld times", camera, (long long)f->n,
                     (long long)n_times);
    f->km = malloc((size_t)(f->n + 1) * sizeof *f->km);
    if (!f->km) rc = PL_ERR_MEMORY;
    for (int64_t i = 0; f->km && i < f->n; i++) f->km[i] = NAN;
    if (rc == PL_OK) cloud_seconds(column[0], n, year);
    for (int64_t i = 0; rc == PL_OK && i < n && f->n > 0; i++) {
        double base = column[1][i], surface = column[2][i] / 1000, ground = column[3][i];
        bool wanted = isfinite(base) && base >= s->min_km && base <= s->max_km &&
                      fabs(surface) <= 0.9 && ground == 0;
        if (!wanted) continue;
        int64_t at = cloud_nearest(time, f->n, column[0][i]);
        if (fabs(time[at] - column[0][i]) <= 0.5) f->km[at] = (float)base;
    }
    for (int i = 0; i < 4; i++) free(column[i]);
    free(time);
    return rc;
}

static pl_status read_angles(flight *f, const char *nav)
{
    static const char *const fields[] = {"nav/solarZenith", "nav/sunAzGrd"};
    double *column[2] = {NULL}, sum = 0;
    int64_t n = 0, good = 0;
    pl_status rc = cloud_columns(nav, fields, 2, column, &n);
    f->zenith = column[0];
    f->azimuth = column[1];
    if (rc != PL_OK) return rc;
    if (n < f->n)
        return pl_fail(PL_ERR_DATA, "%s: angles of %lld frames, the camera has %lld", nav,
                       (long long)n, (long long)f->n);
    for (int64_t i = 0; i < f->n; i++)
        if (isfinite(f->zenith[i])) sum += f->zenith[i], good++;
    for (int64_t i = 0; i < f->n; i++) {
        if (!isfinite(f->zenith[i])) f->zenith[i] = good ? sum / (double)good : 0;
        double a = isfinite(f->azimuth[i]) ? fmod(f->azimuth[i], 360) : 0;
        f->azimuth[i] = a < 0 ? a + 360 : a;
    }
    return PL_OK;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Computes the flat field, which evens out the mean of the first frames. The authors fit that mean
 * to itself, which leaves a constant: their correction changes nothing. */
static pl_status make_flat(const flights *s, flight *f)
{
    int64_t pixels = s->height * s->width, k = f->n < FLAT_FRAMES ? f->n : FLAT_FRAMES;
    float *frame = malloc((size_t)(f->rows * f->columns) * sizeof *frame),
          *sorted = malloc((size_t)pixels * sizeof *sorted);
    f->flat = calloc((size_t)pixels, sizeof *f->flat);
    pl_status rc = frame && sorted && f->flat ? PL_OK : PL_ERR_MEMORY;
    for (int64_t i = 0; rc == PL_OK && i < k; i++) {
        rc = pl_hdf5_read(f->frames, i, PL_F32, frame);
        for (int64_t p = 0; rc == PL_OK && p < pixels; p++)
            f->flat[p] += frame[s->first_row * s->width + p] / (float)k;
    }
    if (rc == PL_OK) {
        memcpy(sorted, f->flat, (size_t)pixels * sizeof *sorted);
        qsort(sorted, (size_t)pixels, sizeof *sorted, by_value);
        float median = sorted[pixels / 2];
        for (int64_t p = 0; p < pixels; p++)
            f->flat[p] = f->flat[p] > 1e-3f ? median / f->flat[p] : 1;
    }
    free(frame);
    free(sorted);
    return rc;
}

static pl_status read_times(flight *f, const char *camera)
{
    int64_t n = 0;
    pl_status rc = cloud_column(camera, "Time/TimeUTC", &f->time, &n);
    if (rc == PL_OK && n < f->n)
        rc = pl_fail(PL_ERR_DATA, "%s: %lld frames and %lld times", camera, (long long)f->n,
                     (long long)n);
    return rc;
}

static pl_status open_camera(const flights *s, flight *f, const char *const *file)
{
    pl_status rc = pl_hdf5_open(file[0], "Product/Signal", &f->frames);
    if (rc != PL_OK) return rc;
    pl_type t = pl_hdf5_type(f->frames);
    if (t.rank != 3 || t.dim[1] < s->first_row + s->height || t.dim[2] != s->width)
        return pl_fail(
            PL_ERR_DATA,
            "%s: Product/Signal is %lld x %lld; height, width and data.first_row need rows %lld to "
            "%lld of %lld columns",
            file[0], (long long)(t.rank > 1 ? t.dim[1] : 0), (long long)(t.rank > 2 ? t.dim[2] : 0),
            (long long)s->first_row, (long long)(s->first_row + s->height), (long long)s->width);
    f->n = t.dim[0];
    f->rows = t.dim[1];
    f->columns = t.dim[2];
    return PL_OK;
}

static pl_status open_flight(const flights *s, flight *f, const char *const *file, bool flatten)
{
    pl_status rc = open_camera(s, f, file);
    if (rc == PL_OK)
        rc = s->unlabelled ? read_times(f, file[0]) : read_labels(s, f, file[0], file[1]);
    if (rc == PL_OK) rc = read_angles(f, file[2]);
    return rc == PL_OK && flatten ? make_flat(s, f) : rc;
}

/* ---- the set ---------------------------------------------------------------------------- */
static void close_flights(flights *s)
{
    for (int i = 0; i < s->n; i++) {
        flight *f = &s->flight[i];
        if (f->frames) pl_hdf5_close(f->frames);
        free(f->zenith), free(f->azimuth), free(f->km), free(f->time), free(f->flat);
    }
    memset(s->flight, 0, (size_t)s->n * sizeof *s->flight);
    s->n = 0;
    free(s->whole);
    s->whole = NULL;
}

/* Returns the list itself, or the text of the file that it names ("flights.txt" of a
 * folder); *dir: the folder that its paths are relative to, "" for a list. The caller frees it. */
static pl_status read_list(const char *from, const char *text, char **dir, char **out)
{
    enum { MOST = 1 << 20 };
    char path[4096];
    if (strchr(text, '=')) return (*out = strdup(text)) ? PL_OK : PL_ERR_MEMORY;
    snprintf(path, sizeof path, "%s/flights.txt", text);
    enum { READ = O_RDONLY | O_NONBLOCK | O_CLOEXEC }; /* a pipe does not wait for a writer */
    int fd = open(path, READ);
    if (fd < 0) {
        snprintf(path, sizeof path, "%s", text);
        fd = open(path, READ);
    }
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    char *list = f ? calloc(1, MOST) : NULL;
    if (list && fread(list, 1, MOST - 1, f) == 0) list[0] = 0;
    if (f) fclose(f);
    if (!f || !list || !list[0]) {
        free(list);
        return pl_fail(f ? PL_ERR_DATA : PL_ERR_CONFIG,
                       "%s: \"%s\" is neither NAME=CAMERA,LIDAR,NAV nor a file or a folder with "
                       "flights.txt that can be read",
                       from, text);
    }
    const char *slash = strrchr(path, '/');
    *out = list;
    if (slash) *dir = strndup(path, (size_t)(slash - path + 1));
    return slash && !*dir ? PL_ERR_MEMORY : PL_OK;
}

/* The camera's array of each flight stays open; a row has at least the pixels of the network. */
uint64_t cloud_data_bytes(const pl_config *c)
{
    char *list = NULL, *dir = NULL;
    int n = 0;
    if (pl_config_is_null(c, "data.flights")) return 0;
    /* opening the flights says what is wrong with the list */
    if (read_list("data.flights", pl_config_text(c, "data.flights"), &dir, &list) == PL_OK)
        for (const char *at = list; (at = strchr(at, '=')); at++) n++;
    free(list);
    free(dir);
    return pl_hdf5_process_bytes(n, 8 * (uint64_t)pl_config_int(c, "height") *
                                        (uint64_t)pl_config_int(c, "width"));
}

/* Splits "NAME=CAMERA,LIDAR,NAV" in place; in predictions the lidar may be omitted. */
static pl_status split_item(const flights *s, char *item, const char *name[3])
{
    char *equals = strchr(item, '='), *comma = equals ? strchr(equals, ',') : NULL;
    char *second = comma ? strchr(comma + 1, ',') : NULL;
    if (!comma || (!second && !s->unlabelled) || s->n == MOST_FLIGHTS ||
        equals - item >= (int)sizeof s->flight[0].name)
        return pl_fail(PL_ERR_CONFIG,
                       "%s: \"%s\" is not NAME=CAMERA,LIDAR,NAV%s (at most %d flights)", s->from,
                       item, s->unlabelled ? " or NAME=CAMERA,NAV" : "", MOST_FLIGHTS);
    *equals = *comma = 0;
    if (second) *second = 0;
    name[0] = equals + 1;
    name[1] = comma + 1;
    name[2] = second ? second + 1 : comma + 1;
    return PL_OK;
}

/* How much of a flight is opened. */
typedef enum depth { WHOLE, CAMERA_ONLY } depth;

static pl_status open_item(flights *s, const pl_config *c, const char *dir, char *item, depth how)
{
    const char *name[3] = {NULL};
    char *file[3] = {NULL};
    pl_status rc = split_item(s, item, name);
    if (rc != PL_OK) return rc;
    for (int i = 0; i < 3 && rc == PL_OK; i++)
        if (asprintf(&file[i], "%s%s", name[i][0] == '/' ? "" : dir, name[i]) < 0) {
            file[i] = NULL;
            rc = PL_ERR_MEMORY;
        }
    flight *f = &s->flight[s->n++];
    snprintf(f->name, sizeof f->name, "%s", item);
    /* The original fits its flat field to itself: the result is a constant. */
    bool flatten = pl_config_bool(c, "data.flat_field") && !pl_config_bool(c, "seed_compat");
    const char *const *path = (const char *const *)file;
    if (rc == PL_OK) rc = how == WHOLE ? open_flight(s, f, path, flatten) : open_camera(s, f, path);
    for (int i = 0; i < 3; i++) free(file[i]);
    return rc;
}

/* Opens the flights of a list. each: called after every flight, which is then closed; NULL: all
 * stay open. */
static pl_status open_list(flights *s, const pl_config *c, const char *text, depth how,
                           pl_status (*each)(void *ctx, void *flights), void *ctx)
{
    char *list = NULL, *save = NULL, *dir = NULL;
    pl_status rc = read_list(s->from, text, &dir, &list);
    for (char *item = list ? strtok_r(list, ";\r\n", &save) : NULL; rc == PL_OK && item;
         item = strtok_r(NULL, ";\r\n", &save)) {
        item += strspn(item, " \t");
        if (!*item) continue;
        rc = open_item(s, c, dir ? dir : "", item, how);
        if (!each) continue;
        if (rc == PL_OK) rc = each(ctx, s);
        close_flights(s);
    }
    free(list);
    free(dir);
    return rc;
}

static int64_t labelled(const flight *f)
{
    int64_t n = 0;
    for (int64_t i = 0; i < f->n; i++) n += !isnan(f->km[i]);
    return n;
}

/* Adds the flight's samples [from, to) to the subset, each `times` times. */
static bool add_samples(flights *s, int flight_no, pl_subset subset, int64_t from, int64_t to,
                        int times)
{
    const flight *f = &s->flight[flight_no];
    int64_t more = s->count[subset] + (to - from) * times, k = 0;
    place *grown = realloc(s->samples[subset], (size_t)(more + 1) * sizeof *grown);
    if (!grown) return false;
    s->samples[subset] = grown;
    for (int64_t i = 0; i < f->n; i++) {
        if (isnan(f->km[i])) continue;
        for (int r = 0; k >= from && k < to && r < times; r++)
            grown[s->count[subset]++] = (place){flight_no, (int32_t)i};
        k++;
    }
    return true;
}

/* A pattern that matches no flight is a mistake. */
static pl_status check_pattern(const flights *s, const char *key, const char *pattern)
{
    for (int i = 0; pattern && i < s->n; i++)
        if (pl_nn_match(pattern, s->flight[i].name)) return PL_OK;
    if (!pattern || !s->n) return PL_OK;
    return pl_fail(PL_ERR_CONFIG,
                   "%s=%s: no name of the %d flights matches; the first flight is %s", key, pattern,
                   s->n, s->flight[0].name);
}

/* Returns the labelled frames of a flight that are trained on when the last ones are for
 * evaluation: all but a fifth, and at least one is left out. */
static int64_t head_of(int64_t n)
{
    int64_t last = n / 5 ? n / 5 : n > 1;
    return n - last;
}

static pl_status share_out(flights *s, const pl_config *c)
{
    const char *train = pl_config_text(c, "data.train_flights"), *heavy = NULL, *eval = NULL;
    if (!pl_config_is_null(c, "data.eval_flights")) eval = pl_config_text(c, "data.eval_flights");
    if (!pl_config_is_null(c, "data.heavy_flights"))
        heavy = pl_config_text(c, "data.heavy_flights");
    pl_status rc = check_pattern(s, "data.train_flights", train);
    if (rc == PL_OK) rc = check_pattern(s, "data.eval_flights", eval);
    if (rc == PL_OK) rc = check_pattern(s, "data.heavy_flights", heavy);
    if (rc != PL_OK) return rc;
    int weight = (int)lround(HALVES * pl_config_float(c, "data.heavy_factor"));
    for (int i = 0; i < s->n; i++) {
        const char *name = s->flight[i].name;
        int64_t n = labelled(&s->flight[i]), tail = eval ? n : head_of(n);
        int times = heavy ? pl_nn_match(heavy, name) ? weight : HALVES : 1;
        bool ok = true;
        if (eval && pl_nn_match(eval, name))
            ok = add_samples(s, i, PL_SUBSET_EVAL, 0, n, 1);
        else if (pl_nn_match(train, name))
            ok = add_samples(s, i, PL_SUBSET_TRAIN, 0, tail, times);
        if (!eval && pl_nn_match(train, name))
            ok = ok && add_samples(s, i, PL_SUBSET_EVAL, tail, n, 1);
        if (!ok) return PL_ERR_MEMORY;
    }
    if (!s->count[PL_SUBSET_TRAIN])
        return pl_fail(
            PL_ERR_DATA,
            "data.flights: no frame of flights \"%s\" has a label (a base of %g to %g km over the sea "
            "within half a second)",
            train, s->min_km, s->max_km);
    if (!s->count[PL_SUBSET_EVAL])
        return pl_fail(
            PL_ERR_DATA,
            "data.flights: no frame is left for evaluation: %s has no label (a base of %g to %g km over "
            "the sea within half a second)",
            eval ? eval : "all but one frame of a flight", s->min_km, s->max_km);
    return PL_OK;
}

void cloud_flights_close(void *data)
{
    flights *s = data;
    if (!s) return;
    close_flights(s);
    free(s->samples[0]), free(s->samples[1]);
    pthread_mutex_destroy(&s->lock);
    for (int i = 0; i < AT_ONCE; i++) pthread_mutex_destroy(&s->scratch[i].lock);
    free(s);
}

static size_t largest_frame(const flights *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->n; i++)
        if (s->flight[i].rows * s->flight[i].columns > most)
            most = s->flight[i].rows * s->flight[i].columns;
    return (size_t)most;
}

/* A set without flights. */
static flights *new_set(const pl_config *c, const char *from, bool unlabelled)
{
    flights *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->from = from;
    s->unlabelled = unlabelled;
    s->frames = pl_config_int(c, "frames");
    s->height = pl_config_int(c, "height");
    s->width = pl_config_int(c, "width");
    s->first_row = pl_config_int(c, "data.first_row");
    s->clip = pl_config_float(c, "data.contrast");
    s->min_km = pl_config_float(c, "data.min_km");
    s->max_km = pl_config_float(c, "data.max_km");
    s->standardise = pl_config_bool(c, "data.standardise");
    pthread_mutex_init(&s->lock, NULL);
    for (int i = 0; i < AT_ONCE; i++) pthread_mutex_init(&s->scratch[i].lock, NULL);
    return s;
}

static pl_status make_whole(flights *s)
{
    s->whole = malloc(largest_frame(s) * sizeof *s->whole);
    return s->whole ? PL_OK : PL_ERR_MEMORY;
}

pl_status cloud_flights_open(const pl_config *c, void **data)
{
    flights *s = new_set(c, "data.flights", false);
    if (!s) return PL_ERR_MEMORY;
    pl_status rc = cloud_scaler_of(c, &s->scaler);
    if (rc == PL_OK) rc = open_list(s, c, pl_config_text(c, "data.flights"), WHOLE, NULL, NULL);
    if (rc == PL_OK) rc = share_out(s, c);
    if (rc == PL_OK) rc = make_whole(s);
    if (rc != PL_OK) {
        cloud_flights_close(s);
        return rc;
    }
    *data = s;
    return PL_OK;
}

/* ---- predictions: one flight at a time ---- */
pl_status cloud_flights_each(const pl_config *c, const char *list, bool count,
                             pl_status (*each)(void *ctx, void *flight), void *ctx)
{
    flights *s = new_set(c, "--input", true);
    if (!s) return PL_ERR_MEMORY;
    pl_status rc = open_list(s, c, list, count ? CAMERA_ONLY : WHOLE, each, ctx);
    cloud_flights_close(s);
    return rc;
}

int64_t cloud_flight_frames(const void *data)
{
    return ((const flights *)data)->flight[0].n;
}

const char *cloud_flight_name(const void *data)
{
    return ((const flights *)data)->flight[0].name;
}

double cloud_flight_time(const void *data, int64_t frame)
{
    return ((const flights *)data)->flight[0].time[frame];
}

int64_t cloud_flights_size(void *data, pl_subset subset)
{
    return ((const flights *)data)->count[subset];
}

/* Locks a scratch that no thread uses; where all are used, waits for the first. */
static struct scratch *take_scratch(flights *s)
{
    for (int i = 0; i < AT_ONCE; i++)
        if (pthread_mutex_trylock(&s->scratch[i].lock) == 0) return &s->scratch[i];
    pthread_mutex_lock(&s->scratch[0].lock);
    return &s->scratch[0];
}

static pl_status read_frame(flights *s, const flight *f, int64_t i, float *to)
{
    i = i < 0 ? 0 : i >= f->n ? f->n - 1 : i;
    int64_t pixels = s->height * s->width;
    pthread_mutex_lock(&s->lock);
    pl_status rc = pl_hdf5_read(f->frames, i, PL_F32, s->whole);
    const float *from = s->whole + s->first_row * s->width;
    for (int64_t p = 0; rc == PL_OK && p < pixels; p++)
        to[p] = f->flat ? from[p] * f->flat[p] : from[p];
    pthread_mutex_unlock(&s->lock);
    if (rc != PL_OK) return rc;
    struct scratch *w = take_scratch(s);
    cloud_contrast(to, s->height, s->width, s->clip, s->standardise, w->room);
    pthread_mutex_unlock(&w->lock);
    return PL_OK;
}

/* Writes the frames around a frame of a flight, and its standardised angles; either may be NULL. */
static pl_status read_stack(flights *s, const flight *f, int64_t frame, float *frames,
                            float *angles)
{
    pl_status rc = PL_OK;
    for (int64_t t = 0; frames && rc == PL_OK && t < s->frames; t++)
        rc = read_frame(s, f, frame - s->frames / 2 + t, frames + t * s->height * s->width);
    if (angles) {
        angles[0] = (float)((f->zenith[frame] - CLOUD_ZENITH_MEAN) / CLOUD_ZENITH_STD);
        angles[1] = (float)((f->azimuth[frame] - CLOUD_AZIMUTH_MEAN) / CLOUD_AZIMUTH_STD);
    }
    return rc;
}

pl_status cloud_flight_stack(void *data, int64_t frame, float *frames, float *angles)
{
    flights *s = data;
    pl_status rc = s->whole ? PL_OK : make_whole(s);
    return rc == PL_OK ? read_stack(s, &s->flight[0], frame, frames, angles) : rc;
}

pl_status cloud_flights_read(void *data, pl_subset subset, const int64_t *sample, int n,
                             pl_batch *batch)
{
    flights *s = data;
    float *frames = pl_batch_input(batch, "frames", NULL),
          *angles = pl_batch_input(batch, "angles", NULL);
    float *target = pl_batch_input(batch, "target", NULL);
    int64_t stack = s->frames * s->height * s->width;
    pl_status rc = PL_OK;
    for (int i = 0; rc == PL_OK && i < n; i++) {
        place at = s->samples[subset][sample[i]];
        const flight *f = &s->flight[at.flight];
        rc = read_stack(s, f, at.frame, frames ? frames + i * stack : NULL,
                        angles ? angles + 2 * i : NULL);
        if (target) target[i] = (float)(((double)f->km[at.frame] - s->scaler.mean) / s->scaler.std);
    }
    return rc;
}
