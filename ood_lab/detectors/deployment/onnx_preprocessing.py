"""The evaluation transform as part of an ONNX graph: from a picture to the network's input."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.transforms import CenterCrop, Compose, Grayscale, Normalize, Resize, ToTensor

from ood_lab.common.errors import UserError
from ood_lab.models.image_transforms import NormalisedTensor


def _bilinear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _bicubic(x: Tensor) -> Tensor:
    """Keys' kernel with a = -0.5, as Pillow has it."""
    x = x.abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


#: Binary digits of Pillow's weights.
BITS = 22
KERNELS: dict[str, Callable[[Tensor], Tensor]] = {"bilinear": _bilinear, "bicubic": _bicubic}


class Preprocessing(nn.Module):
    r"""``image uint8 [B, H, W, 3]`` of any size → what the network takes, ``[B, C, h, w] float32``.

    Resize is that of Pillow, to the last bit: pixel i of n' made of n pixels is

    .. math::
        y_i = \Big\lfloor \tfrac12 + \sum_j w_{ij} x_j \Big\rfloor_0^{255}, \quad
        w_{ij} \propto k\Big(\frac{j + \frac12 - (i + \frac12) n / n'}{\max(1, n / n')}\Big)

    first along the width, then along the height (Pillow 13 begins with a height that shrinks far
    more than the width); w_ij are multiples of 2^-22. The operator Resize of ONNX rounds neither
    weights nor the first result.

    Args:
        transform: of torchvision: [Grayscale], Resize, CenterCrop, ToTensor, Normalize.

    Raises:
        UserError: it has another step; the message names it.
    """

    def __init__(self, transform: Any) -> None:
        super().__init__()
        steps = _steps(transform)
        self.grey = any(isinstance(step, Grayscale) for step in steps)
        resize = next((step for step in steps if isinstance(step, Resize)), None)
        crop = next((step for step in steps if isinstance(step, CenterCrop)), None)
        normalise = next((step for step in steps if isinstance(step, Normalize)), None)
        self.kernel = KERNELS["bilinear"] if resize is None else _kernel(resize)
        self.size: list[int] | int | None = None if resize is None else resize.size
        if isinstance(self.size, (list, tuple)) and len(self.size) == 1:
            self.size = self.size[0]
        self.crop = None if crop is None else [int(side) for side in crop.size]
        sides = self.size if isinstance(self.size, list | tuple) else [self.size or 0] * 2
        if self.crop and any(c > s for c, s in zip(self.crop, sides, strict=True)):
            raise UserError(f"the transform crops {self.crop} of an image that may be smaller")
        if self.crop is None and not isinstance(self.size, list | tuple):
            raise UserError("the transform gives images of different sizes")
        mean, std = (normalise.mean, normalise.std) if normalise else ([0.0], [1.0])
        self.mean, self.std = (
            torch.as_tensor(values).float()[:, None, None] for values in (mean, std)
        )

    def forward(self, image: Tensor) -> Tensor:
        """See the class."""
        x = image.permute(0, 3, 1, 2)
        if self.grey:  # Pillow's integers
            r, g, b = x.int().unbind(dim=1)
            x = ((19595 * r + 38470 * g + 7471 * b + 32768) // 65536)[:, None]
        x, shape = x.double(), torch._shape_as_tensor(image)
        height, width = shape[1], shape[2]
        h, w = self._resized(height, width)
        rows, columns = self.crop or self.size  # type: ignore[misc]
        x = _eight_bits(x @ self._weights(width, w, columns).T)
        x = _eight_bits(self._weights(height, h, rows) @ x)
        return (x.float() / 255 - self.mean) / self.std

    def _resized(self, height: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        if self.size is None:
            return height, width
        if isinstance(self.size, list | tuple):
            h, w = (torch.tensor(int(side)) for side in self.size)
            return h, w
        short = torch.minimum(height, width)
        return self.size * height // short, self.size * width // short

    def _weights(self, before: Tensor, after: Tensor, kept: int) -> Tensor:
        """``[kept, before]``: of the middle of the pixels after the resize."""
        first = ((after - kept).double() / 2).round()
        scale = before.double() / after.double()
        centre = (first + torch.arange(kept) + 0.5) * scale
        places = torch.arange(before)  # type: ignore[call-overload]  # a tensor in the graph
        offset = places.double() + 0.5 - centre[:, None]
        weights = self.kernel(offset / scale.clamp(min=1))
        fixed = weights / weights.sum(dim=1, keepdim=True) * 2**BITS
        return fixed.sign() * (fixed.abs() + 0.5).floor()


def _eight_bits(x: Tensor) -> Tensor:
    """Of sums in units of 2^-22, which are exact."""
    return ((x + 2 ** (BITS - 1)) / 2**BITS).floor().clamp(0, 255)


def _kernel(resize: Resize) -> Callable[[Tensor], Tensor]:
    name = str(resize.interpolation.value)
    if name not in KERNELS or resize.max_size is not None:
        raise UserError(f"the transform has {resize}")
    return KERNELS[name]


def _steps(transform: Any) -> list[Any]:
    """The steps in their order, without those that change nothing of an RGB image (of open_clip).

    Raises:
        UserError: there is another, or the order is another.
    """
    steps: list[Any] = []
    for step in transform.transforms if isinstance(transform, Compose) else [transform]:
        if isinstance(step, Compose | NormalisedTensor):
            inner = step.steps if isinstance(step, NormalisedTensor) else step
            steps += _steps(inner)
        elif not isinstance(step, FunctionType) or step.__name__ != "_convert_to_rgb":
            steps.append(step)
    order: list[type | str] = [Grayscale, Resize, CenterCrop, ToTensor, Normalize]
    place = -1
    for step in steps:
        kind = ToTensor if type(step).__name__ == "MaybeToTensor" else type(step)
        if kind not in order[place + 1 :]:
            raise UserError(f"the transform has {step}")
        place = order.index(kind)
    return steps
