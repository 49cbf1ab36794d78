"""The answer in plain sentences: how far the sets are, and who notices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.axes import AXES
from ood_lab.metrics import BASELINE, FEWEST_FOR_THRESHOLD, Advice
from ood_lab.metrics.advice import Contrast
from ood_lab.report.shift_tables import ID_TEST, rows_of
from ood_lab.words import counted, listed

#: Share of such images above which a set is far, and above which it is at some distance.
_FAR, _SOME = 0.5, 0.15
_AS_FAR = "not significantly farther"
#: Half-width of its interval above which that is said.
_VAGUE = 0.1
#: Sets that a sentence names.
_NAMED = 6
#: Half-width of the interval of a difference above which the number of images is called small.
_COARSE = 0.01
#: Share of ID that is rejected above which even the best detector is called poor.
_POOR = 0.5


def distance_sentences(summary: pd.DataFrame, axes: Mapping[str, str]) -> list[str]:
    """How far the sets are from ID, the nearest first.

    Args:
        summary: see :func:`~ood_lab.evaluation.distance.summarised`.
        axes: value of its column ``axis`` and its words, such as "in meaning".
    """
    of_axes = [rows_of(summary, axis).set_index("set").drop(index=ID_TEST) for axis in axes]
    names = [str(name) for name in of_axes[0].index]
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        words = tuple(_how_far(*of.loc[name, ["beyond", "farther_low"]]) for of in of_axes)
        alike.setdefault(words, []).append(name)
    sentences = []
    for number, (words, group) in enumerate(alike.items()):
        everyone = len(alike) == 1 and len(names) > 1
        who, verb = listing(group), "is" if len(group) == 1 else "are"
        if everyone and set(words) == {_AS_FAR}:
            who, verb, words = _none(len(names)), "is", ("significantly farther",) * len(words)
        elif everyone:
            who = _all(len(names))
        of_each = "its" if len(group) == 1 else "their"
        meant = f" of {of_each} images lie beyond 95% of your test images" if not number else ""
        parts = []
        for place, (axis, of) in enumerate(zip(axes.values(), of_axes, strict=True)):
            said = "" if place and words[place] == words[place - 1] else f"{words[place]} "
            share = f"{spread_of(of.loc[group, 'beyond'])}%"
            parts.append(f"{said}{axis} ({share}{'' if place else meant})")
        sentences.append(f"{who} {verb} {listed(parts)}.")
    half = max(((of["beyond_high"] - of["beyond_low"]) / 2).fillna(0.5).max() for of in of_axes)
    n_id, fewest = int(summary.loc[summary["set"] == ID_TEST, "n"].iloc[0]), int(summary["n"].min())
    if n_id < FEWEST_FOR_THRESHOLD:
        sentences.append(
            f"With {counted(n_id, 'ID test image')} these shares are rough: it takes "
            f"{FEWEST_FOR_THRESHOLD} to bound what lies beyond 95%."
        )
    elif half >= _VAGUE:
        sentences.append(
            f"With {counted(fewest, 'image')} in the smallest set, a share may be off by "
            f"{100 * half:.0f} points."
        )
    return sentences


def listing(names: Sequence[str]) -> str:
    """The names; of many the first, and how many others there are."""
    more = len(names) - _NAMED
    return listed(names if more <= 1 else [*names[:_NAMED], f"{more} others"])


def _all(n: int) -> str:
    return "Both OOD sets" if n == 2 else f"All {n} OOD sets"


def _none(n: int) -> str:
    return "Neither OOD set" if n == 2 else f"None of the {n} OOD sets"


def spread_of(values: Iterable[float], digits: int = 0, factor: float = 100) -> str:
    """The least and the largest value, once where both look alike."""
    found = list(values)
    return " to ".join(dict.fromkeys(f"{factor * v:.{digits}f}" for v in (min(found), max(found))))


def farthest_sentences(summary: pd.DataFrame, axes: Mapping[str, str]) -> list[str]:
    """The farthest of several sets on average, see :func:`~.shift_tables.summary_tables`."""
    parts = []
    for axis in AXES:
        rows = rows_of(summary, axis).set_index("set")
        others = rows.drop(index=ID_TEST)
        of_id, last = rows["mean"][ID_TEST], others.iloc[-1]
        parts.append(f"for {last.name} {axes[axis]} ({last['mean']:.2f}; ID test: {of_id:.2f})")
    return [f"The mean distance is largest {listed(parts)}."] if len(others) > 1 else []


def agreement_sentences(known: pd.DataFrame, axes: Mapping[str, str]) -> list[str]:
    """How well distances by LAID follow the levels that sets bring along; see ``agreement``."""
    rows = known[known["spearman"].notna() & (known["decomposition"] == "laid")]
    of = rows[rows["degree"] == "D_" + rows["level"]].set_index("level")["spearman"]
    parts = [f"{spread_of(of[[axis]], 2, 1)} {words}" for axis, words in axes.items() if axis in of]
    sets = listing(list(dict.fromkeys(known["ood"])))
    begins = f"The rank correlation of measured distances with the known levels of {sets} is"
    return [f"{begins} {listed(parts)}."] if parts else []


def cells_sentence(counts: NDArray[np.int64], min_count: int) -> str:
    """How many cells ``[covariate, semantic]`` of a division hold enough images."""
    least, (looks, meaning) = max(min_count, 1), counts.shape
    return (
        f"Divided into {looks} levels of looks and {meaning} of meaning, the {int(counts.sum()):,} "
        f"OOD images fill {int((counts >= least).sum())} of {counts.size} cells with at least "
        f"{counted(least, 'image')} each; detectors are evaluated on these alone."
    )


def _how_far(share: float, farther: float) -> str:
    """Goes by the share beyond 95% of ID test, and by the least share of pairs that are farther."""
    if not farther > 0.5:  # NaN, too: of a single image nothing is known
        return _AS_FAR
    return "far" if share >= _FAR else "at some distance" if share >= _SOME else "near"


def advice_sentences(advice: Advice | None) -> list[str]:
    """Which detector to take, and how sure that is; none without advice."""
    if advice is None:
        return []
    cost = (
        "at 5% of the OOD images missed it rejects "
        f"{_interval(advice.cost, 'of your own images', percent=True)}"
    )
    few = _too_few(advice)
    if advice.detector == BASELINE:
        best = ""
        if advice.gain is not None:
            best = (
                f" ({advice.chosen}, the best on one half of the images, differs by "
                f"{_interval(advice.gain, 'points of AUROC')} on the other)"
            )
        return [
            f"No detector notices significantly better than {BASELINE}{best}. Take {BASELINE}: "
            f"{cost}.",
            *few,
        ]
    assert advice.gain is not None
    poorly = ", yet poorly" if advice.cost.value > _POOR else ""
    gain = f"{BASELINE} is {_interval(advice.gain, 'points of AUROC')} behind"
    if advice.runner_up == BASELINE:
        second = ""
    elif advice.lead.low > 0:
        second = f", {advice.runner_up} {_interval(advice.lead, '')}".rstrip()
    else:
        second = f"; the runner-up, {advice.runner_up}, is not significantly worse"
    return [
        f"{advice.detector} notices best{poorly}: {cost}.",
        f"{gain}{second} (chosen on one half of the images, measured on the other).",
        *few,
    ]


def asked_sentences(said: pd.DataFrame, name: str, advice: Advice | None) -> list[str]:
    """What a vision-language model notices, and how it compares with the detector to take.

    Args:
        said: ``dataset, n, rejected``: how many images it says no to.
        name: of the model.
        advice: with the difference to it.
    """
    shares = dict(zip(said["dataset"], said["rejected"] / said["n"], strict=True))
    of_id = shares.pop(ID_TEST)
    first = (
        f"Asked whether an image shows one of the ID classes, {name} says no to "
        f"{spread_of([of_id])}% of ID test and to {spread_of(shares.values())}% of the OOD images"
    )
    if advice is None or advice.beside is None:
        return [f"{first}."]
    gap = advice.beside
    if gap.low <= 0 <= gap.high:
        return [f"{first}; it cannot be told from {advice.detector}."]
    behind = Contrast(abs(gap.value), *sorted((abs(gap.low), abs(gap.high))))
    way = "behind" if gap.value > 0 else "ahead of"
    return [f"{first}; it is {_interval(behind, 'points of AUROC')} {way} {advice.detector}."]


def _too_few(advice: Advice) -> list[str]:
    half = (advice.lead.high - advice.lead.low) / 2
    if not half >= _COARSE:
        return []
    n = counted(2 * (advice.n_id + advice.n_ood), "image")
    if advice.photographs is not None:
        n += f", made of {counted(2 * advice.photographs, 'photograph')}"
    return [
        f"With about {n}, differences below {100 * half:.1f} points of AUROC cannot be told from "
        "chance."
    ]


def _interval(found: Contrast, unit: str, percent: bool = False) -> str:
    sign = "%" if percent else ""
    ends = f"[{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{100 * found.value:.1f}{sign} {ends} {unit}".rstrip()
