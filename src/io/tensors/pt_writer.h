/* pt_writer.h - the pickle of a file of torch.save: a dictionary of tensors.
 *
 * torch.load(weights_only=True) reads it: only names of torch's rebuild function, its storages and
 * OrderedDict occur.
 */
#ifndef PL_IO_PT_WRITER_H
#define PL_IO_PT_WRITER_H

#include "base/str.h"

/* Whether a file of this name has PyTorch's format: .pt, .pth, .ckpt, .bin. */
bool pl_pt_named(const char *path);

/* Parts of the pickle, in this order: begin; open; keys each followed by a value; close; end. A
 * value is a tensor, a JSON text, or a dictionary (open ... close). */
void pl_pt_begin(pl_str *p);
void pl_pt_open(pl_str *p, bool ordered); /* ordered: an OrderedDict, as state_dict returns */
void pl_pt_key(pl_str *p, const char *key);
/* The tensor whose numbers are storage number `storage`, row-major. */
void pl_pt_tensor(pl_str *p, const pl_type *type, int storage);
void pl_pt_text(pl_str *p, const char *text);
/* PL_ERR_ARG when the text is not JSON. */
pl_status pl_pt_json(pl_str *p, const char *json) PL_MUST_USE;
void pl_pt_close(pl_str *p);
void pl_pt_end(pl_str *p);

#endif
