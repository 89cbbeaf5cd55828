/* cli_ranks.h - `plimsoll train` with several ranks: rank 0 decides and informs the other ranks. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "trainer.h"

/* Sends what rank 0 found in the run folder to all ranks. resume: all ranks resume from the same
 * checkpoint. */
pl_status ranks_take_folder(trainer *t, bool resume);
/* Sends the first phase, and the folder for weights between phases, from rank 0 to all ranks. */
pl_status ranks_take_phase(trainer *t);
/* Exchanges the peak bytes of all ranks; prints the highest on stderr. */
pl_status ranks_share_peaks(trainer *t);
void ranks_tell_peaks(const trainer *t);
/* Agrees between steps. *stop: the signal that asked any rank to stop, or 0. *save: rank 0 saves.
 */
pl_status ranks_agree(trainer *t, volatile int *stop, bool *save);
/* Returns the number of ranks on this rank's machine. */
int ranks_here(const trainer *t);
/* Returns whether this rank is not rank 0. */
bool ranks_follows(const trainer *t);
/* Sends this rank's shards to rank 0 while rank 0 saves. *saved: the save succeeded. */
pl_status ranks_serve(trainer *t, bool *saved);
/* Prints host, process, threads and memory of every rank on stderr. */
void ranks_table(const trainer *t);

#endif
