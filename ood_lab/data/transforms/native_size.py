"""The transform of images that have the size of the network already."""

from __future__ import annotations

from torchvision.transforms import CenterCrop, Compose, Resize

from ood_lab.common.errors import UserError
from ood_lab.data.dataset import Transform


def without_resize(transform: Transform) -> Transform:
    """The evaluation transform without its resize and centre crop.

    Raises:
        UserError: it is not a chain of steps, so that these cannot be left out.
    """
    if not isinstance(transform, Compose):
        raise UserError(
            "data.unresized needs a transform of separate steps (torchvision's Compose), not a "
            f"{type(transform).__name__}: leave it empty"
        )
    return Compose([s for s in transform.transforms if not isinstance(s, (Resize, CenterCrop))])
