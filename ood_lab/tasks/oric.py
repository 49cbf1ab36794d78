"""ORIC: do chat models see unexpected objects, and only objects that are there?"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import pandas as pd
from annotated_types import Ge, Interval

from ood_lab.errors import UserError
from ood_lab.io import write_csv, write_table
from ood_lab.lvlm.answers import Answer, Answers
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.image_text.clip import ClipScores
from ood_lab.lvlm.image_text.foreign import refuse_foreign
from ood_lab.lvlm.kept import store_of
from ood_lab.lvlm.oric.analyses import analyses_of, by_tier, curve_of
from ood_lab.lvlm.oric.construct import OricConstruction
from ood_lab.lvlm.oric.contents import contents_of
from ood_lab.lvlm.oric.drawing import Constructed
from ood_lab.lvlm.oric.facts import AreaOf, with_facts
from ood_lab.lvlm.oric.files import Item, read_bench, read_train, write_bench, write_train
from ood_lab.lvlm.oric.judges import ChatJudge, CooccurrenceJudge, Judge
from ood_lab.lvlm.oric.matching import second_step
from ood_lab.lvlm.oric.page import COMPARED, HEADLINES, page, summary
from ood_lab.lvlm.oric.pope import Sampling
from ood_lab.lvlm.oric.predictions import read_predictions, write_predictions
from ood_lab.lvlm.oric.released import PAPER, RELEASED, Rules
from ood_lab.lvlm.oric.scoring import KIND, contrasts, results_of
from ood_lab.lvlm.oric.sets import ORIC, Ablation, Builder, items_of, meta_of, table_of
from ood_lab.lvlm.oric.space import Space, space_of, template_of
from ood_lab.lvlm.oric.wording import TASK, Asked, Form
from ood_lab.lvlm.questions import Question
from ood_lab.lvlm.reader import READER
from ood_lab.lvlm.shown import Headline, Scored
from ood_lab.lvlm.texts import TextModel
from ood_lab.lvlm.training.oric_data import write_dataset
from ood_lab.report.blocks import Text
from ood_lab.report.page import Page
from ood_lab.report.table import Table
from ood_lab.results import Kind
from ood_lab.run.workspace import Workspace
from ood_lab.tasks._benchmark import Benchmark, results_options

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Oric(Benchmark):
    """Constructs questions, asks a chat model, scores its answers: stages that can run alone.

    ``build`` writes ``oric_bench.json``, ``oric_train.json`` (where wanted), ``audit.csv``,
    ``sets.parquet``, ``analyses.csv`` and ``questions.jsonl``; ``ask`` writes ``answers.jsonl``;
    ``score`` writes ``judged.parquet``, ``results.*``, ``differences.csv``, ``context.csv``,
    ``tiers.csv``, ``predictions_<n>.json``, figures and ``oric.html``. Features of images, replies
    of the judge and answers are kept for all runs.

    Args:
        bench: a published ``oric_bench.json``, in place of the construction.
        images: folder of its images, of which nothing else is known then; None = they are those of
            the annotations, which also say how large and how expected its objects are.
        predictions: prediction files of ORIC's code in place of it, one of each wording.
        construct: how questions are made.
        train_pairs: further pairs of images for ``oric_train.json``; no image is in both files.
        hf_dataset: write them as the released training code loads them, too (``oric_train/``).
        released: where ORIC's code does something else than its paper, do as the code does, see
            :mod:`ood_lab.lvlm.oric.released`.
        clip_text: text of an object for the CLIP ; None = ``an image contains {}``, or
            what a shipped CLIP was trained on.
        crowd: groups in one box are objects.
        pope: kinds of POPE's questions to ask too, from the same annotations.
        ablations: ORIC's construction to ask too with other samplers, see :data:`Ablation`.
        form: ``plain``, or ``cot``, a chain of thought.
        prompts: of the four wordings, how many are asked.
        second_step: ``judge``: its chat model reads replies that the parser does not match.
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
    pope: Sequence[Sampling]
    ablations: Sequence[Ablation]
    form: Form
    prompts: Annotated[int, Interval(ge=1, le=4)]
    parser: str
    second_step: Literal["none", "judge"]
    area_of: AreaOf
    thresholds: Sequence[float]
    bins: Annotated[int, Ge(1)]
    files: ClassVar[Sequence[str]] = ("questions", "bench", "answers", "levels", "predictions")
    asks: ClassVar[Sequence[str]] = (TASK,)
    of_building: ClassVar[Sequence[str]] = ("annotations", "clip", "judge", "oric")
    headlines: ClassVar[Sequence[Headline]] = HEADLINES
    compared: ClassVar[Mapping[str, str]] = COMPARED

    def check(self, ws: Workspace) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        super().check(ws)
        if len(self.thresholds) != 2 or not 0 < self.thresholds[0] < self.thresholds[1]:
            raise UserError("task.thresholds: give two sides of squares in pixels, ascending")
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
            raise UserError("task.second_step=judge needs a chat model: judge=openai, for example")

    @staticmethod
    def _check_construction(given: Mapping[str, Any]) -> None:
        if not given.get("annotations"):
            raise UserError("nothing to ask about: choose annotations=scenes|coco, or task.bench")
        if not given.get("judge"):
            raise UserError(
                "no judge says which objects are unexpected: choose judge=cooccurrence|openai"
            )

    def _check_given(self, given: Mapping[str, Any]) -> None:
        if self.bench is not None and self.questions is not None:
            raise UserError("task.bench and task.questions exclude each other")
        if self.pope or self.ablations or self.train_pairs:
            raise UserError(
                "task.pope, task.ablations and task.train_pairs are made in a construction: leave "
                "them empty where the questions are given"
            )
        if self.bench is not None:
            read_bench(Path(self.bench))
            if self.images is None and not given.get("annotations"):
                raise UserError("task.bench: where are its images? Give task.images=DIR")
            if self.images is not None and not Path(self.images).is_dir():
                raise UserError(f"task.images={self.images} is not a directory")

    # First stage.

    def build(self, ws: Workspace) -> Iterator[Question]:
        """The published questions, or new ones."""
        items, table = self._given(ws) if self.bench else self._constructed(ws)
        write_table(table, ws.folder / "sets.parquet")
        asked = Asked(form=self.form, parser=self.parser_of_questions, prompts=self.prompts)
        return asked.questions(items, self._files(ws, items), meta_of(table))

    def _files(self, ws: Workspace, items: Sequence[Item]) -> dict[str, str]:
        """Path of each image."""
        if self.images is not None:
            root = Path(self.images).absolute()
            return {item.image: str(root / item.image) for item in items}
        every = ws.annotations.images["file"]
        by_name = {Path(file).name: str(ws.annotations.root / file) for file in every}
        return {item.image: by_name[Path(item.image).name] for item in items}

    def _given(self, ws: Workspace) -> tuple[list[Item], pd.DataFrame]:
        """The published questions, with what annotations and a CLIP say of them, if any."""
        log.warning(
            "analyses.csv (sizes, CLIPScores and distances of the images) and audit.csv are left "
            "out: a construction makes them, and task.bench=%s was made elsewhere",
            self.bench,
        )
        items = read_bench(Path(str(self.bench)))
        annotations = ws.annotations if self.images is None else None
        table = table_of(items, annotations).assign(split=ORIC)
        ws.manifest["oric"] = {"bench": self.bench}
        if annotations is not None:
            contents = contents_of(annotations, self.crowd)
            table = with_facts(table, annotations, contents, None, self.area_of, self._edges)
            ws.manifest["annotations"] = {"name": annotations.name}
        return items, table

    def _constructed(self, ws: Workspace) -> tuple[list[Item], pd.DataFrame]:
        annotations, folder = ws.annotations, ws.features_root / "oric"
        how = replace(self.construct, rules=self._rules)
        space = space_of(ws.clip, annotations, self._clip_text, folder)
        builder = Builder(contents_of(annotations, self.crowd), space, self._judge(ws), ws.seed)
        bench, train = builder.oric(how, self.train_pairs)
        tables = {ORIC: bench.questions}
        tables |= {name: builder.ablation(how, name) for name in self.ablations}
        count = len(bench.questions)
        tables |= {f"pope_{kind}": builder.pope(kind, count) for kind in self.pope}
        items: list[Item] = []
        parts = []
        for split, rows in tables.items():
            made = items_of(rows, annotations, self._rules.article)
            items += made
            known = with_facts(
                rows, annotations, builder.contents, space, self.area_of, self._edges
            )
            images = [item.image for item in made]
            parts.append(known.assign(split=split, item=range(1, len(made) + 1), image=images))
        table = pd.concat(parts, ignore_index=True)
        self._write_files(ws, bench, train)
        self._analyse(ws, table, space)
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
        return items, table

    @property
    def _edges(self) -> tuple[float, float]:
        return float(self.thresholds[0]), float(self.thresholds[1])

    @property
    def _rules(self) -> Rules:
        return RELEASED if self.released else PAPER

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

    def _write_files(self, ws: Workspace, bench: Constructed, train: Constructed | None) -> None:
        items = items_of(bench.questions, ws.annotations, self._rules.article)
        write_bench(items, ws.folder / "oric_bench.json")
        audits = [bench.audit.assign(file="bench")]
        if train is not None:
            items = items_of(train.questions, ws.annotations, self._rules.article)
            write_train(items, ws.folder / "oric_train.json")
            if self.hf_dataset:
                made = read_train(ws.folder / "oric_train.json")
                write_dataset(made, ws.annotations.root, ws.folder / "oric_train")
            audits.append(train.audit.assign(file="train"))
        audit = pd.concat(audits, ignore_index=True)
        images = ws.annotations.images["file"].to_numpy()
        shown = audit.assign(image=images[audit["row"].astype(int)], verdict="")
        write_csv(shown, ws.folder / "audit.csv")

    def _analyse(self, ws: Workspace, table: pd.DataFrame, space: Space) -> None:
        folder, name = ws.features_root / "oric", ws.clip.name
        spaces = {name: space}
        for other, model in ws.image_text.items():
            if not isinstance(model, ClipScores):
                raise UserError(
                    f"image_text={other} is not a CLIP of open_clip, in whose space distances of "
                    "images could be measured: leave it out"
                )
            spaces[other] = space_of(model.clip, ws.annotations, self._clip_text, folder)
        write_csv(analyses_of(table, spaces, name, **ws.resampling), ws.folder / "analyses.csv")

    # Second stage.

    def find_answers(
        self, ws: Workspace, questions: Sequence[Question], folder: Path
    ) -> list[Answer]:
        """Predictions of ORIC's code where they are given, else the answers of a chat model."""
        if not self.predictions:
            return super().find_answers(ws, questions, folder)
        own = [q for q in questions if q.meta["split"] == ORIC]
        return list(read_predictions(own, [Path(p) for p in self.predictions]).values())

    # Third stage.

    @property
    def name(self) -> str:
        """See the base class."""
        return "ORIC"

    @property
    def kind(self) -> Kind:
        """See the base class."""
        return KIND

    def about(self, ws: Workspace) -> str:
        """The annotations, or the file that was given."""
        return str(ws.manifest.get("annotations", {}).get("name") or self.bench or self.questions)

    def judged(
        self, ws: Workspace, questions: Sequence[Question], answers: Answers
    ) -> Mapping[str, pd.DataFrame]:
        """See the base class; replies that do not match may be read by the judge."""
        asked = [q for q in questions if q.question_id in answers or not self.predictions]
        judged = self.read(ws, asked, answers)
        if self.second_step == "judge":
            judged = second_step(judged, self._texts(ws, cast("ChatModel", ws.judge)))
        return {"judged": judged}

    def results(
        self, ws: Workspace, judged: Mapping[str, pd.DataFrame], model: str
    ) -> pd.DataFrame:
        """See the base class."""
        return results_of(judged["judged"], model, **results_options(ws))

    def further(
        self, ws: Workspace, judged: Mapping[str, pd.DataFrame], source: Path
    ) -> Iterator[tuple[str, pd.DataFrame]]:
        """Predictions as ORIC's code has them, sets against ORIC, and the curves."""
        table = judged["judged"]
        write_predictions(table[table["split"] == ORIC], ws.folder)
        if table["split"].nunique() > 1:
            yield "differences", contrasts(table, "split", first=ORIC, **ws.resampling)
        if "p_context" in table:
            yield "context", curve_of(table, self.bins, **ws.resampling)
        if "tier" in table:
            yield "tiers", by_tier(table, **ws.resampling)

    def contrasts(self, ws: Workspace, judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """See the base class; of ORIC's own questions."""
        table = judged["judged"]
        return contrasts(table[table["split"] == ORIC], "model", **ws.resampling)

    def summary(self, run: Scored) -> Iterator[Table | Text]:
        """See the base class."""
        return summary(run)

    def page(self, run: Scored, blocks: list[Table | Text]) -> Page:
        """See the base class."""
        return page(run, blocks)


def _is_chat(node: Mapping[str, Any] | None) -> bool:
    return bool(node) and not str((node or {}).get("_target_")).endswith(".CooccurrenceJudge")
