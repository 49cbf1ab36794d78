"""OODBench: do vision-language models see the objects that image-text models overlook?"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.files import read_config, write_table
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.annotations.image_contents import labels_of
from ood_lab.lvlm.benchmark.contract import Benchmark, BenchmarkSession, BenchmarkWords
from ood_lab.lvlm.benchmarks.oodbench import page
from ood_lab.lvlm.benchmarks.oodbench.division import (
    DIVISION,
    Rule,
    audited,
    divide,
    without_rejected,
    write_audit,
)
from ood_lab.lvlm.benchmarks.oodbench.question_building import questions_of
from ood_lab.lvlm.benchmarks.oodbench.question_pairs import Pairing
from ood_lab.lvlm.benchmarks.oodbench.scoring import DATASET, contrasts, results_of
from ood_lab.lvlm.benchmarks.oodbench.split_contents import distribution_of, with_fields, with_uncut
from ood_lab.lvlm.image_text.base import cached_scores
from ood_lab.lvlm.image_text.foreign_images import refuse_foreign
from ood_lab.lvlm.pages.benchmark_page import PageBlocks, ScoredRun
from ood_lab.lvlm.questions.question_files import Question, Questions, read_questions
from ood_lab.lvlm.questions.question_forms import Forms, in_forms
from ood_lab.lvlm.questions.question_images import with_images_found
from ood_lab.lvlm.scoring.yes_no_scores import Unparsed
from ood_lab.schema.results import NamedTables, Tables
from ood_lab.schema.run_record import RunRecord

#: Settings that must be the same: counts are added up over the data sets.
_SAME = ("case1", "combine", "threshold", "id_pairing", "most_pairs", "form", "bap", "uncut")


def built_datasets(files: Sequence[str]) -> dict[str, Fields]:
    """What the runs that built these files say of them, by the name of their annotations.

    Args:
        files: ``questions.jsonl`` of two or more runs of ``task=oodbench``.

    Raises:
        UserError: a file is not in such a run, two data sets have the same name, or the runs
            differ in their rule, their questions or their image-text models.
    """
    results: dict[str, Fields] = {}
    of_first: Fields = {}
    for file in map(Path, files):
        about = RunRecord.read(file.parent, missing_ok=True)
        if not about.division or not (file.parent / "config.yaml").is_file():
            raise UserError(
                f"task.datasets: {file} is not in the folder of a run of task=oodbench that "
                "divided a data set"
            )
        name = str(about.annotations["name"])
        if name in results:
            raise UserError(
                f"task.datasets: {results[name]['file']} and {file} are both of '{name}': build "
                "one of them with another annotations.name=..."
            )
        task = read_config(file.parent)["task"]
        settings = {f"task.{key}": task[key] for key in _SAME} | {"image_text": about.image_text}
        for key, value in settings.items():
            if value != of_first.setdefault(key, value):
                raise UserError(
                    f"task.datasets: {files[0]} and {file} were built with another {key}: counts "
                    "are added up over data sets that were divided and asked alike"
                )
        facts = about.model_dump(include={"annotations", "division", "image_text"})
        results[name] = {"file": str(file.absolute()), **facts}
    if len(results) < 2:
        raise UserError("task.datasets: give two or more files; a single one is task.questions")
    return results


def questions_of_datasets(built: Mapping[str, Mapping[str, Any]]) -> Iterator[Question]:
    """All of their questions; ids and images begin with the name of the data set.

    Args:
        built: see :func:`built_datasets`.
    """
    for name, about in built.items():
        file = Path(str(about["file"]))
        for question in with_images_found(read_questions(file), file.parent):
            pair, image = question.pair_id or question.question_id, question.meta["image"]
            yield replace(
                question,
                question_id=f"{name}/{question.question_id}",
                pair_id=f"{name}/{pair}",
                image=str((file.parent / str(question.image)).absolute()),
                meta={**question.meta, DATASET: name, "image": f"{name}/{image}"},
            )


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OODBench(Rule, Pairing, Benchmark):
    """Builds questions, prompts a model, scores its answers: three stages that can run separately.

    ``build`` writes ``division.parquet``, ``audit.csv`` and ``questions.jsonl``; ``ask`` writes
    ``answers.jsonl``; ``score`` writes ``judged.parquet``, ``results.*``, figures and
    ``oodbench.html``. Scores of image-text models and answers are kept for all runs, so that none
    is computed or paid for twice.

    Args:
        case1, combine, threshold: see :class:`~ood_lab.lvlm.benchmarks.oodbench.division.Rule`.
        audit: ``audit.csv`` with verdicts: rejected pairs are skipped.
        id_pairing, id_pairs, most_pairs, uncut: see
            :class:`~ood_lab.lvlm.benchmarks.oodbench.question_pairs.Pairing`.
        datasets: ``questions.jsonl`` of several runs, each of which divided another data set, in
            place of the first stage. They are pooled: results of a split are of all of them, and
            those of each data set are next to them.
        form: ``plain``, ``cot``, a chain of thought, or ``both``, which are then compared.
        bap: see :func:`~ood_lab.lvlm.benchmarks.oodbench.question_building.questions_of`.
        unparsed: which of the two ways of treating unparsed answers is printed first.
        foreign_clip: take a CLIP that comes with the package for images that it knows nothing of.

    Raises:
        UserError: see :meth:`check`, the annotations and the models.
    """

    audit: str | None
    datasets: Sequence[str]
    form: Forms
    bap: bool
    unparsed: Unparsed
    foreign_clip: bool
    words: ClassVar[BenchmarkWords] = page.WORDS
    files: ClassVar[Sequence[str]] = ("questions", "datasets", "answers", "levels", "audit")

    def check_inputs(self, run: BenchmarkSession) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        if self.uncut and self.most_pairs is None:
            raise UserError("task.uncut=true needs task.most_pairs: without it no split is cut")
        if self.datasets:
            if self.questions is not None or self.audit is not None:
                raise UserError("task.datasets excludes task.questions and task.audit")
            built_datasets(self.datasets)
        elif self.questions is None and not self.foreign_clip:
            refuse_foreign(run.inputs.settings, ("annotations",), ("image_text",))

    def build(self, run: BenchmarkSession) -> Questions:
        """Questions about what the image-text models overlook, and about what they do not."""
        if not self.datasets:
            return self._divided(run)
        built = built_datasets(self.datasets)
        *names, last = built
        run.record.annotations = {"name": f"{', '.join(names)} and {last}"}
        run.record.image_text = built[last]["image_text"]
        run.record.datasets = {
            name: {key: about[key] for key in ("file", "annotations", "division")}
            for name, about in built.items()
        }
        return list(questions_of_datasets(built))

    def _divided(self, run: BenchmarkSession) -> Questions:
        """Questions about the data set of ``annotations=...``."""
        annotations = run.inputs.annotations
        labels = labels_of(annotations)
        folder = run.features / "image_text"
        scores = {
            n: cached_scores(m, annotations, folder) for n, m in run.inputs.image_text.items()
        }
        checked = audited(
            divide(scores, labels, self), None if self.audit is None else Path(self.audit)
        )
        division = without_rejected(checked)
        write_table(division, run.folder / DIVISION)
        write_audit(checked, annotations.paths, run.folder / "audit.csv")
        sample = self.draw(division, labels, run.seed)
        sizes = division["split"].value_counts().to_dict()
        run.record.annotations = {
            "name": annotations.name,
            "identity": annotations.identity,
            "images": len(annotations.images),
            "categories": len(annotations.categories),
            "fields": [*annotations.fields.items()],
            "domain": annotations.domain,
        }
        run.record.image_text = {
            name: dict(model.made_with) for name, model in run.inputs.image_text.items()
        }
        run.record.division = {item.name: vars(self)[item.name] for item in fields(Rule)}
        run.record.division["pairs"] = sizes
        log.info("annotated pairs by split: %s", sizes)
        parser = self.parser_of_questions
        ask = partial(questions_of, sample, annotations, seed=run.seed, parser=parser, bap=self.bap)
        return in_forms(self.form, lambda form: ask(form=form))

    def results(self, run: BenchmarkSession, judgements: Tables) -> pd.DataFrame:
        """See the base class."""
        score = partial(results_of, unparsed=self.unparsed, **run.options)
        return with_uncut(judgements["judged"], score)

    def further(self, run: BenchmarkSession, judgements: Tables, source: Path) -> NamedTables:
        """What the splits are made of."""
        answers = with_fields(judgements["judged"], run.record)
        yield page.DISTRIBUTION, with_uncut(answers, distribution_of)

    def contrasts(self, judgements: Tables, resampling: Resampling) -> pd.DataFrame:
        """See the base class."""
        return with_uncut(judgements["judged"], partial(contrasts, resampling=resampling))

    def blocks(self, run: ScoredRun) -> PageBlocks:
        """See the base class."""
        return page.blocks(run)
