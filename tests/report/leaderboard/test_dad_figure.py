"""The figure of DAD and FPR95 over the runs of a leaderboard."""

import pandas as pd
import pytest
from finished_runs import write_run

from ood_lab.report.leaderboard.board_files import dad_figure, methods_by_dad, write_leaderboard
from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.long_table import make_leaderboard
from ood_lab.report.leaderboard.wide_table import wide_table


@pytest.fixture
def board(tmp_path):
    """Two runs of two detectors each, whose DAD is 1 or 0."""
    values = {
        "a": {"knn": (0.7, 0.9), "vim": (0.8, 0.95)},
        "b": {"msp": (0.9, 0.6), "mls": (0.9, 0.7)},
    }
    paths = [write_run(tmp_path / name / "x", found, model=name) for name, found in values.items()]
    for path in paths:
        for file in ("results.parquet", "results.csv"):
            read = pd.read_parquet if file.endswith("parquet") else pd.read_csv
            table = read(path / file)
            table.loc[(table.metric == "dad") & table.detector.isin(["msp", "mls"]), "value"] = 0.0
            table.to_parquet(path / file) if "parquet" in file else table.to_csv(
                path / file, index=False
            )
    return make_leaderboard([DetectorRun(path) for path in paths])


def test_methods_of_all_runs_are_grouped_by_dad_and_ordered_by_fpr95(board):
    methods = methods_by_dad(board)
    assert [method.name.split()[0] for method in methods] == ["vim", "knn", "mls", "msp"]
    assert [method.dad for method in methods] == [1, 1, 0, 0]
    assert methods[1].fpr95 == pytest.approx([0.3, 0.1])  # sets by shift
    assert methods[1].halves == pytest.approx([0.01, 0.01])
    figure = dad_figure(board)
    first, near, far = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["DAD (of 1)", "near", "far"]
    assert [bar.get_width() for bar in near.patches] == pytest.approx([20, 30, 10, 10])
    assert [bar.get_width() for bar in far.patches] == pytest.approx([5, 10, 30, 40])
    lines = [line.get_ydata() for line in first.get_lines() if len(set(line.get_ydata())) == 1]
    assert [1.5, 1.5] in [list(ys) for ys in lines]  # between the two groups


def test_the_leaderboard_has_it(board, tmp_path):
    write_leaderboard(board, tmp_path)
    assert (tmp_path / "leaderboard_dad.png").stat().st_size > 5000
    assert "DAD and FPR95 of every method" in (tmp_path / "leaderboard.html").read_text()


def test_groups_have_the_dad_of_their_means(tmp_path):
    """As the paper does; the table has the DAD of pairs, too."""
    aurocs = {"knn": (0.7, 0.9, 0.8), "vim": (0.95, 0.6, 0.7)}
    path = write_run(tmp_path / "a" / "x", aurocs, sets=("near", "far", "out"))
    table = pd.read_parquet(path / "results.parquet")
    rows = []
    for detector, (near, *others) in aurocs.items():
        means = {"near": near, "far": sum(others) / 2}
        dad = float(1 - means["near"] > 1 - means["far"])
        found = {"dad_of_means": dad}
        for group, auroc in means.items():
            found |= {f"mean_{group}_auroc": auroc, f"mean_{group}_fpr95": 1 - auroc}
        of_set = (table["detector"] == detector) & (table["metric"] == "auroc")
        common = table[of_set].iloc[0].to_dict()
        common |= {"dataset": None, "shift_level": None}
        n = {"mean_far_auroc": 2 * common["n_ood"], "mean_far_fpr95": 2 * common["n_ood"]}
        rows += [
            common | {"metric": metric, "value": v, "n_ood": n.get(metric, common["n_ood"])}
            for metric, v in found.items()
        ]
    pd.concat([table, pd.DataFrame(rows)]).to_parquet(path / "results.parquet")
    board = make_leaderboard([DetectorRun(path)])
    knn, vim = methods_by_dad(board)
    assert (knn.name, knn.dad, vim.dad) == ("knn", 1, 0)
    assert knn.fpr95 == pytest.approx([0.3, 0.15])
    assert vim.fpr95 == pytest.approx([0.05, 0.35])
    titles = [axes.get_title() for axes in dad_figure(board).axes]
    assert titles == ["DAD (of means, of 1)", "mean near", "mean far"]
    wide = wide_table(board)
    # The group near is the set near; far is the mean of two sets, of which one has its name.
    groups = [group.text for group, _ in wide.groups]
    assert "mean near" not in groups
    assert "mean far" in groups
    heads = {head.note: place for place, head in enumerate(wide.heads) if head.text == "DAD"}
    assert list(heads) == ["of 3", "of means, of 1"]
    shown = {row[0].text: [row[place].text for place in heads.values()] for row in wide.rows}
    assert shown == {"knn": ["1", "1"], "vim": ["1", "0"]}
