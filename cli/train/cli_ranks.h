/* ranks.h - `plimsoll train` as one of several processes: what rank 0 decides reaches the others.
 */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "trainer.h"

/* What rank 0 found in the run's folder, on all ranks: with resume they go on from the same
 * checkpoint. */
pl_status ranks_take_folder(trainer *t, bool resume);
/* The phase that rank 0 begins with, and where phases leave their weights. */
pl_status ranks_take_phase(trainer *t);
/* The most that every rank's process has held, and a line of it on stderr. */
pl_status ranks_share_peaks(trainer *t);
void ranks_tell_peaks(const trainer *t);
/* Between steps: whether any rank was asked to stop (signal, else 0) and whether rank 0 saves. */
pl_status ranks_agree(trainer *t, volatile int *stop, bool *save);
/* Rank 0 alone saves; the others serve it meanwhile. *saved: it went well. */
bool ranks_follows(const trainer *t);
pl_status ranks_serve(trainer *t, bool *saved);
/* Who is who, on stderr. */
void ranks_table(const trainer *t);

#endif
