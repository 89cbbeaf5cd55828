"""Plimsoll beside PyTorch on an NVIDIA card: one table; see cuda.sh.

Ours (bench/pl_step.c) runs in new processes: first with an empty cache of compiled kernels, then with
what that run left, then with algorithms chosen by timing; after PyTorch's runs once more ("0.6") under a budget of
0.6 of the least that one of them reserved. Each PyTorch mode is a process of its own with
an empty cache, and is given up when it takes longer than its share of the time; a mode with autotuning has a
limit of its own. With --peer-cache modes keep what they compiled, so that a second call can finish what the
first could not (its time to the first step is then no cold one and is left out): PyTorch keeps every timing as it
is made, so that a tuning that was given up goes on from where it was. "max-autotune-library" is max-autotune with the
kernels of PyTorch's libraries as its only candidates for products and convolutions, for networks whose tuning takes hours.

Results are kept in a file (--results), a line for each run, and a run that is repeated replaces its line: a
call may do one workload and one mode, and --table prints what all calls have gathered.

A step's time is the card's own, its inputs made beforehand, the median of the steps after a warm-up of
three; the spread is their minimum and maximum. Ours uploads its inputs in every step: "wall ms" is a step
of a row of steps with that and everything else; PyTorch's inputs lie on the card. "first step s": ours is
counted from the start of the process, planning and the card's start-up included; PyTorch's from the call of
the first step, without building the model. Memory: ours is the plan (arena and state), and what the driver
says the process holds, context and libraries included; PyTorch's are its peak reserved bytes, without context
and libraries, and what the driver says the card holds at the end.
"""
import argparse
import array
import atexit
import csv
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Peer's workload: our configuration at full and at toy size, what of it is as the peer has it, and the peer's
# modes. The first mode's precision is the authors' own.
CLOUD = "fp16-eager,fp16-default,fp16-eager-ckpt,fp16-max-autotune,bf16-default,tf32-default,fp32-eager"
LGT = "bf16-eager,bf16-default,bf16-eager-ckpt,bf16-max-autotune,fp32-eager"
PLAIN = "fp32-eager,fp32-default,fp32-eager-ckpt,fp32-max-autotune,bf16-default"
WHOLE = ["memory=null", "card=null"]  # the preset's own budget is for a smaller card
IMAGENET = ["model.classes=1000", *WHOLE]
TOKENS = os.path.join(tempfile.gettempdir(), f"plimsoll-bench-tokens-{os.getpid()}.bin")  # made by main
GPT2 = ["accumulate=1", "model.vocabulary=50304", f"data.tokens={TOKENS}", *WHOLE]
WORKLOADS = {
    "cloud": ("cloud/full", "cloud/tiny", [], CLOUD),
    "cloud-small": ("cloud/memory_optimized", "cloud/tiny", [], CLOUD),
    "lgt": ("lgt/full", "lgt/tiny", [], LGT),
    "wandistill": ("wandistill/full", "wandistill/tiny", [], PLAIN),
    "stablesr-full": ("stablesr/full", "stablesr/tiny", [], PLAIN),
    "stablesr-edge-after": ("stablesr/edge_after", None, ["batch=2"], PLAIN),
    "stablesr-edge-before": ("stablesr/edge_before", None, ["batch=2", "memory=null"], PLAIN),
    "fluxflow-vae+gan+lpips": ("fluxflow/full", "fluxflow/peer", ["image=256"], PLAIN),
    # Networks of the recipes for own data; their peers are in bench/peers/own.py.
    "resnet50": ("classify/card8", "classify/tiny", ["network=resnet50", "batch=128", *IMAGENET], "bf16-default"),
    "vit-small": ("classify/card8", "classify/tiny", ["network=vit_small", "batch=256", *IMAGENET], "bf16-default"),
    "convnext-tiny": ("classify/card8", "classify/tiny", ["network=convnext_tiny", "batch=128", *IMAGENET], "bf16-default"),
    "gpt2": ("text/card24", "text/tiny", ["batch=16", *GPT2], "bf16-default"),
    "gpt2-b4": ("text/card24", "text/tiny", ["batch=4", *GPT2], "bf16-default"),
    # Networks of bench/nets.c.
    "llama": ("pl_nets.so", "pl_nets.so", [], "bf16-default"),
    "dit": ("pl_nets.so", "pl_nets.so", ["net=dit", "batch=128", "context=256", "model.width=768", "model.heads=12",
                                         "model.vocabulary=1000", "optim.weight_decay=0", "clip.norm=0"], "bf16-default"),
    "unet": ("segment/card8", "segment/tiny", WHOLE, "bf16-default"),
    "gpt-bytes": ("text/card24", "text/tiny", ["batch=16", "accumulate=1", *WHOLE], "bf16-default"),
}
TINY = ["batch=2", "context=16", "model.width=32", "model.heads=4", "model.kv_heads=2", "model.layers=2",
        "model.hidden=64", "model.vocabulary=50"]  # of bench/nets.c
ALONE = {"gpt-bytes"}  # no peer
# Random whole numbers of the inputs are below this, as in the peer.
INTS = {"gpt2": 50257, "gpt2-b4": 50257, "llama": 32000, "dit": 1000, "resnet50": 1000, "vit-small": 1000, "convnext-tiny": 1000, "unet": 2}
LEAST = {"fluxflow-vae+gan+lpips": 16}  # steps that show every kind of step; the peer has its own
FIVE = ["cloud", "lgt", "wandistill", "stablesr-full", "fluxflow-vae+gan+lpips"]
OURS = ["cold", "warm", "max-autotune", "blocks"]
LIBRARY = "-library"  # a mode that tunes among the kernels of PyTorch's libraries alone, without Triton's for products
ONLY_LIBRARY = {f"TORCHINDUCTOR_MAX_AUTOTUNE_{what}_BACKENDS": "ATEN" for what in ("GEMM", "CONV")}
SHARE = 0.6
SMALL = f"{SHARE}"  # our run under that share of PyTorch's memory
MIB = 1 << 20
COLUMNS = ["workload", "side", "precision", "run", "ms", "min", "max", "wall", "first", "planned", "held", "reserved",
           "mapped", "why", "steps"]


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
        _, err = job.communicate()
        tuned = sum(text.startswith("AUTOTUNE ") for text in err.splitlines())
        return None, f"n/a (not done in {limit:.0f} s" + (f"; {tuned} products and convolutions tuned)" if tuned else ")")
    result = last_json(out)
    if job.returncode != 0 or result is None:
        words = (err.strip().splitlines() or [f"exit {job.returncode}"])[-1]
        return None, "fails: " + words[:120].replace("|", "/")
    return result, None


def ours(args, workload, precision, name, cache, budget=None):
    full, tiny, keys, _ = WORKLOADS[workload]
    keys = [] if args.scale == "tiny" else list(keys)
    keys += {"max-autotune": ["compile.mode=max-autotune"], "blocks": ["checkpointing=blocks"],
             SMALL: [f"memory={budget}"]}.get(name, [])
    steps = max(args.steps, LEAST.get(workload, 1)) if args.scale == "full" else args.steps
    config = tiny if args.scale == "tiny" else full
    if config.endswith(".so"):
        config = os.path.join(args.build, config)
        keys = TINY + keys if args.scale == "tiny" else keys
    command = [os.path.join(args.build, "pl_step"), config, str(steps),
               f"device={args.device}", f"precision={precision}", *keys, *args.set]
    r, why = run(command, min(180, left(args)), PLIMSOLL_CACHE=cache,
                 INTS=str(INTS.get(workload, 0) if args.scale == "full" else 0))
    return r and {"ms": r["device_ms"], "min": r["device_min"], "max": r["device_max"], "wall": r["wall_ms"],
                  "first": r["first_s"], "planned": (r["arena_bytes"] + r["state_bytes"]) / MIB,
                  "mapped": (r["mapped_bytes"] + r["state_bytes"]) / MIB, "held": r["used_bytes"] / MIB,
                  "steps": r["steps"]}, why


def assembler():
    """The assembler that PyTorch's compile workers use. Its main process takes Triton's, which is another version, finds
    nothing of what they compiled under its own name, and compiles every candidate of a tuning again, one after the other;
    told which to take, both agree."""
    torch = importlib.util.find_spec("torch")
    path = os.path.join(os.path.dirname(torch.origin), "bin", "ptxas") if torch and torch.origin else ""
    return {"TRITON_PTXAS_PATH": path} if os.access(path, os.X_OK) else {}


def peer(args, workload, mode):
    tuned, library = "max-autotune" in mode, mode.endswith(LIBRARY)
    limit = min(args.tune_limit if tuned else args.mode_limit, left(args))
    command = [sys.executable, "bench/peers/bench.py", "--workload", workload, "--modes", mode.removesuffix(LIBRARY),
               "--steps", str(args.steps), "--warmup", "3", "--device", args.device, "--scale", args.scale]
    kept = os.path.join(args.peer_cache, f"{workload}-{mode}") if args.peer_cache else None
    warm = kept and os.path.isdir(kept)
    cache = kept or tempfile.mkdtemp(prefix="inductor-")
    r, why = run(command, limit, TORCHINDUCTOR_CACHE_DIR=cache, TRITON_CACHE_DIR=os.path.join(cache, "triton"),
                 **assembler(), **(ONLY_LIBRARY if library else {}))
    if not kept:
        shutil.rmtree(cache, ignore_errors=True)
    if r and "error" in r:
        r, why = None, "fails: " + str(r["error"])[:120].replace("|", "/").replace("\n", " ")
    return r and {"ms": r["step_ms"], "min": r["step_ms_min"], "max": r["step_ms_max"],
                  "first": None if warm else r["first_step_s"], "planned": r.get("peak_alloc_mib"),
                  "reserved": r.get("peak_reserved_mib"), "held": r.get("held_mib"), "steps": r["steps"]}, why


def left(args):
    return args.limit - (time.perf_counter() - args.begin)


# ------------------------------------------------------------------ results

def key_of(r):
    return tuple(r[c] for c in ("workload", "side", "precision", "run"))


def load(path):
    if not path or not os.path.exists(path):
        return {}
    with open(path, newline="") as f:
        rows = [{c: row.get(c, "") for c in COLUMNS} for row in csv.DictReader(f)]
    for r in rows:
        for c in COLUMNS[4:13]:
            r[c] = float(r[c]) if r[c] else None
    return {key_of(r): r for r in rows}


def save(path, results):
    if not path:
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".tmp", "w", newline="") as f:
        out = csv.DictWriter(f, COLUMNS)
        out.writeheader()
        for r in results.values():
            out.writerow({c: "" if r.get(c) is None else r[c] if isinstance(r[c], str) else f"{r[c]:.6g}" for c in COLUMNS})
    os.replace(path + ".tmp", path)


def note(args, results, workload, side, precision, name, r, why):
    """A run that gave nothing does not replace one that did."""
    row = {c: None for c in COLUMNS} | dict(workload=workload, side=side, precision=precision, run=name, why=why or "") | (r or {})
    old = results.get(key_of(row))
    if r or not old or old["ms"] is None:
        results[key_of(row)] = row
    save(args.results, results)
    show(row)


# ------------------------------------------------------------------ tables

def line(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def head():
    line("workload", "run", "step ms", "min - max", "wall ms", "first step s", "planned / allocated MiB",
         "reserved MiB", "held MiB")
    line(*["---"] * 2, *["---:"] * 7)


def show(r):
    name = f"{r['side']} {r['precision']} {r['run']}"
    if r["ms"] is None:
        return line(r["workload"], name, r["why"], *[""] * 6)
    number = lambda v, form: "" if v is None else format(v, form)
    spread = "" if r["min"] is None else f"{r['min']:.2f} - {r['max']:.2f}"
    line(r["workload"], name, f"{r['ms']:.2f}", spread, number(r["wall"], ".2f"), number(r["first"], ".1f"),
         number(r["planned"], ",.0f"), number(r["reserved"], ",.0f"), number(r["held"], ",.0f"))


def compare(results, workload):
    """Our best beside the fastest PyTorch mode of the same precision and choice of checkpoints."""
    rows = [r for r in results.values() if r["workload"] == workload and r["ms"] is not None]
    for precision in dict.fromkeys(r["precision"] for r in rows):
        for again, word in ((False, ""), (True, " with checkpoints")):
            of = lambda side: [r for r in rows if r["side"] == side and r["precision"] == precision and
                               (r["run"] == "blocks" or r["run"].endswith("ckpt")) == again]
            mine, theirs = [r for r in of("Plimsoll") if r["run"] != SMALL], of("PyTorch")
            if not mine or not theirs:
                continue
            a, b = (min(x, key=lambda r: r["ms"]) for x in (mine, theirs))
            text = f"{workload} {precision}{word}: {a['ms']:.2f} ms, {a['ms'] / b['ms']:.2f} of PyTorch {b['run']}"
            if b["reserved"]:
                text += f"; holds {a['held']:,.0f} MiB, {a['held'] / b['reserved']:.2f} of what it reserves"
            if b["held"]:
                text += f", {a['held'] / b['held']:.2f} of what its process holds"
            small = [r for r in of("Plimsoll") if r["run"] == SMALL]
            if small:
                text += f"; in {small[0]['held']:,.0f} MiB {small[0]['ms']:.2f} ms, {small[0]['ms'] / b['ms']:.2f} of it"
            yield text


def tf32_against_fp32(results, workload):
    """TF32 must not be slower than f32: the steps of both precisions, where both were measured."""
    least = {}
    for r in results.values():
        if r["workload"] == workload and r["side"] == "Plimsoll" and r["ms"] is not None and r["run"] not in ("blocks", SMALL):
            least[r["precision"]] = min(r["ms"], least.get(r["precision"], r["ms"]))
    if "tf32" in least and "fp32" in least:
        tf32, fp32 = least["tf32"], least["fp32"]
        yield f"{workload}: tf32 {tf32:.2f} ms, fp32 {fp32:.2f} ms" + (": TF32 IS SLOWER" if tf32 > fp32 else "")


def words(results):
    for workload in dict.fromkeys(r["workload"] for r in results.values()):
        yield from compare(results, workload)
        yield from tf32_against_fp32(results, workload)


# ------------------------------------------------------------------ what is asked for

def run_ours(args, results, workload, modes):
    for precision in dict.fromkeys(m.split("-")[0] for m in modes):
        names = OURS if precision == modes[0].split("-")[0] else OURS[:2]
        if f"{precision}-eager-ckpt" not in modes and args.ours == "all":
            names = [n for n in names if n != "blocks"]
        if args.ours != "all":
            names = [n for n in args.ours.split(",") if n != SMALL]
        cache = tempfile.mkdtemp(prefix="plimsoll-bench-")
        for name in names:
            r, why = ours(args, workload, precision, name, cache)
            note(args, results, workload, "Plimsoll", precision, name, r, why)
        shutil.rmtree(cache, ignore_errors=True)


def run_small(args, results, workload, precision):
    reserved = [r["reserved"] for r in results.values() if r["workload"] == workload and r["side"] == "PyTorch" and
                r["precision"] == precision and r["reserved"] and not r["run"].endswith("ckpt")]
    if reserved:
        cache = tempfile.mkdtemp(prefix="plimsoll-bench-")
        r, why = ours(args, workload, precision, SMALL, cache, int(SHARE * min(reserved) * MIB))
        note(args, results, workload, "Plimsoll", precision, SMALL, r, why)
        shutil.rmtree(cache, ignore_errors=True)


def run_peers(args, results, workload, modes):
    for mode in modes:
        precision, name = mode.split("-", 1)
        if left(args) < 15:
            note(args, results, workload, "PyTorch", precision, name, None, "n/a (no time left)")
            continue
        r, why = peer(args, workload, mode)
        note(args, results, workload, "PyTorch", precision, name, r, why)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", help=", ".join(WORKLOADS) + "; none: the five")
    p.add_argument("--build", default="build/release")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--modes", default="", help="PyTorch's, in this order, e.g. " + CLOUD)
    p.add_argument("--peer", choices=("yes", "no"), default="yes")
    p.add_argument("--ours", default="all", help="all, none, or some of " + ",".join([*OURS, SMALL]))
    p.add_argument("--limit", type=float, default=280, help="seconds for everything")
    p.add_argument("--mode-limit", type=float, default=130, help="seconds for one PyTorch mode")
    p.add_argument("--tune-limit", type=float, default=900, help="seconds for a PyTorch mode with autotuning")
    p.add_argument("--peer-cache", help="where PyTorch's modes keep what they compile")
    p.add_argument("--results", help="FILE.csv that the results are merged into")
    p.add_argument("--table", action="store_true", help="only prints what the file has")
    p.add_argument("--device", default="cuda")
    p.add_argument("--scale", choices=("full", "tiny"), default="full")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for our runs")
    args = p.parse_args()
    args.begin = time.perf_counter()
    if any(name.startswith("gpt2") for name in args.workloads):
        with open(TOKENS, "wb") as f:
            array.array("H", (random.Random(0).choices(range(50257), k=200_000))).tofile(f)
        atexit.register(os.remove, TOKENS)
    results = load(args.results)
    head()
    if args.table:
        for r in results.values():
            show(r)
    for workload in [] if args.table else args.workloads or FIVE:
        modes = (args.modes or WORKLOADS[workload][3]).split(",")
        if args.ours != "none":
            run_ours(args, results, workload, modes)
        if args.peer == "yes" and workload not in ALONE:
            run_peers(args, results, workload, modes)
        if args.ours == "all" or SMALL in args.ours.split(","):
            run_small(args, results, workload, modes[0].split("-")[0])
    print("\n" + "\n".join(words(results)) + f"\n{time.perf_counter() - args.begin:.0f} s")


if __name__ == "__main__":
    main()
