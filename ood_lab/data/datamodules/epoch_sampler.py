"""Random training images that depend only on the seed and the epoch.

The order of the images and every draw of the augmentation follow from ``(seed, epoch)``, whatever
the number of loader processes, and whether the training was interrupted before or not: a resumed
training ends with the weights of an undisturbed one.
"""

from __future__ import annotations

import copy
import math
import os
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch.utils.data import Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from ood_lab.common.arguments import with_settings
from ood_lab.common.tensor_arithmetic import random_numbers
from ood_lab.common.tensor_file import Batch, Transform
from ood_lab.data.dataset import ImageDataset

#: A row, and the seed of its augmentation.
AugmentedRow = tuple[int, int]


@with_settings
class EpochSampler(Sampler[AugmentedRow]):
    """Pairs ``(row, seed of its augmentation)``; a new order in every epoch.

    All processes of a job draw the same pairs; :class:`DeviceShare` deals them out.

    Args:
        n: number of rows, and of pairs per epoch.
        seed: in addition to the job's seed (``seed_everything``).
        epoch: the number of the epoch that begins.
    """

    n: int
    seed: int
    epoch: Callable[[], int]

    def __iter__(self) -> Iterator[AugmentedRow]:
        """Draws the pairs of the current epoch."""
        job = int(os.environ.get("PL_GLOBAL_SEED", 0))  # as seed_everything leaves it
        state = np.random.SeedSequence([job, self.seed, self.epoch()]).generate_state(1)
        generator = random_numbers(int(state[0]))
        rows = torch.randperm(self.n, generator=generator)
        draws = torch.randint(2**32, (self.n,), generator=generator)
        return zip(rows.tolist(), draws.tolist(), strict=True)

    def __len__(self) -> int:
        return self.n


class DeviceShare(DistributedSampler[AugmentedRow]):
    """The part of an order that one of several devices trains on.

    Device r of D takes every D-th pair from the r-th on. With B / D pairs a batch on each, step k
    of all devices trains on pairs ``kB`` to ``(k + 1)B`` of the order, as one device does.

    Args:
        order: of one epoch, the same on all devices.
        devices: D.
        device: r.
        most: pairs of all devices in an epoch, fewer than all where the last batch is skipped.
            Pairs are repeated from the beginning where D does not divide them.
    """

    def __init__(self, order: EpochSampler, devices: int, device: int, most: int) -> None:
        self.order = order
        self.most = most
        # Lightning deals out the order of any other class, after mixing it again.
        super().__init__(order, num_replicas=devices, rank=device, shuffle=False)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[AugmentedRow]:
        """Draws the order of the current epoch, and takes the share."""
        pairs = list(self.order)[: self.most]
        pairs += pairs[: len(self) * self.num_replicas - len(pairs)]
        return iter(pairs[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return math.ceil(self.most / self.num_replicas)


class TrainingView(Dataset[Batch]):
    """A dataset addressed by the pairs of :class:`EpochSampler`.

    Args:
        data: the images; not changed.
        transform: with the augmentation, which may draw from torch, numpy or ``random``.

    Attributes:
        images: False = samples have no ``image``, and none is loaded.
        views: V, random transforms of each image; all but the first are ``views [V - 1, 3, H, W]``.
    """

    images = True
    views = 1

    def __init__(self, data: ImageDataset, transform: Transform) -> None:
        # A second view of the same table: features of train are extracted without augmentation.
        self.data = copy.copy(data)
        self.data.transform = transform
        self._outliers: ImageDataset | None = None
        self._per_image = 0

    def expose(self, outliers: ImageDataset, per_image: int) -> None:
        """Gives every sample ``outliers [per_image, 3, H, W]``, random ones, transformed alike."""
        self._outliers = copy.copy(outliers)
        self._outliers.transform = self.data.transform
        self._per_image = per_image

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, pair: AugmentedRow) -> Batch:
        return self.__getitems__([pair])[0]

    def __getitems__(self, pairs: Sequence[AugmentedRow]) -> list[Batch]:
        """A batch: restoring the generators after every image would take longer than the image."""
        if not self.images:
            return [self.data.facts(row) for row, _ in pairs]
        with isolate_rng(include_cuda=False):  # the network draws from the same generators
            return [self._drawn(row, seed) for row, seed in pairs]

    def _drawn(self, row: int, seed: int) -> Batch:
        # torch.manual_seed would note the call stack for GPUs not yet in use, image by image.
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        sample = self.data[row]
        if self.views > 1:
            others = [self.data[row]["image"] for _ in range(self.views - 1)]
            sample |= {"views": torch.stack(others)}
        if self._outliers is None:
            return sample
        rows = torch.randint(len(self._outliers), (self._per_image,)).tolist()
        return sample | {"outliers": torch.stack([self._outliers[row]["image"] for row in rows])}
