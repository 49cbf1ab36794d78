"""A ready-made model that tells the object from its background."""

from __future__ import annotations

import os
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.installed_packages import need


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
