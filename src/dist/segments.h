/* segments.h - where the ranks of one launch keep the memory that they share.
 *
 * Open MPI makes a file for each rank in /dev/shm, and a rank that is killed leaves it there, in
 * memory. Ranks that this program starts get a folder for these files, which the launch removes at
 * its end; the folder of a launch that was killed is removed by the next one.
 */
#ifndef PL_DIST_SEGMENTS_H
#define PL_DIST_SEGMENTS_H

typedef struct pl_segments {
    char path[64]; /* "": Open MPI's own place is used */
} pl_segments;

/* Makes the folder, names it in the environment of mpirun, and removes folders of launches that
 * have ended. Where /dev/shm cannot be written, nothing happens. */
void pl_segments_begin(pl_segments *s);
void pl_segments_end(const pl_segments *s);

#endif
