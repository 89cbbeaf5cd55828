"""Plimsoll beside PyTorch on an NVIDIA card: one table; see cuda.sh.

Ours runs twice, each time a new process: first with an empty cache of compiled kernels, then with what
that run left. A step's time is the card's own (events around the step), the median of the steps after
the first three; the spread is their minimum and maximum. The first step is counted from the start of
the process to the end of its first step. Memory: ours is what the driver says the process holds,
context and libraries included; PyTorch's are its peak allocated and peak reserved bytes, without them.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# Peer's workload: our configuration, and the overrides that make the peer's precision ours.
WORKLOADS = {
    "cloud": ("cloud/full", {"fp32": [], "fp16": ["precision=fp16"], "bf16": ["precision=bf16"]}),
    "cloud-small": ("cloud/memory_optimized", {"fp32": [], "fp16": ["precision=fp16"], "bf16": ["precision=bf16"]}),
}
DEFAULT_MODES = {"cloud": "fp32-eager,fp32-default,fp16-eager,fp16-eager-ckpt,fp16-default"}
MIB = 1 << 20


def ours(args, config, extra, cache):
    command = [os.path.join(args.build, "plimsoll"), "train", config, "--json", "device=cuda",
               f"train.steps={args.steps}", "eval.batches=1", *extra, *args.set]
    env = dict(os.environ, PLIMSOLL_CACHE=cache)
    begin = time.perf_counter()
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    first, steps, plan, peak = None, [], {}, 0
    for line in run.stdout:
        event = json.loads(line)
        if event["event"] == "plan":
            plan = event
        elif event["event"] == "step":
            first = first or time.perf_counter() - begin
            steps.append(event)
            peak = max(peak, event["used_bytes"])
        elif event["event"] == "end":
            peak = max(peak, event["peak_used_bytes"])
    error = run.stderr.read().strip().splitlines()
    if run.wait() != 0 or not steps:
        return {"error": error[-1] if error else f"exit {run.returncode}"}
    late = steps[3:] or steps
    card = [s.get("device_ms", s["step_ms"]) for s in late]
    wall = [s["step_ms"] for s in late]
    return {"ms": statistics.median(card), "min": min(card), "max": max(card), "wall": statistics.median(wall),
            "first": first, "peak": peak, "arena": plan.get("arena_bytes", 0), "state": plan.get("state_bytes", 0),
            "overhead": plan.get("overhead_bytes", 0), "loss": steps[-1]["loss"]}


def peers(args, workload, modes):
    command = [sys.executable, "bench/peers/bench.py", "--workload", workload, "--modes", modes, "--isolate",
               "--steps", str(args.steps), "--warmup", "3", "--device", "cuda"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def print_ours(workload, name, r):
    if "error" in r:
        return row(workload, name, "fails: " + r["error"], "", "", "", "", "")
    row(workload, name, f"{r['ms']:.1f}", f"{r['min']:.1f} - {r['max']:.1f}", f"{r['wall']:.1f}", f"{r['first']:.1f}",
        f"{(r['arena'] + r['state']) / MIB:,.0f}", f"{r['peak'] / MIB:,.0f}")


def print_peer(workload, r):
    if "error" in r:
        return row(workload, "PyTorch " + r["mode"], "fails: " + str(r["error"])[:80], "", "", "", "", "")
    row(workload, "PyTorch " + r["mode"], f"{r['step_ms']:.1f}", f"{r['step_ms_min']:.1f} - {r['step_ms_max']:.1f}", "",
        f"{r['first_step_s']:.1f}", f"{r['peak_alloc_mib']:,.0f}", f"{r['peak_reserved_mib']:,.0f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", default=["cloud"])
    p.add_argument("--build", default="build/release")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--modes", default="")
    p.add_argument("--peer", choices=("yes", "no"), default="yes")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for our runs")
    args = p.parse_args()
    row("workload", "run", "step ms", "min - max", "wall ms", "first step s", "planned / allocated MiB",
        "held / reserved MiB")
    row(*["---"] * 2, *["---:"] * 6)
    for workload in args.workloads:
        config, precisions = WORKLOADS[workload]
        modes = args.modes or DEFAULT_MODES.get(workload, "fp32-eager,fp32-default")
        wanted = {m.split("-")[0] for m in modes.split(",")}
        for precision in sorted(wanted & set(precisions)):
            keys = precisions[precision]
            runs = [("cold", []), ("warm", []), ("max-autotune", ["compile.mode=max-autotune"])]
            if f"{precision}-eager-ckpt" in modes:
                runs.append(("ckpt", ["checkpointing=blocks"]))
            cache = tempfile.mkdtemp(prefix="plimsoll-bench-")
            for name, more in runs:
                print_ours(workload, f"Plimsoll {precision} {name}", ours(args, config, keys + more, cache))
            shutil.rmtree(cache, ignore_errors=True)
        if args.peer == "yes":
            for r in peers(args, workload, modes):
                print_peer(workload, r)


if __name__ == "__main__":
    main()
