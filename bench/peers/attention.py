"""Attention beside PyTorch's scaled_dot_product_attention on an NVIDIA card: one table.

    python3 bench/peers/attention.py PL_ATTENTION [--results FILE.csv] [--only TEXT] [--more no] [--peer no]

PL_ATTENTION is the program that `make build/release/pl_attention` builds. PyTorch's column is the fastest of its
backends (cuDNN, flash, memory-efficient; math below 2048 tokens), forward and backward each on its own, on operands
[batch, tokens, heads, dim] with heads transposed, as models have them. A time is the median of several rounds of
calls in a row. TFLOP/s: 4 B H N M D forward, 10 backward, half of that when causal. Nothing else should use the card.
"""
import argparse
import csv
import json
import subprocess
import sys

# batch, queries, keys, heads, heads of keys, dim, kind, type
SHAPES = """
256,197,197,6,6,64,full,bf16 64,257,257,16,16,64,full,bf16 32,577,577,12,12,64,full,bf16 8,1024,1024,16,16,64,full,bf16
16,1024,1024,12,12,64,causal,bf16 4,1024,1024,12,12,64,causal,bf16 8,2048,2048,16,16,64,causal,bf16 4,4096,4096,16,16,64,causal,bf16
2,4096,4096,16,16,64,full,bf16 2,8192,8192,12,12,64,full,bf16 1,16384,16384,12,12,64,causal,bf16 1,16384,16384,8,8,64,full,bf16
16,512,512,16,16,128,full,bf16 16,512,512,16,16,128,causal,bf16 8,1024,1024,16,16,128,causal,bf16 8,2048,2048,16,16,128,full,bf16
4,2048,2048,32,8,128,causal,bf16 2,4096,4096,32,8,128,causal,bf16 4,4096,4096,32,32,128,causal,bf16 2,8192,8192,24,24,128,full,bf16
1,8192,8192,32,4,128,causal,bf16 1,16384,16384,16,16,128,causal,bf16 2,4096,512,16,16,128,full,bf16 4,2048,2048,16,16,128,full,f16
""".split()
# Not asked for by name: other heads, masks, cross attention.
MORE = """
16,1024,1024,8,8,16,full,bf16 8,1024,1024,8,8,80,full,bf16 8,1024,1024,16,16,256,full,bf16 2,4096,77,5,5,64,full,bf16
8,1024,1024,12,12,64,bool,bf16 8,1024,1024,12,12,64,added,bf16 4,2048,2048,16,16,128,bool,f16 64,77,77,8,8,64,causal,bf16
4,1024,1024,12,12,64,bool,tf32 4,1024,1024,12,12,64,bool,f32 3,333,333,7,7,72,causal,f16 5,1000,700,6,3,96,added,bf16
""".split()


def parse(text):
    b, n, m, h, kv, d, kind, dtype = text.split(",")
    return int(b), int(n), int(m), int(h), int(kv), int(d), kind, dtype


def flops(text):
    b, n, m, h, _, d, kind, _ = parse(text)
    return 4 * b * h * n * m * d * (0.5 if kind == "causal" else 1)


def ours(program, shapes):
    found, rest = {}, list(shapes)
    while rest:  # a shape that fails ends the process: the next one goes on after it
        job = subprocess.run([program, *rest], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        rows = [json.loads(line) for line in job.stdout.splitlines() if line.startswith("{")]
        found |= {row["shape"]: row for row in rows}
        if job.returncode:
            print(f"# {rest[len(rows)]}: exit {job.returncode} {job.stderr.strip()[-200:]}", file=sys.stderr)
        rest = rest[len(rows) + 1:]
    return found


def median_ms(torch, run, rounds=7):
    run()
    run()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    calls = max(1, min(50, int(3 / max(begin.elapsed_time(end), 1e-3))))
    times = []
    for _ in range(rounds):
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return sorted(times)[rounds // 2]


def peer(text):
    """(forward ms, backend), (backward ms, backend)"""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    b, n, m, h, kv, d, kind, dtype = parse(text)
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    of = {"bf16": torch.bfloat16, "f16": torch.float16}.get(dtype, torch.float32)
    make = lambda tokens, heads: torch.randn(b, tokens, heads, d, device="cuda", dtype=of, requires_grad=True)
    q, k, v = make(n, h), make(m, kv), make(m, kv)
    mask = None
    if kind == "bool":
        mask = torch.rand(b, 1, n, m, device="cuda") < 0.8
    if kind == "added":
        mask = torch.randn(1, h, n, m, device="cuda", dtype=of)
    best = [(float("inf"), ""), (float("inf"), "")]
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        name = backend.name.split("_")[0].lower()
        if name == "math" and n * m > 2048 * 2048:
            continue

        def forward():
            return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask,
                                                  is_causal=kind == "causal", enable_gqa=kv != h)
        try:
            with sdpa_kernel(backend):
                y = forward()
                seed = torch.randn_like(y)
                times = (median_ms(torch, forward),
                         median_ms(torch, lambda: torch.autograd.grad(y, (q, k, v), seed, retain_graph=True)))
        except (RuntimeError, torch.OutOfMemoryError):
            continue
        best = [min(best[i], (times[i], name)) for i in range(2)]
    return best


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--results")
    p.add_argument("--only", default="")
    p.add_argument("--more", default="yes", help="no: the first 24 shapes alone")
    p.add_argument("--peer", default="yes")
    args = p.parse_args()
    shapes = [s for s in SHAPES + (MORE if args.more == "yes" else []) if args.only in s]
    mine = ours(args.program, shapes)
    columns = ["shape", "ours_fwd_ms", "ours_bwd_ms", "sdpa_fwd_ms", "sdpa_bwd_ms", "ours_fwd_tflops", "ours_bwd_tflops",
               "sdpa_fwd_tflops", "sdpa_bwd_tflops", "fwd", "bwd", "sdpa_kernels", "kernels", "scratch_mib"]
    rows = []
    for text in shapes:
        a = mine.get(text)
        theirs = peer(text) if args.peer == "yes" else [(float("nan"), ""), (float("nan"), "")]
        if not a:
            rows.append([text] + [""] * (len(columns) - 1))
            continue
        f = flops(text)
        ms = [a["forward_ms"], a["backward_ms"], theirs[0][0], theirs[1][0]]
        rate = [f * (1, 2.5)[i % 2] / t / 1e9 for i, t in enumerate(ms)]
        rows.append([text] + [f"{t:.4f}" for t in ms] + [f"{r:.0f}" for r in rate] +
                    [f"{rate[0] / rate[2]:.2f}", f"{rate[1] / rate[3]:.2f}", f"{theirs[0][1]}/{theirs[1][1]}", a["kernels"],
                     f"{a['scratch'] / 2**20:.0f}"])
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
        if args.results:
            with open(args.results, "w", newline="") as f:
                csv.writer(f).writerows([columns] + rows)


if __name__ == "__main__":
    main()
