"""What a CLIP that was trained on captioned vessels knows of them, and the CLIP as a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ood_lab.clip import ClipBackbone, ClipModel, save_clip
from ood_lab.data.datamodule import OODDataModule
from ood_lab.data.vessels.captions import style_captions
from ood_lab.data.vessels.nouns import NOUNS
from ood_lab.data.vessels.periods import CATEGORIES, CLASSES
from ood_lab.data.vessels.scene import RENDERER
from ood_lab.data.vessels.styles import STYLES, styles_of_level
from ood_lab.errors import UserError
from ood_lab.io import write_csv
from ood_lab.metrics import COLUMNS, wilson_interval
from ood_lab.run.compose import command_to_repeat
from ood_lab.run.workspace import Task, Workspace

_RETRIEVED_FROM = 512


@dataclass(frozen=True, kw_only=True)
class ClipReport(Task):
    """Measures the model on the vessels and writes it as a folder.

    On ID test: accuracy of the category (2), the period (11) and both (22). On the captioned set
    ``world``: accuracy of the undated things (26) and of the styles (18), and how often an image
    finds its own caption first, or among the first five, of 512 images.

    Args:
        export: folder of the model; None = ``clip`` in the run folder.
        like: folder that the model was made from.
    """

    export: str | None = None
    like: str | None = None

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table, shares with Wilson's 95% interval; None on the other ranks."""
        if not ws.is_main:
            return None
        if not isinstance(ws.backbone, ClipBackbone):
            raise UserError("task=clip_report measures a CLIP: choose model=clip")
        if "world" not in ws.data.splits:
            raise UserError(
                "task=clip_report needs images with captions: choose data=vessels_world"
            )
        clip = ws.backbone.clip
        clip.model.half().float()  # measured as it is stored
        ws.data.use_transform(eval=ws.backbone.transform)
        shares = {**_on_test(clip, ws.data), **_on_world(clip, ws.data)}
        rows = [(name, share, *wilson_interval(share, n), n) for name, (share, n) in shares.items()]
        table = pd.DataFrame(rows, columns=["metric", "value", "ci_low", "ci_high", "n_id"])
        table = table.assign(model=ws.model["name"], seed=ws.seed)
        results = table.reindex(columns=COLUMNS)
        write_csv(results, ws.folder / "results.csv")
        place = Path(self.export) if self.export else ws.folder / "clip"
        about = {
            "knows": "only images and captions of the builtin vessels",
            "command": command_to_repeat(),
            "seed": ws.seed,
            "renderer": RENDERER,
            "metrics": {metric: round(share, 4) for metric, (share, _) in shares.items()},
            "versions": ws.manifest.get("versions", {}),
        }
        save_clip(clip, place, self.like, about)
        ws.manifest |= {"title": f"zero-shot accuracies of {ws.model['name']}", "clip": str(place)}
        _show(results, place)
        return results


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


def _show(results: pd.DataFrame, place: Path) -> None:
    table = Table("", "%", "95% interval", "n", title="zero-shot", title_justify="left")
    for row in results.to_dict("records"):
        interval = f"{100 * row['ci_low']:.1f} to {100 * row['ci_high']:.1f}"
        table.add_row(row["metric"], f"{100 * row['value']:.1f}", interval, f"{row['n_id']:,}")
    Console().print(table)
    Console().print(f"load it with clip=open_clip clip.name=local-dir:{place}", soft_wrap=True)
