"""The answer in sentences, in cases that small runs do not reach."""

import math
from pathlib import Path

import pandas as pd
import pytest

from ood_lab.lvlm.pages.benchmark_page import ScoredRun
from ood_lab.lvlm.pages.result_sentences import ACCURACY, CHAIR, found_sentences
from ood_lab.schema.run_record import RunRecord

NAN = math.nan


def told(rows, told=(ACCURACY,), judged=None, draws=1000, words=None, **tables):
    """Sentences about rows of ``split, value, ci_low, ci_high, n_asked, n_unparsed, n_failed``."""
    names = ["split", "value", "ci_low", "ci_high", "n_asked", "n_unparsed", "n_failed"]
    results = pd.DataFrame(rows, columns=names)
    results = results.assign(metric=told[0].metric, n=results["n_asked"] // 2, n_cut=0)
    results = results.assign(unit="question pair", part=None, semantic_level=NAN)
    answers = [("parsed", "yes", "a.png"), ("parsed", "no", "b.png")] if judged is None else judged
    table = pd.DataFrame(answers, columns=["status", "truth", "file"])
    table = table.assign(task="yes_no", split=results["split"].iloc[0])
    benchmark = {"name": "Lids", "about": "jars", "page": "lids.html"}
    about = RunRecord(lvlm={"model": "me"}, benchmark=benchmark)
    run = ScoredRun(Path(), Path(), results, {"judged": table}, tables, about)
    return list(found_sentences(run, told, words or {}, "yes_no", draws))


def test_of_many_sets_the_best_and_the_worst():
    rows = [(f"set_{n}", n / 10, n / 10 - 0.04, n / 10 + 0.04, 100, 0, 0) for n in range(1, 7)]
    rows.append(("pooled", 0.35, 0.33, 0.37, 600, 0, 0))
    _, accuracy, _ = told(rows)  # set 1 is no better than chance
    best, worst = "60.0% [56.0, 64.0] on set 6", "10.0% [6.0, 14.0] on set 1"
    every = "35.0% [33.0, 37.0] in all: from"
    brackets = "(95% intervals in brackets)"
    assert accuracy == f"Its accuracy is {every} {best} to {worst} {brackets}."
    _, chair = told(rows, (CHAIR,))
    assert chair.endswith(f"is {every} {worst} to {best} {brackets}.")


def test_what_is_not_known_is_said():
    lost = [("unparsed", "yes", "a.png")] * 2 + [("failed", "no", "a.png")]
    rows = [("one", 0.75, NAN, NAN, 8, 0, 0), ("two", NAN, NAN, NAN, 4, 4, 0)]
    asked, accuracy = told(rows, judged=lost)
    assert asked == (
        "me was asked 3 questions about 1 image (Lids on jars); 2 answers could not be read; "
        "1 question got no answer."
    )
    assert accuracy == (
        "Its accuracy is 75.0% (too few for an interval) on one; not known on two (no answer could "
        "be read) (2 of 3 unparsed, counted as wrong; 1 of 3 failed, left out)."
    )
    rows = [("all", NAN, NAN, NAN, 4, 0, 4), ("pooled", NAN, NAN, NAN, 4, 0, 4)]
    assert told(rows, judged=[("failed", "yes", None)])[1:] == [
        "Its accuracy is not known: every request failed."
    ]


@pytest.mark.parametrize("metric", [ACCURACY, CHAIR])
def test_a_paired_test_says_who_is_better_unless_the_draws_are_too_few(metric):
    sign = -1 if metric.lower else 1
    pairs = [("a", 0.2, 0.1, 0.3, 0.001, 0.01), ("b", 0.1, 0.05, 0.2, 0.001, 0.01)]
    pairs += [("c", -0.3, -0.4, -0.2, 0.001, 0.01), ("d", 0.01, -0.1, 0.1, 0.8, 0.8)]
    pairs += [("e", 0.4, 0.3, 0.5, 1 / 1001, 0.2), ("f", NAN, NAN, NAN, NAN, NAN)]
    table = pd.DataFrame(
        [("me", b, metric.metric, sign * d, *sorted([sign * x, sign * y]), *p)
         for b, d, x, y, *p in pairs],
        columns=["a", "b", "metric", "difference", "ci_low", "ci_high", "p_value", "p_holm"],
    )  # fmt: skip
    rows = [("all", 0.9, 0.89, 0.91, 100, 0, 0), ("pooled", 0.9, 0.89, 0.91, 100, 0, 0)]
    assert told(rows, (metric,), models=table)[2:] == [
        "Compared on the same questions, it is 10.0 to 20.0 points better than a and b, 30.0 "
        "points [20.0, 40.0] worse than c and not significantly different from d.",
        "There are too few answers or resamples for a test against e and f.",
    ]
