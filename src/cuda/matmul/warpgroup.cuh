// clang-format off
// warpgroup.cuh - a product on Hopper's warpgroup units (sm_90a) whose result stays in shared
// memory, for generated kernels that begin with a product (codegen_product.c).
//
//   y[M,N] = a[M,K] b, 16-bit numbers, f32 sums; b is [N,K] (TB 0) or [K,N] (TB 1)
//
// A block has one warpgroup that multiplies, 64 MI rows times BN columns at a time, and another
// whose first thread copies tiles of 64 numbers of K to S stages of shared memory, ahead of the
// products, also while the warpgroup works on a finished tile. Tiles past the matrices are zero.
// P_TYPE is "bf16" or "f16". The copying warps give their registers to the warpgroup that
// multiplies: two blocks of 256 threads have 128 registers a thread on average.
DEV void p_fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
DEV void p_more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
struct alignas(64) p_map { unsigned long long x[16]; };
DEV unsigned p_shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
DEV void p_bar_init(unsigned b, int n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(b), "r"(n)); }
DEV void p_bar_expect(unsigned b, int n) { asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(b), "r"(n) : "memory"); }
DEV void p_bar_arrive(unsigned b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(b) : "memory"); }
DEV void p_bar_wait(unsigned b, int parity)
{
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra D; bra W; D: }" :: "r"(b), "r"(parity) : "memory");
}
DEV void p_copy(unsigned to, const p_map *m, unsigned bar, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 :: "r"(to), "l"(m), "r"(bar), "r"(x), "r"(y) : "memory");
}
// What a product reads: a swizzled tile, the bytes to its next 64 columns, the bytes to its next 8
// rows.
DEV unsigned long long p_operand(unsigned at, unsigned next)
{
    return (unsigned long long)((at & 0x3ffff) >> 4) | (unsigned long long)(next >> 4) << 16 | (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}
DEV unsigned p_pack(float x, float y) { unsigned u; asm("cvt.rn." P_TYPE "x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x)); return u; }
// d [64][N] = a b or d + a b over 16 numbers of K.
template <int N, int TB> struct p_wgmma;
template <int TB> struct p_wgmma<64, TB> {
    DEV_IN static void run(float (&d)[32], unsigned long long a, unsigned long long b, int add)
    {
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." P_TYPE "." P_TYPE " {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
            "}, %32, %33, p, 1, 1, 0, %35; }"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
            : "l"(a), "l"(b), "r"(add), "n"(TB));
    }
};
template <int TB> struct p_wgmma<128, TB> {
    DEV_IN static void run(float (&d)[64], unsigned long long a, unsigned long long b, int add)
    {
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." P_TYPE "." P_TYPE " {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
            "}, %64, %65, p, 1, 1, 0, %67; }"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
              "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
              "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
              "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
              "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
            : "l"(a), "l"(b), "r"(add), "n"(TB));
    }
};
template <int MI, int BN, int TB, int S> struct p_product {
    enum { BM = MI * 64, A = BM * 128, B = BN * 128, STAGE = A + B, TILE = S * STAGE, BARS = TILE + BM * BN * 2 };
    int s, phase;
    // Returns the block's shared memory at a multiple of 1024 bytes, with barriers.
    DEV_IN static unsigned char *begin(unsigned char *raw)
    {
        unsigned char *sh = raw + ((1024 - (p_shared(raw) & 1023)) & 1023);
        if (threadIdx.x == 0) {
            for (int i = 0; i < 2 * S; i++) p_bar_init(p_shared(sh + BARS) + 8 * i, 1);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        return sh;
    }
    // The copies of tiles of rows first, first + step, ..., before `end`, in columns of tile n.
    // blocks: of K.
    DEV_IN static void load(unsigned char *sh, const p_map *a, const p_map *b, int n, int first, int step, int end, int blocks)
    {
        int s = 0, phase = 0;
        if (threadIdx.x % 128) return;
        for (int m = first; m < end; m += step)
            for (int k = 0; k < blocks; k++) {
                unsigned full = p_shared(sh + BARS) + 8 * s, to = p_shared(sh + s * STAGE);
                p_bar_wait(full + 8 * S, phase ^ 1);
                p_bar_expect(full, STAGE);
                p_copy(to, a, full, k * 64, m * BM);
                if (TB)
#pragma unroll
                    for (int c = 0; c < BN; c += 64) p_copy(to + A + c * 128, b, full, n * BN + c, k * 64);
                else
                    p_copy(to + A, b, full, k * 64, n * BN);
                if (++s == S) s = 0, phase ^= 1;
            }
    }
    // The product of the next tile of rows, rounded, as a swizzled tile at TILE.
    DEV_IN void multiply(unsigned char *sh, int blocks)
    {
        float d[MI][BN / 2];
        for (int k = 0; k < blocks; k++) {
            unsigned full = p_shared(sh + BARS) + 8 * s, at = p_shared(sh + s * STAGE);
            p_bar_wait(full, phase);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int m = 0; m < MI; m++)
                    p_wgmma<BN, TB>::run(d[m], p_operand(at + m * 64 * 128 + i * 32, 16),
                                         TB ? p_operand(at + A + i * 2048, 64 * 128) : p_operand(at + A + i * 32, 16), k + i > 0);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            if (k > 0) {
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (threadIdx.x == 0) p_bar_arrive(p_shared(sh + BARS) + 8 * (S + (s + S - 1) % S));
            }
            if (++s == S) s = 0, phase ^= 1;
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (threadIdx.x == 0) p_bar_arrive(p_shared(sh + BARS) + 8 * (S + (s + S - 1) % S));
#pragma unroll
        for (int m = 0; m < MI; m++)
#pragma unroll
            for (int j = 0; j < BN / 2; j++) asm volatile("" : "+f"(d[m][j]) :: "memory");
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int m = 0; m < MI; m++)
#pragma unroll
            for (int j = 0; j < BN / 8; j++)
#pragma unroll
                for (int up = 0; up < 2; up++) {
                    const int r = m * 64 + warp * 16 + lane / 4 + up * 8;
                    unsigned *const to = (unsigned *)(sh + TILE + r * BN * 2 + ((j ^ (r & 7)) * 16) + lane % 4 * 4);
                    *to = p_pack(d[m][4 * j + 2 * up], d[m][4 * j + 2 * up + 1]);
                }
    }
    // Eight neighbours of row r of a tile, from column 8 c on.
    DEV_IN static p_vec<p_u16, 8> at(const unsigned char *tile, int r, int c)
    {
        return *(const p_vec<p_u16, 8> *)(tile + r * BN * 2 + ((c ^ (r & 7)) * 16));
    }
};
