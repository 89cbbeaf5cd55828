/* st_set.h - weight files read as one: safetensors, and PyTorch's files (safetensors.h).
 *
 * The path may be: one file; several, separated by commas; an index (*.json: {"weight_map":
 * {"tensor": "file", ...}}) beside its files; or a folder with one index, or with *.safetensors,
 * all of which are read; a folder without either is searched for PyTorch's *.bin, *.pt, *.pth and
 * *.ckpt. Of a folder with variants (x.fp16.safetensors beside x.safetensors, with the same
 * tensors, and likewise indexes) the plain file is read. A tensor that is in two other files, or
 * that an index lists and its file does not have, is PL_ERR_FILE, and the message names it. So is a
 * file whose bytes do not match its checksum (pl_st_verify).
 */
#ifndef PL_IO_ST_SET_H
#define PL_IO_ST_SET_H

#include "io/safetensors.h"

typedef struct pl_st_set pl_st_set;

pl_status pl_st_set_open(const char *path, pl_st_set **out) PL_MUST_USE;
void pl_st_set_close(pl_st_set *s);
int pl_st_set_files(const pl_st_set *s);
const pl_st_reader *pl_st_set_file(const pl_st_set *s, int file);
const char *pl_st_set_path(const pl_st_set *s, int file);
/* Returns NULL if none; *file: the file that has it. */
const pl_st_tensor *pl_st_set_find(const pl_st_set *s, const char *name, int *file);

#endif
