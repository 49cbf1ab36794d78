"""ORIC: do vision-language models see unexpected objects, and only objects that are there?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import pandas as pd
from annotated_types import Ge, Interval, MultipleOf

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv, write_table
from ood_lab.lvlm.annotations.image_contents import Contents, contents_of
from ood_lab.lvlm.answers.answer_files import Answer, Answers
from ood_lab.lvlm.answers.open_answer_reader import READER, second_step
from ood_lab.lvlm.benchmarks.oric.construction.construction_files import write_construction
from ood_lab.lvlm.benchmarks.oric.construction.construction_settings import OricConstruction
from ood_lab.lvlm.benchmarks.oric.construction.judges import ChatJudge, CooccurrenceJudge, Judge
from ood_lab.lvlm.benchmarks.oric.construction.question_sets import ORIC, Ablation, Builder
from ood_lab.lvlm.benchmarks.oric.construction.released_code import PAPER, RELEASED
from ood_lab.lvlm.benchmarks.oric.page import RECORD
from ood_lab.lvlm.benchmarks.oric.prediction_files import read_predictions, write_predictions
from ood_lab.lvlm.benchmarks.oric.published_files import (
    items_of,
    problem_of,
    read_bench,
    read_train,
    table_of,
)
from ood_lab.lvlm.benchmarks.oric.scoring import drops, results_of
from ood_lab.lvlm.benchmarks.oric.wording import QuestionWording
from ood_lab.lvlm.benchmarks.pope.question_sets import PopeSets
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.image_text.clip import clips_of
from ood_lab.lvlm.image_text.clip_space import Spaces, space_of, template_of
from ood_lab.lvlm.image_text.foreign_images import refuse_foreign
from ood_lab.lvlm.object_questions.analysis_page import analyses_in
from ood_lab.lvlm.object_questions.context_scores import context_tables
from ood_lab.lvlm.object_questions.image_pool import Pool
from ood_lab.lvlm.object_questions.known_facts import known_of
from ood_lab.lvlm.object_questions.object_facts import AreaOf
from ood_lab.lvlm.object_questions.published_sets import PublishedSets
from ood_lab.lvlm.object_questions.question_sets import QuestionSets, Wording, meta_of
from ood_lab.lvlm.object_questions.question_verdicts import Verdicts
from ood_lab.lvlm.object_questions.set_analyses import with_analyses
from ood_lab.lvlm.pages.benchmark_record import BenchmarkRecord
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.lvlm.questions.question_forms import Forms, apart, in_forms
from ood_lab.lvlm.scoring.wording_scores import contrasts, form_contrasts
from ood_lab.lvlm.training.oric_questions import write_dataset
from ood_lab.run.building.benchmark_rules import results_options
from ood_lab.run.building.benchmark_task import Benchmark
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.arrays import Ints
from ood_lab.schema.results import NamedTables, Tables


@dataclass(frozen=True, kw_only=True)
class Oric(Benchmark):
    """Constructs questions, prompts a model, scores its answers: stages that can run separately.

    ``build`` writes ``oric_bench.json``, ``oric_train.json`` (where wanted), ``audit.csv``,
    ``sets.parquet``, ``analyses.csv`` and ``questions.jsonl``; ``ask`` writes ``answers.jsonl``;
    ``score`` writes ``judged.parquet``, ``results.*``, ``differences.csv``, ``drops.csv``,
    ``context.csv``, ``tiers.csv``, ``predictions_<n>.json``, figures and ``oric.html``. Features of
    images, replies of the judge and answers are kept for all runs.

    Args:
        bench: a published ``oric_bench.json``, in place of the construction.
        images: folder of its images; None = that of the annotations. Annotations that are given
            say how large and how expected its objects are.
        predictions: prediction files of ORIC's code in place of it, one of each wording.
        construct: how questions are made.
        train_pairs: further pairs of images for ``oric_train.json``; no image is in both files.
        hf_dataset: write them as the released training code loads them, too (``oric_train/``).
        released: where ORIC's code does something else than its paper, do as the code does, see
            :mod:`ood_lab.lvlm.benchmarks.oric.construction.released_code`.
        clip_text: text of an object for the CLIP ; None = ``an image contains {}``, or
            what a shipped CLIP was trained on.
        crowd: groups in one box are objects.
        pope: kinds of POPE's questions to ask too, from the same annotations, or files of the
            published ones, in the same wordings.
        pope_subset: questions of each of these sets that form one more set, half of them with the
            right answer yes, drawn at random; None, and where a set has no more, there is none.
        audit: ``audit.csv`` with verdicts: rejected questions are skipped.
        ablations: ORIC's construction to ask too with other samplers, see :data:`Ablation`; of
            published questions about the same images.
        form: ``plain``, ``cot``, a chain of thought, or ``both``, which are then compared.
        prompts: how many of the four wordings to use.
        second_step: ``judge``: its language model reads replies that the parser does not match.
        area_of: size of a category with several objects: see :data:`AreaOf`.
        thresholds: edges of the tiers of size: sides of squares, pixels.
        bins: of the curve over ``P(object | context)``, at most.

    The least distances of classes are also measured in the spaces of ``image_text=[...]``.

    Raises:
        UserError: see :meth:`check`, the construction and the models.
    """

    bench: str | None
    images: str | None
    predictions: Sequence[str]
    construct: OricConstruction
    train_pairs: Annotated[int, Ge(0)]
    hf_dataset: bool
    released: bool
    clip_text: str | None
    crowd: bool
    pope: Sequence[str]
    pope_subset: Annotated[int, Ge(2), MultipleOf(2)] | None
    audit: str | None
    ablations: Sequence[Ablation]
    form: Forms
    prompts: Annotated[int, Interval(ge=1, le=4)]
    parser: str
    second_step: Literal["none", "judge"]
    area_of: AreaOf
    thresholds: Sequence[float]
    bins: Annotated[int, Ge(1)]
    record: ClassVar[BenchmarkRecord] = RECORD
    files: ClassVar[Sequence[str]] = (*Benchmark.files, "bench", "predictions", "audit")

    def check(self, ws: Workspace) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        super().check(ws)
        Verdicts.read(self.audit)
        pope, given = self._pope, ws.settings
        if self.images is not None and self.bench is None:
            raise UserError("task.images are those of task.bench=oric_bench.json: give that, too")
        if len(self.thresholds) != 2 or not 0 < self.thresholds[0] < self.thresholds[1]:
            raise UserError("task.thresholds: give two sides of squares in pixels, ascending")
        if self.predictions and self.form == "both":
            raise UserError("task.predictions are of one form: give task.form=plain or cot")
        if self.bench is None and self.questions is None:
            self._check_construction(given)
        else:
            self._check_given(given, pope.drawn)
        if self.second_step == "judge" and self.parser == READER:
            raise UserError(
                "task.parser=reader reads every reply: task.second_step=judge has none left"
            )
        if self.second_step == "judge" and not _is_chat(given.get("judge")):
            raise UserError("task.second_step=judge needs a language model, such as judge=openai")

    def _check_construction(self, given: Mapping[str, Any]) -> None:
        if not given.get("annotations"):
            raise UserError("nothing to ask about: choose annotations=scenes|coco, or task.bench")
        if not given.get("judge"):
            raise UserError(
                "no judge says which objects are unexpected: choose judge=cooccurrence|openai"
            )
        if not self.construct.pairs:
            raise UserError("task.construct.pairs=0 asks nothing: give at least one pair")
        if not self.foreign_clip:
            refuse_foreign(given, ("annotations",), ("clip", "image_text"))

    def _check_given(self, given: Mapping[str, Any], pope: Sequence[str]) -> None:
        if self.bench is not None and self.questions is not None:
            raise UserError("task.bench and task.questions exclude each other")
        if self.train_pairs or (self.questions is not None and (self.pope or self.ablations)):
            raise UserError(
                "task.pope, task.ablations and task.train_pairs are made in a construction: leave "
                "them empty where the questions are given"
            )
        if self.bench is None:
            return
        published, drawn = self._published(self.bench), [*pope, *self.ablations]
        published.check_images(given)
        if drawn and not published.is_annotated(given):
            raise UserError(
                f"{', '.join(drawn)}: annotations are missing to draw these questions from. Give "
                "annotations=coco ..., files of POPE (task.pope=[coco_pope_random.json]), or leave "
                "task.pope and task.ablations empty"
            )
        published.check_clips(given, ("clip", "image_text") if self.ablations else ("image_text",))

    @property
    def _pope(self) -> PopeSets:
        return PopeSets(self.pope, problem_of, self.pope_subset)

    def _published(self, bench: str) -> PublishedSets:
        own = {ORIC: (table_of(read_bench(Path(bench))), str(Path(bench)))}
        folder = None if self.images is None else Path(self.images)
        recorded = bool(self.predictions or self.answers or self.until == "build")
        return PublishedSets(own | self._pope.published(), folder, recorded, self.foreign_clip)

    # First stage.

    @property
    def forms(self) -> Forms:
        """See the base class."""
        return self.form

    def build(self, ws: Workspace) -> list[Question]:
        """The published questions, or new ones."""
        made = self._constructed(ws) if self.bench is None else self._given(ws, self.bench)
        edges = (float(self.thresholds[0]), float(self.thresholds[1]))
        table, analyses = known_of(*made, self.area_of, edges, **ws.resampling)
        write_csv(analyses, ws.folder / "analyses.csv")
        write_table(table.drop(columns="problem"), ws.folder / "sets.parquet")
        asked = (items_of(table), made[0].pool.files, meta_of(table))
        how = partial(QuestionWording, parser=self.parser_of_questions, prompts=self.prompts)
        return in_forms(self.form, lambda form: how(form=form).questions(*asked))

    def _given(self, ws: Workspace, bench: str) -> tuple[QuestionSets, Contents | None, Spaces]:
        """The published questions, what is in their images, and the spaces of CLIPs by name."""
        given, verdicts, settings = self._published(bench), Verdicts.read(self.audit), ws.settings
        annotations = ws.annotations if given.is_annotated(settings) else None
        sets, audit = given.read(annotations, verdicts)
        write_csv(audit, ws.folder / "audit.csv")
        contents = None if annotations is None else contents_of(annotations, self.crowd)
        if annotations is not None and contents is not None:
            self._pope.add_to(sets, contents, len(audit), self._wording, ws.seed)
            ws.record.annotations = {"name": annotations.name}
        why_not = given.without_space(settings, sets)
        if why_not and self.ablations:
            raise UserError(f"task.ablations need a CLIP that looks at the images. {why_not}")
        spaces = {} if why_not else self._spaces(ws, sets, sets.rows)
        if contents is not None and self.ablations:
            builder = Builder(contents, spaces[ws.clip.name], self._judge(ws), ws.seed)
            among = np.unique(sets.sets[ORIC]["row"])
            for name in self.ablations:
                sets.make(name, builder.ablation(self._how, name, among), self._wording)
        unknown = given.unknown(settings, sets)
        rejected = audit.loc[verdicts.rejects(audit), "question_id"].astype(str).tolist()
        ws.record.oric = {"bench": bench, "unknown": unknown, "rejected": rejected}
        return sets, contents, spaces

    def _constructed(self, ws: Workspace) -> tuple[QuestionSets, Contents | None, Spaces]:
        """The same of new questions about the annotated images."""
        annotations = ws.annotations
        sets = QuestionSets(Pool.of(annotations, None))
        spaces = self._spaces(ws, sets)
        contents = contents_of(annotations, self.crowd)
        builder = Builder(contents, spaces[ws.clip.name], self._judge(ws), ws.seed)
        made, wording = builder.oric(self._how, self.train_pairs), self._wording
        kept = write_construction(*made, annotations, Verdicts.read(self.audit), wording, ws.folder)
        if self.train_pairs and self.hf_dataset:
            items = read_train(ws.folder / "oric_train.json")
            write_dataset(items, annotations.root, ws.folder / "oric_train")
        sets.make(ORIC, kept, wording)
        for name in self.ablations:
            sets.make(name, builder.ablation(self._how, name), wording)
        self._pope.add_to(sets, contents, len(made[0].questions), wording, ws.seed)
        ws.record.annotations = {
            "name": annotations.name,
            "identity": annotations.identity,
            "root": str(annotations.root),
        }
        ws.record.clip = {**ws.clip.identity, "text": template_of(ws.clip, self._clip_text)}
        ws.record.judge = dict(builder.judge.made_with)
        ws.record.oric = {**asdict(self._how), **made[0].counts}
        return sets, contents, spaces

    def _spaces(self, ws: Workspace, sets: QuestionSets, rows: Ints | None = None) -> Spaces:
        """The space of the CLIP, then those of ``image_text``, by name."""
        where = (sets.pool.paths, sets.objects, self._clip_text, ws.features_root / "oric", rows)
        clips = clips_of(ws.clip, ws.image_text)
        return {name: space_of(clip, *where) for name, clip in clips.items()}

    @property
    def _how(self) -> OricConstruction:
        return replace(self.construct, rules=RELEASED if self.released else PAPER)

    @property
    def _wording(self) -> Wording:
        return partial(problem_of, article=self._how.rules.article)

    @property
    def _clip_text(self) -> str | None:
        return self.clip_text or self._how.rules.clip_text

    def _judge(self, ws: Workspace) -> Judge:
        judge: CooccurrenceJudge | ChatModel = ws.judge
        if isinstance(judge, CooccurrenceJudge):
            return judge
        return ChatJudge(self.text_model(ws, judge), self._how.rules.judge_wording)

    # Second stage.

    def find_answers(self, ws: Workspace, questions: Questions, folder: Path) -> list[Answer]:
        """Predictions of ORIC's code where they are given, else the answers of a model."""
        verdicts = self._verdicts
        verdicts.check_asked(questions, ORIC)
        kept, rejected = verdicts.without_rejected(questions, ORIC)
        if not self.predictions:
            return super().find_answers(ws, kept, folder)
        own = [q for q in apart(kept)[0] if q.meta["split"] == ORIC]
        rejected |= set(ws.record.oric.get("rejected", []))
        return list(read_predictions(own, list(map(Path, self.predictions)), rejected).values())

    @property
    def _verdicts(self) -> Verdicts:
        """On given questions; what was built here is without rejected ones."""
        return Verdicts.read(None if self.questions is None else self.audit)

    # Third stage.

    def about(self, ws: Workspace) -> str:
        """The annotations, or the file that was given."""
        return str(ws.record.annotations.get("name") or self.bench or self.questions)

    def judged(self, ws: Workspace, questions: Questions, answers: Answers) -> Tables:
        """See the base class; replies that do not match may be read by the judge."""
        kept, _ = self._verdicts.without_rejected(questions, ORIC)
        asked = [q for q in kept if q.question_id in answers or not self.predictions]
        judged = self.read(ws, asked, answers)
        if self.second_step == "judge":
            judged = second_step(judged, self.text_model(ws, cast("ChatModel", ws.judge)))
        return {"judged": judged}

    def results(self, ws: Workspace, judged: Tables, model: str) -> pd.DataFrame:
        """See the base class."""
        found = results_of(judged["judged"], model, **results_options(ws))
        analyses = analyses_in(Path(ws.record.question_file.file).parent)
        return found if analyses is None else with_analyses(found, analyses, self.record.kind)

    def further(self, ws: Workspace, judged: Tables, source: Path) -> NamedTables:
        """Predictions as ORIC's code has them, sets against ORIC, and the curves."""
        table = judged["judged"]
        write_predictions(table[table["split"] == ORIC], ws.folder)
        if table["split"].nunique() > 1:
            yield "differences", contrasts(table, "split", first=ORIC, **ws.resampling)
        if len(found := drops(table, **ws.resampling)):
            yield "drops", found
        yield from context_tables(table, self.bins, **ws.resampling)

    def contrasts(self, ws: Workspace, judged: Tables) -> pd.DataFrame:
        """See the base class; of ORIC's own questions."""
        table = judged["judged"]
        return contrasts(table[table["split"] == ORIC], "model", **ws.resampling)

    def form_contrasts(self, ws: Workspace, judged: Tables) -> pd.DataFrame:
        """See the base class; of every set, and of every wording."""
        return form_contrasts(judged["judged"], **ws.resampling)


def _is_chat(node: Mapping[str, Any] | None) -> bool:
    return bool(node) and not str((node or {}).get("_target_")).endswith(".CooccurrenceJudge")
