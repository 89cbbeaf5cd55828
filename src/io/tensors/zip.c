/* zip.c - see zip.h.
 *
 * A local header does not repeat the sizes: PyTorch writes them after the bytes. So only the list
 * at the end is trusted, and every number in it is compared with the length of the file.
 */
#include "io/tensors/zip.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_BYTES = 65535,
    MAX_LIST = 256 << 20,
    MAX_MEMBERS = 4000000,
    VERIFY_BYTES = 1 << 18,
    ALIGN = 64
};
#define END_MARK     0x06054b50u
#define LOCATOR_MARK 0x07064b50u
#define END64_MARK   0x06064b50u
#define ENTRY_MARK   0x02014b50u
#define LOCAL_MARK   0x04034b50u
#define AFTER_MARK   0x08074b50u
#define NEEDS_64     0xffffffffu

static uint64_t get(const uint8_t *p, int n)
{
    uint64_t x = 0;
    for (int i = n - 1; i >= 0; i--) x = x << 8 | p[i];
    return x;
}

/* ---- the end ---------------------------------------------------------------------------- */
typedef struct list {
    uint64_t at, bytes, members;
} list;

static pl_status read_end64(const pl_file *f, uint64_t end, list *out)
{
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES) return PL_OK;
    PL_TRY(pl_file_read(f, end - LOCATOR_BYTES, sizeof locator, locator));
    if (get(locator, 4) != LOCATOR_MARK) return PL_OK;
    uint64_t at = get(locator + 8, 8);
    PL_FAIL_IF(f->size < END64_BYTES || at > f->size - END64_BYTES, PL_ERR_FILE,
               "%.200s: the zip archive's end record points beyond the file", f->name);
    PL_TRY(pl_file_read(f, at, sizeof record, record));
    PL_FAIL_IF(get(record, 4) != END64_MARK, PL_ERR_FILE, "%.200s: the zip64 end record is damaged",
               f->name);
    *out = (list){get(record + 48, 8), get(record + 40, 8), get(record + 32, 8)};
    return PL_OK;
}

static pl_status read_end(const pl_file *f, list *out)
{
    size_t most = f->size < END_BYTES + COMMENT_BYTES ? (size_t)f->size : END_BYTES + COMMENT_BYTES;
    uint8_t *tail = pl_sys_alloc(most + 1);
    if (!tail) return PL_ERR_MEMORY;
    pl_status rc = pl_file_read(f, f->size - most, most, tail);
    size_t i = rc == PL_OK && most >= END_BYTES ? most - END_BYTES + 1 : 0;
    while (i && get(tail + i - 1, 4) != END_MARK) i--;
    if (i) {
        const uint8_t *e = tail + i - 1;
        *out = (list){get(e + 16, 4), get(e + 12, 4), get(e + 10, 2)};
    }
    pl_sys_free(tail);
    PL_TRY(rc);
    PL_FAIL_IF(!i, PL_ERR_FILE,
               "%.200s: the zip archive has no end record among its %llu bytes: it is cut short",
               f->name, (unsigned long long)f->size);
    PL_TRY(read_end64(f, f->size - most + i - 1, out));
    PL_FAIL_IF(out->at > f->size || out->bytes > f->size - out->at || out->bytes > MAX_LIST ||
                   out->members > MAX_MEMBERS || out->members > out->bytes / ENTRY_BYTES,
               PL_ERR_FILE,
               "%.200s: the list of the zip archive's members does not lie in the file", f->name);
    return PL_OK;
}

/* ---- the list --------------------------------------------------------------------------- */
/* Numbers that do not fit the entry are in an extra field, in this order. */
static bool read_extra(const uint8_t *p, size_t n, uint64_t *bytes, uint64_t *packed,
                       uint64_t *header)
{
    uint64_t *want[] = {bytes, packed, header};
    while (n >= 4) {
        size_t length = (size_t)get(p + 2, 2), at = 4;
        if (length > n - 4) return false;
        for (int i = 0; get(p, 2) == 1 && i < 3; i++) {
            if (*want[i] != NEEDS_64) continue;
            if (at + 8 > 4 + length) return false;
            *want[i] = get(p + at, 8);
            at += 8;
        }
        p += 4 + length;
        n -= 4 + length;
    }
    return true;
}

static pl_status read_entry(const pl_file *f, const uint8_t *e, size_t left, pl_arena *mem,
                            pl_zip_member *m, size_t *used)
{
    bool whole = left >= ENTRY_BYTES && get(e, 4) == ENTRY_MARK;
    size_t name = whole ? (size_t)get(e + 28, 2) : 0, extra = whole ? (size_t)get(e + 30, 2) : 0;
    *used = whole ? ENTRY_BYTES + name + extra + (size_t)get(e + 32, 2) : 0;
    PL_FAIL_IF(!whole || *used > left, PL_ERR_FILE,
               "%.200s: the list of the zip archive's members is damaged", f->name);
    uint64_t bytes = get(e + 24, 4), packed = get(e + 20, 4), header = get(e + 42, 4);
    PL_FAIL_IF(!read_extra(e + ENTRY_BYTES + name, extra, &bytes, &packed, &header), PL_ERR_FILE,
               "%.200s: an entry of the zip archive's list is damaged", f->name);
    m->name = pl_arena_strndup(mem, (const char *)e + ENTRY_BYTES, name);
    m->header = header;
    m->bytes = bytes;
    m->crc = (uint32_t)get(e + 16, 4);
    m->stored = get(e + 10, 2) == 0 && !(get(e + 8, 2) & 1) && packed == bytes;
    return m->name ? PL_OK : PL_ERR_MEMORY;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pl_zip_member *)a)->name, ((const pl_zip_member *)b)->name);
}

static pl_status read_list(const pl_file *f, const list *l, const uint8_t *text, pl_arena *mem,
                           pl_zip *z)
{
    size_t at = 0, used;
    z->member = pl_arena_new(mem, pl_zip_member, l->members + 1);
    if (!z->member) return PL_ERR_MEMORY;
    for (; z->n < (int)l->members; z->n++, at += used)
        PL_TRY(read_entry(f, text + at, (size_t)l->bytes - at, mem, &z->member[z->n], &used));
    qsort(z->member, (size_t)z->n, sizeof *z->member, by_name);
    for (int i = 1; i < z->n; i++)
        PL_FAIL_IF(by_name(&z->member[i - 1], &z->member[i]) == 0, PL_ERR_FILE,
                   "%.200s: the zip archive has two members \"%.80s\"", f->name, z->member[i].name);
    return PL_OK;
}

pl_status pl_zip_open(const pl_file *f, pl_arena *mem, pl_zip *out)
{
    list l = {0};
    PL_TRY(read_end(f, &l));
    uint8_t *text = pl_sys_alloc((size_t)l.bytes + 1);
    if (!text) return PL_ERR_MEMORY;
    *out = (pl_zip){0};
    pl_status rc = pl_file_read(f, l.at, (size_t)l.bytes, text);
    if (rc == PL_OK) rc = read_list(f, &l, text, mem, out);
    pl_sys_free(text);
    return rc;
}

const pl_zip_member *pl_zip_find(const pl_zip *z, const char *name)
{
    pl_zip_member want = {.name = name};
    return z->n ? bsearch(&want, z->member, (size_t)z->n, sizeof want, by_name) : NULL;
}

pl_status pl_zip_begin(const pl_file *f, const pl_zip_member *m, uint64_t *begin)
{
    uint8_t local[LOCAL_BYTES];
    PL_FAIL_IF(!m->stored, PL_ERR_FILE,
               "%.200s: member \"%.80s\" is compressed or encrypted; torch.save stores members as "
               "they are",
               f->name, m->name);
    bool inside = f->size >= LOCAL_BYTES && m->header <= f->size - LOCAL_BYTES;
    if (inside) PL_TRY(pl_file_read(f, m->header, sizeof local, local));
    inside = inside && get(local, 4) == LOCAL_MARK;
    uint64_t at = inside ? m->header + LOCAL_BYTES + get(local + 26, 2) + get(local + 28, 2) : 0;
    PL_FAIL_IF(!inside || at > f->size || m->bytes > f->size - at, PL_ERR_FILE,
               "%.200s: the %llu bytes of member \"%.80s\" do not lie in the file's %llu", f->name,
               (unsigned long long)m->bytes, m->name, (unsigned long long)f->size);
    *begin = at;
    return PL_OK;
}

/* ---- CRC-32 ------------------------------------------------------------------------------- */
/* table[0] advances the sum by one byte, table[k] by one byte and k zeros after it: 8 bytes are one
 * look-up in each (slicing by 8), 1.5 GB a second. */
typedef struct crc_table {
    uint32_t at[8][256];
} crc_table;

static void make_table(crc_table *t)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
        t->at[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            t->at[k][i] = t->at[k - 1][i] >> 8 ^ t->at[0][t->at[k - 1][i] & 255];
}

static uint32_t add_crc(const crc_table *t, uint32_t crc, const uint8_t *p, size_t n)
{
    uint32_t c = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t x;
        memcpy(&x, p, sizeof x); /* little-endian, as everything here */
        x ^= c;
        c = 0;
        for (int k = 0; k < 8; k++) c ^= t->at[7 - k][x >> 8 * k & 255];
    }
    for (; n; p++, n--) c = c >> 8 ^ t->at[0][(c ^ *p) & 255];
    return ~c;
}

static pl_status verify_member(const pl_file *f, const pl_zip_member *m, const crc_table *t,
                               uint8_t *block)
{
    uint64_t begin;
    uint32_t crc = 0;
    PL_TRY(pl_zip_begin(f, m, &begin));
    for (uint64_t at = 0; at < m->bytes;) {
        size_t n = m->bytes - at < VERIFY_BYTES ? (size_t)(m->bytes - at) : VERIFY_BYTES;
        PL_TRY(pl_file_read(f, begin + at, n, block));
        crc = add_crc(t, crc, block, n);
        at += n;
    }
    char name[400];
    snprintf(name, sizeof name, "%.200s, member %.80s,", f->name, m->name);
    return crc == m->crc ? PL_OK : pl_file_damaged(name, "CRC-32", crc, m->crc);
}

pl_status pl_zip_verify(const pl_file *f, const pl_zip *z)
{
    crc_table *t = pl_sys_alloc(sizeof *t + VERIFY_BYTES);
    if (!t) return PL_ERR_MEMORY;
    make_table(t);
    pl_status rc = PL_OK;
    for (int i = 0; i < z->n && rc == PL_OK; i++)
        if (z->member[i].crc && z->member[i].stored)
            rc = verify_member(f, &z->member[i], t, (uint8_t *)(t + 1));
    pl_sys_free(t);
    return rc;
}

/* ---- writing ---------------------------------------------------------------------------- */
typedef struct written {
    const char *name;
    uint64_t header, bytes;
    uint32_t crc;
} written;

struct pl_zip_writer {
    pl_arena mem;
    pl_file_writer *out;
    written *member;
    int n, cap;
    uint64_t left; /* bytes of the current member that are still to come */
    crc_table table;
};

static uint8_t *put(uint8_t *p, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) *p++ = (uint8_t)(x >> 8 * i);
    return p;
}

pl_status pl_zip_writer_new(pl_file_writer *out, pl_zip_writer **w)
{
    pl_zip_writer *z = pl_sys_alloc(sizeof *z);
    if (!z) return PL_ERR_MEMORY;
    z->out = out;
    make_table(&z->table);
    *w = z;
    return PL_OK;
}

void pl_zip_writer_free(pl_zip_writer *w)
{
    if (!w) return;
    pl_sys_free(w->member);
    pl_arena_release(&w->mem);
    pl_sys_free(w);
}

/* The checksum and the sizes, after the bytes. */
static pl_status end_member(pl_zip_writer *w)
{
    uint8_t after[24], *p = after;
    if (!w->n) return PL_OK;
    const written *m = &w->member[w->n - 1];
    PL_FAIL_IF(w->left, PL_ERR_ARG, "member %s is incomplete: %llu bytes were not written", m->name,
               (unsigned long long)w->left);
    int size = m->bytes >= NEEDS_64 ? 8 : 4;
    p = put(p, AFTER_MARK, 4);
    p = put(p, m->crc, 4);
    p = put(put(p, m->bytes, size), m->bytes, size);
    return pl_file_writer_write(w->out, after, (size_t)(p - after));
}

static pl_status add_member(pl_zip_writer *w, const char *name, uint64_t bytes)
{
    if (w->n == w->cap) {
        int cap = w->cap ? 2 * w->cap : 64;
        written *more =
            pl_sys_realloc(w->member, (size_t)w->cap * sizeof *more, (size_t)cap * sizeof *more);
        if (!more) return PL_ERR_MEMORY;
        w->member = more;
        w->cap = cap;
    }
    name = pl_arena_strdup(&w->mem, name);
    if (!name) return PL_ERR_MEMORY;
    w->member[w->n++] = (written){name, pl_file_writer_bytes(w->out), bytes, 0};
    w->left = bytes;
    return PL_OK;
}

/* Flag 8: checksum and sizes follow the bytes; flag 0x800: names are UTF-8. Dates are 1 January
 * 1980, so that equal weights give equal files. */
static uint8_t *put_common(uint8_t *p, uint32_t crc, uint64_t bytes, bool big, size_t name,
                           size_t extra)
{
    uint64_t shown = big ? NEEDS_64 : bytes;
    p = put(put(put(p, big ? 45 : 20, 2), 0x808, 2), 0, 2);
    p = put(put(put(p, 0, 2), 0x21, 2), crc, 4);
    p = put(put(p, shown, 4), shown, 4);
    return put(put(p, name, 2), extra, 2);
}

pl_status pl_zip_writer_begin(pl_zip_writer *w, const char *name, uint64_t bytes)
{
    uint8_t head[LOCAL_BYTES + 20 + 4 + ALIGN] = {0}, *p = head;
    char text[1024];
    size_t length = strlen(name);
    PL_TRY(end_member(w));
    PL_FAIL_IF(length >= sizeof text, PL_ERR_ARG, "the name %.80s... is too long for a member",
               name);
    PL_TRY(add_member(w, name, bytes));
    bool big = bytes >= NEEDS_64;
    size_t extra = (big ? 20 : 0) + 4;
    uint64_t begin = pl_file_writer_bytes(w->out) + LOCAL_BYTES + length + extra;
    size_t pad = (size_t)(-begin & (ALIGN - 1));
    p = put(p, LOCAL_MARK, 4);
    p = put_common(p, 0, bytes, big, length, extra + pad);
    PL_TRY(pl_file_writer_write(w->out, head, LOCAL_BYTES));
    PL_TRY(pl_file_writer_write(w->out, name, length));
    memset(head, 0, sizeof head);
    p = head;
    if (big) p = put(put(put(put(p, 1, 2), 16, 2), bytes, 8), bytes, 8);
    put(put(p, 0x4246, 2), pad, 2); /* the field that PyTorch pads with */
    return pl_file_writer_write(w->out, head, extra + pad);
}

pl_status pl_zip_writer_write(pl_zip_writer *w, const void *data, size_t bytes)
{
    PL_FAIL_IF(!w->n || bytes > w->left, PL_ERR_ARG, "%zu bytes are too many for the zip member",
               bytes);
    uint32_t *crc = &w->member[w->n - 1].crc;
    *crc = add_crc(&w->table, *crc, data, bytes);
    w->left -= bytes;
    return pl_file_writer_write(w->out, data, bytes);
}

static pl_status put_entry(pl_zip_writer *w, const written *m)
{
    uint8_t entry[ENTRY_BYTES + 28], *p = entry;
    bool big = m->bytes >= NEEDS_64 || m->header >= NEEDS_64;
    size_t length = strlen(m->name);
    p = put(put(p, ENTRY_MARK, 4), 45, 2);
    p = put_common(p, m->crc, m->bytes, big, length, big ? 28 : 0);
    p = put(put(put(p, 0, 4), 0, 2), 0, 4);
    p = put(p, big ? NEEDS_64 : m->header, 4);
    PL_TRY(pl_file_writer_write(w->out, entry, (size_t)(p - entry)));
    PL_TRY(pl_file_writer_write(w->out, m->name, length));
    if (!big) return PL_OK;
    p = put(put(entry, 1, 2), 24, 2);
    p = put(put(put(p, m->bytes, 8), m->bytes, 8), m->header, 8);
    return pl_file_writer_write(w->out, entry, (size_t)(p - entry));
}

pl_status pl_zip_writer_finish(pl_zip_writer *w)
{
    uint8_t end[END64_BYTES + LOCATOR_BYTES + END_BYTES], *p = end;
    PL_TRY(end_member(w));
    uint64_t at = pl_file_writer_bytes(w->out);
    for (int i = 0; i < w->n; i++) PL_TRY(put_entry(w, &w->member[i]));
    uint64_t bytes = pl_file_writer_bytes(w->out) - at, n = (uint64_t)w->n;
    bool big = n > 0xfffe || at >= NEEDS_64;
    if (big) {
        p = put(put(put(put(p, END64_MARK, 4), END64_BYTES - 12, 8), 45, 2), 45, 2);
        p = put(put(put(put(p, 0, 8), n, 8), n, 8), bytes, 8);
        p = put(p, at, 8);
        p = put(put(put(put(p, LOCATOR_MARK, 4), 0, 4), at + bytes, 8), 1, 4);
    }
    p = put(put(p, END_MARK, 4), 0, 4);
    p = put(put(p, big ? 0xffff : n, 2), big ? 0xffff : n, 2);
    p = put(put(put(p, bytes, 4), big ? NEEDS_64 : at, 4), 0, 2);
    return pl_file_writer_write(w->out, end, (size_t)(p - end));
}
