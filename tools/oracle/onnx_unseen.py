"""Networks of fields that the other groups of onnx_users.py lack: detection, audio, video, time series, recommenders, points, scans, flows, slots, codes. The groups
`unseen` and `guest` of its command line; none was looked at while the importer was written."""
import math

import torch
from onnx_exports import First, hugged, images, text_model, timm_model, tokens, torchvision_model
from onnx_more import diffuser
from torch import nn
from torch.nn import functional as F


class Dlrm(nn.Module):
    """A recommender: tables of categories, numbers, products of all pairs."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, 8, mode="sum") for n in (10, 20, 5))
        self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, numbers, categories):
        x = self.bottom(numbers)
        rows = torch.stack([x] + [table.weight[categories[:, i]] for i, table in enumerate(self.tables)], 1)
        pairs = rows @ rows.transpose(1, 2)
        i, j = torch.triu_indices(4, 4, offset=1)
        return self.top(torch.cat((x, pairs[:, i, j]), 1)).squeeze(1)


class Edges(nn.Module):
    """Points: neighbours by distance in the space of features, edges, the largest of each."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))
        self.b = nn.Sequential(nn.Conv2d(32, 24, 1, bias=False), nn.BatchNorm2d(24), nn.LeakyReLU(0.2))
        self.head = nn.Linear(48, 5)

    @staticmethod
    def edges(x, k=4):
        n = x.transpose(1, 2)
        near = torch.cdist(n, n).topk(k, largest=False).indices
        rows = torch.arange(x.shape[0])[:, None, None]
        other = n[rows, near]
        own = n[:, :, None].expand_as(other)
        return torch.cat((other - own, own), -1).permute(0, 3, 1, 2)

    def forward(self, points):
        x = self.a(self.edges(points)).amax(-1)
        x = self.b(self.edges(x)).amax(-1)
        return self.head(torch.cat((x.amax(-1), x.mean(-1)), 1))


class Causal(nn.Module):
    """Dilated causal convolutions in 1-D, gated, with skips; learnt weight norms."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.first = nn.Conv1d(2, 8, 1)
        self.gates = nn.ModuleList(norm(nn.Conv1d(8, 16, 2, dilation=2 ** i)) for i in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3))
        self.last = nn.Conv1d(8, 3, 1)

    def forward(self, wave):
        x, total = self.first(wave), 0
        for i, (gate, skip) in enumerate(zip(self.gates, self.skips)):
            a, b = gate(F.pad(x, (2 ** i, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total, x = total + skip(y), x + y
        return self.last(F.relu(total))


class Scan(nn.Module):
    """A linear recurrence with gates that depend on the input, as a cumulative sum of logarithms."""

    def __init__(self):
        super().__init__()
        self.gate, self.value, self.out, self.norm = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12), nn.RMSNorm(12)

    def forward(self, x):
        y = self.norm(x)
        keep = F.logsigmoid(self.gate(y)).cumsum(1)
        value = F.softplus(self.value(y)).log() - keep
        return x + self.out((torch.logcumsumexp(value, 1) + keep).exp())


class Detector(nn.Module):
    """One-stage detection: cells, anchors, boxes decoded in the graph."""

    def __init__(self):
        super().__init__()
        block = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU())
        self.body = nn.Sequential(block(3, 8), block(8, 16), block(16, 24))
        self.head = nn.Conv2d(24, 3 * 9, 1)
        self.register_buffer("anchors", torch.tensor([[8.0, 10], [12, 20], [30, 24]]))

    def forward(self, image):
        x = self.head(self.body(image))
        n, _, h, w = x.shape
        x = x.view(n, 3, 9, h, w).permute(0, 1, 3, 4, 2)
        y, c = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        cell = torch.stack((c, y), -1).to(x)
        centre = (x[..., :2].sigmoid() * 2 - 0.5 + cell) * 8
        size = (x[..., 2:4].sigmoid() * 2) ** 2 * self.anchors[:, None, None]
        return torch.cat((centre / 32, size / 32, x[..., 4:].sigmoid()), -1).flatten(1, 3)


def ssd_backbone():
    import torchvision
    m = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).backbone

    class Maps(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = m

        def forward(self, image):
            return tuple(self.net(image).values())

    return Maps(), images(96)


def detr():
    return hugged("DetrForObjectDetection", "DetrConfig", images(64), ["pixel_values"], use_timm_backbone=True, backbone="resnet18", use_pretrained_backbone=False,
                  d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                  decoder_ffn_dim=64, num_queries=5, num_labels=3)


SOUND = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2),
             num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_prob=0.0, layerdrop=0.0)
UNSEEN = {
    "dlrm": lambda: (Dlrm(), (torch.randn(6, 4), torch.randint(0, 5, (6, 3)))),
    "edges": lambda: (Edges(), (torch.randn(3, 3, 12),)),
    "causal": lambda: (Causal(), (torch.randn(2, 2, 24),)),
    "scan": lambda: (Scan(), (torch.randn(2, 7, 12),)),
    "detector": lambda: (Detector(), images(32, 4)),
    "ssd": ssd_backbone, "detr": detr,
    "wavlm": lambda: hugged("WavLMModel", "WavLMConfig", (torch.randn(2, 800),), ["input_values"], num_buckets=8, max_bucket_distance=16, **SOUND),
    "vivit": lambda: hugged("VivitForVideoClassification", "VivitConfig", (torch.randn(2, 4, 3, 16, 16),), ["pixel_values"], image_size=16, num_frames=4,
                            tubelet_size=[2, 8, 8], hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64),
    "tsmixer": lambda: hugged("PatchTSMixerForPrediction", "PatchTSMixerConfig", (torch.randn(2, 32, 3),), ["past_values"], context_length=32, patch_length=8,
                              patch_stride=8, num_input_channels=3, d_model=8, num_layers=2, prediction_length=6),
    "rwkv_hf": lambda: text_model("RwkvForCausalLM", "RwkvConfig", attention_hidden_size=32, context_length=32),
    "auraflow": lambda: diffuser("AuraFlowTransformer2DModel", (torch.randn(2, 4, 8, 8), torch.randn(2, 5, 12), torch.tensor([0.3, 0.7])),
                             ["hidden_states", "encoder_hidden_states", "timestep"], sample_size=8, patch_size=2, in_channels=4, num_mmdit_layers=1,
                             num_single_dit_layers=1, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=12, caption_projection_dim=16,
                             out_channels=4, pos_embed_max_size=16),
    "prior": lambda: diffuser("PriorTransformer", (torch.randn(2, 16), torch.tensor(3), torch.randn(2, 16), torch.randn(2, 5, 16)),
                              ["hidden_states", "timestep", "proj_embedding", "encoder_hidden_states"], num_attention_heads=2, attention_head_dim=8, num_layers=1,
                              embedding_dim=16, num_embeddings=5, additional_embeddings=4),
    "dla": lambda: timm_model("dla46_c", 64), "rexnet": lambda: timm_model("rexnet_100", 64), "mixnet": lambda: timm_model("tf_mixnet_s", 64),
    "selecsls": lambda: timm_model("selecsls42b", 64), "xception": lambda: timm_model("xception41", 96), "r2plus1d": lambda: (
        __import__("torchvision").models.video.r2plus1d_18(weights=None, num_classes=5), (torch.randn(2, 3, 4, 32, 32),)),
    "raft_features": lambda: (__import__("torchvision").models.optical_flow.raft_small(weights=None).feature_encoder, images(64)),
    "wide_resnet": lambda: torchvision_model("wide_resnet50_2", 32), "perceiver_text": lambda: hugged(
        "PerceiverForSequenceClassification", "PerceiverConfig", tokens(99), ["inputs"], vocab_size=99, max_position_embeddings=16, d_model=16, d_latents=16,
        num_latents=6, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=2, num_cross_attention_heads=2, num_labels=3),
}


class Couplings(nn.Module):
    """A normalizing flow: affine couplings with masks, a norm of activations, a mix of channels by L, U and a permutation; gives its likelihood."""

    def __init__(self):
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(6, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 12))
        self.nets, self.shift, self.log_scale = nn.ModuleList(make() for _ in range(3)), nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(6))
        self.register_buffer("masks", torch.tensor([[1.0, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1], [1, 1, 1, 0, 0, 0]]))
        self.register_buffer("order", torch.randperm(6))
        self.lower, self.upper = nn.Parameter(torch.randn(6, 6) / 9), nn.Parameter(torch.randn(6, 6) / 9)
        self.diagonal = nn.Parameter(torch.zeros(6))

    def forward(self, x):
        x = (x + self.shift) * self.log_scale.exp()
        change = self.log_scale.sum() + self.diagonal.sum()
        mix = (self.lower.tril(-1) + torch.eye(6)) @ (self.upper.triu(1) + torch.diag(self.diagonal.exp()))
        x = F.linear(x[:, self.order], mix)
        for net, mask in zip(self.nets, self.masks):
            s, t = net(x * mask).chunk(2, 1)
            s = torch.tanh(s) * (1 - mask)
            x = x * mask + (1 - mask) * (x * s.exp() + t)
            change = change + s.sum(1)
        return (-0.5 * (x ** 2 + math.log(2 * math.pi))).sum(1, keepdim=True) + change.unsqueeze(1)


class Slots(nn.Module):
    """Slot attention: learned slots compete for features over three rounds with a GRU cell; a decoder broadcasts them and mixes by alpha."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.place = nn.Linear(4, 16)
        y, x = torch.meshgrid(torch.linspace(0, 1, 6), torch.linspace(0, 1, 6), indexing="ij")
        self.register_buffer("grid", torch.stack((y, x, 1 - y, 1 - x), -1)[None])
        self.slots = nn.Parameter(torch.randn(1, 3, 16))
        self.n_in, self.n_slot, self.n_mlp = nn.LayerNorm(16), nn.LayerNorm(16), nn.LayerNorm(16)
        self.q, self.k, self.v = (nn.Linear(16, 16, bias=False) for _ in range(3))
        self.cell, self.mlp = nn.GRUCell(16, 16), nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16))
        self.decode = nn.ConvTranspose2d(16, 4, 5, 2, 2, output_padding=1)

    def forward(self, image):
        f = self.encode(image).permute(0, 2, 3, 1) + self.place(self.grid)
        f = self.n_in(f.flatten(1, 2))
        k, v = self.k(f), self.v(f)
        s = self.slots.expand(image.shape[0], -1, -1)
        for _ in range(3):
            a = torch.softmax(torch.einsum("bnd,bsd->bns", k, self.q(self.n_slot(s))) * 16 ** -0.5, -1) + 1e-8
            update = torch.einsum("bns,bnd->bsd", a / a.sum(1, keepdim=True), v)
            s = self.cell(update.reshape(-1, 16), s.reshape(-1, 16)).view(-1, 3, 16)
            s = s + self.mlp(self.n_mlp(s))
        m = s.reshape(-1, 16)[:, :, None, None].repeat(1, 1, 6, 6) + self.place(self.grid).permute(0, 3, 1, 2)
        colour, alpha = self.decode(m).view(image.shape[0], 3, 4, 12, 12).split((3, 1), 2)
        return (colour * alpha.softmax(1)).sum(1)


class Matrix(nn.Module):
    """An xLSTM's matrix memory: exponential gates, stabilised by a maximum, a norm of each head; differential attention after it."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.gates = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 8)
        self.group, self.out = nn.GroupNorm(4, 16), nn.Linear(16, 16)
        self.two, self.lam, self.last = nn.Linear(16, 80), nn.Parameter(torch.zeros(4, 2)), nn.Linear(16, 5)

    def forward(self, x):
        b, t, _ = x.shape
        n = self.norm(x)
        q, k, v = self.qkv(n).view(b, t, 3, 4, 4).permute(2, 0, 3, 1, 4)
        i, f = self.gates(n).view(b, t, 2, 4).permute(2, 0, 3, 1)
        f = F.logsigmoid(f).cumsum(-1)
        d = f[..., :, None] - f[..., None, :] + i[..., None, :]
        d = torch.where(torch.ones(t, t).tril().bool(), d, -torch.inf)
        top = d.amax(-1, keepdim=True)
        c = (q @ k.transpose(-2, -1) / 2) * (d - top).exp()
        h = (c @ v) / torch.maximum(c.sum(-1, keepdim=True).abs(), (-top).exp())
        h = self.group(h.transpose(1, 2).reshape(b * t, 16)).view(b, t, 16)
        x = x + self.out(h)
        q1, q2, k1, k2, v = self.two(x).view(b, t, 5, 4, 4).transpose(1, 3).unbind(2)
        lam = self.lam.exp().diff(dim=1).sigmoid().view(1, 4, 1, 1)
        a = F.scaled_dot_product_attention(q1, k1, v, is_causal=True) - lam * F.scaled_dot_product_attention(q2, k2, v, is_causal=True)
        return self.last(a.transpose(1, 2).flatten(2))


class Field(nn.Module):
    """A tagger with a linear-chain random field: the forward algorithm over a sentence, in logarithms, with a mask; gives marginals of the last word."""

    def __init__(self):
        super().__init__()
        self.embed, self.conv = nn.Embedding(25, 12, padding_idx=0), nn.Conv1d(12, 5, 3, padding=1)
        self.start, self.move = nn.Parameter(torch.randn(5) / 9), nn.Parameter(torch.randn(5, 5) / 9)

    def forward(self, words):
        e = self.conv(self.embed(words).transpose(1, 2)).transpose(1, 2)
        seen = words.ne(0)
        a = self.start + e[:, 0]
        for t in range(1, words.shape[1]):
            step = torch.logsumexp(a.unsqueeze(2) + self.move, 1) + e[:, t]
            a = torch.where(seen[:, t:t + 1], step, a)
        return a - torch.logsumexp(a, 1, True)


class Keypoints(nn.Module):
    """An hourglass with soft-argmax of heat maps, coordinate channels, squeeze and excitation, a pyramid of blurred differences."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(5, 12, 3, padding=1, bias=False), nn.GroupNorm(3, 12)
        self.down, self.up = nn.Conv2d(12, 16, 4, 2, 1), nn.ConvTranspose2d(16, 12, 4, 2, 1)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 4, 1), nn.Hardswish(), nn.Conv2d(4, 16, 1), nn.Hardsigmoid())
        self.heat, self.sharp = nn.Conv2d(12, 4, 1), nn.Parameter(torch.tensor(2.0))
        self.depth = nn.Linear(4 * 3, 4)

    def forward(self, picture):
        b, _, h, w = picture.shape
        y, x = torch.linspace(-1, 1, h), torch.linspace(-1, 1, w)
        grid = torch.stack((y[:, None].expand(h, w), x[None].expand(h, w))).expand(b, -1, -1, -1)
        a = F.mish(self.norm(self.stem(torch.cat((picture, grid), 1))))
        c = F.celu(self.down(a), 0.8)
        a = a + self.up(c * self.squeeze(c))
        maps = self.heat(a)
        p = (maps.flatten(2) * self.sharp).softmax(2).view_as(maps)
        at = torch.stack(((p.sum(3) * y).sum(2), (p.sum(2) * x).sum(2)), -1)
        blur = F.interpolate(F.avg_pool2d(picture, 2), scale_factor=2, mode="bilinear", align_corners=True)
        edge = (picture - blur).abs().amax((2, 3))
        return torch.cat((at, self.depth(maps.amax((2, 3)).unsqueeze(2).mul(edge.unsqueeze(1)).flatten(1)).unsqueeze(2)), 2)


class Interest(nn.Module):
    """A ranker of items: target attention over a history of padded items, cross features (DCN), a factorisation machine, Dice activations."""

    def __init__(self):
        super().__init__()
        self.item, self.user = nn.Embedding(30, 8, padding_idx=0), nn.EmbeddingBag(12, 8, mode="mean")
        self.score = nn.Sequential(nn.Linear(32, 12), nn.Sigmoid(), nn.Linear(12, 1))
        self.w, self.bias = nn.Parameter(torch.randn(2, 27, 27) / 6), nn.Parameter(torch.zeros(2, 27))
        self.norm, self.alpha, self.head = nn.BatchNorm1d(27, affine=False, eps=1e-8), nn.Parameter(torch.full((27,), 0.25)), nn.Linear(28, 1)

    def forward(self, history, target, groups, numbers):
        h, t = self.item(history), self.item(target).unsqueeze(1)
        t2 = t.expand_as(h)
        score = self.score(torch.cat((h, t2, h - t2, h * t2), -1)).masked_fill((history == 0).unsqueeze(-1), 0)
        x = torch.cat(((score * h).sum(1), t.squeeze(1), self.user(groups), torch.log1p(numbers.abs()) * numbers.sign()), 1)
        x0 = x
        for w, b in zip(self.w.unbind(0), self.bias.unbind(0)):
            x = x0 * (x @ w.T + b) + x
        p = torch.sigmoid(self.norm(x))
        x = p * x + (1 - p) * self.alpha * x
        v = torch.stack((x0[:, :8], x0[:, 8:16], x0[:, 16:24]), 1)
        fm = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1, keepdim=True)
        return self.head(torch.cat((x, fm), 1))


class Mixture(nn.Module):
    """A mixture density network: a dictionary of weights, means and deviations; the first output is the likelihood of a given point."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 20), nn.SiLU(), nn.RMSNorm(20), nn.Linear(20, 20), nn.Softsign())
        self.pi, self.mu, self.sigma = nn.Linear(20, 3), nn.Linear(20, 6), nn.Linear(20, 6)

    def forward(self, x, point):
        h = self.body(x)
        mu, sigma = self.mu(h).unflatten(1, (3, 2)), F.elu(self.sigma(h)).unflatten(1, (3, 2)) + 1 + 1e-4
        log = -((point[:, None] - mu) / sigma).square().div(2).sum(-1) - sigma.log().sum(-1)
        return {"likelihood": torch.logsumexp(log + F.log_softmax(self.pi(h), -1), -1, keepdim=True), "mean": mu, "deviation": sigma}


class Codes(nn.Module):
    """Networks of few bits: learned steps with straight-through rounding (LSQ), signs of weights, a residual quantizer of two tables with commitment."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 6, bias=False)
        self.step, self.scale = nn.Parameter(torch.tensor(0.05)), nn.Parameter(torch.ones(8, 1, 1))
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(9, 6)) for _ in range(2))

    def forward(self, picture):
        w = self.a.weight
        s = w + (w.sign() * w.abs().mean((1, 2, 3), keepdim=True) - w).detach()
        x = F.conv2d(picture, s, self.a.bias, padding=1) * self.scale
        r = (x / self.step).clamp(-8, 7)
        x = F.relu((r + (r.round() - r).detach()) * self.step).mean((2, 3))
        x = self.b(x)
        rest, total = x, torch.zeros_like(x)
        for table in self.tables:
            d = rest.square().sum(1, keepdim=True) - 2 * rest @ table.t() + table.square().sum(1)
            code = table[d.argmin(1)]
            total, rest = total + code, rest - code.detach()
        return torch.cat((x + (total - x).detach(), total), 1)


class Shifts(nn.Module):
    """Layers of moves: temporal shifts, rolled windows, strided views by unfold, flips, an axial mean, a gated unit over space."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(12, 24), nn.Linear(12, 12)
        self.space, self.norm = nn.Conv1d(8, 8, 1), nn.LayerNorm([8, 12], bias=False)
        self.slope, self.frame = nn.RReLU(0.2, 0.2), nn.Linear(12 * 4, 3)

    def forward(self, frames):
        left, right, rest = frames.split((3, 3, 6), 2)
        x = torch.cat((F.pad(left[:, 1:], (0, 0, 0, 1)), F.pad(right[:, :-1], (0, 0, 1, 0)), rest.roll((1, -2), (1, 2))), 2)
        u, v = self.inner(self.norm(x)).chunk(2, -1)
        x = x + self.outer(u * F.hardtanh(self.space(v), -0.7, 0.9))
        x = x + x.flip(1) * 0.5 + x.flip((1, 2)).cumsum(1) / 8
        return self.frame(F.softshrink(self.slope(x), 0.1).unfold(1, 4, 2).flatten(2))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        import diffusers
        self.net = diffusers.UVit2DModel(hidden_size=32, cond_embed_dim=16, micro_cond_encode_dim=4, micro_cond_embed_dim=20, encoder_hidden_size=12, vocab_size=31,
                                         codebook_size=30, in_channels=32, block_out_channels=32, num_res_blocks=1, num_hidden_layers=1, num_attention_heads=4,
                                         intermediate_size=64, sample_size=8)

    def forward(self, ids, text, pooled, sizes):
        return self.net(ids, text, pooled, sizes)


BODY = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
PAIR = dict(vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
            decoder_ffn_dim=64)


class Match(nn.Module):
    """CLIP's two towers and the cosine of each pair: its own outputs compare all pairs of a batch, whose order shuffling changes."""

    def __init__(self):
        super().__init__()
        import transformers
        self.net = transformers.CLIPModel(transformers.CLIPConfig(
            projection_dim=16, text_config=dict(vocab_size=99, max_position_embeddings=16, eos_token_id=98, **BODY),
            vision_config=dict(image_size=32, patch_size=8, **BODY)))

    def forward(self, words, pictures):
        found = self.net(input_ids=words, pixel_values=pictures)
        return (found.image_embeds * found.text_embeds).sum(-1, keepdim=True) * self.net.logit_scale.exp()


def depth():
    import transformers
    backbone = transformers.Dinov2Config(image_size=28, patch_size=7, out_indices=[1, 2], reshape_hidden_states=False, mlp_ratio=2, apply_layernorm=True,
                                         **{k: v for k, v in BODY.items() if k != "intermediate_size"})
    return hugged("DepthAnythingForDepthEstimation", "DepthAnythingConfig", images(28), ["pixel_values"], backbone_config=backbone, patch_size=7,
                  reassemble_hidden_size=32, reassemble_factors=[1, 0.5], neck_hidden_sizes=[16, 24], fusion_hidden_size=16, head_hidden_size=8)


GUEST = {
    "couplings": lambda: (Couplings(), (torch.randn(5, 6),)),
    "slots": lambda: (Slots(), images(12)),
    "matrix_lstm": lambda: (Matrix(), (torch.randn(2, 7, 16),)),
    "field": lambda: (Field(), (torch.tensor([[3, 7, 9, 1, 4], [2, 8, 5, 0, 0], [1, 1, 0, 0, 0]]),)),
    "keypoints": lambda: (Keypoints(), images(10)),
    "interest": lambda: (Interest(), (torch.tensor([[3, 7, 9, 0], [2, 8, 0, 0], [1, 1, 4, 5], [6, 0, 0, 0]]), torch.tensor([4, 5, 6, 7]),
                                      torch.randint(0, 12, (4, 3)), torch.randn(4, 3))),
    "mixture": lambda: (Mixture(), (torch.randn(5, 4), torch.randn(5, 2))),
    "codes": lambda: (Codes(), images(8)),
    "shifts": lambda: (Shifts(), (torch.randn(2, 8, 12),)),
    "caformer": lambda: timm_model("caformer_s18", 64),
    "maxxvit": lambda: timm_model("maxxvitv2_nano_rw_256", 64, img_size=64),
    "lcnet": lambda: timm_model("lcnet_050", 64),
    "inception_v4": lambda: timm_model("inception_v4", 192),
    "samvit": lambda: timm_model("samvit_base_patch16", 64, img_size=64, depth=2, embed_dim=48, num_heads=4, global_attn_indexes=(1,), window_size=2, neck_chans=16),
    "darknet": lambda: timm_model("darknet17", 64),
    "persimmon": lambda: text_model("PersimmonForCausalLM", "PersimmonConfig"),
    "qwen2_moe": lambda: text_model("Qwen2MoeForCausalLM", "Qwen2MoeConfig", num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                    shared_expert_intermediate_size=16),
    "helium": lambda: text_model("HeliumForCausalLM", "HeliumConfig", num_key_value_heads=2, head_dim=8, pad_token_id=0),
    "recurrent_gemma": lambda: text_model("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", num_key_value_heads=1, head_dim=8, lru_width=32,
                                          attention_window_size=8, block_types=["recurrent", "attention"]),
    "splinter": lambda: text_model("SplinterModel", "SplinterConfig"),
    "longt5": lambda: hugged("LongT5EncoderModel", "LongT5Config", tokens(99, 16), ["input_ids"], vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=1,
                             num_heads=4, local_radius=3),
    "cvt": lambda: hugged("CvtForImageClassification", "CvtConfig", images(32), ["pixel_values"], embed_dim=[16, 16, 32], num_heads=[1, 2, 2], depth=[1, 2, 3],
                          drop_path_rate=[0.0, 0.0, 0.0], num_labels=4),
    "clip": lambda: (Match(), (torch.tensor([[5, 9, 40, 7, 98], [8, 61, 98, 0, 0]]), torch.randn(2, 3, 32, 32))), "depth_anything": depth,
    "moonshine": lambda: hugged("MoonshineForConditionalGeneration", "MoonshineConfig", (torch.randn(2, 1600), torch.randint(0, 99, (2, 5))),
                                ["input_values", "decoder_input_ids"], {"use_cache": False}, vocab_size=99, hidden_size=32, intermediate_size=64,
                                encoder_num_hidden_layers=1, decoder_num_hidden_layers=1, encoder_num_attention_heads=4, decoder_num_attention_heads=4,
                                encoder_num_key_value_heads=4, decoder_num_key_value_heads=4, pad_token_id=0),
    "temporal_vae": lambda: diffuser("AutoencoderKLTemporalDecoder", (torch.randn(2, 3, 16, 16),), ["sample"], block_out_channels=(32, 32),
                                  down_block_types=("DownEncoderBlock2D",) * 2, latent_channels=4),
    "hunyuan": lambda: diffuser("HunyuanDiT2DModel", (torch.randn(3, 4, 8, 8), torch.tensor([3.0, 7.0, 9.0]), torch.randn(3, 5, 12), torch.ones(3, 5),
                                                      torch.randn(3, 6, 16), torch.ones(3, 6), torch.zeros(3, 6), torch.tensor([0, 0, 0]), torch.randn(2, 16, 8)),
                                ["hidden_states", "timestep", "encoder_hidden_states", "text_embedding_mask", "encoder_hidden_states_t5", "text_embedding_mask_t5",
                                 "image_meta_size", "style", "image_rotary_emb"], num_attention_heads=2, attention_head_dim=8, in_channels=4, patch_size=2,
                                sample_size=8, hidden_size=16, num_layers=2, mlp_ratio=2.0, cross_attention_dim=12, cross_attention_dim_t5=16,
                                pooled_projection_dim=8, text_len=5, text_len_t5=6),
    "uvit": lambda: (Tokens(), (torch.randint(0, 30, (2, 8, 8)), torch.randn(2, 5, 12), torch.randn(2, 16), torch.ones(2, 5))),
}
