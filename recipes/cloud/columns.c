/* columns.c - columns of numbers in the authors' files, and the lidar's clock. */
#include "cloud.h"
#include "plimsoll_hdf5.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns of numbers ----------------------------------------------------------------- */
pl_status cloud_column(const char *path, const char *field, double **out, int64_t *n)
{
    pl_hdf5 *h = NULL;
    pl_status rc = pl_hdf5_open(path, field, &h);
    if (rc != PL_OK) return rc;
    pl_type t = pl_hdf5_type(h);
    int64_t width = 1;
    for (int i = 1; i < t.rank; i++) width *= t.dim[i];
    *n = t.dim[0];
    double *row = calloc((size_t)(width > 0 ? width : 1), sizeof *row);
    *out = calloc((size_t)(*n > 0 ? *n : 1), sizeof **out);
    rc = row && *out && width > 0 ? PL_OK : PL_ERR_MEMORY;
    for (int64_t i = 0; rc == PL_OK && i < *n; i++) {
        rc = pl_hdf5_read(h, i, PL_F64, row);
        (*out)[i] = row[0];
    }
    free(row);
    pl_hdf5_close(h);
    return rc;
}

pl_status cloud_columns(const char *path, const char *const *fields, int k, double **out,
                        int64_t *n)
{
    for (int i = 0; i < k; i++) {
        int64_t rows;
        pl_status rc = cloud_column(path, fields[i], &out[i], &rows);
        if (rc != PL_OK) return rc;
        if (i > 0 && rows != *n)
            return pl_fail(PL_ERR_DATA, "%s: %s has %lld rows, %s has %lld", path, fields[0],
                           (long long)*n, fields[i], (long long)rows);
        *n = rows;
    }
    return PL_OK;
}

/* ---- time ------------------------------------------------------------------------------- */
/* Seconds since 1970 of the first instant of a year. */
static double year_begins(int year)
{
    int64_t before = year - 1;
    int64_t days = 365 * before + before / 4 - before / 100 + before / 400;
    return 86400.0 * (double)(days - 719162);
}

int cloud_year_of(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    size_t n = strcspn(name, ".");
    if (n < 2 || name[n - 2] < '0' || name[n - 2] > '9' || name[n - 1] < '0' || name[n - 1] > '9')
        return 0;
    return 2000 + 10 * (name[n - 2] - '0') + (name[n - 1] - '0');
}

void cloud_seconds(double *day, int64_t n, int year)
{
    double before = 0, push = 0;
    for (int64_t i = 0; i < n; i++) {
        double part = day[i] - floor(day[i]), whole = floor(day[i]);
        if (part - before < -0.2) push = 86400;
        before = part;
        day[i] = year_begins(year) + 86400 * (whole - 1) + round(86400 * part) + push;
    }
}

int64_t cloud_nearest(const double *time, int64_t n, double t)
{
    int64_t lo = 0, hi = n - 1;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (time[mid] <= t)
            lo = mid;
        else
            hi = mid;
    }
    return hi >= 0 && fabs(time[hi] - t) < fabs(time[lo] - t) ? hi : lo;
}
