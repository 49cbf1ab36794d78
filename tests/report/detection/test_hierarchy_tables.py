"""The hierarchy section of a page, its figure, and the hierarchy table of a leaderboard."""

import numpy as np
import pandas as pd
import pytest
from finished_runs import write_run
from report_run import make_run

from ood_lab.evaluation.hierarchy_tables import KIND
from ood_lab.metrics import hierarchy_table
from ood_lab.report.detection.detection_page import write_report
from ood_lab.report.leaderboard.board_files import write_leaderboard
from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.hierarchy_table import hierarchy_rows, recall_tables
from ood_lab.report.leaderboard.long_table import make_leaderboard
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.results import joined, read_results, write_results

PERIODS = ["early Shang", "late Shang", "<early> Zhou"]
PARENTS = np.array([0, 0, 1])


def made(right=0.8, n=600, seed=0, model="net", category=True):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, n)
    guess = np.where(np.arange(n) < right * n, label, (label + 1) % 3)
    of_category = rng.integers(0, 2, n)
    subsets = {"Ding": of_category == 0, "Gui": of_category == 1}
    levels = [
        ("coarse", "derived", hierarchy_table(PARENTS[label], PARENTS[guess], ["S", "Z"], subsets)),
        ("fine", "head", hierarchy_table(label, guess, PERIODS, subsets)),
    ]
    if category:
        levels.insert(
            0, ("category", "head", hierarchy_table(of_category, of_category, list(subsets)))
        )
    parts = [table.assign(label_level=level, source=source) for level, source, table in levels]
    return pd.concat(parts, ignore_index=True).assign(model=model, seed=seed)


def test_section_shows_every_number_and_what_it_is(tmp_path):
    run, hierarchy = make_run(2, 1, levels=0), made()
    page = tmp_path / "report.html"
    write_report(page, RunView(run.results), run.scores, hierarchy=hierarchy)
    text = page.read_text()
    section = text[text.index("<h2>Hierarchical classification") : text.index("<h2>Definitions")]
    assert ">Hierarchical classification</a>" in text
    for row in hierarchy[hierarchy.metric == "recall"].itertuples():
        assert f">{100 * row.value:.1f}<" in section
        assert f"{100 * row.ci_low:.1f} to {100 * row.ci_high:.1f}" in section
    assert "&lt;early&gt; Zhou" in section
    assert "derived: the parent of the predicted class" in section
    assert section.count("data:image/svg+xml") == len(list(tmp_path.glob("figures/*.svg")))
    plain = write_report(tmp_path / "r.html", RunView(run.results), run.scores).read_text()
    assert "<h2>Hierarchical classification" not in plain


def run_with(folder, right, seed=0, **options):
    path = write_run(folder, {"knn": (0.7, 0.8)}, seed=seed, model=folder.name)
    table = made(right, **options).drop(columns=["model", "seed"], errors="ignore")
    rows = KIND.table(table, model=folder.name, seed=seed)
    write_results(joined([read_results(path), rows]), path)
    return DetectorRun(path)


@pytest.mark.slow
def test_models_stand_below_each_other_and_the_best_are_marked_within_noise(tmp_path):
    runs = [
        run_with(tmp_path / "name" / "good", 0.80),
        run_with(tmp_path / "name" / "near", 0.79, category=False),
        run_with(tmp_path / "name" / "bad", 0.40),
        DetectorRun(write_run(tmp_path / "name" / "undated", {"knn": (0.9, 0.9)})),
    ]
    rows = hierarchy_rows(runs)
    rows = rows[rows.metric == "accuracy"]
    fine = rows[(rows.label_level == "fine") & (rows.subset == "all")].set_index("model")
    assert fine.best.to_dict() == {"good": True, "near": True, "bad": False}
    assert fine.value["good"] == pytest.approx(0.8)
    # 0.39 * 600 images apart, against 95% half-widths of about 0.03.
    assert fine.sampling_half_width["good"] == pytest.approx(1.96 * 0.4 / 600**0.5, rel=0.02)
    files = {f.name: f for f in write_leaderboard(make_leaderboard(runs), tmp_path)}
    assert set(files) == {
        f"leaderboard{e}" for e in (".csv", ".md", ".tex", ".html", "_hierarchy.csv")
    }
    csv = pd.read_csv(files["leaderboard_hierarchy.csv"])
    assert (csv.metric == "accuracy").sum() == 7 + 6 + 7
    lines = (
        files["leaderboard.md"].read_text().split("Hierarchical classification: ")[1].splitlines()
    )
    heads = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert heads[:4] == ["model", "all category (n 600)", "all coarse (n 600)", "all fine (n 600)"]
    assert heads[4].startswith("Ding coarse")
    shown = [[c.strip() for c in line.strip("|").split("|")] for line in lines[4:7]]
    assert [row[0] for row in shown] == ["good", "near", "bad"]
    assert [row[3] for row in shown] == ["**80.0**", "**79.0**", "40.0"]
    assert shown[0][2].endswith("†**")
    assert shown[1][1] == "N/A"
    assert "Hierarchical classification: overall accuracy" in files["leaderboard.tex"].read_text()
    assert "<h2>Hierarchical classification" in files["leaderboard.html"].read_text()


def test_seeds_are_one_row(tmp_path):
    folder = tmp_path / "name" / "one"
    runs = [run_with(folder, right, seed) for seed, right in enumerate((0.7, 0.8))]
    rows = hierarchy_rows(runs)
    rows = rows[rows.metric == "accuracy"]
    fine = rows[(rows.label_level == "fine") & (rows.subset == "all")].squeeze()
    assert (fine.n_seeds, fine.seeds) == (2, "0 1")
    assert fine.value == pytest.approx(0.75)
    assert fine.seed_std == pytest.approx(np.std([0.7, 0.8], ddof=1))


def test_the_recall_of_every_label_is_a_row_and_a_model_a_column(tmp_path):
    runs = [run_with(tmp_path / "name" / name, x) for name, x in (("low", 0.4), ("high", 0.9))]
    tables = {t.caption.rpartition(": ")[2]: t for t in recall_tables(hierarchy_rows(runs))}
    assert list(tables) == ["all", "Ding", "Gui"]
    table = tables["Gui"]
    assert [head.text for head in table.heads] == ["level", "label", "n", "high", "low"]
    rng = np.random.default_rng(0)
    label, gui = rng.integers(0, 3, 600), rng.integers(0, 2, 600) == 1
    shown = {(r[0].text, r[1].text): r for r in table.rows}
    for place, period in enumerate(PERIODS):
        own = gui & (label == place)
        row = shown["fine", period]
        assert row[2].sort == own.sum()
        for cell, right in zip(row[3:], (0.9, 0.4), strict=True):
            assert cell.sort == pytest.approx((np.flatnonzero(own) < right * 600).mean())
        assert [cell.best for cell in row[3:]] == [True, False]
    assert shown["fine", "overall accuracy"][2].sort == gui.sum()
    write_leaderboard(make_leaderboard(runs), tmp_path)
    for ending in ("md", "tex", "html"):
        text = (tmp_path / f"leaderboard.{ending}").read_text()
        assert "Recall of every label in" in text
        assert "late Shang" in text
