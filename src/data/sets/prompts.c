/* prompts.c - see prompts.h. */
#include "data/sets/prompts.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 1 << 30 };

typedef struct line {
    const char *text;
    int64_t number;
} line;

struct pl_prompts {
    pl_arena mem;
    line *lines;  /* by number */
    line *sorted; /* by text, equal ones by number */
    int64_t n;
};

static int by_text(const void *a, const void *b)
{
    const line *x = a, *y = b;
    int c = strcmp(x->text, y->text);
    return c ? c : (x->number > y->number) - (x->number < y->number);
}

static pl_status split(pl_prompts *p, const char *text, size_t len, const char *path)
{
    int64_t n = len && text[len - 1] != '\n';
    for (size_t i = 0; i < len; i++) n += text[i] == '\n';
    PL_FAIL_IF(n == 0, PL_ERR_DATA, "%s holds no prompt", path);
    PL_FAIL_IF(n > INT32_MAX, PL_ERR_DATA, "%s has more than 2^31 lines", path);
    p->lines = pl_arena_new(&p->mem, line, n);
    p->sorted = pl_arena_new(&p->mem, line, n);
    if (!p->lines || !p->sorted) return PL_ERR_MEMORY;
    for (const char *at = text, *end = text + len; p->n < n;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t m = (size_t)((stop ? stop : end) - at);
        PL_FAIL_IF(memchr(at, 0, m), PL_ERR_DATA,
                   "%s: line %lld has a zero byte: is it a text file?", path, (long long)p->n + 1);
        bool cr = m && at[m - 1] == '\r';
        line *l = &p->lines[p->n];
        *l = (line){pl_arena_strndup(&p->mem, at, m - cr), p->n};
        if (!l->text) return PL_ERR_MEMORY;
        p->sorted[p->n++] = *l;
        at += m + 1;
    }
    qsort(p->sorted, (size_t)n, sizeof *p->sorted, by_text);
    return PL_OK;
}

pl_status pl_prompts_parse(const char *text, size_t len, const char *path, pl_prompts **out)
{
    pl_prompts *p = pl_sys_alloc(sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    pl_status rc = split(p, text, len, path);
    if (rc == PL_OK)
        *out = p;
    else
        pl_prompts_close(p);
    return rc;
}

pl_status pl_prompts_open(const char *path, pl_prompts **out)
{
    char *text;
    size_t len;
    pl_status rc = pl_sys_read_file(path, MAX_TEXT, &text, &len);
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_DATA, "%s", pl_error_text());
    if (rc != PL_OK) return rc;
    rc = pl_prompts_parse(text, len, path, out);
    pl_sys_free(text);
    return rc;
}

void pl_prompts_close(pl_prompts *p)
{
    if (p) pl_arena_release(&p->mem);
    pl_sys_free(p);
}

int64_t pl_prompts_count(const pl_prompts *p)
{
    return p->n;
}

const char *pl_prompts_at(const pl_prompts *p, int64_t number)
{
    return p->lines[number].text;
}

int64_t pl_prompts_find(const pl_prompts *p, const char *text)
{
    int64_t lo = 0, hi = p->n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (strcmp(p->sorted[mid].text, text) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < p->n && strcmp(p->sorted[lo].text, text) == 0 ? p->sorted[lo].number : -1;
}
