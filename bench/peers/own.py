"""Networks of the recipes for own data, GPT-2, ViT-S/16, ResNet-50, ConvNeXt-T and U-Net, and those of bench/nets.c, a
Llama-like one and DiT-B/2, in PyTorch.

Models, losses and optimisers are those of the presets that bench/cuda.py names: text/card24, classify/card8,
segment/card8, pl_nets.so. Attention is scaled_dot_product_attention, optimisers are fused, images are channels last.
The whole model with its loss is compiled.
"""
import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import count, expect


@dataclasses.dataclass(frozen=True)
class Config:
    batch: int = 0       # 0: the network's own
    side: int = 224
    classes: int = 1000
    width: int = 0
    depth: int = 12
    heads: int = 12
    context: int = 1024
    vocabulary: int = 50304
    kv_heads: int = 4    # of the Llama-like network
    hidden: int = 2816


# ------------------------------------------------------------------ transformers

class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, width, heads, causal, gelu, eps):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.attention = Attention(width, heads, causal)
        self.wide, self.narrow, self.gelu = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), gelu

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate=self.gelu))


class Gpt2Model(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(c.vocabulary, width), nn.Embedding(c.context, width)
        self.blocks = nn.ModuleList(Block(width, c.heads, True, "tanh", 1e-5) for _ in range(c.depth))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, target):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.reshape(-1))


def turned(x, angles):
    """Rotary positions over pairs (i, i + d/2) of x [B,H,N,D]; angles [N,D/2]."""
    a, b = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        d = width // heads
        self.heads, self.kv_heads = heads, kv_heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(width, kv_heads * d, bias=False), nn.Linear(width, kv_heads * d, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, angles):
        b, n, c = x.shape
        h = self.norm1(x)
        split = lambda y, heads: y.view(b, n, heads, -1).transpose(1, 2)
        q, k = turned(split(self.q(h), self.heads), angles), turned(split(self.k(h), self.kv_heads), angles)
        y = F.scaled_dot_product_attention(q, k, split(self.v(h), self.kv_heads), is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LlamaModel(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.tokens = nn.Embedding(c.vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, c.heads, c.kv_heads, c.hidden) for _ in range(c.depth))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-6), nn.Linear(width, c.vocabulary, bias=False)
        d = width // c.heads
        rates = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
        self.register_buffer("angles", torch.arange(c.context).float()[:, None] * rates, persistent=False)

    def forward(self, tokens, target):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.angles)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.reshape(-1))


class DitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.attention, self.ada = Attention(width, heads, False), nn.Linear(width, 6 * width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.ada(condition)[:, None].chunk(6, -1)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        h = self.wide(self.norm2(x) * (1 + scale2) + shift2)
        return x + gate2 * self.narrow(F.gelu(h, approximate="tanh"))


class DitModel(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.time1, self.time2 = nn.Linear(256, width), nn.Linear(width, width)
        self.kinds, self.patch = nn.Embedding(c.vocabulary, width), nn.Linear(16, width)
        self.places = nn.Parameter(torch.randn(c.context, width) * 0.02)
        self.blocks = nn.ModuleList(DitBlock(width, c.heads) for _ in range(c.depth))
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.ada, self.out = nn.Linear(width, 2 * width), nn.Linear(width, 16)
        self.register_buffer("rates", 10000.0 ** (-torch.arange(128).float() / 128), persistent=False)

    def forward(self, noisy, noise, time, label):
        angles = time[:, None] * self.rates
        c = self.time2(F.silu(self.time1(torch.cat((angles.cos(), angles.sin()), -1))))
        c = F.silu(c + self.kinds(label))
        x = self.patch(noisy) + self.places
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.ada(c)[:, None].chunk(2, -1)
        return F.mse_loss(self.out(self.norm(x) * (1 + scale) + shift).float(), noise)


class VitModel(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (c.side // 16) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, c.heads, False, "none", 1e-6) for _ in range(c.depth))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, c.classes)

    def forward(self, image, label):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), 1) + self.places
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]).float(), label, label_smoothing=0.1)


# ------------------------------------------------------------------ convolutional networks

def conv_norm(i, o, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o))


class Bottleneck(nn.Module):
    def __init__(self, i, width, stride):
        super().__init__()
        self.a, self.b = conv_norm(i, width, 1), conv_norm(width, width, 3, stride)
        self.c = conv_norm(width, 4 * width, 1)
        self.skip = conv_norm(i, 4 * width, 1, stride) if stride > 1 or i != 4 * width else nn.Identity()

    def forward(self, x):
        return F.relu(self.c(F.relu(self.b(F.relu(self.a(x))))) + self.skip(x))


class ResNetModel(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        blocks, i = [], width
        self.stem = conv_norm(3, width, 7, 2)
        for stage, n in enumerate((3, 4, 6, 3) if c.side > 64 else (1, 1, 1, 1)):
            for k in range(n):
                blocks.append(Bottleneck(i, width << stage, 2 if stage and not k else 1))
                i = 4 * (width << stage)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(i, c.classes)

    def forward(self, image, label):
        x = F.max_pool2d(F.relu(self.stem(image)), 3, 2, 1)
        return F.cross_entropy(self.head(self.blocks(x).mean((2, 3))).float(), label, label_smoothing=0.1)


class NextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.wide, self.narrow = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        y = self.narrow(F.gelu(self.wide(self.norm(self.conv(x).permute(0, 2, 3, 1))))) * self.scale
        return x + y.permute(0, 3, 1, 2)


class Channels(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextModel(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        parts = [nn.Conv2d(3, width, 4, 4), Channels(width, eps=1e-6)]
        for stage, n in enumerate((3, 3, 9, 3) if c.side > 64 else (1, 1, 1, 1)):
            if stage:
                parts += [Channels(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            parts += [NextBlock(width) for _ in range(n)]
        self.parts, self.norm, self.head = nn.Sequential(*parts), nn.LayerNorm(width, eps=1e-6), nn.Linear(width, c.classes)

    def forward(self, image, label):
        x = self.norm(self.parts(image).mean((2, 3)))
        return F.cross_entropy(self.head(x).float(), label, label_smoothing=0.1)


def two_convs(i, o):
    return nn.Sequential(conv_norm(i, o, 3), nn.ReLU(), conv_norm(o, o, 3), nn.ReLU())


class UnetModel(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        sizes = [width << i for i in range(5)]
        self.first = two_convs(3, width)
        self.down = nn.ModuleList(two_convs(i, o) for i, o in zip(sizes, sizes[1:]))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, 2) for i, o in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(two_convs(o, i) for i, o in zip(sizes, sizes[1:]))
        self.last = nn.Conv2d(width, c.classes, 1)

    def forward(self, image, label):
        level = [self.first(image)]
        for block in self.down:
            level.append(block(F.max_pool2d(level[-1], 2)))
        x = level[-1]
        for i in reversed(range(4)):
            x = self.up[i](torch.cat((level[i], self.grow[i](x)), 1))
        logits = self.last(x).float()
        share, truth = logits.softmax(1), F.one_hot(label, logits.shape[1]).permute(0, 3, 1, 2)
        both, sum_of = (share * truth).sum((0, 2, 3)), share.sum((0, 2, 3)) + truth.sum((0, 2, 3))
        return F.cross_entropy(logits, label) + 1 - ((2 * both + 1e-6) / (sum_of + 1e-6)).mean()


# ------------------------------------------------------------------ workloads

class Own:
    Config = Config
    precision = "bf16"
    cudnn_search = True
    clip = None

    def __init__(self, cfg, ctx):
        self.cfg, self.ctx = cfg, ctx
        with ctx.building():
            self.model = self.network(cfg, cfg.width or self.width).to(ctx.device)
        if cfg == Config(**self.FULL):
            expect(type(self).__name__, count(self.model), self.weights)
        if self.images:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.modules = {"model": self.model}
        self.loss_of = ctx.compile(self.model)
        self.optimizer = self.optimizer_of(list(self.model.parameters()), ctx.cuda)

    def size(self):
        return self.cfg.batch or self.batches

    def batch(self, draw):
        c, n = self.cfg, self.size()
        image = draw.normal(n, 3, c.side, c.side).to(memory_format=torch.channels_last)
        return [dict(image=image, label=torch.randint(c.classes, self.label_shape(n), device=image.device))]

    def label_shape(self, n):
        return (n,)

    def step(self, micros):
        self.optimizer.zero_grad(set_to_none=True)
        with self.ctx.autocast():
            loss = self.loss_of(**micros[0])
        self.ctx.backward(loss)
        self.ctx.update(self.optimizer, self.clip)
        return {"loss": loss.detach()}

    def optimizer_of(self, params, fused):
        return torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4, fused=fused)


class Gpt2(Own):
    network, width, batches, images, clip, weights = Gpt2Model, 768, 16, False, 1.0, 124_475_904
    FULL, TINY = {}, dict(batch=2, width=64, depth=2, heads=4, context=64, vocabulary=256)

    def batch(self, draw):
        c = self.cfg
        t = torch.randint(min(c.vocabulary, 50257), (self.size(), c.context + 1), device=self.ctx.device)
        return [dict(tokens=t[:, :-1].contiguous(), target=t[:, 1:].contiguous())]

    def optimizer_of(self, params, fused):
        groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=fused)


class Llama(Gpt2):
    network, width, weights = LlamaModel, 1024, 200_827_904
    FULL = dict(heads=16, vocabulary=32000)
    TINY = dict(batch=2, width=32, depth=2, heads=4, kv_heads=2, hidden=64, context=16, vocabulary=50)

    def optimizer_of(self, params, fused):
        return torch.optim.AdamW(params, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)


class Dit(Own):
    network, width, batches, images, weights = DitModel, 768, 128, False, 130_499_344
    FULL = dict(heads=12, context=256, vocabulary=1000)
    TINY = dict(batch=2, width=32, depth=2, heads=4, context=16, vocabulary=50)

    def batch(self, draw):
        c, n = self.cfg, self.size()
        label = torch.randint(c.vocabulary, (n,), device=self.ctx.device)
        return [dict(noisy=draw.normal(n, c.context, 16), noise=draw.normal(n, c.context, 16), time=draw.normal(n), label=label)]

    def optimizer_of(self, params, fused):
        return torch.optim.AdamW(params, lr=1e-4, weight_decay=0, fused=fused)


class VitSmall(Own):
    network, width, batches, images, weights = VitModel, 384, 256, True, 22_050_664
    FULL, TINY = dict(heads=6), dict(batch=2, side=64, classes=10, width=48, depth=2, heads=3)


class ResNet50(Own):
    network, width, batches, images, weights = ResNetModel, 64, 128, True, 25_557_032
    FULL, TINY = {}, dict(batch=2, side=64, classes=10, width=16)


class ConvNextTiny(Own):
    network, width, batches, images, weights = ConvNextModel, 96, 128, True, 28_589_128
    FULL, TINY = {}, dict(batch=2, side=64, classes=10, width=16)


class Unet(Own):
    network, width, batches, images, weights = UnetModel, 64, 8, True, 31_037_698
    FULL, TINY = dict(side=512, classes=2), dict(batch=2, side=32, classes=2, width=8)

    def label_shape(self, n):
        return (n, self.cfg.side, self.cfg.side)

    def optimizer_of(self, params, fused):
        return torch.optim.AdamW(params, lr=3e-4, weight_decay=0.01, fused=fused)
