"""Training of the LAID matrix, from texts alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
from rich.console import Console
from rich.table import Table

from ood_lab.clip import ClipModel
from ood_lab.io import write_csv, write_table
from ood_lab.metrics import COLUMNS
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


def laid(
    *,
    clip: ClipModel,
    trainer: Callable[[], L.Trainer],
    build: Callable[..., Any],
    last_checkpoint: Path | None,
    folder: Path,
    seed: int,
    model: Mapping[str, Any],
    manifest: dict[str, Any],
    is_main: bool,
) -> pd.DataFrame | None:
    """Trains W and writes ``laid/laid.safetensors`` and ``laid/pca.safetensors``.

    Args:
        clip: encodes the texts.
        trainer: makes the Trainer.
        build: makes the objects of configuration nodes: ``texts`` and ``model.laid``.
        last_checkpoint: of an interrupted training of this run.
        folder: run folder.
        seed: of the initial W, the held-out words and the triplets.
        model: ``name`` is read.
        manifest: filled with what made the matrix.
        is_main: False on the other ranks, which only train.

    Returns:
        Held-out triplet accuracies, orthogonality error and energy shares, as a results table.

    Raises:
        UserError: too few words, a template without ``{}``.
    """
    labels, templates = texts_of(build, "texts.labels"), texts_of(build, "texts.templates")
    check_templates(templates, "texts.templates")
    log.info("encoding %d labels x %d templates", len(labels), len(templates))
    grid = encode_grid(labels, templates, clip.encode_text)
    identity = clip.identity
    module: LaidTraining = build("model.laid", grid=grid, clip=identity, seed=seed)
    runner = trainer()
    runner.fit(module, ckpt_path=last_checkpoint)
    if not is_main:
        return None
    place = folder / "laid"
    decomposition = module.decomposition()
    save_decomposition(place / FILES[0], decomposition)
    save_decomposition(place / FILES[1], pca_decomposition(grid, identity, k=decomposition.k))
    found = {k: float(v) for k, v in runner.callback_metrics.items() if k.startswith("val/")}
    manifest |= {"clip": identity, "laid": dict(decomposition.details), "held_out": found}
    manifest |= {"texts": {"labels": len(labels), "templates": len(templates)}}
    results = _results(found, str(model["name"]), seed)
    write_csv(results, folder / "results.csv")
    write_table(results, folder / "results.parquet")
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
