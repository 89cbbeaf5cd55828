/* unicode.h - what tokenizers ask of characters: kinds, lower case, normal forms.
 *
 * The tables are those of utf8proc, which is opened on first use. Without the library no function
 * here works: call pl_unicode_missing first.
 */
#ifndef PL_IO_UNICODE_H
#define PL_IO_UNICODE_H

#include "base/err.h"

/* Returns why the library cannot be used, with the package to install; NULL: it can. */
const char *pl_unicode_missing(void);

typedef enum pl_char_kind {
    PL_CHAR_LETTER,
    PL_CHAR_NUMBER,
    PL_CHAR_SPACE,   /* separators, tab, line feed, ... */
    PL_CHAR_PUNCT,   /* Unicode's punctuation; symbols are others */
    PL_CHAR_ACCENT,  /* marks that take no space (Mn) */
    PL_CHAR_CONTROL, /* control, format and private characters */
    PL_CHAR_OTHER
} pl_char_kind;
pl_char_kind pl_char_kind_of(int32_t c);
/* The lower case of one character as one character. */
int32_t pl_char_lower(int32_t c);

typedef enum pl_form { PL_FORM_SAME, PL_FORM_COMPOSED, PL_FORM_DECOMPOSED } pl_form;
/* Sets *out to the characters of a UTF-8 text (n bytes) in a normal form: NFC, NFD, or as they are.
 * The caller frees *out with pl_sys_free. PL_ERR_DATA: the text is not UTF-8. */
pl_status pl_unicode_read(const char *text, size_t n, pl_form form, int32_t **out,
                          size_t *count) PL_MUST_USE;
/* Writes a character as UTF-8 (at most 4 bytes) and returns the number of bytes. */
int pl_char_write(int32_t c, char *to);

#endif
