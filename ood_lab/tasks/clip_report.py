"""What a CLIP that was trained on captioned vessels knows of them, and the CLIP as a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from ood_lab.builtin.clip.vessels import shares
from ood_lab.builtin.vessels.scene import RENDERER
from ood_lab.clip import ClipBackbone, save_clip
from ood_lab.errors import UserError
from ood_lab.io import write_csv
from ood_lab.metrics import COLUMNS, wilson_interval
from ood_lab.run.compose import command_to_repeat
from ood_lab.run.workspace import Task, Workspace


@dataclass(frozen=True, kw_only=True)
class ClipReport(Task):
    """Measures the model on the vessels and writes it as a folder.

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
        found = shares(clip, ws.data)
        rows = [(name, share, *wilson_interval(share, n), n) for name, (share, n) in found.items()]
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
            "metrics": {metric: round(share, 4) for metric, (share, _) in found.items()},
            "versions": ws.manifest.get("versions", {}),
        }
        save_clip(clip, place, self.like, about)
        ws.manifest |= {"title": f"zero-shot accuracies of {ws.model['name']}", "clip": str(place)}
        _show(results, place)
        return results


def _show(results: pd.DataFrame, place: Path) -> None:
    table = Table("", "%", "95% interval", "n", title="zero-shot", title_justify="left")
    for row in results.to_dict("records"):
        interval = f"{100 * row['ci_low']:.1f} to {100 * row['ci_high']:.1f}"
        table.add_row(row["metric"], f"{100 * row['value']:.1f}", interval, f"{row['n_id']:,}")
    Console().print(table)
    Console().print(f"load it with clip=open_clip clip.name=local-dir:{place}", soft_wrap=True)
