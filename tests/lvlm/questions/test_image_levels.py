"""Measured levels reach the images of questions by content, or by path, never by a bare name."""

import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.data.sources.file_facts import content_hashes
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.lvlm.questions.question_images import with_levels


def noise(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return str(path)


def division(place, paths, levels, hashed=True):
    table = pd.DataFrame({"dataset": "pool", "index": range(len(paths)), "path": paths})
    table = table.assign(semantic_level=levels, covariate_level=0)
    if hashed:
        table = table.assign(sha256=content_hashes(paths))
    table.to_parquet(place / "levels.parquet")
    return str(place / "levels.parquet")


def asking(*images):
    return [Question(str(n), "yes_no", image, "?", "yes") for n, image in enumerate(images)]


def semantic(questions):
    return [question.meta.get("semantic_level") for question in questions]


@pytest.fixture
def pool(tmp_path):
    return [noise(tmp_path / "A" / name, seed) for seed, name in enumerate(("0.png", "1.png"))]


@pytest.mark.parametrize("hashed", [True, False])
def test_images_of_another_data_set_with_the_same_names_are_refused(tmp_path, pool, hashed):
    levels = division(tmp_path, pool, [3, 5], hashed)
    noise(tmp_path / "B" / "0.png", 7)
    noise(tmp_path / "B" / "1.png", 8)
    other = r"no level for 2 of the 2 "
    with pytest.raises(UserError, match=other):
        with_levels(asking("0.png", "1.png"), tmp_path / "B", levels)


def test_a_copy_under_another_name_is_the_same_image(tmp_path, pool):
    levels = division(tmp_path, pool, [3, 5])
    (tmp_path / "C").mkdir()
    shutil.copy(pool[1], tmp_path / "C" / "0.png")
    asked = [*asking("0.png"), *asking(None)]
    assert semantic(with_levels(asked, tmp_path / "C", levels)) == [5, None]


def test_two_images_of_one_name_keep_their_own_levels(tmp_path, pool):
    both = [*pool, noise(tmp_path / "D" / "0.png", 9)]
    levels = division(tmp_path, both, [3, 5, 7])
    assert semantic(with_levels(asking(both[2], both[0]), tmp_path, levels)) == [7, 3]


def test_where_the_division_knows_no_content_the_path_decides(tmp_path, pool):
    levels = division(tmp_path, pool, [3, 5], hashed=False)
    assert semantic(with_levels(asking(*pool), tmp_path, levels)) == [3, 5]
    assert semantic(with_levels(asking("A/1.png"), tmp_path, levels)) == [5]


def test_a_file_that_has_changed_since_has_no_level(tmp_path, pool):
    levels = division(tmp_path, pool, [3, 5])
    noise(tmp_path / "A" / "1.png", 11)
    with pytest.raises(UserError, match="no level for 1 of the 2"):
        with_levels(asking(*pool), tmp_path, levels)


def test_two_levels_for_one_image_are_refused(tmp_path, pool):
    levels = division(tmp_path, [pool[0], pool[0]], [3, 5])
    with pytest.raises(UserError, match=r"two different levels for the image '.*0\.png'"):
        with_levels(asking(pool[0]), tmp_path, levels)
