"""The plan of Syn-IS: which prompts become images."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.clip import ClipModel
from ood_lab.common.errors import UserError
from ood_lab.shift import Decomposition, Edges, ShiftMeter, load_edges, pool_edges, save_edges
from ood_lab.synthesis import (
    Prompts,
    check_suffix,
    choose,
    measure_prompts,
    plan_table,
    progress_bar,
    short_cells,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """How prompts are chosen; see :class:`~ood_lab.tasks.synthesize.Synthesize`."""

    prompts: int | None
    k: int | None
    edges: str | None
    levels: int
    per_cell: int
    on_short: str
    seed: int
    suffix: str

    def __post_init__(self) -> None:
        check_suffix(self.suffix)
        if self.on_short not in ("go_on", "stop"):
            raise UserError(f"task.on_short={self.on_short}: give go_on or stop")
        for name in ("per_cell", "prompts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"task.{name}={value}: give a number from 1")

    def given_edges(self) -> Edges | None:
        """The edges of the file, if there is one."""
        return load_edges(Path(self.edges).expanduser()) if self.edges else None


def pick_decomposition(loaded: Sequence[Decomposition], name: str) -> Decomposition:
    """The one of that name.

    Raises:
        UserError: there is none.
    """
    by_name = {decomposition.name: decomposition for decomposition in loaded}
    if name not in by_name:
        raise UserError(f"task.decomposition={name}: give one of {', '.join(by_name)}")
    return by_name[name]


def make_plan(
    pool: Prompts, clip: ClipModel, meter: ShiftMeter, choice: Choice, folder: Path
) -> pd.DataFrame:
    """Measures the prompts, writes ``level_edges.json`` and returns the table of the chosen ones.

    Raises:
        UserError: the degrees do not spread, or cells are short and ``on_short`` is ``stop``.
    """
    numbers, fixed = np.arange(len(pool)), choice.given_edges()
    if choice.prompts is not None and choice.prompts < len(pool):
        draw = np.random.default_rng(choice.seed)
        numbers = np.sort(draw.choice(len(pool), choice.prompts, replace=False))
    with progress_bar("measuring prompts", len(numbers)) as progress:
        degrees = measure_prompts(pool, numbers.tolist(), clip.encode_text, meter, progress)
    semantic, covariate = degrees.semantic.numpy(), degrees.covariate.numpy()
    edges = fixed or pool_edges(semantic, covariate, levels=choice.levels)
    cells = edges.levels(semantic, covariate)
    _report_short(short_cells(*cells, edges.shape, choice.per_cell), edges, choice)
    folder.mkdir(parents=True, exist_ok=True)
    save_edges(folder / "level_edges.json", edges)
    chosen = choose(*cells, choice.per_cell, choice.seed)
    return plan_table(pool, numbers, degrees, cells, chosen, choice.seed, choice.suffix)


def _report_short(short: Sequence[str], edges: Edges, choice: Choice) -> None:
    if not short:
        return
    cells = edges.shape[0] * edges.shape[1]
    text = f"{len(short)} of {cells} cells have fewer than {choice.per_cell} prompts: "
    text += ", ".join(short)
    if choice.on_short == "stop":
        raise UserError(f"{text}; lower task.per_cell, give more labels, or task.on_short=go_on")
    log.warning("%s; they get what there is", text)
