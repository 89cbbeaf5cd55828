/* table.c - a CSV table as inputs and targets: which columns are numbers, which are categories, and
 * how numbers are scaled.
 *
 * A description has a list of columns. An input column of numbers is one number, scaled to mean 0
 * and standard deviation 1 over the training rows; a column of texts is one number per category: 1
 * for the category of the row, 0 for the others. Targets are numbers, scaled too. The description
 * is a text that the model file keeps (pl_builder_fact), so that predictions need no training data:
 *
 *     number MEAN STD NAME        an input of numbers
 *     category COUNT NAME         an input of texts, and below it COUNT lines: the categories
 *     target MEAN STD NAME
 */
#include "regress.h"

#include <plimsoll_train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void regress_table_free(regress_table *t)
{
    for (int i = 0; t && i < t->n; i++) {
        for (int k = 0; k < t->column[i].categories; k++) free(t->column[i].category[k]);
        free(t->column[i].category);
        free(t->column[i].name);
    }
    if (t) free(t->column);
    free(t);
}

int64_t regress_table_width(const regress_table *t, bool target)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->column[i].target == target)
            n += t->column[i].categories ? t->column[i].categories : 1;
    return n;
}

bool regress_in_eval(const pl_config *c, int64_t row)
{
    uint64_t seed = pl_sample_seed(0x7AB1E, PL_SUBSET_TRAIN, row);
    return pl_sample_uniform(seed, 0) < pl_config_float(c, "data.eval_share");
}

static char *copy(const char *text)
{
    size_t n = strlen(text) + 1;
    char *to = malloc(n);
    if (to) memcpy(to, text, n);
    return to;
}

static regress_column *add_column(regress_table *t, const char *name, bool target)
{
    regress_column *more = realloc(t->column, (size_t)(t->n + 1) * sizeof *more);
    if (!more) return NULL;
    t->column = more;
    t->column[t->n] = (regress_column){.name = copy(name), .target = target, .std = 1};
    return t->column[t->n].name ? &t->column[t->n++] : NULL;
}

static bool add_category(regress_column *k, const char *text)
{
    char **more = realloc(k->category, (size_t)(k->categories + 1) * sizeof *more);
    if (!more) return false;
    k->category = more;
    k->category[k->categories] = copy(text);
    return k->category[k->categories] && ++k->categories;
}

static int find_category(const regress_column *k, const char *text)
{
    for (int i = 0; i < k->categories; i++)
        if (strcmp(k->category[i], text) == 0) return i;
    return -1;
}

/* ---- from a table -------------------------------------------------------------------------- */
static bool listed(const pl_config *c, const char *key, const char *name)
{
    int n;
    const char *const *list = pl_config_texts(c, key, &n);
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

static int nearest_column(const pl_table *t, const char *name)
{
    enum { MOST = 256 };
    const char *names[MOST];
    int n = pl_table_columns(t) < MOST ? pl_table_columns(t) : MOST;
    for (int i = 0; i < n; i++) names[i] = pl_table_name(t, i);
    return pl_text_nearest(name, names, n);
}

static pl_status check_names(const pl_config *c, const pl_table *t, const char *key)
{
    int n;
    const char *const *list = pl_config_texts(c, key, &n);
    for (int i = 0; i < n; i++) {
        if (pl_table_find(t, list[i]) >= 0) continue;
        int best = nearest_column(t, list[i]);
        return pl_fail(PL_ERR_CONFIG, "%s: the table has no column \"%s\"; %s \"%s\"%s", key,
                       list[i], best >= 0 ? "did you mean" : "its first is",
                       pl_table_name(t, best >= 0 ? best : 0), best >= 0 ? "?" : "");
    }
    return PL_OK;
}

/* Counts the fields of a column that are numbers; *row: the first row without one. */
static int64_t count_numbers(const pl_table *t, int column, int64_t *row)
{
    int64_t numbers = 0, rows = pl_table_rows(t);
    double x;
    *row = rows;
    for (int64_t i = 0; i < rows; i++)
        if (pl_table_number(t, i, column, &x))
            numbers++;
        else if (*row == rows)
            *row = i;
    return numbers;
}

/* Mean and standard deviation over the training rows. */
static void measure(const pl_config *c, const pl_table *t, int column, regress_column *k)
{
    double sum = 0, square = 0, x = 0;
    int64_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (int64_t i = 0; i < pl_table_rows(t); i++) {
            if (regress_in_eval(c, i) || !pl_table_number(t, i, column, &x)) continue;
            n++;
            if (pass)
                square += (x - k->mean) * (x - k->mean);
            else
                sum += x;
        }
        if (!pass) k->mean = n ? sum / (double)n : 0;
    }
    k->std = n && square > 0 ? sqrt(square / (double)n) : 1;
}

static pl_status collect_categories(const pl_table *t, int column, regress_column *k)
{
    for (int64_t i = 0; i < pl_table_rows(t); i++) {
        const char *text = pl_table_text(t, i, column);
        if (find_category(k, text) >= 0) continue;
        if (strchr(text, '\n'))
            return pl_fail(PL_ERR_DATA, "line %lld: a category of \"%s\" has a line break",
                           (long long)pl_table_line(t, i), k->name);
        if (k->categories == REGRESS_CATEGORIES)
            return pl_fail(PL_ERR_DATA,
                           "column \"%s\" has more than %d different texts (line %lld: \"%.40s\"): "
                           "list it in data.ignore, or make it numbers",
                           k->name, REGRESS_CATEGORIES, (long long)pl_table_line(t, i), text);
        if (!add_category(k, text)) return PL_ERR_MEMORY;
    }
    return PL_OK;
}

static pl_status describe_column(const pl_config *c, const pl_table *t, int column,
                                 regress_table *out)
{
    const char *name = pl_table_name(t, column);
    bool target = listed(c, "data.targets", name);
    int64_t row;
    if (listed(c, "data.ignore", name)) return PL_OK;
    regress_column *k = add_column(out, name, target);
    if (!k) return PL_ERR_MEMORY;
    int64_t numbers = count_numbers(t, column, &row), rows = pl_table_rows(t);
    if (numbers == rows) {
        measure(c, t, column, k);
        return PL_OK;
    }
    const char *text = pl_table_text(t, row, column);
    if (target || !*text)
        return pl_fail(PL_ERR_DATA,
                       "line %lld: column \"%s\" is \"%.40s\", which is not a number%s",
                       (long long)pl_table_line(t, row), name, text,
                       target ? "" : ": fill the gap or list the column in data.ignore");
    /* As categories, numbers would lose their order and size without a word. */
    if (2 * numbers > rows)
        return pl_fail(PL_ERR_DATA,
                       "line %lld: column \"%s\" is \"%.40s\", and %lld of its %lld fields are "
                       "numbers: correct the others, list the column in data.ignore, or make "
                       "every field a text (c1, c2) if they are categories",
                       (long long)pl_table_line(t, row), name, text, (long long)numbers,
                       (long long)rows);
    return collect_categories(t, column, k);
}

static pl_status describe(const pl_config *c, const pl_table *t, regress_table *out)
{
    int targets;
    pl_config_texts(c, "data.targets", &targets);
    if (!targets)
        return pl_fail(PL_ERR_CONFIG,
                       "data.table needs data.targets: the columns to predict, e.g. "
                       "data.targets=[%s]",
                       pl_table_name(t, pl_table_columns(t) - 1));
    if (pl_table_rows(t) < 2) return pl_fail(PL_ERR_DATA, "the table has fewer than two rows");
    pl_status rc = check_names(c, t, "data.targets");
    if (rc == PL_OK) rc = check_names(c, t, "data.ignore");
    for (int i = 0; i < pl_table_columns(t) && rc == PL_OK; i++) rc = describe_column(c, t, i, out);
    if (rc == PL_OK && regress_table_width(out, false) == 0)
        rc = pl_fail(PL_ERR_CONFIG, "no column of the table is an input");
    return rc;
}

/* ---- as a text ----------------------------------------------------------------------------- */
char *regress_table_text(const regress_table *t)
{
    size_t n = 1, at = 0;
    for (int i = 0; i < t->n; i++) {
        n += strlen(t->column[i].name) + 80;
        for (int k = 0; k < t->column[i].categories; k++) n += strlen(t->column[i].category[k]) + 1;
    }
    char *text = malloc(n);
    for (int i = 0; text && i < t->n; i++) {
        const regress_column *k = &t->column[i];
        if (k->categories)
            at += (size_t)snprintf(text + at, n - at, "category %d %s\n", k->categories, k->name);
        else
            at += (size_t)snprintf(text + at, n - at, "%s %.17g %.17g %s\n",
                                   k->target ? "target" : "number", k->mean, k->std, k->name);
        for (int c = 0; c < k->categories; c++)
            at += (size_t)snprintf(text + at, n - at, "%s\n", k->category[c]);
    }
    if (text) text[at] = 0;
    return text;
}

/* Cuts the next line off the text. */
static char *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (!*line) return NULL;
    *at = end ? end + 1 : line + strlen(line);
    if (end) *end = 0;
    return line;
}

static bool parse(char *text, regress_table *out)
{
    for (char *at = text, *line; (line = next_line(&at));) {
        int count = 0, used = 0;
        double mean, std;
        bool target = strncmp(line, "target ", 7) == 0;
        if (sscanf(line, "category %d %n", &count, &used) == 1 && used && count > 0 &&
            count <= REGRESS_CATEGORIES) {
            regress_column *k = add_column(out, line + used, false);
            for (int i = 0; k && i < count; i++) {
                char *name = next_line(&at);
                if (!name || !add_category(k, name)) return false;
            }
            if (!k) return false;
        } else if (sscanf(line + (target                        ? 7
                                  : strncmp(line, "number ", 7) ? 0
                                                                : 7),
                          "%lf %lf %n", &mean, &std, &used) == 2 &&
                   used && std > 0) {
            regress_column *k = add_column(out, line + 7 + used, target);
            if (!k) return false;
            k->mean = mean;
            k->std = std;
        } else {
            return false;
        }
    }
    return out->n > 0;
}

/* Finds the description in the metadata of a model file. */
static void take_meta(void *ctx, const char *key, const char *value)
{
    char **text = ctx;
    if (strcmp(key, "plimsoll.table") == 0 && !*text) *text = copy(value);
}

static void take_tensor(void *ctx, const pl_tensor_info *t)
{
    (void)ctx, (void)t;
}

pl_status regress_table_find(const pl_config *c, regress_table **out)
{
    char *text = NULL, why[512];
    pl_table *file = NULL;
    bool has_table = !pl_config_is_null(c, "data.table");
    pl_status rc = PL_OK;
    *out = NULL;
    if (!pl_config_is_null(c, "init_from"))
        rc = pl_model_file_list(pl_config_text(c, "init_from"), take_tensor, take_meta, &text);
    if (rc == PL_ERR_IO) {
        snprintf(why, sizeof why, "%s", pl_error_text());
        rc = pl_fail(PL_ERR_FILE, "init_from: %s", why);
    }
    if (rc != PL_OK || (!text && !has_table)) return rc;
    regress_table *t = calloc(1, sizeof *t);
    if (!t) rc = PL_ERR_MEMORY;
    if (rc == PL_OK && text) {
        if (!parse(text, t))
            rc = pl_fail(PL_ERR_FILE, "%s: its description of a table is damaged",
                         pl_config_text(c, "init_from"));
    } else if (rc == PL_OK) {
        rc = pl_table_open(pl_config_text(c, "data.table"), &file);
        if (rc == PL_OK) rc = describe(c, file, t);
        if (rc != PL_OK) {
            snprintf(why, sizeof why, "%s", pl_error_text());
            rc = pl_fail(rc, "data.table %s: %s", pl_config_text(c, "data.table"), why);
        }
    }
    pl_table_close(file);
    free(text);
    if (rc == PL_OK)
        *out = t;
    else
        regress_table_free(t);
    return rc;
}

/* ---- rows ---------------------------------------------------------------------------------- */
/* Writes one column of a row and returns how many numbers that are; 0: the field does not fit. */
static int64_t write_field(const regress_column *k, const pl_table *file, int64_t row, int column,
                           float *to)
{
    double x;
    if (!k->categories) {
        if (!pl_table_number(file, row, column, &x)) return 0;
        *to = (float)((x - k->mean) / k->std);
        return 1;
    }
    int hit = find_category(k, pl_table_text(file, row, column));
    for (int i = 0; i < k->categories; i++) to[i] = i == hit ? 1 : 0;
    return hit < 0 ? 0 : k->categories;
}

pl_status regress_table_row(const regress_table *t, const pl_table *file, int64_t row, bool target,
                            float *to)
{
    for (int i = 0; i < t->n; i++) {
        const regress_column *k = &t->column[i];
        if (k->target != target) continue;
        int column = pl_table_find(file, k->name);
        if (column < 0)
            return pl_fail(PL_ERR_DATA, "the table has no column \"%s\", which the model needs",
                           k->name);
        int64_t n = write_field(k, file, row, column, to);
        if (!n)
            return pl_fail(PL_ERR_DATA, "line %lld: column \"%s\" is \"%.40s\", which is not %s",
                           (long long)pl_table_line(file, row), k->name,
                           pl_table_text(file, row, column),
                           k->categories ? "a category of the training table" : "a number");
        to += n;
    }
    return PL_OK;
}
