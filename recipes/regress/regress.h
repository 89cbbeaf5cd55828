/* regress.h - shared by the files of the regress recipe. */
#ifndef RECIPES_REGRESS_H
#define RECIPES_REGRESS_H

#include <plimsoll_recipe.h>
#include <plimsoll_table.h>

/* One of the two arrays of a data set, `input` and `target`: one row per sample. */
typedef struct regress_array {
    const char *name;
    pl_dtype dtype; /* f32, or f64 where the file has f64; the network computes in f32 */
    int64_t width;  /* numbers per sample */
    bool flat;      /* shape [N] instead of [N, 1] */
} regress_array;

/* ---- table.c: CSV tables ---- */
enum { REGRESS_CATEGORIES = 64 }; /* most different texts of a column */
typedef struct regress_column {
    char *name;
    bool target;
    double mean, std; /* of numbers */
    char **category;  /* of texts */
    int categories;   /* 0: the column has numbers */
} regress_column;
typedef struct regress_table {
    regress_column *column;
    int n;
} regress_table;

/* The description of the table: that of the model file init_from, if it has one, else of
 * data.table. *out is NULL without a table; the caller frees it. */
pl_status regress_table_find(const pl_config *c, regress_table **out);
void regress_table_free(regress_table *t);
/* Numbers per row that the network reads, or predicts. */
int64_t regress_table_width(const regress_table *t, bool target);
/* The description as a text; the caller frees it with free. NULL: out of memory. */
char *regress_table_text(const regress_table *t);
/* Whether a row of the table is for evaluation: by a hash of its number. */
bool regress_in_eval(const pl_config *c, int64_t row);
/* Writes the inputs or the targets of a row of a table, scaled. */
pl_status regress_table_row(const regress_table *t, const pl_table *file, int64_t row, bool target,
                            float *to);

/* ---- data.c ---- */
/* Types of the two arrays: from the table, from the headers of the arrays in data.path, or from the
 * keys inputs and targets. table (may be NULL) becomes the table's description, or NULL. */
pl_status regress_arrays(const pl_config *c, regress_array *input, regress_array *target,
                         regress_table **table);
pl_status regress_open(const pl_config *c, void **data);
void regress_close(void *data);
int64_t regress_size(void *data, pl_subset subset);
pl_status regress_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch);
uint64_t regress_bytes(const pl_config *c);

/* ---- regress.c ---- */
/* The network: an input of the program to predictions [batch, targets]. */
pl_val regress_predict(pl_builder *b, pl_nn *m, const regress_array *input, int64_t targets);

extern const pl_predict regress_predict_rows;
extern const pl_preset regress_presets[];
extern const pl_source_file regress_sources[];

#endif
