"""ImageNet-21K's classes that have to do with a concept, and their images of one main object."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from ood_lab.common.arguments import BatchSize, Count, Fields, Share
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.common.grouping import without_keys, without_none
from ood_lab.report.rendering.table import plain_table
from ood_lab.report.rendering.terminal import print_whole
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.synthesis import (
    LanguageModel,
    Ledger,
    MainObject,
    Synset,
    batches,
    check_model,
    check_package,
    imagenet21k_synsets,
    licence,
    parse_answer,
    select_by_keyword,
    write_datasheet,
)
from ood_lab.synthesis.imagenet21k_classes import list_images, with_boxes
from ood_lab.synthesis.pretrained_models import QUERY

log = logging.getLogger(__name__)
#: What the language model is asked.
QUESTION = (
    'Could a photograph of "{label}" ({definition}) be mistaken for a photograph of {concept}, or '
    "does it show a related kind of object? Answer with yes or no."
)


@dataclass(frozen=True, kw_only=True)
class SelectClasses(Task):
    """Writes ``classes.csv`` and, where there are images, ``manifest.csv`` and ``datasheet.md``.

    1. Candidates are all classes, or those that a keyword finds.
    2. With ``llm``, each candidate is put to a language model; its yes keeps the class.
    3. ImageNet-1K's classes are skipped.
    4. With ``images`` (``DIR/<wnid>/<image>``) the images of the chosen classes are listed; with
       ``detector`` only those whose main box of the label scores at least ``threshold`` and covers
       at least ``min_share`` of the image.

    Answers and boxes are kept in ``out`` as they come: the same command resumes, and other
    thresholds cost nothing.

    Args:
        out: folder of the results; kept between runs.
        concept: what the classes should have to do with, in words.
        keywords: see :func:`~ood_lab.synthesis.select_by_keyword`.
        llm: folder of a causal language model.
        max_new_tokens: length of an answer.
        images: folder of ImageNet-21K.
        detector: folder of a zero-shot detector.
        threshold: least score of the main box.
        min_share: least share of the image that it covers.
        device: None = the first GPU, else the CPU.
        batch_size: questions, or images, at a time.

    Raises:
        UserError: nothing to select by, models or folders are missing, or no class is left.
    """

    out: str
    concept: str
    keywords: Sequence[str]
    llm: str | None
    max_new_tokens: Count
    images: str | None
    detector: str | None
    threshold: Share
    min_share: Share
    device: str | None
    batch_size: BatchSize

    def run(self, ws: Workspace) -> None:
        """See the class."""
        if not ws.is_main:
            return
        folder, target = Path(self.out).expanduser(), chosen_device(self.device)
        self._check_settings()
        classes_21k, of_1k = imagenet21k_synsets()
        synsets = {synset.wnid: synset for synset in classes_21k}
        hits = select_by_keyword(classes_21k, self.keywords)
        reasons = without_keys(hits if self.keywords else dict.fromkeys(synsets, ""), of_1k)
        if self.llm is not None:
            reasons = self._asked(reasons, synsets, folder, target)
        if not reasons:
            raise UserError("no class is left: give other keywords")
        classes = _class_table(reasons, synsets)
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(classes, folder / "classes.csv")
        ws.record.title = f"{counted(len(classes), 'class')} of '{self.concept}'"
        ws.record.out = str(folder)
        _show(classes, folder)
        if self.images is None:
            return
        listed = list_images(classes, Path(self.images).expanduser())
        kept = self._of_main_objects(listed, folder, target)
        write_csv(kept, folder / "manifest.csv")
        llm, detector = self.llm, self.detector
        models: Fields = {
            "language model": f"{llm} ({licence(llm)})" if llm else "none, by keyword",
            "detector": f"{detector} ({licence(detector)})" if detector else "none, all images",
        }
        if detector:
            models |= {"threshold": self.threshold, "least share": self.min_share, "query": QUERY}
        facts = {
            "concept": self.concept,
            "classes": f"{len(classes):,} of ImageNet-21K (classes.csv)",
            "images": f"{len(kept):,} of {len(listed):,}",
        }
        write_datasheet(folder, "related", facts, models, concept=self.concept)
        log.info("%d of %d images: %s", len(kept), len(listed), folder / "manifest.csv")

    def _check_settings(self) -> None:
        if not self.keywords and self.llm is None:
            raise UserError("nothing to select by: give task.keywords=[...] or task.llm=DIR")
        if self.detector is not None and self.images is None:
            raise UserError(
                "task.detector looks at images: give task.images=DIR (DIR/<wnid>/<image>)"
            )
        if self.images is not None and not Path(self.images).expanduser().is_dir():
            raise UserError(
                f"task.images={self.images} is not a directory: give that of ImageNet-21K"
            )
        if wanted := without_none({"task.llm": self.llm, "task.detector": self.detector}):
            check_package("transformers")
            check_model(wanted)

    def _asked(
        self,
        candidates: Mapping[str, str],
        synsets: Mapping[str, Synset],
        folder: Path,
        target: torch.device,
    ) -> dict[str, str]:
        """The candidates that the language model says yes to, with its answer."""
        llm = str(self.llm)
        made_with = {
            "llm": llm,
            "question": QUESTION,
            "concept": self.concept,
            "tokens": self.max_new_tokens,
        }
        ledger = Ledger(folder / "answers.jsonl", made_with)
        model = LanguageModel(llm, target, self.max_new_tokens)
        todo = [wnid for wnid in candidates if wnid not in ledger.answers]
        for batch in batches("asking about classes", todo, self.batch_size):
            texts = [
                QUESTION.format(label=s.lemmas, definition=s.definition, concept=self.concept)
                for s in (synsets[wnid] for wnid in batch)
            ]
            ledger.add((w, {"answer": a}) for w, a in zip(batch, model(texts), strict=True))
        answers = {wnid: str(ledger.answers[wnid]["answer"]) for wnid in candidates}
        if unclear := [wnid for wnid, answer in answers.items() if parse_answer(answer) is None]:
            log.warning(
                "%d of %d answers hold neither yes nor no and count as no, such as '%s' on %s",
                len(unclear),
                len(answers),
                " ".join(answers[unclear[0]].split())[:60],
                synsets[unclear[0]].label,
            )
        return {wnid: answer for wnid, answer in answers.items() if parse_answer(answer)}

    def _of_main_objects(
        self, listed: pd.DataFrame, folder: Path, target: torch.device
    ) -> pd.DataFrame:
        """The listed images, with a detector those of one main object."""
        kept = listed
        if self.detector is not None:
            made_with = {"detector": str(self.detector), "query": QUERY}
            boxes = Ledger(folder / "boxes.jsonl", made_with)
            finder = MainObject(self.detector, target)
            kept = with_boxes(listed, finder, boxes, self.batch_size)
            kept = kept[(kept["score"] >= self.threshold) & (kept["share"] >= self.min_share)]
        if kept.empty:
            raise UserError(
                f"none of {len(listed):,} images has a main object: lower task.threshold "
                f"({self.threshold}) or task.min_share ({self.min_share})"
            )
        return kept


def _class_table(reasons: Mapping[str, str], synsets: Mapping[str, Synset]) -> pd.DataFrame:
    chosen = [synsets[wnid] for wnid in sorted(reasons)]
    table = pd.DataFrame(chosen)
    table.insert(1, "label", [synset.label for synset in chosen])
    return table.assign(reason=[" ".join(reasons[synset.wnid].split()) for synset in chosen])


def _show(classes: pd.DataFrame, folder: Path) -> None:
    rows = classes[["wnid", "label", "definition"]].head(20).astype(str).to_dict("records")
    print_whole([plain_table(counted(len(classes), "class"), rows)])
    log.info("all of them: %s", folder / "classes.csv")
