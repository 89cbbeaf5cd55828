/* arena.c - chunks grow by half of what the arena holds, so n bytes cost O(log n) system calls. */
#include "base/arena.h"

#include "base/sys.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
# define PL_ASAN 1
#elif defined(__has_feature)
# if __has_feature(address_sanitizer)
#  define PL_ASAN 1
# endif
#endif
#ifdef PL_ASAN
void __asan_poison_memory_region(void const volatile *p, size_t n);
void __asan_unpoison_memory_region(void const volatile *p, size_t n);
# define POISON(p, n)   __asan_poison_memory_region((p), (n))
# define UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
# define POISON(p, n)   ((void)(p), (void)(n))
# define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define ALIGN       16
#define FIRST_CHUNK ((size_t)4096)

struct pl_arena_chunk {
    pl_arena_chunk *prev;
    size_t cap;
    _Alignas(ALIGN) char data[];
};

static void chunk_free(pl_arena *a, pl_arena_chunk *c)
{
    UNPOISON(c->data, c->cap);
    a->total -= c->cap + sizeof *c;
    pl_sys_free(c);
}

void pl_arena_release(pl_arena *a)
{
    while (a->head) {
        pl_arena_chunk *prev = a->head->prev;
        chunk_free(a, a->head);
        a->head = prev;
    }
    *a = (pl_arena)PL_ARENA_INIT;
}

void *pl_arena_alloc(pl_arena *a, size_t bytes)
{
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!a->head || a->head->cap - a->used < bytes) {
        size_t cap = a->total / 2 > FIRST_CHUNK ? a->total / 2 : FIRST_CHUNK;
        if (cap < bytes) cap = bytes;
        pl_arena_chunk *c = pl_sys_alloc(sizeof *c + cap);
        if (!c) return NULL;
        c->prev = a->head;
        c->cap = cap;
        a->head = c;
        a->used = 0;
        a->total += cap + sizeof *c;
        POISON(c->data, cap);
    }
    char *p = a->head->data + a->used;
    a->used += bytes;
    UNPOISON(p, bytes);
    memset(p, 0, bytes); /* a rewound tail holds old bytes */
    return p;
}

char *pl_arena_strndup(pl_arena *a, const char *s, size_t n)
{
    char *p = pl_arena_alloc(a, n + 1);
    if (p) memcpy(p, s, n);
    return p;
}

char *pl_arena_strdup(pl_arena *a, const char *s)
{
    return pl_arena_strndup(a, s, strlen(s));
}

char *pl_arena_printf(pl_arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : pl_arena_alloc(a, (size_t)n + 1);
    if (p) vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

pl_arena_mark pl_arena_mark_get(const pl_arena *a)
{
    return (pl_arena_mark){a->head, a->used};
}

void pl_arena_rewind(pl_arena *a, pl_arena_mark m)
{
    while (a->head != m.head) {
        pl_arena_chunk *prev = a->head->prev;
        chunk_free(a, a->head);
        a->head = prev;
    }
    a->used = m.used;
    if (a->head) POISON(a->head->data + a->used, a->head->cap - a->used);
}
