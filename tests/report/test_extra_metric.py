"""A metric that the package does not know: one record in a module of one's own."""

import numpy as np
import pandas as pd
import pytest
from finished_runs import write_run
from report_run import make_run, view_of
from rich.console import Console

from ood_lab.common.errors import UserError
from ood_lab.metrics import Evaluation, best_detectors, metric_of, record, results_of
from ood_lab.metrics.record import load_metrics
from ood_lab.report.detection.detection_page import detection_blocks, write_report
from ood_lab.report.leaderboard.board_files import terminal, write_leaderboard
from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.long_table import make_leaderboard
from ood_lab.report.rendering.terminal import Printed
from ood_lab.run.tracking.experiment_loggers import summary_values
from ood_lab.schema.results import write_results

MODULE = """
from ood_lab.metrics import Metric

MISSED = Metric(
    "missed_1",
    "missed at 1%",
    "Share of OOD images below the score that 1% of the ID images exceed; lower is better.",
    better="lower",
    point=lambda pair, _: float((pair.ood < pair.id[int(0.99 * (len(pair.id) - 1))]).mean()),
    headline=True,
)
SLOW = Metric("slow_auroc", "slow AUROC", point=lambda pair, _: pair.auroc())
NO_METRIC = 3
TAKEN = Metric("auroc", "AUROC", point=lambda pair, _: 0.0)
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    (folder / "my_metrics.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr(record, "_KNOWN", dict(record._KNOWN))  # other tests know none of these
        yield "my_metrics"


@pytest.fixture(scope="module")
def run(module):
    made = make_run(3, 2, levels=2)
    made.evaluation = Evaluation(
        made.scores,
        made.detectors,
        shift_order=made.sets,
        n_bootstrap=60,
        extra=[f"{module}.MISSED"],
    )
    made.results = results_of(made.evaluation, "net")
    return made


def shown(blocks):
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(Printed(blocks))
    return console.export_text()


def test_it_has_its_value_interval_mean_and_levels(run):
    rows = run.results[run.results["metric"] == "missed_1"]
    whole = rows[rows["semantic_level"].isna() & rows["covariate_level"].isna()]
    test = run.scores[run.scores["dataset"] == "test"]
    for row in whole[whole["dataset"].isin(run.sets)].itertuples():
        limit = np.sort(test[row.detector])[int(0.99 * (len(test) - 1))]
        ood = run.scores.loc[run.scores["dataset"] == row.dataset, row.detector]
        assert row.value == pytest.approx((ood < limit).mean())
        assert row.ci_low <= row.value <= row.ci_high
    assert rows["semantic_level"].notna().any()
    assert (run.results["metric"] == "mean_missed_1").sum() == 3
    assert (run.results["metric"] == "sensitivity_semantic_missed_1").sum() == 3
    # Two levels always lie on a line: they have no correlation.
    levels = rows["semantic_level"].nunique()
    correlations = (run.results["metric"] == "correlation_semantic_missed_1").sum()
    assert correlations == (3 if levels > 2 else 0)


def test_terminal_and_page_show_it_with_its_mark_and_its_definition(run, tmp_path):
    best = best_detectors(run.evaluation)
    text = shown(detection_blocks(view_of(run.results, best)))
    assert "missed at 1%" in text
    page = write_report(tmp_path / "r.html", view_of(run.results, best), run.scores).read_text()
    assert ">missed at 1%</button>" in page
    assert "Share of OOD images below the score that 1% of the ID images exceed" in page
    assert metric_of("mean_missed_1").better == "lower"


@pytest.mark.slow
def test_the_leaderboard_and_wandb_have_it(run, tmp_path):
    folder = write_run(tmp_path / "a" / "b", dict.fromkeys(run.detectors, (0.7, 0.8)))
    (folder / "results.parquet").unlink()
    write_results(run.results, folder)
    board = make_leaderboard([DetectorRun(folder)])
    assert "missed_1" in set(board.rows["metric"])
    assert board.rows.loc[board.rows["metric"] == "missed_1", "best"].any()
    files = {f.name: f for f in write_leaderboard(board, tmp_path)}
    assert "missed at 1%" in files["leaderboard.md"].read_text()
    assert "missed at 1%" in shown(terminal(board, "all"))
    values = summary_values(run.results)
    mean = run.results.query("metric == 'mean_missed_1'").set_index("detector")["value"]
    assert values["mean/vim/missed_1"] == pytest.approx(mean["vim"])


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing", "no nothing"), ("NO_METRIC", "is not a Metric"), ("TAKEN", "the name 'auroc'")],
)
def test_what_is_no_record_is_named(module, name, words):
    with pytest.raises(UserError, match=words):
        load_metrics([name if name == "nothing" else f"{module}.{name}"])


def test_draws_of_a_point_are_those_of_the_resampled_scores(module):
    """The slow road of a metric without ``drawn`` gives what the fast one gives."""
    rng = np.random.default_rng(0)
    scores = pd.DataFrame({"dataset": ["test"] * 80 + ["far"] * 60, "d": rng.normal(size=140)})
    scores.loc[80:, "d"] += 1
    evaluation = Evaluation(scores, ["d"], n_bootstrap=40, extra=[f"{module}.SLOW"])
    slow, fast = (evaluation.sets.by_metric[name][1] for name in ("slow_auroc", "auroc"))
    np.testing.assert_allclose(slow, fast)
    assert fast.std() > 0
