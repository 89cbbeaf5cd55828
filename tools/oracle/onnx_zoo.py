"""Further models for onnx_users.py, of families that the importer was not written for: `zoo` on its command line tries them all."""
import torch
from onnx_exports import First, hugged, images, text_model, timm_model, tokens, torchvision_model
from torch import nn


class Rwkv(nn.Module):
    """Linear attention with decay as a loop over time, token shift by concatenation."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(30, width)
        self.decay, self.first = nn.Parameter(torch.rand(width)), nn.Parameter(torch.rand(width))
        self.mix = nn.Parameter(torch.rand(3, width))
        self.k, self.v, self.r, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, ids):
        x = self.embed(ids)
        before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
        k, v, r = (f(x * m + before * (1 - m)) for f, m in zip((self.k, self.v, self.r), self.mix))
        a = b = torch.zeros_like(x[:, 0])
        w, rows = torch.exp(-torch.exp(self.decay)), []
        for t in range(x.shape[1]):
            e, u = torch.exp(k[:, t]), torch.exp(self.first + k[:, t])
            rows.append((a + u * v[:, t]) / (b + u))
            a, b = w * a + e * v[:, t], w * b + e
        return self.out(torch.sigmoid(r) * torch.stack(rows, 1))


class Spectrum(nn.Module):
    """Audio: windowed frames, a fixed Fourier basis in buffers, a convolution with weight norm."""

    def __init__(self):
        super().__init__()
        n, k = torch.arange(32), torch.arange(17)
        angle = 2 * torch.pi * n[:, None] * k[None] / 32
        self.register_buffer("basis", torch.cat((angle.cos(), -angle.sin()), 1) * torch.hann_window(32)[:, None])
        self.register_buffer("scale", torch.linspace(1, 2, 17), persistent=False)
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(17, 8, 3, padding=1))
        self.head = nn.Linear(8, 4)

    def forward(self, wave):
        re, im = (wave.unfold(1, 32, 16) @ self.basis).split(17, 2)
        power = torch.log1p(re ** 2 + im ** 2) * self.scale
        return self.head(torch.relu(self.conv(power.transpose(1, 2))).amax(2))


class Fnet(nn.Module):
    """Mixing by Fourier transforms: DFT nodes."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(30, 24), nn.LayerNorm(24)
        self.wide, self.narrow, self.head = nn.Linear(24, 48), nn.Linear(48, 24), nn.Linear(24, 30)

    def forward(self, ids):
        x = self.embed(ids)
        x = self.norm(x + torch.fft.fft(torch.fft.fft(x, dim=2), dim=1).real)
        return self.head(x + self.narrow(nn.functional.gelu(self.wide(x))))


class Experts(nn.Module):
    """A dense mixture of experts, chosen by top-k, with weights as one tensor."""

    def __init__(self):
        super().__init__()
        self.gate, self.a, self.b = nn.Linear(12, 4), nn.Parameter(torch.randn(4, 12, 24) / 3), nn.Parameter(torch.randn(4, 24, 12) / 5)

    def forward(self, x):
        score = self.gate(x)
        top, index = torch.topk(score, 2, dim=-1)
        share = torch.zeros_like(score).scatter(-1, index, torch.softmax(top, -1))
        y = torch.einsum("neh,ehd->ned", nn.functional.silu(torch.einsum("nd,edh->neh", x, self.a)), self.b)
        return (y * share[..., None]).sum(1)


class Siamese(nn.Module):
    """Two inputs through one network, two outputs."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(4, 8), nn.Hardswish(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                                 nn.Linear(32, 6))

    def forward(self, left, right):
        a, b = self.net(left), self.net(right)
        return nn.functional.cosine_similarity(a, b), a


class Pointnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(3, 16, 1), nn.Conv1d(16, 32, 1)
        self.na, self.nb, self.head = nn.BatchNorm1d(16), nn.BatchNorm1d(32), nn.Linear(32, 5)

    def forward(self, points):
        x = torch.relu(self.nb(self.b(torch.relu(self.na(self.a(points))))))
        return nn.functional.log_softmax(self.head(x.max(2).values), 1)


def segmentation(name, **keys):
    import torchvision
    m = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=4, **keys)
    return First(m, ["input" if "lraspp" in name else "x"]), images(64)


def video(name, size, frames, **keys):
    import torchvision
    return getattr(torchvision.models.video, name)(weights=None, num_classes=5, **keys), (torch.randn(2, 3, frames, size, size),)


def pyramid():
    """The features of a detector without its choice of boxes."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
            self.head = nn.Conv2d(256, 4, 1)

        def forward(self, image):
            return tuple(self.head(v) for v in self.net(image).values())

    return Features(), images(64)


def autoencoder(cls, inputs, names, **keys):
    import diffusers
    return First(getattr(diffusers, cls)(**keys), names, {"return_dict": False}), inputs


ZOO = {
    "squeezenet": lambda: torchvision_model("squeezenet1_1", 64),
    "inception": lambda: torchvision_model("inception_v3", 96, aux_logits=False, init_weights=False),
    "resnext": lambda: torchvision_model("resnext50_32x4d", 64),
    "maxvit_tv": lambda: torchvision_model("maxvit_t", 224),
    "swin_v2_tv": lambda: torchvision_model("swin_v2_t", 64),
    "vit_tv": lambda: torchvision_model("vit_b_16", 32, image_size=32),
    "fcn": lambda: segmentation("fcn_resnet50"),
    "lraspp": lambda: segmentation("lraspp_mobilenet_v3_large"),
    "r3d": lambda: video("r3d_18", 32, 8), "mc3": lambda: video("mc3_18", 32, 8), "s3d": lambda: video("s3d", 64, 16),
    "mvit": lambda: video("mvit_v2_s", 224, 16), "pyramid": pyramid,
    "res2net": lambda: timm_model("res2net50_26w_4s", 64),
    "dpn": lambda: timm_model("dpn48b", 64),
    "vovnet": lambda: timm_model("ese_vovnet19b_dw", 64),
    "gmlp": lambda: timm_model("gmlp_ti16_224", 32, img_size=32),
    "resmlp": lambda: timm_model("resmlp_12_224", 32, img_size=32),
    "efficientformer": lambda: timm_model("efficientformer_l1", 224),
    "efficientvit": lambda: timm_model("efficientvit_b0", 64),
    "tinyvit": lambda: timm_model("tiny_vit_5m_224", 224),
    "repvgg": lambda: timm_model("repvgg_a0", 64),
    # Its last BatchNorm has one pixel: with two samples every channel is 1 or -1, and a change of 1e-10 becomes 1 % in five steps.
    "mobilenetv4": lambda: (timm_model("mobilenetv4_conv_small", 64)[0], images(64, 8)),
    "mambaout": lambda: timm_model("mambaout_femto", 64),
    "eva": lambda: timm_model("eva02_tiny_patch14_224", 28, img_size=28, depth=2),
    "volo": lambda: timm_model("volo_d1_224", 64, img_size=64),
    "crossvit": lambda: timm_model("crossvit_tiny_240", 240),
    "nest": lambda: timm_model("nest_tiny", 64, img_size=64),
    "hiera": lambda: timm_model("hiera_tiny_224", 224, stages=(1, 1, 1, 1)),
    "convnextv2": lambda: timm_model("convnextv2_atto", 64),
    "xlnet_like": lambda: text_model("MPNetForMaskedLM", "MPNetConfig"),
    "gptj": lambda: hugged("GPTJForCausalLM", "GPTJConfig", tokens(99), ["input_ids"], {"use_cache": False}, vocab_size=99, n_embd=32, n_layer=2,
                           n_head=4, rotary_dim=4, n_positions=32),
    "gpt_neo": lambda: hugged("GPTNeoForCausalLM", "GPTNeoConfig", tokens(99), ["input_ids"], {"use_cache": False}, vocab_size=99, hidden_size=32,
                              num_layers=2, num_heads=4, intermediate_size=64, max_position_embeddings=32, window_size=4,
                              attention_types=[[["global", "local"], 1]]),
    "qwen3": lambda: text_model("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2, head_dim=8),
    "gemma2": lambda: text_model("Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=8, sliding_window=4),
    "olmo2": lambda: text_model("Olmo2ForCausalLM", "Olmo2Config", num_key_value_heads=2),
    "stablelm": lambda: text_model("StableLmForCausalLM", "StableLmConfig", num_key_value_heads=2),
    "cohere": lambda: text_model("CohereForCausalLM", "CohereConfig", num_key_value_heads=2),
    "modernbert": lambda: text_model("ModernBertForMaskedLM", "ModernBertConfig", pad_token_id=0, local_attention=8),
    "convbert": lambda: text_model("ConvBertForSequenceClassification", "ConvBertConfig", embedding_size=16, head_ratio=2),
    "fnet_like": lambda: (Fnet(), tokens(30, 12)),
    "rwkv": lambda: (Rwkv(), tokens(30, 7)), "spectrum": lambda: (Spectrum(), (torch.randn(2, 160),)),
    "experts": lambda: (Experts(), (torch.randn(6, 12),)),
    "siamese": lambda: (Siamese(), (torch.randn(2, 3, 12, 12), torch.randn(2, 3, 12, 12))),
    "pointnet": lambda: (Pointnet(), (torch.randn(4, 3, 20),)),
    "hubert": lambda: hugged("HubertModel", "HubertConfig", (torch.randn(2, 800),), ["input_values"], hidden_size=32, num_hidden_layers=2,
                             num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2),
                             num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_prob=0.0,
                             layerdrop=0.0),
    "ast": lambda: hugged("ASTForAudioClassification", "ASTConfig", (torch.randn(2, 32, 16),), ["input_values"], hidden_size=32,
                          num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_length=32, num_mel_bins=16, patch_size=8,
                          frequency_stride=8, time_stride=8),
    "timesformer": lambda: hugged("TimesformerForVideoClassification", "TimesformerConfig", (torch.randn(2, 2, 3, 16, 16),), ["pixel_values"],
                                  hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=8,
                                  num_frames=2),
    "swin2sr": lambda: hugged("Swin2SRForImageSuperResolution", "Swin2SRConfig", images(16), ["pixel_values"], image_size=16, embed_dim=16,
                              depths=[1, 1], num_heads=[2, 2], window_size=4, upscale=2),
    "upernet": lambda: hugged("DPTForDepthEstimation", "DPTConfig", images(32), ["pixel_values"], hidden_size=32, num_hidden_layers=4,
                              num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8, backbone_out_indices=[0, 1, 2, 3],
                              neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=8, is_hybrid=False),
    "vae_tiny": lambda: autoencoder("AutoencoderTiny", images(16), ["sample"], encoder_block_out_channels=(16, 16),
                                    decoder_block_out_channels=(16, 16), num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)),
    "pixart": lambda: autoencoder("PixArtTransformer2DModel", (torch.randn(2, 4, 8, 8), torch.randn(2, 5, 12), torch.tensor([3, 7])),
                                  ["hidden_states", "encoder_hidden_states", "timestep"], num_attention_heads=2, attention_head_dim=8,
                                  in_channels=4, out_channels=8, num_layers=2, cross_attention_dim=16, sample_size=8, patch_size=2,
                                  caption_channels=12, use_additional_conditions=False, norm_num_groups=8),
    "sd3": lambda: autoencoder("SD3Transformer2DModel", (torch.randn(2, 4, 8, 8), torch.randn(2, 5, 12), torch.randn(2, 16), torch.tensor([3, 7])),
                               ["hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"], sample_size=8, patch_size=2,
                               in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=12,
                               caption_projection_dim=16, pooled_projection_dim=16, out_channels=4),
}
