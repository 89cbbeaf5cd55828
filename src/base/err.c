/* err.c - the thread-local failure message. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 1024

static _Thread_local char message[MESSAGE_BYTES];

/* Uses a separate buffer: an argument may be the current message. */
PL_PRINTF(1, 0) static void record(const char *fmt, va_list ap)
{
    char text[MESSAGE_BYTES];
    vsnprintf(text, sizeof text, fmt, ap);
    memcpy(message, text, sizeof message);
}

pl_status pl__fail(pl_status code, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    record(fmt, ap);
    va_end(ap);
    if (getenv("PL_DEBUG") != NULL)
        fprintf(stderr, "[%s at %s:%d] %s\n", pl_status_name(code), file, line, message);
    return code;
}

pl_status pl_fail(pl_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    record(fmt, ap);
    va_end(ap);
    return code;
}

pl_status pl__fail_prefix(pl_status code, const char *fmt, ...)
{
    char old[MESSAGE_BYTES];
    memcpy(old, message, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < sizeof message)
        snprintf(message + n, sizeof message - (size_t)n, ": %s", old);
    return code;
}

void pl__bug(const char *file, int line, const char *fmt, ...)
{
    fprintf(stderr, "plimsoll: internal error at %s:%d: ", file, line);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

const char *pl_error_text(void)
{
    return message;
}

static const struct status_row {
    pl_status code;
    int exit_code;
    const char *name, *text;
} status_rows[] = {
#define ROW(name, number, exit_code, text) {PL_##name, exit_code, #name, text},
    PL_STATUS_LIST(ROW)
#undef ROW
};

static const struct status_row *status_row(pl_status s)
{
    for (size_t i = 0; i < sizeof status_rows / sizeof status_rows[0]; i++)
        if (status_rows[i].code == s) return &status_rows[i];
    return &status_rows[1];
}

const char *pl_status_name(pl_status s)
{
    return status_row(s)->name;
}

const char *pl_status_text(pl_status s)
{
    return status_row(s)->text;
}

int pl_status_exit_code(pl_status s)
{
    return status_row(s)->exit_code;
}

const char *pl_version(void)
{
    return PL_VERSION_STRING;
}
