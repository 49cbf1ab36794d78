"""A run folder that was moved with its images is scored again, and asked again."""

import shutil

import pandas as pd
import pytest
from cli import call, run_folders

from ood_lab.lvlm.questions.question_files import read_questions
from ood_lab.schema.results import read_results

LINE = ("task=oodbench", "annotations.n=60", "metrics.n_bootstrap=20", "logger=none", "lvlm=random")
LINE += ("task.report=false", "metrics.min_count=2")


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """A folder with a run and its images, which was another one when the run was made."""
    old = tmp_path_factory.mktemp("moved") / "old"
    assert call("eval.py", *LINE, f"paths.outputs={old}/out") == 0
    return shutil.move(old, old.with_name("new"))


@pytest.mark.slow
def test_a_moved_run_is_scored_and_asked_again(new, tmp_path):
    (moved,) = run_folders(new)
    image = next(q.image for q in read_questions(moved / "questions.jsonl"))
    assert str(image).startswith(str(new.with_name("old")))
    given = f"task.questions={moved}/questions.jsonl"
    answers = f"task.answers={moved}/answers.jsonl"
    assert call("eval.py", *LINE, given, answers, f"paths.outputs={tmp_path}/a") == 0
    assert call("eval.py", *LINE, given, f"paths.outputs={tmp_path}/b") == 0
    before = read_results(moved)
    for outputs in ("a", "b"):
        (run,) = run_folders(tmp_path / outputs)
        again = read_results(run)
        pd.testing.assert_frame_equal(again[["value", "n"]], before[["value", "n"]])
        files = pd.read_parquet(run / "judged.parquet")["file"]
        assert files.str.startswith(str(new)).all()


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["images", "manifest"])
def test_images_that_did_not_come_along_are_one_line(lost, new, tmp_path, capsys):
    (run,) = run_folders(new)
    shutil.copytree(new if lost == "manifest" else run, tmp_path / "copy")
    file = next((tmp_path / "copy").rglob("questions.jsonl"))
    if lost == "manifest":
        (file.parent / "manifest.json").unlink()
    given = f"task.questions={file}"
    assert call("eval.py", *LINE, given, f"paths.outputs={tmp_path}/a") == 1
    assert "cannot be read" in capsys.readouterr().err
