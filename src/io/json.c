/* json.c - the JSON writer of plimsoll_json.h.
 *
 * The state is a stack of two bits per level: object or array, and whether it already has a value
 * (so the next one needs a comma). The text of a document is collected in a pl_str and goes to the
 * stream in one write at the end, so another writer never splits a line of --json output. Misuse by
 * the caller (a value without a key in an object) is a programming error, but callers may be
 * outside this library, so it is reported instead of aborting.
 */
#include "io/json.h"

#include "base/sys.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

struct pl_json {
    pl_str text;
    FILE *out;
    int depth;
    bool is_object[MAX_DEPTH + 1], has_value[MAX_DEPTH + 1]; /* [0] is the top */
    const char *misuse;                                      /* first error, static text */
};

/* ---- text ----------------------------------------------------------------------------------
 */

/* Length of the UTF-8 sequence at s (n bytes are there), 0 if malformed. Table 3-7 of the
 * Unicode standard: only the second byte has bounds that depend on the first. */
static size_t utf8_sequence(const unsigned char *s, size_t n)
{
    unsigned char c = s[0], lo = 0x80, hi = 0xBF;
    if (c < 0x80) return 1;
    size_t len = c >= 0xC2 && c <= 0xDF   ? 2
                 : (c & 0xF0) == 0xE0     ? 3
                 : c >= 0xF0 && c <= 0xF4 ? 4
                                          : 0;
    if (len == 0 || len > n) return 0;
    if (c == 0xE0) lo = 0xA0;
    if (c == 0xED) hi = 0x9F;
    if (c == 0xF0) lo = 0x90;
    if (c == 0xF4) hi = 0x8F;
    if (s[1] < lo || s[1] > hi) return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return len;
}

bool pl_utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0, step; i < n; i += step) {
        step = utf8_sequence((const unsigned char *)s + i, n - i);
        if (step == 0) return false;
    }
    return true;
}

/* The code point at s, a valid sequence of len bytes. */
static unsigned utf8_decode(const unsigned char *s, size_t len)
{
    static const unsigned char mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    unsigned cp = s[0] & mask[len];
    for (size_t i = 1; i < len; i++) cp = cp << 6 | (s[i] & 0x3Fu);
    return cp;
}

/* JSON requires escapes for control characters, quotes and backslashes only; YAML also counts
 * these others as not printable or as line breaks. */
static bool needs_escape(unsigned cp)
{
    return cp < 0x20 || cp == '"' || cp == '\\' || (cp >= 0x7F && cp <= 0xA0) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0xFEFF || cp == 0xFFFE || cp == 0xFFFF;
}

void pl_json_quote(pl_str *out, const char *s, size_t n)
{
    static const char shorthand[][2] = {{'"', '"'},  {'\\', '\\'}, {'\n', 'n'}, {'\t', 't'},
                                        {'\r', 'r'}, {'\b', 'b'},  {'\f', 'f'}};
    const unsigned char *u = (const unsigned char *)s;
    pl_str_add(out, "\"");
    size_t plain = 0; /* start of the run not yet copied */
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_sequence(u + i, n - i);
        bool bad = len == 0; /* becomes the replacement character */
        if (bad) len = 1;
        unsigned cp = bad ? 0xFFFD : utf8_decode(u + i, len);
        if (!bad && !needs_escape(cp)) continue;
        pl_str_addn(out, s + plain, i - plain);
        plain = i + len;
        size_t k = 0;
        while (k < sizeof shorthand / 2 && (unsigned)shorthand[k][0] != cp) k++;
        if (k < sizeof shorthand / 2)
            pl_str_addf(out, "\\%c", shorthand[k][1]);
        else
            pl_str_addf(out, "\\u%04x", cp);
    }
    pl_str_addn(out, s + plain, n - plain);
    pl_str_add(out, "\"");
}

const char *pl_float_text(double v, char buf[PL_FLOAT_TEXT_BYTES])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, PL_FLOAT_TEXT_BYTES, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) break;
    }
    char *comma = strchr(buf, ',');
    if (comma) *comma = '.';
    return buf;
}

/* ---- the writer ------------------------------------------------------------------------- */

pl_json *pl_json_new(FILE *out)
{
    pl_json *j = pl_sys_alloc(sizeof *j);
    if (j) j->out = out;
    return j;
}

void pl_json_free(pl_json *j)
{
    if (!j) return;
    pl_str_release(&j->text);
    pl_sys_free(j);
}

/* Writes what precedes a value: comma and key. False when the value must not be written. */
static bool lead(pl_json *j, const char *key)
{
    if (!j || j->misuse) return false;
    bool in_object = j->depth > 0 && j->is_object[j->depth];
    if (in_object != (key != NULL)) {
        j->misuse = in_object ? "a value in an object has no key" : "a key outside an object";
        return false;
    }
    if (j->depth == 0 && j->has_value[0]) {
        j->misuse = "a second value at the top";
        return false;
    }
    if (j->has_value[j->depth]) pl_str_add(&j->text, ",");
    j->has_value[j->depth] = true;
    if (key) {
        pl_json_quote(&j->text, key, strlen(key));
        pl_str_add(&j->text, ":");
    }
    return true;
}

static void open_level(pl_json *j, const char *key, bool object)
{
    if (!lead(j, key)) return;
    if (j->depth == MAX_DEPTH) {
        j->misuse = "nested too deep";
        return;
    }
    j->depth++;
    j->is_object[j->depth] = object;
    j->has_value[j->depth] = false;
    pl_str_add(&j->text, object ? "{" : "[");
}

void pl_json_object(pl_json *j, const char *key)
{
    open_level(j, key, true);
}

void pl_json_array(pl_json *j, const char *key)
{
    open_level(j, key, false);
}

void pl_json_end(pl_json *j)
{
    if (!j || j->misuse) return;
    if (j->depth == 0) {
        j->misuse = "an end without a beginning";
        return;
    }
    pl_str_add(&j->text, j->is_object[j->depth] ? "}" : "]");
    j->depth--;
}

void pl_json_int(pl_json *j, const char *key, int64_t v)
{
    if (lead(j, key)) pl_str_addf(&j->text, "%lld", (long long)v);
}

void pl_json_uint(pl_json *j, const char *key, uint64_t v)
{
    if (lead(j, key)) pl_str_addf(&j->text, "%llu", (unsigned long long)v);
}

void pl_json_float(pl_json *j, const char *key, double v)
{
    char buf[PL_FLOAT_TEXT_BYTES];
    if (lead(j, key)) pl_str_add(&j->text, isfinite(v) ? pl_float_text(v, buf) : "null");
}

void pl_json_bool(pl_json *j, const char *key, bool v)
{
    if (lead(j, key)) pl_str_add(&j->text, v ? "true" : "false");
}

void pl_json_string(pl_json *j, const char *key, const char *v)
{
    if (!v)
        pl_json_null(j, key);
    else if (lead(j, key))
        pl_json_quote(&j->text, v, strlen(v));
}

void pl_json_null(pl_json *j, const char *key)
{
    if (lead(j, key)) pl_str_add(&j->text, "null");
}

pl_status pl_json_finish(pl_json *j)
{
    PL_FAIL_IF(!j || j->text.failed, PL_ERR_MEMORY, "out of memory while writing JSON");
    PL_FAIL_IF(j->misuse, PL_ERR_ARG, "JSON: %s", j->misuse);
    PL_FAIL_IF(j->depth != 0, PL_ERR_ARG, "JSON: %d levels are still open", j->depth);
    pl_str_add(&j->text, "\n");
    PL_FAIL_IF(j->text.failed, PL_ERR_MEMORY, "out of memory while writing JSON");
    j->has_value[0] = false;
    if (!j->out) return PL_OK;
    size_t n = fwrite(j->text.text, 1, j->text.len, j->out);
    bool bad = n != j->text.len || fflush(j->out) != 0;
    j->text.len = 0;
    PL_FAIL_IF(bad, PL_ERR_IO, "cannot write JSON: %s", strerror(errno));
    return PL_OK;
}

const char *pl_json_text(const pl_json *j)
{
    return j && j->text.text ? j->text.text : "";
}
