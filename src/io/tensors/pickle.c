/* pickle.c - see pickle.h.
 *
 * A stack machine: an opcode pushes a value, or takes values off the stack and pushes one. Marks
 * are positions in the stack and have a separate stack. The memo holds values by number; the
 * numbers are consecutive in genuine pickles, so a number above the bytes of the pickle is refused.
 */
#include "io/tensors/pickle.h"

#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PUSHES = 8000000 };

typedef struct machine {
    const uint8_t *data, *p, *end;
    const char *name;
    pl_arena *mem;
    pl_pickle **stack, **memo;
    size_t n, cap, n_memo, cap_memo;
    size_t *mark, n_marks, cap_marks;
    int pushes;
    pl_pickle *none, *empty, *yes, *no; /* values that opcodes of one byte push */
} machine;

static pl_status bad(const machine *m, const char *what)
{
    (void)pl__fail(PL_ERR_FILE, __FILE__, __LINE__, "%.200s: the pickle is damaged at byte %zu: %s",
                   m->name, (size_t)(m->p - m->data), what);
    return PL_ERR_FILE;
}

/* ---- bytes ------------------------------------------------------------------------------ */
static pl_status take(machine *m, size_t n, const uint8_t **out)
{
    if (n > (size_t)(m->end - m->p)) return bad(m, "it ends too early");
    *out = m->p;
    m->p += n;
    return PL_OK;
}

static pl_status take_number(machine *m, int n, uint64_t *out)
{
    const uint8_t *p;
    PL_TRY(take(m, (size_t)n, &p));
    *out = 0;
    for (int i = n - 1; i >= 0; i--) *out = *out << 8 | p[i];
    return PL_OK;
}

static pl_status take_line(machine *m, const char **text, size_t *n)
{
    const uint8_t *line = m->p, *end = memchr(m->p, '\n', (size_t)(m->end - m->p));
    if (!end) return bad(m, "a line does not end");
    m->p = end + 1;
    *text = (const char *)line;
    *n = (size_t)(end - line);
    return PL_OK;
}

/* ---- stacks ----------------------------------------------------------------------------- */
static pl_status grow(void **items, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return PL_OK;
    size_t more = *cap ? 2 * *cap : 256;
    while (more <= n) more *= 2;
    void *p = pl_sys_realloc(*items, *cap * size, more * size);
    if (!p) return PL_ERR_MEMORY;
    memset((char *)p + *cap * size, 0, (more - *cap) * size);
    *items = p;
    *cap = more;
    return PL_OK;
}

static pl_status push(machine *m, pl_pickle *v)
{
    void *items = m->stack;
    PL_FAIL_IF(++m->pushes > MAX_PUSHES, PL_ERR_FILE, "%.200s: the pickle has more than %d values",
               m->name, MAX_PUSHES);
    PL_TRY(grow(&items, m->n, &m->cap, sizeof *m->stack));
    m->stack = items;
    m->stack[m->n++] = v;
    return PL_OK;
}

/* Takes the top value; values below the last mark stay. */
static pl_status pop(machine *m, pl_pickle **out)
{
    size_t floor = m->n_marks ? m->mark[m->n_marks - 1] : 0;
    if (m->n <= floor) return bad(m, "an opcode finds no value");
    *out = m->stack[--m->n];
    return PL_OK;
}

static pl_status make(machine *m, pl_pickle_kind kind, pl_pickle **out)
{
    *out = pl_arena_new(m->mem, pl_pickle, 1);
    if (!*out) return PL_ERR_MEMORY;
    (*out)->kind = kind;
    return PL_OK;
}

static pl_status push_new(machine *m, pl_pickle_kind kind, pl_pickle **out)
{
    PL_TRY(make(m, kind, out));
    return push(m, *out);
}

static pl_status push_int(machine *m, int64_t x)
{
    pl_pickle *v;
    PL_TRY(push_new(m, PL_PICKLE_INT, &v));
    v->number = x;
    return PL_OK;
}

static pl_status push_float(machine *m, double x)
{
    pl_pickle *v;
    PL_TRY(push_new(m, PL_PICKLE_FLOAT, &v));
    v->real = x;
    return PL_OK;
}

static pl_status push_text(machine *m, pl_pickle_kind kind, const char *text, size_t n)
{
    pl_pickle *v;
    PL_TRY(push_new(m, kind, &v));
    v->text = text;
    v->length = n;
    return PL_OK;
}

/* Text after its length of `bytes` bytes. */
static pl_status push_counted(machine *m, int bytes)
{
    uint64_t n;
    const uint8_t *p;
    PL_TRY(take_number(m, bytes, &n));
    if (n > (uint64_t)(m->end - m->p)) return bad(m, "a text is longer than the pickle");
    PL_TRY(take(m, (size_t)n, &p));
    return push_text(m, PL_PICKLE_TEXT, (const char *)p, (size_t)n);
}

static pl_status add_item(machine *m, pl_pickle *to, pl_pickle *v)
{
    if (to->n == to->cap) {
        int cap = to->cap ? 2 * to->cap : 4;
        pl_pickle **more = pl_arena_new(m->mem, pl_pickle *, cap);
        if (!more) return PL_ERR_MEMORY;
        if (to->n) memcpy(more, to->item, (size_t)to->n * sizeof *more);
        to->item = more;
        to->cap = cap;
    }
    to->item[to->n++] = v;
    return PL_OK;
}

/* Moves the values above the last mark to `to`, and takes the mark off. */
static pl_status take_marked(machine *m, pl_pickle *to)
{
    if (!m->n_marks) return bad(m, "an opcode finds no mark");
    size_t from = m->mark[--m->n_marks];
    for (size_t i = from; to && i < m->n; i++) PL_TRY(add_item(m, to, m->stack[i]));
    m->n = from;
    return PL_OK;
}

/* The value on top of the stack, which gets items. */
static pl_status top(machine *m, pl_pickle **out)
{
    PL_TRY(pop(m, out));
    if (*out == m->empty) return bad(m, "an opcode changes a tuple");
    bool holds = (*out)->kind == PL_PICKLE_SEQUENCE || (*out)->kind == PL_PICKLE_DICT ||
                 (*out)->kind == PL_PICKLE_CALL;
    if (!holds) return bad(m, "an opcode fills a value that holds no items");
    return push(m, *out);
}

/* ---- opcodes, by what they do; *done: the opcode is one of these -------------------------- */
static pl_status plain(machine *m, uint8_t op, bool *done)
{
    uint64_t x;
    double d;
    switch (op) {
    case 'N': return push(m, m->none);
    case 0x88: return push(m, m->yes);
    case 0x89: return push(m, m->no);
    case 'K': PL_TRY(take_number(m, 1, &x)); return push_int(m, (int64_t)x);
    case 'M': PL_TRY(take_number(m, 2, &x)); return push_int(m, (int64_t)x);
    case 'J': PL_TRY(take_number(m, 4, &x)); return push_int(m, (int32_t)(uint32_t)x);
    case 'G':
        PL_TRY(take_number(m, 8, &x));
        x = __builtin_bswap64(x);
        memcpy(&d, &x, sizeof d);
        return push_float(m, d);
    case 'X':
    case 'T':
    case 'B': return push_counted(m, 4);
    case 'U':
    case 'C':
    case 0x8c: return push_counted(m, 1);
    case 0x8d:
    case 0x8e:
    case 0x96: return push_counted(m, 8);
    default: *done = false; return PL_OK;
    }
}

/* A whole number of n bytes, two's complement. */
static pl_status push_long(machine *m, int bytes_of_length)
{
    uint64_t n, x = 0;
    const uint8_t *p;
    PL_TRY(take_number(m, bytes_of_length, &n));
    if (n > (uint64_t)(m->end - m->p)) return bad(m, "a number is longer than the pickle");
    PL_TRY(take(m, (size_t)n, &p));
    bool negative = n && p[n - 1] & 0x80;
    if (n > 8) return push_float(m, negative ? -1e300 : 1e300);
    for (size_t i = 0; i < 8; i++) x |= (uint64_t)(i < n ? p[i] : negative ? 0xff : 0) << 8 * i;
    return push_int(m, (int64_t)x);
}

/* Protocol 0: numbers and texts as lines. */
static pl_status lines(machine *m, uint8_t op, bool *done)
{
    const char *text;
    size_t n;
    char number[64], *end;
    if (op == 0x8a || op == 0x8b) return push_long(m, op == 0x8a ? 1 : 4);
    if (!strchr("FILSV", op) || !op) {
        *done = false;
        return PL_OK;
    }
    PL_TRY(take_line(m, &text, &n));
    if (op == 'S') { /* in quotes; escapes stay as they are */
        bool quoted = n >= 2 && (text[0] == '\'' || text[0] == '"') && text[n - 1] == text[0];
        return push_text(m, PL_PICKLE_TEXT, text + quoted, n - 2 * (size_t)quoted);
    }
    if (op == 'V') return push_text(m, PL_PICKLE_TEXT, text, n);
    if (op == 'I' && n == 2 && text[0] == '0' && (text[1] == '0' || text[1] == '1'))
        return push(m, text[1] == '1' ? m->yes : m->no);
    snprintf(number, sizeof number, "%.*s", (int)(n < 60 ? n : 60), text);
    errno = 0;
    long long whole = strtoll(number, &end, 10);
    if (op != 'F' && !errno && end > number) return push_int(m, whole);
    return push_float(m, strtod(number, NULL));
}

static pl_status containers(machine *m, uint8_t op, bool *done)
{
    pl_pickle *v, *a;
    switch (op) {
    case '(': {
        void *items = m->mark;
        PL_TRY(grow(&items, m->n_marks, &m->cap_marks, sizeof *m->mark));
        m->mark = items;
        m->mark[m->n_marks++] = m->n;
        return PL_OK;
    }
    case ')': return push(m, m->empty);
    case ']':
    case 0x8f: return push_new(m, PL_PICKLE_SEQUENCE, &v);
    case '}': return push_new(m, PL_PICKLE_DICT, &v);
    case 't':
    case 'l':
    case 'd':
    case 0x91:
        PL_TRY(make(m, op == 'd' ? PL_PICKLE_DICT : PL_PICKLE_SEQUENCE, &v));
        PL_TRY(take_marked(m, v));
        return v->kind == PL_PICKLE_DICT && v->n % 2 ? bad(m, "a key has no value") : push(m, v);
    case 0x85:
    case 0x86:
    case 0x87:
        PL_TRY(make(m, PL_PICKLE_SEQUENCE, &v));
        for (int i = op - 0x84; i; i--) {
            PL_TRY(pop(m, &a));
            PL_TRY(add_item(m, v, a));
        }
        for (int i = 0; i < v->n / 2; i++) {
            a = v->item[i];
            v->item[i] = v->item[v->n - 1 - i];
            v->item[v->n - 1 - i] = a;
        }
        return push(m, v);
    default: *done = false; return PL_OK;
    }
}

/* Items for the value below them. */
static pl_status fillers(machine *m, uint8_t op, bool *done)
{
    pl_pickle *v, *key, *to, held = {.kind = PL_PICKLE_SEQUENCE};
    switch (op) {
    case 'a':
        PL_TRY(pop(m, &v));
        PL_TRY(top(m, &to));
        return to->kind == PL_PICKLE_SEQUENCE ? add_item(m, to, v) : PL_OK;
    case 's':
        PL_TRY(pop(m, &v));
        PL_TRY(pop(m, &key));
        PL_TRY(top(m, &to));
        if (to->kind == PL_PICKLE_SEQUENCE) return bad(m, "a list gets a key");
        PL_TRY(add_item(m, to, key));
        return add_item(m, to, v);
    case 'e':
    case 0x90:
    case 'u':
        PL_TRY(take_marked(m, &held));
        PL_TRY(top(m, &to));
        if (op != 'u' && to->kind != PL_PICKLE_SEQUENCE) return PL_OK; /* of a class: not read */
        if (op == 'u' && (held.n % 2 || to->kind == PL_PICKLE_SEQUENCE))
            return bad(m, "a key has no value");
        for (int i = 0; i < held.n; i++) PL_TRY(add_item(m, to, held.item[i]));
        return PL_OK;
    default: *done = false; return PL_OK;
    }
}

static pl_status put_memo(machine *m, uint64_t i)
{
    pl_pickle *v;
    if (i > (uint64_t)(m->end - m->data)) return bad(m, "a memo number is too large");
    PL_TRY(pop(m, &v));
    PL_TRY(push(m, v));
    void *items = m->memo;
    PL_TRY(grow(&items, (size_t)i, &m->cap_memo, sizeof *m->memo));
    m->memo = items;
    m->memo[i] = v;
    m->n_memo++;
    return PL_OK;
}

static pl_status memo(machine *m, uint8_t op, bool *done)
{
    uint64_t i = 0;
    const char *text;
    size_t n;
    bool gets = op == 'g' || op == 'h' || op == 'j';
    switch (op) {
    case 'p':
    case 'g':
        PL_TRY(take_line(m, &text, &n));
        for (size_t k = 0; k < n && k < 12 && text[k] >= '0' && text[k] <= '9'; k++)
            i = 10 * i + (uint64_t)(text[k] - '0');
        break;
    case 'q':
    case 'h': PL_TRY(take_number(m, 1, &i)); break;
    case 'r':
    case 'j': PL_TRY(take_number(m, 4, &i)); break;
    case 0x94: i = m->n_memo; break;
    default: *done = false; return PL_OK;
    }
    if (!gets) return put_memo(m, i);
    if (i >= m->cap_memo || !m->memo[i]) return bad(m, "it reads a memo that was not set");
    return push(m, m->memo[i]);
}

static pl_status push_call(machine *m, pl_pickle *func, pl_pickle *args)
{
    pl_pickle *v;
    PL_TRY(push_new(m, PL_PICKLE_CALL, &v));
    v->func = func;
    v->args = args;
    return PL_OK;
}

/* "module", "name" as one text. */
static pl_status make_name(machine *m, const char *a, size_t n, const char *b, size_t k,
                           pl_pickle **out)
{
    if (n > 4096 || k > 4096) return bad(m, "the name of a class is too long");
    PL_TRY(make(m, PL_PICKLE_NAME, out));
    (*out)->text = pl_arena_printf(m->mem, "%.*s.%.*s", (int)n, a, (int)k, b);
    if (!(*out)->text) return PL_ERR_MEMORY;
    (*out)->length = strlen((*out)->text);
    return PL_OK;
}

static pl_status take_name(machine *m, pl_pickle **out)
{
    const char *a, *b;
    size_t n, k;
    PL_TRY(take_line(m, &a, &n));
    PL_TRY(take_line(m, &b, &k));
    return make_name(m, a, n, b, k, out);
}

/* Classes made from marked arguments: the first of them is the class, or its name follows. */
static pl_status marked_call(machine *m, uint8_t op)
{
    pl_pickle *args, *func = NULL;
    if (op == 'i') PL_TRY(take_name(m, &func));
    PL_TRY(make(m, PL_PICKLE_SEQUENCE, &args));
    PL_TRY(take_marked(m, args));
    if (func) return push_call(m, func, args);
    if (!args->n) return bad(m, "an object has no class");
    func = args->item[0];
    args->item++;
    args->n--;
    args->cap--;
    return push_call(m, func, args);
}

static pl_status calls(machine *m, uint8_t op, bool *done)
{
    pl_pickle *a, *b, *c;
    switch (op) {
    case 'c': PL_TRY(take_name(m, &a)); return push(m, a);
    case 0x93:
        PL_TRY(pop(m, &b));
        PL_TRY(pop(m, &a));
        if (a->kind != PL_PICKLE_TEXT || b->kind != PL_PICKLE_TEXT)
            return bad(m, "the name of a class is not text");
        PL_TRY(make_name(m, a->text, a->length, b->text, b->length, &c));
        return push(m, c);
    case 0x92: /* keyword arguments are not kept */
        PL_TRY(pop(m, &c));
        PL_TRY(pop(m, &b));
        PL_TRY(pop(m, &a));
        return push_call(m, a, b);
    case 'R':
    case 0x81:
        PL_TRY(pop(m, &b));
        PL_TRY(pop(m, &a));
        return push_call(m, a, b);
    case 'b':
        PL_TRY(pop(m, &b));
        PL_TRY(pop(m, &a));
        if (a->kind == PL_PICKLE_CALL) a->state = b;
        return push(m, a);
    case 'i':
    case 'o': return marked_call(m, op);
    case 'Q':
        PL_TRY(pop(m, &a));
        PL_TRY(push_new(m, PL_PICKLE_PERSISTENT, &c));
        c->args = a;
        return PL_OK;
    default: *done = false; return PL_OK;
    }
}

static pl_status others(machine *m, uint8_t op)
{
    pl_pickle *v;
    const uint8_t *skip;
    char text[80];
    switch (op) {
    case 0x80: return take(m, 1, &skip); /* protocol */
    case 0x95: return take(m, 8, &skip); /* length of a frame */
    case '0': return pop(m, &v);
    case '1': return take_marked(m, NULL);
    case '2':
        PL_TRY(pop(m, &v));
        PL_TRY(push(m, v));
        return push(m, v);
    default:
        snprintf(text, sizeof text, "opcode 0x%02x is not one that torch.save writes", op);
        return bad(m, text);
    }
}

static pl_status make_constants(machine *m)
{
    PL_TRY(make(m, PL_PICKLE_NONE, &m->none));
    PL_TRY(make(m, PL_PICKLE_SEQUENCE, &m->empty));
    PL_TRY(make(m, PL_PICKLE_BOOL, &m->yes));
    m->yes->number = 1;
    return make(m, PL_PICKLE_BOOL, &m->no);
}

static pl_status run(machine *m, const pl_pickle **out)
{
    static pl_status (*const family[])(machine *, uint8_t, bool *) = {plain, lines,   containers,
                                                                      memo,  fillers, calls};
    const uint8_t *op;
    pl_pickle *v;
    PL_TRY(make_constants(m));
    for (;;) {
        PL_TRY(take(m, 1, &op));
        if (*op == '.') break;
        bool done = false;
        for (size_t i = 0; i < sizeof family / sizeof *family && !done; i++) {
            done = true;
            PL_TRY(family[i](m, *op, &done));
        }
        if (!done) PL_TRY(others(m, *op));
    }
    PL_TRY(pop(m, &v));
    *out = v;
    return PL_OK;
}

pl_status pl_pickle_read(const uint8_t *data, size_t bytes, const char *name, pl_arena *mem,
                         const pl_pickle **out)
{
    machine m = {.data = data, .p = data, .end = data + bytes, .name = name, .mem = mem};
    pl_status rc = run(&m, out);
    pl_sys_free(m.stack);
    pl_sys_free(m.memo);
    pl_sys_free(m.mark);
    return rc;
}

bool pl_pickle_is(const pl_pickle *v, const char *text)
{
    bool has = v && (v->kind == PL_PICKLE_NAME || v->kind == PL_PICKLE_TEXT);
    return has && v->length == strlen(text) && memcmp(v->text, text, v->length) == 0;
}
