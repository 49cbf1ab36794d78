import numpy as np
import pytest

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.image_generation.photographs import distances_to_natural, feature_clouds


def test_the_ratio_is_one_for_images_as_near_as_natural_ones():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 8))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    table = distances_to_natural(
        {"natural": features[:100], "made": features[100:], "far": -features[:2]},
        {},
        resampling=Resampling(),
    )
    ratio = table.set_index("dataset")["ratio"]
    assert ratio["natural"] == 1
    assert ratio["made"] == pytest.approx(1, abs=0.2)


def test_the_distance_of_made_images_has_an_interval_and_is_in_the_legend():
    rng = np.random.default_rng(0)
    natural, made = rng.normal(size=(50, 8)), rng.normal(size=(60, 8)) + 0.5
    natural, made = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (natural, made))
    pairs = np.repeat([f"pair {n}" for n in range(20)], 3)
    sets = {"natural": natural, "long_tail": made}
    table = distances_to_natural(
        sets, {"long_tail": pairs}, resampling=Resampling(draws=4000, seed=0)
    )
    row = table.set_index("dataset").loc["long_tail"]
    nearest = [min(1 - float(a @ b) for b in natural) for a in made]
    of_pairs = np.reshape(nearest, (20, 3)).mean(axis=1)
    means = of_pairs[np.random.default_rng(5).integers(20, size=(4000, 20))].mean(axis=1)
    assert row["distance"] == pytest.approx(np.mean(nearest))
    ends = np.quantile(means, [0.025, 0.975])
    assert [row["ci_low"], row["ci_high"]] == pytest.approx(ends, abs=0.006)
    figure = feature_clouds(sets, table, "")
    words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    shown = f"long-tail (n=60), distance {row['distance']:.3f} "
    assert words[1] == f"{shown}[{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
