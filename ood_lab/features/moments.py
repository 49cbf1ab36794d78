"""Moments of features, exactly summed, and what follows from the rows of a bank."""

from __future__ import annotations

import functools
import hashlib
import logging
import math
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.common.tensor_file import TensorFile, Tensors
from ood_lab.models.output import probabilities

#: What can be gathered: sums of every class; x x^T within the classes; h h^T, h = (1, x/‖x‖).
PARTS = ("means", "within", "gram")
#: Bytes of the rows that are added at a time: as float64, they stay in the processor's caches.
BLOCK_BYTES = 16 * 2**20
#: Norm below which a feature vector counts as zero and is not scaled to length 1.
SMALLEST = 1e-12

FILE = TensorFile(
    "file of moments",
    key="moments",
    format=1,
    source="a fit of detectors on the features",
    remedy="delete it, and it is made again",
)


class Moments:
    r"""First and second moments of features, float64, that add up over blocks and processes.

    Groups g are the images without a label (0) and those of every class c (c + 1). Within groups,

    .. math::
        S = \sum_i (x_i - \mu_{g_i})(x_i - \mu_{g_i})^\top, \qquad
        \sum_i (x_i - u)(x_i - u)^\top = S + \sum_g n_g (\mu_g - u)(\mu_g - u)^\top

    so that the moment about any u adds up what is positive, and loses no digits. While rows come in
    they are taken from a centre a_g of their group, the mean of its first rows, and
    :math:`\sum_g n_g (\mu_g - a_g)(\mu_g - a_g)^\top` is taken off at the end. Two sets of moments
    are merged as Chan, Golub and LeVeque (1983) do.

    Args:
        parts: of :data:`PARTS`; ``within`` needs ``means``.
        sums: of others that were :meth:`gathered`; None = rows are added.

    Attributes:
        parts: what is there.
        sums: ``count [2, G]`` and ``total [2, G, D]`` of groups, those with a wrong and those with
            a right prediction; ``square [G]``, Σ‖x‖²; ``largest``, Σ max z; ``within [D, D]`` of
            all classes and ``loose [D, D]`` of the images without a label (S, only its lower
            triangle counts); ``gram [D + 1, D + 1]``.
    """

    def __init__(self, parts: Collection[str], sums: Mapping[str, Tensor] | None = None) -> None:
        self.parts = frozenset(parts)
        self.sums: Tensors = dict(sums or {})
        self._centers: Tensor | None = None  # [G, D]; None = the means

    def update(
        self, features: Tensor, logits: Tensor, labels: Tensor, device: torch.device | str = "cpu"
    ) -> None:
        """Adds rows ``[N, D]``, ``[N, C]``, ``[N]``, in blocks that travel to ``device``."""
        step = max(1, BLOCK_BYTES // (8 * max(1, features.shape[1])))
        for start in range(0, len(features), step):
            rows = slice(start, start + step)
            self._add(features[rows].to(device), logits[rows].to(device), labels[rows].to(device))

    def _add(self, features: Tensor, logits: Tensor, labels: Tensor) -> None:
        x, groups = features.double(), (labels.long() + 1).clamp(min=0)
        self._make_room(max(logits.shape[1], int(groups.max())) + 1, x)
        squares = squared_norms(x)
        if "means" in self.parts:
            predicts = logits.shape[1] > 0
            right = torch.zeros_like(groups)
            if predicts:
                right = (logits.argmax(dim=1) == labels).long()
                self.sums["largest"] += logits.amax(dim=1).sum(dtype=torch.float64)
            self.sums["count"].index_put_((right, groups), torch.ones_like(squares), True)
            size = self.sums["count"].shape[1]
            self.sums["total"].flatten(0, 1).index_add_(0, right * size + groups, x)
            self.sums["square"].index_add_(0, groups, squares)
        if "gram" in self.parts:
            h = torch.empty(len(x), x.shape[1] + 1, dtype=x.dtype, device=x.device)
            h[:, 0] = 1
            torch.div(x, squares.sqrt().clamp(min=SMALLEST)[:, None], out=h[:, 1:])
            _add_products(self.sums["gram"], h)
        if "within" in self.parts:
            x -= self._center_of(x, groups)
            labelled = groups > 0
            if not bool(labelled.all()):
                _add_products(self.sums["loose"], x[~labelled])
                x = x[labelled]
            _add_products(self.sums["within"], x)

    def _make_room(self, size: int, x: Tensor) -> None:
        """Zeros for so many groups: labels may go beyond the classes of the head."""
        d = x.shape[1]
        shapes: dict[str, tuple[int, ...]] = {}
        if "means" in self.parts:
            shapes |= {"count": (2, size), "total": (2, size, d), "square": (size,), "largest": ()}
        if "within" in self.parts:
            shapes |= {"within": (d, d), "loose": (d, d)}
        if "gram" in self.parts:
            shapes["gram"] = (d + 1, d + 1)
        for name, shape in shapes.items():
            if name not in self.sums:
                self.sums[name] = x.new_zeros(shape)
        if "means" in self.parts and size > self.sums["count"].shape[1]:
            self._grow(size)

    def _grow(self, size: int) -> None:
        more = size - self.sums["count"].shape[1]
        for name in ("count", "square"):
            self.sums[name] = pad(self.sums[name], (0, more))
        self.sums["total"] = pad(self.sums["total"], (0, 0, 0, more))
        if self._centers is not None:
            self._centers = pad(self._centers, (0, 0, 0, more), value=math.nan)

    def _center_of(self, x: Tensor, groups: Tensor) -> Tensor:
        """The centre of each row's group, the mean of its first rows."""
        total = self.sums["total"]
        if self._centers is None:
            self._centers = torch.full_like(total[0], math.nan)
        new = self._centers[groups, 0].isnan()
        if bool(new.any()):
            sums = torch.zeros_like(total[0]).index_add_(0, groups[new], x[new])
            count = groups[new].bincount(minlength=len(sums))
            seen = count > 0
            self._centers[seen] = sums[seen] / count[seen, None]
        return self._centers[groups]

    def gathered(self) -> Moments:
        """These moments on the CPU, S about the means; no row can be added any more."""
        self.sums = {name: value.cpu() for name, value in self.sums.items()}
        if self._centers is not None:
            away = self._means_of_groups() - self._centers.cpu().nan_to_num()
            away *= self.sums["count"].sum(dim=0).sqrt()[:, None]
            self.sums["within"] -= away[1:].T @ away[1:]
            self.sums["loose"] -= away[:1].T @ away[:1]
            self._centers = None
        return self

    def merged(self, other: Moments) -> Moments:
        """The moments of the rows of both, each :meth:`gathered`; this one is changed."""
        size = max(moments.sums["count"].shape[1] for moments in (self, other))
        self._grow(size)
        other._grow(size)
        if "within" in self.parts:
            n, m = self.sums["count"].sum(dim=0), other.sums["count"].sum(dim=0)
            away = self._means_of_groups() - other._means_of_groups()
            away *= (n * m / (n + m).clamp(min=1)).sqrt()[:, None]
            self.sums["within"] += away[1:].T @ away[1:]
            self.sums["loose"] += away[:1].T @ away[:1]
        for name, value in other.sums.items():
            self.sums[name] = self.sums[name] + value
        return self

    def _means_of_groups(self) -> Tensor:
        """``[G, D]``, 0 for an empty group."""
        count = self.sums["count"].sum(dim=0).clamp(min=1)
        return self.sums["total"].sum(dim=0) / count[:, None]

    @property
    def n(self) -> int:
        """All images."""
        return int(self.sums["count"].sum())

    @property
    def labelled(self) -> Tensor:
        """Images of every class, ``[K] int64``."""
        return self.sums["count"][:, 1:].sum(dim=0).long()

    @property
    def right(self) -> Tensor:
        """Images of every class that are predicted right, ``[K] int64``."""
        return self.sums["count"][1, 1:].long()

    @property
    def class_means(self) -> Tensor:
        """Means of the classes, ``[K, D]``, 0 for a class without an image."""
        return self._means_of_groups()[1:]

    @property
    def right_means(self) -> Tensor:
        """Means over the images predicted right, ``[K, D]``, 0 for a class without one."""
        return self.sums["total"][1, 1:] / self.right.clamp(min=1)[:, None]

    def mean(self, labelled: bool = False) -> Tensor:
        """Mean over all images, or over those with a label, ``[D]``."""
        first = int(labelled)
        return self.sums["total"][:, first:].sum(dim=(0, 1)) / self.sums["count"][:, first:].sum()

    @property
    def mean_square(self) -> float:
        """E‖x‖² over the images with a label."""
        return float(self.sums["square"][1:].sum() / self.labelled.sum())

    @property
    def square(self) -> float:
        """E‖x‖² over all images."""
        return float(self.sums["square"].sum() / self.n)

    @property
    def mean_largest(self) -> float:
        """E max z over all images."""
        return float(self.sums["largest"] / self.n)

    @property
    def within(self) -> Tensor:
        """E[(x - μ_y)(x - μ_y)^T] over the images with a label, ``[D, D]``."""
        return _whole(self.sums["within"]) / self.labelled.sum()

    def about(self, center: Tensor, labelled: bool = False) -> Tensor:
        """E[(x - u)(x - u)^T] about ``center [D]`` over all images, or those with a label."""
        first = int(labelled)
        count = self.sums["count"].sum(dim=0)[first:]
        away = (self._means_of_groups()[first:] - center) * count.sqrt()[:, None]
        scatter = self.sums["within"] if labelled else self.sums["within"] + self.sums["loose"]
        return (_whole(scatter) + away.T @ away) / count.sum()

    @property
    def gram(self) -> Tensor:
        """E[h h^T], h = (1, x/‖x‖), over all images, ``[D + 1, D + 1]``."""
        return _whole(self.sums["gram"]) / self.n

    def save(self, file: Path, of: str = "") -> None:
        """Writes the parts, the bank ``of`` which they are, and the digest of every bit.

        Raises:
            UserError: the file cannot be written.
        """
        description = {"parts": sorted(self.parts), "of": of, "content": digest_of(self.sums)}
        FILE.write(file, self.sums, description)

    @staticmethod
    def of_processes(folder: Path) -> Moments | None:
        """The moments of all rows, from the files that processes have left; None without any."""
        files = [FILE.read(path) for path in sorted(folder.glob("*.safetensors"))]
        several = [Moments(description["parts"], sums) for description, sums in files]
        return functools.reduce(Moments.merged, several) if several else None


def digest_of(sums: Mapping[str, Tensor]) -> str:
    """sha256 (hex) of names, shapes and contents of tensors."""
    digest = hashlib.sha256()
    for name, value in sorted(sums.items()):
        digest.update(f"{name} {tuple(value.shape)} ".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _add_products(scatter: Tensor, x: Tensor) -> None:
    """Adds x^T x to the lower triangle of ``scatter [D, D]``."""
    if scatter.device.type != "cpu":
        scatter.addmm_(x.T, x)
        return
    # Half of the work of a product, as the result is symmetric. BLAS counts columns first.
    from scipy.linalg.blas import dsyrk

    into, rows = scatter.numpy().T, x.contiguous().numpy().T
    dsyrk(1.0, rows, beta=1.0, c=into, overwrite_c=1, lower=0)


def _whole(lower: Tensor) -> Tensor:
    """The symmetric matrix of which ``lower`` is the lower triangle."""
    return lower.tril() + lower.tril(-1).T


log = logging.getLogger(__name__)

T = TypeVar("T")

#: Name of the file of moments beside the shards of a bank.
MOMENTS = "moments.safetensors"
#: By which logits are told from logarithms of probabilities.
ROWS = 1024


class Derived:
    """Predictions, moments, the share of negative entries, and what detectors share, of some rows.

    Args:
        features: ``[N, D]``.
        logits: ``[N, C]``.
        labels: ``[N]``.
        file: where moments are kept; None = nowhere.
        of: identity of the rows, so that a file of others is not read.
        moments: of the rows, where they have been gathered.
    """

    def __init__(
        self,
        features: Tensor,
        logits: Tensor,
        labels: Tensor,
        file: Path | None = None,
        of: str = "",
        moments: Moments | None = None,
    ) -> None:
        self.rows = (features, logits, labels)
        self._file, self._of = file, of
        self._moments = moments
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What ``work_out`` gives; whoever asks for the same ``key`` later gets the same object."""
        if key not in self._known:
            self._known[key] = work_out()
        value: T = self._known[key]
        return value

    @cached_property
    def predictions(self) -> Tensor:
        """Predicted class, ``[N] int64``; -1 without logits."""
        logits = self.rows[1]
        return logits.argmax(dim=1) if logits.shape[1] else torch.full((len(logits),), -1)

    @cached_property
    def classes_present(self) -> int:
        """Classes that labels name; 0 without labels."""
        labels = self.rows[2]
        return len(labels[labels >= 0].unique())

    @cached_property
    def normalised(self) -> bool:
        """Whether the logits are logarithms of probabilities, as far as some rows tell."""
        return bool(len(self.rows[1])) and probabilities(self.rows[1][:ROWS]) is not None

    @cached_property
    def below_zero(self) -> float:
        """Share of the entries of the features that are below 0."""
        features = self.rows[0]
        parts = features.split(4096) if features.numel() else ()
        # The smallest entry is found thirty times faster than they are counted.
        return sum(int((x < 0).sum()) for x in parts if x.amin() < 0) / max(1, features.numel())

    def moments(self, parts: Collection[str], device: torch.device | str = "cpu") -> Moments:
        """The moments of all rows with these parts: those kept, or gathered on ``device`` now."""
        wanted = {"means", *parts}
        if self._moments is None:
            self._moments = self._read()
        if self._moments is None or not wanted <= self._moments.parts:
            features, logits, labels = self.rows
            moments = Moments(wanted | (self._moments.parts if self._moments else set()))
            moments.update(features, logits, labels, device)
            self._moments = moments.gathered()
            self._keep(self._moments)
        return self._moments

    def _read(self) -> Moments | None:
        if self._file is None or not self._file.is_file():
            return None
        with suppress(UserError):
            description, sums = FILE.read(self._file)
            if description.get("of") == self._of and description["content"] == digest_of(sums):
                return Moments(description["parts"], sums)
        log.warning("'%s' is damaged or of other features: made again", self._file)
        return None

    def _keep(self, moments: Moments) -> None:
        if self._file is None:
            return
        try:
            moments.save(self._file, self._of)
        except UserError as error:
            log.warning("%s: the next run gathers it again", error)
