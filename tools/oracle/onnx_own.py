"""Networks of people who write their own layers, and further families of the libraries: the group `own` of onnx_users.py. Each was drawn once, without a
look at what the importer has."""
import math

import torch
from onnx_exports import First, hugged, images, text_model, timm_model, tokens, torchvision_model
from onnx_more import diffuser
from torch import nn
from torch.nn import functional as F


class Reader(nn.Module):
    """Attention by einsum, a mask from token 0, learned positions, the embedding as head, a temperature that is one number."""

    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(40, 24), nn.Parameter(torch.randn(16, 24) * 0.02)
        self.qkv, self.out, self.norm = nn.Linear(24, 72, bias=False), nn.Linear(24, 24), nn.LayerNorm(24)
        self.head = nn.Linear(24, 40, bias=False)
        self.head.weight = self.embed.weight
        self.temperature = nn.Parameter(torch.tensor(0.5))

    def forward(self, words):
        b, t = words.shape
        x = self.embed(words) + self.position[:t]
        q, k, v = self.qkv(self.norm(x)).reshape(b, t, 3, 4, 6).unbind(2)
        score = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(6) / self.temperature.exp()
        future = torch.ones(t, t, dtype=torch.bool, device=words.device).triu(1)
        score = score.masked_fill(future, -1e4).masked_fill((words == 0)[:, None, None, :], -1e4)
        x = x + self.out(torch.einsum("bhij,bjhd->bihd", score.softmax(-1), v).reshape(b, t, 24))
        return self.head(x)


class Critic(nn.Module):
    """A discriminator with spectral norms of both kinds, leaky slopes, and the deviation of the batch as a further channel."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.spectral_norm
        self.a, self.b = norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.utils.spectral_norm(nn.Conv2d(8, 16, 4, 2, 1))
        self.c = norm(nn.Linear(17 * 16, 1))

    def forward(self, picture):
        x = F.leaky_relu(self.b(F.leaky_relu(self.a(picture), 0.2)), 0.2)
        deviation = x.var(0, unbiased=False).add(1e-8).sqrt().mean().expand(x.shape[0], 1, *x.shape[2:])
        return self.c(torch.cat((x, deviation), 1).flatten(1))


class Generator(nn.Module):
    """A GAN's generator: noise and a class become a picture by transposed convolutions; conditional BatchNorm."""

    def __init__(self):
        super().__init__()
        self.start, self.label = nn.Linear(12, 16 * 4 * 4), nn.Embedding(5, 32)
        self.norm = nn.BatchNorm2d(16, affine=False)
        self.up = nn.Sequential(nn.ConvTranspose2d(16, 12, 4, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(True), nn.Upsample(scale_factor=2),
                                nn.Conv2d(12, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=0.3, eps=1e-3), nn.ReLU6(), nn.Conv2d(8, 3, 1), nn.Tanh())

    def forward(self, noise, kind):
        x = self.start(noise).view(-1, 16, 4, 4)
        scale, shift = self.label(kind)[:, :, None, None].chunk(2, 1)
        return self.up(F.relu(self.norm(x) * (1 + scale) + shift))


class Temporal(nn.Module):
    """A temporal convolution network: weight norms of the old kind, chomps, residuals of other widths."""

    def __init__(self):
        super().__init__()
        wide = [(5, 8, 1), (8, 8, 2), (8, 12, 4)]
        self.layers = nn.ModuleList(nn.utils.weight_norm(nn.Conv1d(i, o, 3, padding=2 * d, dilation=d)) for i, o, d in wide)
        self.skips = nn.ModuleList(nn.Conv1d(i, o, 1) if i != o else nn.Identity() for i, o, d in wide)
        self.head = nn.utils.weight_norm(nn.Linear(12, 3), dim=None)

    def forward(self, series):
        x = series.permute(0, 2, 1)
        for layer, skip in zip(self.layers, self.skips):
            y = layer(x)[:, :, : -2 * layer.dilation[0]].contiguous()
            x = F.relu(F.relu(y) + skip(x))
        return self.head(x[:, :, -1])


class Lengths(nn.Module):
    """A GRU over padded words: the state at each sentence's last word, a mean over its words, an attention over its words."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 10, padding_idx=0)
        self.gru, self.score, self.head = nn.GRU(10, 12, batch_first=True, bidirectional=True), nn.Linear(24, 1), nn.Linear(72, 4)

    def forward(self, words, lengths):
        y, _ = self.gru(self.embed(words))
        seen = torch.arange(words.size(1), device=words.device)[None] < lengths[:, None]
        last = y[torch.arange(words.size(0), device=words.device), lengths - 1]
        mean = (y * seen.unsqueeze(2)).sum(1) / lengths.unsqueeze(1).float()
        share = self.score(torch.tanh(y)).squeeze(2).masked_fill(~seen, float("-inf")).softmax(1)
        return self.head(torch.cat((last, mean, torch.bmm(share.unsqueeze(1), y).squeeze(1)), 1))


class Rays(nn.Module):
    """A radiance field: frequencies, products along a ray, depths, a density that is shifted; results in a dictionary."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3 + 18, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.sigma, self.colour = nn.Linear(24, 1), nn.Linear(24 + 3, 3)
        self.register_buffer("frequency", 2.0 ** torch.arange(3))

    def forward(self, origin, direction):
        depth = torch.linspace(0.5, 2.5, 7)
        p = origin[:, None] + direction[:, None] * depth[:, None]
        angle = (p[..., None] * self.frequency).flatten(-2)
        h = self.body(torch.cat((p, angle.sin(), angle.cos()), -1))
        step = torch.cat((depth[1:] - depth[:-1], torch.tensor([1e2])))
        alpha = 1 - torch.exp(-F.softplus(self.sigma(h).squeeze(-1) - 1) * step)
        clear = torch.cumprod(torch.cat((torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10), -1), -1)[:, :-1]
        weight = alpha * clear
        facing = F.normalize(direction, dim=-1)[:, None].expand(-1, 7, -1)
        colour = torch.sigmoid(self.colour(torch.cat((h, facing), -1)))
        return {"rgb": (weight[..., None] * colour).sum(1), "depth": (weight * depth).sum(1), "opacity": weight.sum(1)}


class Styled(nn.Module):
    """StyleGAN's convolutions: kernels that each sample modulates, as groups; noise weights, a blur by a buffer, pixel norm."""

    def __init__(self):
        super().__init__()
        self.first, self.kernel = nn.Parameter(torch.randn(1, 8, 4, 4)), nn.Parameter(torch.randn(6, 8, 3, 3))
        self.style, self.gain, self.rgb = nn.Linear(10, 8), nn.Parameter(torch.zeros(1)), nn.Conv2d(6, 3, 1)
        taps = torch.tensor([1.0, 3.0, 3.0, 1.0])
        self.register_buffer("blur", (taps[:, None] * taps[None] / 64).repeat(6, 1, 1, 1))
        self.register_buffer("noise", torch.randn(1, 1, 8, 8))

    def forward(self, z):
        z = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        b = z.shape[0]
        w = self.kernel[None] * (self.style(z) + 1)[:, None, :, None, None]
        w = w * torch.rsqrt(w.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        x = F.interpolate(self.first.expand(b, -1, -1, -1), scale_factor=2, mode="bilinear")
        x = F.conv2d(x.reshape(1, b * 8, 8, 8), w.reshape(b * 6, 8, 3, 3), padding=1, groups=b).view(b, 6, 8, 8)
        x = F.leaky_relu(x + self.gain * self.noise, 0.2) * 2 ** 0.5
        return self.rgb(F.conv2d(F.pad(x, (2, 1, 2, 1)), self.blur, groups=6).clamp(-256, 256))


class Orbit(nn.Module):
    """A neural ODE by Runge-Kutta: one network called twelve times, with the time as a further input."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4))

    def slope(self, t, y):
        return self.net(torch.cat([y, torch.full_like(y[:, :1], t)], dim=1))

    def forward(self, start):
        y, path, h = start, [start], 1 / 3
        for i in range(3):
            k1 = self.slope(i * h, y)
            k2 = self.slope(i * h + h / 2, y + h / 2 * k1)
            k3 = self.slope(i * h + h / 2, y + h / 2 * k2)
            k4 = self.slope(i * h + h, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(y)
        return torch.stack(path, 1)


class Adjacent(nn.Module):
    """Graph attention with a matrix of neighbours of whole numbers, degrees, a virtual node, residuals, a readout by maximum and sum."""

    def __init__(self):
        super().__init__()
        self.w, self.left, self.right = nn.Linear(6, 16, bias=False), nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))
        self.hub, self.norm, self.out = nn.Parameter(torch.zeros(1, 1, 16)), nn.BatchNorm1d(16), nn.Linear(32, 3)

    def forward(self, nodes, near):
        b, n, _ = nodes.shape
        h = self.w(nodes).view(b, n, 4, 4)
        s = (h * self.left).sum(-1)[:, :, None] + (h * self.right).sum(-1)[:, None]
        near = (near + torch.eye(n, dtype=near.dtype)) > 0
        a = torch.where(near[..., None], F.leaky_relu(s, 0.2), torch.tensor(-9e15)).softmax(2)
        x = F.elu(torch.einsum("bijh,bjhd->bihd", a, h).flatten(2)) + self.hub * near.float().mean((1, 2))[:, None, None]
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.out(torch.cat([x.max(dim=1)[0], x.sum(dim=1)], dim=-1))


class Sets(nn.Module):
    """Set transformer: torch's attention layer with learned queries, its weights as a second result, a padding mask of truth values."""

    def __init__(self):
        super().__init__()
        self.induce, self.seed = nn.Parameter(torch.randn(1, 3, 16)), nn.Parameter(torch.randn(1, 1, 16))
        self.lift = nn.Linear(4, 16)
        self.a, self.b, self.c = (nn.MultiheadAttention(16, 4, batch_first=True) for _ in range(3))
        self.out = nn.Linear(16, 2)

    def forward(self, points, hidden):
        x, b = self.lift(points), points.shape[0]
        h, _ = self.a(self.induce.repeat(b, 1, 1), x, x, key_padding_mask=hidden, need_weights=False)
        x = x + self.b(x, h, h)[0]
        y, weights = self.c(self.seed.expand(b, -1, -1), x, x, key_padding_mask=hidden)
        return self.out(y[:, 0]), weights


class Linear(nn.Module):
    """Causal linear attention by cumulative sums, beside attention of torch with grouped heads, and a bias from buckets of distances."""

    def __init__(self):
        super().__init__()
        self.qkv, self.q, self.kv, self.o = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(32, 5)
        self.bias = nn.Embedding(8, 4)

    def bucket(self, t):
        far = (torch.arange(t)[:, None] - torch.arange(t)[None]).clamp(min=0)
        large = 4 + (torch.log(far.float().clamp(min=1) / 4) / math.log(16 / 4) * 4).long()
        return torch.where(far < 4, far, large.clamp(max=7))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = (k.unsqueeze(-1) * v.unsqueeze(-2)).cumsum(2)
        y = torch.einsum("bhtd,bhtde->bhte", q, kv) / (q * k.cumsum(2)).sum(-1, keepdim=True).clamp_min(1e-6)
        g = self.q(x).view(b, t, 4, 4).transpose(1, 2)
        s, r = self.kv(x).view(b, t, 2, 2, 4).permute(2, 0, 3, 1, 4)
        bias = self.bias(self.bucket(t)).permute(2, 0, 1)[None].expand(b, -1, -1, -1)
        z = F.scaled_dot_product_attention(g, s.repeat_interleave(2, 1), r.repeat_interleave(2, 1), attn_mask=bias)
        return self.o(torch.cat((y.transpose(1, 2).flatten(2), z.transpose(1, 2).flatten(2)), -1))


class Sparse(nn.Module):
    """Learned ISTA: soft thresholds, a step per layer, a dictionary whose columns have norm one, in a ParameterDict and ParameterList."""

    def __init__(self):
        super().__init__()
        self.part = nn.ParameterDict({"atoms": torch.randn(6, 14), "rest": torch.zeros(6)})
        self.low = nn.ParameterList([nn.Parameter(torch.full((14,), 0.05)) for _ in range(4)])
        self.step = nn.Parameter(torch.full((4,), 0.1))

    def forward(self, signal):
        d = self.part["atoms"] / self.part["atoms"].norm(dim=0, keepdim=True)
        z = torch.zeros(signal.shape[0], 14)
        for low, step in zip(self.low, self.step):
            z = z - step * (z @ d.T + self.part["rest"] - signal) @ d
            z = torch.sign(z) * torch.relu(z.abs() - low)
        return z @ d.t() + self.part["rest"], z


class Frames(nn.Module):
    """ConvLSTM over frames, with peepholes; the frames begin as 5-D, the state as zeros of the input's type."""

    def __init__(self):
        super().__init__()
        self.gates, self.peep = nn.Conv2d(3 + 6, 24, 3, padding="same"), nn.Parameter(torch.zeros(3, 6, 8, 8))
        self.out = nn.Conv2d(6, 3, 1)

    def forward(self, frames):
        b, t, c, h, w = frames.size()
        hidden, cell, rows = frames.new_zeros((b, 6, h, w)), frames.new_zeros((b, 6, h, w)), []
        for k in range(t):
            i, f, g, o = torch.split(self.gates(torch.cat([frames[:, k], hidden], dim=1)), 6, dim=1)
            i, f = torch.sigmoid(i + self.peep[0] * cell), torch.sigmoid(f + self.peep[1] * cell + 1)
            cell = f * cell + i * torch.tanh(g)
            hidden = torch.sigmoid(o + self.peep[2] * cell) * cell.tanh()
            rows.append(self.out(hidden))
        return torch.stack(rows, dim=1)


class Gates(nn.Module):
    """Experts chosen by top-k, computed densely, with a balance term; noise-free gates scattered back, a loss that the network returns."""

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 4, bias=False), nn.Parameter(torch.randn(4, 8, 12) / 3), nn.Parameter(torch.randn(4, 12, 8) / 3)

    def forward(self, x):
        logits = self.gate(x)
        top, which = logits.topk(2, dim=-1)
        weight = torch.zeros_like(logits).scatter(-1, which, top.softmax(-1))
        h = F.gelu(torch.einsum("btd,edf->btef", x, self.up), approximate="tanh")
        y = torch.einsum("btef,efd,bte->btd", h, self.down, weight)
        share = F.one_hot(which, 4).float().mean((0, 1, 2))
        return y + x, 4 * (share * logits.softmax(-1).mean((0, 1))).sum()


class Forecast(nn.Module):
    """Reversible norms, a moving average, trend and season, quantiles that are sorted by sums of softplus, lags."""

    def __init__(self):
        super().__init__()
        self.trend, self.season, self.q = nn.Linear(20, 6), nn.Linear(20, 6), nn.Linear(6, 18)
        self.affine = nn.Parameter(torch.ones(2, 1))

    def forward(self, series):
        x = series.transpose(1, 2)
        mean = x.mean(-1, keepdim=True).detach()
        std = torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5).detach()
        x = (x - mean) / std * self.affine
        padded = torch.cat((x[:, :, :1].repeat(1, 1, 2), x, x[:, :, -1:].repeat(1, 1, 2)), -1)
        trend = F.avg_pool1d(padded, kernel_size=5, stride=1)
        y = self.trend(trend) + self.season(x - trend)
        raw = self.q(F.silu(y)).unflatten(-1, (6, 3))
        low = raw[..., :1] + y.unsqueeze(-1)
        q = torch.cat((low, low + torch.cumsum(F.softplus(raw[..., 1:]), -1)), -1)
        return (q / self.affine.unsqueeze(-1)) * std.unsqueeze(-1) + mean.unsqueeze(-1)


class Captcha(nn.Module):
    """Convolutions, then LSTMs over columns, log-probabilities with time first in between, batch first outside."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d((2, 2)), nn.Conv2d(8, 12, 3, 1, 1), nn.ReLU(),
                                  nn.MaxPool2d((2, 1), (2, 1)), nn.Dropout2d(0.0))
        self.lstm, self.head = nn.LSTM(48, 10, 2, bidirectional=True), nn.Linear(20, 7)

    def forward(self, line):
        x = self.conv(line)
        b, c, h, w = x.shape
        y, _ = self.lstm(x.view(b, c * h, w).permute(2, 0, 1))
        return F.log_softmax(self.head(y), dim=2).permute(1, 0, 2)


class Volumes(nn.Module):
    """A 3-D U-Net with BatchNorm, concatenations of cropped skips, transposed convolutions without bias, a sigmoid gate on skips."""

    def __init__(self):
        super().__init__()
        double = lambda i, o: nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.BatchNorm3d(o), nn.ReLU(True), nn.Conv3d(o, o, (1, 3, 3), padding=(0, 1, 1)),
                                            nn.GroupNorm(2, o), nn.ReLU(True))
        self.a, self.b, self.c = double(1, 4), double(4, 8), double(16, 8)
        self.up, self.gate, self.head = nn.ConvTranspose3d(8, 8, 2, 2, bias=False), nn.Conv3d(4, 4, 1), nn.Conv3d(8, 2, 1)
        self.lift = nn.Conv3d(4, 8, 1)

    def forward(self, scan):
        a = self.a(scan)
        b = self.b(F.max_pool3d(a, 2))
        u = F.pad(self.up(b), (0, 1, 0, 1, 0, 0))
        skip = self.lift(a * torch.sigmoid(self.gate(a)))
        return self.head(self.c(torch.cat((u[..., : a.shape[-2], : a.shape[-1]], skip), 1)))


class Pairs(nn.Module):
    """Bilinear forms, cosines, distances, bags of embeddings, a margin between sentences."""

    def __init__(self):
        super().__init__()
        self.bag, self.form = nn.EmbeddingBag(20, 6, mode="sum"), nn.Bilinear(6, 4, 3)
        self.near, self.far, self.scale = nn.CosineSimilarity(dim=1), nn.PairwiseDistance(p=2), nn.Parameter(torch.tensor(1.5))
        self.map = nn.Linear(4, 6)

    def forward(self, words, features):
        x, y = self.bag(words), self.map(features)
        score = torch.stack((self.near(x, y), self.far(x, y), torch.cdist(x[:, None], y[:, None]).flatten(1).squeeze(1)), 1)
        return self.form(x, features) + score * self.scale.exp().clamp(max=100)


class Hyper(nn.Module):
    """A network that makes another's weights; low-rank updates of a frozen layer (LoRA)."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 8)
        self.base.weight.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, 6) / 2), nn.Parameter(torch.randn(8, 2) / 2)
        self.make = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8 * 3 + 3))

    def forward(self, x, task):
        h = torch.tanh(self.base(x) + 0.5 * (x @ self.down.T) @ self.up.T)
        w = self.make(task)
        return torch.baddbmm(w[:, None, 24:], h.unsqueeze(1), w[:, :24].view(-1, 8, 3)).squeeze(1)


class Norms(nn.Module):
    """Norms of one's own: a BatchNorm without running statistics, one that averages all batches, RMS with a shift, group norm by views, standardised kernels."""

    def __init__(self):
        super().__init__()
        self.free, self.mean = nn.BatchNorm2d(8, track_running_stats=False), nn.BatchNorm1d(6, momentum=0.05)
        self.kernel, self.scale, self.shift = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.out = nn.Linear(8, 6)

    def forward(self, picture):
        mean, var = self.kernel.mean((1, 2, 3), keepdim=True), self.kernel.var((1, 2, 3), keepdim=True, unbiased=False)
        x = self.free(F.conv2d(picture, (self.kernel - mean) / torch.sqrt(var + 1e-5), stride=2))
        g = x.view(x.shape[0], 4, -1)
        x = ((g - g.mean(-1, keepdim=True)) / (g.std(-1, keepdim=True) + 1e-5)).view_as(x)
        y = self.mean(self.out(x.mean((-2, -1))))
        return self.scale * y / y.pow(2).mean(-1, keepdim=True).add(1e-6).sqrt() + self.shift


def mae():
    return hugged("ViTMAEForPreTraining", "ViTMAEConfig", (torch.randn(2, 3, 32, 32), torch.rand(2, 16)), ["pixel_values", "noise"], image_size=32, patch_size=8,
                  hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, decoder_hidden_size=24, decoder_num_hidden_layers=1,
                  decoder_num_attention_heads=4, decoder_intermediate_size=48)


def detr():
    import transformers
    backbone = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], layer_type="basic", out_features=["stage4"])
    return hugged("DetrForObjectDetection", "DetrConfig", images(64), ["pixel_values"], use_timm_backbone=False, backbone=None, backbone_config=backbone,
                  use_pretrained_backbone=False, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
                  encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=5, num_labels=3)


def series():
    return hugged("PatchTSMixerForPrediction", "PatchTSMixerConfig", (torch.randn(2, 32, 3),), ["past_values"], context_length=32, patch_length=8, patch_stride=8,
                  num_input_channels=3, d_model=16, num_layers=2, prediction_length=6, dropout=0.0, head_dropout=0.0)


def layout():
    left = torch.randint(0, 50, (2, 16, 2))
    return hugged("LayoutLMForTokenClassification", "LayoutLMConfig", (*tokens(99), torch.cat((left, left + 20), -1)), ["input_ids", "bbox"], vocab_size=99,
                  hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=32, max_2d_position_embeddings=100,
                  num_labels=3)


BODY = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
OWN = {
    "reader": lambda: (Reader(), (torch.tensor([[3, 7, 9, 1, 4, 0], [2, 8, 5, 0, 0, 0], [1, 1, 2, 3, 5, 8]]),)),
    "critic": lambda: (Critic(), images(16, 4)),
    "generator": lambda: (Generator(), (torch.randn(4, 12), torch.tensor([0, 3, 1, 4]))),
    "temporal_own": lambda: (Temporal(), (torch.randn(3, 12, 5),)),
    "lengths": lambda: (Lengths(), (torch.tensor([[3, 7, 9, 1, 4], [2, 8, 5, 0, 0], [1, 1, 0, 0, 0]]), torch.tensor([5, 3, 2]))),
    "rays": lambda: (Rays(), (torch.randn(5, 3), torch.randn(5, 3))),
    "styled": lambda: (Styled(), (torch.randn(3, 10),)),
    "orbit": lambda: (Orbit(), (torch.randn(4, 4),)),
    "adjacent": lambda: (Adjacent(), (torch.randn(3, 6, 6), torch.randint(0, 2, (3, 6, 6)))),
    "sets": lambda: (Sets(), (torch.randn(3, 7, 4), torch.arange(7)[None] >= torch.tensor([[7], [4], [5]]))),
    "linear_attention": lambda: (Linear(), (torch.randn(2, 9, 16),)),
    "sparse": lambda: (Sparse(), (torch.randn(5, 6),)),
    "frames": lambda: (Frames(), (torch.randn(2, 3, 3, 8, 8),)),
    "gates": lambda: (Gates(), (torch.randn(3, 5, 8),)),
    "forecast": lambda: (Forecast(), (torch.randn(3, 20, 2),)),
    "captcha": lambda: (Captcha(), (torch.randn(3, 1, 16, 20),)),
    "volumes_own": lambda: (Volumes(), (torch.randn(2, 1, 4, 9, 9),)),
    "pairs": lambda: (Pairs(), (torch.randint(0, 20, (5, 4)), torch.randn(5, 4))),
    "hyper": lambda: (Hyper(), (torch.randn(4, 6), torch.randn(4, 5))),
    "norms": lambda: (Norms(), images(9, 4)),
    "regnet_y": lambda: torchvision_model("regnet_y_400mf", 64),
    "tinynet": lambda: timm_model("tinynet_e", 64),
    "repghost": lambda: timm_model("repghostnet_050", 64),
    "convformer": lambda: timm_model("convformer_s18", 64),
    "fasternet": lambda: timm_model("fasternet_t0", 64),
    "tnt": lambda: timm_model("tnt_s_legacy_patch16_224", 32, img_size=32, depth=2),
    "mvitv2": lambda: timm_model("mvitv2_tiny", 64, img_size=64),
    "shvit": lambda: timm_model("shvit_s1", 224),
    "resnetv2": lambda: timm_model("resnetv2_50", 64, layers=(1, 1, 1, 1)),
    "ecaresnet": lambda: timm_model("ecaresnet26t", 64),
    "nextvit": lambda: timm_model("nextvit_small", 64),
    "mae": mae, "detr": detr, "patch_mixer": series, "layout": layout,
    "ctrl": lambda: hugged("CTRLLMHeadModel", "CTRLConfig", tokens(99), ["input_ids"], {"use_cache": False}, vocab_size=99, n_embd=32, n_layer=2, n_head=4, dff=64,
                           n_positions=32),
    "mpnet": lambda: text_model("MPNetForMaskedLM", "MPNetConfig", pad_token_id=1),
    "rembert": lambda: text_model("RemBertForMaskedLM", "RemBertConfig", input_embedding_size=16, output_embedding_size=24),
    "canine": lambda: hugged("CanineForSequenceClassification", "CanineConfig", tokens(99, 16), ["input_ids"], local_transformer_stride=16, num_hash_buckets=50,
                             max_position_embeddings=32, downsampling_rate=4, **BODY),
    "gemma3": lambda: text_model("Gemma3ForCausalLM", "Gemma3TextConfig", num_key_value_heads=1, head_dim=8, sliding_window=8,
                                 layer_types=["sliding_attention", "full_attention"]),
    "deepseek": lambda: text_model("DeepseekV3ForCausalLM", "DeepseekV3Config", num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8,
                                   qk_rope_head_dim=8, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=16,
                                   first_k_dense_replace=1),
    "smollm": lambda: text_model("SmolLM3ForCausalLM", "SmolLM3Config", num_key_value_heads=2, pad_token_id=0),
    "falcon_mamba": lambda: text_model("FalconMambaForCausalLM", "FalconMambaConfig", state_size=4, expand=2, conv_kernel=3, time_step_rank=4),
    "bitnet": lambda: text_model("BitNetForCausalLM", "BitNetConfig", num_key_value_heads=2, pad_token_id=0),
    "m2m": lambda: hugged("M2M100ForConditionalGeneration", "M2M100Config", tokens(99) + tokens(99, 8), ["input_ids", "decoder_input_ids"],
                          {"use_cache": False}, vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
                          decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32),
    "image_gpt": lambda: hugged("ImageGPTForImageClassification", "ImageGPTConfig", (torch.randint(0, 16, (2, 16)),), ["input_ids"], {"use_cache": False}, vocab_size=17,
                          n_positions=16, n_embd=32, n_layer=2, n_head=4, num_labels=4),
    "sew": lambda: hugged("SEWForCTC", "SEWConfig", (torch.randn(2, 800),), ["input_values"], vocab_size=12, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2),
                          num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_prob=0.0, layerdrop=0.0,
                          squeeze_factor=2, **BODY),
    "whisper_full": lambda: hugged("WhisperForConditionalGeneration", "WhisperConfig", (torch.randn(2, 16, 48), torch.randint(0, 99, (2, 6))),
                                   ["input_features", "decoder_input_ids"], {"use_cache": False}, vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1,
                                   encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16,
                                   max_source_positions=24, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1),
    "vision_text": lambda: hugged("ViltForQuestionAnswering", "ViltConfig", (*tokens(99, 8), torch.randn(2, 3, 32, 32)), ["input_ids", "pixel_values"], vocab_size=99,
                                  image_size=32, patch_size=8, max_position_embeddings=16, num_labels=4, max_image_length=-1, **BODY),
    "unet3d": lambda: diffuser("UNet3DConditionModel", (torch.randn(2, 4, 3, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 12)),
                               ["sample", "timestep", "encoder_hidden_states"], sample_size=8, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=12,
                               attention_head_dim=8, norm_num_groups=8, down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
                               up_block_types=("UpBlock3D", "CrossAttnUpBlock3D")),
    "cogvideo": lambda: diffuser("CogVideoXTransformer3DModel", (torch.randn(2, 3, 4, 8, 8), torch.randn(2, 5, 12), torch.tensor([3, 7])),
                                ["hidden_states", "encoder_hidden_states", "timestep"], num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4,
                                time_embed_dim=8, text_embed_dim=12, num_layers=1, sample_width=8, sample_height=8, sample_frames=9, patch_size=2,
                                temporal_compression_ratio=4, max_text_seq_length=5),
    "asymmetric_vae": lambda: diffuser("AsymmetricAutoencoderKL", images(16), ["sample"], down_block_types=("DownEncoderBlock2D",) * 2, down_block_out_channels=(16, 32),
                                    layers_per_down_block=1, up_block_types=("UpDecoderBlock2D",) * 2, up_block_out_channels=(16, 32), layers_per_up_block=1,
                                    latent_channels=4, norm_num_groups=8),
}
