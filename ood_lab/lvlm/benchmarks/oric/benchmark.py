"""ORIC: do vision-language models see unexpected objects, and only objects that are there?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, cast

import numpy as np
import pandas as pd
from annotated_types import Ge, Interval, MultipleOf

from ood_lab.common.arguments import Natural, Settings
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv, write_table
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.annotations.image_contents import Contents, contents_of
from ood_lab.lvlm.answers.answer_files import Answer, Answers
from ood_lab.lvlm.answers.open_answer_reader import READER, second_step
from ood_lab.lvlm.benchmark.contract import Benchmark, BenchmarkSession, BenchmarkWords
from ood_lab.lvlm.benchmarks.oric import page
from ood_lab.lvlm.benchmarks.oric.analysis_page import analyses_in
from ood_lab.lvlm.benchmarks.oric.construction import (
    ChatJudge,
    CooccurrenceJudge,
    Judge,
    OricConstruction,
)
from ood_lab.lvlm.benchmarks.oric.page import drops
from ood_lab.lvlm.benchmarks.oric.pope_sets import PopeSets
from ood_lab.lvlm.benchmarks.oric.published_files import (
    PublishedSets,
    items_of,
    problem_of,
    questions_of,
    read_bench,
    read_predictions,
    table_of,
    write_predictions,
)
from ood_lab.lvlm.benchmarks.oric.question_drawing import (
    Ablation,
    Builder,
    write_construction,
)
from ood_lab.lvlm.benchmarks.oric.question_sets import (
    ORIC,
    QuestionSets,
    Verdicts,
    Wording,
    meta_of,
)
from ood_lab.lvlm.benchmarks.oric.set_analyses import (
    context_tables,
    known_of,
    with_analyses,
)
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.image_text.clip import Spaces, clips_of, space_of, template_of
from ood_lab.lvlm.image_text.foreign_images import refuse_foreign
from ood_lab.lvlm.pages.benchmark_page import PageBlocks, ScoredRun
from ood_lab.lvlm.questions.question_files import Questions
from ood_lab.lvlm.questions.question_forms import Forms, apart, in_forms
from ood_lab.lvlm.scoring.wording_scores import contrasts, form_contrasts, wording_rows
from ood_lab.schema.arrays import Ints
from ood_lab.schema.results import NamedTables, ResultRows, Tables


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
        released: where ORIC's code does something else than its paper, do as the code does, see
            :mod:`ood_lab.lvlm.benchmarks.oric.construction`.
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
        thresholds: edges of the tiers of size: sides of squares, pixels.
        foreign_clip: take a CLIP that comes with the package for images that it knows nothing of.

    The least distances of classes are also measured in the spaces of ``image_text=[...]``.

    Raises:
        UserError: see :meth:`check_inputs`, the construction and the models.
    """

    bench: str | None
    images: str | None
    predictions: Sequence[str]
    construct: OricConstruction
    train_pairs: Natural
    released: bool
    pope: Sequence[str]
    pope_subset: Annotated[int, Ge(2), MultipleOf(2)] | None
    audit: str | None
    ablations: Sequence[Ablation]
    form: Forms
    prompts: Annotated[int, Interval(ge=1, le=4)]
    parser: str
    second_step: Literal["none", "judge"]
    thresholds: tuple[float, float]
    foreign_clip: bool
    words: ClassVar[BenchmarkWords] = page.WORDS
    files: ClassVar[Sequence[str]] = (*Benchmark.files, "bench", "predictions", "audit")

    def check_inputs(self, run: BenchmarkSession) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        Verdicts.read(self.audit)
        pope, settings = self._pope, run.inputs.settings
        if self.images is not None and self.bench is None:
            raise UserError("task.images are those of task.bench=oric_bench.json: give that, too")
        if not 0 < self.thresholds[0] < self.thresholds[1]:
            raise UserError("task.thresholds are sides of squares in pixels: give them ascending")
        if self.predictions and self.form == "both":
            raise UserError("task.predictions are of one form: give task.form=plain or cot")
        if self.bench is None and self.questions is None:
            self._check_construction(settings)
        else:
            self._check_given(run, pope.drawn)
        if self.second_step == "judge" and (
            self.parser == READER
            or not settings.get("judge")
            or isinstance(run.inputs.judge, CooccurrenceJudge)
        ):
            raise UserError(
                "task.second_step=judge needs a language model, such as judge=openai, and another "
                "parser than reader, which reads every reply"
            )

    def _check_construction(self, settings: Settings) -> None:
        if not settings.get("annotations") or not settings.get("judge"):
            raise UserError(
                "nothing to ask about: choose annotations=scenes|coco and "
                "judge=cooccurrence|openai, or give task.bench"
            )
        if not self.foreign_clip:
            refuse_foreign(settings, ("annotations",), ("clip", "image_text"))

    def _check_given(self, run: BenchmarkSession, pope: Sequence[str]) -> None:
        if self.bench is not None and self.questions is not None:
            raise UserError("task.bench and task.questions exclude each other")
        if self.train_pairs or (self.questions is not None and (self.pope or self.ablations)):
            raise UserError(
                "task.pope, task.ablations and task.train_pairs are made in a construction: leave "
                "them empty where the questions are given"
            )
        if self.bench is None:
            return
        published, sample = self._published(run, self.bench), [*pope, *self.ablations]
        if sample and not published.is_annotated:
            raise UserError(
                f"{', '.join(sample)}: annotations are missing to draw these questions from. Give "
                "annotations=coco ..., files of POPE (task.pope=[coco_pope_random.json]), or leave "
                "task.pope and task.ablations empty"
            )
        published.check(("clip", "image_text") if self.ablations else ("image_text",))

    @property
    def _pope(self) -> PopeSets:
        return PopeSets(self.pope, self.pope_subset)

    def _published(self, run: BenchmarkSession, bench: str) -> PublishedSets:
        own = {ORIC: (table_of(read_bench(Path(bench))), str(Path(bench)))}
        folder = None if self.images is None else Path(self.images)
        recorded = bool(self.predictions or self.answers or self.until == "build")
        return PublishedSets(
            own | self._pope.published(), folder, recorded, self.foreign_clip, run.inputs.settings
        )

    # First stage.

    def build(self, run: BenchmarkSession) -> Questions:
        """The published questions, or new ones."""
        sets, contents, spaces = (
            self._constructed(run) if self.bench is None else self._read_published(run, self.bench)
        )
        table, analyses = known_of(
            sets, contents, spaces, self.thresholds, resampling=run.resampling
        )
        write_csv(analyses, run.folder / "analyses.csv")
        write_table(table.drop(columns="problem"), run.folder / "sets.parquet")
        ask = partial(
            questions_of,
            items_of(table),
            sets.files,
            meta_of(table),
            parser=self.parser_of_questions,
            prompts=self.prompts,
        )
        return in_forms(self.form, lambda form: ask(form=form))

    def _read_published(
        self, run: BenchmarkSession, bench: str
    ) -> tuple[QuestionSets, Contents | None, Spaces]:
        """The published questions, what is in their images, and the spaces of CLIPs by name."""
        published, verdicts = self._published(run, bench), Verdicts.read(self.audit)
        annotations = run.inputs.annotations if published.is_annotated else None
        sets, audit = published.read(annotations, verdicts)
        write_csv(audit, run.folder / "audit.csv")
        contents = None
        if annotations is not None:
            contents = contents_of(annotations)
            self._pope.add_to(sets, contents, len(audit), self._wording, run.seed)
            run.record.annotations = {"name": annotations.name}
        why_not = published.without_space(sets)
        if why_not and self.ablations:
            raise UserError(f"task.ablations need a CLIP that looks at the images. {why_not}")
        spaces = {} if why_not else self._spaces(run, sets, sets.rows)
        if contents is not None and self.ablations:
            builder = Builder(contents, spaces[run.inputs.clip.name], self._judge(run), run.seed)
            among = np.unique(sets.sets[ORIC]["row"])
            for name in self.ablations:
                sets.make(name, builder.ablation(self._how, name, among), self._wording)
        rejected = audit.loc[verdicts.rejects(audit), "question_id"].astype(str).tolist()
        run.record.oric = {
            "bench": bench,
            "unknown": published.unknown(why_not),
            "rejected": rejected,
        }
        return sets, contents, spaces

    def _constructed(self, run: BenchmarkSession) -> tuple[QuestionSets, Contents | None, Spaces]:
        """The same of new questions about the annotated images."""
        annotations = run.inputs.annotations
        sets = QuestionSets.about(annotations, None)
        spaces = self._spaces(run, sets)
        contents = contents_of(annotations)
        builder = Builder(contents, spaces[run.inputs.clip.name], self._judge(run), run.seed)
        built = builder.oric(self._how, self.train_pairs)
        bench = built["bench"]
        verdicts, wording = Verdicts.read(self.audit), self._wording
        sets.sets[ORIC] = write_construction(built, annotations, verdicts, wording, run.folder)
        for name in self.ablations:
            sets.make(name, builder.ablation(self._how, name), wording)
        self._pope.add_to(sets, contents, len(bench.questions), wording, run.seed)
        run.record.annotations = {
            "name": annotations.name,
            "identity": annotations.identity,
            "root": str(annotations.root),
        }
        run.record.clip = {
            **run.inputs.clip.identity,
            "text": template_of(run.inputs.clip, self._how.clip_text),
        }
        run.record.judge = dict(builder.judge.made_with)
        run.record.oric = {
            **asdict(self._how),
            "found": int(bench.questions["pair"].nunique()),
            "skipped": dict(bench.skipped),
        }
        return sets, contents, spaces

    def _spaces(
        self, run: BenchmarkSession, sets: QuestionSets, rows: Ints | None = None
    ) -> Spaces:
        """The space of the CLIP, then those of ``image_text``, by name."""
        paths, objects, folder = sets.paths, sets.objects, run.features / "oric"
        clips = clips_of(run.inputs.clip, run.inputs.image_text)
        return {
            name: space_of(clip, paths, objects, self._how.clip_text, folder, rows)
            for name, clip in clips.items()
        }

    @property
    def _how(self) -> OricConstruction:
        return replace(self.construct, released=self.released)

    @property
    def _wording(self) -> Wording:
        return partial(problem_of, released=self.released)

    def _judge(self, run: BenchmarkSession) -> Judge:
        judge: CooccurrenceJudge | ChatModel = run.inputs.judge
        if isinstance(judge, CooccurrenceJudge):
            return judge
        return ChatJudge(self.text_model(run, judge), self.released)

    # Second stage.

    def asked(self, run: BenchmarkSession, questions: Questions) -> Questions:
        """Without the questions that a person has rejected."""
        return self._verdicts.without_rejected(questions)[0]

    def recorded(self, run: BenchmarkSession, questions: Questions) -> list[Answer] | None:
        """Predictions of ORIC's code, where they are given."""
        if not self.predictions:
            return None
        kept, rejected = self._verdicts.without_rejected(questions)
        rejected |= set(run.record.oric.get("rejected", []))
        kept = [q for q in apart(kept)[0] if q.meta["split"] == ORIC]
        return list(read_predictions(kept, list(map(Path, self.predictions)), rejected).values())

    @property
    def _verdicts(self) -> Verdicts:
        """On given questions; what was built here is without rejected ones."""
        return Verdicts.read(None if self.questions is None else self.audit)

    # Third stage.

    def about(self, run: BenchmarkSession) -> str:
        """The annotations, or the file that was given."""
        return str(run.record.annotations.get("name") or self.bench or self.questions)

    def judged(self, run: BenchmarkSession, questions: Questions, answers: Answers) -> Tables:
        """See the base class; replies that do not match may be read by the judge."""
        kept, _ = self._verdicts.without_rejected(questions)
        asked = [q for q in kept if q.question_id in answers or not self.predictions]
        judgements = self.read(run, asked, answers)
        if self.second_step == "judge":
            judgements = second_step(
                judgements, self.text_model(run, cast("ChatModel", run.inputs.judge))
            )
        return {"judged": judgements}

    def results(self, run: BenchmarkSession, judgements: Tables) -> ResultRows:
        """See the base class."""
        rows = wording_rows(judgements["judged"], **run.options)
        analyses = analyses_in(Path(run.record.question_file.file).parent)
        return rows if analyses is None else with_analyses(rows, analyses)

    def further(self, run: BenchmarkSession, judgements: Tables, source: Path) -> NamedTables:
        """Predictions as ORIC's code has them, sets against ORIC, and the curves."""
        table = judgements["judged"]
        write_predictions(table[table["split"] == ORIC], run.folder)
        if table["split"].nunique() > 1:
            yield "differences", contrasts(table, "split", first=ORIC, resampling=run.resampling)
        if len(results := drops(table, resampling=run.resampling)):
            yield "drops", results
        yield from context_tables(table, resampling=run.resampling)

    def contrasts(self, judgements: Tables, resampling: Resampling) -> pd.DataFrame:
        """See the base class; of ORIC's own questions."""
        table = judgements["judged"]
        return contrasts(table[table["split"] == ORIC], "model", resampling=resampling)

    def form_contrasts(self, judgements: Tables, resampling: Resampling) -> pd.DataFrame:
        """See the base class; of every set, and of every wording."""
        return form_contrasts(judgements["judged"], resampling=resampling)

    def blocks(self, run: ScoredRun) -> PageBlocks:
        """See the base class."""
        return page.blocks(run)
