/* prompts.h - a file of prompts: one a line, found again by their text.
 *
 * Every line is a prompt, an empty line too; a carriage return before the line's end is not part of
 * it. Lines are numbered from 0. A search finds the first of equal lines.
 */
#ifndef PL_DATA_PROMPTS_H
#define PL_DATA_PROMPTS_H

#include "base/arena.h"

typedef struct pl_prompts pl_prompts;

pl_status pl_prompts_open(const char *path, pl_prompts **out) PL_MUST_USE;
/* The same from memory, which is read only here; path is for messages. */
pl_status pl_prompts_parse(const char *text, size_t len, const char *path,
                           pl_prompts **out) PL_MUST_USE;
void pl_prompts_close(pl_prompts *p);
int64_t pl_prompts_count(const pl_prompts *p);
const char *pl_prompts_at(const pl_prompts *p, int64_t line);   /* until the file is closed */
int64_t pl_prompts_find(const pl_prompts *p, const char *text); /* line; -1: none */

#endif
