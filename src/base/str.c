/* str.c - see str.h. */
#include "base/str.h"

#include "base/sys.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void pl_str_release(pl_str *s)
{
    pl_sys_free(s->text);
    *s = (pl_str)PL_STR_INIT;
}

static bool reserve(pl_str *s, size_t more)
{
    if (s->failed) return false;
    if (s->len + more + 1 <= s->cap) return true;
    size_t cap = s->cap ? s->cap * 2 : 256;
    while (cap < s->len + more + 1) cap *= 2;
    char *p = pl_sys_realloc(s->text, s->cap, cap);
    if (!p) {
        s->failed = true;
        return false;
    }
    s->text = p;
    s->cap = cap;
    return true;
}

void pl_str_addn(pl_str *s, const char *text, size_t n)
{
    if (!reserve(s, n)) return;
    memcpy(s->text + s->len, text, n);
    s->len += n;
    s->text[s->len] = 0;
}

void pl_str_add(pl_str *s, const char *text)
{
    pl_str_addn(s, text, strlen(text));
}

void pl_str_addf(pl_str *s, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->text + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

pl_status pl_str_take(pl_str *s, char **out)
{
    if (!s->failed && !s->text) (void)reserve(s, 0);
    if (s->failed) {
        pl_str_release(s);
        PL_FAIL(PL_ERR_MEMORY, "out of memory while writing text");
    }
    *out = s->text;
    *s = (pl_str)PL_STR_INIT;
    return PL_OK;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

int pl_str_distance(const char *a, const char *b)
{
    enum { MAX = 63, FAR = 5 };
    size_t n = strlen(a), m = strlen(b);
    if (n > MAX || m > MAX) return FAR;
    int rows[3][MAX + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = last[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]) && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return row[m] > FAR ? FAR : row[m];
}

/* How this process shows sizes: it speaks to one user, who typed one budget. */
static atomic_bool decimal;

void pl_str_bytes_follow(uint64_t typed)
{
    /* 35.2 MB are also 34375 KiB, a number that nobody types. */
    static const uint64_t ten[] = {1000000000, 1000000, 10000}, two[] = {1 << 30, 1 << 20, 1 << 20};
    for (int i = 0; i < 3; i++)
        if (typed && typed % ten[i] == 0 && typed % two[i] != 0) {
            decimal = true;
            return;
        }
    if (typed && typed % (1 << 20) == 0) decimal = false;
}

bool pl_str_bytes_decimal(void)
{
    return decimal;
}

const char *pl_str_bytes(uint64_t bytes, char *buf, size_t cap)
{
    static const char *const units[2][5] = {{"B", "KiB", "MiB", "GiB", "TiB"},
                                            {"B", "kB", "MB", "GB", "TB"}};
    bool ten = decimal;
    double v = (double)bytes, base = ten ? 1000 : 1024;
    int u = 0;
    while (v >= base && u < 4) {
        v /= base;
        u++;
    }
    snprintf(buf, cap, u == 0 ? "%.0f %s" : v < 9.995 ? "%.2f %s" : "%.1f %s", v, units[ten][u]);
    return buf;
}

pl_status pl_str_parse_bytes(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        double scale;
    } units[] = {
        {"", 1},         {"b", 1},        {"k", 0x1p10},   {"m", 0x1p20},   {"g", 0x1p30},
        {"t", 0x1p40},   {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},     {"tb", 1e12},
        {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40},
    };
    char *end;
    double v = strtod(text, &end);
    while (isspace((unsigned char)*end)) end++;
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(end, units[i].suffix) != 0) continue;
        v = floor(v * units[i].scale);
        PL_FAIL_IF(!(v >= 0 && v < 0x1p60), PL_ERR_CONFIG, "size out of range: %s", text);
        *out = (uint64_t)v;
        return PL_OK;
    }
    PL_FAIL(PL_ERR_CONFIG, "not a size: \"%s\" (write 7.5GiB, 20GB, 512MiB or plain bytes)", text);
}
