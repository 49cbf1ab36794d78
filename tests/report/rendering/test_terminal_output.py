"""The terminal tables: what they say, and that they fit."""

import numpy as np
import pandas as pd
import pytest
from report_run import make_run, view_of, without_levels
from rich.console import Console

from ood_lab.common.errors import UserError
from ood_lab.metrics import Evaluation, results_of
from ood_lab.report.detection.detection_page import detection_blocks
from ood_lab.report.rendering.table import Cell, Head, Table
from ood_lab.report.rendering.terminal import Printed
from ood_lab.report.results_lookup import RunView


def show(results, width=120, every=False, **options):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), no_color=True)  # noqa: SIM115
    console.print(Printed(detection_blocks(view_of(results, **options), every)))
    return console.export_text()


def line_of(text, name):
    return next(line for line in text.splitlines() if line.split()[:1] == [name])


@pytest.mark.parametrize(("detectors", "sets"), [(1, 1), (5, 3), (13, 5), (15, 8)])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_lost(detectors, sets, width):
    run = make_run(detectors, sets)
    text = show(run.results, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    shown = run.results[run.results.metric.isin(["auroc", "fpr95"]) & run.results.value.notna()]
    whole = shown[shown.semantic_level.isna() & shown.covariate_level.isna()]
    assert len(whole) == 2 * detectors * sets
    for value in whole.value:
        assert f"{100 * value:.1f}" in text
    for ood in run.sets:
        assert ood.split("_")[-1] in text


def test_best_of_each_column_is_starred_and_rows_are_sorted_by_mean_auroc(run):
    text = show(run.results)
    rows = run.results[run.results.shift_level.notna()]
    means = rows[rows.metric == "auroc"].groupby("detector").value.mean()
    order = [
        line.split()[0]
        for line in text.splitlines()
        if line.split()[:1] and line.split()[0] in run.detectors
    ]
    assert order[: len(means)] == list(means.sort_values(ascending=False).index)
    first = rows[(rows.metric == "auroc") & (rows.shift_level == 1)].set_index("detector").value
    assert f"{100 * first.max():.1f}*" in line_of(text, first.idxmax())
    assert f"{100 * first.min():.1f}*" not in text


def test_a_note_is_below_its_head():
    heads = [Head("detector"), Head("AUROC %", note="n = 30")]
    console = Console(width=80, record=True, file=open("/dev/null", "w"), no_color=True)  # noqa: SIM115
    console.print(Printed([Table("", heads, [[Cell("msp"), Cell("51.2")]])]))
    lines = console.export_text().splitlines()
    (head,) = (number for number, line in enumerate(lines) if "AUROC %" in line)
    assert lines[head + 1].split() == ["detector", "n", "=", "30"]


def test_digits_stand_below_each_other_whether_starred_or_not(run):
    lines = show(run.results, 80).splitlines()
    first = [line.split()[0] in run.detectors if line.split() else False for line in lines]
    table = [line for line, row in zip(lines, first, strict=True) if row][: len(run.detectors)]
    points = [{i for i, letter in enumerate(line) if letter == "."} for line in table]
    assert all(p == points[0] for p in points)
    assert any("*" in line for line in table)


def test_significance_marks_all_of_the_best_group(run):
    two = run.detectors[:2]
    table = pd.DataFrame(
        {
            "detector": run.detectors,
            "dataset": run.sets[0],
            "best": [d in two for d in run.detectors],
        }
    )
    text = show(run.results, significance=table)
    assert "* = best of its column or not significantly worse." in text
    assert all("*" in line_of(text, name) for name in two)


def test_the_best_of_a_column_is_starred_whatever_was_tested(run):
    """Also the mean over sets, which no test of this run is about."""
    last = run.detectors[-1]
    tests = {"detector": run.detectors, "dataset": run.sets[0]}
    text = show(
        run.results,
        significance=pd.DataFrame({**tests, "best": [d == last for d in run.detectors]}),
    )
    view = RunView(run.results)
    for metric, pick in (("auroc", max), ("fpr95", min)):
        best = pick(view.detectors, key=lambda d, m=metric: view.mean(m, d).value)
        assert f"{100 * view.mean(metric, best).value:.1f}*" in line_of(text, best)


def test_one_detector_has_no_star():
    run = make_run(1, 3)
    table = pd.DataFrame({"detector": run.detectors, "dataset": run.sets[0], "best": [True]})
    for text in (show(run.results), show(run.results, significance=table)):
        assert "*" not in text


def test_a_network_at_chance_has_no_star(run):
    tests = {"detector": run.detectors, "dataset": run.sets[0], "best": False}
    text = show(run.results, significance=pd.DataFrame(tests))
    assert "*" not in text
    assert "None is marked as best: see the warning." in text


@pytest.mark.parametrize(
    ("positive", "words"),
    [
        ("ood", "share of ID flagged when 95% of OOD is detected (OOD positive)"),
        ("id", "share of OOD accepted when 95% of ID is accepted (ID positive)"),
    ],
)
def test_the_positive_class_is_named(run, positive, words):
    assert words in show(run.results, fpr95_positive=positive)


def test_an_unknown_positive_class_is_refused(run):
    with pytest.raises(UserError, match=r"metrics\.fpr95_positive=both"):
        view_of(run.results, fpr95_positive="both")


def test_accuracy_n_dad_and_refusals_are_shown(run):
    text = show(run.results, refused={"ash": "needs non-negative features"})
    accuracy = run.results.loc[run.results.metric == "id_accuracy", "value"].item()
    assert f"ID accuracy {100 * accuracy:.1f}%" in text
    assert "ID test n = 300" in text
    assert "n 120" in text
    assert "of 3" in text  # three sets: at most three pairs
    assert "skipped ash: needs non-negative features" in text


def test_missing_cells_say_so_instead_of_zero(run):
    results = run.results.copy()
    cell = (results.dataset == run.sets[1]) & (results.metric.isin(["auroc", "fpr95"]))
    results.loc[cell, ["value", "ci_low", "ci_high"]] = np.nan
    assert line_of(show(results), run.detectors[0]).count("N/A") == 2


def test_a_table_without_any_value_is_left_out(run):
    text = show(without_levels(run.results))
    assert "N/A" not in text
    assert "by semantic level" not in text
    assert "No level of grid has enough images" in text
    assert "\n\n\n" not in text
    assert "by semantic level" in show(run.results)


def test_level_tables_hold_correlation_and_sensitivity_in_points(run):
    text = show(run.results)
    assert "by semantic level (grid)" in text
    row = run.results[(run.results.detector == "vim")].set_index("metric").value
    lines = [line for line in text.splitlines() if line.startswith("vim")]
    for axis, line in zip(("semantic", "covariate"), lines[1:], strict=True):
        assert f"{row[f'correlation_{axis}_auroc']:+.2f}" in line
        assert f"{100 * row[f'sensitivity_{axis}_auroc']:.1f}" in line


def test_a_long_table_has_sections_by_what_is_read():
    """Each in its place, best first, and no wider than the terminal."""
    rng = np.random.default_rng(0)
    words = ["logits", "features", "head", "network"]
    names = [f"detector_{i}" for i in range(24)]
    scores = pd.DataFrame(rng.normal(size=(60, 24)), columns=names)
    scores.insert(0, "dataset", ["test"] * 30 + ["far"] * 30)
    results = results_of(Evaluation(scores, names, n_bootstrap=5), "net")
    reads = {name: words[i % 4] for i, name in enumerate(names)}
    text = show(results, 80, reads=reads, every=True)
    assert max(map(len, text.splitlines())) <= 80
    view = view_of(results, reads=reads)
    lines = [line.split()[0] for line in text.splitlines() if line.strip()]
    rows = [line for line in lines if line in (*words, *names)][:28]
    expected = []
    for word in words:
        expected += [word, *(d for d in view.detectors if reads[d] == word)]
    assert rows == expected
    few = results[~results.detector.isin(names[20:])]
    assert not any(line.strip() in words for line in show(few, 80, reads=reads).splitlines())


def test_a_long_table_is_short_at_first():
    """The best two of each kind and the baseline; the others stand below a fold of the page."""
    rng = np.random.default_rng(0)
    names = ["msp", *(f"detector_{i}" for i in range(23))]
    scores = pd.DataFrame(rng.normal(size=(60, 24)), columns=names)
    scores.insert(0, "dataset", ["test"] * 30 + ["far"] * 30)
    results = results_of(Evaluation(scores, names, n_bootstrap=5), "net")
    reads = {name: ["logits", "features"][i % 2] for i, name in enumerate(names)}
    text = show(results, 80, reads=reads)
    view = view_of(results, reads=reads)
    expected = {"msp"}
    for word in ("logits", "features"):
        expected |= set([d for d in view.detectors if reads[d] == word][:2])
    shown = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert shown & set(names) == expected
    assert f"{len(expected)} of 24 detectors" in text


def test_groups_are_not_called_a_shift_order():
    """Sets of one group share a level: there is an order of groups, and none of sets."""
    results = make_run(2, 3).results
    assert RunView(results).order == "by increasing shift"
    placed = results["shift_level"].notna()
    results.loc[placed, "shift_level"] = results.loc[placed, "shift_level"].clip(upper=2)
    assert RunView(results).order == "by group"
    results["shift_level"] = float("nan")
    assert RunView(results).order == ""
