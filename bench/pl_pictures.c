/* pl_pictures.c - pictures for the experiments on real data: crops, small copies, scores, sheets.
 *
 *   pl_pictures crops SIDE EACH ROWS OUT DIR   EACH random crops of SIDE x SIDE of every picture in
 *                                              DIR, which is first reduced to ROWS rows
 *   pl_pictures reduce K OUT DIR               every picture with sides K times smaller (Lanczos)
 *   pl_pictures enlarge K OUT DIR              every picture with sides K times larger (bicubic)
 *   pl_pictures psnr DIR TRUTH                 mean PSNR in dB of the pictures of equal names
 *   pl_pictures sheet FILE ZOOM MOST DIR...    a picture in a row, a folder in a column; at most
 *                                              MOST rows, evenly spread
 *
 * Results are PNGs with the names of their pictures. Crops depend on the name and its number only.
 */
#include "data/image/degrade.h"
#include "lib/picture.h"

#include <math.h>

static pl_status save(const char *dir, const char *name, int number, const picture *p)
{
    char path[4096], tail[32] = "";
    const char *dot = strrchr(name, '.');
    if (number >= 0) snprintf(tail, sizeof tail, "-%03d", number);
    snprintf(path, sizeof path, "%s/%.*s%s.png", dir, (int)(dot ? dot - name : 0), name, tail);
    return pl_png_save(path, p->w, p->h, 3, p->rgb);
}

static void cut(const picture *from, int x, int y, picture *to)
{
    size_t row = (size_t)to->w * 3;
    for (int r = 0; r < to->h; r++)
        memcpy(to->rgb + (size_t)r * row,
               from->rgb + ((size_t)(y + r) * (size_t)from->w + (size_t)x) * 3, row);
}

/* ---- crops ------------------------------------------------------------------------------ */
static pl_status crop_one(const char *out, const char *name, const picture *p, int side, int each)
{
    if (p->w < side || p->h < side)
        return pl_fail(PL_ERR_DATA, "%s: %d x %d pixels are too few for crops of %d", name, p->w,
                       p->h, side);
    picture part;
    uint64_t state = 5381;
    for (const char *c = name; *c; c++) state = state * 33 + (uint8_t)*c;
    pl_status rc = picture_new(side, side, &part);
    for (int i = 0; i < each && rc == PL_OK; i++) {
        int x = (int)(picture_random(&state) * (p->w - side + 1));
        int y = (int)(picture_random(&state) * (p->h - side + 1));
        cut(p, x, y, &part);
        rc = save(out, name, i, &part);
    }
    picture_free(&part);
    return rc;
}

static pl_status crops(char **arg)
{
    int side = atoi(arg[0]), each = atoi(arg[1]), rows = atoi(arg[2]);
    if (side < 1 || each < 1 || rows < side)
        return pl_fail(PL_ERR_ARG, "crops of %d pixels, %d each, of pictures of %d rows?", side,
                       each, rows);
    listing l;
    pl_status rc = listing_read(arg[4], &l);
    for (int i = 0; i < l.n && rc == PL_OK; i++) {
        picture p, small = {0};
        rc = listing_picture(arg[4], &l, i, rows, &p);
        if (rc == PL_OK) rc = picture_resize(&p, (int)((int64_t)p.w * rows / p.h), rows, &small);
        if (rc == PL_OK) rc = crop_one(arg[3], l.name[i], &small, side, each);
        picture_free(&small);
        picture_free(&p);
    }
    listing_free(&l);
    return rc;
}

/* ---- other sizes ------------------------------------------------------------------------ */
static pl_status enlarged(const picture *p, int k, picture *out)
{
    size_t from = (size_t)p->w * (size_t)p->h * 3, to = from * (size_t)k * (size_t)k;
    float *a = malloc(from * sizeof *a), *b = malloc(to * sizeof *b);
    float *strip = malloc(from * (size_t)k * sizeof *strip);
    pl_status rc = a && b && strip ? picture_new(p->w * k, p->h * k, out) : PL_ERR_MEMORY;
    if (rc == PL_OK) {
        for (size_t i = 0; i < from; i++) a[i] = (float)p->rgb[i] / 255;
        pl_scale_picture(a, p->w, p->h, b, out->w, out->h, 0, PL_SCALE_BICUBIC, strip);
        for (size_t i = 0; i < to; i++)
            out->rgb[i] = (uint8_t)(b[i] <= 0 ? 0 : b[i] >= 1 ? 255 : b[i] * 255 + 0.5f);
    }
    free(a), free(b), free(strip);
    return rc;
}

static pl_status resize_all(char **arg, bool larger)
{
    int k = atoi(arg[0]);
    if (k < 1 || k > 64) return pl_fail(PL_ERR_ARG, "a factor of 1 to 64, not %s", arg[0]);
    listing l;
    pl_status rc = listing_read(arg[2], &l);
    for (int i = 0; i < l.n && rc == PL_OK; i++) {
        picture p, q = {0};
        rc = listing_picture(arg[2], &l, i, 0, &p);
        if (rc == PL_OK && !larger && (p.w < k || p.h < k))
            rc = pl_fail(PL_ERR_DATA, "%s is smaller than %d pixels", l.name[i], k);
        if (rc == PL_OK)
            rc = larger ? enlarged(&p, k, &q) : picture_resize(&p, p.w / k, p.h / k, &q);
        if (rc == PL_OK) rc = save(arg[1], l.name[i], -1, &q);
        picture_free(&q);
        picture_free(&p);
    }
    listing_free(&l);
    return rc;
}

/* ---- scores ----------------------------------------------------------------------------- */
static double psnr_of(const picture *a, const picture *b)
{
    double sum = 0;
    size_t n = (size_t)a->w * (size_t)a->h * 3;
    for (size_t i = 0; i < n; i++) {
        double d = ((double)a->rgb[i] - (double)b->rgb[i]) / 255;
        sum += d * d;
    }
    return -10 * log10(sum / (double)n + 1e-12);
}

static pl_status psnr(char **arg)
{
    listing l;
    double sum = 0;
    pl_status rc = listing_read(arg[1], &l);
    for (int i = 0; i < l.n && rc == PL_OK; i++) {
        picture p, q = {0};
        rc = listing_picture(arg[1], &l, i, 0, &p);
        if (rc == PL_OK) rc = listing_picture(arg[0], &l, i, 0, &q);
        if (rc == PL_OK && (p.w != q.w || p.h != q.h))
            rc = pl_fail(PL_ERR_DATA, "%s: %d x %d pixels in %s, %d x %d in %s", l.name[i], q.w,
                         q.h, arg[0], p.w, p.h, arg[1]);
        if (rc == PL_OK) sum += psnr_of(&p, &q);
        picture_free(&q);
        picture_free(&p);
    }
    if (rc == PL_OK) printf("%.2f dB, mean of %d pictures\n", sum / l.n, l.n);
    listing_free(&l);
    return rc;
}

/* ---- sheets ----------------------------------------------------------------------------- */
enum { GAP = 4 };

/* Copies p into the sheet at column and row of cells, each pixel zoom x zoom times. */
static void put(picture *sheet, const picture *p, int column, int row, int cell, int zoom)
{
    int x0 = GAP + column * (cell + GAP), y0 = GAP + row * (cell + GAP);
    for (int y = 0; y < p->h * zoom && y < cell; y++)
        for (int x = 0; x < p->w * zoom && x < cell; x++)
            memcpy(sheet->rgb + ((size_t)(y0 + y) * (size_t)sheet->w + (size_t)(x0 + x)) * 3,
                   p->rgb + ((size_t)(y / zoom) * (size_t)p->w + (size_t)(x / zoom)) * 3, 3);
}

static pl_status fill_sheet(picture *sheet, const listing *l, int rows, char **dir, int columns,
                            int cell)
{
    pl_status rc = PL_OK;
    for (int r = 0; r < rows && rc == PL_OK; r++)
        for (int c = 0; c < columns && rc == PL_OK; c++) {
            picture p;
            rc = listing_picture(dir[c], l, (2 * r + 1) * l->n / (2 * rows), 0, &p);
            if (rc != PL_OK) break;
            put(sheet, &p, c, r, cell, cell / (p.h > p.w ? p.h : p.w));
            picture_free(&p);
        }
    return rc;
}

static pl_status sheet(char **arg, int columns)
{
    int zoom = atoi(arg[1]), rows = atoi(arg[2]);
    if (zoom < 1 || rows < 1) return pl_fail(PL_ERR_ARG, "zoom %s, %s rows?", arg[1], arg[2]);
    listing l;
    picture first = {0}, all = {0};
    int last = columns - 1, cell = 0;
    pl_status rc = listing_read(arg[3 + last], &l);
    if (rc == PL_OK) rc = listing_picture(arg[3 + last], &l, 0, 0, &first);
    if (rc == PL_OK) {
        if (rows > l.n) rows = l.n;
        cell = (first.w > first.h ? first.w : first.h) * zoom;
        rc = picture_new(GAP + columns * (cell + GAP), GAP + rows * (cell + GAP), &all);
    }
    if (rc == PL_OK) {
        memset(all.rgb, 255, (size_t)all.w * (size_t)all.h * 3);
        rc = fill_sheet(&all, &l, rows, arg + 3, columns, cell);
    }
    if (rc == PL_OK) rc = pl_png_save(arg[0], all.w, all.h, 3, all.rgb);
    picture_free(&first);
    picture_free(&all);
    listing_free(&l);
    return rc;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    pl_status rc = PL_ERR_ARG;
    if (!strcmp(what, "crops") && argc == 7)
        rc = crops(argv + 2);
    else if ((!strcmp(what, "reduce") || !strcmp(what, "enlarge")) && argc == 5)
        rc = resize_all(argv + 2, what[0] == 'e');
    else if (!strcmp(what, "psnr") && argc == 4)
        rc = psnr(argv + 2);
    else if (!strcmp(what, "sheet") && argc >= 6)
        rc = sheet(argv + 2, argc - 5);
    else {
        fprintf(stderr, "usage: pl_pictures crops SIDE EACH ROWS OUT DIR | reduce K OUT DIR | "
                        "enlarge K OUT DIR | psnr DIR TRUTH | sheet FILE ZOOM MOST DIR...\n");
        return 2;
    }
    if (rc != PL_OK) fprintf(stderr, "pl_pictures: %s\n", pl_error_text());
    return rc == PL_OK ? 0 : 1;
}
