// clang-format off
// windows.cuh - a convolution without a stride as a product on Hopper's warpgroup units (sm_90a),
// for generated kernels; after warpgroup.cuh, whose p_product it resembles.
//
// Images lie in a line of positions, rows and images one after the other, with gaps of zeros that
// serve both the end of one row (image) and the beginning of the next. In that line a tap of the
// filter is a constant distance: position q of the result reads positions q + shift(tap). The copy
// engine writes the line, zeros included (im2col mode), into shared memory once for each 64
// channels, and the products of all taps read it there, each from another row on.
//
//   width 3, gap 1:   line  0 a b c 0 d e f 0 g h i 0 ...
//   y at q is the sum over taps of w[tap] line[q + shift(tap)]
//
// Positions in gaps are computed and dropped: a tile of BM positions has the results of
// neighbouring pixels, which move together at the start of the tile.
DEV void p_loader_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
DEV void p_multiplier_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 216;"); }
DEV void p_copy_line(unsigned to, const p_map *m, unsigned bar, int c, int x, int y, int n)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
                 :: "r"(to), "l"(m), "r"(bar), "r"(c), "r"(x), "r"(y), "r"(n), "h"((short)0), "h"((short)0) : "memory");
}
// h, w: of the image; line_h, line_w: with gaps; before_h, before_w: rows and columns of windows
// before the first result; taps_h, taps_w, apart_h, apart_w: of the filter; blocks: of 64 channels.
struct p_image {
    int h, w, line_h, line_w, before_h, before_w, taps_h, taps_w, apart_h, apart_w, blocks, range;
    // Number of results before position q.
    DEV_IN int results(int q) const
    {
        const int row = q / line_w, n = row / line_h;
        int y = row - n * line_h - before_h, x = q - row * line_w - before_w;
        x = y < 0 || y >= h ? 0 : x < 0 ? 0 : x > w ? w : x;
        y = y < 0 ? 0 : y > h ? h : y;
        return (n * h + y) * w + x;
    }
    DEV_IN bool is_result(int q) const
    {
        const int row = q / line_w, y = row % line_h - before_h, x = q - row * line_w - before_w;
        return (unsigned)y < (unsigned)h && (unsigned)x < (unsigned)w;
    }
    DEV_IN int line_bytes() const { return (range * 128 + 1023) & ~1023; }
};
// A tile has 64 MI positions and BN channels. SA stages of lines, SB stages of filters.
template <int MI, int BN, int TB, int SA, int SB> struct p_windows {
    enum { BM = MI * 64, B = BN * 128, N_BARS = 2 * (SA + SB) };
    int a, pa, b, pb; // stages and their phases
    DEV_IN static int filters(const p_image &g) { return SA * g.line_bytes(); }
    DEV_IN static int tile(const p_image &g) { return filters(g) + SB * B; }
    DEV_IN static int bars(const p_image &g) { return tile(g) + BM * BN * 2; }
    DEV_IN static unsigned char *begin(unsigned char *raw, const p_image &g)
    {
        unsigned char *sh = raw + ((1024 - (p_shared(raw) & 1023)) & 1023);
        if (threadIdx.x == 0) {
            for (int i = 0; i < N_BARS; i++) p_bar_init(p_shared(sh + bars(g)) + 8 * i, 1);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        return sh;
    }
    // width: of the filter's matrix between taps: terms (TB 0) or columns (TB 1).
    DEV_IN static void load(unsigned char *sh, const p_image &g, const p_map *x, const p_map *w, int n, int first, int step, int end, int width)
    {
        int a = 0, pa = 0, b = 0, pb = 0;
        const int taps = g.taps_h * g.taps_w;
        const unsigned fulla = p_shared(sh + bars(g)), fullb = fulla + 16 * SA, filter = p_shared(sh + filters(g)), line = p_shared(sh);
        if (threadIdx.x % 128) return;
        for (int m = first; m < end; m += step) {
            const int row = m * BM / g.line_w, image = row / g.line_h;
            const int y = row - image * g.line_h - (g.line_h - g.h), at = m * BM - row * g.line_w - (g.line_w - g.w);
            for (int k = 0; k < g.blocks; k++) {
                p_bar_wait(fulla + 8 * (SA + a), pa ^ 1);
                p_bar_expect(fulla + 8 * a, g.range * 128);
                p_copy_line(line + a * g.line_bytes(), x, fulla + 8 * a, k * 64, at, y, image);
                if (++a == SA) a = 0, pa ^= 1;
                for (int t = 0; t < taps; t++) {
                    const unsigned full = fullb + 8 * b, to = filter + b * B;
                    p_bar_wait(full + 8 * SB, pb ^ 1);
                    p_bar_expect(full, B);
                    if (TB)
#pragma unroll
                        for (int c = 0; c < BN; c += 64) p_copy(to + c * 128, w, full, (taps - 1 - t) * width + n * BN + c, k * 64);
                    else
                        p_copy(to, w, full, t * width + k * 64, n * BN);
                    if (++b == SB) b = 0, pb ^= 1;
                }
            }
        }
    }
    // The results of tile m, rounded, side by side as a swizzled tile.
    DEV_IN void multiply(unsigned char *sh, const p_image &g, int m)
    {
        float d[MI][BN / 2];
        const unsigned fulla = p_shared(sh + bars(g)), fullb = fulla + 16 * SA, filter = p_shared(sh + filters(g)), line = p_shared(sh);
        int emptied = -1;
        const int first = m * BM;
        for (int k = 0; k < g.blocks; k++) {
            p_bar_wait(fulla + 8 * a, pa);
            unsigned row = line + a * g.line_bytes();
            for (int ty = 0; ty < g.taps_h; ty++, row += g.apart_h * g.line_w * 128) {
                unsigned at = row;
                for (int tx = 0; tx < g.taps_w; tx++, at += g.apart_w * 128) {
                    const unsigned w = filter + b * B;
                    p_bar_wait(fullb + 8 * b, pb);
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < MI; j++)
                            p_wgmma<BN, TB>::run(d[j], p_operand(at + j * 8192 + i * 32, 16),
                                                 TB ? p_operand(w + i * 2048, 64 * 128) : p_operand(w + i * 32, 16), k + ty + tx + i > 0);
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (threadIdx.x == 0 && emptied >= 0) p_bar_arrive(fullb + 8 * (SB + emptied));
                    emptied = b;
                    if (++b == SB) b = 0, pb ^= 1;
                }
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (threadIdx.x == 0) p_bar_arrive(fulla + 8 * (SA + a));
            if (++a == SA) a = 0, pa ^= 1;
        }
        if (threadIdx.x == 0) p_bar_arrive(fullb + 8 * (SB + emptied));
#pragma unroll
        for (int m = 0; m < MI; m++)
#pragma unroll
            for (int j = 0; j < BN / 2; j++) asm volatile("" : "+f"(d[m][j]) :: "memory");
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, before = g.results(first);
        unsigned char *const out = sh + tile(g);
#pragma unroll
        for (int m = 0; m < MI; m++)
#pragma unroll
            for (int up = 0; up < 2; up++) {
                const int q = first + m * 64 + warp * 16 + lane / 4 + up * 8, r = g.results(q) - before;
                if (!g.is_result(q)) continue;
#pragma unroll
                for (int j = 0; j < BN / 8; j++) {
                    unsigned *const to = (unsigned *)(out + r * BN * 2 + ((j ^ (r & 7)) * 16) + lane % 4 * 4);
                    to[0] = p_pack(d[m][4 * j + 2 * up], d[m][4 * j + 2 * up + 1]);
                }
            }
    }
    DEV_IN static p_vec<p_u16, 8> at(const unsigned char *tile, int r, int c)
    {
        return *(const p_vec<p_u16, 8> *)(tile + r * BN * 2 + ((c ^ (r & 7)) * 16));
    }
};
