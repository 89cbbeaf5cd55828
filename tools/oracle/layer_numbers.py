#!/usr/bin/env python3
"""layer_numbers.py - PyTorch's numbers for tests/nn/test_nn.c: every layer and loss on small inputs.

  python3 tools/oracle/layer_numbers.py > tests/data/layers.json

A case is a function of x (and y, a constant) with the parameters of a module.  All numbers come from hashes of
names, as in peer_numbers.py.  Written: summaries (norm, four sign projections) of the output, of the gradients of
sum(output * noise("cot")) in x and in every parameter, and of every buffer after the calls.  "channels" says that
x and output are [N,C,..] here and [N,..,C] in the engine.
"""
import json
import sys

if sys.argv[1:2] in (["-h"], ["--help"]):
    print(__doc__.strip())
    sys.exit(0)

import torch
import torch.nn as nn
import torch.nn.functional as F

from peer_numbers import noise, summary, uniform


def make(label, shape, kind="normal", high=0):
    n = 1
    for s in shape:
        n *= s
    x = noise(label, n) if kind == "normal" else (uniform(label, n) * high).astype("int64")
    x = torch.from_numpy(x).reshape(shape)
    return x.float() if kind == "normal" else x


class Geglu(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 16)

    def forward(self, x):
        value, gate = self.gate(x).chunk(2, -1)
        return value * F.gelu(gate)


class SwiGlu(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.ModuleDict({"gate_proj": nn.Linear(6, 10, bias=False), "up_proj": nn.Linear(6, 10, bias=False),
                                  "down_proj": nn.Linear(10, 6, bias=False)})

    def forward(self, x):
        m = self.mlp
        return m["down_proj"](F.silu(m["gate_proj"](x)) * m["up_proj"](x))


def seen(n, m):
    """Which keys a query sees; the third query sees none but key 0."""
    i, j = torch.arange(n)[:, None], torch.arange(m)[None]
    return (3 * i + j) % 4 != 1


class GroupedAttention(nn.Module):
    """Four heads of queries over two of keys, rotary positions, causal; as Llama."""

    def __init__(self):
        super().__init__()
        self.attn = nn.ModuleDict({"q_proj": nn.Linear(16, 16, bias=False), "k_proj": nn.Linear(16, 8, bias=False),
                                   "v_proj": nn.Linear(16, 8, bias=False), "o_proj": nn.Linear(16, 16, bias=False)})

    def forward(self, x):
        a = self.attn
        b, n, _ = x.shape
        angles = torch.arange(n)[:, None] * 100.0 ** (-torch.arange(2) / 2)

        def turn(t):
            c, s = angles.cos(), angles.sin()
            u, v = t.chunk(2, -1)
            return torch.cat([u * c - v * s, u * s + v * c], -1)

        q = turn(a["q_proj"](x).reshape(b, n, 4, 4).transpose(1, 2))
        k = turn(a["k_proj"](x).reshape(b, n, 2, 4).transpose(1, 2)).repeat_interleave(2, 1)
        v = a["v_proj"](x).reshape(b, n, 2, 4).transpose(1, 2).repeat_interleave(2, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return a["o_proj"](y.transpose(1, 2).reshape(b, n, 16))


class Bezier(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.ParameterList(nn.Parameter(torch.zeros(3, 1, 1)) for _ in range(4))

    def forward(self, x):
        s, p = x.sigmoid(), self.p
        r = 1 - s
        return r**3 * p[0] + 3 * r * r * s * p[1] + 3 * r * s * s * p[2] + s**3 * p[3]


class MaskedAttention(nn.Module):
    def __init__(self, mask, bias=True):
        super().__init__()
        self.mask = mask
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True, bias=bias)

    def forward(self, x, y=None):
        y = x if y is None else y
        return self.attn(x, y, y, attn_mask=self.mask(x.shape[1], y.shape[1]), need_weights=False)[0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, y=None):
        y = x if y is None else y
        return self.attn(x, y, y, need_weights=False)[0]


def calls(module, n):
    """The module on n parts of the batch, one after another."""
    return lambda x: torch.cat([module(part) for part in x.chunk(n)])


def rotate(x, half_split):
    n, d = x.shape[1], x.shape[-1]
    freq = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float32) / d)
    angle = (torch.arange(n, dtype=torch.float32)[:, None] * freq)[:, None]
    c, s = angle.cos(), angle.sin()
    a, b = x.unflatten(-1, (2, d // 2) if half_split else (d // 2, 2)).unbind(-2 if half_split else -1)
    return torch.stack([a * c - b * s, a * s + b * c], -2 if half_split else -1).flatten(-2)


def position(h, w, dim):
    freq = 10000.0 ** (-torch.arange(dim // 4, dtype=torch.float32) / (dim // 4))
    def line(n):
        angles = torch.arange(n, dtype=torch.float32)[:, None] * freq
        return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)

    return torch.cat([line(h)[:, None].expand(h, w, -1), line(w)[None].expand(h, w, -1)], -1).reshape(h * w, dim)


def mined(x, y):
    per = F.huber_loss(x, y, reduction="none", delta=0.7)
    weight = torch.ones_like(per).index_fill(0, per.detach().topk(int(len(per) * 0.35)).indices, 1.5)
    return (per * weight).mean()


def swd(x, y):
    rows, d = torch.arange(0, 40, 3), F.normalize(make("directions", [27, 5]), dim=0)
    side = lambda z: (F.unfold(z, 3, padding=1).transpose(1, 2).reshape(-1, 27)[rows] @ d).sort(0).values
    return F.mse_loss(side(x), side(y))


def ssm(x, y):
    def cosines(z):
        z = F.normalize(z.flatten(2)[:, :, torch.arange(0, 20, 2)], dim=1)
        return z.transpose(1, 2) @ z
    return F.mse_loss(cosines(x), cosines(y))


def lpips(x, y):
    unit = lambda z: z / (z.square().sum(1, keepdim=True).sqrt() + 1e-10)
    w = make("weights", [4])[None, :, None, None]
    return ((unit(x) - unit(y)).square() * w).sum(1).mean()


def kl(x, y):
    return 0.5 * (x.square() + y.exp() - 1 - y).sum((1, 2)).mean()


def main():
    cases = []

    def case(name, x, fn, module=None, y=None, channels=False, ids=0):
        rows = {}
        if module is not None:
            for key, v in module.state_dict().items():
                rows[key] = {"shape": list(v.shape)}
                if key.endswith("running_var"):
                    v.fill_(1)
                elif v.is_floating_point():
                    v.copy_(make(key, list(v.shape)) * (0.5 if v.dim() > 1 else 1))
        kind = ("int", ids) if ids else ("normal",)
        tx = make("x", x, *kind)
        if not ids:
            tx.requires_grad_()
        out = fn(tx) if y is None else fn(tx, make("y", y))
        row = {"name": name, "x": x, "channels": channels, "out": summary(out), "shape": list(out.shape)}
        if y is not None:
            row["y"] = y
        if out.requires_grad:
            (out * make("cot", list(out.shape))).sum().backward()
            if not ids:
                row["grad"] = summary(tx.grad)
        if module is not None:
            for key, p in module.named_parameters():
                rows[key]["grad"] = summary(p.grad)
            for key, b in module.named_buffers():
                rows[key]["final"] = summary(b)
            row["state"] = rows
        cases.append(row)

    def layer(name, x, module, channels=True, train=True, parts=1, **more):
        module.train(train)
        case(name, x, calls(module, parts) if parts > 1 else module, module, channels=channels, **more)

    sn = nn.utils.spectral_norm
    layer("conv1d", [2, 3, 7], nn.Conv1d(3, 6, 3, padding=1, stride=2))
    layer("conv2d", [2, 4, 7, 6], nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2))
    layer("conv2d_down", [2, 3, 8, 6], nn.Conv2d(3, 5, 4, stride=2, padding=1, bias=False))
    layer("conv3d", [2, 2, 3, 4, 6], nn.Conv3d(2, 3, (1, 2, 2), stride=(1, 2, 2)))
    layer("conv_transpose2d", [2, 4, 3, 5], nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1, output_padding=1, groups=2))
    layer("conv_transpose3d", [1, 3, 2, 3, 4], nn.ConvTranspose3d(3, 2, 3, stride=2, padding=1))
    layer("linear", [3, 4, 5], nn.Linear(5, 7), channels=False)
    layer("group_norm", [2, 6, 4, 3], nn.GroupNorm(2, 6))
    layer("group_norm_plain", [2, 6, 4, 3], nn.GroupNorm(3, 6, eps=1e-3, affine=False))
    layer("layer_norm", [2, 5, 6], nn.LayerNorm(6), channels=False)
    layer("rms_norm", [2, 5, 6], nn.RMSNorm(6, eps=1e-6), channels=False)
    layer("batch_norm", [6, 5, 3, 4], nn.BatchNorm2d(5), parts=3)
    layer("batch_norm_vectors", [8, 5], nn.BatchNorm1d(5, momentum=0.3, eps=1e-3), channels=False)
    layer("batch_norm_eval", [6, 5, 3, 4], nn.BatchNorm2d(5), train=False)
    layer("embedding", [3, 4], nn.Embedding(6, 5), channels=False, ids=6)
    layer("spectral_conv", [4, 3, 5, 4], sn(nn.Conv2d(3, 4, 3, padding=1)), parts=2)
    layer("spectral_linear", [4, 6], sn(nn.Linear(6, 5)), channels=False)
    layer("spectral_eval", [4, 6], sn(nn.Linear(6, 5)), channels=False, train=False)
    layer("attention_self", [2, 5, 8], Attention(), channels=False)
    layer("attention_cross", [2, 5, 8], Attention(), channels=False, y=[2, 3, 8])
    layer("attention_causal", [2, 5, 8], MaskedAttention(lambda n, m: torch.ones(n, m).triu(1).bool(), bias=False),
          channels=False)
    layer("attention_seen", [2, 5, 8], MaskedAttention(lambda n, m: ~seen(n, m)), channels=False, y=[2, 3, 8])
    layer("attention_seen_causal", [2, 5, 8],
          MaskedAttention(lambda n, m: ~(seen(n, m) & torch.ones(n, m).tril().bool())), channels=False)
    layer("attention_added", [2, 5, 8], MaskedAttention(lambda n, m: -0.3 * (torch.arange(n)[:, None] - torch.arange(m)).abs()),
          channels=False)
    layer("attention_grouped", [2, 5, 16], GroupedAttention(), channels=False)
    layer("swiglu", [2, 5, 6], SwiGlu(), channels=False)
    layer("geglu", [2, 5, 6], Geglu(), channels=False)
    layer("trainable_bezier", [2, 3, 4, 5], Bezier())
    case("rope", [2, 5, 3, 8], lambda x: rotate(x, False))
    case("rope_half", [2, 5, 3, 8], lambda x: rotate(x, True))
    case("time_cos_first", [3], lambda t: torch.cat([f(t[:, None].float() * torch.exp(-9.210340371976184 *
         torch.arange(4).float() / 4)) for f in (torch.cos, torch.sin)], 1), ids=1000)
    case("time_sin_first", [3], lambda t: torch.cat([f(t[:, None].float() * torch.exp(-9.210340371976184 *
         torch.arange(4).float() / 3)) for f in (torch.sin, torch.cos)], 1), ids=1000)
    case("position_2d", [1], lambda x: position(3, 5, 8) + 0 * x)
    case("linspace", [1], lambda x: torch.linspace(-1, 1, 7) + 0 * x)
    case("film", [2, 3, 4, 5], lambda x, y: y[:, :3, None, None] * x + y[:, 3:, None, None], y=[2, 6], channels=True)
    case("mse", [3, 4], F.mse_loss, y=[3, 4])
    case("l1", [3, 4], F.l1_loss, y=[3, 4])
    case("huber", [3, 4], lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7), y=[3, 4])
    case("smooth_l1", [3, 4], lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.5), y=[3, 4])
    case("cross_entropy", [5, 4], lambda x: F.cross_entropy(x, torch.arange(5) % 4))
    case("cross_entropy_with", [5, 4],
         lambda x: F.cross_entropy(x, torch.arange(5), ignore_index=4, label_smoothing=0.1))
    case("cross_entropy_weights", [5, 4],
         lambda x: F.cross_entropy(x, torch.arange(5) % 4, weight=torch.arange(4) + 0.5, ignore_index=0))
    case("bce", [3, 4], lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), y=[3, 4])
    case("hinge_d", [5], lambda x, y: F.relu(1 - x).mean() + F.relu(1 + y).mean(), y=[5])
    case("hinge_g", [5], lambda x: -x.mean())
    case("kl", [3, 4, 2], kl, y=[3, 4, 2])
    case("cosine", [3, 4], lambda x, y: F.cosine_similarity(x, y, dim=1), y=[3, 4])
    case("hard_mining", [9], mined, y=[9])
    case("swd", [2, 3, 4, 5], swd, y=[2, 3, 4, 5], channels=True)
    case("ssm", [2, 3, 4, 5], ssm, y=[2, 3, 4, 5], channels=True)
    case("lpips", [2, 4, 3, 5], lpips, y=[2, 4, 3, 5], channels=True)
    sys.stdout.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
