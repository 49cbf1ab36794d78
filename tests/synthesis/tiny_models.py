"""Random models of a few thousand weights, saved as the real ones are."""

import string

import torch


def tokenizer():
    """Spells every word: one id a letter."""
    from transformers import CLIPTokenizer

    letters = string.ascii_lowercase + string.digits
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{c}</w>" for c in letters)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)


def unet():
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
    )


def save_pipeline(folder):
    """Stable Diffusion at 32 pixels."""
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline
    from transformers import CLIPTextConfig, CLIPTextModel

    words = tokenizer()
    net = unet()
    vae = AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        sample_size=32,
    )
    text = CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=77,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    StableDiffusionPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(text),
        tokenizer=words,
        unet=net,
        scheduler=DDIMScheduler(clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    return folder


def save_controlnet(folder):
    from diffusers import ControlNetModel

    ControlNetModel.from_unet(unet(), conditioning_embedding_out_channels=(8, 16)).save_pretrained(
        folder
    )
    return folder


def save_adapter(folder):
    """Weights and image encoder of an IP-Adapter for :func:`unet`."""
    from safetensors.torch import save_file
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    vision = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        projection_dim=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=8,
    )
    CLIPVisionModelWithProjection(vision).save_pretrained(folder / "models" / "encoder")
    tensors = {
        "image_proj.proj.weight": torch.randn(4 * 16, 16),
        "image_proj.proj.bias": torch.zeros(4 * 16),
        "image_proj.norm.weight": torch.ones(16),
        "image_proj.norm.bias": torch.zeros(16),
    }
    # Published weights number the attention processors; every second one is a cross attention.
    names = [name for name in unet().attn_processors if "attn2" in name]
    for position, name in enumerate(names):
        width = 16 if not name.startswith("up_blocks.1") else 8
        for kind in ("to_k_ip", "to_v_ip"):
            tensors[f"ip_adapter.{2 * position + 1}.{kind}.weight"] = torch.randn(width, 16)
    (folder / "weights").mkdir()
    save_file(tensors, folder / "weights" / "adapter.safetensors")
    return folder


def save_depth(folder):
    from transformers import DPTConfig, DPTForDepthEstimation, DPTImageProcessor

    config = DPTConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        backbone_out_indices=(0, 1, 2, 3),
        image_size=32,
        patch_size=8,
        neck_hidden_sizes=(8, 8, 8, 8),
        fusion_hidden_size=8,
    )
    DPTForDepthEstimation(config).save_pretrained(folder)
    DPTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def save_detector(folder):
    from transformers import (
        OwlViTConfig,
        OwlViTForObjectDetection,
        OwlViTImageProcessor,
        OwlViTProcessor,
    )

    words = tokenizer()
    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = OwlViTConfig(
        text_config={
            **small,
            "num_hidden_layers": 1,
            "vocab_size": len(words),
            "max_position_embeddings": 77,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 1,
        },
        vision_config={**small, "num_hidden_layers": 1, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    size = {"height": 32, "width": 32}
    OwlViTForObjectDetection(config).save_pretrained(folder)
    pictures = OwlViTImageProcessor(size=size, crop_size=size, do_center_crop=False)
    OwlViTProcessor(image_processor=pictures, tokenizer=words).save_pretrained(folder)
    return folder


def save_language_model(folder, answer):
    """Says ``answer`` whatever it is asked."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    tokens = ["<unk>", "<end>", "yes", "no", "maybe"]
    words = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="<end>"
    ).save_pretrained(folder)
    config = GPT2Config(
        vocab_size=len(tokens), n_positions=256, n_embd=8, n_layer=1, n_head=1, eos_token_id=1,
        bos_token_id=1,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.ln_f.weight.zero_()
        model.transformer.ln_f.bias.fill_(1.0)
        model.transformer.wte.weight[tokens.index(answer)] = 10.0
    model.save_pretrained(folder)
    return folder
