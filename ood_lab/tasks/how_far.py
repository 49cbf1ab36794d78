"""How far the data is from ID, in meaning and in looks, and which detector notices: one page."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch.nn.functional as F

from ood_lab.arguments import Count, Levels
from ood_lab.errors import UserError
from ood_lab.evaluation.banks import Extraction, require_ood
from ood_lab.evaluation.distance import (
    SPLIT,
    WHOLE,
    Distances,
    measured_degrees,
    own_distances,
    summarised,
)
from ood_lab.evaluation.encoder import (
    HELD_OUT,
    LaidSettings,
    clip_features,
    foreign,
    has_matrices,
    learnt,
    load_decompositions,
)
from ood_lab.io import read_json, write_table
from ood_lab.results import write_results
from ood_lab.run.workspace import Workspace
from ood_lab.shift import LEVELS as MOST
from ood_lab.shift import cell_counts, pool_edges, shift_results
from ood_lab.tasks.divide import with_sources, write_division
from ood_lab.tasks.score import Score

log = logging.getLogger(__name__)

#: Images of a cell on average, where the number of levels follows from that of the images.
_PER_CELL = 40
_FEWEST_LEVELS = 3
#: The neighbour where no matrix says one.
_K = 10


@dataclass(frozen=True, kw_only=True)
class HowFar(Score):
    """Measures and divides the OOD sets, then scores every detector on sets and levels.

    ``degrees.parquet`` and the rows of kind ``shift`` in ``results.*`` say how far every image and
    set is from ID train; ``levels.parquet`` and ``cells/`` which level it has, see
    :class:`~ood_lab.tasks.divide.Divide`. ``report.html`` begins with the answer.

    Args:
        distance: what measures, see the YAML file.
        laid: folder with the matrices; None = see the YAML file.
        k: neighbour; None = that of the matrix.
        levels: of each axis; None = as many as the images allow.
        training: of the matrices, where the CLIP comes without.

    Raises:
        UserError: no OOD set; a CLIP that knows nothing of these images; see
            :class:`~ood_lab.tasks.score.Score`.
    """

    distance: Literal["auto", "clip", "features"]
    laid: str | None
    k: Count | None
    levels: Levels | None
    training: LaidSettings

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` without OOD sets, and what the scoring raises."""
        require_ood(ws.data)
        if self.distance == "clip" and (said := foreign(ws.clip, ws.data)):
            raise UserError(f"task.distance=clip: {said}")
        super().check(ws)

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks."""
        return self.scored(ws, self._measured(ws))

    def _measured(self, ws: Workspace) -> Distances | None:
        """How far every image is; None on the other ranks, which have done their share."""
        names = ["train", "test", *ws.data.ood_names]
        unknown = foreign(ws.clip, ws.data)
        if self.distance == "clip" or (self.distance == "auto" and not unknown):
            found = self._by_clip(ws, names)
        else:
            found = self._by_network(ws, names, unknown)
        if found is None:
            return None
        write_table(found.degrees, ws.folder / "degrees.parquet")
        name = str(found.facts["by"])
        summary = found.summary
        write_results(shift_results(summary, name, ws.seed), ws.folder)
        ws.manifest["distance"] = dict(found.facts)
        return found

    def _by_network(self, ws: Workspace, names: list[str], unknown: str | None) -> Distances | None:
        extraction = Extraction(ws.data, ws.backbone, ws.extractor, ws.features_root)
        features = extraction.features(names)
        if not ws.is_main:
            return None
        unit = {name: F.normalize(rows.float(), dim=1) for name, rows in features.items()}
        k = self.k or _K
        device = ws.extractor.strategy.root_device
        degrees = own_distances(ws.data, unit, k, device)
        facts: dict[str, Any] = {"by": str(ws.model["name"]), "k": k, "unsplit": True}
        if unknown:
            facts["why"] = unknown
        return self._of(ws, degrees, WHOLE, facts)

    def _by_clip(self, ws: Workspace, names: list[str]) -> Distances | None:
        folder = self._matrices(ws)
        features = clip_features(ws.data, ws.extractor, ws.features_root, ws.clip, names)
        if not ws.is_main:
            return None
        decompositions = load_decompositions(ws.clip, folder)
        device = ws.extractor.strategy.root_device
        degrees = measured_degrees(ws.data, features, decompositions, self.k, device)
        main = decompositions[0]
        facts: dict[str, Any] = {"by": ws.clip.name, "k": self.k or main.k, "unsplit": False}
        facts |= {"clip": dict(main.clip), "laid": dict(main.details)}
        if folder and (Path(folder) / HELD_OUT).exists():
            facts["held_out"] = read_json(Path(folder) / HELD_OUT)
        found = self._of(ws, degrees, SPLIT, facts)
        return replace(found, levels=self._divided(ws, degrees))

    def _matrices(self, ws: Workspace) -> str | None:
        """Folder of the matrices; None = those that are shipped with the CLIP."""
        if self.laid or has_matrices(ws.clip):
            return self.laid
        folder = Path(ws.cfg.paths.laid)
        found = learnt(ws.clip, folder, self.training) if ws.is_main else None
        ws.extractor.strategy.barrier()
        return str(found)

    def _of(
        self, ws: Workspace, degrees: pd.DataFrame, axes: Mapping[str, str], facts: dict[str, Any]
    ) -> Distances:
        summary = summarised(degrees, **ws.resampling, axes=list(axes))
        return Distances(degrees, summary, axes, facts)

    def _divided(self, ws: Workspace, degrees: pd.DataFrame) -> pd.DataFrame:
        """The images of all OOD sets with their levels; empty where they are too few."""
        pool = degrees[degrees["dataset"].isin(ws.data.ood_names)].reset_index(drop=True)
        levels = self.levels or min(MOST, math.isqrt(len(pool) // _PER_CELL))
        if levels < _FEWEST_LEVELS:
            log.info("%d OOD images are too few for levels of shift", len(pool))
            return pool.iloc[:0]
        edges = pool_edges(pool["semantic"], pool["covariate"], levels=levels)
        semantic, covariate = edges.levels(pool["semantic"], pool["covariate"])
        pool = pool.assign(semantic_level=semantic, covariate_level=covariate)
        pool = with_sources(pool, ws.data, ws.cfg.paths.cache)
        counts = cell_counts(covariate, semantic, edges.shape)
        write_division(ws.folder, pool, counts, edges)
        ws.manifest["edges"] = json.loads(json.dumps(asdict(edges)))
        return pool
