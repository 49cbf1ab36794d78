"""A material carried from one image to the shape of another (ZeST, arXiv:2404.06425)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.synthesis.pretrained_models import (
    check_model,
    check_package,
    load_transformers,
)
from ood_lab.synthesis.text_to_image import check_arguments, load_pipeline, released

#: Text that goes with every image.
PROMPT = "best quality, high quality"
#: What the pipeline is handed for each image.
_OWN = ("prompt", "image", "mask_image", "control_image", "ip_adapter_image", "generator")


def check_transfer(
    folders: Mapping[str, str | None], adapter: Mapping[str, str | None]
) -> dict[str, str]:
    """Says everything that is missing before anything is loaded.

    Args:
        folders: of the ``pipeline`` (Stable Diffusion or its XL), the depth ``controlnet`` of the
            same family and the ``depth`` estimator.
        adapter: ``folder`` with ``weights`` and ``image_encoder`` inside.

    Returns:
        The folders, and the adapter's as ``ip_adapter``.

    Raises:
        UserError: packages or files are missing, all of them named.
    """
    check_package("diffusers", "transformers", "accelerate")
    place = adapter.get("folder")
    encoder = None if place is None else f"{place}/{adapter.get('image_encoder')}"
    models = {f"task.{name}": folder for name, folder in folders.items()}
    check_model({**models, "task.ip_adapter.folder": encoder})
    weights = Path(f"{place}/{adapter.get('weights')}").expanduser()
    if not weights.is_file():
        raise UserError(f"task.ip_adapter.weights: no file {weights}")
    return {
        name: str(Path(str(folder)).expanduser())
        for name, folder in {**folders, "ip_adapter": place}.items()
    }


class MaterialTransfer:
    """Repaints the foreground of an image in the material of an exemplar.

    As in ZeST: the exemplar enters through the IP-Adapter, the shape through a depth ControlNet,
    and the light through the start image, whose foreground is grey; only the foreground is
    inpainted. Seeded an image.

    Args:
        folders: see :func:`check_transfer`.
        adapter: ``weights`` and ``image_encoder`` inside the adapter's folder.
        arguments: of every call, such as ``num_inference_steps`` and ``strength``.
        device: where to run.
        dtype: of the weights.
        variant: of the pipeline's weights.

    Raises:
        UserError: something cannot be loaded, or the pipeline takes no such argument.
    """

    def __init__(
        self,
        folders: Mapping[str, str],
        adapter: Mapping[str, str],
        arguments: Settings,
        device: torch.device,
        dtype: torch.dtype,
        variant: str | None,
    ) -> None:
        from diffusers import AutoPipelineForInpainting, ControlNetModel

        with reported_as("task.controlnet cannot be loaded: {reason}"):
            control = ControlNetModel.from_pretrained(folders["controlnet"], torch_dtype=dtype)
        self.pipeline = load_pipeline(
            AutoPipelineForInpainting,
            folders["pipeline"],
            device,
            controlnet=control,
            torch_dtype=dtype,
            variant=variant,
            local_files_only=True,
        )
        check_arguments(self.pipeline, arguments)
        if taken := sorted(set(arguments) & set(_OWN)):
            raise UserError(f"task.arguments may not hold {', '.join(taken)}: the task gives them")
        file = Path(adapter["weights"])
        with reported_as("task.ip_adapter does not fit the pipeline: {reason}"):
            self.pipeline.load_ip_adapter(
                folders["ip_adapter"],
                subfolder=file.parent.as_posix(),
                weight_name=file.name,
                # With a slash it is taken from the folder, not from the weights' sub-folder.
                image_encoder_folder=f"./{adapter['image_encoder']}",
                local_files_only=True,
            )
        self.pipeline.set_ip_adapter_scale(1.0)
        self.depth = load_transformers("depth-estimation", "task.depth", folders["depth"], device)
        self.arguments = dict(arguments)

    def __call__(
        self, content: Image.Image, exemplar: Image.Image, mask: Image.Image, seed: int
    ) -> Image.Image | None:
        """The content with the exemplar's material on its foreground, in the content's size.

        Args:
            content: gives shape, light and background; sides are multiples of 8.
            exemplar: gives the material.
            mask: white = foreground; of the content's size.
            seed: of the noise.

        Returns:
            The image; None where the pipeline's own safety check withholds it.
        """
        output = self.pipeline(
            prompt=PROMPT,
            image=grey_foreground(content, mask),
            mask_image=mask,
            control_image=self.depth(content)["depth"].convert("RGB"),
            ip_adapter_image=exemplar,
            height=content.height,
            width=content.width,
            generator=torch.Generator().manual_seed(seed),
            output_type="pil",
            **self.arguments,
        )
        return released(output)[0]


def grey_foreground(content: Image.Image, mask: Image.Image) -> Image.Image:
    """The content with its foreground in grey: light and shading stay, the old colour does not."""
    return Image.composite(content.convert("L").convert("RGB"), content, mask.convert("L"))


def fit_size(image: Image.Image, longest: int) -> Image.Image:
    """Scales an image so that its longer side is ``longest``, sides rounded to multiples of 8."""
    factor = longest / max(image.size)
    width, height = (max(8, 8 * round(side * factor / 8)) for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def fit_mask(mask: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A mask in the size of its image: 255 where it was brighter than half.

    Raises:
        UserError: there is no foreground in it.
    """
    pixels = np.asarray(mask.convert("L").resize(size, Image.Resampling.NEAREST)) > 127
    if not pixels.any():
        raise UserError("the mask is empty: white must mark the foreground")
    return Image.fromarray(255 * pixels.astype(np.uint8))
