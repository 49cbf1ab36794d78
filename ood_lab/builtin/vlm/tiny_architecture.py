"""The architecture of the tiny vision-language model: FastVLM's, with few parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ood_lab.builtin.vlm.dialogues import corpus

if TYPE_CHECKING:
    from transformers import LlavaProcessor, PreTrainedModel, PreTrainedTokenizerFast

#: Pixels of a side of an image, and of a visual token.
SIZE, PATCH = 96, 8
#: Width of the features of the tower.
FEATURES = 160
_IMAGE, _USER, _SYSTEM, _ASSISTANT, _END, _PAD = (
    "<image>",
    "<|user|>",
    "<|system|>",
    "<|assistant|>",
    "<|end|>",
    "<|pad|>",
)
_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}"
    "{% for part in message['content'] if part['type'] == 'image' %}<image>{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }}{% endfor %}"
    "{% endif %}{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class Vlm(NamedTuple):
    """A model with what makes its inputs."""

    model: PreTrainedModel
    processor: LlavaProcessor


def untrained_vlm(hidden: int = 128, layers: int = 2, heads: int = 4, vocabulary: int = 700) -> Vlm:
    """A FastVLM (arXiv 2412.13303: LLaVA with a convolutional tower) with fresh weights.

    The tower is a ResNet of 6 blocks whose 144 features of an image of 96 x 96 pixels become
    visual tokens; the language model is a Llama with a byte-level BPE made from the questions.

    Args:
        hidden: width of the language model.
        layers: its blocks.
        heads: attention heads of a block.
        vocabulary: entries of the tokenizer.
    """
    from transformers import (
        FastVlmConfig,
        FastVlmForConditionalGeneration,
        LlamaConfig,
        LlavaProcessor,
        TimmWrapperConfig,
    )
    from transformers.models.clip import CLIPImageProcessor

    tokenizer = _tokenizer(vocabulary)
    vision = TimmWrapperConfig(
        architecture="resnet10t",
        do_pooling=False,
        hidden_size=FEATURES,  # type: ignore[call-arg]  # kept as an attribute
        model_args={
            "channels": [32, 64, 128, FEATURES],
            "layers": [1, 2, 2, 1],
            "output_stride": PATCH,
            "stem_width": 16,
            "stem_type": "deep",
        },
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=1024,
        initializer_range=0.05,
        rope_parameters={"rope_type": "default", "rope_theta": 1e8},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config = FastVlmConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.get_vocab()[_IMAGE],
        image_seq_length=(SIZE // PATCH) ** 2,
        tie_word_embeddings=True,
    )
    model: Any = FastVlmForConditionalGeneration(config)
    for owner in (model.config, model.generation_config):
        owner.eos_token_id = tokenizer.eos_token_id
        owner.pad_token_id = tokenizer.pad_token_id
    images = CLIPImageProcessor(
        size={"height": SIZE, "width": SIZE},
        do_center_crop=False,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    processor = LlavaProcessor(
        images,
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        chat_template=_TEMPLATE,
    )
    return Vlm(model, processor)


def _tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE: any text can be written, words of the questions are single tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = [_PAD, _IMAGE, _USER, _SYSTEM, _ASSISTANT, _END]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=_PAD,
        eos_token=_END,
        additional_special_tokens=[_IMAGE, _USER, _SYSTEM, _ASSISTANT],
        extra_special_tokens={"image_token": _IMAGE},
        padding_side="left",
        model_max_length=1024,
    )
