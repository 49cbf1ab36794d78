"""How long a training is where the size of the data decides."""

from __future__ import annotations

import math

#: Value of ``trainer.max_epochs`` that leaves the number of epochs to :func:`epochs_for`.
AUTO = "auto"


def epochs_for(batches: int, epochs: int, steps: int) -> int:
    """Epochs that are at least ``epochs``, and at least ``steps`` optimiser steps.

    Args:
        batches: training batches in an epoch, on one device.
        epochs: least number of epochs.
        steps: least number of optimiser steps.
    """
    return max(epochs, math.ceil(steps / max(1, batches)))
