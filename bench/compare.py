"""Plimsoll beside PyTorch eager on the CPU, one run, same number of threads, f32.

  python3 bench/compare.py --build build/release [--threads 2] [--rounds 3] [ops] [step]

ops   conv, matmul, attention, GroupNorm, AdamW at five shapes each: forward, and forward + backward
step  one optimiser step of cloud, B=4, T=3, 220x320: time, and peak memory above PyTorch's import baseline

Rounds alternate between the two engines; the figure is the median of the rounds' medians. A ratio above 1
means that Plimsoll is faster. Needs PyTorch; the product itself does not.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SHAPES = {
    "conv": [(4, 110, 160, 64, 128, 3, 1), (4, 220, 320, 1, 64, 3, 1), (8, 32, 32, 128, 128, 3, 1),
             (8, 16, 16, 256, 512, 3, 2), (4, 64, 64, 96, 48, 1, 1)],
    "matmul": [(4096, 1024, 1024), (256, 256, 128), (1000, 333, 777), (2048, 128, 1280), (64, 4096, 1024)],
    "attention": [(2, 1024, 8, 16), (1, 4096, 16, 64), (2, 1024, 16, 64), (8, 64, 8, 64), (1, 333, 5, 40)],
    "groupnorm": [(8, 32, 32, 128, 32), (2, 64, 64, 320, 32), (4, 128, 128, 96, 8), (8, 8, 8, 512, 32), (1, 55, 37, 48, 8)],
    "adamw": [(1 << 24,), (1 << 20,), (536846,), (100003,), (4 << 20,)],
}


def torch_op(torch, name, s):
    """Two functions: forward, forward + backward (or the update, twice)."""
    F = torch.nn.functional
    if name == "adamw":
        w = torch.nn.Parameter(torch.randn(s[0]))
        w.grad = torch.randn(s[0])
        opt = torch.optim.AdamW([w])
        return opt.step, None
    if name == "conv":
        n, h, w_, i, o, k, stride = s
        x = torch.randn(n, i, h, w_, requires_grad=True)
        w = torch.randn(o, i, k, k, requires_grad=True)
        leaves, f = (x, w), lambda: F.conv2d(x, w, padding=k // 2, stride=stride)
    elif name == "matmul":
        x = torch.randn(s[0], s[1], requires_grad=True)
        w = torch.randn(s[2], s[1], requires_grad=True)
        leaves, f = (x, w), lambda: F.linear(x, w)
    elif name == "attention":
        b, n, h, d = s
        leaves = tuple(torch.randn(b, h, n, d, requires_grad=True) for _ in range(3))
        f = lambda: F.scaled_dot_product_attention(*leaves)
    else:
        n, h, w_, c, groups = s
        x = torch.randn(n, c, h, w_, requires_grad=True)
        g, b = torch.ones(c, requires_grad=True), torch.zeros(c, requires_grad=True)
        leaves, f = (x, g, b), lambda: F.group_norm(x, groups, g, b)
    dy = torch.randn_like(f().detach())

    def forward():
        with torch.no_grad():
            return f()

    return forward, lambda: torch.autograd.grad(f(), leaves, dy)


def clock(f):
    for _ in range(3):
        f()
    times, start = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - start < 0.5:
        t = time.perf_counter()
        f()
        times.append(1e3 * (time.perf_counter() - t))
        if len(times) >= 1000:
            break
    return statistics.median(times)


def compare_ops(args, torch):
    print("| op | shape | ours fwd ms | torch fwd ms | ratio | ours fwd+bwd ms | torch fwd+bwd ms | ratio |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name in args.only or SHAPES:
        for s in SHAPES[name]:
            ours, theirs = [], []
            for _ in range(args.rounds):
                out = subprocess.run([os.path.join(args.build, "pl_bench"), name, *map(str, s)], stdout=subprocess.PIPE,
                                     check=True, env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
                ours.append(list(json.loads(out.stdout).values()))
                forward, both = torch_op(torch, name, s)
                theirs.append([clock(forward)] + ([clock(both)] if both else []))
            a = [statistics.median(x) for x in zip(*ours)]
            b = [statistics.median(x) for x in zip(*theirs)]
            cells = [f"{x:.3f} | {y:.3f} | {y / x:.2f}" for x, y in zip(a, b)]
            print(f"| {name} | {'x'.join(map(str, s))} | " + " | ".join(cells + ["| |"] * (2 - len(cells))) + " |", flush=True)


PEER_STEP = """
import json, os, sys, time, statistics, threading
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(int(sys.argv[2]))
import cloud, common

def field(name):
    for line in open("/proc/self/status"):
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024

ctx = common.Context(common.Mode(), "cpu")
torch.randn(8, 8) @ torch.randn(8, 8)
base = field("VmRSS")
cfg = common.configure(cloud.Cloud, "full", {}, dict(batch="4", frames="3", height="220", width="320"))
work = common.build(cloud.Cloud, cfg, ctx, "full", 0)
draw = common.Draw(ctx.device, 2)
batch = work.batch(draw)
times = []
for i in range(int(sys.argv[3]) + 2):
    t = time.perf_counter()
    common.run_step(work, ctx, batch)
    times.append(1e3 * (time.perf_counter() - t))
print(json.dumps({"ms": statistics.median(times[2:]), "min": min(times[2:]), "max": max(times[2:]), "peak": field("VmHWM") - base}))
"""


def compare_step(args):
    here = os.path.dirname(os.path.abspath(__file__))
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    sizes = ["batch=4", "frames=3", "height=220", "width=320", "schedule.warmup_steps=0", "data.samples=4"]
    ours, theirs = [], []
    for _ in range(args.rounds):
        out = subprocess.run([os.path.join(args.build, "plimsoll"), "train", "cloud/full", "--json", "eval.batches=1",
                              f"train.steps={args.steps + 2}", *sizes], stdout=subprocess.PIPE, check=True, env=env)
        events = [json.loads(x) for x in out.stdout.splitlines()]
        steps = [e["step_ms"] - e["data_wait_ms"] for e in events if e["event"] == "step"][2:]
        plan = next(e for e in events if e["event"] == "plan")
        ours.append((statistics.median(steps), plan["arena_bytes"] + plan["state_bytes"], events[-1]["peak_used_bytes"]))
        out = subprocess.run([sys.executable, "-c", PEER_STEP, os.path.join(here, "peers"), str(args.threads), str(args.steps)],
                             stdout=subprocess.PIPE, check=True, env=env)
        r = json.loads(out.stdout.splitlines()[-1])
        theirs.append((r["ms"], r["peak"]))
    a, b = statistics.median(x[0] for x in ours), statistics.median(x[0] for x in theirs)
    mib = 1 / 2**20
    print(f"\ncloud step, B=4 T=3 220x320, f32, {args.threads} threads, {args.rounds} rounds of {args.steps} steps")
    print(f"  ours    {a:8.1f} ms  ({min(x[0] for x in ours):.1f} - {max(x[0] for x in ours):.1f})   "
          f"arena + state {ours[0][1] * mib:.1f} MiB, whole process {max(x[2] for x in ours) * mib:.1f} MiB")
    print(f"  torch   {b:8.1f} ms  ({min(x[0] for x in theirs):.1f} - {max(x[0] for x in theirs):.1f})   "
          f"peak above import {max(x[1] for x in theirs) * mib:.1f} MiB")
    print(f"  speed {b / a:.2f} x, memory {max(x[2] for x in ours) / max(x[1] for x in theirs):.2f} x "
          f"(whole process of ours over theirs above import)")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", nargs="*", default=["ops", "step"])
    p.add_argument("--build", default="build/release")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--only", action="append", choices=list(SHAPES))
    args = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    if "ops" in args.what:
        import torch
        torch.set_num_threads(args.threads)
        print(f"PyTorch {torch.__version__}, {args.threads} threads, f32\n")
        compare_ops(args, torch)
    if "step" in args.what:
        compare_step(args)


if __name__ == "__main__":
    main()
