/* alloc_count.c - see alloc_count.h. glibc exports its allocator under __libc_ names, so a
 * wrapper needs no dlsym, which would itself allocate. */
#include "tests/lib/alloc_count.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
# define COUNTED 0
#elif defined(__has_feature)
# if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#  define COUNTED 0
# endif
#endif
#ifndef COUNTED
# define COUNTED 1
#endif

static atomic_uint_fast64_t n_calls;

bool pl_test_allocs_counted(void)
{
    return COUNTED;
}

uint64_t pl_test_allocs(void)
{
    return n_calls;
}

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

# define SEEN __attribute__((visibility("default")))

SEEN void *malloc(size_t n)
{
    n_calls++;
    return __libc_malloc(n);
}

SEEN void *calloc(size_t n, size_t each)
{
    n_calls++;
    return __libc_calloc(n, each);
}

SEEN void *realloc(void *p, size_t n)
{
    n_calls++;
    return __libc_realloc(p, n);
}

SEEN void *memalign(size_t align, size_t n)
{
    n_calls++;
    return __libc_memalign(align, n);
}

SEEN void *aligned_alloc(size_t align, size_t n)
{
    n_calls++;
    return __libc_memalign(align, n);
}

SEEN int posix_memalign(void **out, size_t align, size_t n)
{
    n_calls++;
    void *p = __libc_memalign(align, n);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

SEEN void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    n_calls++;
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
#endif
