"""Networks with uncommon ops and networks of the libraries that no other group has: the groups `fresh` and `held` of onnx_users.py. Nobody looked at
those of `held` while the importer was written or mended."""
import torch
from onnx_exports import First, hugged, images, text_model, timm_model, tokens
from onnx_more import diffuser
from torch import nn
from torch.nn import functional as F


class Patches(nn.Module):
    """Overlapping patches cut out, mixed, summed back; shifted windows; two kinds of bilinear upsampling; a transposed convolution with output padding."""

    def __init__(self):
        super().__init__()
        self.first, self.mix = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(72, 72)
        self.up = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.odd = nn.ConvTranspose2d(6, 4, (3, 2), stride=(3, 2), padding=(1, 0), output_padding=(2, 1), dilation=(1, 2))

    def forward(self, image):
        x = self.first(image)
        y = self.mix(F.unfold(x, 3, padding=1).transpose(1, 2)).transpose(1, 2)
        x = x + F.fold(y, x.shape[-2:], 3, padding=1)
        x = torch.roll(x, (2, -3), (2, 3))
        x = self.odd(F.gelu(self.up(x)))
        x = F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False)
        return F.interpolate(x, size=(13, 11), mode="bilinear", align_corners=True)


class Writes(nn.Module):
    """index_put with and without accumulation, masked writes, flips, cumulative sums backwards, in-place slices."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Parameter(torch.randn(9, 6) / 2), nn.Linear(6, 5)
        self.register_buffer("rows", torch.tensor([0, 3, 3, 8, 1]))

    def forward(self, x):
        b = x.shape[0]
        grid = x.new_zeros(b, 9, 6)
        grid = grid.index_put((torch.arange(b)[:, None], self.rows[None]), x, accumulate=True)
        grid = grid.index_add(1, self.rows[:2], x[:, :2] * self.table[:2])
        grid[:, 4] = grid[:, 4] + self.table[4]
        grid[:, 5:8, ::2] = x[:, :3, ::2] * 2
        after = grid.flip(1).cumsum(1).flip(1) / torch.arange(9, 0, -1)[None, :, None]
        after = torch.where(after > 0.7, after.tanh(), after).masked_fill(after < -0.9, -0.5)
        return self.out(torch.gather(after + self.table, 1, torch.topk(grid + self.table, 9, 1).indices))


class Warp(nn.Module):
    """Grid sampling in all modes of padding, by an affine map that a network predicts, and by a flow."""

    def __init__(self):
        super().__init__()
        self.where, self.flow, self.head = nn.Linear(3, 6), nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(9, 4, 1)

    def forward(self, image):
        theta = torch.eye(2, 3).flatten() + 0.1 * self.where(image.mean((2, 3)))
        grid = F.affine_grid(theta.unflatten(1, (2, 3)), image.shape, align_corners=False)
        a = F.grid_sample(image, grid, padding_mode="border", align_corners=False)
        moved = grid + 0.05 * torch.tanh(self.flow(image)).permute(0, 2, 3, 1)
        b = F.grid_sample(image, moved, padding_mode="reflection", align_corners=True)
        c = F.grid_sample(image, moved, mode="nearest", padding_mode="zeros", align_corners=True)
        return self.head(torch.cat((a, b, c), 1))


class Speech(nn.Module):
    """A recurrent encoder in both directions, two layers, with weight norm before it."""

    def __init__(self):
        super().__init__()
        self.pre = nn.utils.parametrizations.weight_norm(nn.Conv1d(6, 8, 3, padding=1), dim=0)
        self.rnn, self.one = nn.GRU(8, 6, 2, batch_first=True, bidirectional=True), nn.RNN(12, 5, batch_first=True, nonlinearity="relu")
        self.low = nn.LSTM(5, 7, batch_first=True, bidirectional=True)

    def forward(self, wave):
        x, _ = self.rnn(F.silu(self.pre(wave.transpose(1, 2))).transpose(1, 2))
        return self.low(self.one(x)[0])[0]


class Windows(nn.Module):
    """Attention with masks made in the graph: causal, a window, padding from lengths, ALiBi slopes; a softmax sink; a key that is never seen."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.sink = nn.Linear(24, 72), nn.Linear(24, 24), nn.Parameter(torch.zeros(4))

    def forward(self, x, lengths):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 6).permute(2, 0, 3, 1, 4).unbind(0)
        at = torch.arange(n)
        far = at[None, :] - at[:, None]
        seen = (far <= 0) & (far > -4) | (at[None, :] == 0)
        seen = seen[None, None] & (at[None, :] < lengths[:, None])[:, None, None]
        bias = far[None] * 0.5 ** torch.arange(1, 5)[:, None, None]
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=(bias[None] + torch.zeros(b, 1, 1, 1)).masked_fill(~seen, -1e4))
        s = (q @ k.transpose(-1, -2) / 6 ** 0.5).masked_fill(~seen, torch.finfo(x.dtype).min)
        p = torch.cat((s, self.sink[None, :, None, None].expand(b, 4, n, 1)), -1).softmax(-1)[..., :-1]
        return self.out((a + p @ v).transpose(1, 2).reshape(b, n, 24))


class Tensors(nn.Module):
    """Contractions: einsum with repeated and summed letters, tensordot, outer products, logsumexp, norms, variances, quantities of matrices."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(5, 4, 3) / 2), nn.Parameter(torch.randn(6, 5, 7) / 3)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        y = torch.einsum("bnij,jkl->bnikl", x, self.a)
        z = torch.einsum("bniil->bnl", y[:, :, :4, :4]) + torch.einsum("bnij->bn", x)[..., None]
        w = torch.einsum("bnij,nio,bnkj->bno", x, self.b, x)
        t = torch.tensordot(w, self.b, dims=([2], [2])).logsumexp((2, 3))
        rest = torch.cat((w.std(-1, keepdim=True), w.var(-1, unbiased=False, keepdim=True), x.norm(dim=(2, 3))[..., None], t[..., None],
                          F.normalize(w, dim=-1)[..., :4], torch.linalg.vector_norm(w, 3, -1, keepdim=True)), -1)
        return self.head(torch.cat((z, rest), -1))


class Spectral(nn.Module):
    """Spectral norm in evaluation form, a blur by a fixed filter, group norms, squeeze and excitation, max pools with ceil and dilation."""

    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3, padding=(2, 1), dilation=(2, 1)))
        self.register_buffer("blur", torch.tensor([1.0, 2.0, 1.0]).outer(torch.tensor([1.0, 2.0, 1.0]))[None, None].repeat(8, 1, 1, 1) / 16)
        self.norm, self.squeeze, self.excite = nn.GroupNorm(4, 8), nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.head = nn.Linear(8 * 6, 3)

    def forward(self, image):
        x = F.conv2d(F.pad(self.a(image), (1, 1, 1, 1), mode="replicate"), self.blur, stride=2, groups=8)
        x = F.max_pool2d(self.norm(x), 3, 2, 1, dilation=1, ceil_mode=True)
        x = x * torch.sigmoid(self.excite(F.relu6(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        return self.head(F.adaptive_max_pool2d(F.avg_pool2d(x, 2, 1, 1, ceil_mode=True, count_include_pad=False), (3, 2)).flatten(1))


class Pairs(nn.Module):
    """CLIP's loss of each pair. Its logits have a column for each sample of the batch: with a target for each row they depend on the order of the batch."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, pixel_values):
        logits = self.model(input_ids=input_ids, pixel_values=pixel_values).logits_per_image
        return (logits.logsumexp(0) + logits.logsumexp(1)) / 2 - logits.diagonal()


def clip():
    import transformers
    part = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    made = transformers.CLIPConfig(text_config=dict(vocab_size=99, max_position_embeddings=16, eos_token_id=98, **part),
                                   vision_config=dict(image_size=32, patch_size=8, **part), projection_dim=16)
    ids = torch.randint(1, 98, (3, 9))
    ids[:, -1] = 98
    return Pairs(transformers.CLIPModel(made)), (ids, *images(32, 3))


def detection(name, **keys):
    """The backbone with its pyramid of a detection network of torchvision."""
    import torchvision
    net = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None, **keys).backbone

    class Maps(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, image):
            return tuple(self.net(image).values())

    return Maps(), images(64, 4)


def segmentation(name, size):
    import torchvision
    return First(getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=5), ["x"]), images(size, 4)


def temporal():
    return diffuser("UNetSpatioTemporalConditionModel", (torch.randn(2, 2, 8, 8, 8), torch.tensor([3.0, 7.0]), torch.randn(2, 1, 12), torch.randn(2, 3)),
                    ["sample", "timestep", "encoder_hidden_states", "added_time_ids"], sample_size=8, block_out_channels=(32, 64), in_channels=8,
                    out_channels=4, cross_attention_dim=12, num_attention_heads=(2, 4), addition_time_embed_dim=8, projection_class_embeddings_input_dim=24,
                    layers_per_block=1, down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
                    up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"))


VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
FRESH = {
    "patches": lambda: (Patches(), images(16)),
    "writes": lambda: (Writes(), (torch.randn(2, 5, 6),)),
    "warp": lambda: (Warp(), images(12)),
    "speech": lambda: (Speech(), (torch.randn(2, 7, 6),)),
    "windows": lambda: (Windows(), (torch.randn(2, 8, 24), torch.tensor([8, 5]))),
    "tensors": lambda: (Tensors(), (torch.randn(2, 6, 5, 5),)),
    "spectral_like": lambda: (Spectral(), images(16)),
    "clip": clip,
    "fpn": lambda: detection("fasterrcnn_mobilenet_v3_large_fpn"),
    "lraspp_like": lambda: segmentation("deeplabv3_mobilenet_v3_large", 64),
    "mobilebert": lambda: text_model("MobileBertForSequenceClassification", "MobileBertConfig", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    "nystrom": lambda: text_model("NystromformerForMaskedLM", "NystromformerConfig", num_landmarks=4, segment_means_seq_len=16),
    "squeezebert": lambda: text_model("SqueezeBertForSequenceClassification", "SqueezeBertConfig", embedding_size=32),
    "glm": lambda: text_model("GlmForCausalLM", "GlmConfig", num_key_value_heads=2, head_dim=8, pad_token_id=0),
    "nemotron": lambda: text_model("NemotronForCausalLM", "NemotronConfig", num_key_value_heads=2, head_dim=8),
    "pegasus": lambda: hugged("PegasusForConditionalGeneration", "PegasusConfig", tokens(99) + tokens(99, 8), ["input_ids", "decoder_input_ids"], vocab_size=99,
                              d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                              decoder_ffn_dim=64, max_position_embeddings=32),
    "dpt": lambda: hugged("DPTForDepthEstimation", "DPTConfig", images(32), ["pixel_values"], image_size=32, patch_size=8, backbone_out_indices=[0, 1, 2, 3],
                          neck_hidden_sizes=[16, 16, 16, 16], fusion_hidden_size=16, reassemble_factors=[4, 2, 1, 0.5], **{**VISION, "num_hidden_layers": 4}),
    "vitdet": lambda: hugged("VitDetModel", "VitDetConfig", images(32), ["pixel_values"], hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                             patch_size=8, window_size=2, window_block_indices=[0], use_relative_position_embeddings=True),
    "temporal": temporal,
    "inception_next": lambda: timm_model("inception_next_tiny", 64),
    "mobileone": lambda: timm_model("mobileone_s0", 64),
    "cspnet": lambda: timm_model("cspresnet50", 64),
}
HELD = {
    "tresnet_like": lambda: timm_model("gernet_s", 64),
    "rdnet": lambda: timm_model("rdnet_tiny", 64),
    "longformer_like": lambda: text_model("CanineForSequenceClassification", "CanineConfig", num_hash_functions=2, num_hash_buckets=32, downsampling_rate=4,
                                          local_transformer_stride=8, upsampling_kernel_size=4),
    "encodec_like": lambda: hugged("UnivNetModel", "UnivNetConfig", (torch.randn(2, 4, 100),), ["input_features"]),
    "retina": lambda: detection("retinanet_resnet50_fpn"),
    "kandinsky_like": lambda: diffuser("StableCascadeUNet", (torch.randn(2, 4, 8, 8), torch.tensor([0.3, 0.7]), torch.randn(2, 1, 16)),
                                       ["sample", "timestep_ratio", "clip_text_pooled"], in_channels=4, out_channels=4, conditioning_dim=32,
                                       block_out_channels=(32, 64), num_attention_heads=(0, 4), down_num_layers_per_block=(1, 1), up_num_layers_per_block=(1, 1),
                                       down_blocks_repeat_mappers=(1, 1), up_blocks_repeat_mappers=(1, 1), clip_text_pooled_in_channels=16,
                                       block_types_per_layer=(("SDCascadeResBlock", "SDCascadeTimestepBlock"),
                                                              ("SDCascadeResBlock", "SDCascadeTimestepBlock", "SDCascadeAttnBlock"))),
}
