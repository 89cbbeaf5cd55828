"""Measures the f32 error of plimsoll and of PyTorch against f64, on randomly drawn small settings of every workload.

  /opt/oracle/bin/python3 bench/peers/accuracy.py build/release/plimsoll [SEED] [COUNT]
  ONLY=lgt-plus,cloud ...        some workloads alone
  KEEP=DIR ...                   keeps the dumps there, and reuses dumps of the same settings
  CASE="lgt-plus 23 latent=4" ...  one setting: workload, seed, fields; separate several with ";"

A setting is trained for five steps by PyTorch in f32, by PyTorch in f64 from the same weights and inputs, and by
plimsoll's replay in f32.  A row has the worst relative error of the loss terms and the worst norm-wise error of the
gradients between plimsoll and PyTorch (what `replay` bounds), and of either against f64.

Where an element of a gradient is only rounding error, Adam still makes a full step of the learning rate, in a random
direction; in some settings one such step changes a loss by 1e-5.  So PyTorch's distance is the worst of NUDGES + 1
runs: one from the given weights, the others from weights moved by one unit in the last place; before a row counts as a
failure, up to MOST runs.  A row fails when plimsoll is farther from PyTorch than replay's bounds, and farther from f64
than the bound and than 3 times PyTorch's distance.  A row in which PyTorch's own distance exceeds the bounds is marked:
there two programs agree by chance only.  A bf16 teacher is rounded at different places by each program: every such row
is marked, and its bound is 3 times PyTorch's distance.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

LOSS, GRADIENT, TIMES, NOISE, NUDGES, MOST = 1e-5, 1e-4, 3.0, 1e-5, 2, 32
HERE = os.path.dirname(os.path.abspath(__file__))
PASSES = {"lgt": "lgt lgt-shrinking lgt-plus", "cloud": "cloud cloud-small", "wandistill": "wandistill wandistill-sdpa",
          "stablesr": "stablesr-edge-before stablesr-edge-after stablesr-full",
          "fluxflow": "fluxflow-vae fluxflow-vae+lpips fluxflow-vae+gan+lpips fluxflow-flow"}


# ------------------------------------------------------------------ drawing

def cloud(r):
    return dict(batch=r.randint(2, 5), frames=r.randint(1, 4), height=r.randint(12, 40), width=r.randint(12, 40),
                channels=[r.randint(3, 20) for _ in range(3)], dense=[r.randint(4, 30) for _ in range(2)],
                film_hidden=r.randint(4, 30), mining_fraction=round(r.random(), 2))


def lgt(r):
    return dict(batch=r.randint(1, 4), latent=4 * r.randint(1, 3), cond=2 * r.randint(4, 16), ode_steps=r.randint(1, 4),
                styles=r.randint(2, 4), projections=r.randint(2, 20), samples=r.randint(8, 64), positions=r.randint(4, 16),
                encoder_blocks=r.randint(1, 2), decoder_blocks=r.randint(1, 2), accumulate=r.randint(1, 3))


def wandistill(r):
    heads, theads = r.randint(1, 3), r.randint(1, 3)
    return dict(batch=r.randint(1, 3), latent=2 * r.randint(2, 6), hidden=heads * 4 * r.randint(2, 6), heads=heads,
                depth=r.randint(1, 3), text_tokens=r.randint(1, 9), text_dim=r.randint(4, 30), teacher_heads=theads,
                teacher_dim=theads * 12 * r.randint(1, 3), teacher_ffn=r.randint(8, 70), teacher_layers=r.randint(1, 2),
                teacher_dtype=r.choice(["fp32", "fp32", "bf16"]))


def stablesr(r):
    return dict(batch=r.randint(2, 3), image=32 * r.randint(1, 2), stem=r.randint(4, 12), accumulate=r.randint(1, 3),
                lr=r.choice([5e-5, 1e-4]), head_dim=r.choice([8, 16]))


def fluxflow(r):
    return dict(batch=r.randint(1, 3), image=16 * r.randint(1, 2), layers=r.randint(1, 2), heads=r.choice([1, 2, 4]),
                lr=r.choice([1e-5, 1e-4]), flow_layers=r.randint(1, 3), text=r.randint(4, 40))


def draw(seed, count):
    """Takes the recipes in turn. Every number depends on the seed and the row number only."""
    names = list(PASSES)
    for i in range(count):
        r, recipe = random.Random(f"{seed} {i}"), names[i % len(names)]
        workload = r.choice(PASSES[recipe].split())
        fields = globals()[recipe](r)
        if workload == "lgt-plus":
            fields.pop("styles")       # the variant names the weights of two
        if workload == "stablesr-full":
            fields.update(latent=fields["image"] // 8)
        yield workload, r.randint(1, 999), fields


# ------------------------------------------------------------------ the two programs

def make_dump(setting, folder, kind, **options):
    import bench
    import common
    workload, seed, fields = setting
    cls, variant = bench.WORKLOADS[workload]
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in fields.items()}
    cfg = common.configure(cls, "tiny", variant, dict(texts, **bench.DOUBLES) if kind == "double" else texts)
    common.dump(workload, cls, cfg, f"{folder}.{kind}", "cpu", seed, **options)
    return os.path.join(f"{folder}.{kind}", workload)


def make_dumps(todo, folder, double):
    """Runs in a separate process for each type, because f64 changes PyTorch's defaults."""
    import bench
    if double:
        bench.use_doubles()
    for i, setting in enumerate(todo):
        own = os.path.join(folder, str(i))
        if double:
            make_dump(setting, own, "double", again=f"{own}.single")
            continue
        make_dump(setting, own, "single")
        for k in range(NUDGES):
            make_dump(setting, own, f"nudge{k}", nudge=k)


def nudge_on(setting, folder, far, enough):
    """Adds nudged runs until one is `enough` far from f64, or until there are MOST."""
    double = os.path.join(f"{folder}.double", setting[0])
    for k in range(NUDGES, MOST):
        if enough(far):
            break
        far = worst(far, peer_distance(make_dump(setting, folder, "nudge", nudge=k), double))
    return far


def dump_all(binary, todo, folder):
    """Starts one single-threaded process for each type: the settings are small."""
    os.makedirs(folder, exist_ok=True)
    for kind in ("single", "double"):
        done, text = os.path.join(folder, f"{kind}.done"), json.dumps(todo)
        if os.path.exists(done) and open(done).read() == text:
            continue
        with open(os.path.join(folder, "todo.json"), "w") as f:
            f.write(text)
        subprocess.run([sys.executable, os.path.join(HERE, "accuracy.py"), binary, kind, folder], check=True,
                       env=dict(os.environ, OMP_NUM_THREADS="1"))
        with open(done, "w") as f:
            f.write(text)


def replay(binary, path):
    done = subprocess.run([binary, "replay", "--json", path], capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout else {"error": done.stderr.strip()}


def tensors(path):
    import common
    return common.load_doubles(path)


def mixed(single, double, out):
    """Returns a dump with the start of `single` and the results of f64."""
    import common
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    for name in os.listdir(single):
        if name.startswith(("init", "inputs")):
            os.symlink(os.path.join(single, name), os.path.join(out, name))
    for name in ("grads.safetensors", "final.safetensors"):
        kinds = common.load_tensors(os.path.join(single, name))
        common.save_tensors(os.path.join(out, name), {k: v.to(kinds[k].dtype) for k, v in
                                                      tensors(os.path.join(double, name)).items()})
    meta, true = (json.load(open(os.path.join(d, "meta.json"))) for d in (single, double))
    with open(os.path.join(out, "meta.json"), "w") as f:
        json.dump(dict(meta, steps=true["steps"]), f)


def peer_distance(single, double):
    """Distance of PyTorch's f32 from its f64: worst loss term, worst gradient above rounding error."""
    steps = [json.load(open(os.path.join(d, "meta.json")))["steps"] for d in (single, double)]
    loss = max(abs(a[k] - b[k]) / max(abs(b[k]), 1e-12) for a, b in zip(*steps) for k in a)
    got, want = (tensors(os.path.join(d, "grads.safetensors")) for d in (single, double))
    largest = max(float(v.norm()) for v in want.values())
    return loss, max(float((got[k] - v).norm() / v.norm()) for k, v in want.items() if v.norm() >= NOISE * largest)


def worst(*far):
    return tuple(max(d[j] for d in far) for j in (0, 1))


def too_far(ours, peer):
    """Whether losses, and gradients of the first step, are too far. Later gradients depend on chance."""
    return [o > bound and o > TIMES * p for o, p, bound in zip(ours, peer, (LOSS, GRADIENT))]


def verdict(r):
    if r["between"][0] <= LOSS and r["between"][1] <= GRADIENT:
        return "agree"
    return "OURS IS OFF" if any(too_far(r["ours"], r["peer"])) else "PyTorch is as far"


def row(binary, folder, i, setting):
    own = os.path.join(folder, str(i))
    single, double = (os.path.join(f"{own}.{k}", setting[0]) for k in ("single", "double"))
    both = f"{own}.mixed"
    mixed(single, double, both)
    a, b = replay(binary, single), replay(binary, both)
    if "error" in a or "error" in b:
        return {"error": a.get("error") or b.get("error")}
    near = [single] + [os.path.join(f"{own}.nudge{k}", setting[0]) for k in range(NUDGES)]
    far = [peer_distance(d, double) for d in near]
    r = {"between": (a["worst_loss"], a["worst_gradient"]), "ours": (b["worst_loss"], b["worst_gradient"]),
         "as it is": far[0], "peer": worst(*far)}
    if verdict(r) == "OURS IS OFF":
        r["peer"] = nudge_on(setting, own, r["peer"], lambda peer: too_far(r["ours"], peer) != [True, False])
    return r


def one_case(text):
    name, number, *fields = text.split()
    return name, int(number), dict(f.split("=", 1) for f in fields)


def main():
    binary = os.path.abspath(sys.argv[1])
    if len(sys.argv) > 3 and sys.argv[2] in ("single", "double"):
        return make_dumps(json.load(open(os.path.join(sys.argv[3], "todo.json"))), sys.argv[3], sys.argv[2] == "double")
    seed, count = (int(x) for x in (sys.argv[2:] + ["1", "20"][len(sys.argv) - 2:]))
    todo = list(draw(seed, count))
    only = [k for k in os.environ.get("ONLY", "").split(",") if k]
    todo = [t for t in todo if not only or t[0] in only]
    if os.environ.get("CASE"):
        todo = [one_case(text) for text in os.environ["CASE"].split(";")]
    folder = os.environ.get("KEEP") or tempfile.mkdtemp()
    dump_all(binary, todo, folder)
    print("|  | setting | loss: ours-PyTorch | ours-f64 | PyTorch-f64 | worst of nudged | gradient: ours-PyTorch | ours-f64 "
          "| PyTorch-f64 | worst of nudged | |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    failures = 0
    for i, (workload, number, fields) in enumerate(todo):
        r = row(binary, folder, i, todo[i])
        text = " ".join([workload, str(number)] + [f"{k}={json.dumps(v) if not isinstance(v, str) else v}".replace(" ", "")
                                                   for k, v in fields.items()])
        if "error" in r:
            failures += 1
            print(f"| {i} | {text} | {r['error']} |", flush=True)
            continue
        told = verdict(r)
        failures += told == "OURS IS OFF"
        numbers = " | ".join(f"{r[k][j]:.2g}" for j in (0, 1) for k in ("between", "ours", "as it is", "peer"))
        print(f"| {i} | {text} | {numbers} | {told} |", flush=True)
    if not os.environ.get("KEEP"):
        shutil.rmtree(folder)
    print(f"{len(todo)} settings, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
