/* predict.c - cloud-base heights of new frames, without targets.
 *
 * --input is either the arrays that training reads (a folder with frames.npy and angles.npy, or one
 * safetensors or HDF5 file with both), or flights (flights.c): then every frame of every flight
 * gets a height. --out is a folder: heights.csv, in which each height is in a row with its flight,
 * frame and time, and heights.npy, the heights only, in the same order.
 */
#include "cloud.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CSV "heights.csv"
#define NPY "heights.npy"

static pl_status build(pl_builder *b)
{
    cloud k;
    cloud_scaler s;
    pl_status rc = cloud_scaler_of(pl_builder_config(b), &s);
    if (rc != PL_OK) return rc;
    if (cloud_sizes(b, pl_builder_predict(b, NULL), &k) != PL_OK) return pl_nn_finish(k.m);
    pl_graph *g = k.m->g;
    cloud_scaler_fact(b, &s);
    pl_val height = pl_cast(g, cloud_predict(&k), PL_F32);
    pl_output(g, "km", pl_shift(g, pl_scale(g, height, s.std), s.mean));
    return PL_OK;
}

/* One prediction: where samples come from, and the batch that is being filled. */
typedef struct job {
    pl_prediction *p;
    pl_type frames;          /* of the program's input, (B,T,H,W) */
    bool sees_angles, loose; /* loose: numbers that are not finite are read as 0 */
    int stacks, angles;      /* pl_predict_rows; -1: flights */
    void *flight;            /* open flight */
    int64_t done, total;
} job;

/* Writes sample i of the array or of the open flight to row `row` of the inputs. */
static pl_status read_sample(job *j, int64_t i, int64_t row)
{
    int64_t stack = j->frames.dim[1] * j->frames.dim[2] * j->frames.dim[3];
    float *frames = pl_predict_set(j->p, NULL, "frames", NULL),
          *angles = j->sees_angles ? pl_predict_set(j->p, NULL, "angles", NULL) : NULL;
    pl_status rc;
    frames += row * stack;
    if (angles) angles += row * 2;
    if (j->flight) return cloud_flight_stack(j->flight, i, frames, angles);
    rc = pl_predict_row(j->p, j->stacks, i, frames);
    if (rc == PL_OK && angles) rc = pl_predict_row(j->p, j->angles, i, angles);
    for (int64_t k = 0; k < stack && rc == PL_OK && !j->loose; k++)
        if (!isfinite(frames[k]))
            rc = pl_fail(PL_ERR_DATA,
                         "%s: frames: number %lld of sample %lld is not finite "
                         "(data.allow_nonfinite=true reads it as 0)",
                         pl_predict_input(j->p), (long long)k, (long long)i);
    for (int k = 0; k < 2 && rc == PL_OK && angles && !j->loose; k++)
        if (!isfinite(angles[k]))
            rc = pl_fail(PL_ERR_DATA,
                         "%s: angles: number %d of sample %lld is not finite "
                         "(data.allow_nonfinite=true reads it as 0)",
                         pl_predict_input(j->p), k, (long long)i);
    return rc;
}

static pl_status write_sample(job *j, int64_t i, float km)
{
    if (!isfinite(km))
        return pl_fail(PL_ERR_NUMERIC,
                       "the height of sample %lld is not finite: the weights are "
                       "damaged, or their training diverged",
                       (long long)i);
    pl_status rc = PL_OK;
    if (j->flight) rc = pl_predict_field(j->p, CSV, cloud_flight_name(j->flight));
    if (rc == PL_OK)
        rc = j->flight ? pl_predict_print(j->p, CSV, ",%lld,%.3f,%.9g\n", (long long)i,
                                          cloud_flight_time(j->flight, i), (double)km)
                       : pl_predict_print(j->p, CSV, "%lld,%.9g\n", (long long)i, (double)km);
    return rc == PL_OK ? pl_predict_write(j->p, NPY, &km, sizeof km) : rc;
}

/* Predicts samples [0, n) of the array or of the open flight. */
static pl_status predict_samples(job *j, int64_t n)
{
    int64_t batch = j->frames.dim[0];
    pl_status rc = PL_OK;
    for (int64_t at = 0; at < n && rc == PL_OK; at += batch) {
        int64_t rows = n - at < batch ? n - at : batch;
        /* The last batch may be smaller; its other rows repeat a sample and are not written. */
        for (int64_t k = 0; k < batch && rc == PL_OK; k++)
            rc = read_sample(j, at + (k < rows ? k : 0), k);
        if (rc == PL_OK) rc = pl_predict_run(j->p, NULL);
        const float *km = rc == PL_OK ? pl_predict_get(j->p, NULL, "km", NULL) : NULL;
        for (int64_t k = 0; k < rows && rc == PL_OK; k++) rc = write_sample(j, at + k, km[k]);
        j->done += rows;
        if (rc == PL_OK) rc = pl_predict_progress(j->p, j->done, j->total);
    }
    return rc;
}

static pl_status count_frames(void *ctx, void *flight)
{
    job *j = ctx;
    j->total += cloud_flight_frames(flight);
    return PL_OK;
}

static pl_status predict_flight(void *ctx, void *flight)
{
    job *j = ctx;
    j->flight = flight;
    return predict_samples(j, cloud_flight_frames(flight));
}

static pl_status begin(job *j, const char *header)
{
    if (j->total == 0)
        return pl_fail(PL_ERR_DATA, "%s has no frames to predict", pl_predict_input(j->p));
    pl_status rc = pl_predict_print(j->p, CSV, "%s\n", header);
    return rc == PL_OK ? pl_predict_npy(j->p, NPY, PL_TYPE(PL_F32, j->total)) : rc;
}

static pl_status predict_flights(job *j)
{
    const pl_config *c = pl_predict_config(j->p);
    pl_status rc = cloud_flights_each(c, pl_predict_input(j->p), true, count_frames, j);
    if (rc == PL_OK) rc = begin(j, "flight,frame,time,height_km");
    return rc == PL_OK ? cloud_flights_each(c, pl_predict_input(j->p), false, predict_flight, j)
                       : rc;
}

static pl_status predict_arrays(job *j, const char *frames, const char *angles)
{
    int64_t n;
    pl_type stack = pl_type_make(PL_F32, 3, j->frames.dim + 1), pair = PL_TYPE(PL_F32, 2);
    pl_status rc = pl_predict_rows(j->p, frames, "frames", &stack, &j->stacks, &j->total);
    if (rc == PL_OK && j->sees_angles) {
        rc = pl_predict_rows(j->p, angles, "angles", &pair, &j->angles, &n);
        if (rc == PL_OK && n != j->total)
            rc = pl_fail(PL_ERR_DATA, "%s: %lld stacks of frames and %lld pairs of angles",
                         pl_predict_input(j->p), (long long)j->total, (long long)n);
    }
    if (rc == PL_OK) rc = begin(j, "sample,height_km");
    return rc == PL_OK ? predict_samples(j, j->total) : rc;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static pl_status run(pl_prediction *p)
{
    const char *path = pl_predict_input(p);
    enum { PATH = 2048 };
    char frames[PATH], angles[PATH];
    job j = {.p = p,
             .sees_angles = pl_predict_set(p, NULL, "angles", NULL) != NULL,
             .loose = pl_config_bool(pl_predict_config(p), "data.allow_nonfinite")};
    if (!pl_predict_set(p, NULL, "frames", &j.frames)) return PL_ERR_ARG;
    if (strlen(path) + sizeof "/angles.npy" > PATH)
        return pl_fail(PL_ERR_IO, "--input %.100s...: the path is too long", path);
    if (ends_with(path, ".safetensors") || ends_with(path, ".h5") || ends_with(path, ".hdf5"))
        if (!strchr(path, '=')) return predict_arrays(&j, path, path);
    if (ends_with(path, ".npy")) {
        const char *slash = strrchr(path, '/');
        snprintf(angles, sizeof angles, "%.*sangles.npy", slash ? (int)(slash - path + 1) : 0,
                 path);
        return predict_arrays(&j, path, angles);
    }
    snprintf(frames, sizeof frames, "%s/frames.npy", path);
    snprintf(angles, sizeof angles, "%s/angles.npy", path);
    return access(frames, F_OK) == 0 ? predict_arrays(&j, frames, angles) : predict_flights(&j);
}

/* A flight: one camera frame (its rows beyond the swath are unknown: twice as many), its flat field
 * and the sorted copy of it, and three columns of a day's frames. */
static uint64_t bytes(const pl_config *c)
{
    uint64_t rows = (uint64_t)(pl_config_int(c, "height") + pl_config_int(c, "data.first_row"));
    return 6 * rows * (uint64_t)pl_config_int(c, "width") * sizeof(float) + ((uint64_t)4 << 20);
}

const pl_predict cloud_predict_heights = {
    .input = "a folder with frames.npy and angles.npy, or flights as in data.flights (the lidar's "
             "file may be omitted)",
    .out = "a folder for heights.csv and heights.npy",
    .build = build,
    .run = run,
    .bytes = bytes,
};
