"""Small random open_clip models of every kind of tower."""

import json
from functools import cache

import open_clip
import torch

from ood_lab.clip import ClipModel

VIT = {"image_size": 32, "layers": 3, "width": 64, "patch_size": 8, "head_width": 32}
RESNET = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 32}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
TIMM = {"timm_model_name": "test_vit", "timm_model_pretrained": False, "image_size": 160}
TIMM_TOKEN = {**TIMM, "timm_pool": "token", "timm_proj": "linear"}


def model(vision, text=TEXT, **rest):
    return {"embed_dim": 48, "vision_cfg": vision, "text_cfg": text, **rest}


CONFIGS = {
    "t-vit": model(VIT),
    "t-vit-quickgelu": model(VIT, quick_gelu=True),
    "t-custom": model(VIT, custom_text=True),
    "t-eos": model(VIT, {**TEXT, "pool_type": "eos", "eos_id": 49407}, custom_text=True),
    "t-bidirectional": model(
        VIT,
        {**TEXT, "no_causal_mask": True, "pool_type": "last", "proj_bias": True},
        custom_text=True,
        init_logit_bias=-10,
    ),
    "t-resnet": model(RESNET),
    "t-timm": model(TIMM_TOKEN),
    "t-vit-avg": model({**VIT, "pool_type": "avg"}),
    "t-coca": model(
        {**VIT, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
        {**TEXT, "context_length": 76, "embed_cls": True, "output_tokens": True},
        multimodal_cfg={**TEXT, "context_length": 76, "attn_pooler_heads": 2},
        custom_text=True,
    ),
    "t-hf": model(VIT, {"hf_model_name": "roberta-base", "hf_tokenizer_name": "roberta-base"}),
    "t-hf-tokenizer": model(VIT, {**TEXT, "hf_tokenizer_name": "some/tokenizer"}),
}


def write(folder):
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))


def network(name, seed=0):
    """The bare open_clip model with weights that make no feature degenerate."""
    torch.manual_seed(seed)
    net = open_clip.create_model(name).eval()
    for key, value in net.named_parameters():
        if key.endswith("bn3.weight"):
            torch.nn.init.ones_(value)
        elif value.ndim < 2 and "logit" not in key:
            torch.nn.init.normal_(value, 1.0 if key.endswith("weight") else 0.0, 0.1)
    return net


@cache
def clip(name):
    return ClipModel(network(name), open_clip.get_tokenizer(name), name)


def images(name, n=2):
    size = clip(name).data_config["input_size"]
    return torch.randn(n, *size, generator=torch.Generator().manual_seed(1))
