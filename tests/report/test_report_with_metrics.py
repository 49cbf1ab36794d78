"""The tables that metrics writes are the tables that report reads."""

import math

import pytest
from report_run import make_run, write_figures
from rich.console import Console

from ood_lab.metrics import Evaluation, best_detectors, results_of
from ood_lab.report.detection.detection_page import detection_blocks, write_report
from ood_lab.report.rendering.terminal import Printed
from ood_lab.report.results_lookup import RunView


@pytest.mark.slow
def test_results_and_significance_of_the_metrics_room_are_shown(tmp_path):
    run = make_run(3, 2, levels=3)
    evaluation = Evaluation(run.scores, run.detectors, seed=0, shift_order=run.sets, n_bootstrap=50)
    results, best = results_of(evaluation, "resnet"), best_detectors(evaluation)
    view = RunView(results, best)
    assert view.sets == run.sets
    assert view.level_sets == ["grid"]
    assert view.levels("grid", "covariate") == [0, 1, 2]
    assert math.isnan(view.get("auroc", "vim", "grid", 0, 2).value)
    assert view.get("auroc", "vim", "grid", 0, 2).n_ood == 2

    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(Printed(detection_blocks(view)))
    text = console.export_text()
    shown = best[best.best & best.dataset.isin(run.sets) & best.metric.isin(["auroc", "fpr95"])]
    # Of every column the best as it is shown, tested or not, and those not significantly worse.
    columns = [(m, s) for m in ("auroc", "fpr95") for s in run.sets]
    columns += [("mean_auroc", None), ("mean_fpr95", None)]
    marked = 0
    for metric, ood in columns:
        values = {d: view.get(metric, d, ood).value for d in view.detectors}
        found = view.best(metric, ood)
        assert (max if metric.endswith("auroc") else min)(values, key=values.get) in found
        marked += len(found)
    assert marked >= len(shown) + 2
    assert all(view.mean(m, d).has_interval for m in ("auroc", "fpr95") for d in view.detectors)
    notes = text.count("* = ")
    assert text.count("*") - notes == marked
    assert "corr." in text

    figures = write_figures(tmp_path / "figures", view, run.scores)
    assert len(figures) == 9
    page = write_report(tmp_path / "r.html", view, run.scores).read_text()
    assert page.split("</table>", 1)[0].count('class="best"') == marked
    below = page.split("</table>", 1)[1]
    assert "* = best of its column or not significantly worse." in below
    assert "FPR95 (ID positive)</button>" in page


def test_an_interval_left_out_has_its_reason_in_the_table_and_on_the_page(tmp_path):
    sets = ["one", "few", "many"]
    run = make_run(2, 3, levels=0)
    kept = {"one": 1, "few": 30, "many": 120}
    names = dict(zip(run.sets, sets, strict=True))
    scores = run.scores.replace({"dataset": names})
    rank = scores.groupby("dataset").cumcount()
    scores = scores[rank < scores["dataset"].map(kept).fillna(10**6)]
    results = results_of(Evaluation(scores, run.detectors, n_bootstrap=50), "resnet")
    console = Console(width=300, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(Printed(detection_blocks(RunView(results))))
    page = write_report(tmp_path / "r.html", RunView(results), scores).read_text()
    for text in (console.export_text(), page):
        assert (
            "No interval of AUROC with one image on a side, which has no spread: one (1)." in text
        )
        assert "FPR95 has no upper end but 100%, or no interval, for one, few: it takes 72" in text
        assert (
            "no interval below 100 images on a side, where the bootstrap fails: one (1), few (30)"
        )
    assert "many (" not in console.export_text()
