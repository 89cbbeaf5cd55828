/* table_columns.h - columns of a CSV table (plimsoll_table.h) as rows of numbers. */
#ifndef PL_DATA_TABLE_COLUMNS_H
#define PL_DATA_TABLE_COLUMNS_H

#include "base/err.h"

typedef struct pl_table_part pl_table_part;

/* Chooses the columns of a field as array.h says. sample: type of a row, for their number. */
pl_status pl_table_part_open(const char *path, const char *field, const char *const *others,
                             const pl_type *sample, pl_table_part **out) PL_MUST_USE;
void pl_table_part_close(pl_table_part *c);
/* f64, the number of rows and then the sample's shape. */
pl_type pl_table_part_type(const pl_table_part *c);
/* Writes one row. PL_ERR_DATA, with the line: a field is not a number, or not a whole number for an
 * integer dtype. */
pl_status pl_table_part_read(const pl_table_part *c, int64_t row, pl_dtype dtype,
                             void *to) PL_MUST_USE;

#endif
