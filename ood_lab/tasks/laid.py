"""Training of the LAID matrix, from texts alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from ood_lab.io import write_csv, write_table
from ood_lab.metrics import COLUMNS
from ood_lab.run.task import Task
from ood_lab.run.workspace import Workspace
from ood_lab.shift import (
    LaidTraining,
    check_templates,
    encode_grid,
    pca_decomposition,
    read_texts,
    save_decomposition,
)
from ood_lab.shift.encoder import FILES

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainLaid(Task):
    """Trains W and writes ``laid/laid.safetensors`` and ``laid/pca.safetensors``.

    Raises:
        UserError: too few words, a template without ``{}``.
    """

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns held-out triplet accuracies, orthogonality error and energy shares."""
        labels, templates = (
            texts_of(ws.build, "texts.labels"),
            texts_of(ws.build, "texts.templates"),
        )
        check_templates(templates, "texts.templates")
        log.info("encoding %d labels x %d templates", len(labels), len(templates))
        grid = encode_grid(labels, templates, ws.clip.encode_text)
        identity = ws.clip.identity
        module: LaidTraining = ws.build("model.laid", grid=grid, clip=identity, seed=ws.seed)
        runner = ws.trainer()
        runner.fit(module, ckpt_path=ws.last_checkpoint)
        if not ws.is_main:
            return None
        place = ws.folder / "laid"
        decomposition = module.decomposition()
        save_decomposition(place / FILES[0], decomposition)
        save_decomposition(place / FILES[1], pca_decomposition(grid, identity, k=decomposition.k))
        found = {k: float(v) for k, v in runner.callback_metrics.items() if k.startswith("val/")}
        ws.manifest |= {"clip": identity, "laid": dict(decomposition.details), "held_out": found}
        ws.manifest |= {"texts": {"labels": len(labels), "templates": len(templates)}}
        results = _results(found, str(ws.model["name"]), ws.seed)
        write_csv(results, ws.folder / "results.csv")
        write_table(results, ws.folder / "results.parquet")
        _show(found, place)
        return results


def texts_of(build: Callable[..., Any], node: str) -> list[str]:
    """A list of texts from a configuration node: a list, a file, or a function that makes one."""
    found = build(node)
    return read_texts(found) if isinstance(found, str) else list(found)


def _results(found: Mapping[str, float], model: str, seed: int) -> pd.DataFrame:
    rows = [
        {"model": model, "metric": key.removeprefix("val/"), "value": value, "seed": seed}
        for key, value in found.items()
    ]
    return pd.DataFrame(rows).reindex(columns=COLUMNS)


def _show(found: Mapping[str, float], place: Path) -> None:
    table = Table(title="LAID, on words that were held out", title_justify="left", box=None)
    table.add_column("")
    table.add_column("value", justify="right")
    for key, value in found.items():
        table.add_row(key.removeprefix("val/").replace("_", " "), f"{value:.4f}")
    Console().print(table)
    log.info("measure with task.laid=%s", place.parent)
