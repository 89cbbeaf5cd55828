/* store.c - named slots; see plimsoll.h. Names are found through an open hash table. */
#include "base/arena.h"
#include "base/err.h"
#include "base/number/quantized.h"
#include "base/sys.h"

#include <stdio.h>
#include <string.h>

struct pl_store {
    pl_arena arena; /* names */
    pl_slot *slots;
    int n, cap;
    int *table; /* open addressing; index + 1, 0 = empty */
    size_t table_cap;
    pl_status status;
    char error[400]; /* of the first failure, which any program over the store reports */
};

pl_store *pl_store_new(void)
{
    return pl_sys_alloc(sizeof(pl_store));
}

void pl_store_free(pl_store *s)
{
    if (!s) return;
    pl_arena_release(&s->arena);
    pl_sys_free(s->slots);
    pl_sys_free(s->table);
    pl_sys_free(s);
}

pl_status pl_store_status(const pl_store *s)
{
    PL_FAIL_IF(!s, PL_ERR_MEMORY, "no memory for a store");
    PL_FAIL_IF(s->status != PL_OK, s->status, "%s", s->error);
    return PL_OK;
}

static uint64_t hash_name(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    return h;
}

static size_t probe(const pl_store *s, const char *name)
{
    size_t i = hash_name(name) & (s->table_cap - 1);
    while (s->table[i] && strcmp(s->slots[s->table[i] - 1].name, name) != 0)
        i = (i + 1) & (s->table_cap - 1);
    return i;
}

int pl_store_find(const pl_store *s, const char *name)
{
    return s->table_cap ? s->table[probe(s, name)] - 1 : -1;
}

static pl_status grow(pl_store *s)
{
    if (s->n == s->cap) {
        int cap = s->cap ? s->cap * 2 : 64;
        pl_slot *p = pl_sys_realloc(s->slots, (size_t)s->cap * sizeof *p, (size_t)cap * sizeof *p);
        if (!p) return PL_ERR_MEMORY;
        s->slots = p;
        s->cap = cap;
    }
    if ((size_t)s->n * 2 >= s->table_cap) {
        size_t cap = s->table_cap ? s->table_cap * 2 : 256;
        int *t = pl_sys_alloc(cap * sizeof *t);
        if (!t) return PL_ERR_MEMORY;
        pl_sys_free(s->table);
        s->table = t;
        s->table_cap = cap;
        for (int i = 0; i < s->n; i++) t[probe(s, s->slots[i].name)] = i + 1;
    }
    return PL_OK;
}

static pl_status add_slot(pl_store *s, const pl_slot *slot, int *index)
{
    int found = pl_store_find(s, slot->name);
    if (found >= 0) {
        char a[96], b[96];
        PL_FAIL_IF(!pl_type_equal(&s->slots[found].type, &slot->type), PL_ERR_SHAPE,
                   "state \"%s\" is declared twice, as %s and as %s", slot->name,
                   pl_type_text(&s->slots[found].type, a, sizeof a),
                   pl_type_text(&slot->type, b, sizeof b));
        *index = found;
        return PL_OK;
    }
    PL_FAIL_IF(slot->quant && (slot->shards || !pl_dtype_is_float(slot->type.dtype)), PL_ERR_ARG,
               "state \"%s\" cannot be quantized: it is %s", slot->name,
               slot->shards ? "sharded" : "not of a floating-point type");
    for (int i = 0; i < slot->type.rank; i++)
        PL_FAIL_IF(slot->type.dim[i] < 0, PL_ERR_SHAPE, "state \"%s\" has a negative size",
                   slot->name);
    PL_TRY(grow(s));
    char *name = pl_arena_strdup(&s->arena, slot->name);
    if (!name) return PL_ERR_MEMORY;
    s->slots[s->n] = *slot;
    s->slots[s->n].name = name;
    if (slot->init.kind == PL_INIT_DATA) {
        size_t bytes = pl_type_bytes(pl_slot_type(slot));
        PL_FAIL_IF(!slot->init.data, PL_ERR_ARG, "state \"%s\" begins with data, but data is NULL",
                   slot->name);
        void *copy = pl_arena_alloc(&s->arena, bytes + 1);
        if (!copy) return PL_ERR_MEMORY;
        s->slots[s->n].init.data = memcpy(copy, slot->init.data, bytes);
    }
    s->table[probe(s, name)] = s->n + 1;
    *index = s->n++;
    return PL_OK;
}

int pl_store_add(pl_store *s, const pl_slot *slot)
{
    int index = -1;
    if (!s || s->status != PL_OK) return -1;
    s->status = add_slot(s, slot, &index);
    if (s->status == PL_ERR_MEMORY)
        snprintf(s->error, sizeof s->error, "no memory for state \"%s\"", slot->name);
    else if (s->status != PL_OK)
        snprintf(s->error, sizeof s->error, "%s", pl_error_text());
    return index;
}

int pl_store_count(const pl_store *s)
{
    return s->n;
}

const pl_slot *pl_store_slot(const pl_store *s, int index)
{
    if (index < 0 || index >= s->n) PL_BUG("slot %d of %d", index, s->n);
    return &s->slots[index];
}

pl_type pl_slot_stored(const pl_slot *s)
{
    return s->quant ? PL_TYPE(PL_U8, pl_quant_bytes(s->quant, pl_type_elems(&s->type))) : s->type;
}

size_t pl_slot_bytes(const pl_slot *s)
{
    pl_type t = pl_slot_stored(s);
    return pl_type_bytes(&t);
}

void pl_store_set_trainable(pl_store *s, int index, bool on)
{
    if (index >= 0 && index < s->n) s->slots[index].trainable = on;
}

void pl_store_set_quant(pl_store *s, int index, pl_quant q)
{
    if (index >= 0 && index < s->n) s->slots[index].quant = q;
}

void pl_store_set_decay(pl_store *s, int index, bool on)
{
    if (index >= 0 && index < s->n) s->slots[index].decay = on;
}

void pl_store_set_init(pl_store *s, int index, pl_init init)
{
    if (index >= 0 && index < s->n) s->slots[index].init = init;
}
