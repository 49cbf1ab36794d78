"""What a CLIP that was trained on captioned vessels knows of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.builtin.vessels.captions import style_captions
from ood_lab.builtin.vessels.covariate_styles import STYLES, styles_of_level
from ood_lab.builtin.vessels.nouns import NOUNS
from ood_lab.builtin.vessels.periods import CATEGORIES, CLASSES
from ood_lab.clip import ClipModel
from ood_lab.data.datamodules.base import OODDataModule

_RETRIEVED_FROM = 512


def shares(clip: ClipModel, data: OODDataModule) -> dict[str, tuple[float, int]]:
    """Shares of right answers, and of how many images, by metric.

    On ID test: accuracy of the category (2), the period (11) and both (22). On the captioned set
    ``world``: accuracy of the undated things (26) and of the styles (18), and how often an image
    finds its own caption first, or among the first five, of 512 images.
    """
    return {**_on_test(clip, data), **_on_world(clip, data)}


def _on_test(clip: ClipModel, data: OODDataModule) -> dict[str, tuple[float, int]]:
    features, rows = _features(clip, data, "test")
    texts = [
        [t for s in styles_of_level(0) for t in style_captions(s, f"{period} {category}")]
        for category in CATEGORIES
        for period in CLASSES
    ]
    both = _centres(clip, texts)
    halves = both.view(len(CATEGORIES), len(CLASSES), -1)
    period, category = rows["label"], rows["category"]
    joint = category.to_numpy() * len(CLASSES) + period.to_numpy()
    return {
        "category_accuracy": _accuracy(features, F.normalize(halves.mean(1), dim=-1), category),
        "period_accuracy": _accuracy(features, F.normalize(halves.mean(0), dim=-1), period),
        "category_and_period_accuracy": _accuracy(features, both, pd.Series(joint)),
    }


def _on_world(clip: ClipModel, data: OODDataModule) -> dict[str, tuple[float, int]]:
    features, rows = _features(clip, data, "world")
    undated = np.flatnonzero(rows["period"] < 0)
    nouns, styles = list(NOUNS), list(STYLES)
    things = _centres(clip, [[t for s in styles for t in style_captions(s, n)] for n in nouns])
    looks = _centres(clip, [style_captions(s, "thing") for s in styles])
    named = rows["noun"].iloc[undated].map(nouns.index)
    first, fifth = _retrieval(clip, features, rows["caption"].tolist())
    return {
        "thing_accuracy": _accuracy(features[undated], things, named),
        "style_accuracy": _accuracy(features, looks, rows["style"].map(styles.index)),
        "retrieval_at_1": first,
        "retrieval_at_5": fifth,
    }


@torch.no_grad()
def _features(clip: ClipModel, data: OODDataModule, split: str) -> tuple[Tensor, pd.DataFrame]:
    clip.eval()
    loader = data.predict_loader(split)
    parts = [clip.encode_image(batch["image"].to(clip.device)).cpu() for batch in loader]
    return torch.cat(parts), data.splits[split].table


def _centres(clip: ClipModel, texts: Sequence[Sequence[str]]) -> Tensor:
    """The normalised mean of each class's texts, ``[C, d]``."""
    means = [clip.encode_text(list(group)).mean(0) for group in texts]
    return F.normalize(torch.stack(means), dim=-1).cpu()


def _accuracy(features: Tensor, centres: Tensor, truth: pd.Series) -> tuple[float, int]:
    predicted = (features @ centres.T).argmax(1).numpy()
    return float((predicted == truth.to_numpy()).mean()), len(truth)


def _retrieval(
    clip: ClipModel, features: Tensor, captions: Sequence[str]
) -> tuple[tuple[float, int], tuple[float, int]]:
    """Share of images whose own caption is the nearest, or among the nearest five."""
    n = min(_RETRIEVED_FROM, len(captions))
    distinct = {caption: row for row, caption in enumerate(dict.fromkeys(captions[:n]))}
    similar = features[:n] @ clip.encode_text(list(distinct)).cpu().T
    own = torch.tensor([distinct[caption] for caption in captions[:n]])
    rank = (similar > similar.gather(1, own[:, None])).sum(1)
    first, fifth = ((float((rank < k).float().mean()), n) for k in (1, 5))
    return first, fifth
