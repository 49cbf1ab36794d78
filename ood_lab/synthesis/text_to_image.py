"""Any text-to-image pipeline of diffusers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.synthesis.pretrained_models import check_model, check_package


def check_pipeline(
    source: str, variant: str | None, download: bool, option: str = "task.pipeline"
) -> str:
    """Says what is missing before anything is loaded.

    Args:
        source: a folder, or the id of a model in the local cache.
        variant: of the weights.
        download: what is missing may be fetched.
        option: what messages call the source.

    Returns:
        The folder; the id where it is yet to be downloaded.

    Raises:
        UserError: packages or files are missing, all of them named.
    """
    check_package("diffusers", "transformers", "accelerate")
    place = Path(source).expanduser()
    if place.is_dir():
        if not (place / "model_index.json").exists():
            raise UserError(f"{option}={source} has no model_index.json, so it is not a pipeline")
        check_model({option: source})
        return str(place)
    if place.is_absolute() or source.count("/") != 1:
        raise UserError(f"{option}={source} is neither a folder nor an id such as owner/name")
    if download:
        return source
    from diffusers import DiffusionPipeline

    with reported_as(
        f"'{source}' is not on this machine: set {option.rpartition('.')[0]}.download=true "
        f"once, or fetch it elsewhere (hf download {source}) and give {option}=DIR"
    ):
        cached = DiffusionPipeline.download(source, local_files_only=True, variant=variant)
    return str(cached)


class TextToImage:
    """Images of prompts, each from its own seed.

    The noise of an image comes from a generator of its own on the CPU, so it depends neither on
    the batch nor on the device; the arithmetic of another batch size or device still rounds
    differently.

    Args:
        source: folder or id, see :func:`check_pipeline`.
        arguments: of every call, such as ``num_inference_steps`` and ``guidance_scale``.
        device: where to run.
        dtype: of the weights.
        variant: of the weights, such as ``fp16``.
        download: fetch what is missing.

    Raises:
        UserError: the pipeline cannot be loaded, or takes no such argument.
    """

    def __init__(
        self,
        source: str,
        arguments: Settings,
        device: torch.device,
        dtype: torch.dtype,
        variant: str | None,
        download: bool,
    ) -> None:
        from diffusers import DiffusionPipeline

        self.arguments = dict(arguments)
        self.pipeline = load_pipeline(
            DiffusionPipeline,
            source,
            device,
            torch_dtype=dtype,
            variant=variant,
            local_files_only=not download,
        )
        self._known = check_arguments(self.pipeline, self.arguments)

    def __call__(
        self, prompts: Sequence[str], seeds: Sequence[int], negative_prompts: Sequence[str]
    ) -> list[Image.Image | None]:
        """One image a prompt; None where the pipeline's own safety check withholds it."""
        arguments = dict(self.arguments)
        if any(negative_prompts) and "negative_prompt" in self._known:
            arguments["negative_prompt"] = list(negative_prompts)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        output = self.pipeline(
            prompt=list(prompts), generator=generators, output_type="pil", **arguments
        )
        return released(output)


def released(output: Any) -> list[Image.Image | None]:
    """The images of a pipeline's output; None where its own safety check withholds one."""
    flagged = getattr(output, "nsfw_content_detected", None) or [False] * len(output.images)
    return [None if bad else image for image, bad in zip(output.images, flagged, strict=True)]


def load_pipeline(kind: Any, source: str, device: torch.device, **arguments: Any) -> Any:
    """``kind.from_pretrained`` on a device, quietly.

    Raises:
        UserError: it cannot be loaded.
    """
    from diffusers.utils import logging
    from transformers.utils import logging as logging_of_parts

    for library in (logging, logging_of_parts):
        library.set_verbosity_error()
        library.disable_progress_bar()
    with reported_as(f"pipeline '{source}' cannot be loaded: {{reason}}"):
        pipeline = kind.from_pretrained(str(Path(source).expanduser()), **arguments)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device)


def check_arguments(pipeline: Any, arguments: Settings) -> set[str]:
    """Names that a call of the pipeline takes; raises ``UserError`` naming those it does not."""
    accepted = set(inspect.signature(pipeline.__call__).parameters)
    if unknown := sorted(set(arguments) - accepted):
        raise UserError(
            f"{type(pipeline).__name__} takes no task.arguments.{', '.join(unknown)}; it takes "
            f"{', '.join(sorted(accepted))}"
        )
    return accepted
