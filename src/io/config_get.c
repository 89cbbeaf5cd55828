/* config_get.c - values of a configuration, and what becomes of code that asks for a key that there
 * is not.
 *
 * Getters return values, so that model code has no check per line. A recipe that misspells a key
 * cannot continue: its call ends by a jump to the engine's guard, and the engine reports the key.
 */
#include "io/config_int.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* The call of pl_config_guard that is under way on this thread. */
static _Thread_local jmp_buf *guard;

pl_status pl_config_guard(pl_status (*call)(void *ctx), void *ctx)
{
    jmp_buf here;
    jmp_buf *volatile outer = guard;
    guard = &here;
    pl_status rc = setjmp(here) == 0 ? call(ctx) : PL_ERR_CONFIG;
    guard = outer;
    return rc;
}

_Noreturn void pl__config_misused(const char *text)
{
    if (!guard) PL_BUG("%s", text);
    pl__fail(PL_ERR_CONFIG, __FILE__, __LINE__, "%s", text);
    longjmp(*guard, 1);
}

static int find_key(const pl_config *c, const char *key)
{
    char near[128], text[384];
    int i = pl__config_find(c, key);
    if (i >= 0) return i;
    bool found = pl_config_nearest(c, key, near, sizeof near);
    snprintf(text, sizeof text,
             "the code reads the key \"%.100s\", which is not in its schema%s%s%s", key,
             found ? "; nearest: \"" : "", found ? near : "", found ? "\"" : "");
    pl__config_misused(text);
}

static const config_value *get(const pl_config *c, const char *key, pl_config_type type)
{
    char text[256];
    int i = find_key(c, key);
    pl_config_type is = c->entry[i]->type == PL_CONFIG_CHOICE ? PL_CONFIG_TEXT : c->entry[i]->type;
    if (is == type) return &c->value[i];
    snprintf(text, sizeof text, "the code reads the key \"%.100s\" as %s, its schema says %s", key,
             pl__config_expected(type), pl__config_expected(is));
    pl__config_misused(text);
}

bool pl_config_has(const pl_config *c, const char *key)
{
    return pl__config_find(c, key) >= 0;
}

const pl_config_entry *pl_config_row(const pl_config *c, const char *key)
{
    int i = pl__config_find(c, key);
    return i < 0 ? NULL : c->entry[i];
}

bool pl_config_is_null(const pl_config *c, const char *key)
{
    int i = find_key(c, key);
    return c->value[i].null || !c->value[i].set;
}

bool pl_config_bool(const pl_config *c, const char *key)
{
    return get(c, key, PL_CONFIG_BOOL)->b;
}

int64_t pl_config_int(const pl_config *c, const char *key)
{
    return get(c, key, PL_CONFIG_INT)->i;
}

double pl_config_float(const pl_config *c, const char *key)
{
    return get(c, key, PL_CONFIG_FLOAT)->f;
}

const char *pl_config_text(const pl_config *c, const char *key)
{
    const char *s = get(c, key, PL_CONFIG_TEXT)->s;
    return s ? s : "";
}

int64_t pl_config_size(const pl_config *c, const char *key)
{
    return get(c, key, PL_CONFIG_SIZE)->i;
}

double pl_config_duration(const pl_config *c, const char *key)
{
    return get(c, key, PL_CONFIG_DURATION)->f;
}

const int64_t *pl_config_ints(const pl_config *c, const char *key, int *n)
{
    const config_value *v = get(c, key, PL_CONFIG_INTS);
    *n = v->n;
    return v->ints;
}

const double *pl_config_floats(const pl_config *c, const char *key, int *n)
{
    const config_value *v = get(c, key, PL_CONFIG_FLOATS);
    *n = v->n;
    return v->floats;
}

const char *const *pl_config_texts(const pl_config *c, const char *key, int *n)
{
    const config_value *v = get(c, key, PL_CONFIG_TEXTS);
    *n = v->n;
    return v->texts;
}

const char *pl_config_where(const pl_config *c, const char *key)
{
    int i = find_key(c, key);
    return c->value[i].where ? c->value[i].where : "default";
}
