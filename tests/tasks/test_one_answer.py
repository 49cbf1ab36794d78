"""A run with a dataset that does not count gives one mean, one set and one order everywhere."""

import re

import pandas as pd
import pytest
from cli import call, run_folders
from photos import write_photos
from PIL import Image
from wandb_offline import read_run

from ood_lab.metrics import auroc
from ood_lab.report.leaderboard.board_files import board_verdict
from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.long_table import make_leaderboard
from ood_lab.report.rendering.summary import read_summary
from ood_lab.report.verdict import Verdict
from ood_lab.run.job.sweeps import headline
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import read_results
from ood_lab.schema.run_record import RunRecord

#: With more than 20 detectors the first table has some of them only.
NAMES = ["ash", "dice", "ebo", "entropy", "fdbd", "gen", "gmm", "klm", "knn", "lts", "mds", "mls"]
NAMES += ["msp", "nci", "nnguide", "pnml", "react", "rmds", "scale", "she", "temp_scaling", "vra"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """``small`` can be told by its size; ``noise`` and ``dim`` count."""
    root = tmp_path_factory.mktemp("one_answer")
    data = write_photos(root, (56, 48), "jpg")
    for name, change in (
        ("small", lambda image: image.resize((18, 16))),
        ("dim", lambda image: image.point(lambda value: value // 3)),
    ):
        (root / name).mkdir()
        for file in sorted((root / "ood").glob("*.jpg")):
            change(Image.open(file)).save(root / name / f"{name}{file.name}")
    more = [f"data.ood.{name}={root}/{name}" for name in ("small", "dim")]
    small = ("trainer.max_epochs=15", "metrics.n_bootstrap=20", "logger=wandb")
    names = (
        "detector.knn.k=5",
        "detector.nnguide.k=5",
        f"detector=[{','.join(NAMES)}]",
        f"paths.outputs={root}/outputs",
    )
    assert call("train.py", "task=score", *data, *more, *small, names[2], *names[:2], names[3]) == 0
    (folder,) = run_folders(root / "outputs")
    return folder


@pytest.fixture(scope="module")
def means(run):
    """Mean AUROC by detector from the scores: the second formula."""
    scores = pd.read_parquet(run / "scores.parquet")
    of = dict(iter(scores.groupby("dataset")))
    assert {name for finding in RunRecord.read(run).findings for name in finding.sets} == {"small"}
    return {
        name: sum(auroc(of["test"][name], of[ood][name]) for ood in ("noise", "dim")) / 2
        for name in NAMES
        if name in scores
    }


@pytest.mark.slow
def test_every_place_has_the_same_mean_set_and_order(run, means):
    order = sorted(means, key=lambda name: (-round(means[name], 12), name))
    results = read_results(run)
    verdict = Verdict(results, RunRecord.read(run))
    assert verdict.ranking == order
    # results.csv, of both kinds
    rows = pd.read_csv(run / "results.csv").query("metric == 'mean_auroc'")
    for kind in ("verdict", "detection"):
        of_kind = rows[rows["kind"] == kind].set_index("detector")["value"]
        assert of_kind.to_dict() == pytest.approx(means)
    best = pd.read_parquet(run / "significance_best.parquet")
    stars = set(best[best["best"] & (best["metric"] == "mean_auroc")]["detector"])
    assert stars == set(verdict.best)
    # W&B
    shown = read_run(run)["summary"]
    assert {n: shown[f"mean/{n}/auroc"] for n in means} == pytest.approx(means)
    assert shown["verdict/auroc"] == pytest.approx(means[verdict.named])
    assert shown["verdict/best"] == ", ".join(verdict.best)
    # The line of a sweep
    assert headline(FinishedRun(run))["recommended"] == (verdict.recommended or "none")
    assert headline(FinishedRun(run))["AUROC"] == f"{100 * means[verdict.named]:.1f}"
    # Page: the tile, and the first table
    page = (run / "report.html").read_text()
    assert f"mean AUROC {100 * means[verdict.named]:.1f}%" in page
    assert "(of 2 datasets)" in page
    first = page[page.index("Results</h2>") :]
    first = first[: first.index("</table>")]
    names = re.findall(r'<th scope="row"[^>]*>([a-z_]+)</th>', first)
    assert {*verdict.best, verdict.named, "msp"} <= set(names)
    assert names == [name for name in order if name in names]
    assert len(names) < len(means) or len(verdict.best) > 10
    # Terminal
    texts = " ".join(b.text for b in read_summary(run)["detection"] if hasattr(b, "text"))
    assert f"AUROC {'of ' * (not verdict.recommended)}" in texts
    assert f"{100 * means[verdict.named]:.1f}% [" in texts
    assert "small (†)" in texts
    # Leaderboard
    board = make_leaderboard([DetectorRun(run)])
    rows = board.rows.query("dataset == 'mean' and metric == 'auroc'").set_index("detector")
    assert rows["value"].to_dict() == pytest.approx(means)
    assert set(rows.index[rows["best"]]) == stars
    (row,) = board_verdict(board).rows.to_dict("records")
    assert row["auroc"] == pytest.approx(means[verdict.named])
    assert "without small (†)" in " ".join(board_verdict(board).table().notes)


@pytest.mark.slow
def test_detectors_with_the_same_ranking_are_one_of_the_best(run):
    """ReAct and VRA cut nothing of these features, so both are the energy score."""
    scores = pd.read_parquet(run / "scores.parquet")
    ranks = scores[[n for n in NAMES if n in scores]].rank()
    verdict = Verdict(read_results(run), RunRecord())
    rankings = {tuple(ranks[name]) for name in verdict.best}
    names = str(verdict).partition("may be the best")[0].split()
    if verdict.recommended and len(rankings) > 1:
        assert int(names[-2]) == len(rankings)
