"""The figure over shots, and leaderboards of runs that were trained on different images."""

import statistics

import numpy as np
import pandas as pd
import pytest
import yaml
from finished_runs import write_run

from ood_lab.report.leaderboard.board_files import (
    best_of_all,
    best_shots,
    shots_figure,
    shots_rows,
    write_leaderboard,
)
from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.long_table import make_leaderboard
from ood_lab.report.leaderboard.wide_table import wide_table


def run(outputs, shots, seed, near, background="origin", name="coop", model="coop"):
    folder = outputs / name / f"{shots}-{background}"
    aurocs = {"mcm": (near, near + 0.1), "gl_mcm": (near - 0.2, near)}
    path = write_run(folder, aurocs, seed=seed, model=model)
    config = yaml.safe_load((path / "config.yaml").read_text())
    config["data"] = {"shots": shots, "background": background}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    return path


def board_of(paths):
    return make_leaderboard([DetectorRun(path) for path in paths])


@pytest.fixture
def board(tmp_path):
    values = {1: (0.5, 0.54), 16: (0.6, 0.7), -1: (0.8, 0.82), 4: (0.58, 0.59)}
    paths = [run(tmp_path, n, s, v) for n, vs in values.items() for s, v in enumerate(vs)]
    paths += [run(tmp_path, n, 0, 0.75, "replaced") for n in (1, 16)]
    paths.append(run(tmp_path, -1, 0, 0.85, name="akg", model="akg"))
    return board_of(paths)


@pytest.mark.slow
def test_rows_are_means_over_seeds_in_the_order_of_shots(board):
    rows = shots_rows(board)
    assert set(rows.model) == {"coop"}  # of the other model there is one number alone
    line = rows[(rows.background == "origin") & (rows.detector == "mcm")]
    assert list(line.shots) == [1, 4, 16, -1]
    assert list(line.n_seeds) == [2, 2, 2, 2]
    both = [0.6 + 0.05, 0.7 + 0.05]  # mean over the two sets
    last = line[line.shots == 16].iloc[0]
    assert last.value == pytest.approx(statistics.mean(both))
    assert last.seed_std == pytest.approx(statistics.stdev(both))
    replaced = rows[rows.background == "replaced"]
    assert sorted(replaced.shots.unique()) == [1, 16]
    assert replaced.seed_std.isna().all()
    panels = rows[(rows.metric == "auroc") & (rows.background == "origin")].detector
    assert list(panels.drop_duplicates()) == ["mcm", "gl_mcm"]  # the better one first, as in tables
    accuracy = rows[rows.metric == "id_accuracy"]
    assert (accuracy.detector == "").all()
    np.testing.assert_allclose(accuracy.value, 0.9)


def test_the_best_number_of_shots_is_that_of_the_mean_over_seeds_and_sets(tmp_path):
    values = {1: (0.5, 0.94), 4: (0.7, 0.8), -1: (0.6, 0.7)}  # one seed of 1 shot is the best run
    paths = [run(tmp_path, n, s, v) for n, vs in values.items() for s, v in enumerate(vs)]
    paths.append(run(tmp_path, -1, 0, 0.5, name="akg", model="akg"))
    paths.append(run(tmp_path, 1, 0, 0.4, "replaced"))
    runs, notes = best_shots([DetectorRun(path) for path in paths])
    expected = [("coop", 4)] * 2 + [("akg", -1), ("coop", 1)]
    assert [(one.name, one.shots) for one in runs] == expected
    assert len(notes) == 1
    assert notes[0].startswith("coop is shown with 4 shots, the best of 1 shots, 4 shots and all")


def test_the_figure_shows_lines_and_bands(board):
    figure = shots_figure(shots_rows(board), {})
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert list(panels) == ["ID accuracy", "AUROC: mcm", "AUROC: gl_mcm"]
    axes = panels["AUROC: mcm"]
    origin, replaced = axes.get_lines()
    np.testing.assert_allclose(origin.get_xdata(), [0, 2, 4, 5])  # log2, then "all"
    np.testing.assert_allclose(origin.get_ydata(), [57, 63.5, 70, 86])
    np.testing.assert_allclose(replaced.get_xdata(), [0, 4])
    assert replaced.get_linestyle() == "--"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "4", "16", "all"]
    band = axes.collections[0].get_paths()[0].vertices
    at_16 = band[np.isclose(band[:, 0], 4)][:, 1]
    half = 100 * statistics.stdev([0.65, 0.75])
    assert at_16.min() == pytest.approx(70 - half)
    assert at_16.max() == pytest.approx(70 + half)


def test_a_leaderboard_has_the_figure_and_tells_trainings_apart(board, tmp_path):
    files = write_leaderboard(board, tmp_path)
    table = pd.read_csv(tmp_path / "leaderboard_shots.csv", keep_default_na=False)
    assert len(table) == len(shots_rows(board))
    assert (tmp_path / "leaderboard_shots.png").stat().st_size > 5000
    assert tmp_path / "leaderboard_shots.csv" in files
    assert "Number of training images" in (tmp_path / "leaderboard.html").read_text()
    wide = wide_table(board)
    position = [head.text for head in wide.heads].index("training")
    shown = {row[position].text for row in wide.rows}
    assert "background=replaced; shots=16" in shown
    assert "background=origin; shots=all" in shown
    # Every row has a name of its own without the folder of its run.
    assert "run" not in [head.text for head in wide.heads]


def test_without_two_numbers_there_is_nothing_to_show(tmp_path):
    paths = [run(tmp_path, 16, 0, 0.6), run(tmp_path, 16, 0, 0.7, "replaced")]
    board = board_of(paths)
    assert shots_rows(board).empty
    write_leaderboard(board, tmp_path)
    assert not list(tmp_path.glob("leaderboard_shots*"))
    assert "background=replaced" in (tmp_path / "leaderboard.md").read_text()
    assert "shots=" not in (tmp_path / "leaderboard.md").read_text()  # all share it


def test_two_configurations_of_a_point_are_no_line(tmp_path, caplog):
    paths = [run(tmp_path, n, 0, 0.6) for n in (1, 2)]
    paths.append(run(tmp_path, 1, 0, 0.7, name="other"))
    assert shots_rows(board_of(paths)).empty
    assert "two configurations" in caplog.text


def test_a_dashed_line_is_the_best_of_all_methods(board):
    best = best_of_all(board)
    assert best["auroc"] == ("mcm", pytest.approx(0.9))  # of akg, which has no line of its own
    figure = shots_figure(shots_rows(board), best)
    for axes in figure.axes:
        (line,) = (line for line in axes.get_lines() if line.get_label().startswith("best "))
        assert line.get_linestyle() == "--"
        assert line.get_ydata()[0] == pytest.approx(90)
