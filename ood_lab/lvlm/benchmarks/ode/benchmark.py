"""ODE: what do vision-language models hallucinate on pairs that are common, rare or fictional?"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from ood_lab.common.arguments import BatchSize, Fields
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import text_sha256
from ood_lab.common.files import read_table, write_csv
from ood_lab.common.grouping import distinct
from ood_lab.lvlm.benchmark.contract import BenchmarkSession, BenchmarkWords, CaptionBenchmark
from ood_lab.lvlm.benchmarks.ode import page
from ood_lab.lvlm.benchmarks.ode.criteria import (
    OdeConstruction,
    first_ends,
    pair_table,
    released_graphs,
)
from ood_lab.lvlm.benchmarks.ode.published_files import located_pictures
from ood_lab.lvlm.benchmarks.ode.queries import questions_of
from ood_lab.lvlm.captions.caption_rules import CaptionWords
from ood_lab.lvlm.captions.caption_scoring import amber_table, changes, contrasts, result_rows
from ood_lab.lvlm.captions.hallucination_tendencies import Clustering
from ood_lab.lvlm.concepts.concepts import (
    Concepts,
    Pair,
    Pairs,
    concepts_of,
    graphs_of,
    merged,
    neighbours,
    read_graphml,
    statistics_table,
    write_graphml,
)
from ood_lab.lvlm.image_generation.compositions import (
    Compositions,
    Generator,
    Orders,
)
from ood_lab.lvlm.image_generation.image_filter import (
    Filter,
    audited,
    confidences_of,
)
from ood_lab.lvlm.image_generation.image_filter import summary as filter_summary
from ood_lab.lvlm.image_generation.photographs import (
    ANNOTATIONS,
    SYNTHETIC,
    WithPhotographs,
    annotated_photographs,
    listed_photographs,
    paired,
    write_comparison,
)
from ood_lab.lvlm.image_generation.pictures import (
    AnnotatedPictures,
    balanced,
    file_of,
    make,
    pictures_of,
    write_pictures,
)
from ood_lab.lvlm.image_text.clip import ClipScores
from ood_lab.lvlm.image_text.foreign_images import refuse_foreign
from ood_lab.lvlm.pages.benchmark_page import PageBlocks, ScoredRun
from ood_lab.lvlm.questions.question_files import Questions, read_questions
from ood_lab.lvlm.training.tuning_data import QuestionTuning, sizes, write_tuning
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import NamedTables, ResultRows, Tables

#: File that a run leaves for the next round.
PAIRS = "pairs.csv"


def read_round(folder: Path) -> FinishedRun:
    """An earlier run of this task.

    Raises:
        UserError: it is none, or has not been scored.
    """
    run = FinishedRun(folder)
    if not run.has(PAIRS) or "lineage" not in run.record.ode:
        raise UserError(f"task.previous={folder} is not a finished run of task=ode")
    return run


def pairs_of(table: pd.DataFrame) -> Pairs:
    """The pairs of a round and of all before it, from its table of them."""
    rows = table[["first", "second", "kind"]].drop_duplicates().itertuples(index=False)
    return [Pair(str(a), str(b), "ee" if kind == "ee" else "ev") for a, b, kind in rows]


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Ode(CaptionBenchmark):
    """Builds images and questions, prompts a vision-language model, scores its answers.

    ``build`` writes ``graph_T.graphml``, ``graph_H.graphml``, ``graphs.csv``, ``pairs.csv``,
    ``plan.jsonl``, ``images/``, ``audit.csv``, ``effectiveness.csv``, ``pictures.jsonl`` and
    ``questions.jsonl``; ``ask`` writes ``answers.jsonl``; ``score`` writes ``captions.parquet``,
    ``judged.parquet``, ``results.*``, ``amber.csv``, the tendencies, figures and ``ode.html``.

    Args:
        construction: graph, criteria and attributes.
        pictures: ODE's own annotations, or ``pictures.jsonl`` of another run: the questions
            are about the images of this list, and none is made.
        images: folder of these images; None = that of the list.
        previous: run folder of the round before this one.
        filter: drops images that do not show what they should; None = none is dropped.
        audit: ``audit.csv`` of an earlier run with verdicts, which have the last word.
        origins: name of a set → ``annotations``, or a table of photographs with the columns ``file,
            first, second``: questions are about the pairs that all of them show, in every origin,
            made images included, see :mod:`ood_lab.lvlm.image_generation.photographs`.
        batch_size: images that are made at a time.
        released: graphs, candidates and questions as ODE's code makes them, see
            :mod:`ood_lab.lvlm.benchmarks.ode.criteria`.
        clustering: of the concepts with which something is hallucinated.
        tuning: which questions become data for fine-tuning.
        foreign_clip: take a CLIP that comes with the package for images that it knows nothing of.

    Raises:
        UserError: see :meth:`check_inputs`, the annotations, the generator and the models.
    """

    construction: OdeConstruction
    pictures: str | None
    images: str | None
    previous: str | None
    filter: Filter | None
    audit: str | None
    origins: Mapping[str, str] | None
    batch_size: BatchSize
    released: bool
    clustering: Clustering
    tuning: QuestionTuning
    foreign_clip: bool
    words: ClassVar[BenchmarkWords] = page.WORDS
    files: ClassVar[Sequence[str]] = ("questions", "answers", "levels", "audit", "pictures")

    def check_inputs(self, run: BenchmarkSession) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        if self.audit is not None and self.filter is None:
            raise UserError("task.audit has verdicts on a filter: give task.filter, too")
        settings = run.inputs.settings
        if not settings.get("concepts") and not settings.get("annotations"):
            raise UserError("nothing to start from: choose annotations=... or concepts=amber")
        _ = self._before
        if self.questions is not None or self.pictures is not None:
            if self.origins:
                raise UserError("task.origins are of images that are made: remove task.pictures")
            return
        for name, source in (self.origins or {}).items():
            if name == SYNTHETIC:
                raise UserError(f"task.origins.{name} is the set of made images: choose a name")
            if source != ANNOTATIONS:
                listed_photographs(Path(source))
            elif not settings.get("annotations"):
                raise UserError(f"task.origins.{name}={source} needs annotations=...")
        if not settings.get("generator"):
            raise UserError(
                "no generator is chosen to make the images: choose generator=renderer, diffusers "
                "or openai"
            )
        run.inputs.generator.check()
        if not self.foreign_clip:
            refuse_foreign(settings, ("generator", "annotations"), ("image_text",))
        if self.filter is not None and not settings.get("image_text"):
            raise UserError(
                "task.filter needs an image-text model to look at the images: choose "
                "image_text=[...], or task.filter=null"
            )

    @property
    def _before(self) -> FinishedRun | None:
        return read_round(Path(self.previous)) if self.previous else None

    def note(self, run: BenchmarkSession, questions: Questions) -> None:
        """Records the round and how it came about."""
        concepts, previous = _concepts(run), self._before
        before: Fields = {"lineage": "", "round": 0} if previous is None else previous.record.ode
        made_with = [run.record.question_file.sha256, concepts.identity]
        ancestry = json.dumps([before["lineage"], *made_with])
        run.record.ode = {
            "concepts": {"name": concepts.name, "identity": concepts.identity},
            "round": before["round"] + 1,
            "previous": self.previous,
            "lineage": text_sha256(ancestry)[:16],
        }
        self.tuning.check(questions)

    # First stage.

    def build(self, run: BenchmarkSession) -> Questions:
        """Questions about images that are given or made here."""
        if self.pictures:
            pictures = located_pictures(Path(self.pictures).absolute(), self.images)
        else:
            pictures = self._made(run)
        write_pictures(pictures, run.folder / "pictures.jsonl")
        return questions_of(pictures, self.released, self.parser_of_questions)

    def _made(self, run: BenchmarkSession) -> AnnotatedPictures:
        before, concepts = self._before, _concepts(run)
        graphs = (released_graphs if self.released else graphs_of)(concepts)
        # Frequencies of other images add up.
        if before is not None and before.record.ode["concepts"]["identity"] != concepts.identity:
            graphs = {
                name: merged(read_graphml(before.folder / f"graph_{name}.graphml"), graph)
                for name, graph in graphs.items()
            }
        for name, graph in graphs.items():
            write_graphml(graph, run.folder / f"graph_{name}.graphml")
        write_csv(statistics_table(graphs), run.folder / "graphs.csv")
        earlier = [read_table(before.folder / PAIRS)] if before else []
        known = [pair for table in earlier for pair in pairs_of(table)]
        compositions = self.construction.compositions(graphs, run.inputs.generator, run.seed, known)
        generator = self._with_photographs(run, compositions)
        pairs = pair_table(compositions, graphs["T"])
        write_csv(pd.concat([*earlier, pairs], ignore_index=True), run.folder / PAIRS)
        plan = generator.plan(compositions, run.seed)
        orders = make(plan, generator, run.folder, self.batch_size)
        run.record.generator = dict(generator.made_with)
        run.record.generated = len(orders)
        detected: dict[str, list[str]] = {}
        made = orders
        if self.filter is not None:
            orders, detected = self._filtered(run, orders, list(graphs["T"]), self.filter)
        clips = [m.clip for m in run.inputs.image_text.values() if isinstance(m, ClipScores)]
        if clips and run.inputs.settings.get("annotations"):
            write_comparison(
                clips[0], run.inputs.annotations, made, run.folder, resampling=run.resampling
            )
        ranking = first_ends if self.released else neighbours
        pictures = pictures_of(orders, graphs["T"], ranking, detected)
        pictures = paired(pictures) if self.origins else pictures
        pictures = balanced(pictures, run.seed)
        shown = {(item.criterion, item.truth[:2]) for item in pictures}
        log.info("%d pictures of %d pairs", len(pictures), len(shown))
        return pictures

    def _with_photographs(self, run: BenchmarkSession, compositions: Compositions) -> Generator:
        if not self.origins:
            return run.inputs.generator
        pairs = distinct(c.pair.key for c in compositions)
        results = {
            name: annotated_photographs(run.inputs.annotations, pairs)
            if source == ANNOTATIONS
            else listed_photographs(Path(source))
            for name, source in self.origins.items()
        }
        return WithPhotographs(run.inputs.generator, results)

    def _filtered(
        self, run: BenchmarkSession, orders: Orders, labels: list[str], kept_by: Filter
    ) -> tuple[Orders, dict[str, list[str]]]:
        name, model = next(iter(run.inputs.image_text.items()))
        # What the images may show is asked for, too, so that surroundings have a column.
        names = distinct([*labels, *(n for o in orders for n in o.composition.pair[:2])])
        images = [file_of(order, run.folder) for order in orders]
        table = kept_by.table(orders, confidences_of(model, images, orders, names), names)
        if self.audit is not None:
            table = audited(table, Path(self.audit))
        write_csv(table, run.folder / "audit.csv")
        run.record.filter = {
            "model": name,
            "made_with": dict(model.made_with),
            **asdict(kept_by),
            "images": filter_summary(table),
        }
        if not table["kept"].any():
            raise UserError(
                f"{name} finds what it should in none of {len(table):,} images: look at "
                f"{run.folder / 'audit.csv'}, and lower task.filter.min_conf ({kept_by.min_conf})"
            )
        lost = [c for c, part in table.groupby("criterion") if not part["kept"].any()]
        if lost:
            log.warning("no image of %s has passed the filter", " and ".join(map(str, lost)))
        rows = zip(table["file"], table["detected"], strict=True)
        detected = {file: [n for n in seen.split(",") if n] for file, seen in rows}
        return [o for o, kept in zip(orders, table["kept"], strict=True) if kept], detected

    # Third stage.

    def about(self, run: BenchmarkSession) -> str:
        """The concepts."""
        return _concepts(run).name

    def vocabulary(self, run: BenchmarkSession) -> CaptionWords:
        """The concepts."""
        return _concepts(run)

    def results(self, run: BenchmarkSession, judgements: Tables) -> ResultRows:
        """See the base class."""
        captions, answers = judgements["captions"], judgements["judged"]
        options = {"finer": page.FINER, "unparsed": self.unparsed, **run.options}
        return result_rows(captions, answers, _splits(judgements), **options)

    def further(self, run: BenchmarkSession, judgements: Tables, source: Path) -> NamedTables:
        """What AMBER's script would print, differences, tendencies, and data for fine-tuning."""
        captions, answers = judgements["captions"], judgements["judged"]
        splits = _splits(judgements)
        yield "amber", amber_table(captions, answers, splits)
        tendencies = self.clustering.tendencies(captions, run.seed)
        if tendencies is not None:
            yield "tendencies_matrix", tendencies.matrix.reset_index()
            yield "tendencies", tendencies.groups
            yield "tendencies_groups", tendencies.summary
            run.record.tendencies = {
                **asdict(self.clustering),
                "silhouette": tendencies.silhouette,
            }
        if before := self._before:
            earlier = read_table(before.folder / "captions.parquet"), before.judged
            now = captions, answers
            yield "change", changes(earlier, now, splits, resampling=run.resampling)
        for by, name in (("split", "differences"), (LEVELS[1], "styles")):
            if by in captions and captions[by].nunique() > 1:
                first = captions[by].iloc[0] if by == "split" else captions[by].min()
                yield name, contrasts(captions, answers, by, first=first, resampling=run.resampling)
        if self.tuning.choose is not None:
            questions = read_questions(Path(run.record.question_file.file))
            chosen = self.tuning.questions(questions, captions, answers, run.seed)
            write_tuning(chosen, source.absolute(), run.folder)
            taken = {"questions": len(chosen), "of": sizes(chosen)}
            run.record.question_tuning = {**asdict(self.tuning), **taken}

    def blocks(self, run: ScoredRun) -> PageBlocks:
        """See the base class."""
        return page.blocks(run)


def _concepts(run: BenchmarkSession) -> Concepts:
    """The concepts of ``concepts=...``, or those of the annotations."""
    source = run.inputs.concepts
    return concepts_of(run.inputs.annotations) if source is None else source.read()


def _splits(judgements: Tables) -> list[str]:
    """The criteria in the order of their questions."""
    tables = [table["split"] for table in judgements.values() if len(table)]
    return distinct(map(str, pd.concat(tables)))
