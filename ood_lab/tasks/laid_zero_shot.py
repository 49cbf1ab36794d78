"""Zero-shot accuracy from the whole, the semantic and the covariate features (IS-OOD, table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from torch import Tensor

from ood_lab.clip import zero_shot_weights
from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.evaluation.shift.shift_encoder import clip_features, load_decompositions
from ood_lab.metrics import wilson_interval
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import Head, Table, estimate_cell, name_cell
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.image_columns import AXES
from ood_lab.schema.results import ACCURACY, write_results

TOP = (1, 5)


@dataclass(frozen=True, kw_only=True)
class LaidZeroShot(Task):
    """Classifies ID test by the class texts in each part of the features.

    If LAID separates meaning from looks, the semantic part classifies about as well as the whole
    and the covariate part at chance (IS-OOD, appendix B).

    Args:
        laid: folder with the matrices, see :func:`load_decompositions`.
        classnames: words for the classes; None = their names in the data.
        templates: texts with ``{}``; None = those that suit the CLIP.

    Raises:
        UserError: ID has no labels.
    """

    laid: str | None
    classnames: Sequence[str] | None
    templates: Sequence[str] | None

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns a results table: ``part`` holds ``<decomposition>_<part>``.

        The metrics are ``acc1`` and ``acc5``; None on the other ranks.
        """
        data, folder = ws.data, ws.folder
        if not data.classes:
            raise UserError("task=laid_zero_shot needs classes: the ID images have no labels")
        decompositions = load_decompositions(ws.clip, self.laid)
        features = clip_features(data, ws.extractor, ws.features_root, ws.clip, ["test"])
        if not ws.is_main:
            return None
        images, labels = features["test"], data.splits["test"].labels
        texts = zero_shot_weights(ws.clip, list(self.classnames or data.classes), self.templates)
        rows = []
        for decomposition in decompositions:
            if decomposition.name == "clip":  # the undecomposed CLIP has one part, the whole
                rows += _accuracies(images @ texts.T, labels, f"{decomposition.name}_whole")
                continue
            for axis in AXES:
                cosines = decomposition.part(images, axis) @ decomposition.part(texts, axis).T
                rows += _accuracies(cosines, labels, f"{decomposition.name}_{axis}")
        results = ACCURACY.table(rows, model=ws.clip.name, seed=ws.seed)
        write_results(results, folder)
        ws.record.clip = dict(decompositions[0].clip)
        ws.record.classes = data.classes
        _show(results, folder, len(data.classes))
        return results


def _accuracies(cosines: Tensor, labels: Tensor, name: str) -> list[Fields]:
    labelled = labels >= 0
    ranked = cosines[labelled].topk(min(max(TOP), cosines.shape[1]), dim=1).indices
    hits = ranked == labels[labelled, None]
    rows = []
    for top in TOP:
        right, n = int(hits[:, :top].any(dim=1).sum()), int(labelled.sum())
        low, high = wilson_interval(right / n, n)
        columns = {"part": name, "n": n, "metric": f"acc{top}"}
        rows.append(columns | {"value": right / n, "ci_low": low, "ci_high": high})
    return rows


def _show(results: pd.DataFrame, folder: Path, classes: int) -> None:
    rows = [
        [name_cell(str(name).replace("_", " ")), *map(estimate_cell, of_part.to_dict("records"))]
        for name, of_part in results.groupby("part", sort=False)
    ]
    heads = [Head("features", "ascending"), *(Head(f"Acc@{top}") for top in TOP)]
    title = f"Zero-shot accuracy in %, {classes} classes (chance {100 / classes:.1f})"
    show_blocks([Table(title, heads, rows, spreads=True)], folder, "laid_zero_shot", lines=None)
