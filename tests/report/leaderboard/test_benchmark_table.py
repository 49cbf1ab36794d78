import json
import math

import pandas as pd
import pytest
from rich.console import Console

from ood_lab.common.errors import UserError
from ood_lab.report.leaderboard.benchmark_table import (
    answer_board,
    benchmark_runs,
    board_page,
    board_sentences,
    board_tables,
    both_ways,
)
from ood_lab.report.rendering.terminal import Printed
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import Kind, write_results
from ood_lab.schema.run_record import RunRecord

KIND = Kind("toy", "pair", ("split", "part", "n_asked", "n_unparsed", "n_cut", "n_failed"))
NAMES = {
    "OODBench": [
        ("id", "accuracy", "ID Acc"),
        ("ood_s", "accuracy", "OOD-S Acc"),
        ("ood_h", "accuracy", "OOD-H Acc"),
    ],
    "ORIC": [("oric", "macro_f1", "ORIC F1")],
    "ODE": [("pooled", "chair", "CHAIR"), ("fictional", "chair", "fictional CHAIR")],
}


def run_folder(folder, model, splits, metric, benchmark="OODBench", about=(), **more):
    folder.mkdir(parents=True)
    counts = {"n_asked": 100, "n_unparsed": 0, "n_cut": 0, "n_failed": 0, "n": 50}
    rows = [
        {
            "split": split,
            "semantic_level": level,
            "metric": metric,
            "value": value,
            "ci_low": value - 0.1,
            "ci_high": value + 0.1,
            **counts,
            **more,
        }
        for split, value in splits.items()
        for level in (None, 3.0)
    ]
    write_results(KIND.table(rows, model=model, seed=0), folder)
    manifest = {
        "questions": {"n": 250, "images": 40, "sha256": "0" * 64} | dict(about),
        "title": f"{model} somewhere",
        "benchmark": {
            "name": benchmark,
            "about": "scenes",
            "page": "toy.html",
            "headlines": NAMES[benchmark],
            "lower_is_better": {"accuracy": False, "macro_f1": False, "chair": True},
        },
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def runs_of(*folders):
    return benchmark_runs([FinishedRun(folder) for folder in folders])


@pytest.fixture
def runs(tmp_path):
    accuracy = {"id": 0.9, "ood_s": 0.7, "ood_h": 0.6}
    return [
        run_folder(tmp_path / "a", "tiny", accuracy, "accuracy"),
        run_folder(tmp_path / "b", "other", {"id": 0.5}, "accuracy"),
        run_folder(tmp_path / "c", "tiny", {"oric": 0.4}, "macro_f1", "ORIC"),
        run_folder(tmp_path / "d", "tiny", {"pooled": 0.2}, "chair", "ODE"),
    ]


def test_headlines_of_all_benchmarks(runs):
    board = answer_board(runs_of(*runs))
    assert set(board["benchmark"]) == {"OODBench", "ORIC", "ODE"}
    found = board.set_index(["benchmark", "model", "column"])["value"]
    assert found["OODBench", "tiny", "OOD-H Acc"] == 0.6
    assert found["OODBench", "other", "ID Acc"] == 0.5
    assert found["ORIC", "tiny", "ORIC F1"] == 0.4
    assert found["ODE", "tiny", "CHAIR"] == 0.2
    assert len(board) == 6  # no level of shift among them


@pytest.fixture
def two_sizes(tmp_path):
    """The runs of one model: 600 images twice, and 40 images; what was asked differs."""

    def run(place, model, value, n, images, digest):
        about = {"n": n, "images": images, "sha256": digest * 64}
        folder = tmp_path / "x" / place / "seed=0"
        return run_folder(folder, model, {"id": value}, "accuracy", about=about)

    return [
        run("1", "tiny", 0.9, 3910, 600, "a"),
        run("2", "tiny", 0.8, 3910, 600, "a"),
        run("3", "tiny", 0.3, 240, 40, "b"),
        run("4", "big", 0.7, 240, 40, "b"),
    ]


def shown(board):
    """The board in a terminal."""
    console = Console(record=True, width=100)
    console.print(Printed(board_tables(board)))
    return console.export_text()


def page_of(board, runs, folder):
    page = board_page(board_tables(board), runs, RunRecord(title="All"))
    return page.write(folder / "benchmarks.html")


def test_no_run_of_a_model_is_left_out(two_sizes):
    board = answer_board(runs_of(*two_sizes))
    assert board["value"].tolist() == [0.9, 0.8, 0.3, 0.7]
    assert board["label"].tolist() == ["tiny (1/seed=0)", "tiny (2/seed=0)", "tiny", "big"]
    assert board["data"].tolist() == ["scenes"] * 4
    assert board["questions"].tolist() == [3910, 3910, 240, 240]
    assert board["images"].tolist() == [600, 600, 40, 40]
    assert board["n"].tolist() == [50] * 4


def test_runs_that_were_asked_other_questions_have_tables_of_their_own(two_sizes, tmp_path):
    found = runs_of(*two_sizes)
    board = answer_board(found)
    text = shown(board)
    html = page_of(board, found, tmp_path).read_text()
    for title in (
        "OODBench on scenes, 3,910 questions about 600 images, %",
        "OODBench on scenes, 240 questions about 40 images, %",
    ):
        assert title in text
        assert f"<caption>{title}</caption>" in html
    assert "tiny (1/seed=0)      3,910  90.0±10.0" in text
    assert html.count(">3,910</td>") == 2
    assert html.count(">240</td>") == 2


def test_terminal_and_page_show_what_is_missing(runs, tmp_path):
    found = runs_of(*runs)
    board = answer_board(found)
    text = shown(board)
    assert "60.0±10.0" in text
    assert "other" in text
    page = page_of(board, found, tmp_path)
    html = page.read_text()
    assert "All" in html
    assert "fictional" not in html  # nobody was measured on it


def said(*folders, tests=(), draws=1000):
    """``tests``: ``a, b, metric, split, value_a, value_b, p_value, p_holm``."""
    names = ["a", "b", "metric", "split", "value_a", "value_b", "p_value", "p_holm"]
    table = pd.DataFrame(tests, columns=names).assign(ci_low=0.1, ci_high=0.2)
    runs = runs_of(*folders)
    return list(board_sentences(answer_board(runs), runs, both_ways(table, draws)))


def test_who_is_ahead_and_whether_tests_say_so(tmp_path):
    values = {"a": (0.9, 0.7, 0.6), "b": (0.8, 0.7, 0.61), "c": (0.5, 0.4, 0.3)}
    folders = [
        run_folder(
            tmp_path / model,
            model,
            dict(zip(("id", "ood_s", "ood_h"), of, strict=True)),
            "accuracy",
        )
        for model, of in values.items()
    ]
    tests = [("b", "a", "accuracy", "id", 0.8, 0.9, 0.01, 0.03)]
    tests += [("a", "c", "accuracy", "id", 0.9, 0.5, 0.01, 0.03)]
    tests += [("b", "a", "accuracy", "ood_h", 0.61, 0.6, 0.5, 0.9)]
    tests += [("b", "c", "accuracy", "ood_h", 0.61, 0.3, 0.01, 0.03)]
    many, ahead = said(*folders, tests=tests)
    assert many == "3 runs asked 3 models 1 set of questions (95% intervals in brackets)."
    assert ahead == (
        "On OODBench (scenes, 250 questions) a is ahead in ID Acc (90.0% [80.0, 100.0]), "
        "significantly ahead of b and c; a and b are level in OOD-S Acc (70.0% [60.0, 80.0]); b is "
        "ahead in OOD-H Acc (61.0% [51.0, 71.0]), but not significantly ahead of a."
    )
    unknown = "a is ahead in ID Acc (90.0% [80.0, 100.0]), and whether that is chance is not known;"
    few = [(*row[:6], 1 / 101, 0.2) for row in tests]  # the least p-value of the draws
    for others, draws in (
        (tests[:1], 1000),  # of c there is no test
        ([(*tests[0][:4], 0.8, 0.91, *tests[0][6:]), tests[1]], 1000),  # of another run of a
        ([(*row[:3], "ood_s", *row[4:]) for row in tests], 1000),
        (few, 100),
        ([], 1000),
    ):
        assert unknown in said(*folders, tests=others, draws=draws)[1]


def test_less_is_better_where_the_benchmark_says_so(tmp_path):
    for model, value in (("a", 0.2), ("b", 0.1)):
        run_folder(tmp_path / model, model, {"pooled": value, "hal": value}, "chair", "ODE")
    assert " b is ahead in CHAIR (10.0% [" in said(tmp_path / "a", tmp_path / "b")[1]


def test_of_many_sets_those_of_several_runs_are_told(tmp_path):
    def lone(place, digest, model="tiny"):
        about = {"sha256": digest * 64}
        return run_folder(tmp_path / place, model, {"id": 0.5}, "accuracy", about=about)

    folders = [lone(digest, digest) for digest in "abcde"]
    assert said(*folders)[1:] == ["There is a single run of each set."]
    *_, twice, others = said(*folders, lone("twice", "a", "big"))
    assert "tiny and big are level in ID Acc (50.0% [" in twice
    assert others == "There is a single run of each other set."


def test_one_run_and_missing_numbers_are_told_too(tmp_path):
    lone = run_folder(tmp_path / "a", "tiny", {"id": 0.5, "ood_s": math.nan}, "accuracy")
    about = "On OODBench (scenes, 250 questions)"
    assert said(lone) == [
        "1 run asked 1 model 1 set of questions (95% intervals in brackets).",
        f"{about} only tiny has answers, with ID Acc (50.0% [40.0, 60.0]); no run has a value of "
        "OOD-S Acc.",
    ]
    other = run_folder(tmp_path / "b", "big", {"id": math.nan}, "accuracy", ci_low=math.nan)
    assert said(other) == [
        "1 run asked 1 model 1 set of questions.",
        f"{about} no run has a value of ID Acc.",
    ]
    few = run_folder(tmp_path / "c", "few", {"ood_s": 0.4}, "accuracy", ci_low=math.nan)
    assert said(lone, other, few)[1] == (
        f"{about} only tiny has a value of ID Acc (50.0% [40.0, 60.0]); only few has a value of "
        "OOD-S Acc (40.0% (too few for an interval))."
    )


def test_runs_of_detectors_alone_are_refused(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match="no run of a vision-language model"):
        runs_of(folder)


def test_what_is_missing_has_a_reason_and_no_interval(tmp_path):
    sizes = {"n_unparsed": 100, "n_failed": 0}
    silent = run_folder(tmp_path / "a", "tiny", {"id": math.nan}, "accuracy", **sizes)
    found = runs_of(silent)
    board = answer_board(found)
    text = shown(board)
    html = page_of(board, found, tmp_path).read_text()
    assert "nan" not in text
    assert "N/A of tiny ID Acc: no answer could be read." in text
    assert "N/A of tiny ID Acc: no answer could be read." in html
    assert "show 95% intervals" not in html  # there are none
