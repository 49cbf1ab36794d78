"""How long a training is where the size of the data decides."""

from __future__ import annotations

import math


def epochs_for(batches: int, min_epochs: int, min_steps: int) -> int:
    """Epochs that are at least ``min_epochs``, and make at least ``min_steps`` optimiser steps.

    Args:
        batches: training batches in an epoch, on one device.
        min_epochs: least number of epochs.
        min_steps: least number of optimiser steps.
    """
    return max(min_epochs, math.ceil(min_steps / max(1, batches)))
