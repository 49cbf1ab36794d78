"""`task=compare`, as a user calls it."""

import json

import pandas as pd
import pytest
from cli import call
from finished_runs import write_run

FILES = {f"leaderboard.{kind}" for kind in ("csv", "md", "tex", "html")}


@pytest.fixture
def outputs(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / "one" / "aaaa", {"knn": (0.7 + seed / 50, 0.8)}, seed=seed)
    write_run(tmp_path / "two" / "bbbb", {"knn": (0.9, 0.8), "vim": (0.8, 0.8)}, model="big")
    unfinished = write_run(tmp_path / "two" / "cccc", {"knn": (0.9, 0.8)})
    (unfinished / "DONE").unlink()
    return tmp_path


def compare(outputs, *arguments):
    status = call(
        "eval.py", "task=compare", f"paths.outputs={outputs / 'made'}", "logger=none", *arguments
    )
    made = sorted((outputs / "made" / "leaderboard").glob("*/seed=0/leaderboard*"))
    return status, made


def without_detectors(outputs):
    """A run of a task that scores none."""
    other = write_run(outputs / "clip" / "eeee", {"laid_semantic": (0.6, 0.7)})
    manifest = json.loads((other / "manifest.json").read_text())
    del manifest["detectors"]
    (other / "manifest.json").write_text(json.dumps(manifest))
    return other


def test_one_leaderboard_of_a_glob(outputs, capsys):
    other = without_detectors(outputs)
    # No data, no backbone: the model's weights do not even exist.
    status, made = compare(outputs, f"runs={outputs}/**")
    out, error = capsys.readouterr()
    assert status == 0, error
    assert {p.name for p in made} == FILES
    table = pd.read_csv(made[0].parent / "leaderboard.csv")
    assert set(table.run) == {"one/aaaa", "two/bbbb"}
    assert set(table[table.run == "one/aaaa"].n_seeds) == {2}
    assert "FPR95 = share of ID rejected" in out
    assert "left out, as no detector was scored there" in " ".join(out.split())
    status, _ = compare(outputs, f"runs={other}")
    assert status == 1
    assert "no detector was scored in" in capsys.readouterr().err


def test_a_list_of_folders(outputs):
    status, made = compare(outputs, f"task.runs=[{outputs}/one/aaaa,{outputs}/two]")
    assert status == 0
    assert len(pd.read_csv(made[0].parent / "leaderboard.csv").run.unique()) == 2


def test_refuses_to_mix_and_can_split(outputs, capsys):
    other = write_run(outputs / "two" / "dddd", {"knn": (0.9, 0.8)}, protocol="hendrycks")
    status, made = compare(outputs, f"runs={outputs}/*")
    assert status == 1
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert str(other) in error
    assert "metric protocol" in error
    assert not made
    status, made = compare(outputs, f"runs={outputs}/*", "task.split=true")
    assert status == 0
    assert len(made) == 2 * len(FILES)
    protocols = [set(pd.read_csv(p).protocol) for p in made if p.suffix == ".csv"]
    assert protocols == [{"openood"}, {"hendrycks"}]


WRONG = {
    "nothing there": ("runs={0}/nowhere*", "matches no folder"),
    "nothing finished": ("runs={0}/two/cccc", "holds no finished run"),
    "a copy": ("runs={0}", "same configuration and seed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_runs_are_one_line(case, outputs, capsys):
    write_run(outputs / "copy" / "one" / "aaaa", {"knn": (0.7, 0.8)})
    argument, named = WRONG[case]
    status, made = compare(outputs, argument.format(outputs))
    error = capsys.readouterr().err.strip()
    assert status == 1
    assert named in error
    assert len(error.splitlines()) == 1
    assert not made
