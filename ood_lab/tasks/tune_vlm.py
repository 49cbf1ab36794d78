"""Fine-tuning of a vision-language model, written as a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.training.examples import Chats
from ood_lab.lvlm.training.tuning_module import VlmTuning
from ood_lab.run.building import checkpoints
from ood_lab.run.job.workspace import Task, Workspace


@dataclass(frozen=True, kw_only=True)
class TuneVlm(Task):
    """Trains, and writes the model of the best epoch as a folder.

    Args:
        export: folder of the model; None = ``model`` in the run folder.
    """

    export: str | None

    def check(self, ws: Workspace) -> None:
        """Builds data and model, which says what is wrong with either."""
        self._parts(ws)

    def run(self, ws: Workspace) -> None:
        """Has no results table; ``manifest.json`` has the last metrics."""
        module, data = self._parts(ws)
        tuned(module, data, ws, self.export)

    def _parts(self, ws: Workspace) -> tuple[VlmTuning, Chats]:
        folder = ModelFolder(str(ws.model["path"]), "model.path")
        processor, model = folder.load_processor(), folder.load_model("float32")
        module = VlmTuning(
            model,
            processor,
            ws.build("model.optimizer"),
            ws.build("model.scheduler"),
            train=ws.model["train"],
            lora=ws.model["lora"],
        )
        data: Chats = ws.build("model.chats")
        data.collate = module.collate
        return module, data


def tuned(module: VlmTuning, data: Chats, ws: Workspace, export: str | None) -> Path | None:
    """Trains, writes the model of the best epoch as a folder, and says how to ask it.

    Args:
        module: the model and its optimiser.
        data: of the training, and of the validation if there is one.
        ws: has the trainer; its record gets the last metrics.
        export: the folder; None = ``model`` in the run folder.

    Returns:
        The folder; None on the other ranks.
    """
    trainer = ws.trainer
    if data.val is None:  # nothing tells the best epoch, so that it is the last one
        for callback in trainer.checkpoint_callbacks:
            callback.monitor = None  # type: ignore[attr-defined]
    trainer.fit(module, datamodule=data, ckpt_path=ws.last_checkpoint)
    if not ws.is_main:
        return None
    checkpoints.load_best(module, ws.folder)
    place = Path(export) if export else ws.folder / "model"
    module.cpu().save(place)
    ws.record.model_folder = str(place)
    ws.record.validation = {k: float(v) for k, v in trainer.callback_metrics.items()}
    Console().print(f"ask it with lvlm=transformers lvlm.path={place}", soft_wrap=True)
    return place
