/* pt.c - one tensor in a file of torch.save: the authors keep a latent in each.
 *
 * Such a file is a zip whose members are stored uncompressed:
 *
 *     NAME/data.pkl     a pickle: torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides,
 *                       ...)
 *     NAME/data/0       the storage's numbers, little-endian
 *     NAME/version, NAME/byteorder, ...
 *
 * The pickle is not executed. It is read from front to back, and the description of a tensor is
 * taken from its required position; anything else (a dictionary, two tensors, another class) is
 * refused by name. Sizes and strides are checked against the storage's length before a number is
 * read, so that a broken file is an error and nothing worse.
 */
#include "lgt.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_BYTES = 1 << 28,
    MOST_DIMS = 8,
    TEXT = 96,
    END_BYTES = 22,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30
};
#define END_MARK   0x06054b50u
#define ENTRY_MARK 0x02014b50u
#define LOCAL_MARK 0x04034b50u

typedef struct bytes {
    const uint8_t *at;
    size_t n;
} bytes;

static uint32_t u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const uint8_t *p)
{
    return u16(p) | u16(p + 2) << 16;
}

/* ---- the zip ---------------------------------------------------------------------------- */
/* Returns where the list of members ends; NULL: the file is not a zip. */
static const uint8_t *find_end(bytes f)
{
    if (f.n < END_BYTES) return NULL;
    size_t first = f.n > END_BYTES + 65535 ? f.n - END_BYTES - 65535 : 0;
    for (size_t i = f.n - END_BYTES + 1; i-- > first;)
        if (u32(f.at + i) == END_MARK) return f.at + i;
    return NULL;
}

/* Sets the content of a stored member, from its entry of the list. */
static bool member_at(bytes f, const uint8_t *entry, bytes *out)
{
    size_t offset = u32(entry + 42), size = u32(entry + 24);
    if (u16(entry + 10) != 0 || f.n < LOCAL_BYTES || offset > f.n - LOCAL_BYTES) return false;
    const uint8_t *local = f.at + offset;
    if (u32(local) != LOCAL_MARK) return false;
    size_t begin = offset + LOCAL_BYTES + u16(local + 26) + u16(local + 28);
    if (begin > f.n || size > f.n - begin) return false;
    *out = (bytes){f.at + begin, size};
    return true;
}

/* Finds the member whose name ends with this, after the archive's own name. */
static bool find_member(bytes f, const char *ending, bytes *out)
{
    const uint8_t *end = find_end(f);
    if (!end) return false;
    size_t at = u32(end + 16), n = u16(end + 10), length = strlen(ending);
    for (size_t i = 0; i < n; i++) {
        if (f.n < ENTRY_BYTES || at > f.n - ENTRY_BYTES || u32(f.at + at) != ENTRY_MARK)
            return false;
        const uint8_t *entry = f.at + at;
        size_t name = u16(entry + 28),
               whole = ENTRY_BYTES + name + u16(entry + 30) + u16(entry + 32);
        if (whole > f.n - at) return false;
        const char *text = (const char *)entry + ENTRY_BYTES;
        const char *slash = memchr(text, '/', name);
        size_t rest = slash ? name - (size_t)(slash + 1 - text) : 0;
        if (slash && rest == length && memcmp(slash + 1, ending, length) == 0)
            return member_at(f, entry, out);
        at += whole;
    }
    return false;
}

/* ---- the pickle ------------------------------------------------------------------------- */
typedef enum kind { NOTHING, NUMBER, STRING, NAME, TUPLE, PERSISTENT, STOP, UNKNOWN } kind;

typedef struct token {
    kind kind;
    int64_t number; /* of UNKNOWN: the opcode */
    char text[TEXT];
} token;

static bool take(bytes *p, size_t n, const uint8_t **out)
{
    if (p->n < n) return false;
    *out = p->at;
    p->at += n;
    p->n -= n;
    return true;
}

static bool take_text(bytes *p, size_t n, char *to, size_t at)
{
    const uint8_t *s;
    if (!take(p, n, &s) || at + n >= TEXT) return false;
    memcpy(to + at, s, n);
    to[at + n] = 0;
    return true;
}

/* Two lines, joined by a dot. */
static bool take_name(bytes *p, char *to)
{
    size_t at = 0;
    for (int line = 0; line < 2; line++) {
        const uint8_t *end = memchr(p->at, '\n', p->n), *skip;
        if (!end || !take_text(p, (size_t)(end - p->at), to, at) || !take(p, 1, &skip))
            return false;
        at = strlen(to);
        if (line == 0 && at + 1 < TEXT) to[at++] = '.', to[at] = 0;
    }
    return true;
}

/* Reads the number after an opcode: little-endian, n bytes; only four bytes are signed. */
static bool take_number(bytes *p, size_t n, token *t)
{
    const uint8_t *s;
    uint64_t x = 0;
    if (!take(p, n, &s)) return false;
    for (size_t i = 0; i < n && i < 8; i++) x |= (uint64_t)s[i] << 8 * i;
    t->number = n == 4 ? (int64_t)(int32_t)(uint32_t)x : (int64_t)x;
    t->kind = NUMBER;
    return n <= 8;
}

/* Reads the next relevant token; false at the end of the bytes. */
static bool next_token(bytes *p, token *t)
{
    const uint8_t *op, *skip;
    *t = (token){.kind = NOTHING};
    while (take(p, 1, &op)) {
        switch (*op) {
        case 0x80: /* protocol */
        case 'q':
            if (!take(p, 1, &skip)) return false;
            continue;
        case 'r':
            if (!take(p, 4, &skip)) return false;
            continue;
        /* marks, empty tuples and dicts, calls, flags */
        case '(':
        case ')':
        case '}':
        case 'R':
        case 0x88:
        case 0x89:
        case 'h':
            if (*op == 'h' && !take(p, 1, &skip)) return false;
            if (*op == '}') return t->kind = UNKNOWN, t->number = *op, true;
            continue;
        case 'K': return take_number(p, 1, t);
        case 'M': return take_number(p, 2, t);
        case 'J': return take_number(p, 4, t);
        case 0x8a: return take(p, 1, &skip) && take_number(p, *skip, t);
        case 'X': t->kind = STRING; return take(p, 4, &skip) && take_text(p, u32(skip), t->text, 0);
        case 'c': t->kind = NAME; return take_name(p, t->text);
        case 't':
        case 0x85:
        case 0x86:
        case 0x87: t->kind = TUPLE; return true;
        case 'Q': t->kind = PERSISTENT; return true;
        case '.': t->kind = STOP; return true;
        default:
            t->kind = UNKNOWN;
            t->number = *op;
            return true;
        }
    }
    return false;
}

typedef struct tensor {
    char storage[TEXT], key[TEXT];
    int64_t elems, offset, size[MOST_DIMS], stride[MOST_DIMS];
    int rank, strides;
} tensor;

static bool want(bytes *p, kind k, token *t)
{
    return next_token(p, t) && t->kind == k;
}

/* Reads numbers up to the end of their tuple. An empty tuple shows only by the missing numbers. */
static bool want_tuple(bytes *p, int64_t *to, int *n)
{
    token t;
    for (*n = 0; next_token(p, &t) && t.kind == NUMBER && *n < MOST_DIMS; ++*n) to[*n] = t.number;
    return t.kind == TUPLE;
}

static bool parse(bytes p, tensor *out)
{
    token t;
    if (!want(&p, NAME, &t) || strcmp(t.text, "torch._utils._rebuild_tensor_v2") != 0) return false;
    if (!want(&p, STRING, &t) || strcmp(t.text, "storage") != 0) return false;
    if (!want(&p, NAME, &t)) return false;
    memcpy(out->storage, t.text, TEXT);
    if (!want(&p, STRING, &t)) return false;
    memcpy(out->key, t.text, TEXT);
    if (!want(&p, STRING, &t) || !want(&p, NUMBER, &t)) return false; /* device, length */
    out->elems = t.number;
    if (!want(&p, TUPLE, &t) || !want(&p, PERSISTENT, &t) || !want(&p, NUMBER, &t)) return false;
    out->offset = t.number;
    if (!want_tuple(&p, out->size, &out->rank) || !want_tuple(&p, out->stride, &out->strides))
        return false;
    return out->rank == out->strides;
}

/* ---- numbers ---------------------------------------------------------------------------- */
static double half(uint32_t h)
{
    double fraction = (double)(h & 1023), sign = h & 0x8000 ? -1 : 1;
    int power = (int)(h >> 10 & 31);
    if (power == 31) return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (power ? ldexp(1024 + fraction, power - 25) : ldexp(fraction, -24));
}

static float number_at(const uint8_t *p, const char *storage)
{
    float f;
    double d;
    uint32_t w;
    if (strcmp(storage, "torch.HalfStorage") == 0) return (float)half(u16(p));
    if (strcmp(storage, "torch.DoubleStorage") == 0) {
        memcpy(&d, p, sizeof d);
        return (float)d;
    }
    w = strcmp(storage, "torch.BFloat16Storage") == 0 ? u16(p) << 16 : u32(p);
    memcpy(&f, &w, sizeof f);
    return f;
}

/* Returns the bytes of a number; 0: a type that is not supported. */
static size_t number_bytes(const char *storage)
{
    static const struct {
        const char *name;
        size_t bytes;
    } known[] = {{"torch.FloatStorage", 4},
                 {"torch.HalfStorage", 2},
                 {"torch.BFloat16Storage", 2},
                 {"torch.DoubleStorage", 8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(storage, known[i].name) == 0) return known[i].bytes;
    return 0;
}

/* [4,S,S] or [1,4,S,S], all of it inside the storage. */
static bool shape_fits(const tensor *t, int64_t side)
{
    int first = t->rank == 4 && t->size[0] == 1 ? 1 : 0;
    if (t->rank - first != 3 || t->size[first] != 4 || t->size[first + 1] != side ||
        t->size[first + 2] != side)
        return false;
    if (t->offset < 0 || t->offset >= t->elems) return false;
    int64_t last = t->offset;
    for (int i = first; i < t->rank; i++) {
        if (t->stride[i] < 0 || t->stride[i] > t->elems) return false;
        last += (t->size[i] - 1) * t->stride[i];
    }
    return last < t->elems;
}

static const char *shape_text(const tensor *t, char *to, size_t cap)
{
    size_t at = 0;
    to[0] = 0;
    for (int i = 0; i < t->rank && at < cap; i++)
        at += (size_t)snprintf(to + at, cap - at, "%s%" PRId64, i ? "," : "", t->size[i]);
    return to;
}

static pl_status decode(const char *path, bytes f, int64_t side, float *out)
{
    bytes pickle, data, order;
    tensor t = {.rank = 0};
    char key[TEXT + 8], shape[160];
    if (!find_end(f) || !find_member(f, "data.pkl", &pickle))
        return pl_fail(PL_ERR_DATA, "%s: no file of torch.save (1.6 or later)", path);
    if (!parse(pickle, &t))
        return pl_fail(PL_ERR_DATA, "%s: wants one tensor [4,%lld,%lld] and nothing else in it",
                       path, (long long)side, (long long)side);
    size_t each = number_bytes(t.storage);
    snprintf(key, sizeof key, "data/%s", t.key);
    bool little = !find_member(f, "byteorder", &order) ||
                  (order.n == 6 && memcmp(order.at, "little", 6) == 0);
    if (!each || !little || !find_member(f, key, &data) || t.elems < 0 ||
        (size_t)t.elems > data.n / each)
        return pl_fail(
            PL_ERR_DATA,
            "%s: %lld numbers of %s (f16, bf16, f32 and f64 are read, little-endian, all of "
            "them there)",
            path, (long long)t.elems, t.storage);
    if (!shape_fits(&t, side))
        return pl_fail(PL_ERR_DATA, "%s: its tensor is [%s], wanted is [4,%lld,%lld] (latent=%lld)",
                       path, shape_text(&t, shape, sizeof shape), (long long)side, (long long)side,
                       (long long)side);
    const int64_t *stride = t.stride + (t.rank - 3);
    for (int64_t y = 0; y < side; y++)
        for (int64_t x = 0; x < side; x++)
            for (int64_t c = 0; c < 4; c++)
                *out++ = number_at(data.at + each * (size_t)(t.offset + c * stride[0] +
                                                             y * stride[1] + x * stride[2]),
                                   t.storage);
    return PL_OK;
}

pl_status lgt_pt_read(const char *path, int64_t side, float *out)
{
    FILE *f = fopen(path, "rb");
    if (!f) return pl_fail(PL_ERR_DATA, "%s: cannot be opened", path);
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    uint8_t *all = size > 0 && size <= MOST_BYTES ? malloc((size_t)size) : NULL;
    bool whole =
        all && fseek(f, 0, SEEK_SET) == 0 && fread(all, 1, (size_t)size, f) == (size_t)size;
    fclose(f);
    pl_status rc = whole ? decode(path, (bytes){all, (size_t)size}, side, out)
                         : pl_fail(PL_ERR_DATA, "%s: cannot be read (%ld bytes)", path, size);
    free(all);
    return rc;
}

/* ---- writing ---------------------------------------------------------------------------- */
typedef struct sink {
    FILE *f;
    uint32_t at, entries;
    uint8_t list[1024]; /* of members, at the end of the file */
    uint32_t listed;
} sink;

static uint32_t crc(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
    }
    return ~c;
}

static void put(uint8_t **to, uint32_t x, int n)
{
    for (int i = 0; i < n; i++) *(*to)++ = (uint8_t)(x >> 8 * i);
}

static bool put_member(sink *s, const char *name, const void *data, uint32_t n)
{
    uint8_t local[LOCAL_BYTES], *p = local, *q = s->list + s->listed;
    uint32_t sum = crc(data, n), length = (uint32_t)strlen(name);
    /* no flags, 1980 */
    put(&p, LOCAL_MARK, 4), put(&p, 20, 2), put(&p, 0, 4), put(&p, 0, 2), put(&p, 0x21, 2);
    put(&p, sum, 4), put(&p, n, 4), put(&p, n, 4), put(&p, length, 2), put(&p, 0, 2);
    put(&q, ENTRY_MARK, 4), put(&q, 20, 2);
    memcpy(q, local + 4, LOCAL_BYTES - 4); /* version to the extra field's length */
    q += LOCAL_BYTES - 4;
    put(&q, 0, 4), put(&q, 0, 2), put(&q, 0, 4), put(&q, s->at, 4);
    memcpy(q, name, length);
    s->listed = (uint32_t)(q + length - s->list);
    s->entries++;
    s->at += LOCAL_BYTES + length + n;
    return fwrite(local, 1, sizeof local, s->f) == sizeof local &&
           fwrite(name, 1, length, s->f) == length && fwrite(data, 1, n, s->f) == n;
}

static bool put_end(sink *s)
{
    uint8_t end[END_BYTES], *p = end;
    put(&p, END_MARK, 4), put(&p, 0, 4), put(&p, s->entries, 2), put(&p, s->entries, 2);
    put(&p, s->listed, 4), put(&p, s->at, 4), put(&p, 0, 2);
    return fwrite(s->list, 1, s->listed, s->f) == s->listed &&
           fwrite(end, 1, sizeof end, s->f) == sizeof end;
}

static void put_text(uint8_t **to, const char *text)
{
    size_t n = strlen(text);
    memcpy(*to, text, n);
    *to += n;
}

static void put_string(uint8_t **to, const char *text)
{
    put(to, 'X', 1), put(to, (uint32_t)strlen(text), 4);
    put_text(to, text);
}

static void put_int(uint8_t **to, int64_t x)
{
    put(to, 'J', 1), put(to, (uint32_t)x, 4);
}

/* The pickle of a tensor [4,side,side] as it lies in storage "0". */
static uint32_t tensor_pickle(int64_t side, uint8_t *to)
{
    uint8_t *p = to;
    put(&p, 0x80, 1), put(&p, 2, 1);
    put_text(&p, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_string(&p, "storage");
    put_text(&p, "ctorch\nFloatStorage\n");
    put_string(&p, "0"), put_string(&p, "cpu"), put_int(&p, 4 * side * side);
    put_text(&p, "tQ"), put_int(&p, 0);
    put_int(&p, 4), put_int(&p, side), put_int(&p, side), put(&p, 0x87, 1);
    put_int(&p, side * side), put_int(&p, side), put_int(&p, 1), put(&p, 0x87, 1);
    put(&p, 0x89, 1); /* needs no gradient */
    put_text(&p, "ccollections\nOrderedDict\n)RtR.");
    return (uint32_t)(p - to);
}

pl_status lgt_pt_write(const char *path, int64_t side, const float *x)
{
    uint8_t pickle[512];
    uint32_t n = tensor_pickle(side, pickle), size = (uint32_t)(side * side);
    float *planes = malloc(4 * sizeof *planes * size);
    sink s = {.f = planes ? fopen(path, "wb") : NULL};
    if (!s.f) {
        free(planes);
        return pl_fail(PL_ERR_FILE, "%s: cannot be made", path);
    }
    for (uint32_t i = 0; i < size; i++)
        for (uint32_t c = 0; c < 4; c++) planes[c * size + i] = x[4 * i + c];
    bool ok = put_member(&s, "latent/data.pkl", pickle, n) &&
              put_member(&s, "latent/byteorder", "little", 6) &&
              put_member(&s, "latent/data/0", planes, 4 * 4 * size) &&
              put_member(&s, "latent/version", "3\n", 2) && put_end(&s);
    ok = fclose(s.f) == 0 && ok;
    free(planes);
    return ok ? PL_OK : pl_fail(PL_ERR_FILE, "%s: cannot be written", path);
}
