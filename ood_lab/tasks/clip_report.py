"""What a CLIP that was trained on captioned vessels knows of them, and the CLIP as a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

from ood_lab.builtin.clip.vessel_report import shares
from ood_lab.builtin.vessels.scene import RENDERER
from ood_lab.clip import ClipBackbone, save_clip
from ood_lab.common.errors import UserError
from ood_lab.metrics import wilson_interval
from ood_lab.report.rendering.summary import show_accuracies
from ood_lab.run.commandline.composition import command_to_repeat
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import ACCURACY, write_results


@dataclass(frozen=True, kw_only=True)
class ClipReport(Task):
    """Measures the model on the vessels and writes it as a folder.

    Args:
        export: folder of the model; None = ``clip`` in the run folder.
        like: folder that the model was made from.
    """

    export: str | None
    like: str | None

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
        found = shares(clip, ws.data)
        rows = [(name, share, *wilson_interval(share, n), n) for name, (share, n) in found.items()]
        columns = ["metric", "value", "ci_low", "ci_high", "n"]
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        results = ACCURACY.table(records, model=ws.model["name"], seed=ws.seed)
        write_results(results, ws.folder)
        place = Path(self.export) if self.export else ws.folder / "clip"
        about = {
            "knows": "only images and captions of the builtin vessels",
            "command": command_to_repeat(),
            "seed": ws.seed,
            "renderer": RENDERER,
            "metrics": {metric: round(share, 4) for metric, (share, _) in found.items()},
            "versions": ws.record.versions,
        }
        save_clip(clip, place, self.like, about)
        ws.record.title = f"zero-shot accuracies of {ws.model['name']}"
        ws.record.clip_folder = str(place)
        show_accuracies(results, "Zero-shot, %", ws.folder)
        load = f"load it with clip=open_clip clip.name=local-dir:{place}"
        Console().print(load, soft_wrap=True)
        return results
