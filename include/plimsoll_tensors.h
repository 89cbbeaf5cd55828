/* plimsoll_tensors.h - tensors in files: safetensors, and files of torch.save.
 *
 * A path is a file, several files separated by commas, an index of shards (*.index.json), or a
 * folder with such files. PyTorch's files are zips with a pickle inside; nothing in it is executed.
 * Their tensors have the keys of the dictionaries as names, joined by dots
 * ("state_dict.conv.weight"); a tensor that was saved alone is named "tensor". Numbers and texts in
 * the dictionaries are metadata. Damaged files are PL_ERR_FILE, with a message.
 */
#ifndef PLIMSOLL_TENSORS_H
#define PLIMSOLL_TENSORS_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_tensor_info {
    const char *name;
    const char *dtype; /* as safetensors says it: "F32" */
    int rank;
    const int64_t *dim;
    uint64_t bytes;
} pl_tensor_info;

typedef struct pl_tensors pl_tensors;
PL_API pl_status pl_tensors_open(const char *path, pl_tensors **out) PL_MUST_USE;
PL_API void pl_tensors_close(pl_tensors *t);
/* Tensors in file order; texts and dimensions are borrowed until close. */
PL_API int pl_tensors_count(const pl_tensors *t);
PL_API pl_tensor_info pl_tensors_at(const pl_tensors *t, int i);
PL_API int pl_tensors_find(const pl_tensors *t, const char *name); /* -1: there is none */
/* Value of the metadata under this key; NULL: there is none. */
PL_API const char *pl_tensors_meta(const pl_tensors *t, const char *key);
/* Reads tensor i in row-major order; floating types and integers are converted to `as`. dst has
 * dst_bytes: exactly as many as the elements take. */
PL_API pl_status pl_tensors_read(const pl_tensors *t, int i, pl_dtype as, void *dst,
                                 size_t dst_bytes) PL_MUST_USE;

/* One array of a file: .npy, the array `name` of an .npz file, the tensor `name` of a file as
 * above, or its only tensor. pl_array_file_read reads it whole in row-major order and converts the
 * elements to `as`; to has `bytes`, exactly as many as the elements take. PL_ERR_DATA: there is no
 * such array, or `as` is an integer type and the array has no integers. */
PL_API pl_status pl_array_file_type(const char *path, const char *name, pl_type *type) PL_MUST_USE;
PL_API pl_status pl_array_file_read(const char *path, const char *name, pl_dtype as, void *to,
                                    size_t bytes) PL_MUST_USE;

/* Writes n tensors: PyTorch's format when the path ends in .pt, .pth, .ckpt or .bin, otherwise
 * safetensors. The file appears complete or not at all. In PyTorch's format one tensor without a
 * name (NULL) is saved alone; otherwise they are a dictionary. */
typedef struct pl_tensor_data {
    const char *name;
    pl_type type;
    const void *data;
} pl_tensor_data;
PL_API pl_status pl_tensors_save(const char *path, const pl_tensor_data *tensor, int n) PL_MUST_USE;

/* Calls each for every tensor of a weight file, then each_meta for its metadata. */
PL_API pl_status pl_model_file_list(
    const char *path, void (*each)(void *ctx, const pl_tensor_info *t),
    void (*each_meta)(void *ctx, const char *key, const char *value), void *ctx) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
