"""Fine-tuning of a vision-language model, written as a folder."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
from annotated_types import Ge
from rich.console import Console

from ood_lab.builtin.scenes.scene import RENDERER
from ood_lab.builtin.vlm.held_out_answers import held_out_accuracy
from ood_lab.builtin.vlm.tuning_module import vlm_tuning
from ood_lab.common.files import write_text
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.training.example_batches import Chats
from ood_lab.lvlm.training.tuning_module import VlmTuning
from ood_lab.report.rendering.summary import show_accuracies
from ood_lab.run.building import checkpoints
from ood_lab.run.commandline.composition import command_to_repeat
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import ACCURACY, write_results

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TuneVlm(Task):
    """Trains, writes the model of the best epoch as a folder, and asks it about held-out scenes.

    Args:
        export: folder of the model; None = ``model`` in the run folder.
        scenes: builtin test scenes of its questions; 0 = none.
    """

    export: str | None
    scenes: Annotated[int, Ge(0)]

    def check(self, ws: Workspace) -> None:
        """Builds data and model, which says what is wrong with either."""
        self._parts(ws)

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns rates of right answers with their intervals; None without questions."""
        module, data = self._parts(ws)
        trainer = ws.trainer
        if data.val is None:  # nothing tells the best epoch, so that it is the last one
            for callback in trainer.checkpoint_callbacks:
                callback.monitor = None  # type: ignore[attr-defined]
        trainer.fit(module, datamodule=data, ckpt_path=ws.last_checkpoint)
        if not ws.is_main:
            return None
        checkpoints.load_best(module, ws.folder)
        place = Path(self.export) if self.export else ws.folder / "model"
        tiny = ws.model["path"] is None
        module.cpu().save(place, torch.float16 if tiny else None)
        found = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("val/")}
        ws.record.model_folder = str(place)
        ws.record.validation = found
        results = self._held_out(ws, place)
        if tiny:
            write_text(json.dumps(_about(ws, results), indent=1) + "\n", place / "about.json")
        Console().print(f"ask it with lvlm=transformers lvlm.path={place}", soft_wrap=True)
        return results

    def _parts(self, ws: Workspace) -> tuple[VlmTuning, Chats]:
        kept = ("path", "train", "lora", "tower_epochs", "join_epochs", "tower")
        settings = {key: ws.model[key] for key in kept}
        module = vlm_tuning(
            **settings,
            optimizer=ws.build("model.optimizer"),
            scheduler=ws.build("model.scheduler"),
        )
        data: Chats = ws.build("model.chats")
        data.collate = module.collate
        return module, data

    def _held_out(self, ws: Workspace, place: Path) -> pd.DataFrame | None:
        if not self.scenes:
            return None
        log.info("asking about %d held-out scenes", self.scenes)
        shares = held_out_accuracy(TransformersChat(str(place), batch_size=64), self.scenes)
        results = ACCURACY.table(shares, model=ws.model["name"], seed=ws.seed)
        write_results(results, ws.folder)
        show_accuracies(results, "Held-out scenes, %", ws.folder)
        return results


def _about(ws: Workspace, results: pd.DataFrame | None) -> dict[str, object]:
    shares = {} if results is None else dict(zip(results["metric"], results["value"], strict=True))
    return {
        "knows": "only builtin scenes and questions about them",
        "command": command_to_repeat(),
        "seed": ws.seed,
        "renderer": RENDERER,
        "accuracy": {metric: round(share, 4) for metric, share in shares.items()},
        "versions": ws.record.versions,
    }
