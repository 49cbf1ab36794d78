"""UDG: clusters say which unlabelled images are ID, and what they have in common."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from torch import Tensor, nn

from ood_lab.common.arguments import Count, Share, with_settings
from ood_lab.common.tensor_arithmetic import full_precision
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step, Weight


@with_settings
class UDG(Objective):
    r"""Cross-entropy and outlier exposure on what clusters say of unlabelled images.

    Source: unsupervised dual grouping, arXiv 2108.11941. ``data.outliers`` may have ID images.

    .. math::
        \mathrm{CE}(f, y) + \mathrm{weight} \cdot \mathrm{mean}\,[\mathrm{logsumexp} \tilde f -
        \mathrm{mean}_c \tilde f_c] + \mathrm{auxiliary} \cdot \mathrm{mean}\, w_k \mathrm{CE}(a, k)

    a are logits of a second layer for the cluster k of each image, weighed by the size n_k:
    :math:`w_k \propto n_k^{-1/2}`, with a mean of 1 over the clusters. Where more than ``purity``
    of a cluster has one label, its unlabelled images get that, and are in the first term; all
    others are in the second. K-means of the features (PCA, whitened, unit length) is repeated in
    each epoch, on the last ``memory`` features of training, where the authors pass all images
    once more; until then there are no clusters. Validation is plain cross-entropy.

    Args:
        weight: of outlier exposure.
        auxiliary: of the third term.
        clusters: number of clusters.
        dimensions: of the PCA, at most D.
        purity: share of one label.
        memory: features that are kept.
    """

    reads = "features"
    outliers_per_image = 1
    weight: Weight = 0.5
    auxiliary: Weight = 0.1
    clusters: Count = 1000
    dimensions: Count = 256
    purity: Share = 0.8
    memory: Count = 20_000

    def build(self, backbone: Backbone) -> None:
        """Adds the second layer, the memory ``[memory, D]`` and the clusters."""
        width, k = backbone.num_features, self.clusters
        p = min(self.dimensions, width)
        self.layer = nn.Linear(width, k)
        self.rows = nn.Buffer(torch.zeros(self.memory, width))
        self.row_label = nn.Buffer(torch.full((self.memory,), -1))
        self.count: Tensor = nn.Buffer(torch.tensor(0))
        self.mean = nn.Buffer(torch.zeros(width))
        self.axes = nn.Buffer(torch.zeros(width, p))
        self.centres = nn.Buffer(torch.zeros(k, p))
        self.majority = nn.Buffer(torch.full((k,), -1))
        self.balance = nn.Buffer(torch.zeros(k))
        self.clustered = nn.Buffer(torch.tensor(0.0))

    def forward(self, step: Step) -> Loss:
        """Two terms, and the third where there are clusters."""
        if step.outliers is None:
            return super().forward(step)
        # All processes cluster the memory of the first.
        if abs(step.progress - float(self.clustered)) > 1e-6:
            self.cluster(step.progress)
        inside, outside = step.together(step.outliers)
        logits = torch.cat([inside.logits, outside.logits])
        features = torch.cat([inside.features, outside.features])
        strange = step.label.new_full((len(outside.logits),), -1)
        terms = {}
        if bool(self.balance.any()):
            cluster = torch.cdist(self.reduced(features.detach()), self.centres).argmin(dim=1)
            strange = self.majority[cluster[len(step.image) :]]
            losses = F.cross_entropy(self.layer(features), cluster, reduction="none")
            terms["clusters"] = self.auxiliary * (losses * self.balance[cluster]).mean()
        label = torch.cat([step.label, strange])
        terms["ce"] = step.cross_entropy(logits[label >= 0], label[label >= 0])
        exposed = logits[label < 0]  # may be none; all processes log the same terms
        total = (exposed.logsumexp(1) - exposed.mean(1)).sum()
        terms["exposure"] = self.weight * total / max(1, len(exposed))
        truth = torch.cat([step.label, torch.full_like(strange, -1)])
        self.remember(features.detach(), truth)
        return Loss(inside.logits, terms)

    def remember(self, features: Tensor, label: Tensor) -> None:
        """Puts features ``[N, D]`` and labels into the memory, over the oldest."""
        places = (self.count + torch.arange(len(label), device=label.device)) % self.memory
        self.rows[places], self.row_label[places] = features.to(self.rows.dtype), label
        self.count += len(label)

    def reduced(self, features: Tensor) -> Tensor:
        """Whitened axes of the PCA, of unit length, ``[N, P]``."""
        with full_precision(self.axes):
            return F.normalize((features.to(self.axes.dtype) - self.mean) @ self.axes, dim=1)

    def cluster(self, progress: float) -> None:
        """Clusters the memory, if it has as many rows as there are clusters and axes."""
        self.clustered.fill_(progress)
        n, k = min(int(self.count), self.memory), self.clusters
        if n < max(k, self.axes.shape[1]):
            return
        rows, label = self.rows[:n], self.row_label[:n]
        pca = PCA(self.axes.shape[1], random_state=0).fit(rows.cpu())
        scale = (pca.explained_variance_ + 1e-12) ** 0.5
        self.mean.copy_(torch.as_tensor(pca.mean_))
        self.axes.copy_(torch.as_tensor(pca.components_.T / scale))
        means = KMeans(k, n_init=1, max_iter=20, random_state=0).fit(self.reduced(rows).cpu())
        self.centres.copy_(torch.as_tensor(means.cluster_centers_))
        cluster = torch.as_tensor(means.labels_, dtype=torch.int64, device=label.device)
        size = torch.bincount(cluster, minlength=k)
        labels = int(label.max()) + 2  # the first is of unlabelled images
        counts = torch.bincount(cluster * labels + label + 1, minlength=k * labels)
        most, best = counts.view(k, labels).max(dim=1)
        self.majority.copy_(torch.where(most > self.purity * size, best - 1, -1))
        balance = size.clamp(min=1).rsqrt()
        self.balance.copy_(balance / balance.mean())
        with torch.no_grad():  # the clusters have new numbers
            self.layer.weight.zero_()
            self.layer.bias.zero_()
