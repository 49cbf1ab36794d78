"""The architecture of the tiny vision-language model: FastVLM's, with few parameters."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from ood_lab.builtin.vlm.dialogues import corpus
from ood_lab.common.files import packaged_table

if TYPE_CHECKING:
    from transformers import LlavaProcessor, PreTrainedModel, PreTrainedTokenizerFast

_FIXED = packaged_table(__package__, "tiny_architecture.yaml")
#: Pixels of a side of an image, and of a visual token.
SIZE, PATCH = _FIXED["images"]["size"]["width"], _FIXED["tower"]["model_args"]["output_stride"]
#: Width of the features of the tower.
FEATURES = _FIXED["tower"]["hidden_size"]
_TOKENIZER = _FIXED["tokenizer"]


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

    tokenizer, fixed = _tokenizer(vocabulary), deepcopy(_FIXED)  # configurations keep what they get
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **fixed["language"],
    )
    config = FastVlmConfig(
        vision_config=TimmWrapperConfig(**fixed["tower"]),
        text_config=text,
        image_token_index=tokenizer.get_vocab()[_TOKENIZER["extra_special_tokens"]["image_token"]],
        image_seq_length=(SIZE // PATCH) ** 2,
        tie_word_embeddings=True,
    )
    model: Any = FastVlmForConditionalGeneration(config)
    for owner in (model.config, model.generation_config):
        owner.eos_token_id = tokenizer.eos_token_id
        owner.pad_token_id = tokenizer.pad_token_id
    processor = LlavaProcessor(
        CLIPImageProcessor(**fixed["images"]),
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        chat_template=fixed["chat_template"],
    )
    return Vlm(model, processor)


def _tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE: any text can be written, words of the questions are single tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    pad, end = _TOKENIZER["pad_token"], _TOKENIZER["eos_token"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[pad, *_TOKENIZER["additional_special_tokens"], end],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **deepcopy(_TOKENIZER))
