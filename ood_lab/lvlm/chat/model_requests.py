"""Requests that go through a model together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ood_lab.lvlm.chat.base import Requests
from ood_lab.lvlm.chat.loaded_model import LoadedModel
from ood_lab.lvlm.chat.request_images import images_of, open_image


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
        texts = [vlm.rendered(request.messages) for request in batch]
        paths = [images_of(request.messages) for request in batch]
        opened = {path: open_image(path, max_pixels) for own in paths for path in own}
        return cls(vlm, texts, paths, [[opened[path] for path in own] for own in paths])

    def only(self, *rows: int) -> ModelRequest:
        """Some of them."""
        chosen = [[every[row] for row in rows] for every in (self.texts, self.paths, self.images)]
        return ModelRequest(self.vlm, *chosen)  # type: ignore[arg-type]

    @cached_property
    def encoded(self) -> Mapping[str, Any]:
        """Inputs of the model."""
        inputs: Mapping[str, Any] = self.vlm.encode(self.texts, self.images)
        return inputs

    @property
    def images_each(self) -> int:
        """Images of every request."""
        return len(self.paths[0])

    @property
    def is_mixed(self) -> bool:
        """Whether the images are of different sizes."""
        return len({image.size for own in self.images for image in own}) > 1

    @property
    def is_padded(self) -> bool:
        """Whether the prompts are of different lengths."""
        return bool((self.encoded["attention_mask"] == 0).any())
