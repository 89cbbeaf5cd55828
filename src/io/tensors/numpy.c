/* numpy.c - see numpy.h. */
#include "io/tensors/numpy.h"

#include <string.h>

enum { MOST_BYTES = 8 * PL_NUMPY_MOST };

static const pl_pickle *item(const pl_pickle *v, int i)
{
    return v && v->kind == PL_PICKLE_SEQUENCE && i < v->n ? v->item[i] : NULL;
}

/* Whether v calls numpy's function: its module has two names. */
static bool calls(const pl_pickle *v, const char *old, const char *now)
{
    return v && v->kind == PL_PICKLE_CALL &&
           (pl_pickle_is(v->func, old) || pl_pickle_is(v->func, now));
}

/* Bytes as they are, or as text with a character for each. Returns how many; -1: too many, or not
 * bytes. */
static int bytes_of(const pl_pickle *v, uint8_t out[MOST_BYTES])
{
    bool encoded = v && v->kind == PL_PICKLE_CALL && pl_pickle_is(v->func, "_codecs.encode");
    if (encoded && !pl_pickle_is(item(v->args, 1), "latin1")) return -1;
    if (encoded) v = item(v->args, 0);
    if (!v || v->kind != PL_PICKLE_TEXT) return -1;
    int n = 0;
    for (size_t i = 0; i < v->length; i++) {
        uint8_t c = (uint8_t)v->text[i];
        if (n == MOST_BYTES) return -1;
        if (encoded && c >= 0x80) { /* two bytes of UTF-8: U+0080 to U+00FF */
            if (c < 0xc2 || c > 0xc3 || i + 1 == v->length) return -1;
            c = (uint8_t)((c & 3) << 6 | ((uint8_t)v->text[++i] & 0x3f));
        }
        out[n++] = c;
    }
    return n;
}

typedef enum number_kind { NOT_A_NUMBER, F32, F64, I32, I64 } number_kind;

/* numpy.dtype("f8", ...), whose state begins with its version and byte order. */
static number_kind kind_of(const pl_pickle *dtype)
{
    static const struct {
        const char *name;
        number_kind kind;
    } known[] = {{"f4", F32}, {"f8", F64}, {"i4", I32}, {"i8", I64}};
    if (!calls(dtype, "numpy.dtype", "numpy.dtype") || pl_pickle_is(item(dtype->state, 1), ">"))
        return NOT_A_NUMBER;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (pl_pickle_is(item(dtype->args, 0), known[i].name)) return known[i].kind;
    return NOT_A_NUMBER;
}

static double number_at(number_kind kind, const uint8_t *at)
{
    union {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;
    } x;
    memcpy(&x, at, kind == F32 || kind == I32 ? 4 : 8);
    return kind == F32   ? (double)x.f32
           : kind == F64 ? x.f64
           : kind == I32 ? (double)x.i32
                         : (double)x.i64;
}

int pl_numpy_numbers(const pl_pickle *v, double out[PL_NUMPY_MOST])
{
    uint8_t bytes[MOST_BYTES];
    const pl_pickle *dtype = NULL, *data = NULL;
    if (calls(v, "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"))
        dtype = item(v->args, 0), data = item(v->args, 1);
    else if (calls(v, "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"))
        dtype = item(v->state, 2), data = item(v->state, 4);
    number_kind kind = kind_of(dtype);
    int n = kind == NOT_A_NUMBER ? -1 : bytes_of(data, bytes),
        size = kind == F32 || kind == I32 ? 4 : 8;
    if (n < 0 || n % size) return -1;
    for (int i = 0; i < n / size; i++) out[i] = number_at(kind, bytes + i * size);
    return n / size;
}
