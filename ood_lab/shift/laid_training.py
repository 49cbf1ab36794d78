"""Training LAID's orthogonal matrix on text features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ood_lab.common.arguments import BatchSize, Count, Positive, Seed, Share
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_arithmetic import full_precision, random_numbers
from ood_lab.common.training_epoch import coming_epoch
from ood_lab.schema.run_record import Facts
from ood_lab.shift.laid import Decomposition, energy_shares, polar_factor
from ood_lab.shift.text_grid import FeatureGrid

#: Distances of the start text in a half, ``[B]`` each in [0, 2]: to the text that shares its label
#: (in the semantic half) or its template, and to the one that does not.
NearAndFar = tuple[Tensor, Tensor]


def cosine_distance(a: Tensor, b: Tensor) -> Tensor:
    """``1 - a.b / (|a| |b|)`` over the last axis, in [0, 2]."""
    return 1 - F.cosine_similarity(a, b, dim=-1)


def triplet_distances(
    W: Tensor, start: Tensor, semantic_shift: Tensor, covariate_shift: Tensor
) -> tuple[NearAndFar, NearAndFar]:
    """Distances within a triplet after ``g = f W``, halves ``g[:l/2]`` and ``g[l/2:]``.

    Args:
        W: ``[l, l]``, l even.
        start: text of label a in template p, ``[B, l]``.
        semantic_shift: label b in template p.
        covariate_shift: label a in template q.
    """
    half = W.shape[1] // 2
    texts = (start, semantic_shift, covariate_shift)
    st, ss, cs = ((features @ W).tensor_split([half], dim=-1) for features in texts)
    return (
        (cosine_distance(st[0], cs[0]), cosine_distance(st[0], ss[0])),
        (cosine_distance(st[1], ss[1]), cosine_distance(st[1], cs[1])),
    )


def hinge_loss(distances: NearAndFar, margin: float) -> Tensor:
    """Mean of ``max(0, near - far + margin)``.

    The paper prints the terms without the maximum; the margin would then have no gradient.
    """
    near, far = distances
    return F.relu(near - far + margin).mean()


def orthogonality_error(W: Tensor) -> Tensor:
    """``|W^T W - I|_F^2``, the sum of squares."""
    return (W.T @ W - torch.eye(W.shape[1], dtype=W.dtype, device=W.device)).square().sum()


@dataclass
class Triplets(Dataset[Tensor]):
    """Batches of random triplets ``(a, p), (b, p), (a, q)`` with ``a != b`` and ``p != q``.

    An item is ``[3, batch, l] float32``: start, semantic shift, covariate shift. Items are drawn
    in the order of access; their number means nothing.

    Args:
        grid: texts of labels x templates.
        labels: rows of the grid to draw from, ``[n] int64``, at least 2.
        templates: columns to draw from, ``[m] int64``, at least 2.
        batches: length of the data set.
        batch_size: triplets in an item.
        seed: of the draws.
    """

    grid: FeatureGrid
    labels: Tensor
    templates: Tensor
    batches: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        self.generator = random_numbers(self.seed)

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Tensor:
        a, b = self._two_of(self.labels)
        p, q = self._two_of(self.templates)
        texts = self.grid.features(torch.cat([a, b, a]), torch.cat([p, p, q]))
        return texts.view(3, self.batch_size, -1)

    def skip(self, epochs: int) -> None:
        """Draws what earlier epochs drew, for a training that resumes after them."""
        for _ in range(epochs * self.batches):
            self._two_of(self.labels)
            self._two_of(self.templates)

    def _two_of(self, choice: Tensor) -> tuple[Tensor, Tensor]:
        """Two entries that differ, ``[batch]`` each, uniformly."""
        n, size = len(choice), (self.batch_size,)
        first = torch.randint(n, size, generator=self.generator)
        step = torch.randint(1, n, size, generator=self.generator)
        return choice[first], choice[(first + step) % n]


#: Batches of held-out triplets, the same ones at every validation.
_VALIDATION_BATCHES = 8


class LaidTraining(LightningModule):
    r"""LAID (IS-OOD, equations 1 to 3): an orthogonal W learnt only from texts.

    .. math::
        L = L_{sem} + L_{cov} + \lambda \|W^T W - I\|_F^2, \qquad
        L_h = \max(0, d_h(near) - d_h(far) + \alpha)

    on triplets (start; other label, same template; same label, other template), see
    :class:`Triplets`. The export takes the nearest orthogonal matrix, which changes next to nothing
    at ``lambda = 1``.

    A share of the labels and of the templates is held out; ``val/`` numbers come from triplets of
    these only: ``accuracy_semantic``, ``accuracy_covariate``, ``orthogonality_error`` and the
    shares of energy. The module brings its own data: ``trainer.fit(module)`` runs
    ``max_epochs * steps_per_epoch`` steps with a cosine schedule to 0.

    The defaults are for ImageNet-21K's names in CLIP's 80 templates and 10 epochs. For a small
    text grid (the builtin data) ``margin=0.5, lr=1e-2, steps_per_epoch=100`` and 5 epochs do.

    Args:
        grid: text features of labels x templates.
        clip: identity of the CLIP they come from, kept with the exported W.
        margin: alpha.
        penalty: lambda.
        lr: of Adam.
        batch_size: triplets per step.
        steps_per_epoch: steps between validations.
        held_out: share of labels, and of templates, kept for validation; at least 2 of each.
        k: neighbour that shift degrees will be measured to, kept with the exported W.
        seed: of the initial W, the split and the triplets.

    Raises:
        UserError: fewer than four labels or templates.
    """

    def __init__(
        self,
        grid: FeatureGrid,
        clip: Mapping[str, str],
        margin: float = 0.3,
        penalty: float = 1.0,
        lr: Positive = 1e-3,
        batch_size: BatchSize = 256,
        steps_per_epoch: Count = 500,
        held_out: Share = 0.1,
        k: Count = 10,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        labels, templates, width = grid.table.shape
        for what, n in (("labels", labels), ("templates", templates)):
            if n < 4:
                raise UserError(
                    f"LAID needs at least 4 {what} (2 learnt, 2 held out), got {n}: give more"
                )
        self.save_hyperparameters(ignore=["grid"], logger=False)
        self.grid = grid
        self.clip = dict(clip)
        # nn.Linear computes f A^T, so its weight is W^T.
        self.projection = nn.Linear(width, width, bias=False)
        generator = random_numbers(seed)
        nn.init.orthogonal_(self.projection.weight, generator=generator)
        self.labels = _held_out_split(labels, held_out, generator)
        self.templates = _held_out_split(templates, held_out, generator)

    @property
    def W(self) -> Tensor:
        """The current matrix, ``[l, l]``."""
        return self.projection.weight.T

    def decomposition(self) -> Decomposition:
        """The trained split, with W made exactly orthogonal."""
        keys = ("margin", "penalty", "lr", "batch_size", "held_out", "seed")
        labels, templates, _ = self.grid.table.shape
        details: Facts = {
            **{key: self.hparams[key] for key in keys},
            "steps": self.global_step,
            "labels": labels,
            "templates": templates,
        }
        W = polar_factor(self.W.detach().cpu().float())
        return Decomposition("laid", W, len(W) // 2, self.clip, self.hparams["k"], details=details)

    def train_dataloader(self) -> DataLoader[Tensor]:
        """Triplets of the labels and templates that are not held out."""
        options = self.hparams
        triplets = self._triplets(0, options["steps_per_epoch"], options["seed"])
        triplets.skip(coming_epoch(self._trainer))
        return DataLoader(triplets, batch_size=None)

    def val_dataloader(self) -> DataLoader[Tensor]:
        """Triplets of held-out labels and templates, the same at every call."""
        triplets = self._triplets(1, _VALIDATION_BATCHES, self.hparams["seed"] + 1)
        batches = [triplets[i] for i in range(len(triplets))]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Loss of a batch ``[3, B, l]``."""
        with full_precision(batch):
            W = self.W  # once: gradients of two views add up in another order
            halves = triplet_distances(W, *batch.float())
            semantic, covariate = (hinge_loss(half, self.hparams["margin"]) for half in halves)
            error = orthogonality_error(W)
            loss = semantic + covariate + self.hparams["penalty"] * error
        terms = {
            "loss": loss,
            "loss_semantic": semantic,
            "loss_covariate": covariate,
            "orthogonality_error": error,
        }
        logged = {f"train/{name}": value.detach() for name, value in terms.items()}
        self.log_dict(logged, on_step=False, on_epoch=True, batch_size=batch.shape[1])
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        """Logs the accuracy on held-out triplets, the orthogonality error and energy shares."""
        with full_precision(batch):
            W, texts = self.W, batch.float()
            halves = triplet_distances(W, *texts)
            semantic, covariate = ((near < far).float().mean() for near, far in halves)
            energy = energy_shares(W, W.shape[1] // 2, texts[0])
            logged: dict[str, Tensor | float] = {
                "val/accuracy_semantic": semantic,
                "val/accuracy_covariate": covariate,
                "val/orthogonality_error": orthogonality_error(W),
                "val/energy_semantic": energy[0],
                "val/energy_covariate": energy[1],
            }
        self.log_dict(logged, batch_size=batch.shape[1])

    def configure_optimizers(self) -> Any:
        """Adam without weight decay, cosine to 0 over all steps."""
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _triplets(self, part: int, batches: int, seed: int) -> Triplets:
        size = self.hparams["batch_size"]
        return Triplets(self.grid, self.labels[part], self.templates[part], batches, size, seed)


def _held_out_split(n: int, held_out: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers below n to learn from, and those held out (at least 2 in each)."""
    kept = max(2, min(n - 2, round(n * (1 - held_out))))
    order = torch.randperm(n, generator=generator)
    return order[:kept].sort().values, order[kept:].sort().values
