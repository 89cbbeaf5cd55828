/* control_at.c - where a hub is, as text: ADDRESS:PORT:NUMBER, and :KEY where messages are
 * authenticated. Ranks that mpirun starts on other machines receive the text in their environment.
 */
#include "dist/control.h"

#include "dist/seal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

void pl_control_print(const pl_control_at *at, char *out, size_t cap)
{
    struct in_addr ip = {at->address[0]};
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &ip, text, sizeof text);
    int n =
        snprintf(out, cap, "%s:%u:%llx", text, (unsigned)at->port, (unsigned long long)at->token);
    if (!at->keyed || n < 0 || (size_t)n + 2 * PL_KEY_BYTES + 2 > cap) return;
    out[n] = ':';
    pl_hex_print(at->key.byte, sizeof at->key.byte, out + n + 1);
}

bool pl_control_parse(const char *text, pl_control_at *out)
{
    char ip[64];
    int end = 0;
    unsigned port;
    unsigned long long token;
    struct in_addr a;
    memset(out, 0, sizeof *out);
    if (sscanf(text, "%63[0-9.]:%u:%llx%n", ip, &port, &token, &end) != 3 || port > 65535)
        return false;
    if (inet_pton(AF_INET, ip, &a) != 1) return false;
    out->address[0] = a.s_addr;
    out->port = (uint16_t)port;
    out->token = token;
    out->keyed = text[end] == ':';
    return out->keyed ? pl_hex_parse(text + end + 1, out->key.byte, sizeof out->key.byte)
                      : text[end] == 0;
}
