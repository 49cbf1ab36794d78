"""Semantic and covariate shift of the data from ID, and the detectors that detect it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd
import torch.nn.functional as F

from ood_lab.common.arguments import Count, Levels
from ood_lab.common.errors import UserError
from ood_lab.common.files import read_json, read_table, write_table
from ood_lab.evaluation.near_copies import group_near_copies
from ood_lab.evaluation.pipeline import ScoringInput
from ood_lab.evaluation.shift.image_distances import (
    SPLIT,
    UNSPLIT,
    Distances,
    measured_degrees,
    own_distances,
)
from ood_lab.evaluation.shift.shift_encoder import (
    HELD_OUT,
    clip_features,
    foreign,
    has_matrices,
    knows_images,
    learnt,
    load_decompositions,
    unknowing,
)
from ood_lab.evaluation.shift.shift_rulers import (
    CORRUPTED,
    corrupted_test,
    mark_distances,
    neighbour_of,
)
from ood_lab.evaluation.shift.statistics_column import (
    StatisticsColumn,
    statistics_of,
    statistics_table,
)
from ood_lab.evaluation.split_features import require_ood
from ood_lab.lvlm.answers.answer_files import model_name, store_of, write_answers
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.questions.question_files import write_questions
from ood_lab.lvlm.scoring.membership_detector import (
    MembershipScores,
    asked_of,
    check_wording,
    questions_about,
)
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import Names
from ood_lab.schema.run_record import Facts
from ood_lab.shift import LEVELS as MOST
from ood_lab.shift import StatisticsDistance, pool_edges, undecomposed
from ood_lab.tasks.score import evaluate_run, note_copies, pass_images, sets_to_evaluate
from ood_lab.tasks.shift_levels import write_division

log = logging.getLogger(__name__)

#: Images of a cell on average, where the number of levels follows from that of the images.
_PER_CELL = 40
_FEWEST_LEVELS = 3
#: Files of the run folder.
DEGREES, MARKS = "shift_scores.parquet", "ruler.parquet"
QUESTIONS, ANSWERS = "questions.jsonl", "answers.jsonl"


@dataclass(frozen=True, kw_only=True)
class ShiftReport(Task):
    """Measures and divides the OOD sets, then scores every detector on sets and levels.

    ``shift_scores.parquet`` and the rows of kind ``shift`` in ``results.*`` have the shift of
    every image and set from ID train; ``levels.parquet`` and ``cells/`` which level it has, see
    :class:`~ood_lab.tasks.shift_levels.ShiftLevels`. ``report.html`` begins with the summary.

    Args:
        report: see :class:`~ood_lab.tasks.score.Score`.
        keep_features: true; there is no other way.
        distance: what measures, see the YAML file.
        laid: folder with the matrices; None = see the YAML file.
        k: neighbour; None = from the number of images, that of the matrix at most.
        levels: of each axis; None = as many as the images allow.
        question: the prompt of ``lvlm=...`` about every image; ``{classes}`` = the ID classes.
        accept_failed: images about which there is no answer count as undecided; else the run is
            not finished, and the same command asks again.

    Raises:
        UserError: a CLIP or vision-language model that knows nothing of these images; a question
            that names no classes; see :class:`~ood_lab.tasks.score.Score`.
    """

    report: bool
    keep_features: bool
    distance: Literal["auto", "clip", "features"]
    laid: str | None
    k: Count | None
    levels: Levels | None
    question: str
    accept_failed: bool

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` where CLIP, VLM and data clash; see the scoring too."""
        if not self.keep_features:
            raise UserError(
                "task.keep_features=false is not supported by task=shift_report, which needs all "
                "training features. Remove it, or skip the shift with task=score"
            )
        if self.distance == "clip" and (doubt := foreign(ws.clip, ws.data)):
            raise UserError(f"task.distance=clip: {doubt}")
        if ws.settings.get("lvlm"):
            require_ood(ws.data)
            check_wording(self.question, ws.data.classes)
            self._check_model(ws)
        sets_to_evaluate(ws)

    def _check_model(self, ws: Workspace) -> None:
        model = ws.lvlm
        made_with = model.made_with  # a folder that is not there shows here
        knows = model.knows
        if not knows_images(knows, ws.data):
            raise UserError(
                f"the vision-language model '{model_name(made_with)}' knows {knows}: of these "
                "images it knows nothing; data=scenes are what it knows, and lvlm=transformers "
                "lvlm.path=DIR or lvlm=openai asks another"
            )
        # A server that is not there; of a local model nothing is loaded before its turn.
        if model.server is not None and not (ws.folder / ANSWERS).exists():
            model.check()

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks."""
        if not ws.trains:  # else before the training
            self.check(ws)
            if ws.data.held_out:
                _ = ws.backbone  # which must not know these classes
        data = ws.data
        doubt = foreign(ws.clip, data) if data.ood_names else None
        by_clip = self.distance == "clip" or (self.distance == "auto" and not doubt)
        by_network, distances = bool(data.ood_names) and not by_clip, None
        if data.ood_names and by_clip:
            # Before the network: its features may need all of the memory.
            distances = self._by_clip(ws)
        inputs = pass_images(
            ws,
            always=(StatisticsColumn(),),
            selection=["train", *data.ood_names] if by_network else (),
            images=[corrupted_test(data.splits["test"])] if by_network else (),
        )
        if not ws.is_main:
            return None
        if by_network:
            distances = self._by_network(ws, inputs, doubt)
        if inputs.ood:
            inputs = replace(
                inputs,
                statistics=_statistics(ws, inputs),
                distances=distances,
                membership=self._membership(ws, inputs.ood),
            )
        return evaluate_run(ws, inputs, report=self.report)

    def _by_network(self, ws: Workspace, inputs: ScoringInput, doubt: str | None) -> Distances:
        data = ws.data
        k = self.k or neighbour_of(data.splits["train"])
        facts = {"by": str(ws.model["name"]), "k": k, "unsplit": True}
        if doubt:
            facts["why"] = doubt
        names = ["train", "test", *data.ood_names]
        banks = {name: inputs.banks[name] for name in names}
        features = {name: bank.features for name, bank in banks.items()}
        device = ws.extractor.strategy.root_device
        unusual = StatisticsDistance.of(statistics_of(banks["train"]))

        def degrees() -> pd.DataFrame:
            unit = {name: F.normalize(rows.float(), dim=1) for name, rows in features.items()}
            covariate = {name: unusual(statistics_of(banks[name])) for name in names[1:]}
            return own_distances(data, unit, covariate, k, device)

        def marks() -> pd.DataFrame:
            decomposition = undecomposed(features["test"].shape[1], {}, k)
            covariate = unusual(statistics_of(inputs.banks[CORRUPTED]))
            return mark_distances(data, features, decomposition, k, device, covariate)

        return self._distances(ws, degrees, marks, UNSPLIT, facts)

    def _by_clip(self, ws: Workspace) -> Distances | None:
        data, folder = ws.data, self._matrices(ws)
        names = ["train", "test", *data.ood_names]
        log.info("the CLIP '%s' measures the shift of the images", ws.clip.name)
        features = clip_features(
            data,
            ws.extractor,
            ws.features_root,
            ws.clip,
            names,
            ws.stages,
            [corrupted_test(data.splits["test"])],
        )
        if not ws.is_main:
            return None
        note_copies(ws, group_near_copies(data, features))
        if doubt := unknowing(ws.clip, data, features["test"]):
            ws.record.warnings.append(doubt)
        decompositions = load_decompositions(ws.clip, folder)
        main = decompositions[0]
        k = self.k or neighbour_of(data.splits["train"], main.k)
        device = ws.extractor.strategy.root_device
        facts = {"by": ws.clip.name, "k": k, "unsplit": False}
        facts |= {"clip": dict(main.clip), "laid": dict(main.details)}
        if folder and (Path(folder) / HELD_OUT).exists():
            facts["held_out"] = read_json(Path(folder) / HELD_OUT)

        of_sets = {name: features[name] for name in names}
        degrees = partial(measured_degrees, data, of_sets, decompositions, k, device)
        marks = partial(mark_distances, data, features, main, k, device)
        distances = self._distances(ws, degrees, marks, SPLIT, facts)
        with ws.stages("divide"):
            return replace(distances, levels=self._divided(ws, distances.degrees))

    def _matrices(self, ws: Workspace) -> str | None:
        """Folder of the matrices; None = those that are shipped with the CLIP."""
        if self.laid or has_matrices(ws.clip):
            return self.laid
        root, folder = Path(ws.cfg.paths.laid), None
        if ws.is_main:
            with ws.stages("learn LAID"):
                folder = learnt(ws.clip, root)
        ws.extractor.strategy.barrier()
        return str(folder)

    def _distances(
        self,
        ws: Workspace,
        degrees: Callable[[], pd.DataFrame],
        marks: Callable[[], pd.DataFrame],
        axes: Names,
        facts: Facts,
    ) -> Distances:
        """The distances, which are read where the run was interrupted after measuring them.

        The folder of a run belongs to its data, weights and settings, and so do the distances.
        """
        tables = []
        with ws.stages("measure"):
            for file, measure in ((DEGREES, degrees), (MARKS, marks)):
                if not (ws.folder / file).exists():
                    write_table(measure(), ws.folder / file)
                tables.append(read_table(ws.folder / file))
            distances = Distances.of(
                ws.data,
                degrees=tables[0],
                marks=tables[1],
                axes=axes,
                facts=facts,
                resampling=ws.resampling,
            )
        ws.record.distance = dict(distances.facts)
        return distances

    def _membership(self, ws: Workspace, sets: Sequence[str]) -> MembershipScores | None:
        """What ``lvlm=...`` says of every image; None without it, or where answers are missing."""
        if not ws.settings.get("lvlm"):
            return None
        model, data = ws.lvlm, ws.data
        with ws.stages("ask"):
            of_id = ["test", *data.csid_names]
            images = {name: data.splits[name] for name in [*of_id, *sets]}
            folder = ws.folder / "asked"
            questions = questions_about(images, of_id, data.classes, self.question, folder)
            write_questions(questions, ws.folder / QUESTIONS)
            store = store_of(model.made_with, ws.answers_root)
            answers = answers_to(questions, ws.folder, model, store)
            write_answers(answers, ws.folder / ANSWERS)
            failed = [str(answer.error) for answer in answers if answer.error]
        ws.record.answers = str(store.path)
        ws.record.lvlm = dict(model.made_with)
        if failed and not self.accept_failed:
            ws.unfinished = (
                f"{len(failed):,} of {len(answers):,} images have no answer ({failed[0]}): every "
                "answer that came is kept; repeat the command to ask again, or give "
                "task.accept_failed=true to count them as undecided"
            )
            return None
        name = model_name(model.made_with)
        if name in ws.detectors:
            name = f"{name} (asked)"
        by_question = {answer.question_id: answer for answer in answers}
        return asked_of(questions, by_question, name, model.made_with, ws.stages.seconds["ask"])

    def _divided(self, ws: Workspace, degrees: pd.DataFrame) -> pd.DataFrame:
        """The images of all OOD sets with their levels; empty where they are too few."""
        pool = degrees[degrees["dataset"].isin(ws.data.ood_names)].reset_index(drop=True)
        levels = self.levels or min(MOST, math.isqrt(len(pool) // _PER_CELL))
        if levels < _FEWEST_LEVELS:
            log.info("%d OOD images are too few for levels of shift", len(pool))
            return pool.iloc[:0]
        edges = pool_edges(pool["semantic"], pool["covariate"], levels=levels)
        pool, _ = write_division(ws, pool, edges)
        ws.record.edges = asdict(edges)
        return pool


def _statistics(ws: Workspace, inputs: ScoringInput) -> pd.DataFrame:
    """Those of every image, which are written, too."""
    with ws.stages("measure"):
        names = ["test", *ws.data.csid_names, *inputs.ood]
        statistics = statistics_table(ws.data, {name: inputs.banks[name] for name in names})
        write_table(statistics, ws.folder / "image_statistics.parquet")
    return statistics
