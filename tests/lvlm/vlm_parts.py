"""Parts of small vision-language models: tokenizer, chat template, configurations of towers."""

from __future__ import annotations

from functools import cache
from typing import Any

#: What marks turns, ends and images, in any of the families.
MARKS = (
    "<pad>", "<bos>", "<end>", "<unk>", "<user>", "<assistant>", "<system>", "<image>", "<video>",
    "<boi>", "<eoi>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
    "<|audio_pad|>", "<img>", "</img>", "<IMG_CONTEXT>", "<fake_token_around_image>",
    "<end_of_utterance>", "<global-img>", "<IMG_BREAK>", "<IMG_END>", "<start_of_image>",
    "<end_of_image>", "<image_soft_token>", "<audio>", "<|image|>", "<|python_tag|>",
    "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>",
    "<|patch|>", "<|tile_x|>", "<|tile_y|>", "<tile>", "<tile_1>", "<tile_2>", "<tile_3>",
    "<tile_4>", "<tile_global>", "<imgpad>", "<racm3:break>", "<eoss>", "<phrase>", "</phrase>",
    "<grounding>", "</image>", "<object>", "</object>", "<mask>", "<line>", "<IMG_START>",
    "<IMG_ATOM>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "|SPEAKER|", "|NEWLINE|",
    "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<cls>", "<sep>",
    *(f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)),
)  # fmt: skip
SIDE = 28


def template(image: str, ends: str = "<end>", begins: str = "") -> str:
    """A chat template that writes ``image`` for each image."""
    return (
        f"{begins}{{% for message in messages %}}<{{{{ message['role'] }}}}>"
        "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
        "{% for part in message['content'] %}"
        f"{{% if part['type'] == 'image' %}}{image}{{% else %}}{{{{ part['text'] }}}}{{% endif %}}"
        f"{{% endfor %}}{{% endif %}}{ends}{{% endfor %}}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )


@cache
def _trained() -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(["Yes No yes no Is there a dog in the image?"], trainer)
    return str(bpe.to_str())


def tokenizer(bos: bool = False, **named: str) -> Any:
    """A byte-level BPE; ``named`` are tokens that a processor asks it for.

    ``bos``: it begins every text with ``<bos>``, as those of Llama and Gemma do.
    """
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer.from_str(_trained())
    if bos:
        begins = [("<bos>", bpe.token_to_id("<bos>"))]
        bpe.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=begins)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<end>",
        unk_token="<unk>",
        extra_special_tokens=named,
        model_max_length=2048,
    )


def text_config(**changes: Any) -> dict[str, Any]:
    """A language model of width 32."""
    ids = {f"{name}_token_id": MARKS.index(f"<{mark}>") for name, mark in _ENDS}
    return {
        "vocab_size": len(tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        **ids,
        **changes,
    }


_ENDS = (("pad", "pad"), ("bos", "bos"), ("eos", "end"))


def vision_config(**changes: Any) -> dict[str, Any]:
    """A vision tower of width 32 with patches of 7 pixels: 4 x 4 of them."""
    return {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": SIDE,
        "patch_size": 7,
        **changes,
    }


def mark_id(mark: str) -> int:
    """The token of a mark."""
    return MARKS.index(mark)
