/* peer.c - see peer.h. */
#include "tests/recipes/peer.h"

#include "base/sys.h"

#include <math.h>

/* ---- numbers from names ----------------------------------------------------------------- */
uint64_t peer_hash(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    return h;
}

static uint64_t bits(uint64_t base, int64_t i)
{
    uint64_t z = base + ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double peer_uniform(uint64_t base, int64_t i)
{
    return (double)(bits(base, i) >> 11) * 0x1p-53;
}

double peer_noise(uint64_t base, int64_t i)
{
    double u = peer_uniform(base, 4 * i) + peer_uniform(base, 4 * i + 1);
    return (u + peer_uniform(base, 4 * i + 2) + peer_uniform(base, 4 * i + 3) - 2.0) *
           1.7320508075688772;
}

peer_summary peer_summarise(const double *x, int64_t n)
{
    uint64_t base = peer_hash("project");
    peer_summary s = {0};
    for (int64_t i = 0; i < n; i++) {
        uint64_t b = bits(base, i);
        s.norm += x[i] * x[i];
        for (int j = 0; j < 4; j++) s.p[j] += (b >> (20 + j)) & 1 ? -x[i] : x[i];
    }
    s.norm = sqrt(s.norm);
    return s;
}

/* ---- layouts ---------------------------------------------------------------------------- */
int64_t *peer_file_order(int rank, const int64_t *dim, const int *perm, int64_t *n)
{
    int64_t stride[PL_MAX_RANK], at[PL_MAX_RANK] = {0}, total = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = total;
        total *= dim[i];
    }
    int64_t *index = pl_sys_alloc(sizeof *index * (size_t)(total + 1));
    for (int64_t k = 0; k < total; k++) {
        for (int i = 0; i < rank; i++) index[k] += at[i] * stride[perm[i]];
        for (int i = rank - 1; i >= 0; i--) {
            if (++at[i] < dim[perm[i]]) break;
            at[i] = 0;
        }
    }
    *n = total;
    return index;
}

int64_t *peer_slot_order(const pl_slot *s, int64_t *n)
{
    const pl_file_layout *l = &s->layout;
    int perm[PL_MAX_RANK], rank = l->view_rank ? l->view_rank : s->type.rank;
    for (int i = 0; i < rank; i++) perm[i] = l->rank ? l->perm[i] : i;
    return peer_file_order(rank, l->view_rank ? l->view : s->type.dim, perm, n);
}

bool peer_same_shape(const pl_slot *s, json_t *shape)
{
    const pl_file_layout *l = &s->layout;
    size_t rank = (size_t)(l->view_rank ? l->view_rank : s->type.rank);
    const int64_t *dim = l->view_rank ? l->view : s->type.dim;
    if (l->flat)
        return json_array_size(shape) == 1 &&
               json_integer_value(json_array_get(shape, 0)) == pl_type_elems(&s->type);
    if (json_array_size(shape) != rank) return false;
    for (size_t i = 0; i < rank; i++)
        if (json_integer_value(json_array_get(shape, i)) != dim[l->rank ? (size_t)l->perm[i] : i])
            return false;
    return true;
}

/* ---- comparison ------------------------------------------------------------------------- */
double peer_deviation(peer_summary got, json_t *want, double floor_norm)
{
    double norm = json_number_value(json_array_get(want, 0)), d = fabs(got.norm - norm);
    for (size_t j = 0; j < 4; j++)
        d = fmax(d, fabs(got.p[j] - json_number_value(json_array_get(want, j + 1))));
    return d / fmax(norm, floor_norm);
}
