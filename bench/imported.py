"""imported.py - networks of PyTorch's libraries as ONNX files beside the recipes of the same networks: time and memory of a step.

    python3 bench/imported.py files DIR           exports the networks; needs torch, torchvision, timm, transformers
    python3 bench/imported.py run DIR [BUILD]     measures both on the GPU with BUILD/pl_step (default build/release)

The exported files have no bytes of weights: DIR has the graphs, a few MB for all, and mean and deviation of each tensor, from which `run` (needs
numpy) draws one file of weights that both start from. Both have the same optimizer, learning rate, loss, precision and batch: at its power limit a
GPU's clock depends on the numbers (an H200 runs GPT-2 7 % faster on weights that make most gradients zero). A row is one process; the two
of a network take turns, so that both see the same clocks. Results go to stdout as a table.
"""
import array
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

RUNS, STEPS = 2, 20
IMAGE = ["batch=128", "model.classes=1000", "memory=null", "card=null", "loss.smoothing=0"]
RATE = ["optim.lr=1e-4", "schedule.name=constant", "schedule.warmup_steps=0"]
SGD = [*RATE, "optim.name=sgd", "optim.momentum=0.9", "optim.weight_decay=1e-4", "optim.no_decay=*.bias"]
ADAMW = [*RATE, "optim.name=adamw", "optim.betas=[0.9,0.95]", "optim.weight_decay=0.1", "optim.no_decay=*.bias,*ln_*", "clip.norm=1"]
FILE = ["loss=cross_entropy", "metrics=[]"]
# network: keys of the file, the recipe with its keys.
NETWORKS = {
    "resnet50": (["batch=128", "data.source=synthetic", *SGD], ["classify/card8", "network=resnet50", *IMAGE, *SGD]),
    "vit_small": (["batch=256", "data.source=synthetic", *SGD], ["classify/card8", "network=vit_small", *IMAGE, "batch=256", *SGD]),
    "gpt2": (["batch=16", "dims.seq=1024", "data.path=TOKENS", *ADAMW],
             ["text/card24", "batch=16", "accumulate=1", "model.vocabulary=50304", "data.tokens=TOKENS", "memory=null", "card=null", *ADAMW]),
}


def modules():
    import torch
    yield "resnet50", lambda: (__import__("torchvision").models.resnet50(), torch.zeros(2, 3, 224, 224), None)
    yield "vit_small", lambda: (__import__("timm").create_model("vit_small_patch16_224"), torch.zeros(2, 3, 224, 224), None)

    def gpt2():
        import transformers
        config = transformers.GPT2Config(vocab_size=50304, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        return transformers.GPT2LMHeadModel(config), {"input_ids": torch.zeros(2, 64, dtype=torch.int64)}, {"input_ids": {1: "seq"}}
    yield "gpt2", gpt2


def export(folder, wanted):
    """Files whose large tensors lie in NAME.bin, which is not written; NAME.json says how to draw it."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
    import numpy as np
    import onnx
    import plimsoll
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in modules():
        if wanted and name not in wanted:
            continue
        module, example, dims = make()
        with tempfile.TemporaryDirectory() as scratch:
            model = onnx.load(plimsoll.export(module, example, os.path.join(scratch, "m.onnx"), dims))
        at, rows = 0, []
        for t in model.graph.initializer:
            if t.data_type != onnx.TensorProto.FLOAT or len(t.raw_data) < 1024:
                continue
            for key, value in (("location", f"{name}.bin"), ("offset", at), ("length", len(t.raw_data))):
                t.external_data.add(key=key, value=str(value))
            values = np.frombuffer(t.raw_data, np.float32)
            rows.append((t.name, list(t.dims), float(values.mean()), float(values.std())))
            at += len(t.raw_data)
            t.data_location = onnx.TensorProto.EXTERNAL
            t.ClearField("raw_data")
        onnx.save(model, str(folder / f"{name}.onnx"))
        (folder / f"{name}.json").write_text(json.dumps(rows))
        print(f"{name}: {(folder / f'{name}.onnx').stat().st_size} bytes, weights of {at} bytes")


def draw(folder, name):
    """NAME.bin, the weights of NAME.onnx, and the same bytes as NAME.safetensors."""
    import numpy as np
    rng = np.random.default_rng(0)
    header, at = {}, 0
    rows = json.loads((folder / f"{name}.json").read_text())
    for key, dims, _, _ in rows:
        end = at + 4 * math.prod(dims)
        header[key] = {"dtype": "F32", "shape": dims, "data_offsets": [at, end]}
        at = end
    head = json.dumps(header).encode()
    with open(folder / f"{name}.bin", "wb") as raw, open(folder / f"{name}.safetensors", "wb") as tensors:
        tensors.write(len(head).to_bytes(8, "little") + head)
        for _, dims, mean, deviation in rows:
            data = (mean + deviation * rng.standard_normal(math.prod(dims), dtype=np.float32)).astype(np.float32).tobytes()
            raw.write(data)
            tensors.write(data)


def step(build, config, keys):
    command = [os.path.join(build, "pl_step"), str(config), str(STEPS), "device=cuda", "precision=bf16", *keys]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return json.loads(lines[-1])


def measure(folder, build):
    tokens = folder / "tokens.bin"
    with open(tokens, "wb") as f:
        array.array("H", random.Random(0).choices(range(50257), k=200_000)).tofile(f)
    print("| network | imported | recipe | time | memory |\n| --- | --- | --- | --- | --- |")
    for name, (own, recipe) in NETWORKS.items():
        draw(folder, name)
        weights = [f"init_from={folder / name}.safetensors", "init_from.missing=allow"]
        put = lambda keys: [k.replace("TOKENS", str(tokens)) for k in keys]
        rows = {"imported": [], "recipe": []}
        for _ in range(RUNS):
            rows["imported"].append(step(build, folder / f"{name}.onnx", put(FILE + own)))
            rows["recipe"].append(step(build, recipe[0], put(recipe[1:]) + weights))
        ms = {side: statistics.mean(r["device_ms"] for r in list_) for side, list_ in rows.items()}
        held = {side: max(r["used_bytes"] for r in list_) for side, list_ in rows.items()}
        cell = lambda side: ", ".join(f"{r['device_ms']:.2f}" for r in rows[side]) + f" ms, {held[side] / 1e9:.3f} GB"
        print(f"| {name} | {cell('imported')} | {cell('recipe')} | {100 * (ms['imported'] / ms['recipe'] - 1):+.1f} % | "
              f"{100 * (held['imported'] / held['recipe'] - 1):+.2f} % |", flush=True)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("files", "run"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "files":
        export(folder, sys.argv[3:])
    else:
        measure(folder, sys.argv[3] if len(sys.argv) > 3 else "build/release")


if __name__ == "__main__":
    main()
