"""Modules with uncommon layers, and further models of libraries, for onnx_users.py: the groups `more` and `late` of its command line. Models of `late`
were tried only when the importer was finished."""
import math

import torch
from onnx_exports import First, hugged, images, text_model, timm_model, tokens, torchvision_model
from torch import nn
from torch.nn import functional as F


def net(forward, *shapes, **layers):
    """A module of these layers and parameters whose forward is a function of the module and its inputs; inputs are drawn."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, nn.Parameter(layer) if type(layer) is torch.Tensor else layer)

    Net.forward = forward
    return Net(), tuple(s if isinstance(s, torch.Tensor) else torch.randn(*s) for s in shapes)


def einsums():
    def forward(self, x, y):
        a = torch.einsum("bhid,bhjd->bhij", x, y)
        b = torch.einsum("...ij,jk->...ik", a, self.w)
        d = torch.einsum("bhii->bhi", a)
        return torch.einsum("bhik,i,k->bhk", b, self.u, self.v) + d + torch.einsum("bhid->bh", x)[..., None]

    return net(forward, (2, 3, 4, 5), (2, 3, 4, 5), w=torch.randn(4, 4), u=torch.randn(4), v=torch.randn(4))


def gated():
    def forward(self, x):
        x = F.glu(self.a(F.pad(x, (2, 0))), 1)
        x = torch.tanh(self.b(F.pad(x, (4, 0)))) * torch.sigmoid(self.c(F.pad(x, (4, 0)))) + x
        return self.glu(self.d(x).transpose(1, 2)).amax(1)

    return net(forward, (2, 3, 20), a=nn.Conv1d(3, 16, 3), b=nn.Conv1d(8, 8, 3, dilation=2), c=nn.Conv1d(8, 8, 3, dilation=2),
               d=nn.Conv1d(8, 12, 1), glu=nn.GLU())


def gru_learned():
    def forward(self, x):
        y, h = self.gru(x, self.start.expand(-1, x.shape[0], -1).contiguous())
        z, _ = self.rnn(y)
        return self.head(torch.cat((z[:, -1], h.transpose(0, 1).flatten(1)), 1))

    return net(forward, (3, 7, 5), gru=nn.GRU(5, 6, 2, batch_first=True, bidirectional=True), rnn=nn.RNN(12, 4, batch_first=True),
               start=torch.randn(4, 1, 6), head=nn.Linear(28, 3))


def cells():
    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 6)
        g = x.new_zeros(x.shape[0], 4)
        for t in range(x.shape[1]):
            h, c = self.lstm(x[:, t], (h, c))
            g = self.gru(h, g)
        return self.head(g) + c.mean(1, keepdim=True)

    return net(forward, (3, 5, 4), lstm=nn.LSTMCell(4, 6), gru=nn.GRUCell(6, 4), head=nn.Linear(4, 2))


def transposed():
    def forward(self, x, s):
        s = F.elu(self.b(F.elu(self.a(s))))
        return self.d(F.elu(self.c(x))) + s.mean((1, 2))[:, None, None, None]

    return net(forward, (2, 4, 5, 5), (2, 4, 9), a=nn.ConvTranspose1d(4, 6, 5, 3, 2, output_padding=1, groups=2),
               b=nn.ConvTranspose1d(6, 2, 3, 2, dilation=2, bias=False), c=nn.ConvTranspose2d(4, 8, (3, 2), (2, 1), (1, 0), output_padding=(1, 0)),
               d=nn.ConvTranspose2d(8, 3, 4, 2, 1, groups=1))


def shuffles():
    def forward(self, x):
        x = self.down(self.a(x))
        x = self.b(self.mix(x))
        x = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        x = self.up(x)
        return F.interpolate(x, size=(9, 7), mode="bilinear", align_corners=True)

    return net(forward, (2, 3, 8, 8), a=nn.Conv2d(3, 4, 3, padding="same"), down=nn.PixelUnshuffle(2), mix=nn.ChannelShuffle(4),
               b=nn.Conv2d(16, 12, 2, padding="same", padding_mode="circular"), up=nn.PixelShuffle(2))


def masked_attention():
    def forward(self, x, keep):
        n = self.norm(x.transpose(1, 2)).transpose(1, 2)
        y, weights = self.mha(n, n, n, key_padding_mask=keep < 0.5, attn_mask=self.mask, need_weights=True)
        return x + y, weights

    keep = torch.ones(2, 6)
    keep[1, 4:] = 0
    m, args = net(forward, (2, 6, 16), keep, norm=nn.GroupNorm(4, 16), mha=nn.MultiheadAttention(16, 4, batch_first=True))
    m.register_buffer("mask", torch.ones(6, 6).triu(1).bool())
    return m, args


def encoder():
    def forward(self, x, seen):
        return self.head(self.net(x, mask=self.mask, src_key_padding_mask=seen == 0, is_causal=True))

    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, activation="gelu", batch_first=True, norm_first=True)
    seen = torch.ones(2, 5)
    seen[0, 3:] = 0
    m, args = net(forward, (2, 5, 16), seen, net=nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False), head=nn.Linear(16, 3))
    m.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(5), persistent=False)
    return m, args


def full_transformer():
    def forward(self, x, y):
        return self.head(self.net(x, y, tgt_mask=nn.Transformer.generate_square_subsequent_mask(y.shape[1])))

    return net(forward, (2, 6, 16), (2, 4, 16), net=nn.Transformer(16, 2, 1, 2, 32, 0.0, batch_first=True), head=nn.Linear(16, 5))


def positions():
    def forward(self, x):
        x = self.patch(x)
        p = F.interpolate(self.place, size=x.shape[-2:], mode="bicubic", align_corners=False)
        return self.head((x + p).flatten(2).transpose(1, 2))

    return net(forward, (2, 3, 24, 16), patch=nn.Conv2d(3, 8, 4, 4), place=torch.randn(1, 8, 5, 5), head=nn.Linear(8, 4))


def activations():
    kinds = [nn.CELU(0.7), nn.SELU(), nn.Mish(), nn.Hardtanh(-0.5, 0.8), nn.Softshrink(0.2), nn.Hardshrink(0.3), nn.Tanhshrink(), nn.LogSigmoid(),
             nn.Threshold(0, 0), nn.Softmin(1), nn.GELU("tanh"), nn.Softsign(), nn.Softplus(2, 5), nn.ReLU6(), nn.PReLU(6),
             nn.Hardsigmoid(), nn.SiLU()]

    def forward(self, x):
        return torch.stack([act(layer(x)) for act, layer in zip(self.acts, self.layers)]).sum(0)

    m, args = net(forward, (4, 5), acts=nn.ModuleList(kinds), layers=nn.ModuleList(nn.Linear(5, 6) for _ in kinds))
    return m, args


def padded_embedding():
    def forward(self, ids, more):
        x = self.embed(ids)
        y = self.other(more)
        return self.head(x.sum(1) + y.mean(1))

    ids = torch.randint(1, 20, (3, 6))
    ids[:, 4:] = 0
    more = torch.randint(0, 9, (3, 4))
    more[1] = 3
    return net(forward, ids, more, embed=nn.Embedding(20, 8, padding_idx=0), other=nn.Embedding(9, 8, padding_idx=3), head=nn.Linear(8, 4))


def bags():
    return net(lambda self, ids: self.head(self.bag(ids)), torch.randint(0, 20, (3, 6)), bag=nn.EmbeddingBag(20, 8, mode="mean"), head=nn.Linear(8, 4))


def norms():
    def forward(self, x):
        x = self.a(self.conv(x))
        x = self.b(x) + self.c(x) + self.d(x)
        x = self.e(x.permute(0, 2, 3, 1)) + self.f(x.permute(0, 2, 3, 1)) + self.g(x.permute(0, 2, 3, 1))
        return self.h(F.normalize(x.permute(0, 3, 1, 2), dim=1))

    return net(forward, (4, 3, 6, 6), conv=nn.Conv2d(3, 8, 3), a=nn.BatchNorm2d(8, affine=False, momentum=0.3), b=nn.LocalResponseNorm(3),
               c=nn.InstanceNorm2d(8), d=nn.GroupNorm(2, 8, affine=False), e=nn.LayerNorm(8, elementwise_affine=False), f=nn.LayerNorm(8, bias=False),
               g=nn.RMSNorm(8), h=nn.BatchNorm2d(8, eps=1e-3))


def batch_stats():
    """BatchNorm that has no running statistics: the batch's, in evaluation too."""
    return net(lambda self, x: self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3))), (4, 3, 6, 6), conv=nn.Conv2d(3, 8, 3),
               norm=nn.BatchNorm2d(8, track_running_stats=False), head=nn.Linear(8, 3))


def paddings():
    def forward(self, x):
        return self.d(self.c(self.b(self.a(x)))) + F.pad(x.mean(1, keepdim=True), (-1, 1, 2, -2))

    conv = lambda i, o, mode: nn.Conv2d(i, o, 3, padding=1, padding_mode=mode)
    return net(forward, (2, 3, 7, 6), a=conv(3, 4, "reflect"), b=conv(4, 4, "replicate"), c=conv(4, 4, "circular"), d=conv(4, 3, "zeros"))


def distances():
    def forward(self, x):
        d = torch.cdist(x, self.centres)
        near = torch.exp(-d.square() * F.softplus(self.scale))
        return torch.cat((near, torch.logsumexp(-d, 1, keepdim=True), x.var(1, keepdim=True), x.std(1, correction=0, keepdim=True),
                          x.norm(dim=1, keepdim=True), F.pairwise_distance(x, x.flip(1))[:, None]), 1) @ self.w

    return net(forward, (5, 4), centres=torch.randn(6, 4), scale=torch.zeros(6), w=torch.randn(11, 3) / 3)


def sorting():
    def forward(self, x):
        x = self.a(x)
        values, order = torch.sort(x, 1, descending=True)
        picked = torch.gather(x, 1, torch.argsort(x, 1)[:, ::2])
        x = torch.cat((values[:, :3], picked, x.cummax(1).values[:, -2:] if hasattr(torch, "never") else x.amax(1, keepdim=True)), 1)
        return self.b(x) * order[:, :1].float().add(1).log()

    return net(forward, (4, 5), a=nn.Linear(5, 6), b=nn.Linear(7, 3))


def long_convolution():
    def forward(self, x):
        n = x.shape[1]
        k = torch.exp(-self.decay[None] * torch.arange(n)[:, None]) * self.gain
        y = torch.fft.irfft(torch.fft.rfft(x, 2 * n, dim=1) * torch.fft.rfft(k, 2 * n, dim=0), 2 * n, dim=1)[:, :n]
        return self.head(F.gelu(y + x * self.skip))

    return net(forward, (2, 12, 6), decay=torch.rand(6), gain=torch.randn(6), skip=torch.randn(6), head=nn.Linear(6, 4))


def indexing():
    def forward(self, x):
        y = self.a(x)
        y = torch.roll(y, (1, -2), (1, 2)) + torch.rot90(y, 1, (2, 3)).flip(1)
        r, c = torch.tril_indices(6, 6)
        tri = y[:, :, r, c]
        y = y.masked_fill(y > 1, 0.5)
        y = y.clone()
        y[:, 0] = y[:, 1] * 2
        y[:, :, ::2, 1] = 0
        return self.b(torch.cat((tri.mean(2), y[:, self.order].mean((2, 3)), y.index_select(2, self.order).amax((2, 3)), y[..., -1, 0]), 1))

    m, args = net(forward, (2, 3, 6, 6), a=nn.Conv2d(3, 4, 1), b=nn.Linear(15, 3))
    m.register_buffer("order", torch.tensor([2, 0, 3]))
    return m, args


def pools():
    def forward(self, x):
        y, index = F.max_pool2d(self.a(x), 2, return_indices=True)
        y = F.max_unpool2d(y, index, 2)
        z = F.avg_pool2d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False) + F.max_pool2d(y, 3, 2, 1, ceil_mode=True)
        return self.b(torch.cat((F.adaptive_max_pool2d(z, 1), F.lp_pool2d(z, 2, 5), F.adaptive_avg_pool2d(y, (1, 1))), 1).flatten(1))

    return net(forward, (2, 3, 10, 10), a=nn.Conv2d(3, 4, 1), b=nn.Linear(12, 3))


def folding():
    def forward(self, x):
        y = self.mix(F.unfold(x, 3, padding=1, stride=2).transpose(1, 2)).transpose(1, 2)
        return F.fold(y, (8, 8), 3, padding=1, stride=2)

    return net(forward, (2, 3, 8, 8), mix=nn.Linear(27, 27))


def spatial_transformer():
    def forward(self, x):
        theta = self.head(F.adaptive_avg_pool2d(torch.relu(self.conv(x)), 2).flatten(1)).view(-1, 2, 3) * 0.3 + self.one
        return self.out(F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), padding_mode="border", align_corners=False))

    m, args = net(forward, (2, 3, 8, 8), conv=nn.Conv2d(3, 4, 3), head=nn.Linear(16, 6), out=nn.Conv2d(3, 2, 1))
    m.register_buffer("one", torch.eye(2, 3))
    return m, args


def bilinear():
    def forward(self, a, b):
        return self.mix(a, b) * F.cosine_similarity(a @ self.w, b, dim=1)[:, None]

    return net(forward, (4, 5), (4, 6), mix=nn.Bilinear(5, 6, 3), w=torch.randn(5, 6))


def hypernetwork():
    def forward(self, x, z):
        n, c, h, w = x.shape
        kernel = self.make(z).view(n * 4, c, 3, 3)
        return F.conv2d(x.reshape(1, n * c, h, w), kernel, padding=1, groups=n).view(n, 4, h, w)

    return net(forward, (2, 3, 6, 6), (2, 5), make=nn.Linear(5, 4 * 27))


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    def forward(self, x):
        return self.b(checkpoint(lambda y: torch.relu(self.a(y)), x, use_reentrant=False))

    return net(forward, (3, 4), a=nn.Linear(4, 8), b=nn.Linear(8, 2))


def segments():
    def forward(self, x):
        n = x.shape[0]
        index = self.of.expand(n, -1)[..., None].expand(-1, -1, x.shape[2])
        zero = x.new_zeros(n, 3, x.shape[2])
        total = zero.scatter_add(1, index, x)
        most = (zero - 9).scatter_reduce(1, index, x, "amax", include_self=True)
        return self.head(torch.cat((total, most), 2))

    m, args = net(forward, (2, 7, 4), head=nn.Linear(8, 3))
    m.register_buffer("of", torch.tensor([0, 2, 1, 1, 0, 2, 2]))
    return m, args


def volumes():
    def forward(self, x):
        y = F.leaky_relu(self.n(self.a(x)))
        return self.b(F.interpolate(F.max_pool3d(y, 2), scale_factor=2, mode="trilinear", align_corners=False) + y)

    return net(forward, (2, 2, 4, 6, 6), a=nn.Conv3d(2, 6, 3, padding=1), n=nn.InstanceNorm3d(6, affine=True), b=nn.Conv3d(6, 3, 1))


def latents():
    def forward(self, x):
        q = self.queries.expand(x.shape[0], -1, -1)
        q = q + self.cross(self.nq(q), self.nx(x), x, need_weights=False)[0]
        return self.head(q + self.own(q, q, q, need_weights=False)[0]).mean(1)

    mha = lambda **keys: nn.MultiheadAttention(16, 4, batch_first=True, **keys)
    return net(forward, (2, 9, 12), queries=torch.randn(1, 5, 16), cross=mha(kdim=12, vdim=12), own=mha(bias=False, add_zero_attn=True), nq=nn.LayerNorm(16),
               nx=nn.LayerNorm(12), head=nn.Linear(16, 3))


def alibi():
    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        n = x.shape[1]
        far = torch.arange(n)[None] - torch.arange(n)[:, None]
        bias = far * self.slope[:, None, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(far > 0, -math.inf), scale=0.4)
        return self.out(y.transpose(1, 2).flatten(2))

    m, args = net(forward, (2, 7, 16), qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))
    m.register_buffer("slope", 2.0 ** -torch.arange(1, 5))
    return m, args


def flow():
    """A loss inside the module: a coupling layer's likelihood, one number."""
    def forward(self, x):
        a, b = x.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s)
        z = torch.cat((a, b * s.exp() + t), 1)
        return 0.5 * z.square().sum(1) - s.sum(1)

    return net(forward, (6, 4), net=nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4)))


def graph_attention():
    def forward(self, x, adjacency):
        h = self.w(x)
        e = F.leaky_relu(self.a(h) + self.b(h).transpose(1, 2), 0.2)
        p = torch.softmax(torch.where(adjacency > 0, e, torch.full_like(e, -9e15)), -1)
        return F.elu(p @ h)

    adjacency = (torch.rand(2, 5, 5) > 0.5).float() + torch.eye(5)
    return net(forward, (2, 5, 4), adjacency, w=nn.Linear(4, 6, bias=False), a=nn.Linear(6, 1), b=nn.Linear(6, 1))


def nested():
    """A dictionary of tensors out, a keyword with a default."""
    def forward(self, image, scale=2.0):
        x = self.a(image)
        return {"small": x.mean((2, 3)) * scale, "maps": {"low": x, "high": self.b(x)}}

    return net(forward, (2, 3, 6, 6), a=nn.Conv2d(3, 4, 3), b=nn.Conv2d(4, 2, 1))


def weight_norms():
    from torch.nn.utils import parametrizations as P
    return net(lambda self, x: self.b(torch.relu(self.a(x))).mean(2), (2, 3, 9), a=P.weight_norm(nn.Conv1d(3, 6, 3), dim=0),
               b=P.weight_norm(nn.Conv1d(6, 4, 3), dim=None))


def old_weight_norm():
    return net(lambda self, x: self.b(torch.relu(self.a(x))), (2, 3), a=nn.utils.weight_norm(nn.Linear(3, 6)), b=nn.utils.weight_norm(nn.Linear(6, 4), dim=1))


def spectral():
    return net(lambda self, x: self.b(torch.relu(self.a(x))), (2, 3), a=nn.utils.parametrizations.spectral_norm(nn.Linear(3, 6)), b=nn.Linear(6, 4))


def tied_convolution():
    """A decoder with the encoder's kernels, transposed, and a weight that is shared by two layers."""
    def forward(self, x):
        y = torch.relu(F.conv2d(x, self.w, stride=2, padding=1))
        y = y + self.mix(self.mix(y))
        return F.conv_transpose2d(y, self.w, stride=2, padding=1, output_padding=1)

    return net(forward, (2, 3, 8, 8), w=torch.randn(6, 3, 3, 3) / 3, mix=nn.Conv2d(6, 6, 1))


def partly_frozen():
    m, args = net(lambda self, x: self.c(torch.relu(self.n(self.b(self.a(x))))), (4, 5), a=nn.Linear(5, 6), b=nn.Linear(6, 6), n=nn.BatchNorm1d(6), c=nn.Linear(6, 2))
    for p in [*m.a.parameters(), m.b.bias]:
        p.requires_grad_(False)
    return m, args


def diffuser(cls, inputs, names, **keys):
    import diffusers
    return First(getattr(diffusers, cls)(**keys), names, {"return_dict": False}), inputs


def flux():
    return diffuser("FluxTransformer2DModel", (torch.randn(2, 16, 4), torch.randn(2, 5, 12), torch.randn(2, 8), torch.tensor([0.3, 0.7]),
                                               torch.randn(16, 3), torch.zeros(5, 3)),
                    ["hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "img_ids", "txt_ids"], patch_size=1, in_channels=4, num_layers=1,
                    num_single_layers=1, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=12, pooled_projection_dim=8, axes_dims_rope=(4, 4, 8))


def controlnet():
    return diffuser("ControlNetModel", (torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 12), torch.randn(2, 3, 64, 64)),
                    ["sample", "timestep", "encoder_hidden_states", "controlnet_cond"], block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=12,
                    attention_head_dim=8, norm_num_groups=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                    conditioning_embedding_out_channels=(4, 8, 8, 8))


def unet3d():
    return diffuser("UNet3DConditionModel", (torch.randn(2, 4, 3, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 12)), ["sample", "timestep", "encoder_hidden_states"],
                    sample_size=8, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=12, attention_head_dim=8, norm_num_groups=8,
                    down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"), up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"))


MORE = {
    "einsums": einsums, "gated": gated, "gru_learned": gru_learned, "cells": cells, "transposed": transposed, "shuffles": shuffles,
    "masked_attention": masked_attention, "encoder": encoder, "full_transformer": full_transformer, "positions": positions, "activations": activations,
    "padded_embedding": padded_embedding, "bags": bags, "norms": norms, "batch_stats": batch_stats, "paddings": paddings, "distances": distances,
    "sorting": sorting, "long_convolution": long_convolution, "indexing": indexing, "pools": pools, "folding": folding,
    "spatial_transformer": spatial_transformer, "bilinear": bilinear, "hypernetwork": hypernetwork, "checkpointed": checkpointed, "segments": segments,
    "volumes": volumes, "latents": latents, "alibi": alibi, "coupling": flow, "graph_attention": graph_attention, "nested": nested,
    "weight_norms": weight_norms, "old_weight_norm": old_weight_norm, "spectral": spectral, "tied_convolution": tied_convolution,
    "partly_frozen": partly_frozen,
    "alexnet": lambda: torchvision_model("alexnet", 64), "mnasnet": lambda: torchvision_model("mnasnet0_5", 64),
    "regnet_x": lambda: torchvision_model("regnet_x_400mf", 64),
    "starnet": lambda: timm_model("starnet_s1", 64), "convit": lambda: timm_model("convit_tiny", 64, img_size=64, depth=2, local_up_to_layer=1),
    "pit": lambda: timm_model("pit_ti_224", 64, img_size=64), "vit_relpos": lambda: timm_model("vit_relpos_small_patch16_224", 32, img_size=32, depth=2),
    "bit": lambda: timm_model("resnetv2_50d_gn", 64), "gcvit": lambda: timm_model("gcvit_xxtiny", 224),
    "roformer": lambda: text_model("RoFormerForMaskedLM", "RoFormerConfig", embedding_size=32),
    "phi3": lambda: text_model("Phi3ForCausalLM", "Phi3Config", num_key_value_heads=2, pad_token_id=0),
    "granite": lambda: text_model("GraniteForCausalLM", "GraniteConfig", num_key_value_heads=2),
    "mamba2": lambda: text_model("Mamba2ForCausalLM", "Mamba2Config", state_size=8, head_dim=16, num_heads=4, n_groups=1, expand=2, conv_kernel=3, chunk_size=8),
    "videomae": lambda: hugged("VideoMAEForVideoClassification", "VideoMAEConfig", (torch.randn(2, 4, 3, 16, 16),), ["pixel_values"], hidden_size=32,
                               num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=8, num_frames=4, num_labels=4),
    "glpn": lambda: hugged("GLPNForDepthEstimation", "GLPNConfig", images(64), ["pixel_values"], depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32],
                           num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16),
    "flux": flux, "controlnet": controlnet, "unet3d": unet3d,
}


class Kan(nn.Module):
    """Layers of learnt splines."""

    def __init__(self):
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2.2, 2.2, 12))
        self.coefficients, self.base = nn.Parameter(torch.randn(5, 4, 8) / 5), nn.Linear(4, 5)

    def forward(self, x):
        k, y = self.knots, x[..., None]
        b = ((y >= k[:-1]) & (y < k[1:])).to(x.dtype)
        for p in range(1, 4):
            b = (y - k[: -p - 1]) / (k[p:-1] - k[: -p - 1]) * b[..., :-1] + (k[p + 1:] - y) / (k[p + 1:] - k[1:-p]) * b[..., 1:]
        return self.base(F.silu(x)) + torch.einsum("nik,oik->no", b, self.coefficients)


class Capsules(nn.Module):
    """Routing by agreement, three rounds."""

    def __init__(self):
        super().__init__()
        self.conv, self.w = nn.Conv2d(1, 8, 5, 2), nn.Parameter(torch.randn(3, 18, 6, 4) / 3)

    @staticmethod
    def squash(x):
        n = x.square().sum(-1, keepdim=True)
        return n / (1 + n) * x / (n + 1e-8).sqrt()

    def forward(self, image):
        u = self.squash(self.conv(image).reshape(image.shape[0], 18, 4))
        u = (self.w[None] @ u[:, None, :, :, None]).squeeze(-1)
        route = u.new_zeros(u.shape[:3])
        for _ in range(3):
            v = self.squash((torch.softmax(route, 1)[..., None] * u).sum(2))
            route = route + (u * v[:, :, None]).sum(-1)
        return v.norm(dim=-1)


LATE = {
    "kan": lambda: (Kan(), (torch.randn(6, 4),)), "capsules": lambda: (Capsules(), (torch.randn(2, 1, 10, 10),)),
    "sequencer": lambda: timm_model("sequencer2d_s", 64, img_size=64, layers=(1, 1, 1, 1)), "repvit": lambda: timm_model("repvit_m1", 64),
    "skresnet": lambda: timm_model("skresnet18", 64), "efficientvit_m": lambda: timm_model("efficientvit_m0", 224),
    "mixtral": lambda: text_model("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2),
    "starcoder2": lambda: text_model("Starcoder2ForCausalLM", "Starcoder2Config", num_key_value_heads=2),
    "patchtst": lambda: hugged("PatchTSTForPrediction", "PatchTSTConfig", (torch.randn(2, 32, 3),), ["past_values"], num_input_channels=3, context_length=32,
                               patch_length=8, patch_stride=8, d_model=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32, prediction_length=6),
    "wan": lambda: diffuser("WanTransformer3DModel", (torch.randn(2, 4, 2, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 12)),
                            ["hidden_states", "timestep", "encoder_hidden_states"], num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4,
                            text_dim=12, freq_dim=16, ffn_dim=32, num_layers=2),
    "autoencoder_dc": lambda: diffuser("AutoencoderDC", images(32), ["sample"], in_channels=3, latent_channels=4, attention_head_dim=8,
                                       encoder_block_types=("ResBlock", "EfficientViTBlock"), decoder_block_types=("ResBlock", "EfficientViTBlock"),
                                       encoder_block_out_channels=(8, 16), decoder_block_out_channels=(8, 16), encoder_layers_per_block=(1, 1),
                                       decoder_layers_per_block=(1, 1), encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)),
                                       downsample_block_type="Conv", upsample_block_type="interpolate"),
    "swin3d": lambda: (lambda tv: (tv.models.video.swin3d_t(weights=None, num_classes=5), (torch.randn(2, 3, 4, 32, 32),)))(__import__("torchvision")),
}
