"""How captions and yes/no answers are shown: names of metrics, definitions, what is made up."""

from __future__ import annotations

from ood_lab.lvlm.pages.benchmark_page import ScoredRun, first_of_each, quoted, thumbnails_of
from ood_lab.report.rendering.blocks import Section
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.schema.results import NamedTables, Names, Row, whole

#: Metric, and what it is called in tables; in this order.
CAPTIONS = {"chair": "CHAIR", "cover": "Cover", "hal": "Hal", "cog": "Cog"}
OF_NO = {"accuracy": "Acc", "precision": "P", "recall": "R", "f1": "F1"}
#: What is compared between sets, levels of shift, and models.
COMPARED = {
    **CAPTIONS,
    "existence_accuracy": "Existence: Acc",
    "attribute_accuracy": "Attributes: Acc",
    "relation_accuracy": "Relations: Acc",
    "all_accuracy": "All: Acc",
    "existence_recall": "Existence: R",
    "existence_f1": "Existence: F1",
    "attribute_recall": "Attributes: R",
    "attribute_f1": "Attributes: F1",
}
#: Way of treating unparsed answers.
WAYS = {
    "neither": "an unparsed answer is neither, and wrong",
    "wrong": "an unparsed answer counts as wrong",
    "drop": "unparsed answers are skipped",
}
_LETTERS = 140


def scoring_note(run: ScoredRun) -> str:
    """Which direction is better, and what found the nouns and told synonyms."""
    scoring = run.record.scoring
    return (
        "Lower is better but for Cover. "
        f"Nouns: {scoring['nouns']}; synonyms: {scoring['similarity']}."
    )


def other_ways(run: ScoredRun) -> NamedTables:
    """What other ways of treating unparsed answers are, with their results of whole sets."""
    if run.results["n_unparsed"].any():
        for way in run.results["unparsed"].dropna().unique()[1:]:
            yield WAYS[way], whole(run.results[run.results["unparsed"] == way])


def made_up(run: ScoredRun, names: Names, item: str) -> tuple[Section, Thumbnails]:
    """The first captions of each set that name what is not there, and their pictures.

    Args:
        run: with the table ``captions``.
        names: set and what it is called; in this order.
        item: what a set is called, in the singular.
    """
    captions = run.judged["captions"]
    store = thumbnails_of(captions, run.source)
    note = f"The first captions of each {item} that name what is not there."
    results = captions[captions["flagged"] > 0]
    return first_of_each("Hallucinations", note, results, names, _words, store), store


def _words(row: Row) -> str:
    flagged, there = (", ".join(row[name]) for name in ("flagged_nouns", "truth_words"))
    return f"{quoted(row['reply'], _LETTERS)} · Made up: {flagged} · In the image: {there}"
