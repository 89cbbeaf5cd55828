"""drawn.py - networks that no kernel was tuned for, as ONNX files, beside PyTorch compiled: time and memory of a training step.

    python3 bench/drawn.py files DIR [NETWORK...]          exports the networks; needs torch, torchvision, transformers
    python3 bench/drawn.py run DIR BUILD [NETWORK...]      measures both on the GPU; results go to stdout and DIR/drawn.csv
    python3 bench/drawn.py ours DIR BUILD [NETWORK...]     ours alone
    python3 bench/drawn.py peers DIR [NETWORK...]          PyTorch alone: all networks compile at once, then one after the other is timed

Both sides train in bf16 (autocast), with the same optimizer (SGD with momentum for pictures, AdamW otherwise; fused), cross-entropy
or mean squared error, and the same batch. PyTorch compiles the network with its loss, uses scaled_dot_product_attention and channels-last pictures. Weights
are drawn anew by both (init=pytorch): the exported files have no bytes of weights, and `run` makes a sparse file of them. A time is the
median of 20 steps after a warm-up of 3; memory is what the driver says that the process holds. LIMIT (seconds, 60) bounds one process,
with `peers` the compilation of all; PRECISION=tf32 or fp32 sets the precision of both, MEMORY (a share, 0.6) adds a run of ours under that share
of PyTorch's reserved bytes. A name own:NAME is a workload of bench/peers/bench.py (PyTorch alone).
"""
import csv
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

STEPS = 20
SGD = ["optim.name=sgd", "optim.lr=0.001", "optim.momentum=0.9", "optim.weight_decay=1e-4"]
ADAMW = ["optim.name=adamw", "optim.lr=1e-4", "optim.betas=[0.9,0.95]", "optim.weight_decay=0.1"]
PRECISION = os.environ.get("PRECISION", "bf16")
COMPILE = os.environ.get("COMPILE", "yes") == "yes"


# ------------------------------------------------------------------ networks: (module, example, batch, dims, loss, optimizer)

def picture(module, batch, side, optimizer=SGD):
    import torch
    return module, {"x": torch.zeros(2, 3, side, side)}, batch, {}, "cross_entropy", optimizer


def words(module, batch, length, output, dims=True):
    """Tokens in, one output per token."""
    import torch

    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = module

        def forward(self, input_ids):
            return output(self.net, input_ids)
    return Words(), {"input_ids": torch.zeros(2, 64, dtype=torch.int64)}, batch, {"seq": length}, "cross_entropy", ADAMW


def vision(name, batch, side=224, **keys):
    def make():
        import torchvision
        return picture(getattr(torchvision.models, name)(**keys), batch, side)
    return make


def odd_vit():
    from torchvision.models import VisionTransformer
    net = VisionTransformer(image_size=208, patch_size=16, num_layers=10, num_heads=5, hidden_dim=400, mlp_dim=1520, num_classes=333)
    return picture(net, 192, 208, ADAMW)


def bert():
    import transformers
    c = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa")
    return words(transformers.BertForMaskedLM(c), 32, 512, lambda net, ids: net(input_ids=ids).logits)


def t5():
    import torch
    import transformers
    c = transformers.T5Config(d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12, feed_forward_proj="gated-gelu",
                              dropout_rate=0.0, is_encoder_decoder=False, use_cache=False)

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = transformers.T5EncoderModel(c), torch.nn.Linear(768, 50)

        def forward(self, ids):
            return self.head(self.encoder(input_ids=ids).last_hidden_state)
    return words(Tagger(), 32, 512, lambda net, ids: net(ids))


def llama():
    import transformers
    c = transformers.LlamaConfig(hidden_size=896, intermediate_size=2432, num_hidden_layers=12, num_attention_heads=14,
                                 num_key_value_heads=2, vocab_size=31991, max_position_embeddings=2048, use_cache=False,
                                 attn_implementation="sdpa")
    return words(transformers.LlamaForCausalLM(c), 12, 768, lambda net, ids: net(input_ids=ids).logits)


def neox():
    import transformers
    c = transformers.GPTNeoXConfig(hidden_size=640, intermediate_size=2560, num_hidden_layers=10, num_attention_heads=8,
                                   vocab_size=20011, max_position_embeddings=2048, use_cache=False, attn_implementation="sdpa",
                                   hidden_dropout=0.0, attention_dropout=0.0)
    return words(transformers.GPTNeoXForCausalLM(c), 12, 1280, lambda net, ids: net(input_ids=ids).logits)


def unet():
    """A U-Net as diffusion models have it: GroupNorm, SiLU, attention at the lowest level."""
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1)
            self.n2, self.c2 = nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
            self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x):
            h = self.c1(F.silu(self.n1(x)))
            return self.skip(x) + self.c2(F.silu(self.n2(h)))

    class Attend(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.norm = heads, nn.GroupNorm(32, width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            b, c, h, w = x.shape
            y = self.norm(x).flatten(2).transpose(1, 2)
            q, k, v = self.qkv(y).view(b, h * w, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c)
            return x + self.out(y).transpose(1, 2).reshape(b, c, h, w)

    class Unet(nn.Module):
        def __init__(self, widths=(96, 192, 288, 384)):
            super().__init__()
            self.stem, self.downs, self.ups = nn.Conv2d(3, widths[0], 3, padding=1), nn.ModuleList(), nn.ModuleList()
            self.pools, self.lifts, i = nn.ModuleList(), nn.ModuleList(), widths[0]
            for o in widths:
                self.downs.append(nn.ModuleList([Res(i, o), Res(o, o)]))
                self.pools.append(nn.Conv2d(o, o, 3, 2, 1))
                i = o
            self.mid = nn.ModuleList([Res(i, i), Attend(i, 6), Res(i, i)])
            for o in reversed(widths):
                self.lifts.append(nn.Conv2d(i, o, 3, padding=1))
                self.ups.append(nn.ModuleList([Res(2 * o, o), Res(o, o)]))
                i = o
            self.norm, self.head = nn.GroupNorm(32, i), nn.Conv2d(i, 3, 3, padding=1)

        def forward(self, x):
            x, kept = self.stem(x), []
            for blocks, pool in zip(self.downs, self.pools):
                for block in blocks:
                    x = block(x)
                kept.append(x)
                x = pool(x)
            for block in self.mid:
                x = block(x)
            for blocks, lift in zip(self.ups, self.lifts):
                x = lift(F.interpolate(x, scale_factor=2, mode="nearest"))
                x = torch.cat((x, kept.pop()), 1)
                for block in blocks:
                    x = block(x)
            return self.head(F.silu(self.norm(x)))
    return Unet(), {"x": torch.zeros(2, 3, 128, 128)}, 32, {}, "mse", ADAMW


def gpt2():
    """Tied embeddings, an odd vocabulary, a width that no kernel likes."""
    import transformers
    c = transformers.GPT2Config(n_embd=660, n_head=11, n_layer=10, vocab_size=50257, n_positions=1024, resid_pdrop=0.0, embd_pdrop=0.0,
                                attn_pdrop=0.0, use_cache=False, attn_implementation="sdpa")
    return words(transformers.GPT2LMHeadModel(c), 12, 900, lambda net, ids: net(input_ids=ids).logits)


def gemma():
    """GeGLU, heads of 256, one head of keys."""
    import transformers
    c = transformers.GemmaConfig(hidden_size=1024, intermediate_size=4000, num_hidden_layers=8, num_attention_heads=4,
                                 num_key_value_heads=1, head_dim=256, vocab_size=32003, max_position_embeddings=2048, use_cache=False,
                                 attn_implementation="sdpa")
    return words(transformers.GemmaForCausalLM(c), 12, 1024, lambda net, ids: net(input_ids=ids).logits)


def vit_h80():
    """Heads of 80 and 257 tokens, as ViT-H has them."""
    from torchvision.models import VisionTransformer
    net = VisionTransformer(image_size=224, patch_size=14, num_layers=8, num_heads=12, hidden_dim=960, mlp_dim=3840, num_classes=1000)
    return picture(net, 96, 224, ADAMW)


def phi():
    """Attention and MLP side by side, half of the numbers of a head rotated, heads of 96."""
    import transformers
    c = transformers.PhiConfig(hidden_size=960, intermediate_size=3840, num_hidden_layers=10, num_attention_heads=10, vocab_size=51201,
                               max_position_embeddings=2048, use_cache=False, attn_implementation="sdpa", resid_pdrop=0.0,
                               embd_pdrop=0.0, attention_dropout=0.0)
    return words(transformers.PhiForCausalLM(c), 8, 1500, lambda net, ids: net(input_ids=ids).logits)


NETWORKS = {
    "efficientnet_v2_s": vision("efficientnet_v2_s", 64), "regnet_y_8gf": vision("regnet_y_8gf", 64), "swin_t": vision("swin_t", 64),
    "odd_vit": odd_vit, "bert": bert, "t5": t5, "unet": unet, "llama": llama,
    "densenet121": vision("densenet121", 64), "neox": neox, "convnext_small": vision("convnext_small", 64, 240),
    "mobilenet_v3": vision("mobilenet_v3_large", 256, 192),
    "gpt2": gpt2, "gemma": gemma, "vit_h80": vit_h80, "phi": phi,
}


# ------------------------------------------------------------------ files

def export(folder, wanted):
    """Files whose large tensors lie in NAME.bin, which is not written; NAME.json has its length and the keys of our run."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
    import onnx
    import plimsoll
    folder.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        module, example, batch, dims, loss, optimizer = NETWORKS[name]()
        shapes = {key: {1: next(iter(dims))} for key in example} if dims else None
        given = example if dims else next(iter(example.values()))
        with tempfile.TemporaryDirectory() as scratch:
            model = onnx.load(plimsoll.export(module, given, os.path.join(scratch, "m.onnx"), shapes))
        at = 0
        for t in model.graph.initializer:
            if t.data_type != onnx.TensorProto.FLOAT or len(t.raw_data) < 1024:
                continue
            for key, value in (("location", f"{name}.bin"), ("offset", at), ("length", len(t.raw_data))):
                t.external_data.add(key=key, value=str(value))
            at += len(t.raw_data)
            t.data_location = onnx.TensorProto.EXTERNAL
            t.ClearField("raw_data")
        onnx.save(model, str(folder / f"{name}.onnx"))
        keys = [f"batch={batch}", f"loss={loss}", "init=pytorch", "metrics=[]", "data.source=synthetic", *optimizer,
                *(f"dims.{k}={v}" for k, v in dims.items())]
        (folder / f"{name}.json").write_text(json.dumps({"bytes": at, "keys": keys}))
        print(f"{name}: {(folder / f'{name}.onnx').stat().st_size} bytes, weights of {at} bytes", flush=True)


# ------------------------------------------------------------------ PyTorch

def own_step(name, device):
    """A step of a workload of bench/peers."""
    sys.path.insert(0, str(pathlib.Path.cwd() / "bench/peers"))
    import bench
    import common
    cls, variant = bench.WORKLOADS[name]
    ctx = common.Context(common.Mode(PRECISION, "default" if COMPILE else "eager"), device, False, cls.cudnn_search)
    work = common.build(cls, common.configure(cls, "full", variant, {}), ctx, "full", 0)
    batch = work.batch(common.Draw(ctx.device, 2))
    return lambda: common.run_step(work, ctx, batch)


def network_step(name, device):
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = PRECISION != "fp32"
    module, example, batch, dims, loss, optimizer = NETWORKS[name]()
    module = module.to(device).train()
    for part in module.modules():
        if type(part).__name__ == "StochasticDepth":
            part.p = 0.0  # as in the exported file
    shape = [batch, *next(iter(example.values())).shape[1:]]
    if dims:
        shape[1] = next(iter(dims.values()))
        x = torch.randint(50, shape, device=device)
    else:
        module = module.to(memory_format=torch.channels_last)
        x = torch.randn(shape, device=device).to(memory_format=torch.channels_last)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=PRECISION == "bf16"):
        y = module(x[:2])
    whole = (batch, *y.shape[1:])
    target = torch.randn(whole, device=device) if loss == "mse" else torch.randint(min(50, y.shape[-1]), whole[:-1], device=device)
    del y

    def loss_of(x, target):
        y = module(x)
        if loss == "mse":
            return F.mse_loss(y.float(), target)
        return F.cross_entropy(y.reshape(-1, y.shape[-1]).float() if y.dim() == 2 else y.reshape(-1, y.shape[-1]), target.reshape(-1))
    compiled = torch.compile(loss_of) if COMPILE else loss_of
    keys = dict(k.split("=", 1) for k in optimizer)
    decay, lr, fused = float(keys["optim.weight_decay"]), float(keys["optim.lr"]), device == "cuda"
    if keys["optim.name"] == "sgd":
        opt = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9, weight_decay=decay, fused=fused)
    else:
        opt = torch.optim.AdamW(module.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=decay, fused=fused)

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=PRECISION == "bf16"):
            value = compiled(x, target)
        value.backward()
        opt.step()
    return step


def peer(name, steps, device, gate=None):
    """Times a network; with `gate`, a folder: says there that it has compiled, and waits until it is told to go on."""
    import gc
    import torch
    step = own_step(name[4:], device) if name.startswith("own:") else network_step(name, device)
    for _ in range(3):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    if gate:
        (pathlib.Path(gate) / f"{name}.ready").touch()
        while not (pathlib.Path(gate) / f"{name}.go").exists():
            time.sleep(0.02)
    if device != "cuda":
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        return {"ms": 1e3 * (time.perf_counter() - begin) / steps}
    gc.collect()
    torch.cuda.empty_cache()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for i in range(steps):
        step()
        marks[i + 1].record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    found = {"ms": statistics.median(times), "min": min(times), "max": max(times), "reserved": torch.cuda.max_memory_reserved() / 2**20}
    if not gate:
        free, total = torch.cuda.mem_get_info()
        found["held"] = (total - free) / 2**20
    return found


# ------------------------------------------------------------------ runs

def stop(job):
    """Ends a process with its compile workers, which hold its pipes."""
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def answer(job, limit):
    """The last JSON line of a process, or what it said."""
    try:
        out, err = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        stop(job)
        job.communicate()
        return {"error": f"not done in {limit:.0f} s"}
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines and not job.returncode else {"error": (err.strip().splitlines() or ["?"])[-1][:160]}


def start(command, **env):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, **env),
                            start_new_session=True)


def start_peer(folder, name, gate=None):
    cache = folder / f"torch-{name}-{PRECISION}"
    command = [sys.executable, __file__, "peer", str(folder), name, str(STEPS)]
    return start(command + ([str(gate)] if gate else []), TORCHINDUCTOR_CACHE_DIR=str(cache), TRITON_CACHE_DIR=str(cache / "triton"))


def peers(folder, wanted, limit):
    """All networks compile at once; when all have, or the limit is over, the ready ones are timed one after the other."""
    gate = pathlib.Path(tempfile.mkdtemp(prefix="drawn-"))
    jobs, until = {name: start_peer(folder, name, gate) for name in wanted}, time.monotonic() + limit
    ready = lambda name: (gate / f"{name}.ready").exists()
    while time.monotonic() < until and not all(ready(n) or jobs[n].poll() is not None for n in wanted):
        time.sleep(0.1)
    for name in wanted:
        if not ready(name) and jobs[name].poll() is None:
            stop(jobs[name])
    for name in sorted(wanted, key=ready):
        (gate / f"{name}.go").touch()
        found = answer(jobs[name], 60)
        print(f"PyTorch {name} {PRECISION}: {json.dumps(found)}", flush=True)
        (folder / f"{name}.torch.json").write_text(json.dumps(found))


def ours(folder, build, name, more):
    about = json.loads((folder / f"{name}.json").read_text())
    with open(folder / f"{name}.bin", "wb") as f:
        f.truncate(about["bytes"])
    device = os.environ.get("DEVICE", "cuda")
    return start([os.path.join(build, "pl_step"), str(folder / f"{name}.onnx"), str(STEPS), f"device={device}", f"precision={PRECISION}",
                  *about["keys"], *more], INTS="50")


def measure(folder, build, wanted, limit, alone):
    rows = []
    share = os.environ.get("MEMORY")
    for name in wanted:
        a = answer(ours(folder, build, name, []), limit)
        b = {"error": "not asked for"} if alone else answer(start_peer(folder, name), limit)
        row = {"network": name, "precision": PRECISION, "ours_error": a.get("error", ""), "torch_error": b.get("error", "")}
        if "error" not in a:
            row |= {"ms": a["device_ms"], "min": a["device_min"], "max": a["device_max"], "held": a["used_bytes"] / 2**20,
                    "predicted": a["predicted_ms"], "first_s": a["first_s"]}
        if "error" not in b:
            row |= {f"torch_{k}": v for k, v in b.items()}
        if "error" not in a and "error" not in b and "held" in b:
            row |= {"time": a["device_ms"] / b["ms"], "memory": row["held"] / b["held"]}
        if share and "reserved" in b:
            c = answer(ours(folder, build, name, [f"memory={int(float(share) * b['reserved'] * 2**20)}"]), limit)
            row |= {"small_error": c["error"]} if "error" in c else {
                "small_ms": c["device_ms"], "small_held": c["used_bytes"] / 2**20, "small_time": c["device_ms"] / b["ms"]}
        rows.append({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()})
        print(" ".join(f"{k}={v}" for k, v in rows[-1].items() if v != ""), flush=True)
        with open(folder / "drawn.csv", "w", newline="") as f:
            out = csv.DictWriter(f, list(dict.fromkeys(k for r in rows for k in r)))
            out.writeheader()
            out.writerows(rows)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("files", "run", "ours", "peers", "peer"):
        sys.exit(__doc__)
    what, folder, rest = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    limit = float(os.environ.get("LIMIT", "60"))
    if what == "peer":
        print(json.dumps(peer(rest[0], int(rest[1]), os.environ.get("DEVICE", "cuda"), *rest[2:])))
    elif what == "files":
        export(folder, rest or NETWORKS)
    elif what == "peers":
        peers(folder, rest or list(NETWORKS), limit)
    else:
        measure(folder, rest[0], rest[1:] or NETWORKS, limit, what == "ours")


if __name__ == "__main__":
    main()
