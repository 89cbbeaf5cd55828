/* quantized_slot.c - elements of quantized slots for files and initial values.
 *
 * Outside of programs a quantized slot looks like any slot of its type: writes quantize, reads
 * dequantize, PART elements at a time through host memory. Programs read the codes themselves and
 * never come here.
 */
#include "rt/rt_int.h"

#include "base/dtype.h"
#include "base/number/quantized.h"
#include "base/threads.h"

#include <string.h>

/* Elements that pass at once, and that a thread takes of them. A teacher has billions of elements,
 * so all threads convert and quantize. */
enum { PART = 1 << 18, SHARE = 4096 };

/* Elements [first, first + n) of a slot in both forms. */
typedef struct part {
    pl_quant form;
    int bits;
    uint64_t scales_at; /* bytes of the slot before its scales */
    int64_t first, n;
    pl_dtype dtype;   /* of the elements outside */
    const void *from; /* what is written, and the element of it that is the part's first */
    int64_t from_at;
    float numbers[PART];
    float scales[PART / PL_QUANT_BLOCK];
    uint8_t codes[PART];
} part;

static size_t code_bytes(const part *p)
{
    return (size_t)pl_quant_code_bytes(p->form, p->n);
}

static size_t scale_bytes(const part *p)
{
    return (size_t)((p->n + PL_QUANT_BLOCK - 1) / PL_QUANT_BLOCK) * sizeof(float);
}

static uint64_t codes_from(const part *p)
{
    return (uint64_t)(p->first * p->bits / 8);
}

static uint64_t scales_from(const part *p)
{
    return p->scales_at + (uint64_t)(p->first / PL_QUANT_BLOCK) * sizeof(float);
}

static void quantize_share(void *ctx, int64_t task, int worker)
{
    part *p = ctx;
    int64_t at = task * SHARE, n = p->n - at < SHARE ? p->n - at : SHARE;
    (void)worker;
    if (p->dtype == PL_F32)
        memcpy(p->numbers + at, (const float *)p->from + p->from_at + at,
               (size_t)n * sizeof(float));
    else if (p->dtype == PL_BF16)
        for (int64_t i = at; i < at + n; i++)
            p->numbers[i] = pl_bf16_to_f32(((const uint16_t *)p->from)[p->from_at + i]);
    else
        for (int64_t i = at; i < at + n; i++)
            p->numbers[i] = (float)pl_elem_get(p->dtype, p->from, p->from_at + i);
    pl_quantize(p->form, p->numbers + at, n, p->codes + at * p->bits / 8,
                p->scales + at / PL_QUANT_BLOCK);
}

static part *part_new(const pl_slot *slot)
{
    part *p = pl_sys_alloc(sizeof *p);
    if (!p) return NULL;
    p->form = slot->quant;
    p->dtype = slot->type.dtype;
    p->bits = pl_quantized(slot->quant)->bits;
    p->scales_at = (uint64_t)pl_quant_code_bytes(slot->quant, pl_type_elems(&slot->type));
    return p;
}

static pl_status write_part(pl_session *s, int slot, part *p)
{
    pl_threads_for((p->n + SHARE - 1) / SHARE, quantize_share, p);
    PL_TRY(pl__slot_write_stored(s, slot, codes_from(p), p->codes, code_bytes(p)));
    return pl__slot_write_stored(s, slot, scales_from(p), p->scales, scale_bytes(p));
}

pl_status pl__slot_write_quantized(pl_session *s, int slot, uint64_t at, const void *from,
                                   size_t bytes)
{
    const pl_slot *t = pl_store_slot(s->store, slot);
    size_t elem = pl_dtype_bytes(t->type.dtype), block = elem * PL_QUANT_BLOCK;
    bool ends = at + bytes == pl_type_bytes(&t->type);
    PL_FAIL_IF(at % block || (bytes % block && !ends), PL_ERR_ARG,
               "bytes %llu to %llu of slot %s, which is quantized: writes begin and end at blocks "
               "of %d elements",
               (unsigned long long)at, (unsigned long long)(at + bytes), t->name, PL_QUANT_BLOCK);
    part *p = part_new(t);
    pl_status rc = p ? PL_OK : PL_ERR_MEMORY;
    int64_t first = (int64_t)(at / elem), n = (int64_t)(bytes / elem);
    for (int64_t done = 0; done < n && rc == PL_OK; done += p->n) {
        p->first = first + done;
        p->n = n - done < PART ? n - done : PART;
        p->from = from;
        p->from_at = done;
        rc = write_part(s, slot, p);
    }
    pl_sys_free(p);
    return rc;
}

/* Reads the blocks that elements [first, first + n) lie in. */
static pl_status read_part(pl_session *s, int slot, part *p, int64_t first, int64_t n)
{
    int64_t all = pl_type_elems(&pl_store_slot(s->store, slot)->type);
    int64_t last = (first + n + PL_QUANT_BLOCK - 1) / PL_QUANT_BLOCK * PL_QUANT_BLOCK;
    p->first = first / PL_QUANT_BLOCK * PL_QUANT_BLOCK;
    p->n = (last < all ? last : all) - p->first;
    PL_TRY(pl__slot_read_stored(s, slot, codes_from(p), p->codes, code_bytes(p)));
    PL_TRY(pl__slot_read_stored(s, slot, scales_from(p), p->scales, scale_bytes(p)));
    pl_dequantize_blocks(p->form, p->codes, p->scales, p->n, p->numbers);
    return PL_OK;
}

pl_status pl__slot_read_quantized(pl_session *s, int slot, uint64_t at, void *to, size_t bytes)
{
    const pl_slot *t = pl_store_slot(s->store, slot);
    size_t elem = pl_dtype_bytes(t->type.dtype);
    PL_FAIL_IF(at % elem || bytes % elem, PL_ERR_ARG,
               "the range of slot %s begins or ends within an element", t->name);
    part *p = part_new(t);
    pl_status rc = p ? PL_OK : PL_ERR_MEMORY;
    int64_t first = (int64_t)(at / elem), n = (int64_t)(bytes / elem), step = 0;
    for (int64_t done = 0; done < n && rc == PL_OK; done += step) {
        int64_t in = (first + done) % PL_QUANT_BLOCK; /* of its block */
        step = n - done < PART - in ? n - done : PART - in;
        rc = read_part(s, slot, p, first + done, step);
        for (int64_t i = 0; i < step && rc == PL_OK; i++)
            pl_elem_set(t->type.dtype, to, done + i, (double)p->numbers[in + i]);
    }
    pl_sys_free(p);
    return rc;
}
