"""Vision-language models of transformers, loaded from a folder."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
import xxhash
from PIL import Image
from torch import Tensor

from ood_lab.common.arguments import Count
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import read_json
from ood_lab.lvlm.chat.base import Message, longest_reply
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.models.loading.hub_models import model_folder

_SHIPPED = Path(__file__).parent.parent / "shipped"


@dataclass(frozen=True)
class ModelFolder:
    """A folder with a model of transformers and its processor.

    Args:
        given: as the user wrote it; ``shipped:NAME`` is one of this package.
        setting: where the user wrote it, for messages.
        trust_remote_code: run code that is next to the weights.
        download: fetch a model that is named by its id on the hub and not in the hub's cache;
            None = such names are not looked for at all.
    """

    given: str
    setting: str = "lvlm.path"
    trust_remote_code: bool = False
    download: bool | None = None

    @property
    def named(self) -> str:
        """What the user wrote, for messages."""
        return f"{self.setting}={self.given}"

    @property
    def _plain(self) -> str:
        return self.given.removeprefix("shipped:")

    @property
    def _options(self) -> dict[str, bool]:
        return {"local_files_only": True, "trust_remote_code": self.trust_remote_code}

    @property
    def name(self) -> str:
        """The last part of the name."""
        return Path(self._plain).name

    @cached_property
    def path(self) -> Path:
        """The folder, which need not be there; that of a name on the hub is in its cache.

        Raises:
            UserError: such a model is not here, and is not to be fetched or cannot be.
        """
        if self.given.startswith("shipped:"):
            return _SHIPPED / self._plain
        if self.download is None:
            return Path(self._plain)
        return model_folder(self._plain, self.setting, self.download)

    @cached_property
    def revision(self) -> str:
        """Hash of the files of the model.

        Raises:
            UserError: there is no such folder.
        """
        if not self.path.is_dir():
            raise UserError(f"{self.named} is not a directory: name that of a local model")
        digest = xxhash.xxh3_128()
        for file in sorted(self.path.iterdir()):
            if file.suffix in (".json", ".safetensors", ".bin", ".jinja", ".model", ".py"):
                digest.update(file.name.encode())
                with file.open("rb") as content:
                    while block := content.read(1 << 24):
                        digest.update(block)
        return digest.hexdigest()

    @property
    def knows(self) -> str | None:
        """What it was trained on, where its folder says that this is not the world at large."""
        about = self.path / "about.json"
        return read_json(about).get("knows") if about.is_file() else None

    def load_processor(self) -> Any:
        """What makes a model's inputs of texts and images.

        Raises:
            UserError: the folder holds no model, or one that sees no images or cannot be asked.
        """
        transformers = _transformers()
        if not (self.path / "config.json").is_file():
            raise UserError(f"{self.named} holds no config.json: name the folder of a model")
        with self._failures_in_one_line():
            processor = transformers.AutoProcessor.from_pretrained(self.path, **self._options)
        if getattr(processor, "image_processor", None) is None:
            raise UserError(self._sees_no_images)
        if getattr(processor, "chat_template", None) is None:
            processor.chat_template = self._template(processor)
        return processor

    def _template(self, processor: Any) -> str:
        """The chat template of a processor that does not read it, or the tokenizer's."""
        file = self.path / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        own = getattr(processor.tokenizer, "chat_template", None)
        if own is None:
            raise UserError(
                f"{self.named} has no chat template: it is not made to be asked, unless you put "
                "one next to it as chat_template.jinja"
            )
        return str(own)

    def load_model(self, dtype: str, device_map: str | None = None) -> Any:
        """Only the model, in evaluation mode; ``device_map`` is accelerate's.

        Raises:
            UserError: it cannot be loaded.
        """
        transformers = _transformers()
        transformers.logging.disable_progress_bar()  # a bar of one shard tells nothing
        with self._failures_in_one_line():
            model = transformers.AutoModelForImageTextToText.from_pretrained(
                self.path, dtype=dtype, device_map=device_map, **self._options
            )
        return model.eval()

    @property
    def _sees_no_images(self) -> str:
        return f"{self.named} has no image processor: it sees no images"

    @contextmanager
    def _failures_in_one_line(self) -> Iterator[None]:
        from safetensors import SafetensorError

        kinds = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)
        try:
            yield
        except kinds as error:
            reason = " ".join(str(error).split())[:200]
            if "load image processor" in reason:
                raise UserError(self._sees_no_images) from error
            raise UserError(f"{self.named} cannot be loaded: {reason}") from error


@dataclass(eq=False)
class LocalChat:
    """What all models in a folder have in common.

    Args:
        path: folder of the model and its processor (``shipped:NAME`` = of this package), or its
            id on the hub.
        max_new_tokens: longest reply; ``auto`` = what suits the question, see
            :data:`~ood_lab.lvlm.chat.base.LONGEST`.
        dtype: ``float32``, ``bfloat16``, ``float16``; None = that of the weights.
        max_pixels: larger images are made smaller first; None = left to the processor.
        trust_remote_code: run code that is next to the weights.
        download: fetch a model that is named by its id and not here yet.
    """

    path: str
    max_new_tokens: Count | Literal["auto"] = field(default="auto", kw_only=True)
    dtype: Literal["float32", "bfloat16", "float16"] | None = field(default=None, kw_only=True)
    max_pixels: Count | None = field(default=None, kw_only=True)
    trust_remote_code: bool = field(default=False, kw_only=True)
    download: bool = field(default=False, kw_only=True)

    @cached_property
    def folder(self) -> ModelFolder:
        """The folder of the model."""
        return ModelFolder(str(self.path), "lvlm.path", self.trust_remote_code, self.download)

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Content of the folder and everything that changes a reply."""
        return self._made_with(self.max_new_tokens)

    def made_for(self, question: Question) -> Mapping[str, Any]:
        """The same with the longest reply to this question."""
        return self._made_with(longest_reply(self.max_new_tokens, question))

    @property
    def _about(self) -> dict[str, Any]:
        known = {"model": self.folder.name, "revision": self.folder.revision}
        return {**known, "max_pixels": self.max_pixels}

    def _made_with(self, longest: int | str) -> Mapping[str, Any]:
        raise NotImplementedError


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

    def rendered(self, messages: Sequence[Message]) -> str:
        """The prompt, in the model's own template."""
        return rendered(self.processor, [_in_parts(message) for message in messages])

    def encode(self, texts: Sequence[str], images: Sequence[Sequence[Image.Image]]) -> Any:
        """Inputs of the model, padded where its positions do not count from."""
        side = "right" if has_encoder(self.model) else "left"
        inputs = encoded(self.processor, texts, images, side)
        inputs.pop("labels", None)  # PaliGemma's, which are for training
        return inputs.to(self.model.device, dtype=self.model.dtype)

    def generated(self, sequences: Tensor, prompts: Tensor) -> Tensor:
        """Only the new tokens of what ``generate`` returned, ``[B, L]``.

        Most models return the prompt, too; those with an encoder begin with a token that starts
        the decoder, and some return only what is new.
        """
        if has_encoder(self.model):
            return sequences[:, 1:]
        length = prompts.shape[1]
        return sequences[:, length:] if torch.equal(sequences[:, :length], prompts) else sequences


def _transformers() -> ModuleType:
    with reported_as("lvlm needs transformers: pip install 'ood_lab[lvlm]'", ImportError):
        import transformers
    return transformers


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
        images=[list(own) for own in images] if any(images) else None,
        padding=True,
        padding_side=padding_side,
        return_tensors="pt",
        **options,
    )


def has_encoder(model: Any) -> bool:
    """Whether an encoder reads the prompt, and a decoder writes a sequence of its own."""
    config = model.config
    return bool(
        config.is_encoder_decoder or getattr(config.get_text_config(), "is_encoder_decoder", False)
    )


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


def _in_parts(message: Message) -> dict[str, Any]:
    """A message in the form of transformers' templates, which name no image."""
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts = [{"type": "image"} if part["type"] == "image_url" else part for part in content]
    return {**message, "content": parts}
