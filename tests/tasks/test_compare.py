"""`task=compare`, as a user calls it."""

import json
import os

import pandas as pd
import pytest
from cli import call
from finished_runs import IDENTITY, add_grid, add_verdict, write_run

FILES = {f"leaderboard.{kind}" for kind in ("csv", "md", "tex", "html")}
FILES |= {"leaderboard_dad.png", "leaderboard_dad.svg"}


@pytest.fixture
def outputs(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / "one" / "aaaa", {"knn": (0.7 + seed / 50, 0.8)}, seed=seed)
    write_run(tmp_path / "two" / "bbbb", {"knn": (0.9, 0.8), "vim": (0.8, 0.8)}, model="big")
    unfinished = write_run(tmp_path / "two" / "cccc", {"knn": (0.9, 0.8)})
    (unfinished / "DONE").unlink()
    return tmp_path


def compare(outputs, *arguments, figures=()):
    line = ("task=compare", f"paths.outputs={outputs / 'made'}", "logger=none", *arguments)
    status = call("eval.py", *line, figures=figures)
    made = sorted((outputs / "made" / "leaderboard").glob("*/seed=0/leaderboard*"))
    return status, made


def without_detectors(outputs):
    """A run of a task that scores none."""
    other = write_run(outputs / "clip" / "eeee", {"laid_semantic": (0.6, 0.7)})
    manifest = json.loads((other / "manifest.json").read_text())
    del manifest["detectors"]
    (other / "manifest.json").write_text(json.dumps(manifest))
    return other


@pytest.mark.slow
def test_one_leaderboard_of_a_glob(outputs, capsys):
    other = without_detectors(outputs)
    # No data, no backbone: the model's weights do not even exist.
    status, made = compare(outputs, f"runs={outputs}/**", figures=["leaderboard_dad"])
    out, error = capsys.readouterr()
    assert status == 0, error
    assert {p.name for p in made} == FILES
    table = pd.read_csv(made[0].parent / "leaderboard.csv")
    assert set(table.run) == {"one/aaaa", "two/bbbb"}
    assert set(table[table.run == "one/aaaa"].n_seeds) == {2}
    assert "FPR95 = share of ID flagged" in out
    assert "left out, as no detector was scored there" in " ".join(out.split())
    status, _ = compare(outputs, f"runs={other}")
    assert status == 1
    assert "no detector was scored in" in capsys.readouterr().err


def test_the_verdict_comes_last_in_the_terminal_and_first_on_the_page(outputs, capsys):
    found = {"knn": 0.8, "vim": 0.7}
    for seed in (0, 1):
        add_verdict(outputs / "one" / "aaaa" / f"seed={seed}", {"knn": 0.75}, recommended="knn")
    add_verdict(outputs / "two" / "bbbb" / "seed=0", found, recommended="knn")
    status, made = compare(outputs, f"runs={outputs}/**")
    out = capsys.readouterr().out
    assert status == 0
    assert {p.name for p in made} == FILES | {"leaderboard_verdict.csv"}
    lines = out[out.index("Verdict by configuration") :].splitlines()
    assert len(lines) <= 25
    assert "In %, ID test" not in out  # the table of all detectors is on the page
    assert "no verdict" not in out
    page = (made[0].parent / "leaderboard.html").read_text()
    assert page.index("Verdict by configuration") < page.index("In %, ID test")
    assert (made[0].parent / "leaderboard.md").read_text().startswith("Verdict by configuration")
    compare(outputs, f"runs={outputs}/**", "detector_table=all")
    out = capsys.readouterr().out
    assert 0 < out.index("In %, ID test") < out.index("Verdict by configuration")


def test_runs_without_a_verdict_are_shown_with_one_line_more(outputs, capsys):
    compare(outputs, f"runs={outputs}/**")
    out = " ".join(capsys.readouterr().out.split())
    assert "3 runs have no verdict: a run without ID accuracy above chance has none." in out
    assert "In %, ID test" in out
    assert "Verdict by configuration" not in out


def test_a_list_of_folders(outputs):
    status, made = compare(outputs, f"task.runs=[{outputs}/one/aaaa,{outputs}/two]")
    assert status == 0
    assert len(pd.read_csv(made[0].parent / "leaderboard.csv").run.unique()) == 2


ODD = {
    "positive class of FPR95": ("two", {"fpr95_positive": "id"}),
    "evaluated sets": ("two", {"sets": ("near", "grid")}),
    "content of the data (far)": ("two", {"data": IDENTITY | {"far": "other"}}),
    "though configuration and seed are the same": ("copy/one", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("reason", ODD)
def test_the_odd_one_has_a_table_of_its_own(reason, outputs, capsys):
    place, change = ODD[reason]
    folder = outputs / place / ("aaaa" if place == "copy/one" else "dddd")
    other = write_run(folder, {"knn": (0.6, 0.5)}, **change)
    status, made = compare(outputs, f"runs={outputs}/**")
    assert status == 0
    assert {p.name for p in made} == FILES | {f.replace("board", "board-2") for f in FILES}
    tables = {p.stem: pd.read_csv(p) for p in made if p.suffix == ".csv"}
    assert set(tables["leaderboard"].run) == {"one/aaaa", "two/bbbb"}
    assert set(tables["leaderboard-2"].run) == {"/".join(folder.parts[-2:])}
    line = f"leaderboard-2: {other} cannot share a table with"
    pages = [p.read_text() for p in made if p.suffix == ".html"]
    for text in (capsys.readouterr().out, *pages):
        flat = "".join(text.split())  # a terminal breaks lines anywhere
        assert "".join(line.split()) in flat
        assert "".join(reason.split()) in flat


def test_a_neighbour_changes_nothing(outputs):
    """A run that evaluated a whole grid beside its sets has the mean that its own page has."""
    grid = write_run(
        outputs / "grid" / "eeee", {"vim": (0.9, 0.7, 0.2)}, sets=("near", "far", "grid")
    )
    add_grid(grid)
    only = write_run(outputs / "only" / "ffff", {"vim": (0.2,)}, sets=("grid",))
    _, made = compare(outputs, f"runs=[{grid.parent},{only.parent}]")
    tables = {p.stem: pd.read_csv(p) for p in made if p.suffix == ".csv"}
    mean = tables["leaderboard"].query("dataset == 'mean' and metric == 'auroc'")
    assert mean.value.item() == pytest.approx(0.8)
    assert set(tables["leaderboard-2"].dataset.dropna()) == {"grid"}


def test_equal_results_appear_once(outputs, capsys):
    """Evaluations of the same weights, under other names and seeds, and a copy of a run."""
    backbone = {"backbone": {"weights_sha256": "w"}}
    aurocs = {"knn": (0.9, 0.8), "vim": (0.8, 0.7)}
    for seed in (0, 1):
        write_run(outputs / "train" / "t", aurocs, seed=seed, **backbone)
    again = write_run(outputs / "eval" / "e", aurocs, half=0.02, **backbone)
    one = write_run(outputs / "eval" / "f", {"knn": aurocs["knn"]}, **backbone)
    other_seed = again.rename(again.with_name("seed=5"))
    other = write_run(
        outputs / "eval" / "g", {"knn": (0.91, 0.8), "vim": aurocs["vim"]}, **backbone
    )
    copy = write_run(outputs / "copy" / "train" / "t", aurocs, **backbone)
    runs = (outputs / "train", *(run.parent for run in (one, other_seed, other, copy)))
    status, made = compare(outputs, f"task.runs=[{','.join(map(str, runs))}]")
    assert status == 0
    assert {p.name for p in made} == FILES
    table = pd.read_csv(made[0].parent / "leaderboard.csv").dropna(subset=["detector"])
    shown = table[["run", "detector", "seeds"]].astype(str).drop_duplicates().to_numpy().tolist()
    assert sorted(shown) == [
        ["eval/g", "knn", "0"],
        ["train/t", "knn", "0 1"],
        ["train/t", "vim", "0 1"],
    ]
    assert "only repeat numbers of others" in " ".join(capsys.readouterr().out.split())


WRONG = {
    "nothing there": ("runs={0}/nowhere*", "matches no folder"),
    "nothing finished": ("runs={0}/two/cccc", "contains no finished run"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_runs_are_one_line(case, outputs, capsys):
    argument, named = WRONG[case]
    assert_one_line(outputs, argument.format(outputs), named, capsys)


def assert_one_line(outputs, argument, named, capsys):
    status, made = compare(outputs, argument)
    error = capsys.readouterr().err.strip()
    assert status == 1
    assert named in error
    assert len(error.splitlines()) == 1
    assert not made


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def cut_between_lines(path):
    path.write_text(path.read_text().split("paths")[0])


def zero_some(path):
    content = path.read_bytes()
    path.write_bytes(content[:300] + bytes(100) + content[400:])


DAMAGES = [
    ("config.yaml", os.remove, "has no config.yaml"),
    ("config.yaml", cut_between_lines, "config.yaml is damaged"),
    ("manifest.json", cut, "manifest.json is damaged"),
    ("results.parquet", cut, "results.parquet is damaged"),
    ("results.parquet", zero_some, "results.parquet is damaged"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "damage", "named"), DAMAGES)
def test_a_damaged_run_is_one_line_that_names_the_file(file, damage, named, outputs, capsys):
    run = outputs / "one" / "aaaa" / "seed=1"
    damage(run / file)
    gap = " " if named.startswith("has") else "/"
    assert_one_line(outputs, f"runs={outputs}", f"{run}{gap}{named}", capsys)
