"""Semantic and covariate shift of the data from ID, and the detectors that detect it."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd
import torch.nn.functional as F

from ood_lab.common.arguments import Count, Levels
from ood_lab.common.errors import UserError
from ood_lab.common.files import read_json, read_table, write_table
from ood_lab.evaluation.near_copies import group_near_copies
from ood_lab.evaluation.network_passes import Passed
from ood_lab.evaluation.run_page import STATISTICS
from ood_lab.evaluation.shift.image_distances import (
    SPLIT,
    UNSPLIT,
    Distances,
    measured_degrees,
    own_distances,
    summarised,
)
from ood_lab.evaluation.shift.shift_encoder import (
    HELD_OUT,
    LaidSettings,
    clip_features,
    foreign,
    has_matrices,
    knows_images,
    learnt,
    learnt_before,
    load_decompositions,
    unknowing,
)
from ood_lab.evaluation.shift.shift_rulers import (
    corrupted_test,
    mark_distances,
    neighbour_of,
    shift_in_units,
)
from ood_lab.evaluation.shift.statistics_column import (
    StatisticsColumn,
    statistics_of,
    statistics_table,
)
from ood_lab.evaluation.split_features import require_ood
from ood_lab.features.bank import Banks
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.lvlm.answers.answer_locations import model_name, store_of, write_answers
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.membership_detector import (
    MembershipScores,
    asked_of,
    check_wording,
    questions_about,
)
from ood_lab.lvlm.questions.question_files import write_questions
from ood_lab.metrics import cause_results
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.image_groups import MADE_OF
from ood_lab.schema.results import Names
from ood_lab.shift import LEVELS as MOST
from ood_lab.shift import StatisticsDistance, pool_edges, undecomposed
from ood_lab.tasks.score import Score
from ood_lab.tasks.shift_levels import write_division

log = logging.getLogger(__name__)

#: Images of a cell on average, where the number of levels follows from that of the images.
_PER_CELL = 40
_FEWEST_LEVELS = 3
#: Files of the run folder.
DEGREES, MARKS = "shift_scores.parquet", "ruler.parquet"
QUESTIONS, ANSWERS = "questions.jsonl", "answers.jsonl"


@dataclass(frozen=True, kw_only=True)
class ShiftReport(Score):
    """Measures and divides the OOD sets, then scores every detector on sets and levels.

    ``shift_scores.parquet`` and the rows of kind ``shift`` in ``results.*`` have the shift of
    every image and set from ID train; ``levels.parquet`` and ``cells/`` which level it has, see
    :class:`~ood_lab.tasks.shift_levels.ShiftLevels`. ``report.html`` begins with the summary.

    Args:
        distance: what measures, see the YAML file.
        laid: folder with the matrices; None = see the YAML file.
        k: neighbour; None = from the number of images, that of the matrix at most.
        levels: of each axis; None = as many as the images allow.
        training: of the matrices, for a CLIP without them.
        question: the prompt of ``lvlm=...`` about every image; ``{classes}`` = the ID classes.
        accept_failed: images about which there is no answer count as undecided; else the run is
            not finished, and the same command asks again.

    Raises:
        UserError: a CLIP or vision-language model that knows nothing of these images; a question
            that names no classes; see :class:`~ood_lab.tasks.score.Score`.
    """

    distance: Literal["auto", "clip", "features"]
    laid: str | None
    k: Count | None
    levels: Levels | None
    training: LaidSettings
    question: str
    accept_failed: bool
    always: ClassVar[Sequence[BankColumn]] = (StatisticsColumn(),)

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` where CLIP, VLM and data clash; see the scoring too."""
        if not self.keep_features:
            raise UserError(
                "task.keep_features=false is not supported by task=shift_report, which needs all "
                "training features. Remove it, or skip the shift with task=score"
            )
        if self.distance == "clip" and (said := foreign(ws.clip, ws.data)):
            raise UserError(f"task.distance=clip: {said}")
        if ws.settings.get("lvlm"):
            require_ood(ws.data)
            check_wording(self.question, ws.data.classes)
            self._check_model(ws)
        super().check(ws)

    def _check_model(self, ws: Workspace) -> None:
        model = ws.lvlm
        made_with = model.made_with  # a folder that is not there shows here
        knows = getattr(model, "knows", None)
        if not knows_images(knows, ws.data):
            raise UserError(
                f"the vision-language model '{model_name(made_with)}' knows {knows}: of these "
                "images it knows nothing; data=scenes are what it knows, and lvlm=transformers "
                "lvlm.path=DIR or lvlm=openai asks another"
            )
        # A server that is not there; of a local model nothing is loaded before its turn.
        if hasattr(model, "server") and not (ws.folder / ANSWERS).exists():
            model.check()

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks."""
        if not ws.trains:  # else before the training
            self.check(ws)
            ws.check_weights()
        if not ws.data.ood_names:
            return self.scored(ws)
        unknown = foreign(ws.clip, ws.data)
        if self.distance == "clip" or (self.distance == "auto" and not unknown):
            # Before the network: its features may need all of the memory.
            return self.scored(ws, self._by_clip(ws))
        passed = self.passed(ws, ["train", *ws.data.ood_names])
        return self.scored(ws, self._by_network(ws, passed, unknown), passed)

    def _by_network(self, ws: Workspace, passed: Passed, unknown: str | None) -> Distances | None:
        corrupted = corrupted_test(ws.data.splits["test"])
        made = passed.extraction.of_sets([], [corrupted])
        if not ws.is_main:
            return None
        k = self.k or neighbour_of(ws.data.splits["train"])
        facts: dict[str, Any] = {"by": str(ws.model["name"]), "k": k, "unsplit": True}
        if unknown:
            facts["why"] = unknown
        names = ["train", "test", *ws.data.ood_names]
        features = {name: passed.banks[name].features for name in names}
        device = ws.extractor.strategy.root_device
        unusual = StatisticsDistance.of(statistics_of(passed.banks["train"]))

        def measure() -> pd.DataFrame:
            unit = {name: F.normalize(rows.float(), dim=1) for name, rows in features.items()}
            covariate = {name: unusual(statistics_of(passed.banks[name])) for name in names[1:]}
            return own_distances(ws.data, unit, covariate, k, device)

        def marks() -> pd.DataFrame:
            whole = undecomposed(features["test"].shape[1], {}, k)
            of_corrupted = unusual(statistics_of(made[corrupted.name]))
            return mark_distances(ws.data, features, whole, k, device, of_corrupted)

        degrees = self._kept(ws, DEGREES, measure)
        return self._of(ws, degrees, self._kept(ws, MARKS, marks), UNSPLIT, facts)

    def _by_clip(self, ws: Workspace) -> Distances | None:
        folder = self._matrices(ws)
        names = ["train", "test", *ws.data.ood_names]
        log.info("the CLIP '%s' measures the shift of the images", ws.clip.name)
        made = [corrupted_test(ws.data.splits["test"])]
        where = ws.data, ws.extractor, ws.features_root
        features = clip_features(*where, ws.clip, names, ws.stages, made)
        if not ws.is_main:
            return None
        self.note_copies(ws, group_near_copies(ws.data, features))
        if doubt := unknowing(ws.clip, ws.data, features["test"]):
            ws.record.warnings.append(doubt)
        decompositions = load_decompositions(ws.clip, folder)
        main = decompositions[0]
        k = self.k or neighbour_of(ws.data.splits["train"], main.k)

        device = ws.extractor.strategy.root_device

        def measure() -> pd.DataFrame:
            measured = {name: features[name] for name in names}
            return measured_degrees(ws.data, measured, decompositions, k, device)

        def marks() -> pd.DataFrame:
            return mark_distances(ws.data, features, main, k, device)

        degrees = self._kept(ws, DEGREES, measure)
        facts: dict[str, Any] = {"by": ws.clip.name, "k": k, "unsplit": False}
        facts |= {"clip": dict(main.clip), "laid": dict(main.details)}
        if folder and (Path(folder) / HELD_OUT).exists():
            facts["held_out"] = read_json(Path(folder) / HELD_OUT)
        found = self._of(ws, degrees, self._kept(ws, MARKS, marks), SPLIT, facts)
        with ws.stages("divide"):
            return replace(found, levels=self._divided(ws, degrees))

    def _kept(self, ws: Workspace, name: str, measure: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """What was measured; read where the run was interrupted after measuring it.

        The folder of a run belongs to its data, weights and settings, and so do the distances.
        """
        file = ws.folder / name
        with ws.stages("measure") as stage:
            stage.found = file.exists()
            if not stage.found:
                write_table(measure(), file)
            return read_table(file)

    def _matrices(self, ws: Workspace) -> str | None:
        """Folder of the matrices; None = those that are shipped with the CLIP."""
        if self.laid or has_matrices(ws.clip):
            return self.laid
        folder = Path(ws.cfg.paths.laid)
        found = None
        if ws.is_main:
            with ws.stages("learn LAID") as stage:
                stage.found = learnt_before(ws.clip, folder, self.training)
                found = learnt(ws.clip, folder, self.training)
        ws.extractor.strategy.barrier()
        return str(found)

    def _of(
        self,
        ws: Workspace,
        degrees: pd.DataFrame,
        marks: pd.DataFrame,
        axes: Names,
        facts: dict[str, Any],
    ) -> Distances:
        with ws.stages("measure") as stage:
            stage.found = "measure" not in ws.stages.worked
            summary = summarised(degrees, **ws.resampling, axes=list(axes))
            units = ws.data, degrees, marks, list(axes), facts["k"]
            rulers, facts["rulers"] = shift_in_units(*units, **ws.resampling)
        ws.record.distance = dict(facts)
        return Distances(degrees, summary, axes, facts, rulers)

    def causes(
        self,
        ws: Workspace,
        banks: Banks,
        sets: Sequence[str],
        scores: pd.DataFrame,
        detector: str | None,
    ) -> pd.DataFrame:
        """Statistics that tell these sets from ID test, and whether the detector rests on them.

        ``image_statistics.parquet`` has those of every image.
        """
        with ws.stages("measure") as stage:
            stage.found = "measure" not in ws.stages.worked
            images = statistics_table(ws.data, {name: banks[name] for name in sets})
            write_table(images, ws.folder / STATISTICS)
            names = [str(n) for n in images if n not in ("dataset", "index", "path", MADE_OF)]
            model = str(ws.record.model)
            return cause_results(images, names, scores, detector, model=model, **ws.resampling)

    def asked(self, ws: Workspace, sets: Sequence[str]) -> MembershipScores | None:
        """What ``lvlm=...`` says of every image; None without it, or where answers are missing."""
        if not ws.settings.get("lvlm"):
            return None
        model, data = ws.lvlm, ws.data
        with ws.stages("ask") as stage:
            start = time.perf_counter()
            of_id = ["test", *data.csid_names]
            shown = {name: data.splits[name] for name in sets}
            folder = ws.folder / "asked"
            questions = questions_about(shown, of_id, data.classes, self.question, folder)
            write_questions(questions, ws.folder / QUESTIONS)
            store = store_of(model.made_with, ws.answers_root)
            found = answers_to(questions, ws.folder, model, store)
            write_answers(found, ws.folder / ANSWERS)
            failed = [str(answer.error) for answer in found if answer.error]
            stage.found = not (failed or store.added)
            seconds = time.perf_counter() - start
        ws.record.answers = str(store.path)
        ws.record.lvlm = dict(model.made_with)
        if failed and not self.accept_failed:
            ws.unfinished = (
                f"{len(failed):,} of {len(found):,} images have no answer ({failed[0]}): every "
                "answer that came is kept; repeat the command to ask again, or give "
                "task.accept_failed=true to count them as undecided"
            )
            return None
        answers = {answer.question_id: answer for answer in found}
        name = model_name(model.made_with)
        if name in ws.detectors:
            name = f"{name} (asked)"
        return asked_of(questions, answers, name, model.made_with, seconds)

    def _divided(self, ws: Workspace, degrees: pd.DataFrame) -> pd.DataFrame:
        """The images of all OOD sets with their levels; empty where they are too few."""
        pool = degrees[degrees["dataset"].isin(ws.data.ood_names)].reset_index(drop=True)
        levels = self.levels or min(MOST, math.isqrt(len(pool) // _PER_CELL))
        if levels < _FEWEST_LEVELS:
            log.info("%d OOD images are too few for levels of shift", len(pool))
            return pool.iloc[:0]
        edges = pool_edges(pool["semantic"], pool["covariate"], levels=levels)
        pool, _ = write_division(ws, pool, edges)
        ws.record.edges = json.loads(json.dumps(asdict(edges)))
        return pool
