"""The verdict over models and seeds: counts and means of the runs' own verdicts."""

import statistics

import pandas as pd
import pytest
import yaml
from finished_runs import add_verdict, write_run

from ood_lab.report.leaderboard.board_files import board_verdict, write_leaderboard
from ood_lab.report.leaderboard.detector_runs import DetectorRun, comparable_groups
from ood_lab.report.leaderboard.long_table import make_leaderboard
from ood_lab.report.rendering.table import Table


def run(folder, found, recommended=None, seed=0, epochs=5, left=None, fpr95=None, **given):
    aurocs = {name: (value, value + seed / 100) for name, value in found.items()}
    path = write_run(folder / "cafe", aurocs, seed=seed, **given)
    config = yaml.safe_load((path / "config.yaml").read_text())
    config["trainer"] = {"max_epochs": epochs}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    return add_verdict(path, found, recommended=recommended, left=left, fpr95=fpr95)


def verdict_of(*paths):
    (group,) = comparable_groups([DetectorRun(path) for path in paths])
    return board_verdict(make_leaderboard(group))


@pytest.fixture
def seeds(tmp_path):
    """Two of three seeds recommend knn; vim is in the set of the best in two."""
    found = [({"knn": 0.80, "vim": 0.79}, "knn"), ({"knn": 0.84, "vim": 0.79}, "knn")]
    found.append(({"knn": 0.79, "vim": 0.80}, "vim"))
    return [run(tmp_path / "a", each, name, seed) for seed, (each, name) in enumerate(found)]


def test_seeds_are_counted_and_averaged(seeds):
    verdict = verdict_of(*seeds)
    row = verdict.rows.squeeze()
    assert (row.detector, row.n_seeds, row.recommended, row.in_best_set) == ("knn", 3, 2, 3)
    assert row.detects == 3
    values = [0.80, 0.84, 0.79]
    assert row.auroc == pytest.approx(statistics.mean(values))
    assert row.auroc_std == pytest.approx(statistics.stdev(values))
    assert row.fpr95 == pytest.approx(1 - statistics.mean(values))
    assert row.auroc_half_width == pytest.approx(0.02)
    vim = verdict.detectors[verdict.detectors.detector == "vim"].squeeze()
    assert (vim.recommended, vim.in_best_set) == (1, 2)
    text = " ".join(verdict.sentences)
    assert "Recommended detector: knn by 2 of 3 seeds and vim by 1 of 3 seeds." in text
    assert "knn is in the set of the best in 3 of 3 seeds." in text
    assert "AUROC 81.0 ± 2.6%, FPR95 19.0 ± 2.6%, mean over 3 seeds." in text
    table = verdict.table()
    assert [cell.text for cell in table.rows[0]][1:5] == ["knn", "2/3", "3/3", "3/3"]


@pytest.mark.slow
def test_the_best_of_several_models_by_welch(tmp_path, seeds):
    far = [run(tmp_path / "b", {"knn": 0.60 + s / 1000}, "knn", s, model="big") for s in range(3)]
    near = [
        run(tmp_path / "c", {"knn": 0.77 + s / 50}, "knn", s, model="wide", epochs=9)
        for s in range(3)
    ]
    verdict = verdict_of(*seeds, *far, *near)
    assert list(verdict.rows.configuration) == ["net", "wide", "big"]
    best = verdict.detectors[verdict.detectors.best]
    assert set(zip(best.model, best.detector, strict=True)) == {
        ("net", "knn"),
        ("net", "vim"),
        ("wide", "knn"),
    }
    text = " ".join(verdict.sentences)
    assert "Highest mean AUROC: knn (net)." in text
    assert "Not significantly worse: vim (net) and knn (wide)." in text
    assert "(big)" not in text
    # One seed each: vim by the set of the best of its run, big by its interval.
    alone = verdict_of(run(tmp_path / "d", {"knn": 0.9, "vim": 0.87}, "knn"), far[0])
    assert "All other detectors and configurations are significantly worse." in alone.sentences


def test_without_detection_it_says_so(tmp_path):
    lost = [run(tmp_path / "a", {"knn": 0.5, "vim": 0.51}, seed=s) for s in (0, 1)]
    text = " ".join(verdict_of(*lost).sentences)
    assert text == "No detector detects these datasets in any run: no mean AUROC is above chance."
    works = [run(tmp_path / "c", {"knn": 0.9}, "knn", s, epochs=9) for s in (0, 1)]
    verdict = verdict_of(*lost, *works)
    assert list(verdict.rows.configuration) == ["max_epochs=9", "max_epochs=5"]
    assert list(verdict.rows.detects) == [2, 0]
    assert list(verdict.rows.detector) == ["knn", "vim"]
    text = " ".join(verdict.sentences)
    assert "Highest mean AUROC: knn (max_epochs=9)." in text
    assert "No detector detects these datasets in any seed of max_epochs=5." in text


def test_weak_and_left_out_are_said(tmp_path):
    left = {"near": "flagged", "far": "too_few"}
    weak = run(tmp_path / "a", {"knn": 0.6}, "knn", left={"near": "flagged"}, fpr95=0.51)
    verdict = verdict_of(weak)
    assert "This is weak: FPR95 of knn is above 50%." in verdict.sentences
    strong = verdict_of(run(tmp_path / "c", {"knn": 0.6}, "knn", fpr95=0.49))
    assert not any("weak" in sentence for sentence in strong.sentences)
    assert "Mean over 1 dataset, without near (†); " in verdict.table().notes[1]
    other = run(tmp_path / "b", {"knn": 0.6}, "knn", model="big", left=left)
    text = " ".join(verdict_of(weak, other).sentences)
    assert "The runs leave other datasets out of their means, so these do not compare." in text


def test_runs_without_a_verdict_take_no_part_and_are_counted(tmp_path, seeds):
    old = write_run(tmp_path / "old" / "cafe", {"knn": (0.99, 0.99)}, model="old")
    verdict = verdict_of(*seeds, old)
    words = "1 run has no verdict: a run without ID accuracy above chance has none."
    assert words in verdict.sentences
    assert set(verdict.rows.model) == {"net"}
    only = verdict_of(old)
    assert only.blocks()[0].text == only.sentences[0]
    assert len(only.blocks(page=True)) == 1


@pytest.mark.slow
def test_a_terminal_shows_25_lines_of_80_columns(tmp_path):
    name = "a_model_with_a_name_that_is_longer_than_the_terminal_is_wide_in_the_end"
    paths = [
        run(tmp_path / str(n), {"knn": 0.7 + n / 100}, "knn", model=f"{name}_{n}")
        for n in range(12)
    ]
    verdict = verdict_of(*paths)
    table = verdict.blocks()[0]
    assert isinstance(table, Table)
    assert len(table.rows) == 10
    widths = [
        max(len(h.text), len(h.note), *(len(row[k].text) for row in table.rows)) + 2
        for k, h in enumerate(table.heads)
    ]
    assert sum(widths) - 2 <= 80
    assert table.notes[0] == "2 configurations more: see the report."
    page = verdict.blocks(page=True)
    assert len(page[0].rows) == 12
    assert {row["mean"] for row in verdict_shift(page)} == {"2", "3"}


def verdict_shift(blocks):
    (table,) = blocks[1].blocks
    heads = [head.text for head in table.heads]
    return [dict(zip(heads, (cell.text for cell in row), strict=True)) for row in table.rows]


@pytest.mark.slow
def test_the_numbers_are_a_file(tmp_path, seeds):
    (group,) = comparable_groups([DetectorRun(path) for path in seeds])
    write_leaderboard(make_leaderboard(group), tmp_path)
    found = pd.read_csv(tmp_path / "leaderboard_verdict.csv")
    assert list(found.detector) == ["knn", "vim"]
    assert list(found.recommended) == [2, 1]
