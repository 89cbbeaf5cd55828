"""Networks as users write them, and further families of the libraries: the group `drawn` of onnx_users.py. Each was drawn once, without a look at what
the importer has."""
import torch
from onnx_exports import First, hugged, images, text_model, timm_model, tokens
from onnx_more import diffuser
from torch import nn
from torch.nn import functional as F


class Siren(nn.Module):
    """Coordinates through sines, a Fourier basis in a buffer, a number as a parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("basis", torch.randn(2, 8))
        self.scale, self.phase = nn.Parameter(torch.tensor(3.0)), nn.Parameter(torch.zeros(24))
        self.a, self.b, self.c = nn.Linear(16, 24), nn.Linear(24, 24), nn.Linear(24, 3)

    def forward(self, xy):
        p = 2 * torch.pi * xy @ self.basis
        h = torch.sin(self.scale * self.a(torch.cat([p.sin(), p.cos()], dim=-1)) + self.phase)
        h = h + torch.sinc(self.b(h)) * torch.atan(h)
        return torch.sigmoid(self.c(h)) * 255.0 / 127.5 - 1


class Masked(nn.Module):
    """PixelCNN: kernels times a mask in every forward pass, gated activations, a 1-D position table."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(16, 3, 5, 5) / 8)
        self.second, self.out = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(8, 6, 1)
        mask = torch.ones(5, 5)
        mask[2, 2:] = 0
        mask[3:] = 0
        self.register_buffer("mask", mask, persistent=False)
        self.row = nn.Parameter(torch.randn(1, 1, 12, 1))

    def forward(self, image):
        x = F.glu(F.conv2d(image + self.row, self.kernel * self.mask, padding=2), dim=1)
        second = torch.tril(torch.ones(3, 3), diagonal=0) * self.second.weight
        a, b = F.conv2d(x, second, self.second.bias, padding="same").tensor_split(2, dim=1)
        return self.out(x + torch.tanh(a) * torch.sigmoid(b))


class States(nn.Module):
    """Recurrent layers whose first states are inputs and parameters; the states are outputs, too."""

    def __init__(self):
        super().__init__()
        self.embed, self.low = nn.Embedding(30, 10), nn.LSTM(10, 12, 2, batch_first=True)
        self.h0, self.up = nn.Parameter(torch.zeros(1, 1, 14)), nn.GRU(12, 14, batch_first=True)
        self.head = nn.Linear(14, 30)

    def forward(self, ids, h, c):
        y, (h1, c1) = self.low(self.embed(ids), (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
        z, last = self.up(y, self.h0.expand(-1, ids.shape[0], -1).contiguous())
        return self.head(z), h1.transpose(0, 1), c1.transpose(0, 1), last[0]


class Volume(nn.Module):
    """A U-Net in 3-D: instance norms, transposed convolutions, trilinear upsampling, a side output."""

    def __init__(self):
        super().__init__()
        part = lambda i, o: nn.Sequential(nn.Conv3d(i, o, 3, padding=1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, True))
        self.a, self.b, self.c = part(1, 6), part(6, 8), part(8, 12)
        self.down, self.up = nn.Conv3d(6, 6, 2, 2), nn.ConvTranspose3d(12, 8, 2, 2)
        self.d, self.head, self.side = part(16, 6), nn.Conv3d(12, 3, 1), nn.Conv3d(12, 3, 1)

    def forward(self, scan):
        a = self.a(scan)
        b = self.b(self.down(a))
        c = self.c(F.max_pool3d(b, (1, 2, 2)))
        side = F.interpolate(self.side(c), size=scan.shape[2:], mode="trilinear", align_corners=False)
        up = self.up(c)[:, :, : b.shape[2]]
        d = self.d(torch.cat([up[:, :, ::1], b], 1))
        d = F.interpolate(d, scale_factor=2, mode="nearest")
        return {"logits": self.head(torch.cat((d, a), dim=1)), "side": side}


class Wave(nn.Module):
    """1-D: strided and transposed convolutions with output padding, snake activations, average pools, a reflected border, weight norm."""

    def __init__(self):
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 8, 7, padding=3, padding_mode="reflect"))
        self.down, self.up = nn.Conv1d(8, 16, 4, 2, 1, groups=4), nn.ConvTranspose1d(16, 8, 5, stride=2, padding=2, output_padding=1, bias=False)
        self.alpha, self.last, self.norm = nn.Parameter(torch.ones(1, 16, 1)), nn.Conv1d(8, 1, 3, dilation=2, padding=2), nn.BatchNorm1d(8)

    def forward(self, wave):
        x = self.down(self.first(wave[:, None]))
        x = x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).pow(2)
        x = self.norm(self.up(x))
        skip = F.avg_pool1d(F.pad(wave[:, None], (2, 2), "replicate"), 5, 1)
        return torch.tanh(self.last(F.elu(x)) + skip).squeeze(1)


class Upscale(nn.Module):
    """Super-resolution: pixel shuffles both ways, PReLU, channel attention, a bicubic skip, clamps."""

    def __init__(self):
        super().__init__()
        self.a, self.act, self.b = nn.Conv2d(12, 16, 3, padding=1), nn.PReLU(16), nn.Conv2d(16, 48, 3, padding=1)
        self.squeeze, self.excite = nn.Linear(16, 4), nn.Linear(4, 16)

    def forward(self, image):
        x = self.act(self.a(F.pixel_unshuffle(image, 2)))
        w = torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean(dim=[-1, -2])))))
        x = x * w.view(*w.shape, 1, 1)
        x = F.pixel_shuffle(self.b(x), 4)
        return torch.clamp(x + F.interpolate(image, scale_factor=2, mode="bicubic", align_corners=False), -1.5, 1.5)


class Acts(nn.Module):
    """Activations that few networks have, each on its slice."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 32), nn.Linear(32, 4)
        self.acts = nn.ModuleList([nn.Hardshrink(), nn.Softshrink(0.3), nn.Tanhshrink(), nn.LogSigmoid(), nn.CELU(0.7), nn.SELU(), nn.Threshold(0.1, 0.2),
                                   nn.Softsign(), nn.Softmin(-1), nn.Hardtanh(-0.5, 0.7), nn.ReLU6(), nn.GELU(approximate="tanh"), nn.Hardsigmoid(),
                                   nn.Softplus(2, 1.5), nn.ELU(0.5), nn.Mish()])

    def forward(self, x):
        return self.b(torch.cat([act(part) for act, part in zip(self.acts, self.a(x).chunk(16, -1))], -1))


class Sums(nn.Module):
    """scatter_reduce, softmax over groups, index_select, one_hot, bucketize, counting: a graph with types of edges."""

    def __init__(self):
        super().__init__()
        self.edge, self.out, self.kind = nn.Linear(9, 6), nn.Linear(18, 5), nn.Embedding(4, 3)
        self.register_buffer("bounds", torch.tensor([-0.5, 0.0, 0.7]))
        self.register_buffer("near", torch.tensor([1, 0, 3, 2, 2, 5, 4]))

    def forward(self, nodes, sink):
        b, e = sink.shape
        kinds = self.kind(torch.bucketize(nodes[:, :e, 0].detach(), self.bounds))
        message = torch.tanh(self.edge(torch.cat((nodes[:, :e], kinds), -1)))
        at = sink[..., None].expand(-1, -1, 6)
        blank = nodes.new_zeros(b, 7, 6)
        most = blank.scatter_reduce(1, at, message, "amax", include_self=True)
        weight = torch.exp(message - most.gather(1, at))
        total = blank.scatter_add(1, at, weight).gather(1, at) + 1e-6
        mean = blank.scatter_add(1, at, weight / total * message)
        degree = F.one_hot(sink, 7).sum(1).to(nodes.dtype)[..., None]
        return self.out(torch.cat((mean.index_select(1, self.near), most, nodes * degree / e), -1))


class Slices(nn.Module):
    """Sizes computed from shapes, steps, negative bounds, ellipses, writes into slices, narrow, unbind, uneven splits, roll, rot90."""

    def __init__(self):
        super().__init__()
        self.w, self.head = nn.Parameter(torch.randn(10, 10) / 3), nn.Linear(10, 4)

    def forward(self, x):
        b, n, d = x.shape
        half = n // 2
        first, rest = x[:, :half], x[:, half:]
        even, odd = x[..., 0::2], x[..., 1::2]
        y = torch.stack((-odd, even), -1).flatten(-2)
        z = y.clone()
        z[:, 1:-1, -3:] += first.new_ones(1, n - 2, 1) * self.w[:3, 0]
        z[:, -1] = rest.mean(1)
        one, two, three = torch.split(z, [3, d - 5, 2], dim=-1)
        rows = torch.roll(torch.cat((three, one, two), -1), shifts=(1, -2), dims=(1, 2))
        rows = rows.narrow(1, 1, n - 2) @ self.w.triu(-1) @ self.w.rot90(1)
        a, *others = rows.unbind(1)
        return self.head(a + sum(others) + z[:, [0, 2, -1]].amax(1) + x[:, -2:, :].flip(1)[:, 0] + torch.diagonal(self.w)[None])


class Arithmetic(nn.Module):
    """Elementwise functions that few networks have."""

    def __init__(self):
        super().__init__()
        self.a, self.out, self.low = nn.Linear(5, 24), nn.Linear(26, 3), nn.Parameter(torch.tensor([0.3]))

    def forward(self, x):
        p = self.a(x).chunk(12, -1)
        q = [t.abs() + 0.5 for t in p]
        parts = [torch.logaddexp(p[0], p[1]), torch.hypot(p[2], q[3]), torch.atan2(p[4], q[5]), torch.lerp(p[6], p[7], 0.3), torch.addcmul(p[8], p[9], p[10], value=0.5),
                 torch.addcdiv(p[0], p[1], q[2]), torch.maximum(p[3], self.low), torch.clamp(p[4], min=self.low), torch.remainder(p[5], 0.7), torch.xlogy(q[6], q[7]),
                 torch.expm1(p[8]), torch.log1p(q[9]), torch.log2(q[10])]
        y = torch.cat(parts, -1)
        y = torch.nan_to_num(torch.where(y > 3, torch.full_like(y, float("nan")), y), nan=0.25)
        y = y / torch.linalg.norm(y, dim=-1, keepdim=True) + torch.frac(y) * 0.1 + torch.rsqrt(y.square() + 1) + torch.fmod(y, 1.3) - y.trunc() / 8
        var, mean = torch.var_mean(y, -1, keepdim=True)
        return self.out((y - mean) / (var + 1e-5).sqrt() * y.cos().prod(-1, keepdim=True).sign())


class Decode(nn.Module):
    """A decoder layer of torch beside an encoder, masks from lengths, tied output weights scaled in forward."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(25, 16, padding_idx=0)
        self.encode = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
        self.decode = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 24, 0.0, "gelu", batch_first=True, norm_first=True), 2, nn.LayerNorm(16))
        self.register_buffer("position", torch.randn(1, 12, 16))

    def forward(self, source, target):
        pad = source == 0
        memory = self.encode(self.embed(source) * 4 + self.position[:, : source.size(1)], src_key_padding_mask=pad)
        n = target.shape[1]
        future = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
        y = self.decode(self.embed(target) * 4 + self.position[:, :n], memory, tgt_mask=future, memory_key_padding_mask=torch.zeros(pad.shape).masked_fill(pad, -1e9))
        return F.linear(y, self.embed.weight) * 16 ** -0.5


class Matrices(nn.Module):
    """baddbmm, addmm, outer, kron, cross, diag_embed, matrix powers, a product of many dimensions, broadcasting products."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Parameter(torch.randn(4, 3) / 2), nn.Parameter(torch.randn(3, 3) / 2), nn.Linear(9, 4)

    def forward(self, x):
        y = torch.baddbmm(self.b.expand(x.shape[0], -1, -1), x.transpose(1, 2), x, beta=0.5, alpha=0.25)
        k = torch.kron(self.b, self.a)
        z = torch.addmm(torch.outer(self.a[:, 0], self.b[0]), self.a, self.b)
        w = torch.linalg.cross(x, z.expand_as(x), dim=-1) + torch.diag_embed(x.mean(1)).sum(-2, keepdim=True)
        m = torch.linalg.multi_dot((z.T, self.a, self.b)) @ y @ torch.linalg.matrix_power(self.b, 2)
        t = torch.einsum("...ij,...kj->...ik", w, m) * torch.trace(self.b)
        return self.c(m.flatten(1)) + t.mean(-1) + k.mean() + torch.matmul(x, self.b[:, 0]) + torch.tensordot(x, self.a, 2)[:, None]


class Cells(nn.Module):
    """An LSTM cell in a loop with attention over an encoded sequence."""

    def __init__(self):
        super().__init__()
        self.enc, self.cell, self.score = nn.Linear(6, 10), nn.LSTMCell(16, 10), nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 1))
        self.out = nn.Linear(10, 6)

    def forward(self, x):
        memory = self.enc(x)
        h, c, y, rows = memory.mean(1), torch.zeros(x.size(0), 10), x[:, 0], []
        for _ in range(4):
            s = self.score(torch.cat((memory, h.unsqueeze(1).expand_as(memory)), -1)).squeeze(-1)
            ctx = torch.bmm(F.softmax(s, 1).unsqueeze(1), memory).squeeze(1)
            h, c = self.cell(torch.cat((y, ctx), 1), (h, c))
            y = self.out(h)
            rows.append(y)
        return torch.stack(rows, dim=1)


class Mixed(nn.Module):
    """Weights in f16 and bf16 beside f32, buffers of whole numbers and truth values, inputs of whole numbers."""

    def __init__(self):
        super().__init__()
        self.table, self.narrow, self.brain = nn.Embedding(12, 8), nn.Linear(8, 8).half(), nn.Linear(8, 8).bfloat16()
        self.head = nn.Linear(8, 5)
        self.register_buffer("seen", torch.tensor([True, True, False, True, True, True]))
        self.register_buffer("order", torch.tensor([2, 0, 1, 5, 4, 3], dtype=torch.int32))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, ids, weight):
        x = self.table(ids)[:, self.order.long()] * weight.float().unsqueeze(-1)
        x = x + self.narrow(x.half()).float().tanh()
        x = x + F.relu(self.brain(x.bfloat16())).float()
        return self.head((x * self.seen[None, :, None]).sum(1) / self.seen.sum())


class Pools(nn.Module):
    """LP pools, max pools with their indices and back, local response norms, adaptive pools of odd sizes, circular and constant borders, nearest-exact."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"), nn.Conv2d(8, 8, 3, 2, groups=8), nn.Conv2d(8, 4, 1)
        self.shuffle, self.lrn = nn.ChannelShuffle(2), nn.LocalResponseNorm(3, 0.1)

    def forward(self, image):
        x = self.shuffle(self.lrn(self.a(image)))
        y, at = F.max_pool2d(x, 2, return_indices=True)
        x = x + F.max_unpool2d(y * 0.5, at, 2)
        x = F.lp_pool2d(self.b(F.pad(x, (1, 2, 0, 1), value=0.1)).abs() + 0.1, 2, 2)
        x = F.interpolate(x, size=(7, 5), mode="nearest-exact")
        return F.adaptive_avg_pool2d(self.c(x), (3, 2)).flatten(1)


def controlnet():
    return diffuser("ControlNetModel", (torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 12), torch.randn(2, 3, 64, 64)),
                    ["sample", "timestep", "encoder_hidden_states", "controlnet_cond"], block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=12,
                    attention_head_dim=8, norm_num_groups=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                    conditioning_embedding_out_channels=(4, 8, 8, 16))


def deformable_detr():
    import transformers
    backbone = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], layer_type="basic", out_indices=[2, 3, 4])
    return hugged("DeformableDetrForObjectDetection", "DeformableDetrConfig", images(64), ["pixel_values"], use_timm_backbone=False, backbone=None,
                  backbone_config=backbone, use_pretrained_backbone=False, d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
                  decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=5, num_labels=3, num_feature_levels=3)


class Ltx(nn.Module):
    def __init__(self):
        super().__init__()
        import diffusers
        self.net = diffusers.LTXVideoTransformer3DModel(in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16,
                                                        num_layers=1, caption_channels=12)

    def forward(self, frames, text, time, mask):
        return self.net(frames, text, time, mask, num_frames=3, height=2, width=2, return_dict=False)[0]


VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
PAIR = dict(vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
            decoder_ffn_dim=64, max_position_embeddings=32, pad_token_id=0)
DRAWN = {
    "siren": lambda: (Siren(), (torch.rand(6, 2),)),
    "masked": lambda: (Masked(), images(12)),
    "states": lambda: (States(), (torch.randint(0, 30, (3, 5)), torch.randn(3, 2, 12), torch.randn(3, 2, 12))),
    "volume": lambda: (Volume(), (torch.randn(2, 1, 4, 8, 8),)),
    "wave": lambda: (Wave(), (torch.randn(3, 32),)),
    "upscale": lambda: (Upscale(), images(8)),
    "acts": lambda: (Acts(), (torch.randn(5, 6),)),
    "sums": lambda: (Sums(), (torch.randn(2, 7, 6), torch.randint(0, 7, (2, 6)))),
    "slices": lambda: (Slices(), (torch.randn(3, 7, 10),)),
    "arithmetic": lambda: (Arithmetic(), (torch.randn(4, 5),)),
    "decode": lambda: (Decode(), (torch.tensor([[3, 7, 9, 1, 4, 0], [2, 8, 0, 0, 0, 0]]), torch.randint(1, 25, (2, 5)))),
    "matrices": lambda: (Matrices(), (torch.randn(5, 4, 3),)),
    "cells_loop": lambda: (Cells(), (torch.randn(3, 7, 6),)),
    "mixed": lambda: (Mixed(), (torch.randint(0, 12, (4, 6)), torch.randint(1, 4, (4, 6)))),
    "pools_odd": lambda: (Pools(), images(10)),
    "botnet": lambda: timm_model("botnet26t_256", 64, img_size=64),
    "lambda": lambda: timm_model("lambda_resnet26t", 64, img_size=64),
    "visformer": lambda: timm_model("visformer_tiny", 64, img_size=64),
    "efficientformerv2": lambda: timm_model("efficientformerv2_s0", 224),
    "swiftformer": lambda: timm_model("swiftformer_xs", 64),
    "hgnet": lambda: timm_model("hgnetv2_b0", 64),
    "regnetz": lambda: timm_model("regnetz_b16", 64),
    "gcresnext": lambda: timm_model("gcresnext26ts", 64),
    "halonet": lambda: timm_model("halonet26t", 256),
    "xlnet": lambda: hugged("XLNetLMHeadModel", "XLNetConfig", tokens(99), ["input_ids"], {"use_mems": False}, vocab_size=99, d_model=32, n_layer=2, n_head=4,
                            d_inner=64),
    "codegen": lambda: hugged("CodeGenForCausalLM", "CodeGenConfig", tokens(99), ["input_ids"], {"use_cache": False}, vocab_size=99, n_embd=32, n_layer=2,
                              n_head=4, rotary_dim=4, n_positions=32),
    "mpt": lambda: hugged("MptForCausalLM", "MptConfig", tokens(99), ["input_ids"], {"use_cache": False}, vocab_size=99, d_model=32, n_layers=2, n_heads=4,
                          max_seq_len=32),
    "marian": lambda: hugged("MarianModel", "MarianConfig", tokens(99) + tokens(99, 8), ["input_ids", "decoder_input_ids"], **PAIR),
    "esm": lambda: text_model("EsmForMaskedLM", "EsmConfig", pad_token_id=1, position_embedding_type="rotary", mask_token_id=4),
    "funnel": lambda: hugged("FunnelForSequenceClassification", "FunnelConfig", tokens(99), ["input_ids"], vocab_size=99, d_model=32, n_head=4, d_head=8,
                             d_inner=64, block_sizes=[1, 1], num_decoder_layers=1),
    "gpt_oss": lambda: text_model("GptOssForCausalLM", "GptOssConfig", num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
                                  sliding_window=8),
    "lfm2": lambda: text_model("Lfm2ForCausalLM", "Lfm2Config", num_key_value_heads=2, block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention"]),
    "olmoe": lambda: text_model("OlmoeForCausalLM", "OlmoeConfig", num_key_value_heads=2, num_experts=4, num_experts_per_tok=2),
    "mobilevitv2": lambda: hugged("MobileViTV2ForImageClassification", "MobileViTV2Config", images(64), ["pixel_values"], width_multiplier=0.5, n_attn_blocks=[1, 1, 1],
                                  num_labels=4),
    "dinov3": lambda: hugged("DINOv3ViTModel", "DINOv3ViTConfig", images(32), ["pixel_values"], image_size=32, patch_size=8, num_register_tokens=2, **VISION),
    "conformer": lambda: hugged("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", (torch.randn(2, 800),), ["input_values"], conv_dim=(16, 16),
                                conv_kernel=(10, 3), conv_stride=(5, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
                                num_conv_pos_embedding_groups=4, mask_time_prob=0.0, layerdrop=0.0, conv_depthwise_kernel_size=7,
                                position_embeddings_type="rotary", **VISION),
    "deformable_detr": deformable_detr,
    "decision": lambda: hugged("DecisionTransformerModel", "DecisionTransformerConfig", (torch.randn(2, 5, 4), torch.randn(2, 5, 2), torch.randn(2, 5, 1),
                               torch.arange(5).repeat(2, 1), torch.ones(2, 5, dtype=torch.long)),
                               ["states", "actions", "returns_to_go", "timesteps", "attention_mask"], state_dim=4, act_dim=2, hidden_size=32, n_layer=2, n_head=4,
                               n_positions=32, max_ep_len=16),
    "controlnet_plain": controlnet,
    "oobleck": lambda: diffuser("AutoencoderOobleck", (torch.randn(2, 2, 64),), ["sample"], encoder_hidden_size=8, downsampling_ratios=[2, 2],
                                channel_multiples=[1, 2], decoder_channels=8, decoder_input_channels=4, audio_channels=2),
    "sana": lambda: diffuser("SanaTransformer2DModel", (torch.randn(2, 4, 8, 8), torch.randn(2, 5, 12), torch.tensor([3, 7])),
                             ["hidden_states", "encoder_hidden_states", "timestep"], in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8,
                             num_layers=1, num_cross_attention_heads=2, cross_attention_head_dim=8, cross_attention_dim=16, caption_channels=12, sample_size=8,
                             patch_size=1),
    "ltx": lambda: (Ltx(), (torch.randn(2, 12, 8), torch.randn(2, 5, 12), torch.tensor([3, 7]), torch.ones(2, 5))),
}
