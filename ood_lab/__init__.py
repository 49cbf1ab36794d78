"""ood_lab: out-of-distribution detection under controlled shift."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ood_lab.version import __version__ as __version__

if TYPE_CHECKING:
    from ood_lab.api.evaluation import EvaluationResult, evaluate
    from ood_lab.api.feature_banks import extract_features, features_from_arrays
    from ood_lab.api.onnx_export import export_onnx
    from ood_lab.detectors import load_detector
    from ood_lab.models.image_tiles import Tiles

# Activations live in fresh memory on a CPU; in pages of 2 MiB it costs a fraction of what it does
# in those of 4 KiB, and no digit. PyTorch reads this when it first takes memory; on Linux alone.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

#: What a notebook needs. Loaded when first asked for: the command line starts without torch.
__all__ = [
    "EvaluationResult",
    "Tiles",
    "evaluate",
    "export_onnx",
    "extract_features",
    "features_from_arrays",
    "load_detector",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ood_lab' has no attribute '{name}'")
    from ood_lab import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
