"""How well maps show what masks show, pixel by pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ood_lab.common.random_streams import Resampling, stream
from ood_lab.metrics.resampling.clustered_bootstrap import resampled_sums
from ood_lab.metrics.resampling.intervals import bootstrap_interval
from ood_lab.schema.arrays import Floats
from ood_lab.schema.results import Kind, estimate_row

#: ``n`` = ``n_id`` + ``n_ood``: images with a map and a mask.
PIXELS = Kind("pixels", "image", ("detector", "dataset", "n_id", "n_ood"))
#: Largest false positive rate of AUPRO.
LIMIT = 0.3
#: Thresholds, quantiles of the values of all maps.
THRESHOLDS = 2048


def thresholds_of(values: Floats) -> Floats:
    """Ascending thresholds for :func:`pixel_counts`."""
    return np.quantile(values, np.linspace(0, 1, THRESHOLDS + 2)[1:-1])


def pixel_counts(scores: Floats, mask: NDArray[np.bool_], thresholds: Floats) -> Floats:
    """Pixels of an image between thresholds, ``[3, K + 1]``: normal, anomalous, and of regions.

    A region of the mask (8 neighbours) has weight one, whatever its size.

    Args:
        scores: of the pixels, ``[H, W]``, higher = more anomalous.
        mask: which pixels are anomalous, ``[H, W]``.
        thresholds: ``[K]``, ascending.
    """
    levels = np.searchsorted(thresholds, scores.ravel(), side="right")
    regions, _ = ndimage.label(mask, np.ones((3, 3)))
    weights = (~mask, mask, mask / np.bincount(regions.ravel())[regions])
    length = len(thresholds) + 1
    return np.stack([np.bincount(levels, w.ravel(), minlength=length) for w in weights])


def areas(counts: Floats) -> tuple[float, float]:
    r"""Pixel AUROC, and AUPRO of MVTec AD, of counts ``[3, K]`` of all images together.

    :math:`\mathrm{AUPRO} = \frac{1}{0.3} \int_0^{0.3} \mathrm{PRO}\; d\mathrm{FPR}`, with PRO(t)
    the mean over regions of the share of their pixels above t, and FPR(t) the share of all normal
    pixels (Bergmann et al. 2021, The MVTec Anomaly Detection Dataset, IJCV 129).
    """
    above = np.pad(counts[:, ::-1].cumsum(axis=1), ((0, 0), (1, 0)))
    with np.errstate(invalid="ignore"):  # no region was drawn
        fpr, tpr, pro = above / above[:, -1:]
    ends = np.append(fpr[fpr < LIMIT], LIMIT)
    inside = np.append(pro[fpr < LIMIT], np.interp(LIMIT, fpr, pro))
    return float(np.trapezoid(tpr, fpr)), float(np.trapezoid(inside, ends)) / LIMIT


def pixel_rows(
    id_counts: Sequence[Floats], ood_counts: Sequence[Floats], resampling: Resampling
) -> list[dict[str, Any]]:
    """Rows of results ``pixel_auroc`` and ``aupro``, with intervals that resample images.

    Args:
        id_counts: :func:`pixel_counts` of ID images, without masks.
        ood_counts: of images with masks.
        resampling: of the bootstrap.
    """
    groups = [np.stack(counts) for counts in (id_counts, ood_counts)]
    values = areas(np.concatenate(groups).sum(axis=0))
    rng, shape = stream(resampling.seed, "pixels"), groups[0].shape[1:]
    of_id, of_ood = (resampled_sums(g.reshape(len(g), -1), resampling.draws, rng) for g in groups)
    resampled = np.array([areas(each.reshape(shape)) for each in of_id + of_ood])
    n_id, n_ood = map(len, groups)
    low, high = bootstrap_interval(resampled.T, min(n_id, n_ood))
    return [
        estimate_row(*estimate, n=n_id + n_ood, n_id=n_id, n_ood=n_ood)
        for estimate in zip(("pixel_auroc", "aupro"), values, low, high, strict=True)
    ]
