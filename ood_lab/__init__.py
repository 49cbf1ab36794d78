"""ood_lab: out-of-distribution detection under graded shift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ood_lab.notebook import Outcome, bank_from_arrays, bank_from_module, evaluate

__version__ = "0.1.0"
#: What a notebook needs. Loaded when first asked for: the command line starts without torch.
__all__ = ["Outcome", "bank_from_arrays", "bank_from_module", "evaluate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ood_lab' has no attribute '{name}'")
    from ood_lab import notebook

    return getattr(notebook, name)
