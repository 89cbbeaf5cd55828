/* cxx_heap.c - operator new and delete for the C++ inside oneDNN, served from a pool.
 *
 * A training step may not allocate. dnnl_primitive_execute builds a few small containers at every
 * call (an argument map, a context, references counted), so it calls operator new about six times
 * for some 40 bytes each. C++ lets a program replace these functions, and the dynamic linker binds
 * every library to the definitions in the executable; here they are, in C, under their mangled
 * names, in programs only (README.md). Blocks up to SMALL_MAX come from free lists that only ever
 * grow: once a step has run, the next one finds every block it needs on a list and malloc is not
 * called. Larger blocks, which only preparing asks for, go to malloc.
 *
 * A block is preceded by one word that holds its list, so delete needs no size and new keeps the
 * promised 16-byte alignment. Chunks are never freed: their number is bounded by the most small
 * blocks alive at once. Threads share the lists under one lock each; a call holds it for a few
 * instructions.
 *
 * Chunks come from malloc and not from base/sys.h: failures injected there must reach code that can
 * report them, and C++ containers cannot. Under a sanitizer the functions stay its own. The
 * over-aligned forms of C++17 are not replaced; their defaults do not meet these.
 */
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
# define PL_CXX_HEAP 0
#elif defined(__has_feature)
# if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                        \
     __has_feature(memory_sanitizer)
#  define PL_CXX_HEAP 0
# endif
#endif

#ifndef PL_CXX_HEAP

# include <pthread.h>
# include <stdbool.h>
# include <stdint.h>
# include <stdio.h>
# include <stdlib.h>
# include <sys/resource.h>
# include <unistd.h>

enum { SMALL_MAX = 4096, MIN_SHIFT = 5, N_LISTS = 8, CHUNK = 64 * 1024, FROM_MALLOC = 255 };
_Static_assert((1 << (MIN_SHIFT + N_LISTS - 1)) == SMALL_MAX, "lists end at the limit");

/* Before every block; 16 bytes so that the block keeps malloc's alignment. */
typedef union header {
    struct {
        unsigned char list;
        union header *next; /* while free */
    } at;
    char pad[16];
} header;
_Static_assert(sizeof(header) == 16, "blocks stay 16-byte aligned");

/* Mutable by nature: the process's heap for C++. */
static struct {
    pthread_mutex_t lock;
    header *free;
} lists[N_LISTS] = {[0 ... N_LISTS - 1] = {PTHREAD_MUTEX_INITIALIZER, NULL}};

static size_t block_bytes(int list)
{
    return sizeof(header) + ((size_t)1 << (MIN_SHIFT + list));
}

static int list_for(size_t bytes)
{
    int list = 0;
    while (((size_t)1 << (MIN_SHIFT + list)) < bytes) list++;
    return list;
}

/* Cuts a new chunk into blocks. The caller holds the lock. */
static void refill(int list)
{
    const size_t each = block_bytes(list);
    char *chunk = malloc(CHUNK);
    if (!chunk) return;
    for (size_t at = 0; at + each <= CHUNK; at += each) {
        header *h = (header *)(void *)(chunk + at);
        h->at.list = (unsigned char)list;
        h->at.next = lists[list].free;
        lists[list].free = h;
    }
}

static void *pool_take(size_t bytes)
{
    if (bytes > SMALL_MAX) {
        header *h = bytes > SIZE_MAX - sizeof *h ? NULL : malloc(bytes + sizeof *h);
        if (!h) return NULL;
        h->at.list = FROM_MALLOC;
        return h + 1;
    }
    const int list = list_for(bytes);
    pthread_mutex_lock(&lists[list].lock);
    if (!lists[list].free) refill(list);
    header *h = lists[list].free;
    if (h) lists[list].free = h->at.next;
    pthread_mutex_unlock(&lists[list].lock);
    return h ? h + 1 : NULL;
}

static void pool_give(void *p)
{
    if (!p) return;
    header *h = (header *)p - 1;
    const int list = h->at.list;
    if (list == FROM_MALLOC) {
        free(h);
        return;
    }
    pthread_mutex_lock(&lists[list].lock);
    h->at.next = lists[list].free;
    lists[list].free = h;
    pthread_mutex_unlock(&lists[list].lock);
}

/* oneDNN does not catch std::bad_alloc at its C functions, so throwing it would abort the program.
 * The program ends with a message and the exit code of a budget that is too small, 3; checkpoints
 * are complete at any time. snprintf of numbers needs no memory. */
static void *take_or_end(size_t bytes)
{
    char text[256];
    struct rlimit most;
    void *p = pool_take(bytes);
    if (p) return p;
    bool limited = getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur != RLIM_INFINITY;
    int n = snprintf(text, sizeof text, "plimsoll: out of memory in a C++ library: %zu bytes more",
                     bytes);
    if (limited)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      " do not fit %llu bytes, the limit of address space (ulimit -v): raise it",
                      (unsigned long long)most.rlim_cur);
    n += snprintf(text + n, sizeof text - (size_t)n, "%s\n",
                  limited ? "" : " are not free: end other programs, or train with less");
    _exit(write(STDERR_FILENO, text, (size_t)n) < 0 ? 1 : 3);
}

# define CXX_SYMBOL(name) __asm__(name) __attribute__((visibility("default")))
void *cxx_new(size_t n) CXX_SYMBOL("_Znwm");
void *cxx_new_array(size_t n) CXX_SYMBOL("_Znam");
void *cxx_new_nothrow(size_t n, const void *tag) CXX_SYMBOL("_ZnwmRKSt9nothrow_t");
void *cxx_new_array_nothrow(size_t n, const void *tag) CXX_SYMBOL("_ZnamRKSt9nothrow_t");
void cxx_delete(void *p) CXX_SYMBOL("_ZdlPv");
void cxx_delete_array(void *p) CXX_SYMBOL("_ZdaPv");
void cxx_delete_sized(void *p, size_t n) CXX_SYMBOL("_ZdlPvm");
void cxx_delete_array_sized(void *p, size_t n) CXX_SYMBOL("_ZdaPvm");
void cxx_delete_nothrow(void *p, const void *tag) CXX_SYMBOL("_ZdlPvRKSt9nothrow_t");
void cxx_delete_array_nothrow(void *p, const void *tag) CXX_SYMBOL("_ZdaPvRKSt9nothrow_t");

void *cxx_new(size_t n)
{
    return take_or_end(n);
}

void *cxx_new_array(size_t n)
{
    return take_or_end(n);
}

void *cxx_new_nothrow(size_t n, const void *tag)
{
    (void)tag;
    return pool_take(n);
}

void *cxx_new_array_nothrow(size_t n, const void *tag)
{
    (void)tag;
    return pool_take(n);
}

void cxx_delete(void *p)
{
    pool_give(p);
}

void cxx_delete_array(void *p)
{
    pool_give(p);
}

void cxx_delete_sized(void *p, size_t n)
{
    (void)n;
    pool_give(p);
}

void cxx_delete_array_sized(void *p, size_t n)
{
    (void)n;
    pool_give(p);
}

void cxx_delete_nothrow(void *p, const void *tag)
{
    (void)tag;
    pool_give(p);
}

void cxx_delete_array_nothrow(void *p, const void *tag)
{
    (void)tag;
    pool_give(p);
}

#endif
