/* safetensors.h - weights on disk: the safetensors format, read and written.
 *
 *     8 bytes   N, little-endian: length of the header
 *     N bytes   JSON: {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [0,24]}, ...,
 *                      "__metadata__": {"key": "text", ...}}
 *     rest      the bytes of the tensors, little-endian, row-major, back to back
 *
 * The reader trusts nothing: everything below is checked at open, before any memory is allocated in
 * proportion to what the file claims. A file that fails a check is PL_ERR_FILE, with a message that
 * names the file, the tensor and the numbers.
 *   S1  at least 8 bytes; N <= 100,000,000; 8+N inside the file
 *   S2  the header is UTF-8 JSON, white space allowed on both sides; nesting <= 4
 *   S3  at most 1,000,000 tensors, rank <= 64, 100,000 metadata keys; no key twice
 *   S4  a tensor has exactly dtype, shape, data_offsets; metadata maps text to text
 *   S5  dimensions and offsets are whole numbers in [0, 2^48)
 *   S6  elements x bits is checked, whole bytes, and equals end - begin
 *   S7  sorted by offset, tensors begin at 0, touch without gap or overlap, and end with the file
 */
#ifndef PL_IO_SAFETENSORS_H
#define PL_IO_SAFETENSORS_H

#include "base/err.h"

/* Columns: name in files, bits per element, and the pl_dtype (or -1: listed, but cannot be loaded).
 * Ordered by alignment for the writer: later rows come first in a file. */
#define PL_ST_DTYPE_LIST(X)                                                                        \
 X(F4, 4, -1)                                                                                      \
 X(F6_E2M3, 6, -1)                                                                                 \
 X(F6_E3M2, 6, -1)                                                                                 \
 X(BOOL, 8, PL_BOOL)                                                                               \
 X(U8, 8, PL_U8)                                                                                   \
 X(I8, 8, -1)                                                                                      \
 X(F8_E5M2, 8, -1)                                                                                 \
 X(F8_E4M3, 8, -1)                                                                                 \
 X(F8_E8M0, 8, -1)                                                                                 \
 X(F8_E4M3FNUZ, 8, -1)                                                                             \
 X(F8_E5M2FNUZ, 8, -1)                                                                             \
 X(I16, 16, -1)                                                                                    \
 X(U16, 16, -1)                                                                                    \
 X(F16, 16, PL_F16)                                                                                \
 X(BF16, 16, PL_BF16)                                                                              \
 X(I32, 32, PL_I32)                                                                                \
 X(U32, 32, -1)                                                                                    \
 X(F32, 32, PL_F32)                                                                                \
 X(C64, 64, -1)                                                                                    \
 X(F64, 64, PL_F64)                                                                                \
 X(I64, 64, PL_I64)                                                                                \
 X(U64, 64, -1)

typedef enum pl_st_dtype {
#define PL_ST_ENUM(name, bits, dtype) PL_ST_##name,
    PL_ST_DTYPE_LIST(PL_ST_ENUM)
#undef PL_ST_ENUM
        PL_ST_N_DTYPES
} pl_st_dtype;

const char *pl_st_dtype_name(pl_st_dtype d); /* "F32" */
int pl_st_dtype_bits(pl_st_dtype d);

/* ---- reading ---------------------------------------------------------------------------- */
typedef struct pl_st_reader pl_st_reader;

typedef struct pl_st_tensor {
    const char *name;
    const int64_t *dim;
    int rank;
    pl_st_dtype dtype;
    bool loadable; /* the dtype is one of ours and rank <= PL_MAX_RANK: `type` is set */
    pl_type type;
    uint64_t begin, end; /* bytes in the data section; with stride, end is begin + size only */
    /* In elements, where a PyTorch file holds the elements in another order; NULL: row-major. */
    const int64_t *stride;
} pl_st_tensor;

/* Opens a safetensors file, or a file of PyTorch's torch.save, which is a zip (io/tensors). The
 * tensors of the latter have the keys of their dictionaries as names, joined by dots
 * ("state_dict.conv.weight"); its numbers and texts are metadata, named in the same way. */

pl_status pl_st_open(const char *path, pl_st_reader **out) PL_MUST_USE;
/* data is borrowed until close; `name` replaces the path in messages. */
pl_status pl_st_open_memory(const void *data, size_t len, const char *name,
                            pl_st_reader **out) PL_MUST_USE;
void pl_st_close(pl_st_reader *r);
/* Reads every byte of a file that carries checksums and compares: the XXH64 of a safetensors file
 * of ours (file.h), the CRC-32 of each member of a PyTorch file; a CRC-32 of 0 is none.
 * PL_ERR_FILE when the file is damaged. *sum: what was compared, in words; NULL: no checksum; it
 * may be NULL. pl_st_set_open verifies. */
pl_status pl_st_verify(const pl_st_reader *r, const char **sum) PL_MUST_USE;

/* Tensors in file order; pointers are borrowed until close. */
int pl_st_count(const pl_st_reader *r);
const pl_st_tensor *pl_st_at(const pl_st_reader *r, int index);
const pl_st_tensor *pl_st_find(const pl_st_reader *r, const char *name); /* NULL if none */
const char *pl_st_path(const pl_st_reader *r); /* the path given to open */
int pl_st_meta_count(const pl_st_reader *r);
void pl_st_meta_at(const pl_st_reader *r, int index, const char **key, const char **value);
const char *pl_st_meta_get(const pl_st_reader *r, const char *key); /* NULL if none */

/* Reads all bytes of t into dst, which must have exactly dst_bytes: another size is PL_ERR_ARG. */
pl_status pl_st_read(const pl_st_reader *r, const pl_st_tensor *t, void *dst,
                     size_t dst_bytes) PL_MUST_USE;
/* Bytes [offset, offset+bytes) of t. A BOOL byte other than 0 and 1 is PL_ERR_FILE. */
pl_status pl_st_read_range(const pl_st_reader *r, const pl_st_tensor *t, uint64_t offset,
                           size_t bytes, void *dst) PL_MUST_USE;

/* ---- writing -------------------------------------------------------------------------------
 * Declare every tensor, begin, write the bytes of each in file order, finish:
 *
 *     pl_st_writer_new(path, &w);
 *     pl_st_writer_add(w, "weight", &type);  pl_st_writer_meta(w, "format", "pt");
 *     pl_st_writer_begin(w);
 *     for (int i = 0; i < n; i++) {
 *         int k = pl_st_writer_order(w, i);          k-th declared comes i-th in the file
 *         pl_st_writer_write(w, k, data[k], bytes);  in one piece or many
 *     }
 *     pl_st_writer_finish(w);  pl_st_writer_free(w);
 *
 * The file appears under its name at finish, complete; if freed before, nothing is left. Data begin
 * at a multiple of 4096. The same declarations and bytes give the same file. The file carries its
 * checksum (file.h).
 *
 * A path that ends in .pt, .pth, .ckpt or .bin gets PyTorch's format (io/tensors): a dictionary of
 * the tensors, in the order of declaration. */
typedef struct pl_st_writer pl_st_writer;

pl_status pl_st_writer_new(const char *path, pl_st_writer **out) PL_MUST_USE;
pl_status pl_st_writer_add(pl_st_writer *w, const char *name, const pl_type *type) PL_MUST_USE;
pl_status pl_st_writer_meta(pl_st_writer *w, const char *key, const char *value) PL_MUST_USE;
/* PyTorch's format: puts the tensors into entry `key` of an outer dictionary, which then also has
 * the metadata and the entries, whose values are JSON texts. Without this neither is written. */
pl_status pl_st_writer_under(pl_st_writer *w, const char *key) PL_MUST_USE;
pl_status pl_st_writer_entry(pl_st_writer *w, const char *key, const char *json) PL_MUST_USE;
/* PyTorch's format: one declared tensor is the whole content, without a dictionary. */
void pl_st_writer_alone(pl_st_writer *w);
pl_status pl_st_writer_begin(pl_st_writer *w) PL_MUST_USE;
int pl_st_writer_order(const pl_st_writer *w, int position);
pl_status pl_st_writer_write(pl_st_writer *w, int index, const void *data,
                             size_t bytes) PL_MUST_USE;
pl_status pl_st_writer_finish(pl_st_writer *w) PL_MUST_USE;
/* After finish: sets the bytes of the file and their XXH64. */
void pl_st_writer_sum(const pl_st_writer *w, uint64_t *bytes, uint64_t *hash);
void pl_st_writer_free(pl_st_writer *w);

#endif
