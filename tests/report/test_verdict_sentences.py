"""What a verdict says and shows, from the rows of runs of every kind."""

import io
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from ood_lab.metrics import Evaluation, verdict_of
from ood_lab.report.rendering.terminal import Printed, print_blocks
from ood_lab.report.verdict import Verdict
from ood_lab.schema.image_columns import CLASS_UNITS, RATIO, SEVERITY
from ood_lab.schema.run_record import Finding, RunRecord

#: Words of this project that the field does not use (section 1 of the sheet of words).
PRIVATE = "notices|stands|lies|beside|alone|looks|meaning|told apart|farther|take "
NUMBER, ENDS = r"\d+\.\d", r"\[\d+\.\d, \d+\.\d\]"
AXES = {CLASS_UNITS: "semantic", SEVERITY: "covariate"}


def rows_of(lifts, n=200, n_id=300, flagged=(), seed=0, costs=None):
    """Rows of the verdict; of every detector how much higher its scores of each dataset are."""
    rng, names = np.random.default_rng(seed), list(lifts)
    datasets = list(next(iter(lifts.values())))
    sizes = {"test": n_id} | {name: n[name] if isinstance(n, dict) else n for name in datasets}
    parts = []
    for dataset, size in sizes.items():
        common = rng.normal(size=size)
        table = pd.DataFrame({"dataset": dataset, "index": range(size)})
        for name, lift in lifts.items():
            own = 0.6 * common + 0.8 * rng.normal(size=size)
            table[name] = own + (lift[dataset] if dataset != "test" else 0)
        parts.append(table)
    scores = pd.concat(parts, ignore_index=True)
    evaluation = Evaluation(scores, names, n_bootstrap=100, flagged=flagged)
    return verdict_of(evaluation, "net", costs or dict.fromkeys(names, 1))


def two(**lifts):
    """The same lift on two datasets, ``near`` and ``far``."""
    return {name: {"near": lift, "far": lift + 0.2} for name, lift in lifts.items()}


def shift(*rows):
    """``dataset, metric, value, low, high`` of the scales."""
    columns = ["dataset", "metric", "value", "ci_low", "ci_high"]
    table = pd.DataFrame(rows, columns=columns)
    axes = table["metric"].map(AXES).fillna("covariate")
    return table.assign(kind="shift", axis=axes, n=100)


def verdict_on(rows, *others, flagged=(), remarks=(), next=None, **facts):
    """The verdict of rows of all kinds, and of facts of the record."""
    record = RunRecord(findings=[Finding("Some are damaged.", tuple(flagged))], **facts)
    record.verdict.remarks, record.verdict.next = list(remarks), next
    return Verdict(pd.concat([rows, *others], ignore_index=True), record)


def printed(verdict, width=80):
    """The lines of a terminal."""
    console = Console(width=width, file=io.StringIO())
    console.print(Printed(verdict.blocks()), crop=False)
    return console.file.getvalue().splitlines()


def said(verdict):
    """The sentences, of which each is short, plain and whole."""
    for sentence in verdict.sentences:
        assert len(sentence.split()) <= 25, sentence
        assert not re.search(rf"\b({PRIVATE})\b", sentence), sentence
        assert re.match("[A-Z0-9]", sentence), sentence
        assert sentence.endswith("."), sentence
    for line in printed(verdict):
        assert len(line) <= 80 or line.startswith("python "), line
    return " ".join(verdict.sentences)


def test_recommended_is_the_cheapest_of_the_best():
    rows = rows_of(two(vim=2.5, knn=2.45, msp=1.0), costs={"vim": 2, "knn": 1, "msp": 0})
    verdict = verdict_on(rows)
    words = said(verdict)
    assert verdict.recommended == "knn"
    assert re.match(
        r"Use knn: where it flags 95 of 100 OOD images, it flags \d+ of 100 of your", words
    )
    assert "2 detectors may be the best: vim and knn; knn is the cheapest of them" in words
    assert re.search(rf"AUROC {NUMBER}% {ENDS}: mean of 2 datasets, simultaneous", words)
    assert re.search(r"FPR95 .*: ID images flagged when 95% of OOD images are detected\.", words)
    assert re.search(rf"AUROC of the baseline msp is {NUMBER} points {ENDS} lower", words)
    assert "300 ID test and 400 OOD images" in words
    of_id = said(verdict_on(rows, fpr95_positive="id"))
    assert re.match(r"Use knn: .* 5 of 100 of your own images, it misses \d+ of 100 OOD", of_id)
    assert "OOD images accepted when 95% of ID images are accepted" in of_id


def test_one_that_is_better_than_all_others():
    words = said(verdict_on(rows_of(two(knn=3.0, msp=0.5))))
    assert "Mean AUROC of knn is significantly higher than that of all others." in words


def test_no_detector_detects():
    verdict = verdict_on(rows_of(two(knn=0.0, msp=-0.1)))
    words = said(verdict)
    assert (verdict.recommended, verdict.detects) == (None, False)
    assert (
        "No detector tells these images from yours. No AUROC is significantly above 50%." in words
    )
    assert "FPR95" not in words
    assert "Use" not in words


def test_weak_is_said():
    strong, weak = (said(verdict_on(rows_of(two(knn=lift, msp=lift)))) for lift in (4.0, 0.8))
    assert re.match(r"The best detector, \w+, is weak: where it flags 95 of 100", weak)
    assert "weak" not in strong


def test_a_stronger_one_of_the_best_is_named():
    """The cheapest that may be the best is weak at 95% of the OOD images; another one is not."""
    rows = rows_of(two(knn=2.5, msp=2.5), costs={"knn": 1, "msp": 0})
    rows.loc[(rows.metric == "mean_fpr95") & (rows.detector == "msp"), "value"] = 0.8
    assert said(verdict_on(rows)).startswith(
        "The cheapest of the best detectors, msp, is weak: where it flags 95 of 100 OOD images, it "
        "flags 80 of 100 of your own. With knn, which may be as good, it is"
    )


def test_inverted_scores():
    words = said(verdict_on(rows_of(two(knn=2.0, ebo=-1.5))))
    assert "Inverted: ebo rates the OOD images as more normal than your test images" in words
    words = said(verdict_on(rows_of(two(knn=-2.0, ebo=-1.5))))
    assert "Inverted: knn and ebo rate the OOD images" in words


def test_a_dataset_at_chance_and_a_better_detector_there():
    lifts = {"knn": {"near": 0.0, "far": 4.0}, "msp": {"near": 1.0, "far": 1.0}}
    words = said(verdict_on(rows_of(lifts, costs={"knn": 0, "msp": 1})))
    assert "AUROC of knn is not significantly above 50% on near." in words
    assert re.search(rf"On near, AUROC of msp is {NUMBER} points {ENDS} higher\.", words)


def test_flagged_and_small_datasets_are_named_with_their_reason():
    lifts = {"knn": {"one": 2.0, "two": 2.0, "few": 2.0}}
    sizes = {"one": 100, "two": 100, "few": 7}
    verdict = verdict_on(rows_of(lifts, sizes, flagged=["two"]), flagged=["two", "test"])
    words = said(verdict)
    assert "The data check warns of two (†): it does not count in the means." in words
    assert "Fewer than 10 images in few: it does not count in the means." in words
    assert "The data check warns of the ID test images (†)" in words
    assert any("two†" in line for line in printed(verdict))
    assert any(line.startswith("few ") for line in printed(verdict))
    every = ["one", "two", "few"]
    words = said(verdict_on(rows_of(lifts, sizes, flagged=every), flagged=every))
    assert "The data check warns of one, two and few (†), which the means count." in words


def test_one_detector():
    words = said(verdict_on(rows_of({"knn": {"far": 2.0}})))
    assert re.match(r"Use knn: .*\. AUROC ", words)
    assert "95% interval." in words
    assert "may be the best" not in words
    assert "significantly higher" not in words


@pytest.mark.parametrize("n", [1, 2, 12])
def test_few_images_are_said(n):
    words = said(verdict_on(rows_of(two(knn=9.0, msp=9.0), n=n, n_id=max(n, 2))))
    if n == 1:
        assert "There are too few images to say whether a detector works." in words
    assert "[0.0, 0.0]" not in words
    assert "below 0.0 points" not in words


def test_many_detectors_are_counted_not_listed():
    lifts = two(**{f"detector_{place}": 2.0 for place in range(27)}, msp=0.0)
    words = said(verdict_on(rows_of(lifts, n=30, n_id=30)))
    assert re.search(r"\d+ detectors may be the best: (\w+, ){5}\w+ and \d+ others;", words)


@pytest.mark.slow
def test_hundreds_of_datasets_fit_a_screen():
    names = [f"a_dataset_with_a_long_name_{place}" for place in range(300)]
    rows = rows_of({"knn": dict.fromkeys(names, 2.0)}, n=12, n_id=50)
    of_shift = [
        (name, metric, place / 50, place / 60, place / 40)
        for place, name in enumerate(names)
        for metric in (CLASS_UNITS, SEVERITY)
    ]
    verdict = verdict_on(rows, shift(*of_shift), next=("score", f"python eval.py {'x' * 90}"))
    said(verdict)
    lines = printed(verdict)
    table = lines[: next(i for i, line in enumerate(lines) if line.startswith("AUROC 9"))]
    assert len(table) <= 32  # two tables, as they are wider than a terminal
    assert "292 datasets between these: see the report." in table
    assert [line.split()[0] for line in table if "name_" in line][:8:7] == [names[0], names[-1]]
    assert lines[-1].endswith("x" * 90)


def test_shift_in_units_and_beyond_them():
    rows = rows_of({"knn": {"slight": 1.0, "strong": 2.0, "odd": 2.0}})
    verdict = verdict_on(
        rows,
        shift(
            ("strong", CLASS_UNITS, 12.34, 11.0, 14.0),
            ("slight", CLASS_UNITS, 0.71, 0.5, 0.9),
            ("odd", CLASS_UNITS, 20.0, np.nan, np.nan),
            ("slight", SEVERITY, 2.04, 1.5, 2.6),
            ("strong", SEVERITY, 10.5, 9.0, 12.0),
            ("odd", SEVERITY, 5.1, 4.8, 6.4),
        ),
    )
    assert verdict.datasets == ["slight", "strong", "odd"]
    slight, strong, odd = (
        next(line for line in printed(verdict) if line.startswith(name))
        for name in verdict.datasets
    )
    assert slight.split()[-2:] == ["0.7", "2.0"]  # a page has the intervals
    assert strong.split()[-3:] == ["12.3", ">5", "(2.1x)"]
    assert odd.split()[-2:] == ["20.0", "5"]
    cells = {row[0].text: row for row in verdict.table().rows}
    assert [cell.interval for cell in cells["slight"][3:]] == ["0.5 to 0.9", "1.5 to 2.6"]
    assert [cell.interval for cell in cells["strong"][3:]] == ["11.0 to 14.0", "1.8x to 2.4x"]
    assert cells["odd"][4].interval == "4.8 to 1.3x"
    notes = verdict.table().notes
    assert any("0 = ID test images, 1 = one held-out class of yours" in note for note in notes)
    assert any("1 to 5 = corruption severity" in note for note in notes)
    assert not any("times the median" in note for note in notes)


def test_a_ratio_where_there_is_no_scale():
    rows = rows_of({"knn": {"far": 1.0}})
    verdict = verdict_on(rows, shift(("far", RATIO, 1.62, 1.4, 1.8)))
    (line,) = [line for line in printed(verdict) if line.startswith("far")]
    assert "1.6x" in line
    assert "x = times the median distance of the ID test images." in verdict.table().notes
    assert len(verdict.table().notes) == 1


def test_without_detectors_the_shift_is_shown():
    verdict = verdict_on(rows_of({"knn": {"far": 1.0}}).iloc[:0], shift(("far", SEVERITY, 2, 1, 3)))
    assert verdict.sentences == []
    assert (verdict.recommended, verdict.best, verdict.detects) == (None, (), False)
    assert any(line.startswith("far") for line in printed(verdict))


def test_values_of_a_dashboard():
    rows = rows_of(two(knn=2.5, msp=1.0))
    of_shift = shift(("far", CLASS_UNITS, 3.5, 3, 4), ("far", SEVERITY, 1.5, 1, 2))
    verdict = verdict_on(rows, of_shift)
    values = verdict.values()
    assert values["verdict/recommended"] == "knn"
    assert values["verdict/best"] == "knn"
    assert values["verdict/far/semantic"] == 3.5
    assert values["verdict/far/covariate"] == 1.5
    mean = np.mean([values[f"verdict/{name}/auroc"] for name in ("near", "far")])
    assert values["verdict/auroc"] == pytest.approx(mean)
    assert 0 < values["verdict/fpr95"] < 1
    nothing = verdict_on(rows_of(two(knn=0.0))).values()
    assert nothing["verdict/recommended"] == "none"
    assert not any(value != value for value in nothing.values())


def cause(dataset, statistic, value, p_holm=0.001):
    row = {"dataset": dataset, "statistic": statistic, "value": value, "p_holm": p_holm}
    return row | {"kind": "cause", "metric": "auroc", "median": 0.2, "median_id": 0.4}


def test_the_answer_says_what_differs_without_numbers():
    rows = rows_of({"knn": {"far": 9.0}})
    causes = [cause("far", "brightness", 0.1), cause("far", "sharpness", 0.2)]
    causes.append(cause("far", "noise", 0.3, p_holm=0.2))
    verdict = verdict_on(rows, pd.DataFrame(causes))
    assert verdict.answer[1] == "far is darker and more blurred than your own images."
    assert "far is darker (AUROC 90%, median 0.2 against 0.4) and more blurred" in str(verdict)
    assert not any("AUROC 90%" in line for line in printed(verdict))  # on the page
    several = [cause(name, "brightness", 0.9) for name in ("a", "b")]
    verdict = verdict_on(rows, pd.DataFrame([*several, cause("c", "contrast", 0.8)]))
    assert verdict.answer[1:] == [
        "a and b are brighter than your own images.",
        "c is higher in contrast than your own images.",
    ]


def test_a_network_at_chance_has_no_recommendation():
    verdict = verdict_on(rows_of({"knn": {"far": 1.0}}).iloc[:0], detectors={"knn": {}})
    assert "the network recognises your own images no better than chance." in said(verdict)


def test_a_terminal_has_as_many_lines_as_there_are_and_says_what_is_left_out():
    names = [f"dataset_{place}" for place in range(8)]
    rows = rows_of({n: dict.fromkeys(names, 2.0) for n in ("knn", "vim", "msp")}, n=12, n_id=50)
    verdict = verdict_on(rows, next=("score", "python eval.py"), remarks=["One more."] * 9)
    console = Console(width=80, file=io.StringIO())
    print_blocks(verdict.blocks(), console, lines=25)
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 25
    assert "95 of 100 OOD images" in "".join(lines[:2])
    assert lines[-2:] == ["Next: score", "python eval.py"]
    assert re.match(r"The page has the rest: \d+ sentences\.", lines[-3])
