"""Rounds: a run that continues an earlier one with other pairs, attributes or images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_table
from ood_lab.lvlm.concepts.concepts import Pair, merged, read_graphml
from ood_lab.schema.run_record import RunRecord

#: Files that a run leaves for the next round.
PAIRS, CAPTIONS, JUDGED = "pairs.csv", "captions.parquet", "judged.parquet"


@dataclass(frozen=True)
class Round:
    """A finished run that the next one continues.

    Attributes:
        folder: of the run.
        number: from 1.
        lineage: hash of how it came about, and all rounds before it.
    """

    folder: Path
    number: int
    lineage: str

    @property
    def pairs(self) -> list[Pair]:
        """Pairs of this round and of all before it."""
        table = read_table(self.folder / PAIRS)
        rows = table[["first", "second", "kind"]].drop_duplicates().itertuples(index=False)
        return [Pair(str(a), str(b), "ee" if kind == "ee" else "ev") for a, b, kind in rows]

    @property
    def answers(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Its captions, and its answers to yes/no questions."""
        return read_table(self.folder / CAPTIONS), read_table(self.folder / JUDGED)

    def merged_with(self, graphs: Mapping[str, nx.Graph], same: bool) -> dict[str, nx.Graph]:
        """The graphs of this round and new ones together; frequencies add up.

        Args:
            graphs: by name.
            same: they come from the same annotations, and nothing is to be added.
        """
        if same:
            return dict(graphs)
        return {
            name: merged(read_graphml(self.folder / f"graph_{name}.graphml"), graph)
            for name, graph in graphs.items()
        }


def read_round(folder: Path) -> Round:
    """An earlier run of this task.

    Raises:
        UserError: it is none, or has not been scored.
    """
    about = RunRecord.read(folder, missing_ok=True).ode
    if not (folder / PAIRS).is_file() or "lineage" not in about:
        raise UserError(f"task.previous={folder} is not a finished run of task=ode")
    return Round(folder, int(about["round"]), str(about["lineage"]))


def lineage(previous: Round | None, made_with: Sequence[str]) -> str:
    """First 16 hex digits of the hash of a round and of all before it.

    Args:
        previous: the round before it.
        made_with: hashes of its questions and concepts.
    """
    parent = previous.lineage if previous else ""
    text = json.dumps([parent, *made_with])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
