"""How well backbones separate every set from ID, before any detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.clip import clip_backbone
from ood_lab.common.arguments import Count
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.common.random_streams import stream
from ood_lab.data.transforms.subsets import only_rows
from ood_lab.evaluation.split_features import Extraction
from ood_lab.report.rendering.drawing import write_all
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.shift.shift_figures import Space, separability_figure
from ood_lab.report.shift.shift_tables import separability_table
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.shift import separability as separate
from ood_lab.shift.separability import Axes


@dataclass(frozen=True, kw_only=True)
class Separability(Task):
    """Writes ``separability.csv`` and ``figures/separability``: ShiftedBronzes' view of spaces.

    Principal components of the features of each backbone, and the Bhattacharyya distance of every
    set to ID train on them (:func:`ood_lab.shift.separability`). ID test is a set like the OOD
    sets: it says what no shift looks like. Backbones are those of finished runs, and of
    ``networks``.

    Args:
        runs: run folders, one a backbone.
        clip: add the image features of the CLIP.
        components: principal components at most.
        axes: see :func:`ood_lab.shift.separability`.
        most_images: of each set, drawn at random; None = all.

    Raises:
        UserError: no backbone, one run twice, a set of fewer than two images.
    """

    runs: Sequence[str]
    clip: bool
    components: Count
    axes: Axes
    most_images: Count | None

    def run(self, ws: Workspace) -> None:
        """See the class."""
        names = names_of(self.runs)
        networks = ws.cfg.networks
        if not (names or networks or self.clip):
            raise UserError(
                "no backbone: give run folders as task.runs=['RUN_A','RUN_B'], or task.clip=true"
            )
        data = ws.data
        sets = ["train", "test", *data.ood_names]
        for name in sets:
            images = data.splits[name]
            if len(images) < 2:
                raise UserError(
                    f"'{name}' has fewer than 2 images: no distance can be measured to it"
                )
            if self.most_images is not None and self.most_images < len(images):
                draw = stream(ws.seed, f"images of {name}")
                rows = draw.choice(len(images), self.most_images, replace=False)
                data.splits[name] = only_rows(images, np.sort(rows))
        # All of them first, so that a run that is none shows before the first pass over the images.
        backbones = {name: ws.backbone_of(run) for name, run in zip(names, self.runs, strict=True)}
        backbones |= {str(name): ws.network(networks[name], None) for name in networks}
        if self.clip:
            model = ws.build("clip")
            backbones[f"CLIP {model.name}"] = clip_backbone(model, data.classes or ["object"])
        spaces = {}
        for name, backbone in backbones.items():
            extraction = Extraction(data, backbone, ws.extractor, ws.features_root)
            features = extraction.features(sets)
            if ws.is_main:
                of_id = features.pop("train")
                spaces[name] = separate(of_id, features, self.components, self.axes)
        if not ws.is_main:
            return
        tables = {name: space.table for name, space in spaces.items()}
        table = pd.concat(tables, names=["backbone"]).reset_index("backbone")
        write_csv(table, ws.folder / "separability.csv")
        shown = {
            name: Space(
                {of_set: rows.numpy() for of_set, rows in space.points.items()},
                space.projection.variance_share.tolist(),
                space.table,
            )
            for name, space in spaces.items()
        }
        write_all(
            ws.folder / "figures",
            [separability_figure(shown)],
        )
        ws.record.backbones = dict(zip(names, map(str, self.runs), strict=True))
        ws.record.data = data.identities
        blocks = [separability_table(tables, self.axes)]
        show_blocks(blocks, ws.folder, "separability", lines=None)


def names_of(runs: Sequence[str]) -> list[str]:
    """Short names of run folders ``<name>/<hash>/seed=<s>``: as much of that as tells them apart.

    Raises:
        UserError: a run is named twice.
    """
    parts = [Path(run).absolute().parts[-3:] for run in runs]
    for length in (1, 2, 3):
        names = ["/".join(part[:length]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UserError(f"task.runs names a run twice: {', '.join(map(str, runs))}")
