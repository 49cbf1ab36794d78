"""Folders with vision-language models of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import xxhash

from ood_lab.common.errors import UserError, one_line, reported_as
from ood_lab.common.files import read_json
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
        template = processor.tokenizer.chat_template
        if template is None:
            raise UserError(
                f"{self.named} has no chat template: it is not made to be asked, unless you put "
                "one next to it as chat_template.jinja"
            )
        return str(template)

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
            reason = one_line(error)[:200]
            if "load image processor" in reason:
                raise UserError(self._sees_no_images) from error
            raise UserError(f"{self.named} cannot be loaded: {reason}") from error


def _transformers() -> ModuleType:
    with reported_as("lvlm needs transformers: pip install 'ood_lab[lvlm]'", ImportError):
        import transformers
    return transformers
