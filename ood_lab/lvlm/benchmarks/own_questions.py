"""Your own questions about your own images, asked and scored like any other benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.grouping import distinct, with_keys, without_keys
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.answers.open_answer_reader import READER
from ood_lab.lvlm.benchmark.contract import Benchmark, BenchmarkSession, BenchmarkWords
from ood_lab.lvlm.captions.caption_page import CAPTIONS
from ood_lab.lvlm.captions.caption_rules import CaptionRules
from ood_lab.lvlm.captions.caption_scoring import caption_table, contrasts, result_rows
from ood_lab.lvlm.captions.nouns import Lexicon
from ood_lab.lvlm.pages.answer_tables import by_way, doubt_table, kind_tables, yes_no_tables
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    PageBlocks,
    ScoredRun,
    answer_figures,
    defined,
    metric_table,
    wrong_answers,
)
from ood_lab.lvlm.pages.result_sentences import ACCURACY, CHAIR, MetricSentence
from ood_lab.lvlm.questions.question_files import (
    GENERATIVE,
    YES_NO,
    Question,
    Questions,
    QuestionSource,
    true_caption,
)
from ood_lab.lvlm.questions.question_forms import Order, ReadBy, with_options
from ood_lab.lvlm.scoring.kind_scores import (
    ACCURACIES,
    KINDS,
    Matching,
    by_probability,
    by_text,
    kind_contrasts,
    kind_rows,
)
from ood_lab.lvlm.scoring.scored_results import POOLED, question_kind
from ood_lab.lvlm.scoring.uncertainty import uncertainty_rows
from ood_lab.lvlm.scoring.yes_no_scores import (
    METRICS,
    SCORE,
    Unparsed,
    model_contrasts,
    score_rows,
    yes_no_rows,
)
from ood_lab.report.rendering.blocks import PlannedFigure
from ood_lab.report.rendering.table import Table
from ood_lab.schema.results import Names, ResultRows, Tables

#: The set of questions that name none.
_ONLY = "all"


@dataclass(frozen=True, kw_only=True)
class OwnQuestions(Benchmark):
    """Prompts a vision-language model with the questions of a file, and scores its answers.

    The file is one of :func:`~ood_lab.lvlm.questions.question_files.read_questions`: yes/no
    questions, multiple choice, counts, free text and captions. Images are next to it, or in it.
    Captions are searched for the ``objects`` of all questions, or, with ``annotations=...``, for
    the annotated categories.

    Args:
        title: what the benchmark is called.
        unparsed: which of the two ways of treating unparsed answers comes first.
        source: published files that the questions are read from, in place of ``questions``.
        option_order, read_by: of multiple choice, see
            :func:`~ood_lab.lvlm.questions.question_forms.with_options`.
        matching: of free text, see :func:`~ood_lab.lvlm.scoring.kind_scores.by_text`.
        groups: metric → key in ``meta``: the share of groups all of whose questions are right.
        totals: name → sets whose ``score`` is summed; the groups are the first of ``groups``.

    Raises:
        UserError: see :meth:`check_inputs` and the models.
    """

    title: str
    unparsed: Unparsed
    source: QuestionSource | None
    option_order: Order
    read_by: ReadBy
    matching: Matching
    groups: Mapping[str, str]
    totals: Mapping[str, Sequence[str]]
    read_also: ClassVar[Sequence[str]] = ("matching",)

    @property
    def words(self) -> BenchmarkWords:
        """Named after the title."""
        slug = re.sub(r"[^a-z0-9]+", "_", self.title.lower()).strip("_") or "questions"
        unit = "question pair" if self.source is None else "questions of an image"
        return BenchmarkWords(
            name=self.title,
            kind=question_kind(slug, unit, "unparsed"),
            asks=(YES_NO, *KINDS, GENERATIVE),
            headlines=(
                Headline(POOLED, "accuracy", "Acc"),
                *(Headline(POOLED, metric, words) for metric, words in ACCURACIES.items()),
                *(
                    Headline(n, "score", f"{n} (of {200 * len(s):,})")
                    for n, s in self.totals.items()
                ),
                Headline(POOLED, "chair", "CHAIR"),
            ),
            sentences=(
                ACCURACY,
                *(
                    MetricSentence(metric, f"accuracy on {words.split(':')[0].lower()}")
                    for metric, words in ACCURACIES.items()
                ),
                CHAIR,
            ),
            compared={**METRICS, **ACCURACIES, **CAPTIONS},
            definitions=self._definitions,
            metric_tables={
                "Yes/no questions": METRICS,
                "Other questions": ACCURACIES,
                "Captions": CAPTIONS,
            },
        )

    @property
    def reading_ways(self) -> Names:
        """How choices and texts are read, see the class."""
        text = {} if self.matching == "contained" else {"text": self.matching}
        return text if self.read_by != "probability" else text | {"choice": self.read_by}

    def check_inputs(self, run: BenchmarkSession) -> None:
        """Raises a UserError unless there is a file of questions, or a source of them."""
        if self.questions is None and self.source is None:
            raise UserError("task=questions asks those of a file: give task.questions=FILE.jsonl")
        by_chance = self.read_by == "probability" and self.answers is None
        if by_chance and not run.inputs.lvlm.logprobs:
            raise UserError(
                "task.read_by=probability needs a server that gives P(letter): lvlm=openai "
                "lvlm.logprobs=10"
            )

    def completed(self, run: BenchmarkSession, questions: Questions) -> Questions:
        """With the options of multiple choice, and what the images of captions show."""
        instruct = self.prompt_suffix is None
        questions = [*with_options(questions, self.option_order, self.read_by, instruct, run.seed)]
        annotations = run.inputs.annotations if run.inputs.settings.get("annotations") else None
        return list(with_objects(questions, annotations))

    def build(self, run: BenchmarkSession) -> Questions:
        """The questions of the published files."""
        assert self.source is not None
        return self.source.questions()

    def about(self, run: BenchmarkSession) -> str:
        """The folder of the questions."""
        if self.questions is None:
            assert self.source is not None
            return Path(self.source.path).absolute().stem
        return Path(self.questions).absolute().parent.name

    def judged(self, run: BenchmarkSession, questions: Questions, answers: Answers) -> Tables:
        """See the base class."""
        table = self.read(run, [q for q in questions if q.task != GENERATIVE], answers)
        table = by_probability(table) if self.read_by == "probability" else table
        model = self.reading_model(run) if self.matching == READER else None
        results = {"judged": by_text(table, self.matching, model)}
        if captions := [q for q in questions if q.task == GENERATIVE]:
            words = {word for q in captions for key in ("truth", "hallu") for word in q.meta[key]}
            if run.inputs.settings.get("annotations"):
                words |= set(run.inputs.annotations.categories)
            results["captions"] = caption_table(captions, answers, CaptionRules(words), Lexicon())
        return {
            name: item.assign(split=item["split"].fillna(_ONLY) if "split" in item else _ONLY)
            for name, item in results.items()
        }

    def results(self, run: BenchmarkSession, judgements: Tables) -> ResultRows:
        """See the base class."""
        table, options = judgements["judged"], run.options
        captions = judgements.get("captions", table.iloc[:0])
        splits = distinct([*table["split"], *captions["split"]])
        rows = list(yes_no_rows(table, splits, self.unparsed, groups=self.groups, **options))
        if self.totals:
            scored = {split: [split] for split in splits} | dict(self.totals)
            key = next(iter(self.groups.values()))
            rows += score_rows(table, scored, key, self.unparsed, resampling=run.resampling)
        rows += uncertainty_rows(table, splits, POOLED, resampling=run.resampling)
        rows += kind_rows(table, splits, self.unparsed, **options)
        if len(captions):
            of_captions = result_rows(captions, table.iloc[:0], splits, **options)
            rows += [without_keys(row, ("n_images",)) for row in of_captions]
        return rows

    def contrasts(self, judgements: Tables, resampling: Resampling) -> pd.DataFrame:
        """See the base class."""
        answers, captions = judgements["judged"], judgements.get("captions")
        tables = [kind_contrasts(answers, resampling=resampling)]
        if (answers["task"] == YES_NO).any():
            tables.insert(0, model_contrasts(answers, resampling=resampling))
        if captions is not None:
            tables.append(contrasts(captions, answers.iloc[:0], "model", resampling=resampling))
        return pd.concat(tables, ignore_index=True)

    @property
    def _definitions(self) -> list[tuple[str, str]]:
        """What is counted; of published files, as their reader says."""
        if self.source is None:
            return defined("yes_no", "kinds", "captions", "doubt")
        counted = " ".join(str(type(self.source).__doc__).split("Args:")[0].split())
        return [(self.title, counted.replace("``", "")), *defined("yes_no")[1:]]

    def _summary(self, run: ScoredRun) -> Iterator[Table]:
        """Metrics of every set."""
        yield from yes_no_tables(run, self._metrics, _names(run))
        for title, part in by_way(
            "Score: accuracy plus share of groups all right, points", run, SCORE
        ):
            scored = {str(split): str(split) for split in dict.fromkeys(part["split"])}
            yield metric_table(title, "split", part, scored, SCORE)
        yield from doubt_table(run, _names(run))
        yield from kind_tables(run, _names(run))
        if "captions" in run.judged:
            rows, note = run.whole, "Lower is better but for Cover."
            yield metric_table("Captions, %", "split", rows, _names(run), CAPTIONS, notes=[note])

    @property
    def _metrics(self) -> Names:
        """Metric and heading."""
        return METRICS | {name: name.replace("_", " ") for name in self.groups}

    def blocks(self, run: ScoredRun) -> PageBlocks:
        """See the base class."""
        wrong, pictures = wrong_answers(run.judged["judged"], _names(run), run.source)
        return PageBlocks(self._summary(run), (), self._figures(run), wrong, pictures)

    def _figures(self, run: ScoredRun) -> Iterator[PlannedFigure]:
        """Every metric by set, and some over levels of shift."""
        every, known = {**self._metrics, **ACCURACIES, **CAPTIONS}, set(run.whole["metric"])
        shown = with_keys(every, known)
        keys = ("accuracy", "yes_rate", "f1", *ACCURACIES, "chair")
        levels = {key: shown[key] for key in keys if key in shown}
        return answer_figures(run, shown, _names(run), levels, POOLED, "Positive class: yes.")


def with_objects(
    questions: Iterable[Question], annotations: Annotations | None
) -> Iterator[Question]:
    """Captions with what is annotated in their images, which are found by the names of the files.

    Raises:
        UserError: it is not known what an image shows.
    """
    shown: dict[str, dict[str, None]] = {}
    if annotations is not None:
        names = {row.image: Path(str(row.file)).name for row in annotations.images.itertuples()}
        shown = {name: {} for name in names.values()}
        for row in annotations.objects.itertuples():
            shown[names[row.image]][str(row.category)] = None
    for question in questions:
        name = Path(str(question.image)).name
        if question.task == GENERATIVE and name in shown:
            truth = list(shown[name])
            meta = {"hallu": [], **question.meta, "truth": truth}
            question = replace(question, meta=meta, answer=true_caption(truth))
        if question.task == GENERATIVE and "truth" not in question.meta:
            raise UserError(
                f"the caption '{question.question_id}' has no key 'objects', and '{name}' is not "
                "in annotations=...: say what the image shows"
            )
        yield question


def _names(run: ScoredRun) -> Names:
    rows = run.results[run.results["metric"] != "score"]
    return {str(split): str(split) for split in dict.fromkeys(rows["split"])}
