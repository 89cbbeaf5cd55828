"""Plimsoll beside PyTorch on an NVIDIA card: one table; see cuda.sh.

Ours (bench/pl_step.c) runs in new processes: first with an empty cache of compiled kernels, then with
what that run left, then with algorithms chosen by timing. Each PyTorch mode is a process of its own with
an empty cache, and is given up when it takes longer than its share of the time.

A step's time is the card's own, its inputs made beforehand, the median of the steps after a warm-up of
three; the spread is their minimum and maximum. Ours uploads its inputs in every step: "wall ms" is a step
of a row of steps with that and everything else; PyTorch's inputs lie on the card. "first step s": ours is
counted from the start of the process, planning and the card's start-up included; PyTorch's from the call of
the first step, without building the model. Memory: ours is the plan (arena and state), and what the driver
says the process holds, context and libraries included; PyTorch's are its peak allocated and peak reserved
bytes, without context and libraries.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Peer's workload: our configuration at full and at toy size, and the peer's modes. The first one's precision
# is the authors' own.
CLOUD = "fp16-eager,fp16-default,fp16-eager-ckpt,fp16-max-autotune,bf16-default,tf32-default,fp32-eager"
LGT = "bf16-eager,bf16-default,bf16-eager-ckpt,bf16-max-autotune,fp32-eager"
FLUX = "fp32-eager,fp32-default,fp32-eager-ckpt,tf32-eager,bf16-eager"
WORKLOADS = {
    "cloud": ("cloud/full", "cloud/tiny", CLOUD),
    "cloud-small": ("cloud/memory_optimized", "cloud/tiny", CLOUD),
    "lgt": ("lgt/full", "lgt/tiny", LGT),
    "fluxflow-vae+gan+lpips": ("fluxflow/full", "fluxflow/peer", FLUX),
}
MIB = 1 << 20


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def run(command, limit, **env):
    """Output of a command, or the word that says why there is none."""
    try:
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, **env), start_new_session=True)
    except OSError as e:
        return None, f"fails: {e}"
    try:
        out, err = job.communicate(timeout=max(limit, 1))
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)  # with its compile workers, which hold the pipes too
        job.communicate()
        return None, f"n/a (not done in {limit:.0f} s)"
    result = last_json(out)
    if job.returncode != 0 or result is None:
        words = (err.strip().splitlines() or [f"exit {job.returncode}"])[-1]
        return None, "fails: " + words[:120].replace("|", "/")
    return result, None


def ours(args, workload, precision, keys, cache):
    config = WORKLOADS[workload][args.scale == "tiny"]
    command = [os.path.join(args.build, "pl_step"), config, str(args.steps), f"device={args.device}",
               f"precision={precision}", *keys, *args.set]
    r, why = run(command, min(120, left(args)), PLIMSOLL_CACHE=cache)
    return r and {"ms": r["device_ms"], "min": r["device_min"], "max": r["device_max"], "wall": r["wall_ms"],
                  "first": r["first_s"], "planned": (r["arena_bytes"] + r["state_bytes"]) / MIB,
                  "held": r["used_bytes"] / MIB}, why


def peer(args, workload, mode, limit):
    command = [sys.executable, "bench/peers/bench.py", "--workload", workload, "--modes", mode, "--steps", str(args.steps),
               "--warmup", "3", "--device", args.device, "--scale", args.scale]
    cache = tempfile.mkdtemp(prefix="inductor-")
    r, why = run(command, limit, TORCHINDUCTOR_CACHE_DIR=cache)
    shutil.rmtree(cache, ignore_errors=True)
    if r and "error" in r:
        r, why = None, "fails: " + str(r["error"])[:120].replace("|", "/").replace("\n", " ")
    return r and {"ms": r["step_ms"], "min": r["step_ms_min"], "max": r["step_ms_max"], "wall": None,
                  "first": r["first_step_s"], "planned": r.get("peak_alloc_mib"), "held": r.get("peak_reserved_mib")}, why


def left(args):
    return args.limit - (time.perf_counter() - args.begin)


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def show(workload, name, r, why):
    if not r:
        return row(workload, name, why, "", "", "", "", "")
    number = lambda v, form: "" if v is None else format(v, form)
    row(workload, name, f"{r['ms']:.2f}", f"{r['min']:.2f} - {r['max']:.2f}", number(r["wall"], ".2f"),
        f"{r['first']:.1f}", number(r["planned"], ",.0f"), number(r["held"], ",.0f"))


def compare(workload, precision, mine, theirs):
    """Our best beside the fastest PyTorch mode of the same precision and choice of checkpoints."""
    for ckpt, word in ((False, ""), (True, " with checkpoints")):
        a = [r for name, r in mine.items() if ("blocks" in name) == ckpt]
        b = [(r["ms"], mode, r) for mode, r in theirs.items()
             if mode.startswith(precision + "-") and mode.endswith("ckpt") == ckpt]
        if not a or not b:
            continue
        best, (_, mode, r) = min(a, key=lambda x: x["ms"]), min(b)
        text = f"{workload} {precision}{word}: {best['ms']:.2f} ms, {best['ms'] / r['ms']:.2f} of PyTorch {mode}"
        if r["held"]:
            text += f"; holds {best['held']:,.0f} MiB, {best['held'] / r['held']:.2f} of what it reserves"
        yield text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", default=["cloud"])
    p.add_argument("--build", default="build/release")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--modes", default="", help="PyTorch's, in this order, e.g. " + CLOUD)
    p.add_argument("--peer", choices=("yes", "no"), default="yes")
    p.add_argument("--limit", type=float, default=280, help="seconds for everything")
    p.add_argument("--mode-limit", type=float, default=130, help="seconds for one PyTorch mode")
    p.add_argument("--device", default="cuda")
    p.add_argument("--scale", choices=("full", "tiny"), default="full")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for our runs")
    args = p.parse_args()
    args.begin = time.perf_counter()
    row("workload", "run", "step ms", "min - max", "wall ms", "first step s", "planned / allocated MiB",
        "held / reserved MiB")
    row(*["---"] * 2, *["---:"] * 6)
    words = []
    for workload in args.workloads:
        modes = (args.modes or WORKLOADS[workload][2]).split(",")
        mine, theirs = {}, {}
        for precision in dict.fromkeys(m.split("-")[0] for m in modes):
            runs = [("cold", []), ("warm", []), ("max-autotune", ["compile.mode=max-autotune"])]
            if any(m == f"{precision}-eager-ckpt" for m in modes):
                runs.append(("blocks computed again", ["checkpointing=blocks"]))
            cache = tempfile.mkdtemp(prefix="plimsoll-bench-")
            for name, keys in runs if precision == modes[0].split("-")[0] else runs[:2]:
                r, why = ours(args, workload, precision, keys, cache)
                show(workload, f"Plimsoll {precision} {name}", r, why)
                if r:
                    mine.setdefault(precision, {})[name] = r
            shutil.rmtree(cache, ignore_errors=True)
        for mode in modes if args.peer == "yes" else []:
            limit = min(args.mode_limit, left(args))
            if left(args) < 15:
                show(workload, "PyTorch " + mode, None, "n/a (no time left)")
                continue
            r, why = peer(args, workload, mode, limit)
            show(workload, "PyTorch " + mode, r, why)
            if r:
                theirs[mode] = r
        for precision, r in mine.items():
            words += compare(workload, precision, r, theirs)
    print("\n" + "\n".join(words) + f"\n{time.perf_counter() - args.begin:.0f} s")


if __name__ == "__main__":
    main()
