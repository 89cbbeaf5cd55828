#!/usr/bin/env python3
"""decoders.py - PyTorch's numbers for the decoders of predictions.

  python3 tools/oracle/decoders.py wan      numbers for tests/predict/test_wan_decoder.c (needs diffusers)
  python3 tools/oracle/decoders.py fusion   numbers for tests/predict/test_fusion.c
  python3 tools/oracle/decoders.py fusion SEED WIDTH M0 M1 M2 M3
      writes into the current folder, with random weights: vqgan.ckpt (a Lightning checkpoint of StableSR's
      second stage), image.npy and latent.npy, (H,W,C), and want_W.npy, the decoded picture, for W = 0, 0.5, 1

Numbers for tests are of weights that both sides compute: element k of tensor `name` is a sine of 0.37 k + the
length of the name.  They are computed in f64.
"""
import sys

if sys.argv[1:2] in ([], ["-h"], ["--help"]):
    print(__doc__.strip())
    sys.exit(0)

import torch
import torch.nn as nn
import torch.nn.functional as F


# ---- Stable Diffusion's autoencoder, with the fusion layers of StableSR ---------------------------------
def norm(width):
    return nn.GroupNorm(32, width, eps=1e-6)


class Block(nn.Module):
    def __init__(self, wide, out, shortcut="nin_shortcut"):
        super().__init__()
        self.norm1, self.conv1 = norm(wide), nn.Conv2d(wide, out, 3, padding=1)
        self.norm2, self.conv2 = norm(out), nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = shortcut if wide != out else None
        if self.shortcut:
            setattr(self, shortcut, nn.Conv2d(wide, out, 1))

    def forward(self, x):
        h = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return h + (getattr(self, self.shortcut)(x) if self.shortcut else x)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = norm(width)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (f(h).flatten(2).transpose(1, 2) for f in (self.q, self.k, self.v))
        h = torch.softmax(q @ k.transpose(1, 2) / x.shape[1] ** 0.5, -1) @ v
        return x + self.proj_out(h.transpose(1, 2).reshape(x.shape))


def middle(width):
    return nn.ModuleDict({"block_1": Block(width, width), "attn_1": Attention(width), "block_2": Block(width, width)})


def through(mid, x):
    return mid["block_2"](mid["attn_1"](mid["block_1"](x)))


class Encoder(nn.Module):
    def __init__(self, width, mult):
        super().__init__()
        self.conv_in, self.down, wide = nn.Conv2d(3, width, 3, padding=1), nn.ModuleList(), width
        for i, m in enumerate(mult):
            level = nn.Module()
            level.block = nn.ModuleList([Block(wide, m * width), Block(m * width, m * width)])
            wide = m * width
            if i + 1 < len(mult):
                level.downsample = nn.Module()
                level.downsample.conv = nn.Conv2d(wide, wide, 3, stride=2)
            self.down.append(level)
        self.mid, self.norm_out = middle(wide), norm(wide)
        self.conv_out = nn.Conv2d(wide, 8, 3, padding=1)

    def features(self, x):
        x, all_levels = self.conv_in(x), []
        for level in self.down:
            for block in level.block:
                x = block(x)
            all_levels.append(x)
            if hasattr(level, "downsample"):
                x = level.downsample.conv(F.pad(x, (0, 1, 0, 1)))
        return all_levels


class Dense(nn.Module):
    def __init__(self, width, growth=32):
        super().__init__()
        for i in range(1, 6):
            out = growth if i < 5 else width
            setattr(self, f"conv{i}", nn.Conv2d(width + (i - 1) * growth, out, 3, padding=1))

    def forward(self, x):
        seen = [x]
        for i in range(1, 5):
            seen.append(F.leaky_relu(getattr(self, f"conv{i}")(torch.cat(seen, 1)), 0.2))
        return x + 0.2 * self.conv5(torch.cat(seen, 1))


class Dense3(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = Dense(width), Dense(width), Dense(width)

    def forward(self, x):
        return x + 0.2 * self.rdb3(self.rdb2(self.rdb1(x)))


class Fusion(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.encode_enc_1 = Block(2 * width, width, "conv_out")
        self.encode_enc_2 = nn.Sequential(*[Dense3(width) for _ in range(blocks)])
        self.encode_enc_3 = Block(width, width, "conv_out")

    def forward(self, encoded, decoded):
        return self.encode_enc_3(self.encode_enc_2(self.encode_enc_1(torch.cat([encoded, decoded], 1))))


class Decoder(nn.Module):
    def __init__(self, width, mult, blocks=2):
        super().__init__()
        wide = mult[-1] * width
        self.conv_in, self.mid = nn.Conv2d(4, wide, 3, padding=1), middle(wide)
        levels = []
        for i in reversed(range(len(mult))):
            level, out = nn.Module(), mult[i] * width
            level.block = nn.ModuleList([Block(wide if k == 0 else out, out) for k in range(3)])
            wide = out
            if i:
                level.upsample = nn.Module()
                level.upsample.conv = nn.Conv2d(wide, wide, 3, padding=1)
            if 0 < i < len(mult) - 1:
                setattr(self, f"fusion_layer_{i}", Fusion(wide, blocks))
            levels.insert(0, level)
        self.up, self.norm_out = nn.ModuleList(levels), norm(wide)
        self.conv_out = nn.Conv2d(wide, 3, 3, padding=1)

    def forward(self, z, features, weight):
        x = through(self.mid, self.conv_in(z))
        for i in reversed(range(len(self.up))):
            for block in self.up[i].block:
                x = block(x)
            if 0 < i < len(self.up) - 1:
                x = x + weight * getattr(self, f"fusion_layer_{i}")(features[i], x)
            if i:
                x = self.up[i].upsample.conv(F.interpolate(x, scale_factor=2, mode="nearest"))
        return self.conv_out(F.silu(self.norm_out(x)))


class Autoencoder(nn.Module):
    def __init__(self, width, mult):
        super().__init__()
        self.encoder, self.decoder = Encoder(width, mult), Decoder(width, mult)
        self.quant_conv, self.post_quant_conv = nn.Conv2d(8, 8, 1), nn.Conv2d(4, 4, 1)

    def forward(self, latent, image, weight):
        return self.decoder(self.post_quant_conv(latent / 0.18215), self.encoder.features(image), weight)


# ---- weights that tests compute, too ----------------------------------------------------------------------
def sine(label, shape, scale):
    n = torch.Size(shape).numel()
    return scale * torch.sin(0.37 * torch.arange(n, dtype=torch.float64) + len(label)).reshape(shape)


def show(x, places):
    rows = ["{%d, %.8g}" % (i, x[i]) for i in places]
    print("largest %.4g, numbers %d\n%s" % (x.abs().max(), x.numel(), ",\n".join(rows)))


def places(n):
    return sorted({0, 1, n - 1} | {(i * 7919 + 13) % n for i in range(12)})


def fusion_numbers():
    v = Autoencoder(32, [1, 1, 2, 2]).double().requires_grad_(False)
    for name, p in v.named_parameters():
        scale = p.dim() == 1 and "norm" in name and name.endswith("weight")
        p.data.copy_(1 + sine("vae." + name, p.shape, 0.1) if scale else sine("vae." + name, p.shape, 0.08))
    i = torch.arange(32 * 32 * 3, dtype=torch.float64)
    image = torch.sin(0.011 * i + 0.1).reshape(1, 32, 32, 3).permute(0, 3, 1, 2)
    z = torch.sin(0.3 * torch.arange(4 * 4 * 4, dtype=torch.float64)).reshape(1, 4, 4, 4).permute(0, 3, 1, 2)
    for weight in (0.5, 0):
        x = v(z, image, weight).permute(0, 2, 3, 1).reshape(-1)
        show(x, places(x.numel()))
    f = [y.float() for y in (z, image)]
    print("f32 is off by %.2g" % (v.float()(*f, 0.5).permute(0, 2, 3, 1).reshape(-1) - v.double()(z, image, 0.5)
                                  .permute(0, 2, 3, 1).reshape(-1)).abs().max())


def fusion_files(seed, width, mult):
    import numpy
    torch.manual_seed(seed)
    v = Autoencoder(width, mult).requires_grad_(False)
    for p in v.parameters():
        p.data += 0.02 * torch.randn_like(p)
    tensors = dict(v.state_dict())
    tensors["loss.logvar"] = torch.zeros(())
    tensors["loss.discriminator.main.0.weight"] = torch.zeros(4, 3, 4, 4)
    torch.save({"epoch": 11, "global_step": 10, "state_dict": tensors}, "vqgan.ckpt")
    v, side = v.double(), 64
    image, z = torch.rand(1, 3, side, side) * 2 - 1, torch.randn(1, 4, side // 8, side // 8)
    for name, x in (("image", image), ("latent", z)):
        numpy.save(name, x[0].permute(1, 2, 0).contiguous().float().numpy())
    for weight in (0, 0.5, 1):
        x = v(z.double(), image.double(), weight)[0].permute(1, 2, 0).contiguous()
        numpy.save("want_%g" % weight, x.float().numpy())


# ---- Wan's decoder, by diffusers ------------------------------------------------------------------------------
def wan_name(name, blocks):
    """Wan's own name of a tensor that diffusers names so."""
    parts = {"post_quant_conv": "conv2", "decoder.conv_in": "decoder.conv1", "decoder.norm_out": "decoder.head.0",
             "decoder.conv_out": "decoder.head.2", "decoder.mid_block.resnets.0": "decoder.middle.0",
             "decoder.mid_block.attentions.0": "decoder.middle.1", "decoder.mid_block.resnets.1": "decoder.middle.2"}
    inner = {"norm1": "residual.0", "conv1": "residual.2", "norm2": "residual.3", "conv2": "residual.6",
             "conv_shortcut": "shortcut"}
    for theirs, ours in parts.items():
        if name.startswith(theirs + "."):
            head, rest = ours, name[len(theirs) + 1:]
            break
    else:
        p = name.split(".")
        k = int(p[2]) * (blocks + 2) + (blocks + 1 if p[3] == "upsamplers" else int(p[4]))
        head, rest = f"decoder.upsamples.{k}", ".".join(p[5:])
    first, _, last = rest.partition(".")
    return head + "." + (inner.get(first, first) + "." + last if last else first)


def wan_numbers():
    from diffusers import AutoencoderKLWan
    v = AutoencoderKLWan(base_dim=4, z_dim=4, dim_mult=[1, 1, 2, 2], num_res_blocks=1, latents_mean=[0.0] * 4,
                         latents_std=[1.0] * 4).double().requires_grad_(False)
    for name, p in v.named_parameters():
        if name.startswith("encoder.") or name.startswith("quant_conv."):
            continue
        label = "vae." + wan_name(name, 1)
        scale = 0.02 if "head" in label else 0.1
        p.data.copy_(1 + sine(label, p.shape, 0.1) if "gamma" in label else sine(label, p.shape, scale))
    z = torch.sin(0.3 * torch.arange(3 * 2 * 3 * 4, dtype=torch.float64) + 0.1).reshape(1, 3, 2, 3, 4)
    z = z.permute(0, 4, 1, 2, 3)
    x = v.decode(z).sample.permute(0, 2, 3, 4, 1).reshape(-1)
    show(x, [0, 1, 100, 1000, 1151, 1152, 2500, 3000, 4500, 5000, 6001, 7000, 8000, 9001, 10367])
    y = v.float().decode(z.float()).sample.permute(0, 2, 3, 4, 1).reshape(-1)
    print("f32 is off by %.2g" % (x - y).abs().max())


if sys.argv[1] == "wan":
    wan_numbers()
elif len(sys.argv) == 2:
    fusion_numbers()
else:
    fusion_files(int(sys.argv[2]), int(sys.argv[3]), [int(m) for m in sys.argv[4:8]])
