/* plimsoll_events.h - writes scalars and images of a run into TensorBoard event files.
 *
 *     pl_events *e;
 *     PL_TRY(pl_events_open("runs/first", 0, &e));
 *     pl_events_scalar(e, "train/loss", 0.25);            collects
 *     PL_TRY(pl_events_write(e, step));                   writes one record with all values
 *     pl_events_close(e);
 *
 * A record is one write, so a process that is killed leaves at most one incomplete record at the
 * end, which readers skip. Every function does nothing when e is NULL.
 */
#ifndef PLIMSOLL_EVENTS_H
#define PLIMSOLL_EVENTS_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_events pl_events;

/* Starts a new file in dir whose name sorts after the existing ones. from: last step before the
 * resume (0: a new run); readers then drop later steps of earlier files. */
PL_API pl_status pl_events_open(const char *dir, int64_t from, pl_events **out) PL_MUST_USE;
PL_API void pl_events_close(pl_events *e);
/* Returns when all records are on the disk. */
PL_API pl_status pl_events_sync(pl_events *e) PL_MUST_USE;

PL_API void pl_events_scalar(pl_events *e, const char *tag, double value);
/* Collects an image: rows of width * channels bytes, top row first; channels: 1 grey, 3 RGB, 4
 * RGBA. Encodes the image with libspng; pl_events_write returns the error when that fails. */
PL_API void pl_events_image(pl_events *e, const char *tag, int width, int height, int channels,
                            const uint8_t *pixels);
/* Writes a PNG file, completely or not at all. PL_ERR_UNSUPPORTED: libspng is not installed. */
PL_API pl_status pl_png_save(const char *path, int width, int height, int channels,
                             const uint8_t *pixels) PL_MUST_USE;
/* The same for a picture that is made row by row, from the top down, and is never held as a whole:
 * row returns the width * channels bytes of row y, valid until the next call. */
PL_API pl_status pl_png_save_rows(const char *path, int width, int height, int channels,
                                  const uint8_t *(*row)(void *from, int y), void *from) PL_MUST_USE;
/* Writes the collected values as one record of this step, if there are any. */
PL_API pl_status pl_events_write(pl_events *e, int64_t step) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
