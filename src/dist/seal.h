/* seal.h - messages of the control channel that nobody can forge, repeat, reorder or leave out.
 *
 * Each message ends in a space and the keyed hash of its number and its text: "beat 3f...\n". Both
 * ends count the messages of each direction, so a message that is repeated, left out or moved has
 * another number and another hash. The keys of a connection are hashes of the key of the run, of
 * the direction, and of the lines `hello` and `welcome`, which contain a random number of each end:
 * messages of another connection do not verify, and neither does a changed greeting.
 */
#ifndef PL_DIST_SEAL_H
#define PL_DIST_SEAL_H

#include "base/trust/secret.h"

enum { PL_SEAL_BYTES = 2 * PL_TAG_BYTES + 1, PL_NONCE_BYTES = 16 };

typedef struct pl_seal {
    bool on; /* off: messages pass as they are */
    pl_key send, receive;
    uint64_t sent, received;
} pl_seal;

/* Sets the keys. hub: this end is the hub's. The greetings come without the end of the line. */
void pl_seal_begin(pl_seal *s, const pl_key *run, bool hub, const char *hello, const char *welcome);
/* Appends hash and end of line to a message, which must leave PL_SEAL_BYTES + 2 of cap free;
 * returns the length. The caller counts the message (pl_seal_sent) once it has been sent as a
 * whole. */
size_t pl_seal_close(const pl_seal *s, char *line, size_t cap);
void pl_seal_sent(pl_seal *s);
/* Verifies a received line and removes the hash; false: the line is not the next message of the
 * other end. */
bool pl_seal_open(pl_seal *s, char *line);

#endif
