"""Small models with random weights of the families of vision-language models in transformers.

``build(name, folder)`` writes configuration, weights, tokenizer, image processor and chat template
of one family into a folder, as its authors' own would lie there: everything is made here, nothing
is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from vlm_parts import MARKS, SIDE, mark_id, template, text_config, tokenizer, vision_config

#: Sides of images that are wider, higher and as large as the tower's.
SIZES = ((28, 28), (56, 28), (28, 64), (40, 40))
Made = tuple[Any, Any]
_BUILDERS: dict[str, Callable[[], Made]] = {}


def family(maker: Callable[[], Made]) -> Callable[[], Made]:
    """Registers a family under the name of its function."""
    _BUILDERS[maker.__name__] = maker
    return maker


def _clip(**changes: Any) -> dict[str, Any]:
    return vision_config(model_type="clip_vision_model", **changes)


def _siglip(**changes: Any) -> dict[str, Any]:
    return vision_config(model_type="siglip_vision_model", vision_use_head=False, **changes)


def _square(kind: Any, **changes: Any) -> Any:
    """An image processor that makes squares."""
    return kind(size={"height": SIDE, "width": SIDE}, **changes)


@family
def llava() -> Made:
    import transformers as t

    config = t.LlavaConfig(
        vision_config=_clip(),
        text_config=text_config(model_type="llama"),
        image_token_index=mark_id("<image>"),
        image_seq_length=16,
    )
    images = t.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SIDE)
    processor = t.LlavaProcessor(
        images,
        tokenizer(bos=True),
        patch_size=7,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template("<image>", begins="{{ bos_token }}"),
    )
    return t.LlavaForConditionalGeneration(config), processor


def _llava_next(text: str = "mistral") -> Made:
    import transformers as t

    grids = [[28, 56], [56, 28], [56, 56]]
    config = t.LlavaNextConfig(
        vision_config=_clip(),
        text_config=text_config(model_type=text),
        image_token_index=mark_id("<image>"),
        image_grid_pinpoints=grids,
        image_seq_length=16,
    )
    images = t.LlavaNextImageProcessor(
        size={"shortest_edge": SIDE}, crop_size=SIDE, image_grid_pinpoints=grids
    )
    processor = t.LlavaNextProcessor(
        images,
        tokenizer(bos=True),
        patch_size=7,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template("<image>"),
    )
    return t.LlavaNextForConditionalGeneration(config), processor


@family
def llava_next() -> Made:
    return _llava_next()


@family
def llava_onevision() -> Made:
    import transformers as t

    grids = [[28, 56], [56, 28], [56, 56]]
    config = t.LlavaOnevisionConfig(
        vision_config=_siglip(),
        text_config=text_config(model_type="qwen2"),
        image_token_index=mark_id("<image>"),
        video_token_index=mark_id("<video>"),
        image_grid_pinpoints=grids,
        vision_aspect_ratio="anyres_max_4",
    )
    images = _square(t.LlavaOnevisionImageProcessor, image_grid_pinpoints=grids)
    processor = t.LlavaOnevisionProcessor(
        images,
        tokenizer(),
        _square(t.LlavaOnevisionVideoProcessor),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_4",
        chat_template=template("<image>"),
    )
    return t.LlavaOnevisionForConditionalGeneration(config), processor


@family
def vipllava() -> Made:
    import transformers as t

    config = t.VipLlavaConfig(
        vision_config=_clip(num_hidden_layers=3),
        text_config=text_config(model_type="llama"),
        image_token_index=mark_id("<image>"),
        image_seq_length=16,
        vision_feature_layers=[-1, -2, 1],
    )
    _, processor = llava()
    return t.VipLlavaForConditionalGeneration(config), processor


_QWEN = "<|vision_start|><|image_pad|><|vision_end|>"
_QWEN_IDS = {
    "image_token_id": mark_id("<|image_pad|>"),
    "video_token_id": mark_id("<|video_pad|>"),
    "vision_start_token_id": mark_id("<|vision_start|>"),
    "vision_end_token_id": mark_id("<|vision_end|>"),
}


def _qwen(processor: str, patch: int, video: str = "Qwen2VLVideoProcessor") -> Any:
    import transformers as t

    sizes = {"min_pixels": (2 * patch) ** 2, "max_pixels": (8 * patch) ** 2}
    images = t.Qwen2VLImageProcessor(patch_size=patch, **sizes)
    videos = getattr(t, video)(patch_size=patch)
    return getattr(t, processor)(images, tokenizer(), videos, chat_template=template(_QWEN))


def _mrope(*section: int, **more: Any) -> dict[str, Any]:
    kind = {"rope_type": "default", "rope_theta": 10000.0}
    return {"rope_parameters": {**kind, "mrope_section": list(section), **more}}


@family
def qwen2_vl() -> Made:
    import transformers as t

    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 7}
    text = text_config(**_mrope(2, 1, 1))
    config = t.Qwen2VLConfig(vision_config=vision, text_config=text, **_QWEN_IDS)
    return t.Qwen2VLForConditionalGeneration(config), _qwen("Qwen2VLProcessor", 7)


@family
def qwen2_5_vl() -> Made:
    import transformers as t

    vision = {"depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 4}
    vision |= {"intermediate_size": 48, "window_size": 28, "patch_size": 7}
    vision |= {"fullatt_block_indexes": [1]}
    text = text_config(**_mrope(2, 1, 1))
    config = t.Qwen2_5_VLConfig(vision_config=vision, text_config=text, **_QWEN_IDS)
    return t.Qwen2_5_VLForConditionalGeneration(config), _qwen("Qwen2_5_VLProcessor", 7)


_QWEN3_VISION = {
    "depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 4, "patch_size": 8,
    "intermediate_size": 48, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1],
}  # fmt: skip


@family
def qwen3_vl() -> Made:
    import transformers as t

    text = text_config(head_dim=8, **_mrope(2, 1, 1, mrope_interleaved=True))
    config = t.Qwen3VLConfig(vision_config=_QWEN3_VISION, text_config=text, **_QWEN_IDS)
    made = _qwen("Qwen3VLProcessor", 8, "Qwen3VLVideoProcessor")
    return t.Qwen3VLForConditionalGeneration(config), made


@family
def qwen3_vl_moe() -> Made:
    import transformers as t

    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    text = text_config(head_dim=8, **experts, **_mrope(2, 1, 1, mrope_interleaved=True))
    config = t.Qwen3VLMoeConfig(vision_config=_QWEN3_VISION, text_config=text, **_QWEN_IDS)
    made = _qwen("Qwen3VLProcessor", 8, "Qwen3VLVideoProcessor")
    return t.Qwen3VLMoeForConditionalGeneration(config), made


@family
def glm4v() -> Made:
    import transformers as t

    vision = {"depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 4}
    vision |= {"intermediate_size": 48, "patch_size": 7, "image_size": 56}
    text = text_config(**_mrope(1, 1, 2, partial_rotary_factor=1.0))
    ids = {
        "image_token_id": mark_id("<|image|>"),
        "image_start_token_id": mark_id("<|begin_of_image|>"),
        "image_end_token_id": mark_id("<|end_of_image|>"),
        "video_start_token_id": mark_id("<|begin_of_video|>"),
        "video_end_token_id": mark_id("<|end_of_video|>"),
    }
    config = t.Glm4vConfig(vision_config=vision, text_config=text, **ids)
    sizes = {"shortest_edge": 28 * 28, "longest_edge": 112 * 112}
    processor = t.Glm4vProcessor(
        t.Glm4vImageProcessor(patch_size=7, size=sizes),
        tokenizer(image_token="<|image|>", video_token="<video>"),
        t.Glm4vVideoProcessor(patch_size=7),
        chat_template=template("<|begin_of_image|><|image|><|end_of_image|>"),
    )
    return t.Glm4vForConditionalGeneration(config), processor


@family
def internvl() -> Made:
    import transformers as t

    vision = vision_config(image_size=[SIDE, SIDE], patch_size=[7, 7])
    config = t.InternVLConfig(
        vision_config=vision,
        text_config=text_config(model_type="qwen2"),
        image_token_id=mark_id("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    images = _square(t.GotOcr2ImageProcessor, crop_to_patches=True, max_patches=4)
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    processor = t.InternVLProcessor(
        images,
        tokenizer(**named),
        _square(t.InternVLVideoProcessor),
        image_seq_length=4,
        chat_template=template("<IMG_CONTEXT>\n"),
    )
    return t.InternVLForConditionalGeneration(config), processor


@family
def idefics2() -> Made:
    import transformers as t

    perceiver = {"hidden_size": 32, "resampler_n_latents": 4, "resampler_depth": 1}
    perceiver |= {"resampler_n_heads": 2, "resampler_head_dim": 8, "num_key_value_heads": 1}
    config = t.Idefics2Config(
        vision_config=vision_config(image_size=56),
        text_config=text_config(model_type="mistral"),
        perceiver_config=perceiver,
        image_token_id=mark_id("<image>"),
    )
    images = t.Idefics2ImageProcessor(
        size={"shortest_edge": 21, "longest_edge": 56}, do_image_splitting=False
    )
    text = tokenizer(
        bos=True, image_token="<image>", image_boundary_token="<fake_token_around_image>"
    )
    made = t.Idefics2Processor(images, text, image_seq_len=4, chat_template=template("<image>"))
    return t.Idefics2ForConditionalGeneration(config), made


def _idefics3(kind: str, splitting: bool) -> Any:
    import transformers as t

    return getattr(t, f"{kind}ImageProcessor")(
        size={"longest_edge": 56},
        max_image_size={"longest_edge": SIDE},
        do_image_splitting=splitting,
    )


@family
def idefics3() -> Made:
    import transformers as t

    config = t.Idefics3Config(
        vision_config=vision_config(),
        text_config=text_config(model_type="llama"),
        image_token_id=mark_id("<image>"),
        scale_factor=2,
    )
    processor = t.Idefics3Processor(
        _idefics3("Idefics3", True),
        tokenizer(bos=True),
        image_seq_len=4,
        chat_template=template("<image>", begins="<bos>"),
    )
    return t.Idefics3ForConditionalGeneration(config), processor


@family
def smolvlm() -> Made:
    import transformers as t

    config = t.SmolVLMConfig(
        vision_config=vision_config(),
        text_config=text_config(model_type="llama"),
        image_token_id=mark_id("<image>"),
        scale_factor=2,
    )
    videos = t.SmolVLMVideoProcessor(
        size={"longest_edge": 56}, max_image_size={"longest_edge": SIDE}
    )
    processor = t.SmolVLMProcessor(
        _idefics3("SmolVLM", True),
        tokenizer(),
        videos,
        image_seq_len=4,
        chat_template=template("<image>"),
    )
    return t.SmolVLMForConditionalGeneration(config), processor


@family
def gemma3() -> Made:
    import transformers as t

    config = t.Gemma3Config(
        vision_config=_siglip(),
        text_config=text_config(head_dim=8, sliding_window=16, query_pre_attn_scalar=8),
        mm_tokens_per_image=4,
        image_token_index=mark_id("<image_soft_token>"),
        boi_token_index=mark_id("<start_of_image>"),
        eoi_token_index=mark_id("<end_of_image>"),
    )
    named = {
        "image_token": "<image_soft_token>",
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
    }
    processor = t.Gemma3Processor(
        _square(t.Gemma3ImageProcessor),
        tokenizer(bos=True, **named),
        image_seq_length=4,
        chat_template=template("<start_of_image>", begins="{{ bos_token }}"),
    )
    return t.Gemma3ForConditionalGeneration(config), processor


@family
def paligemma() -> Made:
    import transformers as t

    config = t.PaliGemmaConfig(
        vision_config=_siglip(projection_dim=32),
        text_config=text_config(model_type="gemma", head_dim=8),
        image_token_index=mark_id("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    images = _square(t.SiglipImageProcessor)
    images.image_seq_length = 16
    processor = t.PaliGemmaProcessor(
        images, tokenizer(image_token="<image>"), chat_template=template("<image>")
    )
    return t.PaliGemmaForConditionalGeneration(config), processor


def _pixtral(**changes: Any) -> Any:
    import transformers as t

    return t.PixtralProcessor(
        t.PixtralImageProcessor(size={"longest_edge": 56}, patch_size={"height": 7, "width": 7}),
        tokenizer(bos=True),
        patch_size=7,
        image_token="<image>",
        image_break_token="<IMG_BREAK>",
        image_end_token="<IMG_END>",
        chat_template=template("<image>"),
        **changes,
    )


@family
def pixtral() -> Made:
    import transformers as t

    config = t.LlavaConfig(
        vision_config=vision_config(model_type="pixtral", image_size=56, head_dim=8),
        text_config=text_config(model_type="mistral", head_dim=8),
        image_token_index=mark_id("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    return t.LlavaForConditionalGeneration(config), _pixtral()


@family
def mistral3() -> Made:
    import transformers as t

    config = t.Mistral3Config(
        vision_config=vision_config(model_type="pixtral", image_size=56, head_dim=8),
        text_config=text_config(model_type="mistral", head_dim=8),
        image_token_index=mark_id("<image>"),
        spatial_merge_size=2,
    )
    return t.Mistral3ForConditionalGeneration(config), _pixtral(spatial_merge_size=2)


@family
def aya_vision() -> Made:
    import transformers as t

    config = t.AyaVisionConfig(
        vision_config=_siglip(),
        text_config=text_config(model_type="cohere2", sliding_window=16),
        image_token_index=mark_id("<image>"),
    )
    processor = t.AyaVisionProcessor(
        _square(t.GotOcr2ImageProcessor, crop_to_patches=True, max_patches=4),
        tokenizer(bos=True),
        patch_size=7,
        downsample_factor=2,
        img_size=SIDE,
        image_token="<image>",
        tile_token="<tile>",
        tile_global_token="<tile_global>",
        start_of_img_token="<img>",
        end_of_img_token="</img>",
        img_patch_token="<image>",
        chat_template=template("<image>", begins="{{ bos_token }}"),
    )
    return t.AyaVisionForConditionalGeneration(config), processor


@family
def llama4() -> Made:
    import transformers as t

    vision = vision_config(vision_output_dim=32, projector_input_dim=32, projector_output_dim=32)
    vision |= {"intermediate_size": 128}
    text = text_config(head_dim=8, intermediate_size_mlp=48, num_local_experts=2)
    config = t.Llama4Config(
        vision_config=vision, text_config=text, image_token_index=mark_id("<|patch|>")
    )
    processor = t.Llama4Processor(
        _square(t.Llama4ImageProcessor, max_patches=4, resize_to_max_canvas=False),
        tokenizer(bos=True),
        patch_size=7,
        pixel_shuffle_ratio=0.5,
        fake_image_token="<|image|>",
        image_token="<|image|>",
        start_of_image_token="<|image_start|>",
        end_of_image_token="<|image_end|>",
        patch_token="<|patch|>",
        tile_x_separator_token="<|tile_x|>",
        tile_y_separator_token="<|tile_y|>",
        chat_template=template("<|image|>", begins="<bos>"),
    )
    return t.Llama4ForConditionalGeneration(config), processor


@family
def mllama() -> Made:
    import transformers as t

    vision = vision_config(num_global_layers=1, attention_heads=4, intermediate_layers_indices=[0])
    vision |= {"vision_output_dim": 64, "max_num_tiles": 2, "patch_size": 7}
    vision |= {"supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]]}
    text = text_config(cross_attention_layers=[1])
    config = t.MllamaConfig(
        vision_config=vision, text_config=text, image_token_index=mark_id("<|image|>")
    )
    processor = t.MllamaProcessor(
        _square(t.MllamaImageProcessor, max_image_tiles=2),
        tokenizer(bos=True),
        chat_template=template("<|image|>", begins="{{ bos_token }}"),
    )
    return t.MllamaForConditionalGeneration(config), processor


@family
def janus() -> Made:
    import transformers as t

    vq = {"embed_dim": 8, "num_embeddings": 16, "latent_channels": 8, "base_channels": 32}
    vq |= {"channel_multiplier": [1, 1], "num_res_blocks": 1, "num_patches": 4}
    vq |= {"projection_dim": 32, "image_token_embed_dim": 32}
    config = t.JanusConfig(
        vision_config=vision_config(projection_dim=32, num_image_tokens=16),
        text_config=text_config(model_type="llama"),
        vq_config=vq,
        image_token_id=mark_id("<image>"),
    )
    named = {"image_token": "<image>", "boi_token": "<boi>", "eoi_token": "<eoi>"}
    processor = t.JanusProcessor(
        _square(t.JanusImageProcessor, min_size=7),
        tokenizer(bos=True, **named),
        num_image_tokens=16,
        chat_template=template("<image>"),
    )
    return t.JanusForConditionalGeneration(config), processor


def _qformer(**changes: Any) -> dict[str, Any]:
    small = text_config(encoder_hidden_size=32, hidden_dropout_prob=0.0, **changes)
    return {k: v for k, v in small.items() if k != "num_key_value_heads"}


def _opt() -> dict[str, Any]:
    return text_config(model_type="opt", ffn_dim=48, word_embed_proj_dim=32, dropout=0.0)


def _t5() -> dict[str, Any]:
    small = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 2}
    return {"model_type": "t5", "vocab_size": len(tokenizer()), **small, **ids}


def _blip2(text: dict[str, Any]) -> Made:
    import transformers as t

    config = t.Blip2Config(
        vision_config=vision_config(),
        qformer_config=_qformer(),
        text_config=text,
        num_query_tokens=4,
        image_token_index=mark_id("<image>"),
    )
    processor = t.Blip2Processor(_square(t.BlipImageProcessor), tokenizer(bos=True), 4)
    processor.chat_template = template("")
    return t.Blip2ForConditionalGeneration(config), processor


@family
def blip_2() -> Made:
    return _blip2(_opt())


@family
def blip_2_t5() -> Made:
    return _blip2(_t5())


@family
def instructblip() -> Made:
    import transformers as t

    config = t.InstructBlipConfig(
        vision_config=vision_config(),
        qformer_config=_qformer(),
        text_config=text_config(model_type="llama"),
        num_query_tokens=4,
        image_token_index=mark_id("<image>"),
    )
    processor = t.InstructBlipProcessor(
        _square(t.BlipImageProcessor), tokenizer(bos=True), tokenizer(), 4
    )
    processor.chat_template = template("")
    return t.InstructBlipForConditionalGeneration(config), processor


@family
def florence2() -> Made:
    import transformers as t

    vision = {"embed_dim": [8, 16], "num_heads": [2, 4], "num_groups": [2, 4], "depths": [1, 1]}
    vision |= {"patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1]}
    vision |= {"patch_prenorm": [False, True], "window_size": 4, "projection_dim": 32}
    vision |= {"max_position_embeddings": 8, "max_temporal_embeddings": 8}
    text = text_config(model_type="bart", d_model=32, encoder_layers=1, decoder_layers=1)
    text |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    text |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    text |= {"decoder_start_token_id": 2, "forced_eos_token_id": None}
    config = t.Florence2Config(
        vision_config=vision, text_config=text, image_token_id=mark_id("<image>")
    )
    images = t.CLIPImageProcessor(size={"height": 32, "width": 32}, do_center_crop=False)
    images.image_seq_length = 17
    processor = t.Florence2Processor(images, tokenizer(image_token="<image>"))
    processor.chat_template = template("")
    return t.Florence2ForConditionalGeneration(config), processor


@family
def ovis2() -> Made:
    import transformers as t

    names = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
    config = t.Ovis2Config(
        vision_config=vision_config(vocab_size=64, hidden_stride=2, num_visual_indicator_tokens=5),
        text_config=text_config(model_type="qwen2"),
        image_token_id=mark_id("<IMG_ATOM>"),
        visual_indicator_token_ids=[mark_id(name) for name in names],
        vocab_size=len(tokenizer()),
        hidden_size=32,
    )
    processor = t.Ovis2Processor(
        _square(t.Ovis2ImageProcessor, crop_to_patches=True, max_patches=4),
        tokenizer(image_token="<image>"),
        image_seq_length=4,
        chat_template=template("<image>"),
    )
    return t.Ovis2ForConditionalGeneration(config), processor


@family
def aria() -> Made:
    import transformers as t

    config = t.AriaConfig(
        vision_config=vision_config(model_type="idefics3_vision", image_size=980, patch_size=196),
        text_config=text_config(moe_num_experts=2, moe_topk=1),
        projector_patch_to_query_dict={25: 4},
        image_token_index=mark_id("<image>"),
    )
    processor = t.AriaProcessor(
        t.AriaImageProcessor(max_image_size=980, min_image_size=28),
        tokenizer(image_token="<image>"),
        size_conversion={980: 4},
        chat_template=template("<image>"),
    )
    return t.AriaForConditionalGeneration(config), processor


@family
def kosmos2() -> Made:
    import transformers as t

    text = {"vocab_size": len(tokenizer()), "embed_dim": 32, "layers": 2, "ffn_dim": 48}
    text |= {"attention_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = t.Kosmos2Config(text_config=text, vision_config=vision_config(), latent_query_num=64)
    images = t.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SIDE)
    processor = t.Kosmos2Processor(images, tokenizer(bos=True), num_patch_index_tokens=0)
    processor.chat_template = template("")
    return t.Kosmos2ForConditionalGeneration(config), processor


@family
def chameleon() -> Made:
    import transformers as t

    vq = {"embed_dim": 8, "num_embeddings": 16, "latent_channels": 8, "base_channels": 32}
    vq |= {"channel_multiplier": [1, 1, 2], "num_res_blocks": 1, "resolution": SIDE}
    words = {mark: mark_id(mark) for mark in ("<image>", "<racm3:break>", "<eoss>")}
    first = len(MARKS)  # image tokens have names of their own; these stand for them
    names = {f"IMGIMG{'ABCDEFGHIJ'[i // 10]}{'ABCDEFGHIJ'[i % 10]}Z": first + i for i in range(16)}
    config = t.ChameleonConfig(**text_config(vq_config=vq, vocabulary_map={**words, **names}))
    named = {"image_token": "<image>", "boi_token": "<racm3:break>", "eoi_token": "<eoss>"}
    processor = t.ChameleonProcessor(
        t.ChameleonImageProcessor(
            size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
        ),
        tokenizer(**named),
        image_seq_length=49,
    )
    processor.chat_template = template("<image>")
    return t.ChameleonForConditionalGeneration(config), processor


#: Names of all families that are built here.
FAMILIES = tuple(_BUILDERS)


def made(name: str, seed: int = 0) -> Made:
    """Model and processor of a family, weights large enough that replies differ."""
    torch.manual_seed(seed)
    model, processor = _BUILDERS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.25)
            elif not parameter.any():  # also gates that begin closed
                parameter.normal_(std=0.1)
    for owner in (model.config, model.generation_config):
        owner.pad_token_id = mark_id("<pad>")
        owner.eos_token_id = mark_id("<end>")
    return model.eval(), processor


def build(name: str, folder: Path, seed: int = 0) -> Path:
    """The folder of a family, as ``lvlm.path`` takes it."""
    for part in made(name, seed):
        part.save_pretrained(folder)
    return folder
