"""Scenes among the images of a run, and copies of training images in other sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu

import ood_lab
from ood_lab.features.bank import FeatureBank


def _bank(rows: np.ndarray, each: bool = False) -> FeatureBank:
    groups = np.arange(len(rows)) + round(1e6 * abs(rows.sum())) * 1000 if each else None
    return ood_lab.features_from_arrays(rows, groups=groups)


def _frames(scenes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return scenes + 0.15 * random.normal(size=scenes.shape)


def _auroc(scores: pd.DataFrame, name: str) -> float:
    of_id, of_ood = (scores.loc[scores["dataset"] == n, "knn"] for n in ("test", name))
    return mannwhitneyu(of_ood, of_id).statistic / len(of_id) / len(of_ood)


def test_scenes_count_once_and_copies_of_training_images_stand_beside() -> None:
    random = np.random.default_rng(0)
    scenes = random.normal(size=(40, 24))
    train = np.concatenate([_frames(scenes, random), _frames(scenes, random)])
    test = np.concatenate([random.normal(size=(50, 24)), _frames(scenes[:4], random)])
    other = np.concatenate([1 + random.normal(size=(30, 24)), _frames(scenes[5:15], random)])
    sets = {"val": random.normal(size=(30, 24)), "detectors": ["knn"], "n_bootstrap": 100}
    result = ood_lab.evaluate(train, test, {"other": other, "clean": other[:30]}, **sets)
    text = "\n".join(result.warnings)
    assert "164 images look like 120 scenes; each scene counts once." in text
    assert "4 of 54 images of test look like copies of training images." in text
    assert "10 of 40 images of other look like copies of training images." in text
    assert "clean look" not in text
    copies = {("test", row) for row in range(50, 54)} | {("other", row) for row in range(30, 40)}
    keys = zip(result.scores["dataset"], result.scores["index"], strict=True)
    left = result.scores[[key not in copies for key in keys]]
    for name in ("other", "clean"):
        both, without = (100 * _auroc(scores, name) for scores in (result.scores, left))
        expected = f"AUROC of knn on {name}: {both:.1f}%, without copies of training images "
        assert f"{expected}{without:.1f}%." in text
    assert result.detectors["knn"].describe()["k"] == 1


def test_groups_of_single_images_change_nothing_where_nothing_is_found() -> None:
    random = np.random.default_rng(1)
    sizes = {"train": 80, "test": 60, "val": 30, "other": 40}
    rows = {name: random.normal(size=(n, 24)) for name, n in sizes.items()}
    results = []
    for each in (False, True):
        train, test, val, other = (_bank(of, each) for of in rows.values())
        settings = {"detectors": ["knn"], "n_bootstrap": 100}
        results.append(ood_lab.evaluate(train, test, {"other": other}, val=val, **settings))
    pd.testing.assert_frame_equal(results[0].results, results[1].results)
    assert not any("copies" in text or "scene" in text for text in results[0].warnings)


def test_groups_that_are_given_are_all_that_count() -> None:
    random = np.random.default_rng(2)
    scenes = random.normal(size=(30, 24))
    frames = np.concatenate([_frames(scenes, random), _frames(scenes, random)])
    single, others = _bank(frames, each=True), random.normal(size=(40, 24))
    sets = {"val": others[:20], "detectors": ["knn"], "n_bootstrap": 100}
    result = ood_lab.evaluate(single, others[20:], {"other": 2 + others}, **sets)
    assert not any("scene" in text for text in result.warnings)
