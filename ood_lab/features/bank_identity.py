"""What a feature bank was made from, in words and as a hash."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from importlib.metadata import version
from typing import Any

from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.version import __version__

#: Raised when the files of a bank change, so that an older bank is never misread.
FORMAT = 2  # 2: checksums in the manifest


def architecture_sha256(module: nn.Module) -> str:
    """sha256 (hex) of the printed module: two networks may share weights but not their layers."""
    return hashlib.sha256(re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module)).encode()).hexdigest()


def transform_text(transform: Any, dataset_name: str) -> str:
    """The printed transform.

    Raises:
        UserError: it prints as a memory address, which does not tell two transforms apart.
    """
    text = repr(transform)
    if re.search(r" at 0x[0-9a-fA-F]+", text):
        raise UserError(
            f"the transform of '{dataset_name}' prints as '{text[:80]}', which does not say what "
            "it does: give it a __repr__ with its settings, so that cached features can be keyed"
        )
    return text


@cache
def versions() -> dict[str, str]:
    """Versions of what turns pixels into features."""
    return {"torch": version("torch"), "timm": version("timm"), "ood_lab": __version__}


def bank_key(
    *,
    weights_sha256: str,
    parts_sha256: str,
    transform: str,
    dataset_identity: str,
    precision: str,
    dtype: str,
    versions: dict[str, str],
) -> str:
    """Folder name of a bank: a hash of everything that changes its numbers.

    Args:
        weights_sha256: see :func:`ood_lab.models.weights.weights_sha256`.
        parts_sha256: see :class:`~ood_lab.features.network_identity.NetworkIdentity`.
        transform: see :func:`transform_text`.
        dataset_identity: sha256 of what determines pixels and labels.
        precision: the Trainer's, for example ``32-true`` or ``bf16-mixed``.
        dtype: type of the features on disk, ``float32`` or ``float16``.
        versions: see :func:`versions`.
    """
    parts = {**locals(), "format": FORMAT}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
