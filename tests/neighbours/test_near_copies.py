"""Near copies: scenes are found, look-alikes are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ood_lab.neighbours import near_copies
from ood_lab.neighbours.near_copies import MOST_IMAGES


def _scenes(
    sizes: list[int], spread: float = 0.2, dim: int = 32, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Images of scenes at random, and the first image of the scene of each."""
    random = torch.Generator().manual_seed(seed)
    scene = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    centres = torch.randn(len(sizes), dim, generator=random)
    features = centres[scene] + spread * torch.randn(len(scene), dim, generator=random)
    first = torch.tensor(np.cumsum([0, *sizes[:-1]]))
    return features, first[scene]


@pytest.mark.parametrize(
    "sizes",
    [[2] * 10, [4] * 45, [8] * 20, [1, 2, 3, 4] * 15, [2] * 5 + [1] * 60, [7] + [1] * 60],
    ids=["10x2", "45x4", "20x8", "1 to 4", "five pairs", "one burst"],
)
def test_scenes_are_found_in_any_order(sizes: list[int]) -> None:
    features, first = _scenes(sizes)
    assert torch.equal(near_copies(features), first)
    order = torch.randperm(len(first), generator=torch.Generator().manual_seed(1))
    mixed = near_copies(3 * features[order])
    assert torch.equal(mixed[:, None] == mixed, first[order][:, None] == first[order])


@pytest.mark.parametrize("frames", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-3])
def test_frames_may_be_equal(frames: int, spread: float) -> None:
    features, first = _scenes([frames] * 25, spread)
    assert torch.equal(near_copies(features), first)


@pytest.mark.parametrize("dim", [2, 8, 64])
@pytest.mark.parametrize("n", [20, 200])
def test_images_that_only_look_alike_keep_their_number(n: int, dim: int) -> None:
    # The probability of one group or more is about 1% a set.
    random = torch.Generator().manual_seed(dim)
    sets = [torch.randn(n, dim, generator=random) for _ in range(20)]
    assert sum(len(near_copies(rows).unique()) < n for rows in sets) <= 2


def test_copies_belong_to_what_they_are_copies_of() -> None:
    features = torch.randn(100, 16, generator=torch.Generator().manual_seed(0))
    groups = near_copies(torch.cat([features, features[:7]]))
    assert groups.tolist() == [*range(100), *range(7)]


def test_kinds_of_images_are_no_scenes() -> None:
    features, kind = _scenes([30] * 3)
    assert len(near_copies(features).unique()) == 90
    single, _ = _scenes([1] * 300, dim=32, seed=1)
    assert len(near_copies(torch.cat([single, features[:30]])).unique()) == 330
    many, kind = _scenes([10] * 20)
    assert len(near_copies(many, kind).unique()) == 200, "classes"


def test_no_group_crosses_classes() -> None:
    features, first = _scenes([4] * 40)
    labels = (first // 4) % 2
    assert torch.equal(near_copies(features, labels), first)
    labels[0] = 1 - labels[0]
    groups = near_copies(features, labels)
    assert torch.equal(groups, torch.cat([torch.tensor([0, 1, 1, 1]), first[4:]]))


def test_what_is_not_compared_stays_alone() -> None:
    line = torch.ones(MOST_IMAGES + 1, 1)
    odd = torch.ones(20, 2)
    odd[3, 0] = torch.nan
    for features in (line, odd, torch.ones(3, 2), torch.zeros(20, 0)):
        assert torch.equal(near_copies(features), torch.arange(len(features)))
    assert len(near_copies(torch.ones(20, 4)).unique()) == 20, "all alike: one kind"
