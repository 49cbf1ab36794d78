"""The set of the best detectors: multiple comparisons with the best (Hsu 1981).

A name that wins by chance changes with the images. The set of all detectors that may be the best
does not: it holds the true best one in at least 95% of the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # loads scipy.special when it is used

from ood_lab.common.random_streams import stream
from ood_lab.metrics.resampling.intervals import Ends
from ood_lab.metrics.resampling.significance import (
    above_mean,
    draws_covariance,
    placements,
    summed_variance,
)
from ood_lab.metrics.score_evaluation import Evaluation
from ood_lab.schema.arrays import Bools, Floats

#: Error rate of every family of comparisons.
ALPHA = 0.05
#: Simulated draws of a critical value.
_DRAWS = 10_000
#: Fewest of them beyond a critical value.
_IN_TAIL = 100


@dataclass(frozen=True)
class JointEstimate:
    """One number of each of D detectors on the same images, and how their errors go together.

    Attributes:
        values: ``[D]``, higher is better.
        covariance: of their errors, ``[D, D]``; NaN where there are too few images to know.
        freedom: degrees of freedom of the covariance (Satterthwaite).
    """

    values: Floats
    covariance: Floats
    freedom: float

    @property
    def known(self) -> bool:
        """Whether the errors are known."""
        return bool(np.isfinite(self.covariance).all() and self.freedom > 0)

    @cached_property
    def spread(self) -> Floats:
        """Standard error of each difference, ``[D, D]``."""
        variance = np.diag(self.covariance)
        squares = variance[:, None] + variance[None] - 2 * self.covariance
        return np.sqrt(np.where(squares > 1e-16, squares, 0.0))

    @cached_property
    def _errors(self) -> Floats:
        """Simulated errors, ``[D, draws]``: multivariate t, for the covariance is estimated, too.

        The stream is always the same: no verdict depends on the seed of a run.
        """
        rng = stream(0, "multiple comparisons with the best")
        scale, axes = np.linalg.eigh((self.covariance + self.covariance.T) / 2)
        root = axes * np.sqrt(np.maximum(scale, 0))
        normal = rng.standard_normal((_DRAWS, len(self.values))) @ root.T
        errors = normal * np.sqrt(self.freedom / rng.chisquare(self.freedom, (_DRAWS, 1)))
        return np.ascontiguousarray(errors.T)

    def _largest(self, place: int, two_sided: bool, alpha: float) -> float:
        """Critical value of all comparisons with one detector (Dunnett 1955).

        Bonferroni's where the simulation has too few draws so far out.
        """
        if alpha * _DRAWS < _IN_TAIL:
            tail = alpha / (1 + two_sided) / max(len(self.values) - 1, 1)
            return float(scipy.special.stdtrit(self.freedom, 1 - tail))
        largest = np.zeros(_DRAWS)
        # One after the other: those of all detectors are too many for the cache.
        for errors, spread in zip(self._errors, self.spread[place], strict=True):
            if spread > 0:
                ratios = (errors - self._errors[place]) / spread
                np.maximum(largest, np.abs(ratios) if two_sided else ratios, out=largest)
        return float(np.quantile(largest, 1 - alpha))

    def best(self, alpha: float = ALPHA) -> Bools:
        """The set of the best, ``[D]``: it holds the true best with probability 1 - alpha.

        Detector i belongs to it where ``v_i - v_j + c_i s_ij >= 0`` for all j, with the standard
        error ``s_ij`` of the difference and the one-sided critical value ``c_i`` of all
        comparisons with i (Hsu 1981; Dunnett 1955). All belong to it where errors are not known,
        but those without a value.
        """
        missing = np.isnan(self.values)
        if not self.known:
            return ~missing
        behind = self.values[None] - self.values[:, None]  # [i, j]: by how much j is ahead of i
        reach = np.array([self._largest(i, False, alpha) for i in range(len(self.values))])
        # Detectors that rank alike differ by rounding only.
        return ~missing & ~(behind > reach[:, None] * self.spread + 1e-12).any(axis=1)

    def ends(self, alpha: float = ALPHA) -> Ends:
        """Simultaneous intervals of shares in [0, 1], ``[2, D]``; NaN where nothing is known.

        ``expit(logit v ± c s / (v (1 - v)))`` with the critical value c of the largest of all
        errors: all D intervals hold together with probability 1 - alpha.
        """
        if not self.known:
            return np.full((2, len(self.values)), np.nan)
        error = np.sqrt(np.maximum(np.diag(self.covariance), 0))
        ratios = np.divide(
            np.abs(self._errors.T), error, out=np.zeros_like(self._errors.T), where=error > 1e-9
        )
        inside = np.clip(self.values, 1e-12, 1 - 1e-12)
        reach = np.quantile(ratios.max(axis=1), 1 - alpha) * error / (inside * (1 - inside))
        logit = scipy.special.logit(inside)
        return np.asarray(scipy.special.expit([logit - reach, logit + reach]))

    def ends_beyond(self, bounds: Ends) -> Ends:
        """Simultaneous intervals, no narrower than those that each detector has by itself.

        The bootstrap and the exact intervals near 0 and 1 know what a normal approximation does
        not: errors of 0 are no certainty.
        """
        low, high = self.ends()
        low, high = np.where(low == high, np.nan, [low, high])
        return np.stack([np.fmin(low, bounds[0]), np.fmax(high, bounds[1])])

    def behind(self, place: int, alpha: float = ALPHA) -> tuple[Floats, Floats, Floats]:
        """By how much each detector is behind one, and the ends of the simultaneous intervals."""
        differences = self.values[place] - self.values
        if not self.known:
            return differences, np.full_like(differences, np.nan), np.full_like(differences, np.nan)
        reach = self._largest(place, True, alpha) * self.spread[place]
        return differences, differences - reach, differences + reach


def ranked(values: Mapping[str, float]) -> list[str]:
    """The names, the highest value first, then by name; those without a value are last."""
    return sorted(values, key=lambda name: (-np.nan_to_num(values[name], nan=-np.inf), name))


def mean_aurocs(evaluation: Evaluation, sets: Sequence[str]) -> JointEstimate:
    """The mean AUROC of every detector over OOD datasets, with DeLong's covariance.

    An image adds its placement to the mean: ``phi_i = sum_g (P(ood_g > i) - A_g) / (G n)`` for an
    ID image, which all G datasets share, and ``phi_j = (P(ID < j) - A_g) / (G m_g)`` for an image
    of dataset g. The covariance is ``sum_b n_b / (n_b - 1) sum_{i in b} phi_i phi_i'`` over ID and
    the datasets; where images are made of the same photograph, they are added up first, see
    :func:`~ood_lab.metrics.resampling.significance.delong`.
    """
    parts = [evaluation.rows_of(name) for name in sets]
    shares = [np.zeros(evaluation.id_matrix.T.shape)]
    for part in parts:
        placed = placements(evaluation.id_matrix, evaluation.matrix(part))
        of_id, of_part = (above_mean(of) / len(parts) for of in placed)
        shares[0] += of_id
        shares.append(of_part)
    values = evaluation.mean("auroc", sets).values
    unknown = JointEstimate(values, np.full([len(values)] * 2, np.nan), 0)
    made_of = evaluation.made_of(*parts)
    if made_of is not None:
        names = np.concatenate(made_of)
        count = len(set(names))
        if count < 2:
            return unknown
        return JointEstimate(values, summed_variance(np.hstack(shares), names), count - 1)
    sizes = [evaluation.n_id, *map(len, parts)]
    if min(sizes) < 2:
        return unknown
    covariances = [of @ of.T * n / (n - 1) for of, n in zip(shares, sizes, strict=True)]
    return JointEstimate(values, np.sum(covariances, axis=0), _freedom(covariances, sizes))


def drawn_means(evaluation: Evaluation, metric: str, sets: Sequence[str]) -> JointEstimate:
    """The mean of any metric over OOD datasets, with the covariance of its bootstrap."""
    mean = evaluation.mean(metric, sets)
    smallest = min(evaluation.n_id, *(evaluation.n_of[name] for name in sets))
    return JointEstimate(mean.values, draws_covariance(mean.draws), smallest - 1)


def _freedom(covariances: Sequence[Floats], sizes: Sequence[int]) -> float:
    """``(sum_b v_b)^2 / sum_b v_b^2 / (n_b - 1)`` of the variances of independent parts."""
    parts = np.array([np.trace(of) for of in covariances])
    below = (parts**2 / (np.array(sizes) - 1)).sum()
    return float(parts.sum() ** 2 / below) if below > 0 else float(min(sizes) - 1)
