/* json.h - text helpers shared by everything that writes JSON or YAML; the writer itself is
 * public, in plimsoll_json.h. */
#ifndef PL_IO_JSON_H
#define PL_IO_JSON_H

#include "base/str.h"
#include "plimsoll_json.h"

/* Whether s[0..n) is well-formed UTF-8: no overlong forms, no surrogates, nothing past
 * U+10FFFF. */
bool pl_utf8_valid(const char *s, size_t n);
/* Adds s in double quotes with JSON escapes, which YAML reads too. Bytes that are not
 * UTF-8 become U+FFFD. */
void pl_json_quote(pl_str *out, const char *s, size_t n);

/* The shortest of %.15g, %.16g and %.17g that reads back to v exactly. v must be finite. The
 * decimal point is '.' in every locale. Returns buf. */
enum { PL_FLOAT_TEXT_BYTES = 32 };
const char *pl_float_text(double v, char buf[PL_FLOAT_TEXT_BYTES]);

#endif
