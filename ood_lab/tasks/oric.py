"""ORIC: do vision-language models see unexpected objects, and only objects that are there?"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
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
from ood_lab.lvlm.answers.answer_locations import store_of
from ood_lab.lvlm.answers.judgements import SIZES
from ood_lab.lvlm.answers.open_answer_reader import READER, second_step
from ood_lab.lvlm.answers.text_model import TextModel
from ood_lab.lvlm.benchmarks.oric.audit import CONTENT, Verdicts
from ood_lab.lvlm.benchmarks.oric.construction.construction_files import Writer
from ood_lab.lvlm.benchmarks.oric.construction.construction_settings import OricConstruction
from ood_lab.lvlm.benchmarks.oric.construction.judges import ChatJudge, CooccurrenceJudge, Judge
from ood_lab.lvlm.benchmarks.oric.construction.question_sets import (
    ORIC,
    Ablation,
    Builder,
    meta_of,
)
from ood_lab.lvlm.benchmarks.oric.construction.released_code import PAPER, RELEASED, Rules
from ood_lab.lvlm.benchmarks.oric.page import RECORD
from ood_lab.lvlm.benchmarks.oric.pope_questions import (
    pope_of,
    read_pope,
    sampling_of,
)
from ood_lab.lvlm.benchmarks.oric.prediction_files import read_predictions, write_predictions
from ood_lab.lvlm.benchmarks.oric.published_files import (
    items_of,
    problem_of,
    read_train,
    table_of,
)
from ood_lab.lvlm.benchmarks.oric.published_questions import PublishedQuestions
from ood_lab.lvlm.benchmarks.oric.scoring import drops, results_of
from ood_lab.lvlm.benchmarks.oric.wording import QuestionWording
from ood_lab.lvlm.benchmarks.pope.question_drawing import SAMPLINGS
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.image_text.clip import ClipScores
from ood_lab.lvlm.image_text.clip_space import Space, space_of, template_of
from ood_lab.lvlm.image_text.foreign_images import refuse_foreign
from ood_lab.lvlm.object_questions.analysis_page import analyses_in
from ood_lab.lvlm.object_questions.context_scores import by_tier, curve_of
from ood_lab.lvlm.object_questions.image_pool import Pool
from ood_lab.lvlm.object_questions.object_facts import (
    AreaOf,
    annotated_areas,
    with_cosines,
    with_facts,
)
from ood_lab.lvlm.object_questions.question_sets import SUBSET, QuestionSets, Wording
from ood_lab.lvlm.object_questions.set_analyses import (
    analyses_of,
    annotated_shares,
    result_rows,
)
from ood_lab.lvlm.pages.benchmark_record import BenchmarkRecord
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.lvlm.questions.question_forms import Form, Forms, apart, in_forms
from ood_lab.lvlm.scoring.wording_scores import contrasts, form_contrasts
from ood_lab.lvlm.training.oric_questions import write_dataset
from ood_lab.run.building.benchmark_task import Benchmark, results_options
from ood_lab.run.building.workspace import Workspace
from ood_lab.schema.arrays import Ints
from ood_lab.schema.results import NamedTables, Tables

log = logging.getLogger(__name__)


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
    files: ClassVar[Sequence[str]] = (
        *("questions", "bench", "answers", "levels", "predictions", "audit"),
    )

    def check(self, ws: Workspace) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        super().check(ws)
        self._check_more()
        if len(self.thresholds) != 2 or not 0 < self.thresholds[0] < self.thresholds[1]:
            raise UserError("task.thresholds: give two sides of squares in pixels, ascending")
        if self.predictions and self.form == "both":
            raise UserError("task.predictions are of one form: give task.form=plain or cot")
        if self.bench is None and self.questions is None:
            self._check_construction(ws.settings)
            if not self.construct.pairs:
                raise UserError("task.construct.pairs=0 asks nothing: give at least one pair")
            if not self.foreign_clip:
                refuse_foreign(ws.settings, ("annotations",), ("clip", "image_text"))
        else:
            self._check_given(ws.settings)
        if self.second_step == "judge" and self.parser == READER:
            raise UserError(
                "task.parser=reader reads every reply: task.second_step=judge has none left"
            )
        if self.second_step == "judge" and not _is_chat(ws.settings.get("judge")):
            raise UserError("task.second_step=judge needs a language model, such as judge=openai")

    @staticmethod
    def _check_construction(given: Mapping[str, Any]) -> None:
        if not given.get("annotations"):
            raise UserError("nothing to ask about: choose annotations=scenes|coco, or task.bench")
        if not given.get("judge"):
            raise UserError(
                "no judge says which objects are unexpected: choose judge=cooccurrence|openai"
            )

    def _check_more(self) -> None:
        """What is given in addition to the questions."""
        Verdicts.read(self.audit)
        drawn = [sampling_of(each) for each in self.pope]
        if twice := {each for each in drawn if drawn.count(each) > 1}:
            raise UserError(f"task.pope has two sets of '{twice.pop()}': give one of them")
        if self.images is not None and self.bench is None:
            raise UserError("task.images are those of task.bench=oric_bench.json: give that, too")

    def _check_given(self, given: Mapping[str, Any]) -> None:
        if self.bench is not None and self.questions is not None:
            raise UserError("task.bench and task.questions exclude each other")
        if self.train_pairs or (self.questions is not None and (self.pope or self.ablations)):
            raise UserError(
                "task.pope, task.ablations and task.train_pairs are made in a construction: leave "
                "them empty where the questions are given"
            )
        if self.bench is None:
            return
        files = self._pope_files
        drawn = [f"pope_{name}" for name in map(sampling_of, self.pope)]
        self._published.check(given, [*(d for d in drawn if d not in files), *self.ablations])

    @property
    def _published(self) -> PublishedQuestions:
        return PublishedQuestions(
            bench=Path(str(self.bench)),
            pope=self._pope_files,
            folder=None if self.images is None else Path(self.images),
            recorded=bool(self.predictions or self.answers or self.until == "build"),
            foreign_clip=self.foreign_clip,
        )

    # First stage.

    @property
    def forms(self) -> Forms:
        """See the base class."""
        return self.form

    def build(self, ws: Workspace) -> list[Question]:
        """The published questions, or new ones."""
        sets, table = self._given(ws) if self.bench else self._constructed(ws)
        write_table(table.drop(columns="problem"), ws.folder / "sets.parquet")
        files, meta = sets.pool.files, meta_of(table)

        def asked(form: Form) -> Iterator[Question]:
            how = QuestionWording(form=form, parser=self.parser_of_questions, prompts=self.prompts)
            return how.questions(items_of(table), files, meta)

        return in_forms(self.form, asked)

    def _given(self, ws: Workspace) -> tuple[QuestionSets, pd.DataFrame]:
        """The published questions, with what annotations and a CLIP say of them, if any."""
        given, verdicts, settings = self._published, Verdicts.read(self.audit), ws.settings
        annotations = ws.annotations if given.is_annotated(settings) else None
        sets, audit = given.read(annotations, verdicts)
        write_csv(audit, ws.folder / "audit.csv")
        contents = None if annotations is None else contents_of(annotations, self.crowd)
        if annotations is not None and contents is not None:
            self._add_pope(ws, sets, contents, len(audit))
            ws.manifest["annotations"] = {"name": annotations.name}
        why_not = given.without_space(settings, sets)
        if why_not and self.ablations:
            raise UserError(f"task.ablations need a CLIP that looks at the images. {why_not}")
        spaces = {} if why_not else self._spaces(ws, sets, sets.rows)
        if contents is not None and self.ablations:
            builder = Builder(contents, spaces[ws.clip.name], self._judge(ws), ws.seed)
            how = replace(self.construct, rules=self._rules)
            among = np.unique(sets.sets[ORIC]["row"])
            for name in self.ablations:
                sets.make(name, builder.ablation(how, name, among), self._wording)
        unknown = given.unknown(settings, sets)
        for each in unknown:
            log.warning("not known of %s: %s", self.bench, each)
        rejected = audit.loc[verdicts.rejects(audit), "question_id"].astype(str).tolist()
        ws.manifest["oric"] = {"bench": self.bench, "unknown": unknown, "rejected": rejected}
        return sets, self._known(ws, sets, contents, spaces)

    def _constructed(self, ws: Workspace) -> tuple[QuestionSets, pd.DataFrame]:
        annotations = ws.annotations
        how = replace(self.construct, rules=self._rules)
        sets = QuestionSets(Pool.of(annotations, None))
        spaces = self._spaces(ws, sets)
        contents = contents_of(annotations, self.crowd)
        builder = Builder(contents, spaces[ws.clip.name], self._judge(ws), ws.seed)
        bench, train = builder.oric(how, self.train_pairs)
        writer = Writer(annotations, Verdicts.read(self.audit), self._wording)
        writer.write(bench, train, ws.folder)
        if train is not None and self.hf_dataset:
            items = read_train(ws.folder / "oric_train.json")
            write_dataset(items, annotations.root, ws.folder / "oric_train")
        sets.make(ORIC, writer.kept(bench), self._wording)
        for name in self.ablations:
            sets.make(name, builder.ablation(how, name), self._wording)
        self._add_pope(ws, sets, contents, len(bench.questions))
        ws.manifest |= {
            "annotations": {
                "name": annotations.name,
                "identity": annotations.identity,
                "root": str(annotations.root),
            },
            "clip": {**ws.clip.identity, "text": template_of(ws.clip, self._clip_text)},
            "judge": dict(builder.judge.made_with),
            "oric": {
                **asdict(how),
                "found": int(bench.questions["pair"].nunique()),
                "skipped": dict(bench.skipped),
            },
        }
        return sets, self._known(ws, sets, contents, spaces)

    def _add_pope(self, ws: Workspace, sets: QuestionSets, contents: Contents, count: int) -> None:
        """POPE's questions, in the order of ``task.pope``; those of files are there already."""
        files = self._pope_files
        for sampling in map(sampling_of, self.pope):
            split = f"pope_{sampling}"
            if split not in files:
                rows = pope_of(contents, sampling, count, ws.seed)
                sets.make(split, rows, self._wording)
            elif split not in sets.sets:
                sets.publish(split, table_of(read_pope(files[split])), str(files[split]))
            if self.pope_subset is not None:
                sets.draw(split, self.pope_subset, ws.seed)

    @property
    def _pope_files(self) -> dict[str, Path]:
        """Files of POPE, by the name of their set."""
        return {f"pope_{sampling_of(p)}": Path(p) for p in self.pope if p not in SAMPLINGS}

    def _known(
        self,
        ws: Workspace,
        sets: QuestionSets,
        contents: Contents | None,
        spaces: Mapping[str, Space],
    ) -> pd.DataFrame:
        """All questions, with what is known of each; ``analyses.csv`` says it of whole sets."""
        annotations, name = sets.pool.annotations, next(iter(spaces), None)

        def known(rows: pd.DataFrame) -> pd.DataFrame:
            if annotations is not None and contents is not None:
                rows = with_facts(rows, annotations, contents, self.area_of, self._edges)
            return rows if name is None else with_cosines(rows, spaces[name], sets.objects)

        table = sets.table(known)
        found = analyses_of(table, spaces, name, **ws.resampling)
        if contents is not None:
            areas = annotated_areas(contents, self.area_of)
            found = pd.concat([found, annotated_shares(areas, self._edges)], ignore_index=True)
        write_csv(found, ws.folder / "analyses.csv")
        return table

    def _spaces(
        self, ws: Workspace, sets: QuestionSets, rows: Ints | None = None
    ) -> dict[str, Space]:
        """The space of the CLIP, then those of ``image_text``, by name."""
        clips = {ws.clip.name: ws.clip}
        for other, model in ws.image_text.items():
            if not isinstance(model, ClipScores):
                raise UserError(
                    f"image_text={other} is not a CLIP of open_clip, in whose space distances of "
                    "images could be measured: remove it"
                )
            clips[other] = model.clip
        where = (sets.pool.paths, sets.objects, self._clip_text, ws.features_root / "oric", rows)
        return {name: space_of(clip, *where) for name, clip in clips.items()}

    @property
    def _edges(self) -> tuple[float, float]:
        return float(self.thresholds[0]), float(self.thresholds[1])

    @property
    def _rules(self) -> Rules:
        return RELEASED if self.released else PAPER

    @property
    def _wording(self) -> Wording:
        return partial(problem_of, article=self._rules.article)

    @property
    def _clip_text(self) -> str | None:
        return self.clip_text or self._rules.clip_text

    def _judge(self, ws: Workspace) -> Judge:
        model: CooccurrenceJudge | ChatModel = ws.judge
        if isinstance(model, CooccurrenceJudge):
            return model
        return ChatJudge(self._texts(ws, model), self._rules.judge_wording)

    def _texts(self, ws: Workspace, model: ChatModel) -> TextModel:
        store = store_of(model.made_with, ws.answers_root)
        return TextModel(model, store, self.accept_failed)

    # Second stage.

    def find_answers(self, ws: Workspace, questions: Questions, folder: Path) -> list[Answer]:
        """Predictions of ORIC's code where they are given, else the answers of a model."""
        questions, rejected = self._judged_fit(questions)
        if not self.predictions:
            return super().find_answers(ws, questions, folder)
        own = [q for q in apart(questions)[0] if q.meta["split"] == ORIC]
        rejected |= set(ws.manifest.get("oric", {}).get("rejected", []))
        return list(read_predictions(own, list(map(Path, self.predictions)), rejected).values())

    def _judged_fit(self, questions: Questions) -> tuple[list[Question], set[str]]:
        """Questions without those that people reject, and the items of these."""
        own = [q for q in questions if q.meta["split"] == ORIC]
        if self.audit is None or self.questions is None or not own:
            return list(questions), set()  # what was built here has none
        verdicts = Verdicts.read(self.audit)
        rows = [(q.pair_id, q.meta["category"], q.answer, q.meta["item"]) for q in own]
        content = pd.DataFrame(rows, columns=[*CONTENT, "item"])
        verdicts.check_questions(content)
        out = verdicts.rejects(content)
        gone = {q.question_id for q, each in zip(own, out, strict=True) if each}
        items = set(content.loc[out, "item"].astype(str))
        return [q for q in questions if q.question_id not in gone], items

    # Third stage.

    def about(self, ws: Workspace) -> str:
        """The annotations, or the file that was given."""
        return str(ws.manifest.get("annotations", {}).get("name") or self.bench or self.questions)

    def judged(self, ws: Workspace, questions: Questions, answers: Answers) -> Tables:
        """See the base class; replies that do not match may be read by the judge."""
        kept, _ = self._judged_fit(questions)
        asked = [q for q in kept if q.question_id in answers or not self.predictions]
        judged = self.read(ws, asked, answers)
        if self.second_step == "judge":
            judged = second_step(judged, self._texts(ws, cast("ChatModel", ws.judge)))
        return {"judged": judged}

    def results(self, ws: Workspace, judged: Tables, model: str) -> pd.DataFrame:
        """See the base class."""
        found = results_of(judged["judged"], model, **results_options(ws))
        analyses = analyses_in(Path(str(ws.manifest["questions"]["file"])).parent)
        if analyses is None:
            return found
        rows = self.record.kind.table(result_rows(analyses), model=model, seed=ws.seed)
        return pd.concat([found, rows], ignore_index=True).astype(dict.fromkeys(SIZES, "Int64"))

    def further(self, ws: Workspace, judged: Tables, source: Path) -> NamedTables:
        """Predictions as ORIC's code has them, sets against ORIC, and the curves."""
        table = judged["judged"]
        write_predictions(table[table["split"] == ORIC], ws.folder)
        if table["split"].nunique() > 1:
            yield "differences", contrasts(table, "split", first=ORIC, **ws.resampling)
        if len(found := drops(table, **ws.resampling)):
            yield "drops", found
        if "p_context" in table:
            whole = table[~table["split"].str.endswith(SUBSET)]  # has their questions, too
            yield "context", curve_of(whole, self.bins, **ws.resampling)
        if "tier" in table:
            yield "tiers", by_tier(table, **ws.resampling)

    def contrasts(self, ws: Workspace, judged: Tables) -> pd.DataFrame:
        """See the base class; of ORIC's own questions."""
        table = judged["judged"]
        return contrasts(table[table["split"] == ORIC], "model", **ws.resampling)

    def form_contrasts(self, ws: Workspace, judged: Tables) -> pd.DataFrame:
        """See the base class; of every set, and of every wording."""
        return form_contrasts(judged["judged"], **ws.resampling)


def _is_chat(node: Mapping[str, Any] | None) -> bool:
    return bool(node) and not str((node or {}).get("_target_")).endswith(".CooccurrenceJudge")
