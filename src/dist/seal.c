/* seal.c - see seal.h. */
#include "dist/seal.h"

#include <stdio.h>
#include <string.h>

void pl_seal_begin(pl_seal *s, const pl_key *run, bool hub, const char *hello, const char *welcome)
{
    pl_key of_rank =
        pl_keyed_hash(run, "plimsoll rank", hello, strlen(hello), welcome, strlen(welcome));
    pl_key of_hub =
        pl_keyed_hash(run, "plimsoll hub", hello, strlen(hello), welcome, strlen(welcome));
    *s = (pl_seal){.on = true, .send = hub ? of_hub : of_rank, .receive = hub ? of_rank : of_hub};
}

static pl_key hash_of(const pl_key *key, uint64_t number, const char *text, size_t n)
{
    return pl_keyed_hash(key, "plimsoll message", &number, sizeof number, text, n);
}

size_t pl_seal_close(const pl_seal *s, char *line, size_t cap)
{
    size_t n = strlen(line);
    if (n + PL_SEAL_BYTES + 2 > cap) PL_BUG("no room for the hash of a message");
    if (s->on) {
        pl_key hash = hash_of(&s->send, s->sent, line, n);
        line[n++] = ' ';
        pl_hex_print(hash.byte, PL_TAG_BYTES, line + n);
        n += PL_SEAL_BYTES - 1;
    }
    line[n++] = '\n';
    line[n] = 0;
    return n;
}

void pl_seal_sent(pl_seal *s)
{
    s->sent++;
}

bool pl_seal_open(pl_seal *s, char *line)
{
    uint8_t tag[PL_TAG_BYTES];
    size_t n = strlen(line);
    if (!s->on) return true;
    if (n < PL_SEAL_BYTES || line[n - PL_SEAL_BYTES] != ' ' ||
        !pl_hex_parse(line + n - PL_SEAL_BYTES + 1, tag, sizeof tag))
        return false;
    n -= PL_SEAL_BYTES;
    pl_key hash = hash_of(&s->receive, s->received, line, n);
    if (!pl_tags_equal(hash.byte, tag)) return false;
    line[n] = 0;
    s->received++;
    return true;
}
