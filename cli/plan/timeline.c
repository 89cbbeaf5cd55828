/* timeline.c - `plan --timeline FILE.svg`: bytes alive at each position of a program.
 *
 * The picture stacks one area per component. State is at the bottom because it is constant. A
 * column of pixels stands for several positions and shows the fullest of them, so the peak is never
 * averaged away. Text and lines use the reader's colours (light or dark).
 */
#include "plan_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 960, HEIGHT = 420, LEFT = 84, RIGHT = 20, TOP = 64, BOTTOM = 74 };

/* From the bottom of the stack to the top. */
static const struct layer {
    enum pl_component component;
    const char *name, *colour;
} layers[PL_N_COMPONENTS] = {
    {PL_COMP_WEIGHTS, "weights", "#4477aa"},     {PL_COMP_OPTIMIZER, "optimizer", "#228833"},
    {PL_COMP_INPUTS, "inputs", "#aa3377"},       {PL_COMP_ACTIVATIONS, "activations", "#66aadd"},
    {PL_COMP_GRADIENTS, "gradients", "#ee7744"}, {PL_COMP_WORKSPACE, "workspace", "#ccaa33"},
};

typedef struct timeline {
    FILE *f;
    int positions, columns;
    uint64_t (*alive)[PL_N_COMPONENTS]; /* at each position */
    int *fullest;                       /* for each column: a position */
    double top;                         /* bytes at the top of the scale */
} timeline;

static uint64_t total(const uint64_t *c)
{
    uint64_t sum = 0;
    for (int i = 0; i < PL_N_COMPONENTS; i++) sum += c[i];
    return sum;
}

/* Adds up the bytes of the state, by component. */
static void state_bytes(const pl_run *run, uint64_t *c)
{
    pl_store *s = pl_run_store(run);
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        bool weights = slot->kind == PL_SLOT_PARAM || slot->kind == PL_SLOT_BUFFER;
        c[weights ? PL_COMP_WEIGHTS : PL_COMP_OPTIMIZER] += pl_type_bytes(&slot->type);
    }
}

static void count_alive(timeline *t, const pl_run *run, const pl_program *p)
{
    uint64_t state[PL_N_COMPONENTS] = {0};
    state_bytes(run, state);
    for (int k = 0; k < t->positions; k++) memcpy(t->alive[k], state, sizeof state);
    for (int i = 0; i < pl_program_plan(p)->buffers; i++) {
        pl_plan_buffer b = pl_program_buffer(p, i);
        for (int k = b.first; k < b.last && k < t->positions; k++)
            t->alive[k][b.component] += b.bytes;
    }
    for (int x = 0; x < t->columns; x++) {
        int lo = (int)((int64_t)x * t->positions / t->columns);
        int hi = (int)((int64_t)(x + 1) * t->positions / t->columns);
        t->fullest[x] = lo;
        for (int k = lo + 1; k < hi; k++)
            if (total(t->alive[k]) > total(t->alive[t->fullest[x]])) t->fullest[x] = k;
    }
}

/* ---- drawing ---------------------------------------------------------------------------- */
/* Writes a text with XML escapes. */
static void put_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
            fprintf(f, "&#%d;", *s);
        else if ((unsigned char)*s >= 0x20)
            fputc(*s, f);
    }
}

static double x_of(const timeline *t, double column)
{
    return LEFT + column * (WIDTH - LEFT - RIGHT) / (double)t->columns;
}

static double y_of(const timeline *t, double bytes)
{
    return HEIGHT - BOTTOM - bytes / t->top * (HEIGHT - TOP - BOTTOM);
}

static void draw_head(const timeline *t, const pl_run *run, const char *name)
{
    char note[96];
    fprintf(t->f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\" aria-label=\"memory of one training step\">\n"
            "<style>\n"
            "text{font:13px system-ui,sans-serif;fill:#333}.title{font-size:16px;font-weight:600}\n"
            ".grid{stroke:#888;stroke-opacity:.3}.axis{stroke:#555}.mark{stroke:#333;fill:none}\n"
            ".budget{stroke:#cc3311;stroke-width:1.5;stroke-dasharray:6 4}.over{fill:#cc3311}\n"
            "@media (prefers-color-scheme:dark){text{fill:#ddd}.axis,.mark{stroke:#ccc}\n"
            ".budget{stroke:#ff7755}.over{fill:#ff7755}}\n"
            "</style>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    fprintf(t->f, "<text class=\"title\" x=\"%d\" y=\"26\">Memory of one training step: ", LEFT);
    put_text(t->f, name);
    put_text(t->f, plan_program_note(run, note, sizeof note));
    fprintf(t->f, "</text>\n");
}

/* Horizontal lines at a round number of bytes. */
static void draw_grid(const timeline *t)
{
    double step = 1024;
    while (t->top / step > 6) step *= 2;
    for (double v = 0; v <= t->top; v += step)
        fprintf(t->f,
                "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                v > 0 ? "grid" : "axis", LEFT, WIDTH - RIGHT, y_of(t, v), y_of(t, v), LEFT - 8,
                y_of(t, v) + 4, cli_bytes((uint64_t)v));
    int y = HEIGHT - BOTTOM + 18;
    fprintf(t->f,
            "<text x=\"%d\" y=\"%d\">position 1</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">"
            "position %d</text>\n",
            LEFT, y, WIDTH - RIGHT, y, t->positions);
}

/* Bytes of the lowest n layers in a column. */
static double height(const timeline *t, int column, int n)
{
    uint64_t sum = 0;
    for (int k = 0; k < n; k++) sum += t->alive[t->fullest[column]][layers[k].component];
    return (double)sum;
}

/* Draws an edge of a layer as horizontal and vertical strokes, only where the height changes. */
static void draw_edge(const timeline *t, int n, bool forth)
{
    double at = -1;
    for (int i = 0; i < t->columns; i++) {
        int x = forth ? i : t->columns - 1 - i;
        double y = y_of(t, height(t, x, n));
        if (at < 0)
            fprintf(t->f, "%c%.1f %.1f", forth ? 'M' : 'L', x_of(t, forth ? x : x + 1), y);
        else if (y - at > 0.05 || at - y > 0.05)
            fprintf(t->f, "H%.1fV%.1f", x_of(t, forth ? x : x + 1), y);
        else
            continue;
        at = y;
    }
    fprintf(t->f, "H%.1f", x_of(t, forth ? t->columns : 0));
}

static void draw_layer(const timeline *t, int which)
{
    fprintf(t->f, "<path fill=\"%s\" d=\"", layers[which].colour);
    draw_edge(t, which + 1, true);
    draw_edge(t, which, false);
    fprintf(t->f, "z\"/>\n");
}

/* Names of the components, with their bytes at the peak, in a row below the axis. */
static void draw_legend(const timeline *t, const uint64_t *peak)
{
    int x = LEFT, y = HEIGHT - BOTTOM + 42, shown = 0;
    for (int i = 0; i < PL_N_COMPONENTS; i++) {
        fprintf(t->f,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                "<text x=\"%d\" y=\"%d\">%s %s</text>\n",
                x, y - 11, layers[i].colour, x + 18, y, layers[i].name,
                cli_bytes(peak[layers[i].component]));
        x += 280;
        if (++shown % 3 == 0) x = LEFT, y += 20;
    }
}

static void draw_peak(const timeline *t, const pl_plan_info *p, int peak)
{
    double x = x_of(t, (peak + 0.5) * t->columns / (double)t->positions);
    double y = y_of(t, (double)total(t->alive[peak]));
    bool right = x > WIDTH * 0.55;
    fprintf(
        t->f,
        "<path class=\"mark\" d=\"M%.1f %.1fV%d\"/><circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" "
        "r=\"4\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">peak %s at position %d: ",
        x, y, TOP - 14, x, y, right ? x - 6 : x + 6, TOP - 8, right ? "end" : "start",
        cli_bytes(total(t->alive[peak])), peak + 1);
    put_text(t->f, p->peak_node);
    fprintf(t->f, "</text>\n");
}

/* Draws the budget without the overhead, because the picture shows arena and state only. */
static void draw_budget(const timeline *t, const pl_run_memory *m)
{
    if (!m->budget) return;
    double y = y_of(t, m->budget > m->overhead ? (double)(m->budget - m->overhead) : 0);
    fprintf(t->f,
            "<line class=\"budget\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
            "<text class=\"over\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">budget %s minus %s "
            "overhead</text>\n",
            LEFT, WIDTH - RIGHT, y, y, WIDTH - RIGHT - 4, y - 5, cli_bytes(m->budget),
            cli_bytes(m->overhead));
}

static void draw(timeline *t, const pl_run *run, const pl_program *p, const char *name)
{
    const pl_plan_info *info = pl_program_plan(p);
    pl_run_memory m = pl_run_memory_get(run);
    int peak = 0;
    for (int k = 1; k < t->positions; k++)
        if (total(t->alive[k]) > total(t->alive[peak])) peak = k;
    t->top = (double)total(t->alive[peak]);
    if ((double)m.budget > t->top && (double)m.budget < 3 * t->top) t->top = (double)m.budget;
    t->top *= 1.04;
    draw_head(t, run, name);
    for (int i = 0; i < PL_N_COMPONENTS; i++) draw_layer(t, i);
    draw_grid(t);
    if ((double)m.budget <= t->top) draw_budget(t, &m);
    draw_peak(t, info, peak);
    draw_legend(t, t->alive[peak]);
    fprintf(t->f, "</svg>\n");
}

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

int timeline_write(const pl_run *run, const char *name, const char *path)
{
    if (ends_with(path, ".html") || ends_with(path, ".htm")) return page_write(run, name, path);
    const pl_program *p = plan_largest_program(run, false).program;
    timeline t = {.positions = pl_program_plan(p)->positions};
    t.columns = t.positions < 400 ? t.positions : 400;
    t.alive = calloc((size_t)t.positions + 1, sizeof *t.alive);
    t.fullest = calloc((size_t)t.columns + 1, sizeof *t.fullest);
    t.f = fopen(path, "we");
    bool ok = t.f && t.alive && t.fullest && t.positions > 0;
    if (ok) {
        count_alive(&t, run, p);
        draw(&t, run, p, name);
        ok = !ferror(t.f);
    }
    if (t.f && fclose(t.f) != 0) ok = false;
    free(t.alive);
    free(t.fullest);
    if (ok) return 0;
    cli_error("cannot write %s: %s", path, strerror(errno));
    return 1;
}
