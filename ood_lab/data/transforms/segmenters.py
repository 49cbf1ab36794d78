"""Ready-made models that tell the object from its background."""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torchvision.models.segmentation import DeepLabV3_ResNet50_Weights, deeplabv3_resnet50
from torchvision.transforms.v2 import functional as T

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath
from ood_lab.common.hints import missing_path
from ood_lab.common.installed_packages import need

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Rembg:
    """The salient object of an image, by a model of the package ``rembg`` (extra `background`).

    Soft masks in 1/255, of the image's size.

    Args:
        model: its name there: ``u2net``, ``isnet-general-use``, ``birefnet-general``, ...
        download: let the package fetch the model where it is not yet on this machine.

    Raises:
        UserError: the package or the model is not there.
    """

    def __init__(self, model: str = "u2net", download: bool = False) -> None:
        need("rembg", "background", "data/segmenter=rembg")
        self.model = model
        places = self._places()
        if not download and not any(place.is_file() for place in places):
            raise UserError(
                f"rembg's model '{model}' is not on this machine ({places[0]}): put it there, or "
                "fetch it once with data.segmenter.download=true"
            )

    def _places(self) -> list[Path]:
        """The places where releases of the package look for the model's file, the latest first."""
        configured, data = os.environ.get("U2NET_HOME"), os.environ.get("XDG_DATA_HOME")
        home = (
            configured or os.environ.get("REMBG_HOME") or (f"{data}/rembg" if data else "~/.rembg")
        )
        before = configured or f"{data or '~'}/.u2net"
        file = f"{self.model}.onnx"
        return [
            Path(home).expanduser() / "models" / self.model / file,
            Path(before).expanduser() / file,
        ]

    @property
    def identity(self) -> str:
        """Package, version and model."""
        return f"rembg {version('rembg')} {self.model}"

    @cached_property
    def _session(self) -> Any:
        from rembg import new_session

        # An unknown name, no network, a damaged file: each raises its own kind.
        with reported_as(f"rembg cannot load its model '{self.model}': {{reason}}"):
            return new_session(self.model)

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Share of the object in every pixel, ``[H, W]``."""
        from rembg import remove

        mask = remove(image, session=self._session, only_mask=True)
        return np.asarray(mask.convert("L"), np.float32) / 255


class DeepLab:
    """Everything that torchvision's DeepLabv3-ResNet50 does not call background.

    It knows the 20 classes of Pascal VOC (bottles, pots with plants, chairs, ...), so look at its
    masks before believing them for other objects.

    Args:
        weights: file of torchvision's weights; None = torchvision's own.
        download: let torchvision fetch its own, where they are not yet in its cache.
        side: length of the image's shorter side for the network.
        device: None = the first GPU, else the CPU.

    Raises:
        UserError: weights that are not there or do not fit.
    """

    def __init__(
        self,
        weights: StrPath | None = None,
        download: bool = False,
        side: int = 520,
        device: str | None = None,
    ) -> None:
        cached = Path(torch.hub.get_dir()) / "checkpoints"
        url = DeepLabV3_ResNet50_Weights.DEFAULT.url
        self._own = weights is None
        self.weights = Path(weights) if weights else cached / url.rsplit("/", 1)[1]
        if not self.weights.is_file() and not (self._own and download):
            if not self._own:
                raise missing_path(self.weights)
            raise UserError(
                f"torchvision's weights are not on this machine ({self.weights}): give "
                "data.segmenter.weights=FILE, or data.segmenter.download=true"
            )
        self.side = side
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")

    @cached_property
    def identity(self) -> str:
        """Sizes and the sha256 of the weights."""
        self._net  # noqa: B018  (weights that are still to come)
        with self.weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return f"deeplabv3_resnet50 {self.side} {digest}"

    @cached_property
    def _net(self) -> nn.Module:
        if self._own:
            net = deeplabv3_resnet50(weights=DeepLabV3_ResNet50_Weights.DEFAULT)
        else:
            net = deeplabv3_resnet50(
                weights=None, weights_backbone=None, num_classes=21, aux_loss=True
            )
            with reported_as(
                f"{self.weights} holds no weights of torchvision's deeplabv3_resnet50: {{reason}}"
            ):
                net.load_state_dict(torch.load(self.weights, weights_only=True))
        return net.eval().to(self.device)

    @torch.inference_mode()
    def __call__(self, image: Image.Image) -> np.ndarray:
        """1 on the objects, 0 elsewhere, ``[H, W]``."""
        pixels = T.resize(T.to_dtype(T.to_image(image), torch.float32, scale=True), [self.side])
        batch = T.normalize(pixels, list(_MEAN), list(_STD))[None].to(self.device)
        scores = self._net(batch)["out"]
        scores = F.interpolate(scores, image.size[::-1], mode="bilinear", align_corners=False)
        return (scores[0].argmax(0) != 0).float().cpu().numpy()
