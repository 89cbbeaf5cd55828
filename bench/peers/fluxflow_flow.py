"""fluxflow-flow: FluxFlow's flow stage: velocity of noised tokens, for a text vector, with Lion.

The compressor is fluxflow.py's and is frozen (no gradient); text vectors [B,1024] are inputs.
Flow processor (5,373,824 parameters): Linear 128->128; context = attention of a learned query over the first tokens,
  as many as the compressor has scales; text token = Linear(text + Linear(TrainableBezier(LN(Embedding(time))))); 10 blocks, before each
  x = x*sigmoid(Linear(context)) + Linear(context) (shared), after each context += mean of the tokens:
    x += self-attention(LN x), 8 heads, "rotary"; x += cross-attention(LN x, LN text token) (the same LN);
    four MLPs of 3 layers with SiLU on sigmoid(x) times the last block's points give p0..p3;
    x += Linear(LN x); x = Bezier(cat(x, p0..p3)), no SiLU on the points
  Linear 128->128; conv5x5, TrainableBezier, conv3x3, two coordinate channels, conv7x7, TrainableBezier, mean, the same
  Linear: added to the same first tokens.
Defects of the seed that this program reproduces: the curve reads five consecutive channels of the joined parts; angles are laid out for
  neighbours and applied to halves; time index = min(999*t, 999); a sample of time 0 has the noise of time 1.
Noise   a(t) = product of 1-beta, beta linear 1e-4..0.02, 1000 steps; t from cos^2 weights by the inverse of their sums
        (u in [0,1) is drawn outside); x_t = sqrt(a) x + sqrt(1-a) e; target v = sqrt(a) e - sqrt(1-a) x; MSE
Step    zero grads, encode without gradient, loss, backward, clip 1.0, Lion betas (.9,.95), wd .01 over the rate; EMA .9999
Seed    fp32; checkpoint segment: the 10 blocks.  Compiled: the processor.
"""
import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import count, expect, merge_heads, split_heads
from fluxflow import Compressor, TrainableBezier

TIMES = 1000
START = (1e-8, 0.25, 0.75, 1.0)


@dataclasses.dataclass(frozen=True)
class Config:
    vae: bool = False
    gan: bool = False
    lpips: bool = False
    flow: bool = True
    batch: int = 2
    image: int = 256
    dim: int = 128
    scales: int = 4
    layers: int = 4
    heads: int = 8
    flow_width: int = 128
    flow_heads: int = 8
    flow_layers: int = 10
    text: int = 1024
    lr: float = 5e-7
    clip: float = 1.0
    flow_ema: float = 0.9999


def xavier(module):
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


class VectorCurve(TrainableBezier):
    """TrainableBezier of vectors [B,C]."""

    def forward(self, x):
        return super().forward(x[:, :, None, None]).flatten(1)


class ContextMixer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d, d) for _ in range(4))
        self.norm_in, self.norm_out = nn.LayerNorm(d), nn.LayerNorm(d)
        self.heads = max(1, d // 128)
        self.apply(xavier)

    def forward(self, x):
        y = torch.cat([self.cls.expand(x.shape[0], -1, -1), self.norm_in(x)], 1)
        q, k, v = (split_heads(f(y), self.heads) for f in (self.q_proj, self.k_proj, self.v_proj))
        p = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.norm_out(self.out_proj(merge_heads(p @ v)))[:, 0]


class Injection(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate, self.bias = nn.Sequential(nn.Linear(d, d), nn.Sigmoid()), nn.Linear(d, d)

    def forward(self, x, context):
        return x * self.gate(context)[:, None] + self.bias(context)[:, None]


def turn(x, angles):
    """Halves of the channels, by angles [N, D/2] laid out for neighbours."""
    a = angles.repeat_interleave(2, -1)
    lo, hi = x.chunk(2, -1)
    return x * a.cos() + torch.cat([-hi, lo], -1) * a.sin()


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.kv_proj, self.out_proj = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x, source, angles, source_angles):
        q = turn(split_heads(self.q_proj(x), self.heads), angles)
        k, v = (split_heads(y, self.heads) for y in self.kv_proj(source).chunk(2, -1))
        p = (q @ turn(k, source_angles).transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1)
        return self.out_proj(merge_heads(p @ v))


def pillar(d):
    return nn.Sequential(*(nn.Sequential(nn.Linear(d, d), nn.SiLU()) for _ in range(3)))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.self_attn, self.cross_attn = Attention(d, heads), Attention(d, heads)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d) for _ in range(3))
        self.p0, self.p1, self.p2, self.p3 = (pillar(d) for _ in range(4))
        self.ffn = nn.Sequential(nn.Linear(d, d))
        self.apply(xavier)

    def forward(self, x, text, angles, points):
        h = self.norm1(x)
        x = x + self.self_attn(h, h, angles, angles)
        x = x + self.cross_attn(self.norm2(x), self.norm2(text), angles, angles[:1])
        gate = torch.sigmoid(x)
        pillars = (self.p0, self.p1, self.p2, self.p3)
        points = [f(gate if points is None else gate * p) for f, p in zip(pillars, points or [None] * 4)]
        x = x + self.ffn(self.norm3(x))
        return raw_bezier(torch.cat([x, *points], -1)), points


def raw_bezier(x):
    t, p0, p1, p2, p3 = x.unflatten(-1, (-1, 5)).unbind(-1)
    s = t.sigmoid()
    r = 1 - s
    return r * r * r * p0 + 3 * r * r * s * p1 + 3 * r * s * s * p2 + s * s * s * p3


class FlowProcessor(nn.Module):
    def __init__(self, cfg, segment):
        super().__init__()
        self.segment, d, self.head = segment, cfg.flow_width, cfg.flow_width // cfg.flow_heads
        self.context = cfg.scales
        self.vae_to_dmodel, self.dmodel_to_vae = nn.Linear(cfg.dim, d), nn.Linear(d, cfg.dim)
        self.ctx_mixer, self.context_injection = ContextMixer(d), Injection(d)
        self.text_proj = nn.Linear(cfg.text, d)
        self.time_embed = nn.Sequential(nn.Embedding(TIMES, d), nn.LayerNorm(d), VectorCurve(d, START),
                                        nn.Linear(d, cfg.text))
        self.transformer_blocks = nn.ModuleList(Block(d, cfg.flow_heads) for _ in range(cfg.flow_layers))
        self.flow_predictor = nn.Sequential(nn.Conv2d(d, d, 5, padding=2), TrainableBezier(d, START),
                                            nn.Conv2d(d, d, 3, padding=1))
        self.context_final = nn.Sequential(nn.Conv2d(d + 2, d, 7, padding=3), TrainableBezier(d, START))

    def blocks(self, x, context, text, angles):
        points = None
        for block in self.transformer_blocks:
            x, points = block(self.context_injection(x, context), text, angles, points)
            context = context + x.mean(1)
        return x

    def forward(self, tokens, text, t, h, w):
        x = self.vae_to_dmodel(tokens)
        text = self.text_proj(text + self.time_embed((t * 999).clamp(max=999)))[:, None]
        freq = 1.0 / 10000 ** (torch.arange(self.head // 2, device=x.device) / (self.head // 2))
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * freq
        x = self.segment(self.blocks, x, self.ctx_mixer(x[:, :self.context]), text, angles)
        b, n, d = x.shape
        flow = self.flow_predictor(x.transpose(1, 2).reshape(b, d, h, w))
        xs = torch.linspace(-1, 1, w, device=x.device).expand(b, 1, h, w)
        ys = torch.linspace(-1, 1, h, device=x.device)[:, None].expand(b, 1, h, w)
        row = self.context_final(torch.cat([flow, xs, ys], 1)).mean((2, 3))
        v, row = self.dmodel_to_vae(x), self.dmodel_to_vae(row)[:, None]
        return torch.cat([v[:, :self.context] + row, v[:, self.context:]], 1)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al. 2023, with the decay on the weight first."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr, (b1, b2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - lr * group["weight_decay"])
                p.add_((b1 * m + (1 - b1) * p.grad).sign(), alpha=-lr)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class FluxFlowFlow:
    Config = Config
    TINY = dict(image=32, dim=32, scales=2, layers=1, heads=2, flow_width=32, flow_heads=4, flow_layers=2, text=24,
                lr=1e-4)
    precision = "fp32"
    cudnn_search = False

    def __init__(self, cfg, ctx):
        self.cfg, self.ctx = cfg, ctx
        with ctx.building():
            self.compressor = Compressor(cfg, ctx.segment).to(ctx.device).requires_grad_(False)
            self.flow = FlowProcessor(cfg, ctx.segment).to(ctx.device)
        self.modules = {"compressor": self.compressor, "flow_processor": self.flow}
        if cfg.dim == cfg.flow_width == 128 and cfg.text == 1024 and cfg.flow_layers == 10:
            expect("flow processor", count(self.flow), 5_373_824)
        self.predict = ctx.compile(self.flow)
        self.params = list(self.flow.parameters())
        self.optimizer = Lion(self.params, lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.01 / cfg.lr)
        beta = torch.linspace(1e-4, 0.02, TIMES, dtype=torch.float64)
        self.share = (1 - beta).log().cumsum(0).exp().to(ctx.device)
        s = torch.linspace(0, 1, TIMES, dtype=torch.float64)
        self.sums = (torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2).cumsum(0).to(ctx.device)
        self.ema = None

    @property
    def extra(self):
        """EMA tensors by name (for dumps)."""
        names = [f"ema.flow_processor.{k}" for k, _ in self.flow.named_parameters()]
        return dict(zip(names, self.params if self.ema is None else self.ema))

    def batch(self, draw):
        c = self.cfg
        side = c.image >> c.scales
        return [dict(real=draw.uniform(c.batch, 3, c.image, c.image) * 2 - 1, text=draw.normal(c.batch, c.text),
                     eps_flow=draw.normal(c.batch, c.dim, side, side),
                     noise=draw.normal(c.batch, side * side, c.dim), u=draw.uniform(c.batch).double())]

    def factors(self, t, dtype):
        share = self.share[t][:, None, None]
        return share.sqrt().to(dtype), (1 - share).sqrt().to(dtype)

    def step(self, micros):
        (m,), c, ctx = micros, self.cfg, self.ctx
        side = c.image >> c.scales
        if self.ema is None:
            self.ema = [p.detach().clone() for p in self.params]
        self.optimizer.zero_grad(set_to_none=True)
        t = torch.searchsorted(self.sums, m["u"] * self.sums[-1], right=True).clamp(max=TIMES - 1)
        (a, rest), (a1, rest1) = (self.factors(x, m["real"].dtype) for x in (t, t.clamp(min=1)))
        with ctx.autocast():
            with torch.no_grad():
                x = self.compressor(m["real"], m["eps_flow"])[0][:, :-1].float()
            made = self.predict(a1 * x + rest1 * m["noise"], m["text"], t, side, side)
        loss = F.mse_loss(made.float(), a * m["noise"] - rest * x)
        ctx.backward(loss)
        ctx.update(self.optimizer, clip=c.clip)
        with torch.no_grad():
            torch._foreach_mul_(self.ema, c.flow_ema)
            torch._foreach_add_(self.ema, self.params, alpha=1 - c.flow_ema)
        return {"loss": loss.detach(), "v": loss.detach()}
