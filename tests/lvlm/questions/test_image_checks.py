"""Damaged images are named before a chat model is asked."""

import numpy as np
import pytest
from cli import call
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.oric.published_files import OricItem, problem_of, write_bench
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.lvlm.questions.question_images import check_whole


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    noise = np.random.default_rng(0)
    for n in range(3):
        pixels = noise.integers(0, 255, (64, 80, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{n}.jpg")
    return folder


def cut(file):
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def asking(n):
    return [Question(str(i), "yes_no", f"{i}.jpg", "?", "yes") for i in range(n)]


def test_whole_images_pass_and_damaged_ones_are_named(photos, tmp_path):
    check_whole([*asking(3), Question("text", "yes_no", None, "?", "no")], photos, tmp_path)
    check_whole([Question("text", "yes_no", None, "?", "no")], photos, tmp_path)
    cut(photos / "1.jpg")
    with pytest.raises(UserError, match=r"1 of the 3 images .*1\.jpg' for one \(.*truncated"):
        check_whole(asking(3), photos, tmp_path)
    (photos / "0.jpg").write_text("<html>")
    with pytest.raises(UserError, match=r"2 of the 3 .*0\.jpg' for one \(cannot identify"):
        check_whole(asking(3), photos, tmp_path)
    with pytest.raises(UserError, match=r"3\.jpg' for one \(.*No such file"):
        check_whole(asking(4)[3:], photos, tmp_path)


@pytest.mark.slow
def test_a_truncated_image_under_a_published_bench_stops_before_asking(photos, tmp_path, capsys):
    cut(photos / "2.jpg")
    labels = enumerate(("yes", "no", "yes"), 1)
    items = [OricItem(n, f"{n - 1}.jpg", "dog", problem_of("dog"), label) for n, label in labels]
    write_bench(items, tmp_path / "bench.json")
    given = (f"task.bench={tmp_path}/bench.json", f"task.images={photos}", "task.pope=[]")
    places = (f"paths.outputs={tmp_path}/out", f"paths.cache={tmp_path}/cache", "logger=none")
    assert call("eval.py", "task=oric", *given, "lvlm=random", *places) == 1
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert "2.jpg" in error
    assert "truncated" in error
    assert not list((tmp_path / "out").rglob("answers.jsonl"))
