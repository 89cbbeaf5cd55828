/* plimsoll_events.h - scalars and images over the steps of a run, in the files that TensorBoard
 * reads.
 *
 *     pl_events *e;
 *     PL_TRY(pl_events_open("runs/first", 0, &e));
 *     pl_events_scalar(e, "train/loss", 0.25);            gathers
 *     PL_TRY(pl_events_write(e, step));                   one record with all that was gathered
 *     pl_events_close(e);
 *
 * A record reaches the file in one write, so a process that is killed leaves at most one torn
 * record at the end, which readers pass over. Every function takes NULL and does nothing then.
 */
#ifndef PLIMSOLL_EVENTS_H
#define PLIMSOLL_EVENTS_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_events pl_events;

/* Begins a new file in dir, named so that it sorts behind those that are there. A run that goes on
 * after step `from` (0: it begins) tells readers to forget what earlier files have of later steps.
 */
PL_API pl_status pl_events_open(const char *dir, int64_t from, pl_events **out) PL_MUST_USE;
PL_API void pl_events_close(pl_events *e);

PL_API void pl_events_scalar(pl_events *e, const char *tag, double value);
/* Rows of width * channels bytes, top row first; channels: 1 grey, 3 RGB, 4 RGBA. */
PL_API void pl_events_image(pl_events *e, const char *tag, int width, int height, int channels,
                            const uint8_t *pixels);
/* The same picture as a PNG file, whole or not at all. */
PL_API pl_status pl_png_save(const char *path, int width, int height, int channels,
                             const uint8_t *pixels) PL_MUST_USE;
/* Writes what was gathered as of this step; nothing gathered, nothing written. */
PL_API pl_status pl_events_write(pl_events *e, int64_t step) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
