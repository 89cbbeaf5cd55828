#!/usr/bin/env python3
"""peer_numbers.py - numbers of the PyTorch peers for tests/recipes/test_workloads.c, without their tensors.

  python3 tools/oracle/peer_numbers.py PEERS OUT        PEERS: the folder with bench.py; OUT: tests/data/peers

Five training steps at toy size on the CPU.  Parameters, buffers and inputs are not stored: both sides make
them from a hash of their names (`noise`), and what is compared is kept as loss terms, norms and four random
sign projections of each gradient and of each change of a parameter.  A wrong element shows in a projection
as surely as in a norm of the difference, and a workload takes some ten kilobytes instead of megabytes.

Adam turns a gradient near 0 into a step of full size, whose sign is rounding.  How much that moves a change is
measured: the same steps without oneDNN, whose sums have another order, give `spread`, the relative difference
of the two changes of PyTorch, where it is above 1e-4.
"""
import json
import os
import sys

if sys.argv[1:2] in (["-h"], ["--help"]):
    print(__doc__.strip())
    sys.exit(0)

import numpy as np
import torch

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
WORKLOADS = ["lgt", "wandistill", "stablesr-edge-after", "stablesr-edge-before", "stablesr-full", "fluxflow-vae",
             "fluxflow-vae+gan+lpips"]
# smaller than the peers' toy sizes where those take seconds a step
OVERRIDES = {"lgt": {"ode_steps": "2"}, "fluxflow-vae": {"image": "16"}, "fluxflow-vae+gan+lpips": {"image": "16"},
             "stablesr-edge-before": {"before": "[8,8,8,8,8]", "before_down": "[8,8,8,4,4]"}}
# kinds of inputs that are not normal; arguments: exclusive bound, or length of the permutation
KINDS = {"u": "uniform", "real": "symmetric", "edge": "symmetric", "uncond": "bool"}


def fnv(name):
    h = 14695981039346656037
    for b in name.encode():
        h = (h ^ b) * 1099511628211 % 2**64
    return h


def bits(name, n):
    """n 64-bit hashes of (name, index)."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv(name)) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, n):
    return (bits(name, n) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def noise(name, n):
    """Mean 0, variance 1: the sum of four uniforms, exact in both languages."""
    u = uniform(name, 4 * n).reshape(n, 4)
    return (((u[:, 0] + u[:, 1]) + u[:, 2]) + u[:, 3] - 2.0) * 1.7320508075688772


SIGNS = {}


def summary(x):
    """Norm and four sign projections, in double."""
    x = x.detach().double().flatten().numpy()
    if x.size not in SIGNS:
        b = bits("project", x.size)
        SIGNS[x.size] = [1.0 - 2.0 * ((b >> np.uint64(20 + j)) & np.uint64(1)).astype(np.float64) for j in range(4)]
    return [float(f"{v:.7g}") for v in [np.sqrt((x * x).sum())] + [(x * s).sum() for s in SIGNS[x.size]]]


def kind_of(workload, cfg, name, value):
    if name == "style":
        return ["int", cfg.styles]
    if name == "t":
        return ["int", 1000]
    if name == "rows":
        return ["perm", cfg.batch * cfg.latent**2]
    if name == "positions":
        return ["perm", cfg.latent**2]
    if name == "edge" and workload == "stablesr-full":
        return ["sparse", 0]
    return [KINDS.get(name, "normal"), 0]


def make_input(kind, arg, label, like):
    n = like.numel()
    if kind == "normal":
        x = noise(label, n)
    elif kind == "perm":
        x = np.argsort(uniform(label, arg), kind="stable")[:n]
    else:
        u = uniform(label, n)
        x = {"uniform": u, "symmetric": u * 2 - 1, "sparse": (u > 0.9) * 2.0 - 1, "bool": u < 0.4,
             "int": np.floor(u * arg)}[kind]
    return torch.from_numpy(np.ascontiguousarray(x)).to(like.dtype).reshape(like.shape)


def fill_of(name, value):
    """How a parameter or buffer starts: [mean, std] of noise, or the values themselves."""
    if name.endswith(("lpips.shift", "lpips.scale")) or not value.is_floating_point():
        return {"values": value.flatten().tolist()}
    if name.endswith("running_var"):
        return {"fill": [1.0, 0.0]}
    mean, std = float(value.mean()), float(value.std(unbiased=False))
    mean = 0.0 if abs(mean) < 0.2 * std else mean
    return {"fill": [float(f"{mean:.4g}"), float(f"{max(std, 0.01):.4g}")]}


def numbers(name, cls, cfg, common, steps=5):
    ctx = common.Context(common.Mode(), "cpu")
    work = common.build(cls, cfg, ctx, "tiny", 0)
    tensors, start = {}, {}
    for module, m in work.modules.items():
        for key, value in m.state_dict().items():
            label = f"{module}.{key}"
            row = {"shape": list(value.shape), **fill_of(label, value)}
            if "fill" in row:
                made = row["fill"][0] + row["fill"][1] * noise(label, value.numel())
                value.copy_(torch.from_numpy(made).to(value.dtype).reshape(value.shape))
            tensors[label], start[label] = row, value.clone()
    labels = {id(p): f"{module}.{key}" for module, m in work.modules.items() for key, p in m.named_parameters()}
    trainable = {labels[id(p)] for m in work.modules.values() for p in m.parameters() if p.requires_grad}
    history = []

    def keep_grads(optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None and not history:
                    tensors[labels[id(p)]]["grad"] = summary(p.grad)

    ctx.grad_hook = keep_grads
    draw, inputs = common.Draw(ctx.device, 2), {}
    for step in range(1, steps + 1):
        micros = work.batch(draw)
        for i, m in enumerate(micros):
            for key, like in m.items():
                kind, arg = kind_of(name, cfg, key, like)
                m[key] = make_input(kind, arg, f"step{step}.micro{i + 1}.{key}", like)
                inputs[key] = {"kind": kind, "arg": arg, "shape": list(like.shape)}
        terms = common.run_step(work, ctx, micros)
        history.append({k: float(f"{float(v):.9g}") for k, v in terms.items()})
    for module, m in work.modules.items():
        for key, value in m.state_dict().items():
            label = f"{module}.{key}"
            if label in trainable:
                tensors[label]["change"] = summary(value.double() - start[label].double())
            elif not any(value is p for p in m.parameters()) and not torch.equal(value, start[label]):
                tensors[label]["final"] = summary(value)
    for label, value in getattr(work, "extra", {}).items():
        if "grad" in tensors[label[4:]]:
            tensors[label[4:]]["ema"] = summary(value)
    return {"workload": name, "steps": history, "inputs": inputs, "tensors": tensors, "torch": torch.__version__}


def add_spread(made, other):
    """made, other: numbers() of one workload with two orders of summation."""
    for label, row in made["tensors"].items():
        if "change" in row:
            want, got = row["change"], other["tensors"][label]["change"]
            spread = max(abs(x - y) for x, y in zip(got, want)) / max(abs(want[0]), 1e-30)
            if spread > 1e-4:
                row["spread"] = float(f"{spread:.2g}")


def main():
    peers, out = sys.argv[1], sys.argv[2]
    sys.path.insert(0, peers)
    torch.manual_seed(0)
    import bench
    import common
    for name in WORKLOADS:
        cls, variant = bench.WORKLOADS[name]
        cfg = common.configure(cls, "tiny", variant, OVERRIDES.get(name, {}))
        made = numbers(name, cls, cfg, common)
        with torch.backends.mkldnn.flags(enabled=False):
            add_spread(made, numbers(name, cls, cfg, common))
        path = os.path.join(out, name.replace("+", "-") + ".json")
        with open(path, "w") as f:
            head = {k: v for k, v in made.items() if k != "tensors"}
            rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in made["tensors"].items())
            f.write(json.dumps(head)[:-1] + ', "tensors": {\n' + rows + "\n}}\n")
        print(name, os.path.getsize(path), [s["loss"] for s in made["steps"]])


if __name__ == "__main__":
    main()
