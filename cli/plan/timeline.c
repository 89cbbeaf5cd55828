/* timeline.c - `plan --timeline FILE.svg`: bytes alive at each position of every program of a run.
 *
 * The programs (those of a step, evaluation, sampling) stand side by side over one scale of bytes.
 * The picture stacks one area per component. State is at the bottom because it is constant. A
 * column of pixels covers several positions and shows the fullest of them, so the peak is never
 * averaged away. Below the axis a band names forward, backward and update, and a thin band marks
 * recomputed kernels. Moves between the device and memory below it have a lane for each channel,
 * from the position at which a move begins to the one before which it has ended. Text and lines use
 * the reader's colours (light or dark).
 *
 * Labels cannot overlap: budget and peak have a separate line above the picture, and the names of
 * programs take as many lines below it as they need.
 */
#include "plan_view.h"
#include "plimsoll_levels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 960, LEFT = 84, RIGHT = 20, TOP = 76, PLOT = 300, GAP = 10, LETTER = 7 };
enum { COLUMNS = 420, MOST_PANELS = 16, RECOMPUTED = PL_N_COMPONENTS, N_LAYERS };

/* From the bottom of the stack to the top. */
static const struct layer {
    int component;
    const char *name, *colour;
} layers[N_LAYERS] = {
    {PL_COMP_WEIGHTS, "weights", "#4477aa"},     {PL_COMP_OPTIMIZER, "optimizer", "#228833"},
    {PL_COMP_INPUTS, "inputs", "#aa3377"},       {PL_COMP_ACTIVATIONS, "activations", "#66aadd"},
    {RECOMPUTED, "recomputed", "#8877cc"},       {PL_COMP_GRADIENTS, "gradients", "#ee7744"},
    {PL_COMP_WORKSPACE, "workspace", "#ccaa33"},
};

/* One program. */
typedef struct panel {
    plan_program of;
    int positions, columns, peak;
    uint64_t (*alive)[N_LAYERS]; /* at each position, by component */
    pl_plan_position *at;
    uint8_t *band; /* scratch: a stage for each position */
    int *fullest;  /* for each column: a position */
    double x, width;
} panel;

typedef struct timeline {
    FILE *f;
    panel panel[MOST_PANELS];
    int n, largest; /* largest: the panel with the highest peak */
    double top;     /* bytes at the top of the scale */
    double budget;  /* bytes of the budget that arena and state may have; -1: none */
    pl_run_memory memory;
} timeline;

static uint64_t total(const uint64_t *c)
{
    uint64_t sum = 0;
    for (int i = 0; i < N_LAYERS; i++) sum += c[i];
    return sum;
}

static uint64_t peak_bytes(const panel *p)
{
    return total(p->alive[p->peak]);
}

/* ---- the numbers ------------------------------------------------------------------------ */
/* Adds up the bytes of the state on the device, by component. */
static void state_bytes(const pl_run *run, uint64_t *c)
{
    pl_store *s = pl_run_store(run);
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        bool weights = slot->kind == PL_SLOT_PARAM || slot->kind == PL_SLOT_BUFFER;
        if (pl_run_slot_is_below(run, i)) continue;
        c[weights ? PL_COMP_WEIGHTS : PL_COMP_OPTIMIZER] += pl_slot_bytes(slot);
    }
}

static void count_alive(panel *p, const uint64_t *state)
{
    for (int k = 0; k < p->positions; k++) memcpy(p->alive[k], state, sizeof *p->alive);
    for (int i = 0; i < pl_program_plan(p->of.program)->buffers; i++) {
        pl_plan_buffer b = pl_program_buffer(p->of.program, i);
        bool again = b.component == PL_COMP_ACTIVATIONS && p->at[b.first].recomputed;
        for (int k = b.first; k < b.last && k < p->positions; k++)
            p->alive[k][again ? RECOMPUTED : (int)b.component] += b.bytes;
    }
    for (int k = 1; k < p->positions; k++)
        if (total(p->alive[k]) > peak_bytes(p)) p->peak = k;
    for (int x = 0; x < p->columns; x++) {
        int lo = (int)((int64_t)x * p->positions / p->columns);
        int hi = (int)((int64_t)(x + 1) * p->positions / p->columns);
        p->fullest[x] = lo;
        for (int k = lo + 1; k < hi; k++)
            if (total(p->alive[k]) > total(p->alive[p->fullest[x]])) p->fullest[x] = k;
    }
}

static bool open_panel(panel *p, const plan_program *of, const uint64_t *state)
{
    *p = (panel){.of = *of, .positions = pl_program_plan(of->program)->positions};
    p->columns = p->positions < COLUMNS ? p->positions : COLUMNS;
    p->alive = calloc((size_t)p->positions + 1, sizeof *p->alive);
    p->at = calloc((size_t)p->positions + 1, sizeof *p->at);
    p->band = calloc((size_t)p->positions + 1, 1);
    p->fullest = calloc((size_t)p->columns + 1, sizeof *p->fullest);
    if (!p->alive || !p->at || !p->band || !p->fullest) return false;
    pl_program_positions(of->program, false, p->at, p->positions);
    count_alive(p, state);
    return true;
}

/* Opens the programs and gives each a width in proportion to its positions. */
static bool open_panels(timeline *t, const pl_run *run)
{
    uint64_t state[N_LAYERS] = {0};
    int64_t positions = 0;
    state_bytes(run, state);
    for (int i = 0; i < MOST_PANELS; i++) {
        plan_program p = plan_program_at(run, i);
        if (!p.program) break;
        if (pl_program_plan(p.program)->positions == 0) continue;
        if (!open_panel(&t->panel[t->n++], &p, state)) return false;
        positions += t->panel[t->n - 1].positions;
        if (peak_bytes(&t->panel[t->n - 1]) > peak_bytes(&t->panel[t->largest]))
            t->largest = t->n - 1;
    }
    double x = LEFT, room = WIDTH - LEFT - RIGHT - GAP * (t->n - 1);
    for (int i = 0; i < t->n; i++) {
        panel *p = &t->panel[i];
        p->x = x;
        p->width = room * p->positions / (double)positions;
        x += p->width + GAP;
    }
    return t->n > 0;
}

static void close_panels(timeline *t)
{
    for (int i = 0; i < t->n; i++) {
        free(t->panel[i].alive);
        free(t->panel[i].at);
        free(t->panel[i].band);
        free(t->panel[i].fullest);
    }
}

/* A round step, 1, 2 or 5 times a power of ten, with at most n steps up to most. */
static double round_step(double most, int n)
{
    static const double grow[] = {2, 2.5, 2};
    double by = 1e-3;
    for (int k = 0; most / by > n; k++) by *= grow[k % 3];
    return by;
}

/* ---- drawing ---------------------------------------------------------------------------- */
/* Writes a text with XML escapes, at most n bytes of it. */
static void put_part(FILE *f, const char *s, int n)
{
    for (; *s && n > 0; s++, n--) {
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
            fprintf(f, "&#%d;", *s);
        else if ((unsigned char)*s >= 0x20)
            fputc(*s, f);
    }
    if (*s) fputs("...", f);
}

static void put_text(FILE *f, const char *s)
{
    put_part(f, s, 1 << 20);
}

static double x_of(const panel *p, double position)
{
    return p->x + position / p->positions * p->width;
}

static double y_of(const timeline *t, double bytes)
{
    return TOP + PLOT - bytes / t->top * PLOT;
}

static void draw_head(const timeline *t, const char *name, int height)
{
    const panel *p = &t->panel[t->largest];
    fprintf(t->f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">Memory of one "
            "training step: ",
            WIDTH, height, WIDTH, height);
    put_text(t->f, name);
    fprintf(t->f, "</title>\n<desc id=\"d\">Bytes alive at each position of");
    for (int i = 0; i < t->n; i++) {
        fprintf(t->f, "%s ", i ? "," : "");
        put_text(t->f, t->panel[i].of.name);
        fprintf(t->f, " (%d kernels, peak %s)", t->panel[i].positions,
                cli_bytes(peak_bytes(&t->panel[i])));
    }
    fprintf(t->f, ". The highest peak is at position %d of ", p->peak + 1);
    put_text(t->f, p->of.name);
    if (t->budget >= 0) fprintf(t->f, "; the budget is %s", cli_bytes(t->memory.budget));
    fprintf(
        t->f,
        ".</desc>\n<style>\n"
        ".page{fill:none}text{font:13px system-ui,sans-serif;fill:#333}.title{font-size:16px;font-weight:600}\n"
        ".small{font-size:11px}.soft{fill:#5a6472}.grid{stroke:#888;stroke-opacity:.3}\n"
        ".axis{stroke:#555}.mark{stroke:#333;fill:none}.forward{fill:#d5e3ef}.backward{fill:#f6dccb}\n"
        ".update{fill:#d4e8d6}.again{fill:#8877cc}.move{fill:#cc6677}.turn{stroke:#555;stroke-dasharray:2 3}\n"
        ".budget{stroke:#bb2200;stroke-width:1.5;stroke-dasharray:6 4}.over{fill:#bb2200}\n"
        "@media (prefers-color-scheme:dark){.page{fill:#14181f}text{fill:#ddd}.soft{fill:#aab4c2}\n"
        ".axis,.mark,.turn{stroke:#ccc}.forward{fill:#2c4256}.backward{fill:#5c3d2a}\n"
        ".update{fill:#2d4a31}.budget{stroke:#ff7755}.over{fill:#ff7755}}\n"
        "</style>\n<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n"
        "<text class=\"title\" x=\"%d\" y=\"26\">Memory of one training step: ",
        LEFT);
    put_text(t->f, name);
    fprintf(t->f, "</text>\n");
}

/* Horizontal lines at round numbers of the largest unit that the scale reaches. */
static void draw_bytes(const timeline *t)
{
    static const char *const units[2][5] = {{"B", "KiB", "MiB", "GiB", "TiB"},
                                            {"B", "kB", "MB", "GB", "TB"}};
    const char *const *unit = units[pl_bytes_decimal()];
    double of = 1, base = pl_bytes_decimal() ? 1000 : 1024;
    int u = 0;
    while (u < 4 && t->top >= of * base) of *= base, u++;
    double step = round_step(t->top / of, 10);
    for (int k = 0; k * step * of <= t->top; k++) {
        double y = y_of(t, k * step * of);
        fprintf(t->f,
                "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g%s%s</text>\n",
                k ? "grid" : "axis", LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, k * step,
                k ? " " : "", k ? unit[u] : "");
    }
}

/* Round positions below each program; a program that has no room for a number has none. */
static void draw_positions(const timeline *t)
{
    for (int i = 0; i < t->n; i++) {
        const panel *p = &t->panel[i];
        double step = round_step(p->positions, (int)(p->width / 60) + 1), end = 0;
        if (step < 1) step = 1;
        for (int k = 1; k * step <= p->positions; k++) {
            double x = x_of(p, k * step - 0.5);
            char text[24];
            int n = snprintf(text, sizeof text, "%.0f", k * step);
            if (x - n * 4 < end || x + n * 4 > p->x + p->width + GAP / 2) continue;
            end = x + n * 4 + 6;
            fprintf(
                t->f,
                "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text class=\"small soft\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                x, x, TOP + PLOT + 24, TOP + PLOT + 28, x, TOP + PLOT + 39, text);
        }
    }
}

/* Bytes of the lowest n layers in a column. */
static double height_of(const panel *p, int column, int n)
{
    uint64_t sum = 0;
    for (int k = 0; k < n; k++) sum += p->alive[p->fullest[column]][layers[k].component];
    return (double)sum;
}

/* Draws an edge of a layer as horizontal and vertical strokes, only where the height changes. */
static void draw_edge(const timeline *t, const panel *p, int n, bool forth)
{
    double at = -1, wide = p->width / p->columns;
    for (int i = 0; i < p->columns; i++) {
        int x = forth ? i : p->columns - 1 - i;
        double y = y_of(t, height_of(p, x, n)), edge = p->x + wide * (forth ? x : x + 1);
        if (at < 0)
            fprintf(t->f, "%c%.1f %.1f", forth ? 'M' : 'L', edge, y);
        else if (y - at > 0.05 || at - y > 0.05)
            fprintf(t->f, "H%.1fV%.1f", edge, y);
        else
            continue;
        at = y;
    }
    fprintf(t->f, "H%.1f", forth ? p->x + p->width : p->x);
}

static bool has_layer(const timeline *t, int which)
{
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->panel[i].positions; k++)
            if (t->panel[i].alive[k][layers[which].component]) return true;
    return false;
}

static void draw_layer(const timeline *t, int which)
{
    fprintf(t->f, "<path fill=\"%s\" d=\"", layers[which].colour);
    for (int i = 0; i < t->n; i++) {
        draw_edge(t, &t->panel[i], which + 1, true);
        draw_edge(t, &t->panel[i], which, false);
        fprintf(t->f, "z");
    }
    fprintf(t->f, "\"/>\n");
}

/* Sets the stage that the band shows at each position. Recomputed kernels belong to the stage
 * around them, and so do a few kernels among many of another stage, such as updates during
 * backward. */
static void band_stages(panel *p)
{
    int few = p->positions / 50 > 3 ? p->positions / 50 : 3;
    for (int k = 0; k < p->positions; k++) {
        const pl_plan_position *at = &p->at[k];
        int before = k ? p->band[k - 1] : PL_STAGE_FORWARD,
            now = at->recomputed ? before : (int)at->stage;
        p->band[k] = (uint8_t)(p->of.update ? PL_STAGE_UPDATE : now);
    }
    for (int from = 0, to; from < p->positions; from = to) {
        for (to = from + 1; to < p->positions && p->band[to] == p->band[from];) to++;
        if (from && to - from < few) memset(p->band + from, p->band[from - 1], (size_t)(to - from));
    }
}

static void draw_stages(const timeline *t, panel *p)
{
    static const char *const name[] = {"forward", "backward", "update"};
    band_stages(p);
    for (int k = 0, from = 0; k < p->positions; k++, from = k) {
        int now = p->band[k];
        while (k + 1 < p->positions && p->band[k + 1] == now) k++;
        double x = x_of(p, from), w = x_of(p, k + 1) - x;
        if (from && w > 4)
            fprintf(t->f, "<path class=\"turn\" d=\"M%.1f %dV%d\"/>\n", x, TOP, TOP + PLOT);
        fprintf(t->f, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"16\"/>",
                name[now], x, TOP + PLOT + 2, w);
        if (w > LETTER * (double)strlen(name[now]) + 6)
            fprintf(t->f, "<text class=\"small\" x=\"%.1f\" y=\"%d\">%s</text>", x + 4,
                    TOP + PLOT + 14, name[now]);
        fputc('\n', t->f);
    }
    for (int k = 0; k < p->positions; k++) {
        int from = k;
        while (k < p->positions && p->at[k].recomputed) k++;
        if (k > from)
            fprintf(t->f,
                    "<rect class=\"again\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"5\"/>\n",
                    x_of(p, from), TOP + PLOT + 19, x_of(p, k) - x_of(p, from));
    }
}

/* Names of the programs, each on the first line below the axis where it does not meet another.
 * Returns the number of lines. draw: false only counts. */
static int draw_names(const timeline *t, bool draw)
{
    double end[MOST_PANELS] = {0};
    int lines = 1;
    for (int i = 0; i < t->n; i++) {
        const panel *p = &t->panel[i];
        char text[192];
        int n = snprintf(text, sizeof text, "%s: %d kernels, peak %s", p->of.name, p->positions,
                         cli_bytes(peak_bytes(p))),
            line = 0;
        double w = n * (double)LETTER, x = p->x + p->width / 2 - w / 2;
        if (x + w > WIDTH - RIGHT) x = WIDTH - RIGHT - w;
        if (x < LEFT) x = LEFT;
        while (end[line] > x - 12) line++;
        end[line] = x + w;
        if (line + 1 > lines) lines = line + 1;
        if (!draw) continue;
        int y = TOP + PLOT + 58 + 18 * line;
        fprintf(t->f, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\">",
                p->x + p->width / 2, TOP + PLOT + 42, y - 12, x, y);
        put_text(t->f, text);
        fprintf(t->f, "</text>\n");
    }
    return lines;
}

/* ---- moves ------------------------------------------------------------------------------ */
enum { N_LANES = 4, LANE = 16 };
static const char *const lane_names[N_LANES] = {"to host", "from host", "to disk", "from disk"};

/* Draws the moves of one channel in one program: what overlaps is one rectangle. */
static void draw_moves(const timeline *t, const panel *p, const pl_plan_move *move, int n, int lane,
                       int y)
{
    for (int k = 0; k < n;) {
        if ((int)move[k].channel != lane) {
            k++;
            continue;
        }
        int from = move[k].begin, to = move[k].end;
        for (k++; k < n && ((int)move[k].channel != lane || move[k].begin <= to); k++)
            if ((int)move[k].channel == lane && move[k].end > to) to = move[k].end;
        fprintf(t->f, "<rect class=\"move\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"10\"/>\n",
                x_of(p, from), y, x_of(p, to) - x_of(p, from));
    }
}

/* Draws a lane for each channel that is used, from y on, and returns their height. draw: false only
 * counts. */
static int draw_lanes(const timeline *t, int y, bool draw)
{
    int height = 0;
    for (int lane = 0; lane < N_LANES; lane++) {
        bool used = false;
        for (int i = 0; i < t->n; i++) {
            int n = pl_program_moves(t->panel[i].of.program, NULL, 0);
            pl_plan_move *move = n ? calloc((size_t)n, sizeof *move) : NULL;
            if (!move) continue;
            pl_program_moves(t->panel[i].of.program, move, n);
            for (int k = 0; k < n; k++) used |= (int)move[k].channel == lane;
            if (draw) draw_moves(t, &t->panel[i], move, n, lane, y + height);
            free(move);
        }
        if (used && draw)
            fprintf(t->f, "<text class=\"small\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                    LEFT - 8, y + height + 9, lane_names[lane]);
        if (used) height += LANE;
    }
    return height;
}

/* Names of the components that occur, with their bytes at the peak, in rows below the axis. */
static void draw_legend(const timeline *t, int y)
{
    const uint64_t *peak = t->panel[t->largest].alive[t->panel[t->largest].peak];
    int x = LEFT, shown = 0;
    for (int i = 0; i < N_LAYERS; i++) {
        if (!has_layer(t, i)) continue;
        fprintf(t->f,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                "<text x=\"%d\" y=\"%d\">%s %s</text>\n",
                x, y - 11, layers[i].colour, x + 18, y, layers[i].name,
                cli_bytes(peak[layers[i].component]));
        x += 212;
        if (++shown % 4 == 0) x = LEFT, y += 20;
    }
}

/* The label has a separate line, on the side of the mark that has more room. */
static void draw_peak(const timeline *t)
{
    const panel *p = &t->panel[t->largest];
    double x = x_of(p, p->peak + 0.5), y = y_of(t, (double)peak_bytes(p));
    bool right = x > WIDTH / 2.0;
    char text[160];
    int n = snprintf(text, sizeof text, "peak %s in %s at position %d: ", cli_bytes(peak_bytes(p)),
                     p->of.name, p->peak + 1);
    int room = (int)((right ? x - 12 : WIDTH - x - 12) / LETTER) - n;
    fprintf(
        t->f,
        "<path class=\"mark\" d=\"M%.1f %.1fV%d\"/><circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" "
        "r=\"4\"/><text class=\"peak\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
        x, y, TOP - 18, x, y, right ? x - 6 : x + 6, TOP - 10, right ? "end" : "start");
    put_text(t->f, text);
    put_part(t->f, pl_program_plan(p->of.program)->peak_node, room);
    fprintf(t->f, "</text>\n");
}

/* Draws the budget without the overhead, because the picture shows arena and state only. A budget
 * far above the peak has its label only. */
static void draw_budget(const timeline *t)
{
    if (t->budget < 0) return;
    if (t->budget <= t->top) {
        double y = y_of(t, t->budget);
        fprintf(t->f, "<line class=\"budget\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                WIDTH - RIGHT, y, y);
    }
    fprintf(t->f,
            "<path class=\"budget\" d=\"M%d 44h26\"/><text class=\"over\" x=\"%d\" y=\"48\">budget "
            "%s minus %s overhead%s</text>\n",
            LEFT, LEFT + 32, cli_bytes(t->memory.budget), cli_bytes(t->memory.overhead),
            t->budget > t->top ? ", above this picture" : "");
}

static void draw(timeline *t, const char *name)
{
    double peak = (double)peak_bytes(&t->panel[t->largest]);
    t->budget = !t->memory.budget ? -1
                : t->memory.budget > t->memory.overhead
                    ? (double)(t->memory.budget - t->memory.overhead)
                    : 0;
    t->top = 1.04 * (t->budget > peak && t->budget < 1.6 * peak ? t->budget : peak);
    int lanes = TOP + PLOT + 48 + 18 * draw_names(t, false), shown = 0;
    int legend = lanes + 18 + draw_lanes(t, lanes, false);
    for (int i = 0; i < N_LAYERS; i++) shown += has_layer(t, i);
    draw_head(t, name, legend + 20 * ((shown + 3) / 4));
    for (int i = 0; i < N_LAYERS; i++)
        if (has_layer(t, i)) draw_layer(t, i);
    draw_bytes(t);
    for (int i = 0; i < t->n; i++) draw_stages(t, &t->panel[i]);
    draw_positions(t);
    draw_names(t, true);
    draw_lanes(t, lanes, true);
    draw_budget(t);
    draw_peak(t);
    draw_legend(t, legend + 8);
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
    timeline t = {.memory = pl_run_memory_get(run)};
    cli_file out;
    bool open = cli_file_open(&out, path), ok = open;
    t.f = out.f;
    if (ok) ok = open_panels(&t, run);
    if (ok) draw(&t, name);
    if (open) ok = cli_file_close(&out, ok);
    close_panels(&t);
    if (ok) return 0;
    cli_error("cannot write %s: %s", path, strerror(errno));
    return 1;
}
