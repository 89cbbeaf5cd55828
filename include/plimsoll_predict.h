/* plimsoll_predict.h - predictions of a recipe: `plimsoll predict`.
 *
 * A recipe that offers predictions has a pl_predict: build makes the programs (without gradients,
 * over the weights of a model file), run reads the user's input, runs the programs and writes the
 * results. A pl_prediction gives run everything that it needs. */
#ifndef PLIMSOLL_PREDICT_H
#define PLIMSOLL_PREDICT_H

#include "plimsoll.h"
#include "plimsoll_config.h"
#include "plimsoll_image.h"
#include "plimsoll_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_builder pl_builder; /* plimsoll_recipe.h */

typedef struct pl_prediction pl_prediction;
typedef struct pl_predict {
    /* What --input and --out are, for messages: "a picture or a folder of pictures", "a CSV file".
     * input NULL: there is no --input. */
    const char *input, *out;
    pl_status (*build)(pl_builder *b); /* calls pl_builder_predict */
    pl_status (*run)(pl_prediction *p);
    /* host memory that run allocates, for the plan; NULL: a negligible amount */
    uint64_t (*bytes)(const pl_config *c);
    /* true: --prompt TEXT is allowed, in place of --input if `input` is set, too */
    bool takes_prompt;
} pl_predict;

/* In pl_predict.build: the main program (name NULL) or a further one. pl_builder_batch is the
 * largest number of samples that the budget allows in one run; a program may have another. */
PL_API pl_nn *pl_builder_predict(pl_builder *b, const char *name);

/* In pl_predict.run. Paths and texts are borrowed. */
PL_API const pl_config *pl_predict_config(const pl_prediction *p);
PL_API void *pl_predict_own(const pl_prediction *p);          /* pl_recipe.own */
PL_API const char *pl_predict_input(const pl_prediction *p);  /* --input */
PL_API const char *pl_predict_out(const pl_prediction *p);    /* --out */
PL_API const char *pl_predict_prompt(const pl_prediction *p); /* --prompt; NULL: not given */
/* The memory of an input before a run, and of an output after it; NULL: there is none of that name.
 * program NULL: the main one. */
PL_API void *pl_predict_set(pl_prediction *p, const char *program, const char *name, pl_type *type);
PL_API pl_status pl_predict_run(pl_prediction *p, const char *program) PL_MUST_USE;
PL_API const void *pl_predict_get(pl_prediction *p, const char *program, const char *name,
                                  pl_type *type);
/* Type of an output, before or after a run; false: there is none of that name. */
PL_API bool pl_predict_type(const pl_prediction *p, const char *program, const char *output,
                            pl_type *type);
/* Name of class i of the model; NULL: its file names none. */
PL_API const char *pl_predict_class(const pl_prediction *p, int i);
/* Reports progress. PL_ERR_STOPPED when the user wants to stop: return it. total 0: unknown. */
PL_API pl_status pl_predict_progress(pl_prediction *p, int64_t done, int64_t total) PL_MUST_USE;
/* Appends to a result file: --out itself (name NULL), or a file in the folder --out, which is
 * created. The file gets its name when run has succeeded; when run fails, the file is removed. At
 * most 8 files. */
PL_API pl_status pl_predict_write(pl_prediction *p, const char *name, const void *data,
                                  size_t bytes) PL_MUST_USE;
PL_API pl_status pl_predict_print(pl_prediction *p, const char *name, const char *fmt,
                                  ...) PL_MUST_USE PL_PRINTF(3, 4);
/* Appends a CSV field: in quotes if the text has a comma, a quote or a line break. */
PL_API pl_status pl_predict_field(pl_prediction *p, const char *name, const char *text) PL_MUST_USE;
/* Makes the result file an .npy array of this type; pl_predict_write must then write all of its
 * bytes. */
PL_API pl_status pl_predict_npy(pl_prediction *p, const char *name, pl_type type) PL_MUST_USE;
/* Makes the result file a safetensors file of n (at most 4) named tensors; pl_predict_write then
 * takes their bytes, one tensor after the other. The widest type comes first. */
PL_API pl_status pl_predict_tensors(pl_prediction *p, const char *name, int n,
                                    const char *const *tensor, const pl_type *type) PL_MUST_USE;
/* Sets a sentence about the results for the user, e.g. how many texts were cut. A later call
 * replaces it. */
PL_API void pl_predict_note(pl_prediction *p, const char *fmt, ...) PL_PRINTF(2, 3);
/* Writes the path of the file `name` in the folder --out, for files that run writes by other means
 * (pl_png_save, pl_png_save_rows); makes the folders. */
PL_API pl_status pl_predict_path(pl_prediction *p, const char *name, char *path,
                                 size_t cap) PL_MUST_USE;

/* Pictures at --input: one file, or all below a folder, sorted by path. */
PL_API pl_status pl_predict_pictures(pl_prediction *p, int64_t *n) PL_MUST_USE;
/* Path of picture i below --input (of one file: its name), and its size in pixels; width and height
 * may be NULL, else the file's header is read. */
PL_API pl_status pl_predict_picture(pl_prediction *p, int64_t i, const char **name, int *width,
                                    int *height) PL_MUST_USE;
/* Writes the path of the result of picture i, as pl_predict_path does: the picture's path with
 * `ending` (".png") in place of its own. If two pictures would have the same result path (x.gif
 * beside x.jpg), `ending` follows the whole path: x.gif.png, x.jpg.png. */
PL_API pl_status pl_predict_result(pl_prediction *p, int64_t i, const char *ending, char *path,
                                   size_t cap) PL_MUST_USE;
/* Reads pictures [first, first + n) into rows [0, n) of the main program's inputs that
 * pl_image_feed.images names, as evaluations read them. ok[k]: whether picture first + k could be
 * read; with data.on_bad=fail an unreadable picture fails the call; otherwise it is counted. */
PL_API pl_status pl_predict_read(pl_prediction *p, int64_t first, int n, bool *ok) PL_MUST_USE;

/* Reads picture i in any size, 3 bytes per pixel: scaled, and cropped in the centre where w x h has
 * another aspect ratio. Fails as pl_predict_read with data.on_bad=fail; else sets *ok to false and
 * counts the picture. */
PL_API pl_status pl_predict_pixels(pl_prediction *p, int64_t i, int w, int h, uint8_t *rgb,
                                   bool *ok) PL_MUST_USE;

/* Reads the picture in folder `dir` that has the path of picture i below --input, with any ending;
 * for one file: of the same name. Scaled as by pl_predict_pixels. PL_ERR_DATA: there is none, or it
 * cannot be read. */
PL_API pl_status pl_predict_beside(pl_prediction *p, const char *dir, int64_t i, int w, int h,
                                   uint8_t *rgb) PL_MUST_USE;

/* Texts: --prompt, or the lines of the text file --input, encoded by pl_image_feed.encode or, where
 * that is NULL, looked up in data.prompts and data.embeddings; or the embeddings at --input, a row
 * of an .npy array or of the array pl_image_feed.text of a safetensors or HDF5 file. *row: type of
 * a row of the text input. */
PL_API pl_status pl_predict_texts(pl_prediction *p, const pl_type *row, int64_t *n) PL_MUST_USE;
/* Writes text i as a row; *text gets its words, NULL for an embedding; text may be NULL. */
PL_API pl_status pl_predict_text(pl_prediction *p, int64_t i, void *row,
                                 const char **text) PL_MUST_USE;

/* The lines of the text file at --input: their number, and line i without its end. Empty lines
 * count, too. */
PL_API pl_status pl_predict_lines(pl_prediction *p, int64_t *n) PL_MUST_USE;
PL_API const char *pl_predict_line(pl_prediction *p, int64_t i);

/* The .npy array at --input: its type, and rows of it (slices of the first dimension). */
PL_API pl_status pl_predict_array(pl_prediction *p, pl_type *type) PL_MUST_USE;
PL_API pl_status pl_predict_array_rows(pl_prediction *p, int64_t first, int64_t n,
                                       void *to) PL_MUST_USE;
/* Opens samples as training reads them: an .npy array, or the array `field` of a safetensors or
 * HDF5 file; each row has the type *row (f16 and bf16 are widened to f32). Sets *rows to a number
 * for pl_predict_row, and *n to the number of samples. At most 8 arrays. */
PL_API pl_status pl_predict_rows(pl_prediction *p, const char *path, const char *field,
                                 const pl_type *row, int *rows, int64_t *n) PL_MUST_USE;
PL_API pl_status pl_predict_row(pl_prediction *p, int rows, int64_t i, void *to) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
