#!/usr/bin/env python3
"""author_folders.py - folders of reference numbers of other seeds and sizes, for tools/check-authors.

    author_folders.py OUT [--system NAME] [--case N] [--seed N]     writes OUT/CASE/SYSTEM for every case of CASES
    author_folders.py OUT --draws N [--seed N]                      writes N folders per system of sizes drawn from the seed
    author_folders.py --like DIR                                    computes DIR again from its weights and inputs, prints the differences

The networks and steps are our own transcription of the authors' programs, with their names of modules. --like shows how far it is from a
folder that their programs made (tests/data/authors). Needs torch, safetensors and, for WanDistiller's teacher, diffusers.
"""
import argparse
import json
import math
import os
import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

MASK = (1 << 64) - 1


# ------------------------------------------------------------------ folders

def signs(n, k):
    """The signs of sketch k, as +1 and -1."""
    import numpy as np
    x = np.arange(n, dtype=np.uint64) + np.uint64((0x506C696D + (k << 40)) & MASK)
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return torch.from_numpy(1.0 - 2.0 * (z >> np.uint64(63)).astype("float64"))


def sketch(x):
    x = x.detach().double().flatten()
    return torch.stack([x.norm(), *((x * signs(len(x), k)).sum() for k in range(3))])


def kind_of(name):
    return name if name.startswith(("out/", "step0/")) or "/" not in name else name.split("/")[0]


def is_change(name):
    return name.split("/")[0].startswith(("delta", "ema_delta"))


def stated(of32, of64):
    """How far f32 is from f64 by kind, and gradients that are zero but for rounding."""
    far, rounding, largest = {}, [], {}
    for name, x in of64.items():
        kind = kind_of(name)
        largest[kind] = max(largest.get(kind, 0.0), float(x.abs().max()) if x.numel() else 0.0)
    for name, x in of64.items():
        size, kind = float(x.abs().max()) if x.numel() else 0.0, kind_of(name)
        if kind.startswith("grad") and size < 1e-10 * largest[kind]:
            rounding.append(name)
            continue
        d = float((of32[name].double() - x).abs().max()) / size if size else 0.0
        if d >= far.get(kind, {"relative": -1})["relative"]:
            far[kind] = {"relative": d, "where": name}
    return {"note": "largest |f32-f64| relative to the largest value", "tensors": far, "rounding_only": sorted(rounding)}


def write_folder(path, system, about, inputs, of32, of64, full):
    made = {name: x.detach().contiguous() for name, x in inputs.items()}
    for name, x in of32.items():
        x = (of64 if is_change(name) else of32)[name].detach()
        limit = full(name)
        if limit is None or x.numel() <= limit:
            made[name] = x.float().contiguous() if x.is_floating_point() and "schedule" not in name else x.contiguous()
        else:
            made["sketch/" + name] = sketch(x)
    about = dict({"what": f"Numbers of our transcription of {system}"}, **about)
    about.setdefault("float64", {}).update(stated(of32, of64))
    save_file({name: x.clone() for name, x in made.items()}, os.path.join(path, "io.safetensors"))
    with open(os.path.join(path, "about.json"), "w") as f:
        json.dump(about, f, indent=1)


def compare_folder(path, of32, of64):
    """The worst difference by kind from the numbers in the folder."""
    want = load_file(os.path.join(path, "io.safetensors"))
    skip = set(json.load(open(os.path.join(path, "about.json")))["float64"]["rounding_only"])
    worst, seen = {}, set()
    for name, y in want.items():
        whole = name[7:] if name.startswith("sketch/") else name
        if whole.startswith("in/") or whole in skip or whole.split("/", 1)[-1] in skip:
            continue
        seen.add(whole)
        if whole not in of32:
            worst[kind_of(whole) + " MISSING"] = (math.inf, whole)
            continue
        x = (of64 if is_change(whole) else of32)[whole].detach().double()
        if name != whole:
            d = float((sketch(x) - y).abs().max() / y[0])
        elif x.shape != y.shape:
            d = math.inf
        else:
            d = float((x - y.double()).abs().max() / y.double().abs().max().clamp(min=1e-300))
        if d >= worst.get(kind_of(whole), (-1, ""))[0]:
            worst[kind_of(whole)] = (d, whole)
    for kind, (d, name) in sorted(worst.items()):
        print(f"  {kind:28} {d:9.2e}  {name}")


def init(module, g):
    """Weights of the size of PyTorch's own, none constant, from generator g."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() > 1:
                fan = p[0].numel() if p.dim() > 1 else 1
                p.copy_(torch.randn(p.shape, generator=g) / math.sqrt(max(fan, 1)))
            elif name.endswith("weight"):
                p.copy_(1 + 0.1 * torch.randn(p.shape, generator=g))
            else:
                p.add_(0.05 * torch.randn(p.shape, generator=g))
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(0.1 * torch.randn(b.shape, generator=g))
            elif name.endswith("running_var"):
                b.copy_(0.5 + torch.rand(b.shape, generator=g))


def clone(sd):
    return {k: v.detach().clone() for k, v in sd.items()}


def halved(sd):
    """Rounded to f16 and back: exact in files of f16."""
    return {k: v.half().float() if v.is_floating_point() else v.clone() for k, v in sd.items()}


def wide(x, dtype):
    return x.to(dtype) if x.is_floating_point() else x


def gradients(module, kind, prefix=""):
    return {f"{kind}/{prefix}{k}": p.grad.detach().clone() for k, p in module.named_parameters() if p.grad is not None}


def changes(module, before, kind, prefix=""):
    """Of parameters without a gradient too: they do not change."""
    return {f"{kind}/{prefix}{k}": p.detach() - before[k] for k, p in module.named_parameters()}


# ------------------------------------------------------------------ cloudML

class Cloud(nn.Module):
    def __init__(self, a, ssm=False):
        super().__init__()
        layers, dense, ch = [], [], 1
        for l in a["cnn_layers"]:
            layers += [nn.Conv2d(ch, l["out_channels"], 3, padding=1), nn.BatchNorm2d(l["out_channels"]), nn.Identity(), nn.Identity(),
                       nn.Identity()]
            ch = l["out_channels"]
        self.cnn_layers = nn.ModuleList(layers)
        self.film_layers = nn.ModuleList([nn.Module()])
        self.film_layers[0].film_mlp = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 2 * a["cnn_layers"][0]["out_channels"]))
        last = ch
        for l in a["dense_layers"]:
            dense += [nn.Linear(ch, l["size"]), nn.BatchNorm1d(l["size"]), nn.Identity(), nn.Identity()]
            ch = l["size"]
        self.dense_layers = nn.ModuleList(dense)
        self.output = nn.Linear(ch, 1)
        if a["use_spatial_attention"]:
            self.spatial_attention = nn.Module()
            self.spatial_attention.conv1, self.spatial_attention.conv2 = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 1)
        if ssm:
            self.mamba = nn.LSTM(last, last, 2, batch_first=True)
        elif a["use_temporal_attention"]:
            self.temporal_attention = nn.Module()
            self.temporal_attention.fc1, self.temporal_attention.fc2 = nn.Linear(last, last // 2), nn.Linear(last // 2, 1)

    def frame(self, x, gamma, beta, keep):
        if hasattr(self, "spatial_attention"):
            s = self.spatial_attention
            x = x * torch.sigmoid(s.conv2(F.relu(s.conv1(x))))
        for i in range(len(self.cnn_layers) // 5):
            x = F.leaky_relu(self.cnn_layers[5 * i + 1](self.cnn_layers[5 * i](x)), 0.01)
            if i == 0:
                x = gamma[:, :, None, None] * x + beta[:, :, None, None]
            x = F.max_pool2d(x, 2)
            if keep:
                x = x * keep[i][:, :, None, None]
        return x.mean((2, 3))

    def forward(self, frames, angles, conv_keep=None, dense_keep=None):
        frames = torch.nan_to_num(frames)
        gamma, beta = self.film_layers[0].film_mlp(angles).chunk(2, 1)
        f = torch.stack([self.frame(frames[:, t:t + 1], gamma, beta, conv_keep and [k[t] for k in conv_keep])
                         for t in range(frames.shape[1])], 1)
        if hasattr(self, "mamba"):
            x = self.mamba(f)[0].mean(1)
        elif hasattr(self, "temporal_attention"):
            t = self.temporal_attention
            x = (t.fc2(F.relu(t.fc1(f))).softmax(1) * f).sum(1)
        else:
            x = f.mean(1)
        for i in range(len(self.dense_layers) // 4):
            x = F.leaky_relu(self.dense_layers[4 * i + 1](self.dense_layers[4 * i](x)), 0.01)
            if dense_keep:
                x = x * dense_keep[i]
        return torch.nan_to_num(self.output(x)).squeeze(1)


def cloud_rates(lr, warmup, patience, n):
    rates, now, bad = [], lr / (warmup - 1), 0
    best = None
    for e in range(n):
        rates.append(now)
        if e + 2 <= warmup - 1:
            now = lr * (e + 2) / (warmup - 1)
            continue
        if best is None:
            best = True
            continue
        bad += 1
        if bad > patience:
            now, bad = max(now * 0.5, 1e-6), 0
    return torch.tensor(rates, dtype=torch.float64)


def cloud_case(c, g):
    b, (_, h, w), t = c["batch"], c["image"], c["image"][0]
    a = {"image_shape": list(c["image"]), "temporal_frames": t, "scalar_features": 3, "leaky_relu_slope": 0.01,
         "cnn_layers": [{"out_channels": o, "params": {"kernel_size": 3, "padding": 1}, "pool": {"kernel_size": 2, "stride": 2},
                         "dropout": 0.25, **({"film": True} if i == 0 else {})} for i, o in enumerate(c["channels"])],
         "dense_layers": [{"size": n, "batch_norm": True, "dropout": max(0.5 - 0.2 * i, 0.0)} for i, n in enumerate(c["dense"])],
         "use_spatial_attention": c.get("spatial", True), "use_temporal_attention": c.get("temporal", True)}
    about = {"constructed": {"MultimodalRegressionModel": a}, "weights": {"file": "cloud.pth"},
             "optimiser": {"type": "AdamW", "lr": c.get("lr", 1e-3), "weight_decay": c.get("decay", 0.04), "betas": [0.9, 0.999], "eps": 1e-8},
             "hard_mining": {"k": c.get("k", 0.35), "factor": c.get("factor", 1.5)}}
    rand, keep = lambda *s: torch.randn(*s, generator=g), lambda p, *s: (torch.rand(*s, generator=g) >= p).float() / (1 - p)
    inputs = {"in/frames": rand(b, t, h, w), "in/angles": rand(b, 2), "in/target": rand(b)}
    inputs["in/frames"].view(-1)[7] = math.nan
    for i, o in enumerate(c["channels"]):
        inputs[f"in/conv_keep{i + 1}"] = keep(0.25, t, b, o)
    for i, l in enumerate(a["dense_layers"]):
        inputs[f"in/dense_keep{i + 1}"] = keep(l["dropout"], b, l["size"])
    nets = [Cloud(a), Cloud(a, True)]
    for net in nets:
        init(net, g)
    return about, {"cloud.pth": clone(nets[0].state_dict()), "cloud_ssm.pth": clone(nets[1].state_dict())}, inputs


def cloud_run(about, files, inputs, dtype):
    a, o, mining = about["constructed"]["MultimodalRegressionModel"], about["optimiser"], about["hard_mining"]
    i = {k[3:]: wide(x, dtype) for k, x in inputs.items()}
    conv = [i[f"conv_keep{n + 1}"] for n in range(len(a["cnn_layers"]))]
    dense = [i[f"dense_keep{n + 1}"] for n in range(len(a["dense_layers"]))]
    net = Cloud(a)
    net.load_state_dict(files["cloud.pth"])
    made, before = {}, clone(net.state_dict())
    net.eval()
    made["out/eval"] = net(i["frames"], i["angles"])
    net.train()
    y = net(i["frames"], i["angles"], conv, dense)
    huber = F.huber_loss(y, i["target"], reduction="none", delta=1.0)
    e = i["target"] - y.detach()
    size, low = e.abs(), (e > 0).to(dtype)
    weighted = huber.detach() * (1 + low)
    weight = torch.ones_like(huber).index_fill(0, huber.detach().topk(int(len(huber) * mining["k"])).indices, mining["factor"])
    loss = (huber * weight).mean()
    made.update({"step/prediction": y, "step/per_sample": huber, "step/loss": loss, "losses/mse_mae": 0.5 * e * e + 0.5 * size,
                 "losses/huber_mae": 0.5 * huber + 0.5 * size ** 1.5, "losses/weighted_huber": weighted,
                 "losses/weighted_huber_mae": 0.5 * weighted + 0.5 * size ** 1.5})
    opt = torch.optim.AdamW(net.parameters(), lr=o["lr"], weight_decay=o["weight_decay"], betas=o["betas"], eps=o["eps"])
    loss.backward()
    made.update(gradients(net, "grad"))
    opt.step()
    made.update(changes(net, before, "delta"))
    made.update({f"bn_after/{k}": v for k, v in net.state_dict().items() if "running" in k})
    about["loss"] = float(loss)
    net = Cloud(a, True)
    net.load_state_dict(files["cloud_ssm.pth"])
    net.eval()
    y = net(i["frames"], i["angles"])
    loss = F.huber_loss(y, i["target"])
    loss.backward()
    made.update({"ssm/prediction_eval": y, "ssm/loss_eval": loss})
    made.update(gradients(net, "grad_ssm"))
    made["schedule/rates_warmup10_patience1"] = cloud_rates(o["lr"], 10, 1, 17)
    return made


def cloud_write(path, files, about):
    for name, sd in files.items():
        torch.save({"model_state_dict": sd, "scaler": None}, os.path.join(path, name))


def cloud_read(path, about):
    return {n: torch.load(os.path.join(path, n), weights_only=False)["model_state_dict"] for n in ("cloud.pth", "cloud_ssm.pth")}


# ------------------------------------------------------------------ LGT

class LgtRes(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(32, c)
        self.conv2, self.norm2 = nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(32, c)

    def forward(self, x):
        return F.silu(x + self.norm2(self.conv2(F.silu(self.norm1(self.conv1(x))))))


class LgtDynamic(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.style_conv = nn.Module()
        self.style_conv.hypernet = nn.Linear(d, 9 * c)
        self.norm, self.conv = nn.GroupNorm(32, c), nn.Conv2d(c, c, 1)

    def forward(self, x, e):
        b, c, h, w = x.shape
        k = self.style_conv.hypernet(e).view(b * c, 1, 3, 3)
        y = F.conv2d(x.reshape(1, b * c, h, w), k, padding=1, groups=b * c).view(b, c, h, w)
        return F.silu(x + self.conv(F.silu(self.norm(y))))


class LgtAda(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv1, self.ada_gn = nn.Conv2d(c, c, 3, padding=1), nn.Module()
        self.ada_gn.style_mlp = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 2 * c))
        self.conv2 = nn.Conv2d(c, c, 1)

    def forward(self, x, e):
        scale, shift = (z[:, :, None, None] for z in self.ada_gn.style_mlp(e).chunk(2, 1))
        return F.silu(x + self.conv2(F.silu(F.group_norm(self.conv1(x), 32) * scale + shift)))


class LgtAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.qkv, self.out_proj, self.norm2 = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c), nn.LayerNorm(c)

    def forward(self, x):
        b, c, h, w = x.shape
        t = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norm1(t)).view(b, h * w, 3, 8, c // 8).permute(2, 0, 3, 1, 4)
        p = (q @ k.transpose(-2, -1) * (c // 8) ** -0.5).softmax(-1)
        return self.norm2(t + self.out_proj((p @ v).transpose(1, 2).reshape(b, h * w, c))).transpose(1, 2).reshape(b, c, h, w)


class Lgt(nn.Module):
    def __init__(self, m, plus):
        super().__init__()
        c, s, t = m["base_channels"], m["style_dim"], m["time_dim"]
        self.dim, block = t, LgtAda if plus else LgtDynamic
        self.time_embed = nn.Module()
        self.time_embed.mlp = nn.Sequential(nn.Linear(t, 4 * t), nn.SiLU(), nn.Linear(4 * t, t))
        self.style_embed = nn.Module()
        self.style_embed.register_buffer("avg_embedding", torch.zeros(s))
        self.style_embed.embeddings = nn.Embedding(m["num_styles"], s)
        self.cond_fusion = nn.Sequential(nn.Linear(t + s, 2 * s), nn.SiLU(), nn.Linear(2 * s, s))
        self.input_proj = nn.Conv2d(m["latent_channels"], c, 3, padding=1)
        self.encoder_blocks_32 = nn.ModuleList(LgtRes(c) for _ in range(m["num_encoder_blocks"]))
        self.down1 = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.encoder_blocks_16 = nn.ModuleList(LgtRes(2 * c) for _ in range(m["num_encoder_blocks"]))
        self.down2 = nn.Conv2d(2 * c, 4 * c, 3, stride=2, padding=1)
        middle = nn.Sequential(LgtRes(4 * c), LgtRes(4 * c))
        if plus:
            self.bottleneck_conv, self.bottleneck_attn = middle, LgtAttention(4 * c)
        else:
            self.bottleneck = middle
        gate = lambda n: nn.Sequential(nn.Linear(s, s), nn.SiLU(), nn.Linear(s, n))
        self.up1 = nn.ConvTranspose2d(4 * c, 2 * c, 4, stride=2, padding=1)
        if plus:
            self.skip_gate_16 = nn.Module()
            self.skip_gate_16.gate_mlp = gate(2 * c)
        self.decoder_blocks_16 = nn.ModuleList(block(2 * c, s) for _ in range(m["num_decoder_blocks"]))
        self.up2 = nn.ConvTranspose2d(2 * c, c, 4, stride=2, padding=1)
        if plus:
            self.skip_gate_32 = nn.Module()
            self.skip_gate_32.gate_mlp = gate(c)
        self.decoder_blocks_32 = nn.ModuleList(block(c, s) for _ in range(m["num_decoder_blocks"]))
        self.output_proj = nn.Sequential(nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, m["latent_channels"], 3, padding=1))
        self.plus = plus

    def forward(self, x, t, style, average):
        half = self.dim // 2
        f = torch.exp(-math.log(10000) * torch.arange(half, dtype=x.dtype) / half)
        a = t[:, None] * f
        e = self.time_embed.mlp(torch.cat([a.cos(), a.sin()], -1))
        s = self.style_embed
        z = s.avg_embedding.expand(len(x), -1) if average else s.embeddings(style)
        e = self.cond_fusion(torch.cat([e, z], -1))
        gate = lambda m, h: h * torch.sigmoid(m.gate_mlp(e))[:, :, None, None]
        h = self.input_proj(x)
        for b in self.encoder_blocks_32:
            h = b(h)
        h1, h = h, self.down1(h)
        for b in self.encoder_blocks_16:
            h = b(h)
        h2, h = h, self.down2(h)
        h = self.bottleneck_attn(self.bottleneck_conv(h)) if self.plus else self.bottleneck(h)
        h = self.up1(h) + (gate(self.skip_gate_16, h2) if self.plus else h2)
        for b in self.decoder_blocks_16:
            h = b(h, e)
        h = self.up2(h) + (gate(self.skip_gate_32, h1) if self.plus else h1)
        for b in self.decoder_blocks_32:
            h = b(h, e)
        return self.output_proj(h)


def lgt_case(c, g):
    m = {"latent_channels": c.get("channels", 4), "base_channels": c["base"], "style_dim": c["style"], "time_dim": c.get("time", c["style"]),
         "num_styles": c.get("styles", 2), "num_encoder_blocks": c["encoder"], "num_decoder_blocks": c["decoder"]}
    loss = {"w_style": c.get("w_style", 2.0), "w_content": 0.5, "patch_size": 3, "num_projections": c.get("projections", 8),
            "max_samples": c["samples"], "max_spatial_samples": c["positions"], "use_velocity_reg": c.get("velocity", True),
            "vel_reg_weight": 0.01, "use_multiscale_swd": c.get("multi", True), "swd_scales": c.get("scales", [3, 2]),
            "swd_scale_weights": c.get("weights", [5.0, 0.5])}
    if "style_weights" in c:
        loss["style_weights"] = c["style_weights"]
    training = {"batch_size": c["batch"], "accumulation_steps": 1, "learning_rate": 1e-4, "min_learning_rate": 1e-6, "weight_decay": 1e-5,
                "num_epochs": 100, "label_drop_prob": 0.15, "use_avg_style_for_uncond": True, "epsilon": 0.01, "epsilon_warmup_epochs": 10,
                "ode_integration_steps": c["steps"], "use_amp": False}
    about = {"constructed": {"LGTUNet": m}, "config": {"model": m, "loss": loss, "training": training}, "epoch": c.get("epoch", 4),
             "weights": {"files": ["epoch_%04d.pt" % c.get("epoch", 4), "plus_changed.pt"]}}
    rand, b = lambda *s: torch.randn(*s, generator=g), c["batch"]
    h, w = c["latent"] if isinstance(c["latent"], (list, tuple)) else (c["latent"],) * 2
    inputs = {f"in/{k}": rand(b, m["latent_channels"], h, w) for k in ("src", "style_ref", "x0")}
    inputs.update({"in/u": torch.rand(b, generator=g), "in/style": torch.randint(m["num_styles"], (b,), generator=g),
                   "in/drop_no": torch.tensor([0.9]), "in/drop_yes": torch.tensor([0.01])})
    if h * w > loss["max_spatial_samples"]:
        inputs["in/positions"] = torch.randperm(h * w, generator=g)[:loss["max_spatial_samples"]]
    for i, k in enumerate(loss["swd_scales"] if loss["use_multiscale_swd"] else [loss["patch_size"]]):
        n = b * (h + (k % 2 == 0)) * (w + (k % 2 == 0))
        if n > loss["max_samples"]:
            inputs[f"in/rows{i}"] = torch.randperm(n, generator=g)[:loss["max_samples"]]
        inputs[f"in/directions{i}"] = rand(m["latent_channels"] * k * k, loss["num_projections"])
    base, plus = Lgt(m, False), Lgt(m, True)
    init(base, g)
    init(plus, g)
    base.style_embed.avg_embedding.copy_(base.style_embed.embeddings.weight.detach().mean(0) + 0.05)
    base, plus = halved(base.state_dict()), halved(plus.state_dict())
    changed = {k: v for k, v in plus.items() if k.startswith(("bottleneck_attn", "skip_gate", "decoder_blocks"))}
    return about, {about["weights"]["files"][0]: base, "plus_changed.pt": changed}, inputs


def lgt_step(net, i, about, dropped):
    c, t = about["config"]["loss"], about["config"]["training"]
    e = t["epsilon"] * min(about["epoch"] / t["epsilon_warmup_epochs"], 1)
    now = i["u"] * (1 - e) + e
    w = lambda z: z[:, None, None, None]
    x = (1 - w(now)) * i["x0"] + w(now) * i["src"]
    made = {"t": now, "x_t": x, "v_mid": net(x, now, i["style"], False)}
    after = []
    for k in range(t["ode_integration_steps"]):
        v = net(x, now, i["style"], dropped)
        if k == 0:
            made["v_first"] = v
        dt = (1 - now) / t["ode_integration_steps"]
        x, now = x + v * w(dt), now + dt
        after.append(now)
    made["x_1"], made["t_after_each_step"] = x, torch.stack(after)
    terms, swd = {}, 0.0
    multi = c["use_multiscale_swd"]
    scales, weights = (c["swd_scales"], c["swd_scale_weights"]) if multi else ([c["patch_size"]], [1.0])
    for n, (k, f) in enumerate(zip(scales, weights)):
        d = F.normalize(i[f"directions{n}"], dim=0)

        def project(z):
            p = F.unfold(z, k, padding=k // 2).transpose(1, 2).reshape(-1, k * k * z.shape[1])
            p = p[i[f"rows{n}"]] if f"rows{n}" in i else p
            return (p @ d).sort(0).values
        s = F.mse_loss(project(x), project(i["style_ref"]))
        terms[f"swd_scale_{k}"] = s
        swd = swd + f * s

    def cosines(z):
        z = z.flatten(2)
        z = F.normalize(z[:, :, i["positions"]] if "positions" in i else z, dim=1)
        return z.transpose(1, 2) @ z
    ssm = F.mse_loss(cosines(x), cosines(i["src"]))
    share = torch.tensor(c["style_weights"], dtype=x.dtype)[i["style"]].mean() if "style_weights" in c else 1.0
    total = c["w_style"] * share * swd + c["w_content"] * ssm
    terms.update(style_swd=swd, content_ssm=ssm)
    if c["use_velocity_reg"]:
        terms["vel_reg"] = c["vel_reg_weight"] * made["v_mid"].square().mean()
        total = total + terms["vel_reg"]
    terms["total"] = total
    return made, terms, total


def lgt_run(about, files, inputs, dtype):
    i = {k[3:]: wide(x, dtype) for k, x in inputs.items()}
    m, t = about["config"]["model"], about["config"]["training"]
    made, steps = {}, {}
    for plus in (False, True):
        base = dict(files[about["weights"]["files"][0]])
        if plus:
            base = {("bottleneck_conv" + k[10:] if k.startswith("bottleneck.") else k): v for k, v in base.items()
                    if not k.startswith("decoder_blocks")}
            base.update(files["plus_changed.pt"])
        name = "plus" if plus else "baseline"
        for dropped in (False, True):
            net = Lgt(m, plus)
            net.load_state_dict(base)
            before, kind = clone(net.state_dict()), name + ("_label_dropped" if dropped else "")
            if not dropped:
                made[f"out/{name}.v"] = net(i["x0"], i["u"], i["style"], False)
                made[f"out/{name}.v_avg_style"] = net(i["x0"], i["u"], i["style"], True)
            opt = torch.optim.AdamW(net.parameters(), lr=t["learning_rate"], weight_decay=t["weight_decay"])
            ode, terms, total = lgt_step(net, i, about, dropped)
            total.backward()
            made.update({f"ode_{kind}/{k}": v for k, v in ode.items() if not dropped or k not in ("t", "x_t")})
            made.update(gradients(net, f"grad_{kind}"))
            terms["grad_norm_before_clip"] = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            steps[kind] = {k: float(v) for k, v in terms.items()}
            opt.step()
            if not dropped:
                made.update(changes(net, before, f"delta_{kind}"))
    about["steps"] = steps
    return made


def lgt_write(path, files, about):
    half = lambda sd: {k: v.half() if v.is_floating_point() else v for k, v in sd.items()}
    first, second = about["weights"]["files"]
    torch.save({"epoch": about["epoch"], "model_state_dict": half(files[first]), "optimizer_state_dict": {"state": {}, "param_groups": []},
                "scheduler_state_dict": {}, "scaler_state_dict": {}, "config": about["config"], "metrics": {"loss": 0.0}},
               os.path.join(path, first))
    torch.save({"model_state_dict": half(files[second])}, os.path.join(path, second))


def lgt_read(path, about):
    return {n: {k: v.float() for k, v in torch.load(os.path.join(path, n), weights_only=False)["model_state_dict"].items()}
            for n in about["weights"]["files"]}


# ------------------------------------------------------------------ WanDistiller

class WanBlock(nn.Module):
    def __init__(self, h, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.attn = nn.MultiheadAttention(h, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(h, 4 * h), nn.SiLU(), nn.Linear(4 * h, h))

    def forward(self, x, text, time):
        x = x + text + time
        y = self.norm1(x)
        x = x + self.attn(y, y, y)[0]
        return x + self.mlp(self.norm2(x))


class WanStudent(nn.Module):
    def __init__(self, s):
        super().__init__()
        h, self.h = s["hidden_size"], s["hidden_size"]
        self.text_proj = nn.Linear(s["text_encoder_output_dim"], h)
        self.time_embed = nn.Sequential(nn.Linear(h, 4 * h), nn.SiLU(), nn.Linear(4 * h, h))
        self.conv_in = nn.Conv2d(s["num_channels"], h, 3, padding=1)
        self.blocks = nn.ModuleList(WanBlock(h, s["num_heads"]) for _ in range(s["depth"]))
        self.conv_out = nn.Conv2d(h, s["num_channels"], 3, padding=1)

    def forward(self, x, t, text):
        b, _, h, w = x.shape
        half = self.h // 2
        f = torch.exp(torch.arange(half, dtype=x.dtype) * -(math.log(10000) / (half - 1)))
        a = t.to(x.dtype)[:, None] * f
        time = self.time_embed(torch.cat([a.sin(), a.cos()], 1))[:, None]
        text = self.text_proj(text.mean(1))[:, None]
        y = self.conv_in(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            y = block(y, text, time)
        return self.conv_out(y.transpose(1, 2).reshape(b, -1, h, w))


def wan_teacher(t):
    from diffusers import WanTransformer3DModel
    return WanTransformer3DModel(**{**t, "patch_size": tuple(t["patch_size"])})


def wan_case(c, g):
    s = {"model_type": "WanLiteStudent", "hidden_size": c["hidden"], "depth": c["depth"], "num_heads": c["heads"], "num_channels": c.get("channels", 4),
         "image_size": 16 * c["latent"], "patch_size": 16, "text_max_length": 77, "text_encoder_output_dim": c["text"][1],
         "projection_factor": 1.0}
    t = {"patch_size": [1, 2, 2], "num_attention_heads": c["teacher"][0], "attention_head_dim": c["teacher"][1],
         "in_channels": c.get("wide", 16), "out_channels": c.get("wide", 16), "text_dim": c["text"][1], "freq_dim": c.get("freq", 16), "ffn_dim": c["ffn"], "num_layers": c["layers"]}
    about = {"constructed": {"WanLiteStudent": s, "WanTransformer3DModel": t}, "lr": c.get("lr", 1e-4)}
    rand, side, b = lambda *n: torch.randn(*n, generator=g), c["latent"], c["batch"]
    n, wide_n = s["num_channels"], t["in_channels"]
    inputs = {"in/t": torch.randint(1000, (1,), generator=g), "in/t2": torch.randint(1000, (b,), generator=g),
              "in/latents": rand(1, n, side, side), "in/latents2": rand(b, n, side, side), "in/lift.weight": rand(wide_n, n, 1, 1, 1) / 2,
              "in/lift.bias": 0.1 * rand(wide_n), "in/project.weight": rand(wide_n, n, 1, 1) / 2, "in/project.bias": 0.1 * rand(wide_n),
              "in/text": rand(1, *c["text"]), "in/text2": rand(b, *c["text"])}
    inputs["in/lifted2"] = F.conv3d(inputs["in/latents2"].unsqueeze(2), inputs["in/lift.weight"], inputs["in/lift.bias"])
    student, teacher = WanStudent(s), wan_teacher(t)
    init(student, g)
    init(teacher, g)
    return about, {"student": clone(student.state_dict()), "teacher": clone(teacher.state_dict())}, inputs


def wan_projected(student, teacher, depth, layers):
    """The authors' truncation: layers int(i * layers/depth); matrices that are large enough are cut and scaled by the root of the inputs'
    ratio, vectors are cut or padded with zeros."""
    made = {}
    step = layers / depth
    for i in range(depth):
        of = i if depth >= layers else int(i * step)
        if of >= layers:
            continue
        n, o = f"blocks.{i}.", f"blocks.{of}."
        for kind in ("weight", "bias"):
            part = lambda name: teacher[o + name + "." + kind]
            pairs = {f"{n}attn.in_proj_{kind}": torch.cat([part("attn1.to_q"), part("attn1.to_k"), part("attn1.to_v")]),
                     f"{n}attn.out_proj.{kind}": part("attn1.to_out.0"), f"{n}mlp.0.{kind}": part("ffn.net.0.proj"),
                     f"{n}mlp.2.{kind}": part("ffn.net.2")}
            for name, x in pairs.items():
                want = student[name].shape
                if x.dim() == 2:
                    y = x[:want[0], :want[1]]
                    y = y * (x.shape[1] / want[1]) ** 0.5 if x.shape[1] > want[1] and x.shape != want else y
                    if y.shape == want:
                        made["projection/" + name] = y
                else:
                    y = x[:want[0]]
                    made["projection/" + name] = F.pad(y, (0, want[0] - len(y)))
    return made


def wan_run(about, files, inputs, dtype):
    i = {k[3:]: wide(x, dtype) for k, x in inputs.items()}
    s, t = about["constructed"]["WanLiteStudent"], about["constructed"]["WanTransformer3DModel"]
    student, teacher = WanStudent(s), wan_teacher(t).to(dtype).eval()
    student.load_state_dict(files["student"])
    teacher.load_state_dict(files["teacher"])
    made = {}
    run = lambda x, t, text: teacher(x, t.to(dtype), text, return_dict=False)[0]
    with torch.no_grad():
        made["out/student"] = student(i["latents2"], i["t2"], i["text2"])
        made["out/teacher"] = run(i["lifted2"], i["t2"], i["text2"])
        made["out/teacher_of_zeros"] = run(0 * i["lifted2"], i["t2"], i["text2"])
        lifted = F.conv3d(i["latents2"].unsqueeze(2), i["lift.weight"], i["lift.bias"])
        made["mended/teacher"] = run(lifted, i["t2"], i["text2"]).squeeze(2)
        zeros = torch.zeros(1, t["in_channels"], 1, *i["latents"].shape[2:], dtype=dtype)
        made["seed/teacher"] = run(zeros, i["t"], i["text"])
    before = clone(student.state_dict())
    opt = torch.optim.AdamW(student.parameters(), lr=about["lr"])
    y = student(i["latents"], i["t"], i["text"])
    loss = (y - made["seed/teacher"]).square().mean()       # [1,4,S,S] against [1,16,1,S,S]: broadcast
    loss.backward()
    made.update({"seed/student": y, "seed/loss": loss, **gradients(student, "grad_seed")})
    opt.step()
    made.update(changes(student, before, "delta_seed"))
    about["loss_seed"] = float(loss)
    student.load_state_dict(files["student"])
    student.zero_grad()
    project = nn.Conv2d(s["num_channels"], t["in_channels"], 1)
    project.load_state_dict({"weight": i["project.weight"], "bias": i["project.bias"]})
    opt = torch.optim.AdamW([*student.parameters(), *project.parameters()], lr=about["lr"])
    y = project(student(i["latents2"], i["t2"], i["text2"]))
    loss = F.mse_loss(y, made["mended/teacher"])
    loss.backward()
    kept = clone(project.state_dict())
    made.update({"mended/student_projected": y, "mended/loss": loss, **gradients(student, "grad_mended", "student."),
                 **gradients(project, "grad_mended", "project.")})
    opt.step()
    made.update({**changes(student, before, "delta_mended", "student."), **changes(project, kept, "delta_mended", "project.")})
    about["loss_mended"] = float(loss)
    made.update(wan_projected(files["student"], files["teacher"], s["depth"], t["num_layers"]))
    return {k: v.to(dtype) for k, v in made.items()}


def wan_write(path, files, about):
    os.makedirs(os.path.join(path, "student"), exist_ok=True)
    os.makedirs(os.path.join(path, "teacher/transformer"), exist_ok=True)
    c = about["constructed"]
    with open(os.path.join(path, "student/student_config.json"), "w") as f:
        json.dump(c["WanLiteStudent"], f, indent=4)
    save_file(files["student"], os.path.join(path, "student/diffusion_model.safetensors"))
    with open(os.path.join(path, "teacher/transformer/config.json"), "w") as f:
        json.dump({"_class_name": "WanTransformer3DModel", "cross_attn_norm": True, "eps": 1e-6, "qk_norm": "rms_norm_across_heads",
                   "rope_max_seq_len": 1024, **c["WanTransformer3DModel"]}, f, indent=2)
    save_file(files["teacher"], os.path.join(path, "teacher/transformer/diffusion_pytorch_model.safetensors"), {"format": "pt"})


def wan_read(path, about):
    return {"student": load_file(os.path.join(path, "student/diffusion_model.safetensors")),
            "teacher": load_file(os.path.join(path, "teacher/transformer/diffusion_pytorch_model.safetensors"))}


# ------------------------------------------------------------------ FluxFlow

def curve(s, p0, p1, p2, p3):
    r = 1 - s
    return r * r * r * p0 + 3 * r * r * s * p1 + 3 * r * s * s * p2 + s * s * s * p3


def bezier(x, dim=1, act=F.silu):
    t, *p = x.unflatten(dim, (x.shape[dim] // 5, 5)).unbind(dim + 1 if dim >= 0 else -1)
    return curve(t.sigmoid(), *(act(q) for q in p))


class Curve(nn.Module):
    def __init__(self, shape, start):
        super().__init__()
        for i, v in enumerate(start):
            setattr(self, f"p{i}", nn.Parameter(torch.full(shape, v)))

    def forward(self, x):
        p = [getattr(self, f"p{i}") for i in range(4)]
        if x.dim() == 4:
            p = [q.view(-1, 1, 1) for q in p]
        return curve(x.sigmoid(), *p)


START = (1e-8, 0.25, 0.75, 1.0)
one = lambda *layers: nn.Sequential(*layers)


def position_code(h, w, d, dtype):
    half = d // 2
    f = 10000.0 ** (-torch.arange(0, half, 2, dtype=dtype) / half)

    def code(n):
        a = torch.arange(n, dtype=dtype)[:, None] * f
        return torch.stack([a.sin(), a.cos()], 2).flatten(1)
    return torch.cat([code(h)[:, None].expand(h, w, half), code(w)[None].expand(h, w, half)], -1).reshape(h * w, d)


class FluxToken(nn.Module):
    def __init__(self, d, heads, mult):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.ff = one(nn.Linear(d, 5 * mult * d), nn.Identity(), nn.Linear(mult * d, d))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.ff[2](bezier(self.ff[0](self.norm2(x)), -1))


class FluxCompressor(nn.Module):
    def __init__(self, a):
        super().__init__()
        d, n = a["d_model"], a["downscales"]
        w = [round(5 + (d - 5) * i / n) for i in range(n + 1)]
        self.encoder_first_step = nn.ModuleList(one(nn.Conv2d(w[i], 5 * w[i + 1], 3, padding=1, bias=False)) for i in range(n))
        self.encoder_z = nn.ModuleList(one(nn.Conv2d(w[i + 1], 5 * w[i + 1], 8, stride=2, padding=3)) for i in range(n))
        head = lambda: nn.ModuleList(one(nn.Conv2d(d, 5 * d, 1)) for _ in range(2))
        self.latent_proj, self.mu_proj, self.logvar_proj = head(), head(), head()
        self.mu_activation, self.logvar_activation = Curve((d,), (-2.0, -0.5, 0.5, 2.0)), Curve((d,), (-3.0, -1.0, 1.0, 3.0))
        self.token_attn = nn.ModuleList(FluxToken(d, a["attn_heads"], a["attn_ff_mult"]) for _ in range(a["attn_layers"]))
        self.max_hw = a["max_hw"]

    def forward(self, image, eps):
        b, _, h, w = image.shape
        xs = torch.linspace(-1, 1, w, dtype=image.dtype).expand(b, 1, h, w)
        ys = torch.linspace(-1, 1, h, dtype=image.dtype)[:, None].expand(b, 1, h, w)
        x = torch.cat([image, xs, ys], 1)
        for first, z in zip(self.encoder_first_step, self.encoder_z):
            x = bezier(z(bezier(first(x))))
        twice = lambda p, y: bezier(p[1](bezier(p[0](y))))
        latent = twice(self.latent_proj, x)
        mu = self.mu_activation(twice(self.mu_proj, latent))
        logvar = self.logvar_activation(twice(self.logvar_proj, latent))
        z = mu + eps * torch.exp(0.5 * logvar)
        d, h, w = z.shape[1:]
        t = (z + latent).flatten(2).transpose(1, 2) + position_code(h, w, d, z.dtype)
        for block in self.token_attn:
            t = block(t)
        size = t.new_zeros(b, 1, d)
        size[:, :, 0], size[:, :, 1] = h / self.max_hw, w / self.max_hw
        return torch.cat([t, size], 1), mu, logvar


class FluxUp(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.spade = nn.Module()
        self.spade.mlp_shared = one(nn.Conv2d(d, hidden, 3, padding=1))
        self.spade.mlp_gamma, self.spade.mlp_beta = nn.Conv2d(hidden, d, 3, padding=1), nn.Conv2d(hidden, d, 3, padding=1)
        self.conv1 = one(nn.ConvTranspose2d(d, 5 * d, 16, stride=2, padding=7), nn.Identity(), nn.Conv2d(d, 5 * d, 5, padding=4, dilation=2))

    def forward(self, x, context):
        y = x
        if context is not None:
            s = self.spade
            a = F.relu(s.mlp_shared(F.interpolate(context, size=x.shape[-2:], mode="bilinear", align_corners=False)))
            y = F.group_norm(x, min(32, x.shape[1])) * (1 + s.mlp_gamma(a)) + s.mlp_beta(a)
        y = bezier(self.conv1[2](bezier(self.conv1[0](y))))
        return y + 0.1 * F.interpolate(x, scale_factor=2, mode="nearest")


class FluxMixer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d, d) for _ in range(4))
        self.norm_in, self.norm_out, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads

    def forward(self, x):
        y = torch.cat([self.cls.expand(len(x), -1, -1), self.norm_in(x)], 1)
        b, n, d = y.shape
        q, k, v = (f(y).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        p = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.norm_out(self.out_proj((p @ v).transpose(1, 2).reshape(b, n, d)))[:, 0]


class FluxExpander(nn.Module):
    def __init__(self, a, fixed):
        super().__init__()
        d, (r1, r2) = a["d_model"], fixed["rgb_widths"]
        self.context_mixer = FluxMixer(d, 1)        # not used
        self.upscale = nn.Module()
        self.upscale.layers = nn.ModuleList(FluxUp(d, fixed["spade_hidden"]) for _ in range(a["upscales"]))
        self.to_rgb_conv = one(nn.Conv2d(d, r1, 3, padding=1), nn.GroupNorm(8, r1), nn.SiLU(), nn.Conv2d(r1, r2, 3, padding=1),
                               nn.GroupNorm(8, r2), nn.SiLU(), nn.Conv2d(r2, 3, 1))
        self.rgb_activation = Curve((3,), (-1.0, 0.25, 0.75, 1.0))

    def forward(self, packed, h, w, context=True):
        x = feat = packed[:, :-1].transpose(1, 2).unflatten(2, (h, w))
        for layer in self.upscale.layers:
            x = layer(x, feat if context else None)
        return self.rgb_activation(self.to_rgb_conv(x))


class Spectral(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.bias, self.weight_orig = layer.bias, layer.weight
        n, m = layer.weight.flatten(1).shape
        self.register_buffer("weight_u", F.normalize(torch.randn(n), dim=0))
        self.register_buffer("weight_v", F.normalize(torch.randn(m), dim=0))

    def forward(self, x):
        w = self.weight_orig.flatten(1)
        if self.training:
            with torch.no_grad():
                self.weight_v.copy_(F.normalize(w.t() @ self.weight_u, dim=0, eps=1e-12))
                self.weight_u.copy_(F.normalize(w @ self.weight_v, dim=0, eps=1e-12))
        u, v = self.weight_u.clone(), self.weight_v.clone()
        w = self.weight_orig / (u @ (w @ v))
        return F.conv2d(x, w, self.bias, padding=1) if w.dim() == 4 else F.linear(x, w, self.bias)


class FluxDisc(nn.Module):
    def __init__(self, a):
        super().__init__()
        sn = lambda i, o: Spectral(nn.Conv2d(i, o, 3))
        pair = lambda i, o: one(sn(i, o), nn.LeakyReLU(0.2), sn(o, o))
        c, layers = a["base_ch"], [pair(a["in_channels"], a["base_ch"]), nn.LeakyReLU(0.2)]
        for _ in range(a["depth"]):
            block = nn.Module()
            block.conv1, block.conv2 = pair(c, 2 * c), pair(2 * c, 2 * c)
            layers.append(block)
            c *= 2
        self.backbone = nn.ModuleList(layers)
        self.head = sn(c, 1)
        self.ctx_proj = one(Spectral(nn.Linear(a["ctx_dim"], c)), nn.LeakyReLU(0.2), Spectral(nn.Linear(c, c)))

    def forward(self, image, ctx):
        h = F.leaky_relu(self.backbone[0](image), 0.2)
        for block in self.backbone[2:]:
            h = F.avg_pool2d(F.leaky_relu(block.conv2(F.leaky_relu(block.conv1(h), 0.2)), 0.2), 2)
        logits = self.head(h)
        return logits + (self.ctx_proj(ctx) * h.mean((2, 3))).sum(1)[:, None, None, None]


class FluxAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.q_proj, self.kv_proj, self.out_proj, self.heads = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d), heads

    def forward(self, x, source, angles):
        b, n, d = x.shape
        split = lambda y: y.view(b, -1, self.heads, d // self.heads).transpose(1, 2)

        def turn(y):
            a = angles[:y.shape[2]].repeat_interleave(2, -1)
            lo, hi = y.chunk(2, -1)
            return y * a.cos() + torch.cat([-hi, lo], -1) * a.sin()
        k, v = (split(y) for y in self.kv_proj(source).chunk(2, -1))
        p = (turn(split(self.q_proj(x))) @ turn(k).transpose(-2, -1) * (d // self.heads) ** -0.5).softmax(-1)
        return self.out_proj((p @ v).transpose(1, 2).reshape(b, n, d))


class FluxBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.rotary_pe = nn.Module()
        n = d // heads
        self.rotary_pe.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, n, 2).to(torch.get_default_dtype()) / n))
        self.self_attn, self.cross_attn = FluxAttention(d, heads), FluxAttention(d, heads)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d) for _ in range(3))
        for i in range(4):
            setattr(self, f"p{i}", one(*(one(nn.Linear(d, d), nn.SiLU()) for _ in range(3))))
        self.ffn = one(nn.Linear(d, d))

    def forward(self, x, text, points):
        a = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * self.rotary_pe.inv_freq
        h = self.norm1(x)
        x = x + self.self_attn(h, h, a)
        x = x + self.cross_attn(self.norm2(x), self.norm2(text), a)
        gate = torch.sigmoid(x)
        points = [getattr(self, f"p{i}")(gate if points is None else gate * points[i]) for i in range(4)]
        x = x + self.ffn(self.norm3(x))
        return bezier(torch.cat([x, *points], -1), -1, lambda q: q), points


class FluxFlow(nn.Module):
    def __init__(self, a):
        super().__init__()
        d, v, t = a["d_model"], a["vae_dim"], a["embedding_size"]
        self.vae_to_dmodel, self.dmodel_to_vae = nn.Linear(v, d), nn.Linear(d, v)
        self.ctx_mixer = FluxMixer(d, max(1, d // 128))
        self.context_injection = nn.Module()
        self.context_injection.gate, self.context_injection.bias = one(nn.Linear(d, d), nn.Sigmoid()), nn.Linear(d, d)
        self.text_proj = nn.Linear(t, d)
        self.time_embed = one(nn.Embedding(1000, d), nn.LayerNorm(d), Curve((d,), START), nn.Linear(d, t))
        self.transformer_blocks = nn.ModuleList(FluxBlock(d, a["n_head"]) for _ in range(a["n_layers"]))
        self.flow_predictor = one(nn.Conv2d(d, d, 5, padding=2), Curve((d, 1, 1), START), nn.Conv2d(d, d, 3, padding=1))
        self.context_final = one(nn.Conv2d(d + 2, d, 7, padding=3), Curve((d, 1, 1), START))
        self.tokens = a["ctx_tokens"]

    def forward(self, packed, text, t, h, w, tokens=None):
        n, tokens = packed[:, :-1], tokens or self.tokens
        x = self.vae_to_dmodel(n)
        c = self.ctx_mixer(x[:, :tokens])
        text = self.text_proj(text + self.time_embed((t * 999).clamp(max=999)))[:, None]
        points = None
        for block in self.transformer_blocks:
            i = self.context_injection
            x, points = block(x * i.gate(c)[:, None] + i.bias(c)[:, None], text, points)
            c = c + x.mean(1)
        b, _, d = x.shape
        flow = self.flow_predictor(x.transpose(1, 2).reshape(b, d, h, w))
        xs = torch.linspace(-1, 1, w, dtype=x.dtype).expand(b, 1, h, w)
        ys = torch.linspace(-1, 1, h, dtype=x.dtype)[:, None].expand(b, 1, h, w)
        row = self.dmodel_to_vae(self.context_final(torch.cat([flow, xs, ys], 1)).mean((2, 3)))[:, None]
        v = self.dmodel_to_vae(x)
        return torch.cat([v[:, :tokens] + row, v[:, tokens:], packed[:, -1:]], 1)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, decay):
        super().__init__(params, dict(lr=lr))
        self.betas, self.decay, self.first = betas, decay, lr

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * self.decay / self.first)
                p.add_((self.betas[0] * m + (1 - self.betas[0]) * p.grad).sign(), alpha=-group["lr"])
                m.mul_(self.betas[1]).add_(p.grad, alpha=1 - self.betas[1])


def flux_case(c, g):
    d, fixed = c["dim"], {"spade_hidden": c.get("hidden", 128), "rgb_widths": c.get("rgb", [96, 48]), "rgb_groups": 8}
    a = {"FluxCompressor": {"in_channels": 3, "d_model": d, "downscales": c["scales"], "max_hw": c.get("max_hw", 1024),
                            "attn_layers": c["layers"], "attn_heads": c["heads"], "attn_ff_mult": c.get("ff", 2)},
         "FluxExpander": {"d_model": d, "upscales": c["scales"], "max_hw": c.get("max_hw", 1024)},
         "PatchDiscriminator": {"in_channels": 3, "base_ch": c["base"], "depth": c["depth"], "ctx_dim": d},
         "FluxFlowProcessor": {"d_model": c["flow"], "vae_dim": d, "embedding_size": c["text"], "n_head": c["flow_heads"],
                               "n_layers": c["flow_layers"], "ctx_tokens": c.get("tokens", 4)}}
    adam = {"type": "AdamW", "lr": 1e-4, "eps": 1e-8}
    trainer = {"first_global_step": c.get("first", 2496), "r1_interval": 16, "r1_gamma": c.get("gamma", 5.0), "kl_beta": 1e-4,
               "kl_warmup_steps": 5000, "kl_free_bits": c.get("bits", 0.0), "lambda_adv": c.get("adv", 0.5), "mse_weight": 0.1,
               "use_lpips": False, "adaptive_weights": c.get("adaptive", True), "gradient_clip_norm": 1.0,
               "optimiser_vae": {**adam, "betas": [0.9, 0.95], "weight_decay": 0.01},
               "optimiser_discriminator": {**adam, "betas": [0.0, 0.9], "weight_decay": 0.001, "amsgrad": True},
               "optimiser_flow": {"type": "Lion", "lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.01},
               "schedule": {"type": "CosineAnnealingLR", "T_max": 100}, "ema_vae": 0.999, "ema_flow": 0.9999}
    about = {"constructed": a, "fixed_in_authors_code": fixed, "trainer": trainer}
    (h, w), n = c["image"], c["scales"]
    lh, lw = h >> n, w >> n
    rand, b, fb = lambda *s: torch.randn(*s, generator=g), c["batch"], c.get("flow_batch", 4)
    image = lambda m: (torch.rand(m, 3, h, w, generator=g) * 2 - 1)
    times = torch.randint(1000, (fb,), generator=g)
    times[0] = 0
    inputs = {"in/flow.t": times, "in/eps": rand(b, d, lh, lw), "in/flow.eps": rand(fb, d, lh, lw), "in/flow.image": image(fb),
              "in/flow.noise": rand(fb, lh * lw, d), "in/flow.text": rand(fb, c["text"]), "in/image": image(b)}
    for k in range(3):
        inputs[f"in/step{k}.eps_discriminator"], inputs[f"in/step{k}.eps_generator"] = rand(b, d, lh, lw), rand(b, d, lh, lw)
    nets = flux_nets(about)
    sd = {}
    for name, net in nets.items():
        init(net, g)
        sd.update({(f"D_img.{k}" if name == "discriminator" else f"diffuser.{name}.{k}"): v for k, v in clone(net.state_dict()).items()})
    return about, sd, inputs


def flux_nets(about):
    a = about["constructed"]
    return {"compressor": FluxCompressor(a["FluxCompressor"]), "expander": FluxExpander(a["FluxExpander"], about["fixed_in_authors_code"]),
            "discriminator": FluxDisc(a["PatchDiscriminator"]), "flow_processor": FluxFlow(a["FluxFlowProcessor"])}


def flux_load(nets, sd):
    for name, net in nets.items():
        p = "D_img." if name == "discriminator" else f"diffuser.{name}."
        net.load_state_dict({k[len(p):]: v for k, v in sd.items() if k.startswith(p)})


def flux_weights(history):
    mean = torch.stack(history).double().mean(0)
    positive = mean[mean > 0]
    target = positive.mean() if len(positive) else None
    return [1.0 if target is None or m == 0 else float(target / (m + 1e-8)) for m in mean]


def flux_run(about, sd, inputs, dtype):
    i = {k[3:]: wide(x, dtype) for k, x in inputs.items()}
    t, n = about["trainer"], about["constructed"]["FluxCompressor"]["downscales"]
    (h, w) = (x >> n for x in i["image"].shape[2:])
    nets, made = flux_nets(about), {}
    comp, exp, disc, flow = nets.values()
    load = lambda: flux_load(nets, sd)
    load()
    with torch.no_grad():
        packed, mu, logvar = comp(i["image"], i["eps"])
        disc.eval()
        made.update({"out/compressor.packed": packed, "out/compressor.mu": mu, "out/compressor.logvar": logvar,
                     "out/compressor.position_code": position_code(h, w, mu.shape[1], dtype), "out/expander.image": exp(packed, h, w),
                     "out/expander.image_without_spade": exp(packed, h, w, False),
                     "out/discriminator.patch_logits_eval": disc(i["image"], packed[:, :-1].mean(1))})
        disc.train()
    real = i["image"].clone().requires_grad_()

    def r1_of(logits, x):
        (slope,) = torch.autograd.grad(logits.flatten(1).mean(1).sum(), x, create_graph=True)
        return slope.square().sum((1, 2, 3)).mean()
    logits = disc(real, packed[:, :-1].mean(1))
    r1 = r1_of(logits, real)
    r1.backward()
    made.update({"r1_alone/value": r1, "r1_alone/patch_logits": logits, **gradients(disc, "grad_r1", "discriminator.")})
    load()
    disc.zero_grad()
    vae = [*comp.parameters(), *exp.parameters()]
    named = {name: net for name, net in nets.items() if name != "flow_processor"}
    before = {name: clone(dict(net.named_parameters())) for name, net in nets.items()}
    ov, od = t["optimiser_vae"], t["optimiser_discriminator"]
    opt = torch.optim.AdamW(vae, lr=ov["lr"], betas=ov["betas"], weight_decay=ov["weight_decay"])
    opt_d = torch.optim.AdamW(disc.parameters(), lr=od["lr"], betas=od["betas"], weight_decay=od["weight_decay"], amsgrad=True)
    plans = [torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=t["schedule"]["T_max"], eta_min=0.1 * x["lr"]) for o, x in ((opt, ov), (opt_d, od))]
    history, steps = [], []
    patch = lambda z: z.flatten(1).mean(1)
    for k in range(3):
        step, row = t["first_global_step"] + k, {}
        with torch.no_grad():
            packed = comp(i["image"], i[f"step{k}.eps_discriminator"])[0]
            fake, ctx = exp(packed, h, w), packed[:, :-1].mean(1)
        opt_d.zero_grad()
        real = i["image"].clone().requires_grad_()
        lr_ = disc(real, ctx)
        due = step % t["r1_interval"] == 0
        r1 = r1_of(lr_, real) if due else torch.zeros((), dtype=dtype)
        lf = disc(fake, ctx)
        hinge = F.relu(1 - patch(lr_)).mean() + F.relu(1 + patch(lf)).mean()
        loss = hinge + 0.5 * t["r1_gamma"] * r1
        loss.backward()
        row.update(r1=r1, d_hinge=hinge, discriminator=loss)
        if k == 0:
            made.update({"step0/patch_logits_real": lr_, "step0/patch_logits_fake": lf, **gradients(disc, "grad", "discriminator.")})
        opt_d.step()
        opt.zero_grad()
        packed, mu, logvar = comp(i["image"], i[f"step{k}.eps_generator"])
        out = exp(packed, h, w)
        low = lambda z: F.avg_pool2d(z, 3, stride=1, padding=1)
        a, b = low(out), low(i["image"])
        freq, mse = F.l1_loss(a, b) + F.l1_loss(out - a, i["image"] - b), F.mse_loss(out, i["image"])
        rec = freq + t["mse_weight"] * mse
        each = 0.5 * (mu.square() + logvar.exp() - 1 - logvar)
        kl = (each.clamp(min=t["kl_free_bits"]) if t["kl_free_bits"] else each).sum((1, 2, 3)).mean()
        beta = t["kl_beta"] * (1 - math.cos(math.pi * min(step / t["kl_warmup_steps"], 1))) / 2
        d = packed.detach()
        lg = disc(exp(d, h, w), d[:, :-1].mean(1))
        g = -patch(lg).mean()
        history.append(torch.stack([rec.detach(), kl.detach(), t["lambda_adv"] * g.detach()]))
        weight = flux_weights(history) if t["adaptive_weights"] else [1.0] * 3
        total = weight[1] * beta * kl + weight[0] * rec + weight[2] * t["lambda_adv"] * g
        total.backward()
        if k == 0:
            made.update({"step0/patch_logits_generator": lg, "step0/reconstruction": out, **gradients(comp, "grad", "compressor."),
                         **gradients(exp, "grad", "expander.")})
        norm = nn.utils.clip_grad_norm_(vae, t["gradient_clip_norm"])
        row.update(total=total, g_hinge=g, frequency_l1=freq, mse=mse, grad_norm_before_clip=norm, vae=rec, recon=rec, kl=kl, kl_beta=beta,
                   generator=t["lambda_adv"] * g, grad_norm_vae=norm * min(1, t["gradient_clip_norm"] / (float(norm) + 1e-6)))
        row.update(zip(("weight_recon", "weight_kl", "weight_gan"), weight))
        opt.step()
        for p in plans:
            p.step()
        row.update(lr_vae=plans[0].get_last_lr()[0], lr_disc=plans[1].get_last_lr()[0])
        steps.append({key: float(v) for key, v in row.items()})
        for name, net in named.items():
            if k == 0:
                made.update(changes(net, before[name], "delta", name + "."))
                if name != "discriminator":
                    made.update({f"ema_{key}": (1 - t["ema_vae"]) * v for key, v in changes(net, before[name], "delta", name + ".").items()})
            if k == 2:
                made.update(changes(net, before[name], "delta3", name + "."))
        if k == 0:
            made.update({f"after_step0/discriminator.{key}": v.clone() for key, v in disc.state_dict().items() if key.endswith("weight_u")})
    about["steps"] = steps
    load()
    flow.zero_grad()
    o = t["optimiser_flow"]
    opt = Lion(flow.parameters(), o["lr"], o["betas"], o["weight_decay"])
    with torch.no_grad():
        packed = comp(i["flow.image"], i["flow.eps"])[0]
        made.update({"out/flow.given_packed": packed, "out/flow.packed": flow(packed, i["flow.text"], i["flow.t"], h, w),
                     "out/flow.packed_context_tokens_as_downscales": flow(packed, i["flow.text"], i["flow.t"], h, w, n)})
    share = (1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)).cumprod(0)
    made["alphas_cumprod"] = share[i["flow.t"]].to(dtype)
    a0, a1 = share[i["flow.t"]][:, None, None].to(dtype), share[i["flow.t"].clamp(min=1)][:, None, None].to(dtype)
    x = packed[:, :-1]
    noised = a1.sqrt() * x + (1 - a1).sqrt() * i["flow.noise"]
    out = flow(torch.cat([noised, packed[:, -1:]], 1), i["flow.text"], i["flow.t"], h, w)
    v = out[:, :-1]
    loss = F.mse_loss(v, a0.sqrt() * i["flow.noise"] - (1 - a0).sqrt() * x)
    loss.backward()
    made.update({"flow_step/noised_tokens": noised, "flow_step/predicted_packed": out, **gradients(flow, "grad", "flow_processor.")})
    norm = nn.utils.clip_grad_norm_(flow.parameters(), t["gradient_clip_norm"])
    opt.step()
    made.update(changes(flow, before["flow_processor"], "delta", "flow_processor."))
    about["flow_step"] = {"loss": float(loss), "flow_loss": float(loss), "diff_loss": float(loss), "grad_norm_before_clip": float(norm),
                          "grad_norm_flow": float(norm) * min(1, t["gradient_clip_norm"] / (float(norm) + 1e-6)),
                          "lr_flow": 0.1 * o["lr"] + 0.9 * o["lr"] * (1 + math.cos(math.pi / t["schedule"]["T_max"])) / 2,
                          "pred_mean": float(v.mean()), "pred_std": float(v.std())}
    return {k: v.detach() for k, v in made.items()}


def flux_write(path, sd, about):
    save_file({k: v for k, v in sd.items() if not k.startswith("D_img")}, os.path.join(path, "flxflow_final.safetensors"))
    save_file({k: v for k, v in sd.items() if k.startswith("D_img")}, os.path.join(path, "D_img.safetensors"))


def flux_read(path, about):
    return {**load_file(os.path.join(path, "flxflow_final.safetensors")), **load_file(os.path.join(path, "D_img.safetensors"))}


# ------------------------------------------------------------------ StableSR with edges

def time_features(t, d, dtype):
    f = torch.exp(-math.log(10000) * torch.arange(d // 2, dtype=dtype) / (d // 2))
    a = t.to(dtype)[:, None] * f
    return torch.cat([a.cos(), a.sin()], 1)


conv3 = lambda i, o, s=1: nn.Conv2d(i, o, 3, stride=s, padding=1)


class SrRes(nn.Module):
    def __init__(self, i, o, emb, groups, spade=None):
        super().__init__()
        self.in_layers = one(nn.GroupNorm(groups, i), nn.SiLU(), conv3(i, o))
        self.emb_layers = one(nn.SiLU(), nn.Linear(emb, o))
        if spade:
            maps, hidden = spade
            self.spade = nn.Module()
            self.spade.param_free_norm = nn.GroupNorm(groups, o)
            self.spade.mlp_shared = one(conv3(maps, hidden), nn.ReLU())
            self.spade.mlp_gamma, self.spade.mlp_beta = conv3(hidden, o), conv3(hidden, o)
        self.out_layers = one(nn.GroupNorm(groups, o), nn.SiLU(), nn.Identity(), conv3(o, o))
        self.skip_connection = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, e, maps=None):
        h = self.out_layers(self.in_layers(x) + self.emb_layers(e)[:, :, None, None])
        if hasattr(self, "spade"):
            s = self.spade
            a = s.mlp_shared(maps[h.shape[-1]])
            h = s.param_free_norm(h) * (1 + s.mlp_gamma(a)) + s.mlp_beta(a)
        return self.skip_connection(x) + h


class SrAttention(nn.Module):
    def __init__(self, c, source, width):
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Linear(n, c, bias=False) for n in (c, source, source))
        self.to_out, self.heads = one(nn.Linear(c, c)), c // width

    def forward(self, x, source):
        b, n, c = x.shape
        q, k, v = (z.view(b, -1, self.heads, c // self.heads).transpose(1, 2) for z in (self.to_q(x), self.to_k(source), self.to_v(source)))
        p = (q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5).softmax(-1)
        return self.to_out((p @ v).transpose(1, 2).reshape(b, n, c))


class SrTransformer(nn.Module):
    def __init__(self, c, context, width, groups, depth):
        super().__init__()
        self.norm, self.proj_in = nn.GroupNorm(groups, c, eps=1e-6), nn.Linear(c, c)

        def block():
            b = nn.Module()
            b.attn1, b.ff = SrAttention(c, c, width), nn.Module()
            b.ff.net = nn.ModuleList([nn.Module(), nn.Identity(), nn.Linear(4 * c, c)])
            b.ff.net[0].proj = nn.Linear(c, 8 * c)
            b.attn2 = SrAttention(c, context, width)
            b.norm1, b.norm2, b.norm3 = (nn.LayerNorm(c) for _ in range(3))
            return b
        self.transformer_blocks, self.proj_out = nn.ModuleList(block() for _ in range(depth)), nn.Linear(c, c)

    def forward(self, x, context):
        b, c, h, w = x.shape
        y = self.proj_in(self.norm(x).flatten(2).transpose(1, 2))
        for k in self.transformer_blocks:
            z = k.norm1(y)
            y = y + k.attn1(z, z)
            y = y + k.attn2(k.norm2(y), context)
            v, gate = k.ff.net[0].proj(k.norm3(y)).chunk(2, -1)
            y = y + k.ff.net[2](v * F.gelu(gate))
        return x + self.proj_out(y).transpose(1, 2).reshape(b, c, h, w)


def bare(**parts):
    m = nn.Module()
    for k, v in parts.items():
        setattr(m, k, v)
    return m


def walk(block, h, e, context=None, maps=None):
    for layer in block:
        if isinstance(layer, SrRes):
            h = layer(h, e, maps)
        elif isinstance(layer, SrTransformer):
            h = layer(h, context)
        elif hasattr(layer, "op"):
            h = layer.op(h)
        elif isinstance(layer, SrSelf) or isinstance(layer, nn.Conv2d):
            h = layer(h)
        else:
            h = layer.conv(F.interpolate(h, scale_factor=2, mode="nearest"))
    return h


class SrUnet(nn.Module):
    def __init__(self, u, w, groups):
        super().__init__()
        c, mult, n, at = u["model_channels"], u["channel_mult"], u["num_res_blocks"], u["attention_resolutions"]
        self.width, te = c, 4 * c
        spade = (u["semb_channels"], w["spade"])
        res = lambda i, o: SrRes(i, o, te, groups, spade)
        attn = lambda ch: SrTransformer(ch, u["context_dim"], u["num_head_channels"], groups, u["transformer_depth"])
        self.time_embed = one(nn.Linear(c, te), nn.SiLU(), nn.Linear(te, te))
        down, ch, skips = [nn.ModuleList([conv3(8, c)])], c, [c]
        for level, m in enumerate(mult):
            for _ in range(n):
                down.append(nn.ModuleList([res(ch, m * c)] + ([attn(m * c)] if 2 ** level in at else [])))
                ch = m * c
                skips.append(ch)
            if level < len(mult) - 1:
                down.append(nn.ModuleList([bare(op=conv3(ch, ch, 2))]))
                skips.append(ch)
        self.input_blocks = nn.ModuleList(down)
        self.middle_block = nn.ModuleList([res(ch, ch), attn(ch), res(ch, ch)])
        up = []
        for level, m in reversed(list(enumerate(mult))):
            for k in range(n + 1):
                block = [res(ch + skips.pop(), m * c)]
                ch = m * c
                block += [attn(ch)] if 2 ** level in at else []
                block += [bare(conv=conv3(ch, ch))] if level and k == n else []
                up.append(nn.ModuleList(block))
        self.output_blocks = nn.ModuleList(up)
        self.out = one(nn.GroupNorm(groups, ch), nn.SiLU(), conv3(ch, 4))
        unit = lambda i, o, k, s: nn.Sequential(nn.Conv2d(i, o, k, stride=s, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        e = w["edge"]
        self.edge_processor = bare(
            initial_conv=unit(3, e[0], 4, 2), stage1_layers=nn.ModuleList(unit(i, e[1], 3, 1) for i in (e[0], e[1], e[1])),
            stage2_layers=nn.ModuleList(unit(i, o, 4, 2) for i, o in zip((e[1], *e[2][:-1]), e[2])))
        self.edge_processor.stage2_layers[-1][2] = nn.Identity()
        self.edge_fusion = bare(fusion_conv=unit(8, 8, 3, 1))
        self.target = w["target"]

    def features(self, edge):
        p = self.edge_processor
        x = p.initial_conv(edge)
        for layer in [*p.stage1_layers, *p.stage2_layers]:
            x = layer(x)
        return F.adaptive_avg_pool2d(x, self.target)

    def fuse(self, x, edge):
        return self.edge_fusion.fusion_conv(torch.cat([x, self.features(edge)], 1))

    def forward(self, x, t, context, maps):
        e = self.time_embed(time_features(t, self.width, x.dtype))
        h, skips = x, []
        for block in self.input_blocks:
            h = walk(block, h, e, context, maps)
            skips.append(h)
        h = walk(self.middle_block, h, e, context, maps)
        for block in self.output_blocks:
            h = walk(block, torch.cat([h, skips.pop()], 1), e, context, maps)
        return self.out(h)


class SrSelf(nn.Module):
    def __init__(self, c, heads, groups):
        super().__init__()
        self.norm, self.qkv, self.proj_out, self.heads = nn.GroupNorm(groups, c), nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1), heads

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).flatten(2)).reshape(b * self.heads, 3 * c // self.heads, h * w).chunk(3, 1)
        p = (q.transpose(1, 2) @ k * (c // self.heads) ** -0.5).softmax(-1)
        return x + self.proj_out((v @ p.transpose(1, 2)).reshape(b, c, h * w)).reshape(b, c, h, w)


class SrStruct(nn.Module):
    def __init__(self, s, groups):
        super().__init__()
        c, mult, n, at = s["model_channels"], s["channel_mult"], s["num_res_blocks"], s["attention_resolutions"]
        self.width, te = c, 4 * c
        res, attn = lambda i, o: SrRes(i, o, te, groups), lambda ch: SrSelf(ch, s["num_heads"], groups)
        self.time_embed = one(nn.Linear(c, te), nn.SiLU(), nn.Linear(te, te))
        blocks, ch, ends = [nn.ModuleList([conv3(4, c)])], c, []
        for level, m in enumerate(mult):
            for _ in range(n):
                blocks.append(nn.ModuleList([res(ch, m * c)] + ([attn(m * c)] if 2 ** level in at else [])))
                ch = m * c
            ends.append(ch)
            if level < len(mult) - 1:
                blocks.append(nn.ModuleList([bare(op=conv3(ch, ch, 2))]))
        self.input_blocks = nn.ModuleList(blocks)
        self.middle_block = nn.ModuleList([res(ch, ch), attn(ch), res(ch, ch)])
        self.fea_tran = nn.ModuleList(res(i, s["out_channels"]) for i in ends)

    def forward(self, z, t):
        e = self.time_embed(time_features(t, self.width, z.dtype))
        h, maps = z, []
        for block in self.input_blocks:
            if hasattr(block[0], "op"):
                maps.append(h)
            h = walk(block, h, e)
        maps.append(walk(self.middle_block, h, e))
        return {m.shape[-1]: f(m, e) for m, f in zip(maps, self.fea_tran)}


class SrVaeRes(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norm1, self.conv1, self.norm2, self.conv2 = nn.GroupNorm(32, i, eps=1e-6), conv3(i, o), nn.GroupNorm(32, o, eps=1e-6), conv3(o, o)
        if i != o:
            self.nin_shortcut = nn.Conv2d(i, o, 1)

    def forward(self, x):
        h = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return (self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x) + h


class SrVae(nn.Module):
    def __init__(self, d):
        super().__init__()
        c, mult, i = d["ch"], d["ch_mult"], d["ch"]
        down = []
        for level, m in enumerate(mult):
            blocks = nn.ModuleList()
            for _ in range(d["num_res_blocks"]):
                blocks.append(SrVaeRes(i, m * c))
                i = m * c
            part = bare(block=blocks, attn=nn.ModuleList())
            if level < len(mult) - 1:
                part.downsample = bare(conv=nn.Conv2d(i, i, 3, stride=2))
            down.append(part)
        k = lambda: nn.Conv2d(i, i, 1)
        self.encoder = bare(conv_in=conv3(3, c), down=nn.ModuleList(down),
                            mid=bare(block_1=SrVaeRes(i, i), attn_1=bare(norm=nn.GroupNorm(32, i, eps=1e-6), q=k(), k=k(), v=k(), proj_out=k()),
                                     block_2=SrVaeRes(i, i)),
                            norm_out=nn.GroupNorm(32, i, eps=1e-6), conv_out=conv3(i, 2 * d["z_channels"]))
        self.quant_conv = nn.Conv2d(8, 8, 1)

    def forward(self, x):
        e = self.encoder
        h = e.conv_in(x)
        for part in e.down:
            for b in part.block:
                h = b(h)
            if hasattr(part, "downsample"):
                h = part.downsample.conv(F.pad(h, (0, 1, 0, 1)))
        h = e.mid.block_1(h)
        a, (b, c, y, x) = e.mid.attn_1, h.shape
        n = a.norm(h)
        q, k, v = (f(n).flatten(2) for f in (a.q, a.k, a.v))
        p = (q.transpose(1, 2) @ k * c ** -0.5).softmax(-1)
        h = h + a.proj_out((v @ p.transpose(1, 2)).reshape(b, c, y, x))
        return self.quant_conv(e.conv_out(F.silu(e.norm_out(e.mid.block_2(h)))))


def sr_nets(about, groups=32):
    c, r = about["constructed"], about["widths_reduced_in_authors_code"]
    last = lambda k: json.loads(r[k].split("-> ")[1])
    w = {"spade": last("spade_nhidden"), "edge": (last("edge_initial_conv"), last("edge_stage1"), last("edge_stage2")),
         "target": last("edge_target_size")}
    return {"model.diffusion_model.": SrUnet(c["UNetModelDualcondV2WithEdge"], w, groups), "first_stage_model.": SrVae(c["AutoencoderKL"]["ddconfig"]),
            "structcond_stage_model.": SrStruct(c["EncoderUNetModelWT"], groups)}


def sr_tables():
    """The buffers of the noise schedule in a Lightning checkpoint: their program takes alphas_cumprod in f32 and computes betas, and then
    all tables, anew from it."""
    import numpy as np
    first = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000, dtype=torch.float64) ** 2
    given = np.cumprod(1 - first.numpy()).astype(np.float32)
    b = 1 - given / np.append(np.float32(1), given[:-1])
    a = np.cumprod(1 - b)
    p = np.append(1.0, a[:-1])
    var = b * (1 - p) / (1 - a)
    t = {"betas": b, "alphas_cumprod": a, "alphas_cumprod_prev": p, "sqrt_alphas_cumprod": np.sqrt(a),
         "sqrt_one_minus_alphas_cumprod": np.sqrt(1 - a), "log_one_minus_alphas_cumprod": np.log(1 - a),
         "sqrt_recip_alphas_cumprod": np.sqrt(1 / a), "sqrt_recipm1_alphas_cumprod": np.sqrt(1 / a - 1), "posterior_variance": var,
         "posterior_log_variance_clipped": np.log(np.maximum(var, 1e-20)), "posterior_mean_coef1": b * np.sqrt(p) / (1 - a),
         "posterior_mean_coef2": (1 - p) * np.sqrt(1 - b) / (1 - a)}
    return {k: torch.from_numpy(v.astype(np.float32)) for k, v in t.items()}


def sr_case(c, g):
    u = {"image_size": 32, "in_channels": 4, "out_channels": 4, "model_channels": c["width"], "attention_resolutions": c["attention"],
         "num_res_blocks": c["blocks"], "channel_mult": c["mult"], "num_head_channels": c["head"], "use_spatial_transformer": True,
         "use_linear_in_transformer": True, "transformer_depth": c.get("depth", 1), "context_dim": c["context"][1], "semb_channels": c["maps"],
         "use_edge_processing": True, "edge_input_channels": 3}
    d = {"double_z": True, "z_channels": 4, "resolution": c["image"], "in_channels": 3, "out_ch": 3, "ch": c["vae"][0], "ch_mult": c["vae"][1],
         "num_res_blocks": c.get("vae_blocks", 2), "attn_resolutions": [], "dropout": 0.0}
    s = {"image_size": 96, "in_channels": 4, "model_channels": c["struct"][0], "out_channels": c["maps"], "num_res_blocks": c["struct"][2],
         "attention_resolutions": c["struct"][3], "channel_mult": c["struct"][1], "num_heads": c["struct"][4], "num_head_channels": -1}
    latent = c["image"] >> (len(c["vae"][1]) - 1)
    e = c["edge"]
    about = {"constructed": {"UNetModelDualcondV2WithEdge": u, "AutoencoderKL": {"embed_dim": 4, "ddconfig": d}, "EncoderUNetModelWT": s},
             "widths_reduced_in_authors_code": {"spade_nhidden": f"128 -> {c['spade']}", "edge_initial_conv": f"64 -> {e[0]}",
                                                "edge_stage1": f"256 -> {e[1]}", "edge_stage2": f"[128, 64, 16, 4] -> {json.dumps(e[2])}",
                                                "edge_target_size": f"64 -> {latent}"},
             "weights": {"file": "epoch=000000.ckpt"}, "groups": c.get("groups", [16])}
    rand, b = lambda *n: torch.randn(*n, generator=g), c["batch"]
    picture = lambda: (torch.rand(b, 3, c["image"], c["image"], generator=g) * 2 - 1).half()
    z = (b, 4, latent, latent)
    inputs = {"in/t": torch.randint(1000, (b,), generator=g), "in/context": rand(b, *c["context"]), "in/eps_gt": rand(*z), "in/eps_lq": rand(*z),
              "in/eps_lq_again": rand(*z), "in/noise": rand(*z), "in/edge": ((torch.rand(b, 3, c["image"], c["image"], generator=g) > 0.8).float() * 2 - 1).half(),
              "in/gt": picture(), "in/lq": picture()}
    sd = {}
    for prefix, net in sr_nets(about).items():
        init(net, g)
        sd.update({prefix + k: v for k, v in halved(net.state_dict()).items()})
    return about, sd, inputs


def sr_run(about, sd, inputs, dtype):
    i = {k[3:]: wide(x, dtype) for k, x in inputs.items()}
    share = sr_tables_of(sd, dtype)
    made = {}

    def nets(groups):
        all_ = sr_nets(about, groups)
        for prefix, net in all_.items():
            net.load_state_dict({k[len(prefix):]: v for k, v in sd.items() if k.startswith(prefix)})
        return all_.values()

    def sample(m, eps):
        mean, logvar = m.chunk(2, 1)
        return 0.18215 * (mean + torch.exp(0.5 * logvar.clamp(-30, 20)) * eps)
    unet, vae, struct = nets(32)
    with torch.no_grad():
        lq, gt = vae(i["lq"]), vae(i["gt"])
    z_lq, z_gt, again = sample(lq, i["eps_lq"]), sample(gt, i["eps_gt"]), sample(lq, i["eps_lq_again"])
    made.update({"out/vae.moments_lq": lq, "out/vae.moments_gt": gt, "out/vae.z_lq": z_lq, "step/z_lq": z_lq, "step/z_gt": z_gt})
    wide_t = lambda x: x[i["t"]][:, None, None, None]
    for end, groups, start in [("", 32, z_lq), ("_gt", 32, z_gt)] + [(f"_g{n}", n, z_lq) for n in about.get("groups", [])]:
        unet, _, struct = nets(groups)
        unet.eval()
        if end != "_gt":
            with torch.no_grad():
                maps, features, fused = struct(z_lq, i["t"]), unet.features(i["edge"]), unet.fuse(z_lq, i["edge"])
                made.update({f"out{end}/struct.{k}": v for k, v in maps.items()})
                made[f"out{end}/unet.eval"] = unet(fused, i["t"], i["context"], maps)
            if not end:
                made.update({"out/edge.features_eval": features, "out/edge.fused_eval": fused})
        unet.train()
        x = wide_t(share[0]) * start + wide_t(share[1]) * i["noise"]
        y = unet(unet.fuse(x, i["edge"]), i["t"], i["context"], struct(again, i["t"]))
        loss = F.mse_loss(y, i["noise"])
        loss.backward()
        made.update({f"step{end}/prediction": y, f"step{end}/loss": loss, **gradients(unet, "grad" + end, "model.diffusion_model."),
                     **gradients(struct, "grad" + end, "structcond_stage_model.")})
        if end:
            continue
        made["step/x_noisy"] = x
        made.update({f"bn_after/model.diffusion_model.{k}": v.clone() for k, v in unet.state_dict().items() if "running" in k})
        trained = [p for n, p in unet.named_parameters() if "spade" in n] + list(struct.parameters())
        about["trained_count"], about["loss"] = len(trained), float(loss)
        before = clone(unet.state_dict()), clone(struct.state_dict())
        torch.optim.AdamW(trained, lr=5e-5).step()
        change = changes(unet, before[0], "delta", "model.diffusion_model.")
        made.update({k: v for k, v in change.items() if "spade" in k})
        made.update(changes(struct, before[1], "delta", "structcond_stage_model."))
    return {k: v.detach() for k, v in made.items()}


def sr_tables_of(sd, dtype):
    t = sr_tables() if "sqrt_alphas_cumprod" not in sd else sd
    return t["sqrt_alphas_cumprod"].to(dtype), t["sqrt_one_minus_alphas_cumprod"].to(dtype)


def sr_write(path, sd, about):
    half = {k: v.half() if v.is_floating_point() else v for k, v in sd.items()}
    torch.save({"state_dict": {**sr_tables(), **half}, "epoch": 0, "global_step": 1, "pytorch-lightning_version": "1.4.2"},
               os.path.join(path, about["weights"]["file"]))


def sr_read(path, about):
    sd = torch.load(os.path.join(path, about["weights"]["file"]), weights_only=False)["state_dict"]
    return {k: v.float() if v.dtype == torch.float16 else v for k, v in sd.items()}


# ------------------------------------------------------------------ cases

CASES = {
    "cloud": [
        dict(batch=5, image=(2, 20, 28), channels=(6, 10, 14), dense=(12, 10), k=0.5, factor=2.0),
        dict(batch=3, image=(4, 17, 35), channels=(7, 9), dense=(11,), lr=3e-4, decay=0.01),
        dict(batch=4, image=(1, 32, 16), channels=(4, 8, 12, 20), dense=(16, 9, 5), k=0.35),
        dict(batch=6, image=(5, 33, 26), channels=(16, 32, 48), dense=(24, 12)),
    ],
    "lgt": [
        dict(batch=3, latent=12, base=32, style=24, encoder=2, decoder=2, steps=4, samples=150, positions=40, styles=3,
             style_weights=[4.0, 1.0, 0.5], epoch=7),
        dict(batch=1, latent=8, base=64, style=20, time=12, encoder=1, decoder=3, steps=2, samples=30, positions=64, scales=[5], weights=[1.0],
             epoch=15),
        dict(batch=2, latent=16, base=32, style=10, time=28, encoder=1, decoder=1, steps=5, samples=4000, positions=100, scales=[3, 5, 2],
             weights=[2.0, 1.0, 0.25], velocity=False, w_style=1.0),
        dict(batch=5, latent=8, base=96, style=16, encoder=1, decoder=1, steps=3, samples=90, positions=20, multi=False, projections=5),
    ],
    "wandistill": [
        dict(batch=3, latent=6, hidden=24, depth=3, heads=4, text=(5, 20), teacher=(3, 12), ffn=100, layers=4),
        dict(batch=1, latent=10, hidden=40, depth=2, heads=5, text=(9, 14), teacher=(2, 26), ffn=170, layers=2, freq=32),
        dict(batch=2, latent=8, hidden=48, depth=4, heads=3, text=(3, 32), teacher=(2, 16), ffn=90, layers=3),
        dict(batch=2, latent=4, hidden=16, depth=2, heads=2, text=(7, 10), teacher=(4, 14), ffn=64, layers=7, freq=24, lr=1e-3),
        dict(batch=3, latent=4, hidden=16, depth=3, heads=2, text=(2, 6), teacher=(1, 12), ffn=20, layers=2, freq=6),
    ],
    "fluxflow": [
        dict(dim=12, scales=3, layers=1, heads=3, base=5, depth=2, flow=24, flow_heads=3, flow_layers=2, text=10, image=(24, 40), batch=1),
        dict(dim=16, scales=1, layers=3, heads=4, base=4, depth=3, flow=20, flow_heads=2, flow_layers=3, text=9, image=(16, 24), batch=3, ff=3,
             tokens=3, first=2497),
        dict(dim=20, scales=2, layers=2, heads=5, base=6, depth=1, flow=16, flow_heads=4, flow_layers=1, text=16, image=(32, 16), batch=2, max_hw=512,
             adv=0.3, first=16, hidden=40, rgb=[32, 16]),
        dict(dim=8, scales=2, layers=2, heads=2, base=7, depth=2, flow=12, flow_heads=1, flow_layers=2, text=12, image=(20, 36), batch=4,
             adaptive=False, bits=0.02, gamma=2.0),
    ],
    "stablesr": [
        dict(width=64, mult=[1, 2], blocks=1, attention=[1], head=32, context=(5, 12), maps=32, struct=(32, [1, 2], 1, [1], 4), vae=(32, [1, 1, 2, 1]),
             image=48, batch=2, spade=6, edge=(4, 6, [6, 5, 4, 4])),
        dict(width=32, mult=[1, 2, 2], blocks=2, attention=[1, 2], head=16, context=(7, 16), maps=64, struct=(64, [1, 1, 2], 2, [1, 2], 2),
             vae=(32, [1, 2, 1, 1]), image=64, batch=3, spade=8, edge=(8, 10, [8, 8, 6, 4]), groups=[8, 16]),
        dict(width=32, mult=[1, 1, 1], blocks=1, attention=[2, 4], head=8, context=(3, 20), maps=32, struct=(32, [1, 1, 1], 1, [4], 1),
             vae=(32, [1, 1, 1, 1]), image=96, batch=2, spade=5, edge=(5, 7, [7, 6, 5, 4])),
        dict(width=96, mult=[1], blocks=2, attention=[1], head=24, context=(4, 8), maps=32, struct=(96, [1], 2, [1], 3), vae=(32, [1, 1, 1, 1]),
             image=64, batch=2, spade=8, edge=(8, 12, [8, 8, 6, 4]), groups=[4, 16]),
    ],
}



def draw_cloud(r):
    levels = r.randint(1, 5)
    return dict(batch=r.randint(2, 7), image=(r.randint(1, 6), r.randint(1 << levels, 48), r.randint(1 << levels, 56)),
                channels=[r.randint(3, 40) for _ in range(levels)], dense=[r.randint(4, 40) for _ in range(r.randint(1, 4))],
                k=r.choice([0.2, 0.35, 0.6, 1.0]), factor=r.choice([1.0, 1.5, 3.0]), lr=r.choice([1e-4, 1e-3]), decay=r.choice([0.0, 0.04]))


def draw_lgt(r):
    sizes = r.sample([2, 3, 4, 5, 7], r.randint(1, 3))
    styles = r.randint(1, 5)
    c = dict(batch=r.randint(1, 5), latent=(4 * r.randint(1, 5), 4 * r.randint(1, 5)), base=32 * r.randint(1, 3), style=r.randint(4, 40),
             time=2 * r.randint(2, 20), encoder=r.randint(1, 3), decoder=r.randint(1, 3), steps=r.randint(1, 6), samples=r.randint(20, 600),
             positions=r.randint(5, 200), styles=styles, scales=sizes, weights=[r.choice([0.25, 1.0, 5.0]) for _ in sizes], epoch=r.randint(1, 20),
             channels=r.choice([4, 4, 3, 8]), projections=r.randint(1, 20), velocity=r.random() < 0.7, multi=r.random() < 0.8)
    if r.random() < 0.5:
        c["style_weights"] = [r.choice([0.5, 1.0, 4.0, 10.0]) for _ in range(styles)]
    return c


def draw_wandistill(r):
    heads, width = r.randint(1, 5), r.randint(2, 12)
    return dict(batch=r.randint(1, 4), latent=2 * r.randint(2, 6), hidden=2 * heads * width, depth=r.randint(1, 5), heads=heads,
                text=(r.randint(1, 12), r.randint(4, 40)), teacher=(r.randint(1, 4), 2 * r.randint(3, 16)), ffn=r.randint(16, 200),
                layers=r.randint(1, 7), freq=2 * r.randint(2, 20), channels=r.choice([4, 4, 3, 8]), wide=r.choice([16, 16, 8, 20]))


def draw_fluxflow(r):
    heads, flow_heads, scales = r.randint(1, 5), r.randint(1, 4), r.randint(1, 4)
    c = dict(dim=r.choice([n for n in range(4 * heads, 65, 4 * heads) if n <= 32 or n % 32 == 0]), scales=scales, layers=r.randint(1, 3), heads=heads, base=r.randint(3, 10), depth=r.randint(1, 3),
             flow=4 * flow_heads * r.randint(1, 4), flow_heads=flow_heads, flow_layers=r.randint(1, 3), text=r.randint(6, 24), batch=r.randint(1, 4),
             image=tuple((1 << scales) * r.randint(1, max(1, 40 >> scales)) for _ in range(2)), ff=r.randint(1, 3), first=r.randint(1, 9000),
             max_hw=r.choice([256, 1024]), adv=r.choice([0.1, 0.5]), gamma=r.choice([2.0, 5.0]), bits=r.choice([0.0, 0.02]),
             adaptive=r.random() < 0.7, tokens=r.randint(1, 4))
    return {**c, "image": tuple(max(n, 2 << scales, 1 << c["depth"]) for n in c["image"])}


def draw_stablesr(r):
    levels, vae_levels = r.randint(1, 4), r.randint(3, 5)
    latent = max(8, 1 << levels) * r.choice([1, 1, 2])
    latent = latent if latent << (vae_levels - 1) >= 32 else 2 * latent
    near = lambda: sorted(2 ** k for k in range(*sorted(r.sample(range(levels + 1), 2))))
    return dict(width=32 * r.randint(1, 2), mult=[r.randint(1, 2) for _ in range(levels)], blocks=r.randint(1, 3), attention=near(),
                head=r.choice([8, 16, 32]), context=(r.randint(1, 9), r.randint(4, 24)), maps=32 * r.randint(1, 2), depth=r.randint(1, 2),
                struct=(32 * r.randint(1, 2), [r.randint(1, 2) for _ in range(levels)], r.randint(1, 3), near(), r.choice([1, 2, 4])),
                vae=(32, [r.randint(1, 2) for _ in range(vae_levels)]), vae_blocks=r.randint(1, 3), image=latent << (vae_levels - 1),
                batch=r.randint(2, 3), spade=r.randint(4, 12), edge=(r.randint(3, 9), r.randint(4, 12), [r.randint(4, 9) for _ in range(3)] + [4]),
                groups=r.choice([[8], [16], [4, 16]]))


DRAWS = {"cloud": draw_cloud, "lgt": draw_lgt, "wandistill": draw_wandistill, "fluxflow": draw_fluxflow, "stablesr": draw_stablesr}

limit = lambda n: lambda name: n if name.startswith(("grad", "bn_after")) else (0 if is_change(name) else None)
SYSTEMS = {
    "cloud": (cloud_case, cloud_run, cloud_write, cloud_read, limit(600)),
    "lgt": (lgt_case, lgt_run, lgt_write, lgt_read, limit(128)),
    "wandistill": (wan_case, wan_run, wan_write, wan_read, limit(300)),
    "fluxflow": (flux_case, flux_run, flux_write, flux_read, lambda n: 600 if n.startswith(("grad", "delta", "ema")) else None),
    "stablesr": (sr_case, sr_run, sr_write, sr_read, limit(64)),
}


def both(run, about, files, inputs):
    cast = lambda d, dtype: {k: cast(v, dtype) if isinstance(v, dict) else wide(v, dtype) for k, v in d.items()}
    out = []
    for dtype in (torch.float64, torch.float32):    # scalars of about are those of the last run
        torch.set_default_dtype(dtype)
        out.append({k: v.detach() for k, v in run(about, cast(files, dtype), inputs, dtype).items()})
        if dtype == torch.float64 and "steps" in about:
            rows = about["steps"]
            about["steps64"] = [dict(r) for r in rows] if isinstance(rows, list) else None
    torch.set_default_dtype(torch.float32)
    wide_rows = about.pop("steps64", None)
    if wide_rows:
        far = {k: max(abs(a[k] - b[k]) / abs(b[k]) if b[k] else 0.0 for a, b in zip(about["steps"], wide_rows)) for k in wide_rows[0]}
        about.setdefault("float64", {})["scalars"] = far
    return out[1], out[0]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out", nargs="?")
    p.add_argument("--like")
    p.add_argument("--system", choices=sorted(SYSTEMS))
    p.add_argument("--case", type=int)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--draws", type=int, default=0)
    args = p.parse_args()
    torch.set_num_threads(1)
    for name in [args.system] if args.system else SYSTEMS:
        case, run, write, read, full = SYSTEMS[name]
        if args.like:
            path = os.path.join(args.like, name)
            about = json.load(open(os.path.join(path, "about.json")))
            if name == "stablesr":
                about["groups"] = [16]
            inputs = {k: v for k, v in load_file(os.path.join(path, "io.safetensors")).items() if k.startswith("in/")}
            print(name)
            compare_folder(path, *both(run, about, read(path, about), inputs))
            continue
        cases = CASES[name]
        if args.draws:
            cases = [DRAWS[name](random.Random(f"{name} {args.seed} {n}")) for n in range(args.draws)]
        for n, sizes in enumerate(cases):
            if args.case is not None and n != args.case:
                continue
            torch.manual_seed(1000 * args.seed + 10 * n)
            g = torch.Generator().manual_seed(1000 * args.seed + 10 * n + 1)
            about, files, inputs = case(sizes, g)
            path = os.path.join(args.out, str(n), name)
            os.makedirs(path, exist_ok=True)
            of32, of64 = both(run, about, files, inputs)
            about["seed"] = args.seed
            write(path, files, about)
            write_folder(path, name, about, inputs, of32, of64, full)
            print(path, sizes if args.draws else "", flush=True)


if __name__ == "__main__":
    sys.exit(main())
