"""GMM: negative log-likelihood under a mixture of Gaussians."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from ood_lab.common.arguments import Count, Positive
from ood_lab.common.english import counted
from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.detectors.base import DetectorRefusal, FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows, squared_distances
from ood_lab.detectors.support.requirements import (
    one_class,
    require_finite,
    require_labels,
)
from ood_lab.detectors.support.subspace import is_few, second_moment, shrunk
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count, independent_share, unit_of

#: Clusters where there are no classes, and images of each at least.
CLUSTERS, PER_CLUSTER = 10, 10


@with_settings
class GMM(FittedDetector):
    r"""Mixture of Gaussians over the features.

    .. math:: s(x) = -\log \sum_k \pi_k \, \mathcal N(x; \mu_k, \Sigma_k + \epsilon I)

    ``full``: one Gaussian a class of the fit split, with its own covariance and share π (the
    classifier of arXiv 2102.11582, section 4). ``tied``: K clusters found by
    expectation-maximisation with one Σ for all, labels not used, as OpenOOD's; scikit-learn fits
    them. Without labels there are clusters in either case, of features without logits or of a
    multi-label head. Of fewer than 10 images of a class for each feature, all classes share one Σ,
    shrunk as that of :class:`~ood_lab.detectors.MDS`; clusters of so few images are those of
    k-means, as expectation-maximisation needs an invertible Σ.

    Own: pytorch-ood's full mixture is the same. OpenOOD omits the constant of the tied one,
    which does not rank, and loses in float32 everything beyond a squared distance of 206.

    Args:
        covariance: full or tied.
        clusters: K of the tied mixture; ``auto`` is the number of classes, 10 without any, and at
            most one for every 10 images.
        ridge: ε > 0.
        seed: of the clusters' start.
        fit_split: images, with labels for ``full`` if the network gives logits.
    """

    reads = ("features", "labels")
    multilabel = True
    moments = ("means",)
    formula = "−log Σ_k π_k N(x; μ_k, Σ_k + ε)"
    suspicious = "the features are improbable under a mixture of normal distributions"

    covariance: Literal["full", "tied"] = "full"
    clusters: Count | Literal["auto"] = "auto"
    ridge: Positive = 1e-6
    seed: int = 0

    def check_size(self, n: int, c: int) -> None:
        """Raises :class:`DetectorRefusal` for more clusters than fit images."""
        if self.covariance == "tied" and self._resolve(n, c) > n:
            raise DetectorRefusal(
                f"GMM: {n:,} {self.fit_split} images cannot make {self._resolve(n, c):,} clusters: "
                f"set detector.{self.name}.clusters"
            )

    def _resolve(self, n: int, classes: int) -> int:
        automatic = max(1, min(classes or CLUSTERS, n // PER_CLUSTER))
        return automatic if self.clusters == "auto" else self.clusters

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Whitening ``[K, D, D]`` and work space; for ``tied`` also what scikit-learn copies."""
        if self.covariance == "tied" or not c:
            return 8 * (5 * d * d + 3 * n * (d + self._resolve(n, c)))
        return 8 * (c * d * d + 5 * d * d + 3 * c * d)

    def less_memory(self, d: int, c: int, limit_bytes: int) -> str:
        """One covariance in place of one of each class."""
        remedy = f"set detector.{self.name}.covariance=tied"
        return remedy if self.covariance == "full" else super().less_memory(d, c, limit_bytes)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``means [K, D]``, ``whiten [K or 1, D, D]``, ``log_weights [K]``.

        ``log_weights`` are log π_k − ½ log det(2πΣ_k); Σ_k^-1 = whiten whiten^T.
        """
        full = self.covariance == "full" and not one_class(bank)
        if full:
            require_labels(self, bank)
        self.check_size(len(bank), bank.classes)
        shares, means, covariances = self._full(bank) if full else self._tied(bank)
        eye = torch.eye(means.shape[1], dtype=torch.float64)
        factors = torch.linalg.cholesky(require_finite(self, covariances) + self.ridge * eye)
        whiten = torch.linalg.solve_triangular(factors, eye.expand_as(factors), upper=False)
        half_log_det = factors.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        constant = means.shape[1] / 2 * math.log(2 * math.pi)
        self.fitted = {
            "means": means,
            "whiten": whiten.mT.contiguous(),
            "log_weights": shares.log() - half_log_det - constant,
        }
        self.used = {"clusters": len(means)}
        return self

    def _full(self, bank: FeatureBank) -> tuple[Tensor, Tensor, Tensor]:
        """Shares ``[K]``, means ``[K, D]`` and covariances ``[K or 1, D, D]`` of the classes."""
        moments = self.statistics(bank)
        classes = moments.labelled.nonzero().flatten()
        counts, means = moments.labelled[classes], moments.class_means[classes]
        rows = [(bank.labels == label).nonzero().flatten() for label in classes]
        covariances = (
            second_moment(bank.features, mean, members)
            for mean, members in zip(means, rows, strict=True)
        )
        if not is_few(int(counts.sum() * independent_share(bank)) // len(classes), means.shape[1]):
            return counts / counts.sum().double(), means, torch.stack([*covariances])
        groups = torch.full_like(bank.labels, -1)
        for place, members in enumerate(rows):
            groups[members] = place
        return self._shared(bank, groups, means)

    def _tied(self, bank: FeatureBank) -> tuple[Tensor, Tensor, Tensor]:
        """The same of the clusters, with one covariance ``[1, D, D]``."""
        n, d = group_count(bank), bank.width
        clusters = self._resolve(n, 0 if one_class(bank) else bank.classes)
        x = require_finite(self, bank.features).double().numpy()
        if is_few(n, d):
            from sklearn.cluster import KMeans

            kmeans = KMeans(clusters, n_init=10, random_state=self.seed).fit(x)
            groups = torch.from_numpy(kmeans.labels_).long()
            return self._shared(bank, groups, torch.from_numpy(kmeans.cluster_centers_))
        from sklearn.mixture import GaussianMixture

        mixture = GaussianMixture(
            clusters, covariance_type="tied", reg_covar=self.ridge, random_state=self.seed
        ).fit(x)
        # The ridge is added again by the caller.
        covariance = mixture.covariances_ - self.ridge * np.eye(d)
        shares, means = (torch.from_numpy(x) for x in (mixture.weights_, mixture.means_))
        return shares, means, torch.from_numpy(covariance[None])

    def _shared(
        self, bank: FeatureBank, groups: Tensor, means: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Shares and means of groups of few images, and one covariance of all, shrunk."""
        counts = groups[groups >= 0].bincount(minlength=len(means)).double()
        if bool((counts <= 1).all()):  # nothing varies within the groups
            means = (counts @ means)[None] / counts.sum()
            groups, counts = groups.clamp(max=0), counts.sum()[None]
        covariance = torch.zeros(means.shape[1], means.shape[1], dtype=torch.float64)
        for place, mean in enumerate(means):
            rows = (groups == place).nonzero().flatten()
            covariance += second_moment(bank.features, mean, rows) * (len(rows) / counts.sum())
        covariance, rho = shrunk(covariance, bank, means, groups)
        n, d = int(counts.sum() * independent_share(bank)), means.shape[1]
        self.chosen = (
            f"one covariance for {counted(len(means), 'component')}, shrunk by {rho:.0%}, for "
            f"{n:,} {unit_of(bank)}s of {d:,} features"
        )
        return counts / counts.sum(), means, covariance[None]

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative log-likelihood, ``[N]``."""
        means, whiten, log_weights = self.fitted_tensors("means", "whiten", "log_weights")

        def negative(x: Tensor) -> Tensor:
            if len(whiten) == 1:
                squares = squared_distances(x @ whiten[0], means @ whiten[0])
            else:
                pairs = zip(means, whiten, strict=True)
                squares = torch.stack([squared_norms((x - m) @ w) for m, w in pairs], dim=1)
            return -(log_weights - squares / 2).logsumexp(dim=1)

        return map_rows(negative, bank.features, width=len(means))
