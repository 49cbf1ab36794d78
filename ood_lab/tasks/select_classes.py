"""ImageNet-21K's classes that have to do with a concept, and their images of one main object."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from ood_lab.arguments import BatchSize, Count, Share
from ood_lab.errors import UserError
from ood_lab.io import write_csv
from ood_lab.run.task import Task
from ood_lab.run.workspace import Workspace
from ood_lab.synthesis import (
    LanguageModel,
    Ledger,
    MainObject,
    Synset,
    check_model,
    check_package,
    chosen_device,
    datasheet,
    imagenet21k_synsets,
    licence,
    package_versions,
    parse_answer,
    progress_bar,
    select_by_keyword,
    wnids_of,
)
from ood_lab.synthesis.main_objects import list_images, with_boxes

log = logging.getLogger(__name__)
_PACKAGES = ("ood_lab", "timm", "torch", "transformers")
_PLACES = ("{concept}", "{label}", "{definition}")


@dataclass(frozen=True, kw_only=True)
class SelectClasses(Task):
    """Writes ``classes.csv`` and, where there are images, ``manifest.csv`` and ``datasheet.md``.

    1. Candidates are all classes, or those that a keyword finds.
    2. With ``llm``, each candidate is put to a language model; its yes keeps the class.
    3. ``include`` and ``exclude`` have the last word, and ImageNet-1K's classes are left out.
    4. With ``images`` (``DIR/<wnid>/<image>``) the images of the chosen classes are listed; with
       ``detector`` only those whose main box of the label scores at least ``threshold`` and covers
       at least ``min_share`` of the image.

    Answers and boxes are kept in ``out`` as they come: the same command goes on, and other
    thresholds cost nothing.

    Args:
        out: folder of the results; kept between runs.
        concept: what the classes should have to do with, in words.
        keywords: see :func:`~ood_lab.synthesis.select_by_keyword`.
        include: wnids or names of classes that are taken whatever is said of them.
        exclude: wnids or names of classes that are not.
        exclude_words: words that rule a class out, matched like ``keywords``.
        keep_imagenet1k: leave ImageNet-1K's classes in.
        llm: folder of a causal language model.
        question: text with ``{concept}``, ``{label}`` and ``{definition}``.
        max_new_tokens: length of an answer.
        images: folder of ImageNet-21K.
        detector: folder of a zero-shot detector.
        query: what the detector looks for, with ``{label}``.
        threshold: least score of the main box.
        min_share: least share of the image that it covers.
        device: None = the first GPU, else the CPU.
        batch_size: questions, or images, at a time.

    Raises:
        UserError: nothing to select by, models or folders are missing, an unknown class, or no
            class is left.
    """

    out: str
    concept: str
    keywords: Sequence[str] = ()
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    exclude_words: Sequence[str] = ()
    keep_imagenet1k: bool = False
    llm: str | None = None
    question: str = ""
    max_new_tokens: Count = 256
    images: str | None = None
    detector: str | None = None
    query: str = "a photo of a {label}"
    threshold: Share = 0.1
    min_share: Share = 0.1
    device: str | None = None
    batch_size: BatchSize = 8

    def run(self, ws: Workspace) -> None:
        """See the class."""
        if not ws.is_main:
            return
        folder, target = Path(self.out).expanduser(), chosen_device(self.device)
        _check(self.keywords, self.include, self.llm, self.question, self.images, self.detector)
        found, of_1k = imagenet21k_synsets()
        synsets = {synset.wnid: synset for synset in found}
        always = wnids_of(self.include, synsets, "task.include")
        banned = set(wnids_of(self.exclude, synsets, "task.exclude"))
        banned |= set(select_by_keyword(found, self.exclude_words)) | (
            set() if self.keep_imagenet1k else of_1k
        )
        _check_apart(always, banned, synsets)
        everything = dict.fromkeys(synsets if self.llm else (), "")
        reasons = select_by_keyword(found, self.keywords) if self.keywords else everything
        reasons = {wnid: why for wnid, why in reasons.items() if wnid not in banned}
        if self.llm is not None:
            asked = {
                "llm": str(self.llm),
                "question": self.question,
                "concept": self.concept,
                "tokens": self.max_new_tokens,
            }
            ledger = Ledger(folder / "answers.jsonl", asked)
            model = LanguageModel(self.llm, target, self.max_new_tokens)
            reasons = _asked(
                reasons, synsets, model, ledger, self.question, self.concept, self.batch_size
            )
        reasons |= dict.fromkeys(always, "included")
        if not reasons:
            raise UserError("no class is left: give other keywords, or fewer words to exclude")
        classes = _class_table(reasons, synsets)
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(classes, folder / "classes.csv")
        ws.manifest |= {
            "title": f"{len(classes):,} classes of '{self.concept}'",
            "out": str(folder),
        }
        _show(classes, folder)
        if self.images is None:
            return
        listed = list_images(classes, Path(self.images).expanduser())
        kept = listed
        if self.detector is not None:
            boxes = Ledger(
                folder / "boxes.jsonl", {"detector": str(self.detector), "query": self.query}
            )
            measured = with_boxes(
                listed, MainObject(self.detector, self.query, target), boxes, self.batch_size
            )
            kept = measured[
                (measured["score"] >= self.threshold) & (measured["share"] >= self.min_share)
            ]
        if kept.empty:
            raise UserError(
                f"none of {len(listed):,} images has a main object: lower task.threshold "
                f"({self.threshold}) or task.min_share ({self.min_share})"
            )
        write_csv(kept, folder / "manifest.csv")
        facts = {"threshold": self.threshold, "least share": self.min_share, "query": self.query}
        _write_sheet(
            folder, self.concept, classes, len(listed), len(kept), self.llm, self.detector, facts
        )


def _check(
    keywords: Sequence[str],
    include: Sequence[str],
    llm: str | None,
    question: str,
    images: str | None,
    detector: str | None,
) -> None:
    if not keywords and llm is None and not include:
        raise UserError("nothing to select by: give task.keywords=[...], task.llm=DIR or include")
    if detector is not None and images is None:
        raise UserError("task.detector looks at images: give task.images=DIR (DIR/<wnid>/<image>)")
    if images is not None and not Path(images).expanduser().is_dir():
        raise UserError(f"task.images={images} is not a directory: give that of ImageNet-21K")
    models = {"task.llm": llm, "task.detector": detector}
    wanted = {option: folder for option, folder in models.items() if folder is not None}
    if wanted:
        check_package("transformers")
        check_model(wanted)
    if llm is not None and (lacking := [place for place in _PLACES if place not in question]):
        raise UserError(f"task.question lacks {', '.join(lacking)}")


def _check_apart(always: Sequence[str], banned: set[str], synsets: Mapping[str, Synset]) -> None:
    if clash := sorted(set(always) & banned):
        raise UserError(
            f"task.include: '{synsets[clash[0]].label}' ({clash[0]}) is excluded, or one of "
            "ImageNet-1K's classes (task.keep_imagenet1k=true leaves those in)"
        )


def _asked(
    candidates: Mapping[str, str],
    synsets: Mapping[str, Synset],
    model: LanguageModel,
    ledger: Ledger,
    question: str,
    concept: str,
    batch_size: int,
) -> dict[str, str]:
    """The candidates that the language model says yes to, with its answer."""
    todo = [wnid for wnid in candidates if wnid not in ledger.answers]
    with progress_bar("asking about classes", len(todo)) as progress:
        for start in range(0, len(todo), batch_size):
            batch = todo[start : start + batch_size]
            texts = [_fill(question, concept, synsets[wnid]) for wnid in batch]
            ledger.add((w, {"answer": a}) for w, a in zip(batch, model(texts), strict=True))
            progress((start + len(batch)) / len(todo))
    answers = {wnid: str(ledger.answers[wnid]["answer"]) for wnid in candidates}
    unclear = [wnid for wnid, answer in answers.items() if parse_answer(answer) is None]
    if unclear:
        log.warning(
            "%d of %d answers hold neither yes nor no and count as no, such as '%s' on %s",
            len(unclear),
            len(answers),
            " ".join(answers[unclear[0]].split())[:60],
            synsets[unclear[0]].label,
        )
    return {wnid: answer for wnid, answer in answers.items() if parse_answer(answer)}


def _fill(question: str, concept: str, synset: Synset) -> str:
    values = (concept, synset.lemmas, synset.definition)
    for place, value in zip(_PLACES, values, strict=True):
        question = question.replace(place, value)
    return question


def _class_table(reasons: Mapping[str, str], synsets: Mapping[str, Synset]) -> pd.DataFrame:
    rows = [
        {
            "wnid": wnid,
            "label": synsets[wnid].label,
            "lemmas": synsets[wnid].lemmas,
            "definition": synsets[wnid].definition,
            "reason": " ".join(reasons[wnid].split()),
        }
        for wnid in sorted(reasons)
    ]
    return pd.DataFrame(rows)


def _show(classes: pd.DataFrame, folder: Path) -> None:
    table = Table(title=f"{len(classes):,} classes", title_justify="left")
    for heading in ("wnid", "label", "definition"):
        table.add_column(heading, overflow="fold")
    for row in classes.head(20).itertuples():
        table.add_row(str(row.wnid), str(row.label), str(row.definition))
    Console().print(table)
    log.info("all of them: %s", folder / "classes.csv")


def _write_sheet(
    folder: Path,
    concept: str,
    classes: pd.DataFrame,
    listed: int,
    kept: int,
    llm: str | None,
    detector: str | None,
    facts: Mapping[str, Any],
) -> None:
    models = {
        "language model": f"{llm} ({licence(llm)})" if llm else "none, by keyword",
        "detector": f"{detector} ({licence(detector)})" if detector else "none, all images",
    }
    sections: dict[str, Mapping[str, Any] | str] = {
        "What it is": {
            "concept": concept,
            "classes": f"{len(classes):,} of ImageNet-21K (classes.csv)",
            "images": f"{kept:,} of {listed:,}",
        },
        "How it was made": {**models, **(facts if detector else {})},
        "Versions": package_versions(_PACKAGES),
        "Licence": "The images are ImageNet's: non-commercial research, from their own sources. "
        "The manifest holds paths only.",
        "Intended use": "An OOD set related to the ID concept. Labels are WordNet's and were not "
        "checked by people; look for ID objects among the images before measuring on them.",
        "How to use it": "`data=folder data.ood.related=manifest.csv` with this folder's path.",
    }
    (folder / "datasheet.md").write_text(datasheet(f"Images related to {concept}", sections))
    log.info("%d of %d images: %s", kept, listed, folder / "manifest.csv")
