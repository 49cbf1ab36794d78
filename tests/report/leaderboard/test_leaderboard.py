"""One table over several runs: aggregation, marks, refusals, every format."""

import io
import re
import statistics

import numpy as np
import pandas as pd
import pytest
import yaml
from finished_runs import IDENTITY, write_run
from rich.console import Console

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_table
from ood_lab.metrics import Evaluation, best_detectors, results_of
from ood_lab.report.leaderboard.board_files import terminal, write_leaderboard
from ood_lab.report.leaderboard.detector_runs import (
    DetectorRun,
    comparable_groups,
    why_separate,
)
from ood_lab.report.leaderboard.long_table import make_leaderboard
from ood_lab.report.leaderboard.wide_table import wide_table
from ood_lab.report.rendering.terminal import Printed
from ood_lab.report.results_lookup import RunView

KNN = [(0.70, 0.80), (0.72, 0.80), (0.77, 0.80)]
SENTENCE = "share of ID flagged when 95"


def board_of(*paths):
    (group,) = comparable_groups([DetectorRun(path) for path in paths])
    return make_leaderboard(group)


def row_of(board, detector, ood, metric="auroc", run=None):
    rows = board.rows
    rows = rows[(rows.detector == detector) & (rows.dataset == ood) & (rows.metric == metric)]
    return (rows if run is None else rows[rows.run == run]).squeeze()


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs") / "name" / "aaaa"
    return [
        write_run(folder, {"knn": v, "a_b": (0.5, 0.6)}, seed=s, half=0.01 * (s + 1))
        for s, v in enumerate(KNN)
    ]


def test_a_column_without_any_value_is_left_out(tmp_path):
    path = write_run(tmp_path / "name/dddd", {"knn": (0.8, 0.9)}, half=float("nan"))
    wide = wide_table(make_leaderboard([DetectorRun(path)]))
    assert "AUROC ±" not in [head.text for head in wide.heads]
    assert not any(note.startswith("95% sampling") for note in wide.notes)
    assert all(cell.text != "N/A" for row in wide.rows for cell in row)
    assert sum(len(columns) for _, columns in wide.groups) == len(wide.heads)


def test_seeds_become_mean_and_std_apart_from_the_interval(swept):
    row = row_of(board_of(*swept), "knn", "near")
    near = [values[0] for values in KNN]
    assert row.value == pytest.approx(statistics.mean(near))
    assert row.seed_std == pytest.approx(statistics.stdev(near))
    assert row.sampling_half_width == pytest.approx(0.02)
    assert (row.n_seeds, row.seeds, row.n_id, row.n_ood) == (3, "0 1 2", 100, 30)
    mean = row_of(board_of(*swept), "knn", "mean")
    assert mean.seed_std == pytest.approx(statistics.stdev([(a + b) / 2 for a, b in KNN]))
    assert np.isnan(mean.sampling_half_width)


def test_one_seed_has_no_std(swept):
    assert np.isnan(board_of(swept[0]).rows.seed_std).all()


def test_learnt_values_are_no_settings(swept):
    assert set(board_of(*swept).rows.settings.dropna()) == {"k=5"}


def test_other_settings_of_a_detector_are_other_rows(tmp_path, swept):
    other = write_run(tmp_path / "name" / "bbbb", {"knn": KNN[0]}, k=50)
    table = wide_table(board_of(*swept, other))
    position = [head.text for head in table.heads].index("settings")
    shown = [(row[0].text, row[position].text) for row in table.rows]
    assert sorted(shown) == [("a_b", ""), ("knn", "k=5"), ("knn", "k=50")]


def test_what_follows_from_another_model_is_no_choice(tmp_path, swept):
    other = write_run(tmp_path / "name" / "bbbb", {"knn": KNN[0]}, k=50, model="wide")
    table = wide_table(board_of(*swept, other))
    assert "settings" not in [head.text for head in table.heads]
    # Unless it was asked for.
    config = yaml.safe_load((other / "config.yaml").read_text())
    config["detector"]["knn"]["k"] = 50
    (other / "config.yaml").write_text(yaml.safe_dump(config))
    table = wide_table(board_of(*swept, other))
    position = [head.text for head in table.heads].index("settings")
    assert {row[position].text for row in table.rows} == {"", "k=5", "k=50"}


def test_a_narrow_terminal_still_shows_the_means(tmp_path, swept):
    name = "a_model_with_a_name_that_is_longer_than_the_whole_terminal_is_wide_of_80_columns_or_so"
    other = write_run(tmp_path / "name" / "bbbb", {"knn": KNN[0]}, model=name)
    console = Console(width=80, record=True)
    console.print(Printed(terminal(board_of(*swept, other), "title")))
    text = console.export_text()
    assert "…" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "AUROC" in text


def test_a_mean_over_other_sets_shares_no_table(tmp_path, swept):
    less = write_run(tmp_path / "name" / "bbbb", {"knn": (0.9,)}, sets=("near",))
    groups = comparable_groups([DetectorRun(path) for path in (less, *swept)])
    assert [make_leaderboard(group).sets for group in groups] == [["near", "far"], ["near"]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"fpr95_positive": "id"}, "positive class of FPR95 (id and ood)"),
        ({"data": IDENTITY | {"far": "other"}}, "content of the data (far)"),
        ({"sets": ("near", "mine")}, "evaluated sets (with mine, without far)"),
        ({"data": IDENTITY | {"test": "x", "train": "y"}}, "content of the data (test)"),
        ({"sets": ("far", "near")}, "far < near and near < far"),
    ],
)
def test_what_does_not_compare_shares_no_table(tmp_path, swept, change, named):
    other = write_run(tmp_path / "name" / "bbbb", {"knn": KNN[0]}, **change)
    groups = comparable_groups([DetectorRun(path) for path in (*swept, other)])
    assert [len(group) for group in groups] == [3, 1]
    reason = why_separate(groups[1], groups[0])
    assert reason.startswith(f"{other} cannot share a table with {swept[0]}: ")
    assert named in reason


def test_training_on_other_images_is_no_conflict(tmp_path, swept):
    data = IDENTITY | {"train": "16 images of each class"}
    other = write_run(tmp_path / "name" / "bbbb", {"knn": KNN[0]}, data=data)
    assert len(comparable_groups([DetectorRun(path) for path in (*swept, other)])) == 1


def test_a_single_run_is_marked_by_its_own_tests(tmp_path):
    best = [("near", "auroc", d, d != "c") for d in "abc"]
    aurocs = {"a": (0.9, 0.9), "b": (0.7, 0.8), "c": (0.899, 0.5)}
    board = board_of(write_run(tmp_path / "n" / "a", aurocs, best=best))
    # b is far below a and c very near: only the paired test can have said so.
    assert [bool(row_of(board, d, "near").best) for d in "abc"] == [True, True, False]
    assert row_of(board, "a", "mean").best  # this run has no test of the mean: the best alone
    assert not row_of(board, "b", "mean").best
    alone = board_of(write_run(tmp_path / "n" / "b", {"a": (0.9, 0.9)}))
    assert not alone.rows.best.any()


def test_marks_are_those_of_the_runs_own_table(tmp_path):
    """Means and means of groups too, with their tests; equal as shown is marked in both."""
    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    sets = {"test": 0.0, "near": 1.0, "far": 2.0, "near2": 1.2}
    parts = []
    for name, shift in sets.items():
        x = rng.normal(shift, 1, 150)
        columns = {"a": x, "b": x + rng.normal(0, 0.02, 150), "c": x + rng.normal(0, 2, 150)}
        parts.append(pd.DataFrame({"dataset": name, **columns}))
    groups = {"close": ["near", "near2"], "distant": ["far"]}
    scores = pd.concat(parts, ignore_index=True)
    evaluation = Evaluation(scores, names, n_bootstrap=60, groups=groups)
    results, best = results_of(evaluation, "net"), best_detectors(evaluation)
    path = write_run(tmp_path / "n" / "a", dict.fromkeys(names, (0.5, 0.5)))
    write_table(results, path / "results.parquet")
    write_table(best, path / "significance_best.parquet")
    board, view = board_of(path), RunView(results, best)
    columns = [(m, s, m, s) for m in ("auroc", "fpr95") for s in view.sets]
    columns += [(m, "mean", f"mean_{m}", None) for m in ("auroc", "fpr95")]
    columns += [(m, f"mean {g}", f"mean_{g}_{m}", None) for m in ("auroc", "fpr95") for g in groups]
    for metric, ood, name, where in columns:
        rows = board.rows[(board.rows.dataset == ood) & (board.rows.metric == metric)]
        assert set(rows.loc[rows.best, "detector"]) == view.best(name, where), ood
    means = board.rows[(board.rows.dataset == "mean") & (board.rows.metric == "auroc")]
    assert set(means.loc[means.best, "detector"]) == {"a", "b"}
    assert means["sampling_half_width"].gt(0).all()


def test_a_network_at_chance_carries_no_mark_and_is_told(tmp_path):
    """9% of 100 images among 10 classes: its 99% on the sets mean nothing."""
    classes = [str(i) for i in range(10)]
    fit = write_run(tmp_path / "n" / "fit", {"knn": (0.8, 0.8)}, classes=classes)
    lost = {"knn": (0.99, 0.99)}
    paths = [fit, write_run(tmp_path / "n" / "lost", lost, accuracy=0.09, classes=classes)]
    worse = write_run(tmp_path / "n" / "worse", {"knn": (0.6, 0.6)}, classes=classes)
    board = board_of(*paths, worse)
    for ood in ("near", "mean"):
        marks = [row_of(board, "knn", ood, run=f"n/{r}").best for r in ("fit", "lost", "worse")]
        assert marks == [True, False, False]
    warning = "n/lost/seed=0: ID accuracy 9.0% is no better than chance (10.0%, the share"
    write_leaderboard(board, tmp_path)
    console = Console(width=200, file=io.StringIO())
    console.print(Printed(terminal(board, "all")))
    page = (tmp_path / "leaderboard.html").read_text()
    assert f'<p class="warning">{warning}' in page
    for text in (console.file.getvalue(), (tmp_path / "leaderboard.md").read_text()):
        assert warning in text
    assert r"n/lost/seed=0: ID accuracy 9.0\%" in (tmp_path / "leaderboard.tex").read_text()


def test_runs_of_one_seed_are_marked_by_their_intervals(tmp_path):
    values = {"x": 0.90, "y": 0.887, "z": 0.885}  # sqrt(2) * 0.01 = 0.0141
    paths = [write_run(tmp_path / m / m, {"knn": (v, v)}, model=m) for m, v in values.items()]
    board = board_of(*paths)
    marked = [bool(row_of(board, "knn", "near", run=f"{m}/{m}").best) for m in values]
    assert marked == [True, True, False]
    lower = row_of(board, "knn", "near", "fpr95", run="x/x")  # the lowest is the best
    assert lower.best


def test_seeds_that_vary_much_bring_no_star_behind_a_worse_row(tmp_path):
    """Two seeds 0.3 apart have no power against any best value."""
    seeds = {"best": (0.95, 0.95), "worse": (0.80, 0.81), "wild": (0.60, 0.90)}
    paths = [
        write_run(tmp_path / m / m, {"knn": (v, v)}, model=m, seed=s)
        for m, values in seeds.items()
        for s, v in enumerate(values)
    ]
    rows = board_of(*paths).rows
    assert set(rows.loc[rows.best, "model"]) == {"best"}
    rows = board_of(*paths[:2], *paths[4:]).rows
    assert set(rows.loc[rows.best, "model"]) == {"best", "wild"}


def test_nothing_at_chance_has_a_star(tmp_path):
    """Neither AUROC nor FPR95, between runs or between seeds."""
    for n, half in enumerate((0.03, 0.01)):
        values = {"x": 0.52, "y": 0.45}  # 0.52 ± 0.03 is not above chance, 0.52 ± 0.01 is
        paths = [
            write_run(tmp_path / f"{n}{m}" / m, {"knn": (v, v)}, model=m, seed=s, half=half)
            for m, v in values.items()
            for s in (0, 1)
        ]
        for chosen in (paths, paths[::2]):
            rows = board_of(*chosen).rows
            assert set(rows.loc[rows.best & rows.dataset.isin(["near", "far"]), "model"]) == (
                {"x"} if half == 0.01 else set()
            )


def test_a_column_in_which_the_tests_name_no_best_has_no_star(tmp_path):
    tested = [("near", m, d, False) for m in ("auroc", "fpr95") for d in "ab"]
    tested += [("far", m, d, d == "a") for m in ("auroc", "fpr95") for d in "ab"]
    tested += [(None, f"mean_{m}", d, d == "b") for m in ("auroc", "fpr95") for d in "ab"]
    path = write_run(tmp_path / "n" / "a", {"a": (0.5, 0.9), "b": (0.5, 0.9)}, best=tested)
    board = board_of(path)
    best = pd.read_parquet(path / "significance_best.parquet")
    results = pd.read_parquet(path / "results.parquet")
    untested = results[(results["metric"] == "auroc") & results["dataset"].notna()]
    untested = untested.assign(
        metric="aupr_in", value=untested["detector"].map({"a": 0.9, "b": 0.8})
    )
    view = RunView(pd.concat([results, untested], ignore_index=True), best)
    expected = {"near": set(), "far": {"a"}, "mean": {"b"}}
    for ood, names in expected.items():
        for metric in ("auroc", "fpr95"):
            rows = board.rows[(board.rows.dataset == ood) & (board.rows.metric == metric)]
            assert set(rows.loc[rows.best, "detector"]) == names
            key = (f"mean_{metric}", None) if ood == "mean" else (metric, ood)
            assert view.best(*key) == names
    # A metric without tests has none on a dataset on which no detector is above chance.
    assert view.best("aupr_in", "near") == set()
    assert view.best("aupr_in", "far") == {"a"}


def configured(path, **groups):
    config = yaml.safe_load((path / "config.yaml").read_text())
    (path / "config.yaml").write_text(yaml.safe_dump(config | groups))
    return path


def test_runs_are_named_by_what_differs_between_them(tmp_path):
    def made(name, loss, epochs, model="net"):
        path = write_run(tmp_path / name / "cafe", {"knn": (0.8, 0.8)}, model=model)
        target = {"_target_": f"ood_lab.losses.{loss}", "temperature": 1}
        classifier = {"loss": target, "weights": f"/somewhere/{model}.pt"}
        trainer = {"max_epochs": epochs, "devices": epochs}
        return configured(path, model=classifier, trainer=trainer, paths={"root": name})

    paths = [made("a", "CrossEntropy", 5), made("b", "LogitNorm", 5), made("c", "LogitNorm", 9)]
    board = board_of(*paths, made("d", "Focal", 7, model="other"))
    table = wide_table(board)
    position = [head.text for head in table.heads].index("training")
    assert sorted(row[position].text for row in table.rows) == [
        "",  # another model says all that there is to say
        "loss=CrossEntropy; max_epochs=5",
        "loss=LogitNorm; max_epochs=5",
        "loss=LogitNorm; max_epochs=9",
    ]
    assert "run" not in [head.text for head in table.heads]
    # An evaluation has another detector, and the training of its weights.
    weights = [{"weights_sha256": name} for name in "ab"]
    both = [
        configured(
            write_run(tmp_path / name / "cafe", {"knn": (0.8, v)}, backbone=w),
            trainer={"max_epochs": epochs},
            model={"loss": loss},
        )
        for w, v, (name, epochs, loss) in zip(
            weights, (0.7, 0.8), [("i", 1, None), ("j", 4, {"_target_": "x.Focal"})], strict=True
        )
    ]
    again = write_run(tmp_path / "k" / "cafe", {"vim": (0.9, 0.9)}, backbone=weights[1])
    again = configured(again, ckpt="j", clip=None, model={"loss": {"_target_": "x.Focal"}})
    rows = board_of(*both, again).rows.drop_duplicates("run").set_index("run")["training"]
    assert rows["i/cafe"].endswith("; max_epochs=1; loss=none")
    assert rows["j/cafe"] == rows["k/cafe"]
    assert rows["j/cafe"].endswith("; max_epochs=4; loss=Focal")
    # Where the settings are the same, the folder names them.
    twins = wide_table(board_of(made("e", "Focal", 1), made("f", "Focal", 1)))
    assert [head.text for head in twins.heads][:2] == ["detector", "run"]


def test_seeds_are_marked_by_welch(tmp_path, swept):
    # Welch's t of knn's mean 0.73 against a constant: (0.73 - x) / (0.036 / sqrt(3)) with 2
    # degrees of freedom, where 4.303 is the 5% point: x must lie below 0.6404.
    def others(folder, value):
        return [
            write_run(folder, {"knn": (value, value)}, seed=s, model="other", half=0.1)
            for s in range(3)
        ]

    worse = others(tmp_path / "n" / "worse", 0.6399)
    equal = others(tmp_path / "n" / "equal", 0.6409)
    board = board_of(*swept, *worse, *equal)
    assert row_of(board, "knn", "near", run="name/aaaa").best
    assert row_of(board, "knn", "near", run="n/equal").best
    assert not row_of(board, "knn", "near", run="n/worse").best


def test_every_format_holds_the_numbers_and_the_positive_class(tmp_path, swept):
    board = board_of(*swept)
    files = write_leaderboard(board, tmp_path)
    assert sorted(p.suffix for p in files) == [".csv", ".html", ".md", ".tex"]
    csv = pd.read_csv(files[0])
    np.testing.assert_allclose(csv.value, board.rows.value)
    assert set(csv.fpr95_positive) == {"ood"}
    console = Console(file=io.StringIO(), width=160)
    console.print(Printed(terminal(board, "title")))
    shown = console.file.getvalue()
    for text in (*(p.read_text() for p in files[1:]), shown):
        plain = text.replace(r"$\pm$", "±")
        assert SENTENCE in " ".join(text.split())
        assert "73.0 ± 3.6" in plain  # mean and std of KNN's near
        assert "DAD" in text
    markdown, latex = files[1:3] if files[1].suffix == ".md" else files[2:0:-1]
    assert "**73.0 ± 3.6**" in markdown.read_text()
    assert r"\textbf{73.0 $\pm$ 3.6}" in latex.read_text()
    assert r"a\_b" in latex.read_text()


def test_latex_rows_are_as_long_as_the_table_says(tmp_path, swept):
    text = write_leaderboard(board_of(*swept), tmp_path)[2].read_text()
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1]
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    spans = [
        sum(int(s) for s in re.findall(r"\\multicolumn\{(\d+)\}", row))
        or len(re.split(r"(?<!\\)&", row))
        for row in rows
    ]
    assert spans == [len(columns)] * 4
    body = re.sub(r"\\[%_&#$]", "", text.split("\n", 1)[1])
    assert "%" not in body.replace("{!}{%", "")


def test_the_page_sorts_and_loads_nothing(tmp_path, swept):
    text = write_leaderboard(board_of(*swept), tmp_path)[3].read_text()
    assert "http" not in text
    assert 'data-sort="0.73' in text
    assert str(swept[1]) in text


def test_results_without_a_core_column_are_refused_with_what_to_do(tmp_path):
    run = write_run(tmp_path / "name" / "aaaa", {"knn": KNN[0]})
    table = pd.read_parquet(run / "results.parquet").drop(columns=["kind", "n", "unit"])
    table.to_parquet(run / "results.parquet")
    with pytest.raises(UserError, match=r"has no column kind: .*force=true"):
        _ = DetectorRun(run).results
