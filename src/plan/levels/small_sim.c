/* small_sim.c - a step of a small program, simulated under given settings; see small.c.
 *
 * At every time at which a unit or a move ends, the simulator begins every action that can begin:
 * the next unit, or the fetch of a value that the unit misses; the store of the value that is to
 * move and whose next use is farthest; fetches ahead. Where nothing is under way and nothing can
 * begin, values that were to stay are dropped. Cost: linear in units times values.
 */
#include "plan/levels/small_int.h"

#include <math.h>
#include <string.h>

enum { UNIT = PL_N_CHANNELS, N_ACTIONS, DEEP = 24 };

typedef struct sim {
    const pl_small_problem *p;
    const uint64_t *useful; /* per number of units that ran first */
    pl__small_settings set;
    uint64_t on[PL_N_LEVELS]; /* complete copies */
    double time, ends[N_ACTIONS];
    uint8_t busy[N_ACTIONS]; /* value, or unit, under way; PL_SMALL_NONE */
    uint32_t done;
    uint64_t guard; /* operands of the unit that is to run next */
    bool begun;     /* something began at this time */
    bool full;      /* the pl__small_story has no room */
    pl__small_story *t;
} sim;

static uint64_t bytes_of(const sim *x, uint64_t set)
{
    uint64_t sum = 0;
    for (; set; set &= set - 1) sum += x->p->bytes[__builtin_ctzll(set)];
    return sum;
}

static double move_ns(const sim *x, int channel, unsigned v)
{
    const pl_level_opts *o = x->p->levels;
    return o->move_ns + o->channel_ns[channel] * (double)x->p->bytes[v];
}

int pl__small_up(const pl_small_problem *p)
{
    return p->room[PL_LEVEL_HOST] || p->home[PL_LEVEL_HOST] ? PL_CHANNEL_UP : PL_CHANNEL_READ;
}

static int down(const pl_small_problem *p)
{
    return pl__small_up(p) == PL_CHANNEL_UP ? PL_CHANNEL_DOWN : PL_CHANNEL_WRITE;
}

void pl__small_useful(const pl_small_problem *p, uint64_t again, uint64_t *useful)
{
    uint64_t read = p->wanted | p->stays; /* by units from `done` on */
    for (uint32_t done = p->n_units + 1; done-- > 0;) {
        if (done < p->n_units) read |= p->reads[done];
        uint64_t set = read, before = 0;
        while (set != before) {
            before = set;
            for (uint32_t u = 0; u < done; u++)
                if ((p->writes[u] & set & again) && !p->once[u]) set |= p->reads[u];
        }
        useful[done] = set;
    }
}

/* ---- places of values ----------------------------------------------------------------------- */
static uint64_t value_on(const sim *x, int channel)
{
    return x->busy[channel] == PL_SMALL_NONE ? 0 : pl__small_bit(x->busy[channel]);
}

static uint64_t on_device(const sim *x)
{
    uint64_t set = x->on[PL_LEVEL_DEVICE] | value_on(x, pl__small_up(x->p));
    return x->busy[UNIT] == PL_SMALL_NONE ? set : set | x->p->writes[x->busy[UNIT]];
}

static uint64_t on_host(const sim *x)
{
    if (pl__small_up(x->p) != PL_CHANNEL_UP) return 0;
    return x->on[PL_LEVEL_HOST] | value_on(x, PL_CHANNEL_DOWN) | value_on(x, PL_CHANNEL_READ);
}

static uint64_t on_disk(const sim *x)
{
    return x->on[PL_LEVEL_DISK] | value_on(x, PL_CHANNEL_WRITE);
}

static uint64_t free_bytes(const sim *x)
{
    uint64_t used = bytes_of(x, on_device(x));
    if (x->busy[UNIT] != PL_SMALL_NONE) used += x->p->work[x->busy[UNIT]];
    return x->p->arena > used ? x->p->arena - used : 0;
}

static uint64_t free_on_host(const sim *x)
{
    uint64_t used = bytes_of(x, on_host(x) & ~x->p->home[PL_LEVEL_HOST]);
    return x->p->room[PL_LEVEL_HOST] > used ? x->p->room[PL_LEVEL_HOST] - used : 0;
}

/* Returns the first unit from the next one on that reads a value. */
static uint32_t next_use(const sim *x, unsigned v)
{
    uint32_t u = x->done + (x->busy[UNIT] == x->done);
    while (u < x->p->n_units && !(x->p->reads[u] & pl__small_bit(v))) u++;
    return u;
}

static int key_of(const sim *x, unsigned v)
{
    return 4 * (int)next_use(x, v) + x->set.bias[v];
}

static bool can_recompute(const sim *x, unsigned v)
{
    uint8_t u = x->p->made_by[v];
    return u != PL_SMALL_NONE && !x->p->once[u];
}

/* Whether a value can be dropped from the device now. */
static bool can_drop(const sim *x, unsigned v)
{
    if ((x->on[PL_LEVEL_HOST] | x->on[PL_LEVEL_DISK]) & pl__small_bit(v)) return true;
    return can_recompute(x, v) &&
           (x->set.how[v] == PL__SMALL_AGAIN || (x->p->small & pl__small_bit(v)));
}

/* ---- actions -------------------------------------------------------------------------------- */
static void begin(sim *x, int action, unsigned what)
{
    pl__small_story *t = x->t;
    double takes = action == UNIT ? x->p->cost_ns[what] : move_ns(x, action, what);
    pl__small_step s = {x->time, x->time + takes, (uint8_t)what, (uint8_t)action};
    x->busy[action] = (uint8_t)what;
    x->ends[action] = s.end;
    x->begun = true;
    if (t->n_runs == PL_SMALL_ENTRIES || t->n_moves == 2 * PL_SMALL_ENTRIES)
        x->full = true;
    else if (action == UNIT)
        t->run[t->n_runs++] = s;
    else
        t->move[t->n_moves++] = s;
}

static void drop(sim *x, int level, uint64_t set)
{
    pl__small_story *t = x->t;
    if (!set) return;
    x->on[level] &= ~set;
    if (t->n_drops == PL__SMALL_DROPS) {
        x->full = true;
        return;
    }
    t->drop_ns[t->n_drops] = x->time;
    t->dropped[t->n_drops][0] = t->dropped[t->n_drops][1] = 0;
    t->dropped[t->n_drops++][level] = set;
}

/* Drops values from the device until `need` bytes are free; false: it cannot, and nothing changes.
 * Only values whose key is above `least`. forced: values that were to stay, too. */
static bool make_room(sim *x, uint64_t need, int least, bool forced)
{
    uint64_t has = free_bytes(x), set = 0;
    uint64_t can = x->on[PL_LEVEL_DEVICE] & ~x->p->stays & ~value_on(x, down(x->p)) & ~x->guard;
    if (x->busy[UNIT] != PL_SMALL_NONE) can &= ~x->p->reads[x->busy[UNIT]];
    while (has < need) {
        int most = least, best = -1;
        for (uint64_t k = can; k; k &= k - 1) {
            unsigned v = (unsigned)__builtin_ctzll(k);
            int key = key_of(x, v);
            if (key <= most) continue;
            if (!x->set.patient && !can_drop(x, v) && !(forced && can_recompute(x, v))) continue;
            most = key;
            best = (int)v;
        }
        if (best < 0) return false;
        if (!can_drop(x, (unsigned)best) && !(forced && can_recompute(x, (unsigned)best)))
            return false; /* patient: its store comes first */
        can &= ~pl__small_bit((unsigned)best);
        set |= pl__small_bit((unsigned)best);
        has += x->p->bytes[best];
    }
    /* a fetched value that is no longer needed stays */
    for (uint64_t k = set; k; k &= k - 1) {
        unsigned v = (unsigned)__builtin_ctzll(k);
        if (has - x->p->bytes[v] < need) continue;
        has -= x->p->bytes[v];
        set &= ~pl__small_bit(v);
    }
    drop(x, PL_LEVEL_DEVICE, set);
    return true;
}

/* The same on the host: copies that are on disk, too. */
static bool make_host_room(sim *x, uint64_t need)
{
    uint64_t has = free_on_host(x), set = 0;
    uint64_t can = x->on[PL_LEVEL_HOST] & ~x->p->home[PL_LEVEL_HOST] & x->on[PL_LEVEL_DISK] &
                   ~value_on(x, PL_CHANNEL_UP) & ~value_on(x, PL_CHANNEL_WRITE);
    while (has < need) {
        int most = -1, best = -1;
        for (uint64_t k = can; k; k &= k - 1) {
            int key = key_of(x, (unsigned)__builtin_ctzll(k));
            if (key > most) most = key, best = __builtin_ctzll(k);
        }
        if (best < 0) return false;
        can &= ~pl__small_bit((unsigned)best);
        set |= pl__small_bit((unsigned)best);
        has += x->p->bytes[best];
    }
    drop(x, PL_LEVEL_HOST, set);
    return true;
}

/* Brings a value of the host to the device, or one of the disk to the host. */
static void fetch(sim *x, unsigned v, int least, bool forced)
{
    int c = pl__small_up(x->p), level = c == PL_CHANNEL_UP ? PL_LEVEL_HOST : PL_LEVEL_DISK;
    if (on_device(x) & pl__small_bit(v)) return;
    if (x->on[level] & pl__small_bit(v)) {
        if (x->busy[c] == PL_SMALL_NONE && make_room(x, x->p->bytes[v], least, forced))
            begin(x, c, v);
        return;
    }
    if (level == PL_LEVEL_HOST && (x->on[PL_LEVEL_DISK] & pl__small_bit(v)) &&
        !(on_host(x) & pl__small_bit(v)) && x->busy[PL_CHANNEL_READ] == PL_SMALL_NONE &&
        make_host_room(x, x->p->bytes[v]))
        begin(x, PL_CHANNEL_READ, v);
}

/* Begins a unit whose operands are there. Copies below of the run before are not used later. */
static void begin_unit(sim *x, uint32_t u)
{
    for (int level = 1; level < PL_N_LEVELS && u < x->done; level++)
        x->on[level] &= ~x->p->writes[u];
    begin(x, UNIT, u);
}

/* Begins a unit, or the fetch of its missing values. depth: of units that run again for others. */
static void need_unit(sim *x, uint32_t u, int depth, bool forced)
{
    const pl_small_problem *p = x->p;
    uint64_t missing = p->reads[u] & ~x->on[PL_LEVEL_DEVICE];
    uint64_t again = 0, below = x->on[PL_LEVEL_HOST] | x->on[PL_LEVEL_DISK] | on_host(x);
    x->guard |= p->reads[u] & on_device(x);
    if (!missing) {
        if (x->busy[UNIT] != PL_SMALL_NONE) return;
        uint64_t old = p->writes[u] & x->on[PL_LEVEL_DEVICE];
        if (!make_room(x, bytes_of(x, p->writes[u] & ~old) + p->work[u], -1, forced)) return;
        begin_unit(x, u);
        return;
    }
    again = missing & ~below & ~on_device(x);
    for (int first = 0; first < 2; first++) {
        if (first != x->set.recompute_first)
            for (uint64_t k = missing & below; k; k &= k - 1)
                fetch(x, (unsigned)__builtin_ctzll(k), -1, forced);
        else if (again && depth < DEEP && x->busy[UNIT] == PL_SMALL_NONE) {
            unsigned v = (unsigned)__builtin_ctzll(again);
            if (can_recompute(x, v)) need_unit(x, p->made_by[v], depth + 1, forced);
        }
    }
}

/* Stores the value that is to move and whose next use is farthest. */
static void store_next(sim *x, bool forced)
{
    int c = down(x->p), most = -1, best = -1;
    uint64_t can = x->on[PL_LEVEL_DEVICE] & x->useful[x->done] & ~x->p->stays & ~x->p->small;
    can &= ~(on_host(x) | on_disk(x));
    if (x->busy[c] != PL_SMALL_NONE) return;
    if (x->busy[UNIT] != PL_SMALL_NONE) can &= ~x->p->writes[x->busy[UNIT]];
    for (; can; can &= can - 1) {
        unsigned v = (unsigned)__builtin_ctzll(can);
        int key = key_of(x, v);
        if (x->set.how[v] != PL__SMALL_MOVE && !(forced && !can_recompute(x, v))) continue;
        if (key > most) most = key, best = (int)v;
    }
    if (best < 0) return;
    if (c == PL_CHANNEL_DOWN && !make_host_room(x, x->p->bytes[best])) return;
    begin(x, c, (unsigned)best);
}

/* Writes the value of the host to disk whose next use is farthest, once the host is nearly full. */
static void write_next(sim *x)
{
    int most = -1, best = -1;
    uint64_t can = x->on[PL_LEVEL_HOST] & ~x->p->home[PL_LEVEL_HOST] & ~on_disk(x) &
                   ~x->p->home[PL_LEVEL_DISK] & x->useful[x->done];
    if (pl__small_up(x->p) != PL_CHANNEL_UP || x->busy[PL_CHANNEL_WRITE] != PL_SMALL_NONE) return;
    if (!x->p->room[PL_LEVEL_DISK] || free_on_host(x) > x->p->room[PL_LEVEL_HOST] / 2) return;
    for (; can; can &= can - 1) {
        int key = key_of(x, (unsigned)__builtin_ctzll(can));
        if (key > most) most = key, best = __builtin_ctzll(can);
    }
    if (best >= 0) begin(x, PL_CHANNEL_WRITE, (unsigned)best);
}

/* Fetches what unit u misses, or runs units again that make it, for `use`, the unit that is to run
 * later: only in room that values leave whose next use is after it. */
static void fetch_for(sim *x, uint32_t u, uint32_t use, uint32_t from, int depth)
{
    const pl_small_problem *p = x->p;
    uint64_t missing = p->reads[u] & ~on_device(x);
    uint64_t below = on_host(x) | x->on[PL_LEVEL_HOST] | x->on[PL_LEVEL_DISK];
    int level = pl__small_up(p) == PL_CHANNEL_UP ? PL_LEVEL_HOST : PL_LEVEL_DISK;
    for (uint64_t k = missing & below; k; k &= k - 1) {
        unsigned v = (unsigned)__builtin_ctzll(k);
        bool near = x->on[level] & pl__small_bit(v);
        int ahead = (near ? x->set.ahead : x->set.ahead_disk) + x->set.lead[v];
        if ((int)use < (int)from + ahead) fetch(x, v, 4 * (int)use, false);
    }
    if (use >= from + x->set.ahead || depth == 0) return;
    for (uint64_t k = missing & ~below; k; k &= k - 1) {
        unsigned v = (unsigned)__builtin_ctzll(k);
        if (!can_recompute(x, v) || p->made_by[v] >= x->done) continue;
        fetch_for(x, p->made_by[v], use, from, depth - 1);
        if (!x->set.early || x->busy[UNIT] != PL_SMALL_NONE) continue;
        uint32_t maker = p->made_by[v];
        if (p->reads[maker] & ~x->on[PL_LEVEL_DEVICE]) continue;
        uint64_t guard = x->guard;
        x->guard |= p->reads[maker];
        if (make_room(x, bytes_of(x, p->writes[maker] & ~x->on[PL_LEVEL_DEVICE]) + p->work[maker],
                      4 * (int)use, false))
            begin_unit(x, maker);
        x->guard = guard;
    }
}

/* Fetches values that the next units need and that are missing. */
static void fetch_ahead(sim *x)
{
    enum { DEPTH = 3 };
    uint32_t from = x->done + (x->busy[UNIT] == x->done);
    uint32_t most = x->set.ahead > x->set.ahead_disk ? x->set.ahead : x->set.ahead_disk;
    for (uint32_t u = from; u < x->p->n_units && u < from + most; u++)
        fetch_for(x, u, u, from, DEPTH);
}

/* Ends what ends next; false: nothing is under way. */
static bool advance(sim *x)
{
    const pl_small_problem *p = x->p;
    double next = HUGE_VAL;
    for (int c = 0; c < N_ACTIONS; c++)
        if (x->busy[c] != PL_SMALL_NONE && x->ends[c] < next) next = x->ends[c];
    if (next == HUGE_VAL) return false;
    x->time = next;
    for (int c = 0; c < N_ACTIONS; c++) {
        if (x->busy[c] == PL_SMALL_NONE || x->ends[c] > next) continue;
        if (c == UNIT) {
            x->on[PL_LEVEL_DEVICE] |= p->writes[x->busy[c]];
            if (x->busy[c] == x->done) x->done++;
        } else if (c == pl__small_up(p)) {
            x->on[PL_LEVEL_DEVICE] |= pl__small_bit(x->busy[c]);
        } else {
            x->on[c == PL_CHANNEL_WRITE ? PL_LEVEL_DISK : PL_LEVEL_HOST] |=
                pl__small_bit(x->busy[c]);
        }
        x->busy[c] = PL_SMALL_NONE;
    }
    uint64_t useful = x->useful[x->done], used = p->stays | value_on(x, down(p));
    if (x->busy[UNIT] != PL_SMALL_NONE) used |= p->reads[x->busy[UNIT]];
    x->on[PL_LEVEL_DEVICE] &= useful | used;
    x->on[PL_LEVEL_HOST] &= useful | p->home[PL_LEVEL_HOST] | value_on(x, PL_CHANNEL_UP) |
                            value_on(x, PL_CHANNEL_WRITE);
    return true;
}

void pl__small_simulate(const pl_small_problem *p, const uint64_t *useful,
                        const pl__small_settings *set, double limit, pl__small_story *t)
{
    sim x = {.p = p, .useful = useful, .set = *set, .t = t};
    uint64_t few[PL_SMALL_UNITS + 1], again = p->small;
    for (uint32_t v = 0; v < p->n_values; v++)
        if (set->how[v] == PL__SMALL_AGAIN) again |= pl__small_bit(v);
    if (set->frugal) {
        pl__small_useful(p, again, few);
        x.useful = few;
    }
    t->n_runs = t->n_moves = t->n_drops = 0;
    t->ns = HUGE_VAL;
    for (int level = 0; level < PL_N_LEVELS; level++) x.on[level] = p->home[level];
    memset(x.busy, PL_SMALL_NONE, sizeof x.busy);
    while (x.time < limit && !x.full) {
        if (x.done == p->n_units) {
            t->ns = x.time;
            return;
        }
        bool running = x.busy[UNIT] != PL_SMALL_NONE;
        for (int forced = 0; forced < 2; forced++) {
            x.begun = false;
            x.guard = 0;
            if (!running) need_unit(&x, x.done, 0, forced);
            store_next(&x, forced);
            write_next(&x);
            fetch_ahead(&x);
            bool any = x.begun;
            for (int c = 0; c < N_ACTIONS; c++) any |= x.busy[c] != PL_SMALL_NONE;
            if (any) break;
        }
        if (!advance(&x)) return;
    }
}
