"""Networks of fields that the other groups of onnx_users.py lack: detection, audio, video, time series, recommenders, points, scans. The group
`unseen` of its command line; none was looked at while the importer was written."""
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
