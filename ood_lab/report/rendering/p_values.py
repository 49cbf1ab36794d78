"""P-values for people."""

from __future__ import annotations

import math

from ood_lab.report.rendering.metric_definitions import MISSING

#: What the p-values of contrasts are.
P_NOTE = (
    "p: two-sided, normal approximation with the bootstrap's standard error, at least "
    "1 / (resamples + 1); then Holm-corrected."
)


def p_text(value: float) -> str:
    """Three decimals, ``<.001`` below."""
    if math.isnan(value):
        return MISSING
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
