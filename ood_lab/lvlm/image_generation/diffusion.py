"""Any text-to-image pipeline of diffusers as a generator."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import file_sha256
from ood_lab.common.grouping import grouped
from ood_lab.lvlm.image_generation.compositions import Orders
from ood_lab.lvlm.image_generation.prompt_generator import PromptGenerator
from ood_lab.synthesis.pretrained_models import Dtype


@dataclass(eq=False)
class DiffusionGenerator(PromptGenerator):
    """Images of prompts, each from a seed of its own.

    Args:
        path: folder of a pipeline, or the id of one on this machine.
        form, per_composition, seeds, variants: see
            :class:`~ood_lab.lvlm.image_generation.prompt_generator.PromptGenerator`.
        arguments: of every call of the pipeline, such as ``height``.
        dtype: of the weights.
        variant: of the weights, such as ``fp16``.
        download: fetch what is missing.
    """

    path: str | None = None
    arguments: Settings = field(default_factory=dict)
    dtype: Dtype = "float32"
    variant: str | None = None
    download: bool = False

    @property
    def made_with(self) -> Settings:
        """The pipeline's own description, the settings and the versions."""
        from ood_lab.synthesis import package_versions

        index = Path(str(self.path)).expanduser() / "model_index.json"
        digest = file_sha256(index) if index.exists() else None
        return {
            "generator": "diffusers",
            "path": str(self.path),
            "model_index": digest,
            "form": self.form,
            "dtype": self.dtype,
            "arguments": dict(self.arguments),
            "versions": package_versions(("diffusers", "transformers", "torch")),
        }

    def check(self) -> None:
        """Raises a UserError where the pipeline is not there or not complete."""
        self._source  # noqa: B018

    def images(self, orders: Orders) -> list[Image.Image | None]:
        """See :class:`~ood_lab.lvlm.image_generation.compositions.Generator`."""
        results: dict[int, Image.Image | None] = {}
        groups = grouped(
            (json.dumps(order.settings, sort_keys=True), place)
            for place, order in enumerate(orders)
        )
        for settings, places in groups.items():
            self._pipeline.arguments = {**self.arguments, **json.loads(settings)}
            images = self._pipeline(
                [orders[place].prompt for place in places],
                [orders[place].seed for place in places],
                [orders[place].negative_prompt for place in places],
            )
            results |= dict(zip(places, images, strict=True))
        return [results[place] for place in range(len(orders))]

    @cached_property
    def _source(self) -> str:
        from ood_lab.synthesis.text_to_image import check_pipeline

        if self.path is None:
            raise UserError("no pipeline: give generator.path=DIR, a text-to-image pipeline")
        return check_pipeline(self.path, self.variant, self.download, "generator.path")

    @cached_property
    def _pipeline(self) -> Any:
        from ood_lab.common.compute_device import chosen_device
        from ood_lab.synthesis.pretrained_models import chosen_dtype
        from ood_lab.synthesis.text_to_image import TextToImage

        device = chosen_device(None)
        return TextToImage(
            self._source,
            self.arguments,
            device,
            chosen_dtype(self.dtype, device),
            self.variant,
            self.download,
        )
