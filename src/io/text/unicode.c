/* unicode.c - see unicode.h. */
#include "io/text/unicode.h"

#include "base/sys.h"
#include "io/json.h"

#if __has_include(<utf8proc.h>)
# include <pthread.h>
# include <utf8proc.h>

typedef union utf8proc_table {
    struct {
        __typeof__(&utf8proc_category) category;
        __typeof__(&utf8proc_tolower) lower;
        __typeof__(&utf8proc_decompose) decompose;
        __typeof__(&utf8proc_normalize_utf32) normalize;
        __typeof__(&utf8proc_encode_char) encode;
    };
    void *table[5];
} utf8proc_table;

static utf8proc_table lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libutf8proc.so.3", "libutf8proc.so.2", "libutf8proc.so",
                                        NULL};
    static const char *const symbols[] = {"utf8proc_category", "utf8proc_tolower",
                                          "utf8proc_decompose", "utf8proc_normalize_utf32",
                                          "utf8proc_encode_char"};
    here = pl_library_load(names, symbols, 5, lib.table);
}

const char *pl_unicode_missing(void)
{
    pthread_once(&once, load);
    return here ? NULL : "libutf8proc is not installed (apt-get install libutf8proc2)";
}

pl_char_kind pl_char_kind_of(int32_t c)
{
    if ((c >= 9 && c <= 13) || c == 0x85) return PL_CHAR_SPACE;
    switch (lib.category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return PL_CHAR_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return PL_CHAR_NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return PL_CHAR_SPACE;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return PL_CHAR_PUNCT;
    case UTF8PROC_CATEGORY_MN: return PL_CHAR_ACCENT;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return PL_CHAR_CONTROL;
    default: return PL_CHAR_OTHER;
    }
}

int32_t pl_char_lower(int32_t c)
{
    return lib.lower(c);
}

int pl_char_write(int32_t c, char *to)
{
    return (int)lib.encode(c, (utf8proc_uint8_t *)to);
}

pl_status pl_unicode_read(const char *text, size_t n, pl_form form, int32_t **out, size_t *count)
{
    /* decompose takes apart for both forms; normalize puts together again */
    int options = form == PL_FORM_SAME ? 0 : UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
    PL_FAIL_IF(!pl_utf8_valid(text, n), PL_ERR_DATA, "the text is not UTF-8");
    utf8proc_ssize_t want =
        n ? lib.decompose(bytes, (utf8proc_ssize_t)n, NULL, 0, (utf8proc_option_t)options) : 0;
    PL_FAIL_IF(want < 0, PL_ERR_DATA, "the text cannot be normalised (utf8proc: error %d)",
               (int)want);
    int32_t *to = pl_sys_alloc(((size_t)want + 1) * sizeof *to);
    if (!to) return PL_ERR_MEMORY;
    if (want)
        want = lib.decompose(bytes, (utf8proc_ssize_t)n, to, want, (utf8proc_option_t)options);
    if (want > 0 && form == PL_FORM_COMPOSED)
        want = lib.normalize(to, want, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (want < 0) {
        pl_sys_free(to);
        PL_FAIL(PL_ERR_DATA, "the text cannot be normalised (utf8proc: error %d)", (int)want);
    }
    *out = to;
    *count = (size_t)want;
    return PL_OK;
}

#else

const char *pl_unicode_missing(void)
{
    return "this program was built without Unicode tables (apt-get install libutf8proc-dev, then "
           "build again)";
}

pl_char_kind pl_char_kind_of(int32_t c)
{
    (void)c;
    return PL_CHAR_OTHER;
}

int32_t pl_char_lower(int32_t c)
{
    return c;
}

int pl_char_write(int32_t c, char *to)
{
    (void)c, (void)to;
    return 0;
}

pl_status pl_unicode_read(const char *text, size_t n, pl_form form, int32_t **out, size_t *count)
{
    (void)text, (void)n, (void)form, (void)out, (void)count;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s", pl_unicode_missing());
}

#endif
