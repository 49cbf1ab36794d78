"""What a run of a benchmark has found, in plain sentences made from its results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from ood_lab.lvlm.judged import FAILED, UNPARSED
from ood_lab.lvlm.kept import model_name
from ood_lab.lvlm.scored import POOLED
from ood_lab.lvlm.shown import Scored
from ood_lab.report.answer import listing, spread_of
from ood_lab.report.protocol import percent
from ood_lab.results import PART, why_missing
from ood_lab.words import counted, listed

#: Sets that are told one by one; of more, the best and the worst.
_EACH = 4
#: Half-width of an interval above which it is called wide, and level of the tests.
_WIDE, _ALPHA = 0.05, 0.05
#: Table of paired tests, how a sentence about it begins, and its words before what is compared.
_TESTS = (
    ("differences", "On {} it is", " than on ", " from "),
    ("forms", "With a chain of thought it is", " on ", " on "),
    ("models", "Compared on the same questions, it is", " than ", " from "),
)


class Told(NamedTuple):
    """A metric in words that stand between "its" and "is 91.4%"; ``lower``: less is better."""

    metric: str
    words: str
    lower: bool = False


ACCURACY = Told("accuracy", "accuracy")
CHAIR = Told("chair", "CHAIR, the share of made-up things among those its captions name,", True)


def found_sentences(
    run: Scored,
    told: Sequence[Told],
    words: Mapping[str, str],
    task: str,
    draws: int,
    again: int = 0,
) -> Iterator[str]:
    """What was asked, metrics with their 95% intervals, comparisons, and what is not known.

    Args:
        run: with its tables ``differences``, ``forms`` and ``models``, as far as they were made.
        told: metrics, as far as there are results: the first by set, with comparisons; of others
            the value of all questions.
        words: what sets of questions are called, if not by their name; "" = they are not told.
        task: kind of the questions whose ``accuracy`` is held against a constant answer.
        draws: of the bootstrap, on which the least p-value depends.
        again: questions that were asked again with a chain of thought.
    """
    asked, about = pd.concat(run.judged.values()), run.manifest["benchmark"]
    images, lost = asked["file"].nunique(), asked["status"].value_counts()
    yield (
        f"{model_name(run.manifest['lvlm'])} was asked {counted(len(asked), 'question')}"
        + (f" about {counted(images, 'image')}" if images else "")
        + f" ({about['name']} on {about['about']})"
        + (f", {again:,} of them again with a chain of thought" if again else "")
        + (f"; {counted(lost[UNPARSED], 'answer')} could not be read" if UNPARSED in lost else "")
        + (f"; {counted(lost[FAILED], 'question')} got no answer" if FAILED in lost else "")
        + "."
    )
    names = {str(s): words.get(s, s.replace("_", " ")) for s in run.whole["split"] if s != POOLED}
    sets = {s: name for s, name in names.items() if name and (len(names) > 1 or s in words)}
    known = [each for each in told if (run.whole["metric"] == each.metric).any()]
    for place, each in enumerate(known):
        rows = _rows(run, each.metric, {} if place else sets)
        its, values = "Asked plainly, its" if again else "Its", _values(rows, each.lower)
        brackets = " (95% intervals in brackets)" if "[" in values and not place else ""
        yield f"{its} {each.words} is {values}{brackets}."
        if not place:
            yield from _constant(run, sets, task)
            yield from _width(rows)
            yield from _differences(run, each, sets, draws)


def _rows(run: Scored, metric: str, sets: Mapping[str, str]) -> pd.DataFrame:
    """Rows of the sets, on what is in ``on``; of none or of many that of all, on "", too."""
    rows = run.whole[run.whole["metric"] == metric]
    shown = rows["split"].isin(sets)
    if not 0 < shown.sum() <= _EACH:
        shown |= rows["split"] == POOLED
    return rows[shown].assign(on=rows["split"].map(sets).fillna(""))


def _on(names: Iterable[str]) -> str:
    known = list(filter(None, names))
    return f" on {listing(known)}" if known else ""


def _value(row: Mapping[Any, Any]) -> str:
    value, low, high = (percent(row[key]) for key in ("value", "ci_low", "ci_high"))
    known = "(too few for an interval)" if pd.isna(row["ci_low"]) else f"[{low}, {high}]"
    return f"{value}% {known}{_on([row['on']])}"


def _values(rows: pd.DataFrame, lower: bool) -> str:
    """The values, the best first; of many sets the first and the last."""
    known = rows[rows["value"].notna()].sort_values("value", ascending=lower, kind="stable")
    missing = rows[rows["value"].isna()]
    why = dict.fromkeys(why_missing(r) or "too few answers" for r in missing.to_dict("records"))
    if not len(known):
        return f"not known: {listed(list(why))}"
    every = "".join(f"{_value(r)} in all: " for r in known[known["on"] == ""].to_dict("records"))
    each = [_value(row) for row in known[known["on"] != ""].to_dict("records")]
    if not each:
        return every.removesuffix(" in all: ")
    if len(each) > _EACH:
        each = [f"from {each[0]} to {each[-1]}"]
    elif known["value"].round(3).nunique() > 1:
        each[-1] = f"at worst {each[-1]}"
    lost = f"; not known{_on(missing['on'])} ({listed(list(why))})" if why else ""
    return f"{every}{listed(each)}{lost}"


def _constant(run: Scored, sets: Mapping[str, str], task: str) -> Iterator[str]:
    """Where the accuracy may be no more than that of always giving the same answer."""
    judged, alike = run.judged["judged"], {}
    judged = judged[judged["task"] == task]
    for row in _rows(run, "accuracy", sets).to_dict("records"):
        truth = judged.loc[(judged["split"] == row["split"]) | (row["on"] == ""), "truth"]
        constant = truth.value_counts(normalize=True).max()
        if row["ci_low"] <= constant < 1:  # of 1 nothing can be better
            alike[row["on"]] = constant
    if alike:
        on = _on(alike).removeprefix(" on ")
        yield (
            f"{f'On {on} its' if on else 'Its'} accuracy is not significantly better than that of "
            f"always giving the same answer ({spread_of(alike.values(), 1)}%)."
        )


def _differences(run: Scored, told: Told, sets: Mapping[str, str], draws: int) -> Iterator[str]:
    """Paired tests between sets, forms of questions, and models."""
    for name, begins, than, of in _TESTS:
        rows = run.tables.get(name, pd.DataFrame(columns=["metric"]))
        rows = rows[rows["metric"] == told.metric]
        if name == "models" and len(rows):
            if "split" in rows:  # all sets together come last
                rows = rows[rows["split"] == rows["split"].iloc[-1]]
            rows = rows[rows["a"] == model_name(run.manifest["lvlm"])].assign(on=rows["b"])
        elif len(rows):
            rows = rows.assign(on=rows["split" if name == "forms" else "b"].map(sets))
            whole = rows[PART].isna() if name == "forms" else rows["a"].isin(sets)
            rows = rows[whole & rows["on"].notna()]
        if not len(rows):
            continue
        significant, more, parts = rows["p_holm"] < _ALPHA, rows["difference"] > 0, []
        # Of many pairs, the least p-value of few draws is not significant after the correction.
        unknown = ~significant & ~(rows["p_value"] > 1 / (draws + 1)) | rows["ci_low"].isna()
        for word, turned in (("better", told.lower), ("worse", not told.lower)):
            if len(part := rows[significant & ~unknown & (more != turned)]):
                size = f"{spread_of(part['difference'].abs(), 1)} points"
                if len(part) == 1:
                    ends = sorted((-1 if turned else 1) * part[["ci_low", "ci_high"]].iloc[0])
                    size += f" [{', '.join(map(percent, ends))}]"
                parts.append(f"{size} {word}{than}{listing(list(part['on']))}")
        if alike := list(rows.loc[~significant & ~unknown, "on"]):
            parts.append(f"not significantly different{of}{listing(alike)}")
        if parts:
            yield f"{begins.format(sets.get(str(rows['a'].iloc[0])))} {listed(parts)}."
        if others := list(rows.loc[unknown, "on"]):
            where = "on" if name == "forms" else "against"
            yield f"There are too few answers or draws for a test {where} {listing(others)}."


def _width(rows: pd.DataFrame) -> Iterator[str]:
    """How wide the widest interval is, if that is much."""
    half = (rows["ci_high"] - rows["ci_low"]) / 2
    if half.max() > _WIDE:
        row = rows[half == half.max()].iloc[0]
        units = counted(int(row["n"]), str(row["unit"]).split()[-1])
        points = f"{100 * half.max():.0f} points to either side"
        yield f"With only {units}, the interval{_on([row['on']])} reaches about {points}."
