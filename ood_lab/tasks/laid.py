"""Training of the LAID matrix, only from texts."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pandas as pd

from ood_lab.clip.backbone import check_templates
from ood_lab.evaluation.shift.shift_encoder import save_matrices
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import text_table
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import ACCURACY, write_results
from ood_lab.shift import encode_grid, read_texts

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainLaid(Task):
    """Trains W and writes ``laid/laid.safetensors`` and ``laid/pca.safetensors``.

    Raises:
        UserError: too few words, a template without ``{}``.
    """

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns held-out triplet accuracies, orthogonality error and energy shares."""
        labels, templates = (_texts(ws, f"texts.{name}") for name in ("labels", "templates"))
        check_templates(templates)
        log.info("encoding %d labels x %d templates", len(labels), len(templates))
        grid = encode_grid(labels, templates, ws.clip.encode_text)
        identity = ws.clip.identity
        # As an argument of Hydra, the grid would become a dictionary.
        training = ws.build("model.laid", _partial_=True)
        module = training(grid=grid, clip=identity, seed=ws.seed)
        runner = ws.trainer
        runner.fit(module, ckpt_path=ws.last_checkpoint)
        if not ws.is_main:
            return None
        place = ws.folder / "laid"
        decomposition = save_matrices(place, module, grid, identity)
        accuracies = {
            k: float(v) for k, v in runner.callback_metrics.items() if k.startswith("val/")
        }
        ws.record.clip = identity
        ws.record.laid = dict(decomposition.details)
        ws.record.held_out = accuracies
        ws.record.texts = {"labels": len(labels), "templates": len(templates)}
        shares = {key.removeprefix("val/"): value for key, value in accuracies.items()}
        rows = [{"metric": metric, "value": value} for metric, value in shares.items()]
        results = ACCURACY.table(rows, model=ws.model["name"], seed=ws.seed)
        write_results(results, ws.folder)
        texts = [
            {"metric": metric.replace("_", " "), "value": f"{value:.4f}"}
            for metric, value in shares.items()
        ]
        table = text_table("LAID, on words that were held out", texts)
        show_blocks([table], ws.folder, "accuracies", lines=None)
        log.info("measure with task.laid=%s", place.parent)
        return results


def _texts(ws: Workspace, node: str) -> list[str]:
    """A list of texts from a configuration node: a list, a file, or a function that makes one."""
    texts = ws.build(node)
    return read_texts(texts) if isinstance(texts, str) else list(texts)
