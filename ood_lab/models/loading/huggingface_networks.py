"""Image classifiers of Hugging Face, with their own image processor as the transform."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from ood_lab.common.errors import UserError, reported_as
from ood_lab.models.backbone import DataConfig
from ood_lab.models.image_transforms import of_unit_range
from ood_lab.models.loading.head_search import reading_of
from ood_lab.models.loading.headless_networks import FITTED
from ood_lab.models.loading.hub_models import model_folder
from ood_lab.models.loading.timm_networks import module_backbone
from ood_lab.models.loading.wrapped_network import (
    KEYWORD,
    NO_HEAD,
    OUTPUT,
    Reading,
    WrappedBackbone,
)
from ood_lab.models.trial_passes import random_batch

#: Files that say what an image processor does.
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")


def hf_backbone(
    path: str,
    download: bool = False,
    head: str | None = None,
    num_classes: int | None = None,
    classes: Sequence[str] = (),
) -> WrappedBackbone:
    """Makes a backbone of a model of ``transformers``.

    Args:
        path: a folder as ``save_pretrained`` writes it, or ``OWNER/NAME`` of the hub.
        download: fetch a model that is not in the hub's cache.
        head: ``linear`` or ``nearest_mean`` = the features of the model (``pooler_output``, or the
            first token) with such a head, to be fitted; ``none`` = only these; a name = that layer
            of the classifier; None = the layers that make its logits, if any do.
        num_classes: outputs of the head, which is fresh where the model has others; None = its own.
        classes: of a head that is fitted.

    Raises:
        UserError: no such model, no classifier, no image processor or that of another model, or
            logits that are not those of one linear layer.
    """
    folder, named = model_folder(path, "model.path", download), f"model.path={path}"
    _transformers()
    if not (folder / "config.json").is_file():
        raise UserError(f"{named} holds no config.json: name the folder of a model")
    transform = ProcessorTransform(_processor(folder, named))
    config = transform.data_config(named)
    headless = head in (*FITTED, NO_HEAD)
    fresh: list[str] = []
    if headless:
        net: _Classifier = _features(folder, named)
    else:
        net, fresh = _classifier(folder, named, num_classes)
    reading = _try(net, config, named, NO_HEAD if headless else head)
    of_head = () if num_classes is None else tuple(reading.names)
    if lost := [key for key in fresh if not f"model.{key}".startswith(of_head)]:
        raise UserError(
            f"{named} is not an image classifier: its files lack {lost[0]}. "
            "model.head=linear|nearest_mean fits a head on its features, model.head=none takes "
            "only these"
        )
    backbone = module_backbone(
        net,
        head,
        num_classes,
        data_config=config,
        classes=classes,
        name=Path(path).name,
        features=f"{KEYWORD}{OUTPUT}" if headless else None,
        classifier=True,
        reading=None if headless else reading,
    )
    backbone.transform = transform
    if not headless:
        config_of_model: Any = net.model.config
        backbone.fresh_head = bool(fresh)
        names = [] if fresh else [name for _, name in sorted(config_of_model.id2label.items())]
        backbone.outputs = names
    return backbone


@dataclass
class ProcessorTransform:
    """An image processor of ``transformers``: PIL image -> ``[3, H, W] float32``.

    Args:
        processor: of ``AutoImageProcessor``.
    """

    processor: Any

    def __call__(self, image: Image.Image) -> Tensor:
        """The image as the model takes it."""
        pixels = self.processor(images=image.convert("RGB"), return_tensors="pt")["pixel_values"]
        image_tensor: Tensor = pixels[0]
        return image_tensor

    def __repr__(self) -> str:
        """All settings: they key the features."""
        settings = json.dumps(self.processor.to_dict(), sort_keys=True, default=str)
        return f"{type(self.processor).__name__}({settings})"

    def data_config(self, named: str) -> DataConfig:
        """Size, mean and standard deviation of its images.

        Raises:
            UserError: they are of several sizes, or not ``[3, H, W]``.
        """
        with _one_line(named):
            sizes = {tuple(self(Image.new("RGB", size)).shape) for size in ((64, 48), (48, 64))}
        size = next(iter(sizes))
        if len(sizes) > 1 or len(size) != 3 or size[0] != 3:
            shown = " and ".join(str(list(size)) for size in sorted(sizes))
            raise UserError(
                f"{named}: its image processor makes {shown} of two images, but a batch needs "
                "[3, H, W] of one size: set size and crop_size in its preprocessor_config.json"
            )
        normalised = getattr(self.processor, "do_normalize", False)
        mean, std = (
            tuple(getattr(self.processor, f"image_{key}")) if normalised else (default,) * 3
            for key, default in (("mean", 0.0), ("std", 1.0))
        )
        of_pixels = dict(zip(("mean", "std"), of_unit_range(mean, std), strict=True))
        return {"input_size": size, **of_pixels}


class _Classifier(nn.Module):
    """Only the logits of a model for image classification."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=image).logits
        return logits


class _Features(_Classifier):
    """One vector per image of a model without a head."""

    def forward(self, image: Tensor) -> Tensor:
        output = self.model(pixel_values=image)
        pooled = getattr(output, "pooler_output", None)
        features: Tensor = output.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1)
        return features


_OPTIONS = {"local_files_only": True, "dtype": torch.float32, "output_loading_info": True}


def _features(folder: Path, named: str) -> _Features:
    """The model without a head; a pooling layer whose weights its files lack is taken out."""
    with _one_line(named):
        model, report = _transformers().AutoModel.from_pretrained(folder, **_OPTIONS)
    lost = sorted(report["missing_keys"])
    if any(key.startswith("pooler.") for key in lost):
        model.pooler = None
    if missing := [key for key in lost if not key.startswith("pooler.")]:
        raise UserError(f"{named} is not whole: its files lack {missing[0]}")
    return _Features(model)


def _classifier(folder: Path, named: str, num_classes: int | None) -> tuple[_Classifier, list[str]]:
    """The classifier, and the weights that its files lack, or have in another shape."""
    outputs = {} if num_classes is None else {"num_labels": num_classes}
    auto = _transformers().AutoModelForImageClassification
    with _one_line(named, " (is it an image classifier?)"):
        model, report = auto.from_pretrained(
            folder, ignore_mismatched_sizes=True, **outputs, **_OPTIONS
        )
    reshaped = (key for key, *_ in report["mismatched_keys"])
    return _Classifier(model), sorted({*report["missing_keys"], *reshaped})


def _processor(folder: Path, named: str) -> Any:
    if not any((folder / name).is_file() for name in _PROCESSORS):
        raise UserError(
            f"{named} has no image processor: add the preprocessor_config.json of its "
            "training to the folder"
        )
    with _one_line(named, " (is its preprocessor_config.json that of an image processor?)"):
        return _transformers().AutoImageProcessor.from_pretrained(folder, local_files_only=True)


def _try(net: nn.Module, config: DataConfig, named: str, head: str | None) -> Reading:
    """What is read of it for images of its own processor."""
    with reported_as(
        f"{named}: its image processor makes {list(config['input_size'])} of every image, "
        f"which the network does not take ({{reason}}): add the preprocessor_config.json of "
        "its training to the folder",
        (UserError, Exception),
    ):
        return reading_of(net, random_batch(net, config["input_size"]), named, head)


def _transformers() -> ModuleType:
    with reported_as("model=hf needs transformers: pip install 'ood_lab[lvlm]'", ImportError):
        import transformers
    transformers.logging.disable_progress_bar()
    return transformers


@contextmanager
def _one_line(named: str, hint: str = "") -> Iterator[None]:
    level = _transformers().logging.get_verbosity()
    _transformers().logging.set_verbosity_error()  # it reports fresh weights, which is done here
    try:
        with reported_as(f"{named} cannot be used: {{reason}}{hint}"):
            yield
    finally:
        _transformers().logging.set_verbosity(level)
