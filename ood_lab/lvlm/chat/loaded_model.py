"""A vision-language model in memory: prompts and images in, tokens out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from ood_lab.common.arguments import Fields
from ood_lab.lvlm.chat.base import Message, Requests
from ood_lab.lvlm.chat.request_images import images_of, open_image


class LoadedModel(NamedTuple):
    """A model, its processor and what must be known of them to ask.

    Args:
        model: in evaluation mode, on its device.
        processor: makes the model's inputs of texts and images.
        pad: token that fills short rows.
        ends: tokens that end a reply.
        image_inputs: what :func:`image_inputs` says.
    """

    model: Any
    processor: Any
    pad: int
    ends: frozenset[int]
    image_inputs: tuple[str, ...]

    def generated(self, sequences: Tensor, prompts: Tensor) -> Tensor:
        """Only the new tokens of what ``generate`` returned, ``[B, L]``.

        Most models return the prompt, too; those with an encoder begin with a token that starts
        the decoder, and some return only what is new.
        """
        if has_encoder(self.model):
            return sequences[:, 1:]
        length = prompts.shape[1]
        return sequences[:, length:] if torch.equal(sequences[:, :length], prompts) else sequences


def rendered(processor: Any, messages: Sequence[Message], reply: bool = True) -> str:
    """A conversation in the template of the processor's model, ready for a ``reply`` or without."""
    text: str = processor.apply_chat_template(
        list(messages), tokenize=False, add_generation_prompt=reply
    )
    return text


def encoded(
    processor: Any,
    texts: Sequence[str],
    images: Sequence[Sequence[Image.Image]],
    padding_side: str = "left",
) -> Any:
    """Inputs of a model for rendered conversations.

    A text that begins with the token that begins a sequence is not given another one, as in
    transformers' own ``apply_chat_template(tokenize=True)``.

    Args:
        processor: of the model.
        texts: as the chat template rendered them.
        images: of each text, all or none of which have some.
        padding_side: ``left`` or ``right``.
    """
    begins = processor.tokenizer.bos_token
    options = {"add_special_tokens": False} if begins and texts[0].startswith(begins) else {}
    return processor(
        text=list(texts),
        images=[list(row) for row in images] if any(images) else None,
        padding=True,
        padding_side=padding_side,
        return_tensors="pt",
        **options,
    )


def has_encoder(model: Any) -> bool:
    """Whether an encoder reads the prompt, and a decoder writes a sequence of its own."""
    config = model.config
    return bool(config.is_encoder_decoder or config.get_text_config().is_encoder_decoder)


def image_inputs(model: Any) -> tuple[str, ...]:
    """What ``get_image_features`` reads; () where a model does not take features in its place."""
    makes = getattr(model, "get_image_features", None)
    if makes is None or "mm_encoder_outputs" not in inspect.signature(model.forward).parameters:
        return ()
    return tuple(name for name in inspect.signature(makes).parameters if name != "kwargs")


def described(model: Any, processor: Any) -> LoadedModel:
    """A model with what its configuration and its processor say of it."""
    ends = model.generation_config.eos_token_id or processor.tokenizer.eos_token_id
    ends = frozenset(ends if isinstance(ends, list) else [ends])
    pad = processor.tokenizer.pad_token_id
    pad = next(iter(ends)) if pad is None else pad
    return LoadedModel(model, processor, pad, ends, image_inputs(model))


def _in_parts(message: Message) -> Fields:
    """A message in the form of transformers' templates, which name no image."""
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts = [{"type": "image"} if part["type"] == "image_url" else part for part in content]
    return {**message, "content": parts}


@dataclass
class ModelRequest:
    """Requests with as many images each, made ready for a model."""

    vlm: LoadedModel
    texts: list[str]
    paths: list[list[str]]
    images: list[list[Any]]

    @classmethod
    def of(cls, batch: Requests, vlm: LoadedModel, max_pixels: int | None) -> ModelRequest:
        """Opens the images, each once."""
        texts = [rendered(vlm.processor, [*map(_in_parts, item.messages)]) for item in batch]
        paths = [images_of(request.messages) for request in batch]
        opened = {path: open_image(path, max_pixels) for row in paths for path in row}
        return cls(vlm, texts, paths, [[opened[path] for path in row] for row in paths])

    def only(self, rows: Sequence[int]) -> ModelRequest:
        """Some of them."""
        texts, paths = [self.texts[row] for row in rows], [self.paths[row] for row in rows]
        return ModelRequest(self.vlm, texts, paths, [self.images[row] for row in rows])

    @cached_property
    def encoded(self) -> Mapping[str, Any]:
        """Inputs of the model, padded where its positions do not count from."""
        model = self.vlm.model
        side = "right" if has_encoder(model) else "left"
        inputs = encoded(self.vlm.processor, self.texts, self.images, side)
        inputs.pop("labels", None)  # PaliGemma's, which are for training
        on_device: Mapping[str, Any] = inputs.to(model.device, dtype=model.dtype)
        return on_device

    @property
    def images_each(self) -> int:
        """Images of every request."""
        return len(self.paths[0])

    @property
    def is_mixed(self) -> bool:
        """Whether the images are of different sizes."""
        return len({image.size for row in self.images for image in row}) > 1

    @property
    def is_padded(self) -> bool:
        """Whether the prompts are of different lengths."""
        return bool((self.encoded["attention_mask"] == 0).any())
