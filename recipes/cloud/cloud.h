/* cloud.h - shared by the files of the cloud recipe. */
#ifndef CLOUD_H
#define CLOUD_H

#include "plimsoll_recipe.h"

enum { CLOUD_MAX_FRAMES = 64, CLOUD_MAX_LEVELS = 8, CLOUD_MAX_LAYERS = 8 };

/* State that the files of the recipe share while a program is built. */
typedef struct cloud {
    pl_builder *b;
    pl_nn *m;
    const int64_t *channels, *dense; /* by level, by layer of the head */
    const double *drop_dense;
    int levels, layers;
    int64_t batch, frames, height, width, film_hidden;
    double drop_conv, norm_momentum;
    bool look;        /* spatial attention */
    bool compat;      /* seed_compat */
    const char *kind; /* architecture.name */
    /* inputs of the levels' BatchNorms, by frame */
    pl_val before_norm[CLOUD_MAX_FRAMES][CLOUD_MAX_LEVELS];
} cloud;

/* model.c: reads sizes from the configuration. Predicts the standardised height (B) from the inputs
 * frames (B,T,H,W) and angles (B,2). */
pl_status cloud_sizes(pl_builder *b, pl_nn *m, cloud *k);
/* Channels of the last level. */
int64_t cloud_features(const cloud *k);
pl_val cloud_predict(cloud *k);
pl_nn_lin cloud_xavier(void);

/* Loss of each prediction, (B), by loss.type. */
pl_val cloud_error_cost(pl_graph *g, const pl_config *c, pl_val y, pl_val target);

/* graph.c: reduces frame t's map (B,h,w,C) to (B,C) by graph attention between neighbours. */
pl_val cloud_graph_attention(cloud *k, int64_t t, pl_val map);
/* recurrent.c: reduces the frames' vectors (B,T,C) to (B,C). */
pl_val cloud_state_space(cloud *k, pl_val features);
pl_val cloud_lstm(cloud *k, pl_val features);
/* augment.c: augments stacks and angles (PL_NO_VAL: none) in training, by the keys augment.*. */
void cloud_augment(cloud *k, pl_val *frames, pl_val *angles);

/* The data: sky.c generates it; flights.c reads the authors' files if data.flights is set. */
pl_status cloud_sky_open(const pl_config *c, void **data);
void cloud_sky_close(void *data);
int64_t cloud_sky_size(void *data, pl_subset subset);
pl_status cloud_sky_read(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch);

/* Labels of a generated sample, in km and degrees, and its frame t, with pixels (kelvin -
 * CLOUD_KELVIN) / CLOUD_KELVINS. */
typedef struct cloud_truth {
    double km, zenith, azimuth;
} cloud_truth;
cloud_truth cloud_sky_truth(pl_subset subset, int64_t sample);
void cloud_sky_frame(void *data, pl_subset subset, int64_t sample, int64_t t, float *out);
#define CLOUD_KELVIN  286
#define CLOUD_KELVINS 5
/* made.c: writes generated skies as flights in the authors' file format. sky: from cloud_sky_open.
 */
pl_status cloud_flights_write(const pl_config *c, void *sky, const char *dir,
                              const int64_t count[2],
                              void (*done)(void *ctx, pl_subset subset, int64_t sample), void *ctx);

pl_status cloud_flights_open(const pl_config *c, void **data);
/* Returns the memory of the processes that read the flights. */
uint64_t cloud_data_bytes(const pl_config *c);
void cloud_flights_close(void *data);
int64_t cloud_flights_size(void *data, pl_subset subset);
pl_status cloud_flights_read(void *data, pl_subset subset, const int64_t *sample, int n,
                             pl_batch *batch);
/* columns.c: the first number of every row of an HDF5 array; of several arrays of one length. The
 * caller frees them, also after a failure. */
pl_status cloud_column(const char *path, const char *field, double **out, int64_t *n);
pl_status cloud_columns(const char *path, const char *const *fields, int k, double **out,
                        int64_t *n);
/* The year that the name of a lidar's file ends with, before its first dot; 0: none. */
int cloud_year_of(const char *path);
/* Converts decimal days of the year to seconds since 1970. Shortly after midnight the whole days
 * may still be those of the day before. */
void cloud_seconds(double *day, int64_t n, int year);
/* The frame nearest in time; times rise. */
int64_t cloud_nearest(const double *time, int64_t n, double t);
/* For predictions: opens the flights of a list (as data.flights; the lidar's file may be omitted)
 * one after the other and calls each. count: the camera alone is opened, to count its frames. */
pl_status cloud_flights_each(const pl_config *c, const char *list, bool count,
                             pl_status (*each)(void *ctx, void *flight), void *ctx);
/* Of the flight that is open: number of frames, name, and the time of a frame in seconds since
 * 1970. */
int64_t cloud_flight_frames(const void *flight);
const char *cloud_flight_name(const void *flight);
double cloud_flight_time(const void *flight, int64_t frame);
/* Writes the frames around a frame (T,H,W) and its angles (2); either may be NULL. */
pl_status cloud_flight_stack(void *flight, int64_t frame, float *frames, float *angles);
/* contrast.c: scales a frame to [0,1] and equalises its contrast, in place; limit 0: no
 * equalisation. room: scratch of CLOUD_CONTRAST_ROOM floats. */
enum { CLOUD_CONTRAST_ROOM = 8 * 8 * 256 };
void cloud_contrast(float *x, int64_t height, int64_t width, double limit, bool standardise,
                    float *room);

/* Targets are standardised: (km - mean) / std of the uniform distribution over the range. */
#define CLOUD_MIN_KM  0.1
#define CLOUD_MAX_KM  2.0
#define CLOUD_MEAN_KM ((CLOUD_MIN_KM + CLOUD_MAX_KM) / 2)
#define CLOUD_STD_KM  ((CLOUD_MAX_KM - CLOUD_MIN_KM) / 3.4641016151377544)
/* scaler.c: the numbers above, or the numbers in the file from which the model starts. */
typedef struct cloud_scaler {
    double mean, std; /* km */
} cloud_scaler;
pl_status cloud_scaler_of(const pl_config *c, cloud_scaler *s);
/* Model files state a scale that is not the default, or that the configuration names. */
void cloud_scaler_fact(pl_builder *b, const cloud_scaler *s);

/* Angles are standardised by the uniform distributions that sky.c draws from. */
#define CLOUD_ZENITH_MEAN  40.0
#define CLOUD_ZENITH_STD   17.3
#define CLOUD_AZIMUTH_MEAN 180.0
#define CLOUD_AZIMUTH_STD  103.9

extern const pl_preset cloud_presets[];
extern const pl_start cloud_start; /* names.c */
extern const pl_export cloud_exports[];
extern const pl_predict cloud_predict_heights; /* predict.c */

extern const pl_foreign cloud_foreign[]; /* foreign.c */

#endif
