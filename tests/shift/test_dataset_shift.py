"""Whole sets: separability and the order by shift."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn.decomposition import PCA

from ood_lab.common.random_streams import Resampling
from ood_lab.shift import bhattacharyya, fit_projection, separability, summarise_degrees


def gaussian(n, mean, scale, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, len(mean), generator=generator) * torch.tensor(scale) + torch.tensor(mean)


def test_bhattacharyya_is_the_integral_of_its_definition():
    # -ln of the integral of sqrt(p q), in one dimension
    a, b = gaussian(50, [0.0], [1.0]), gaussian(60, [1.5], [0.4], seed=1)
    p, q = (stats.norm(float(x.mean()), float(x.std())).pdf for x in (a, b))
    overlap = integrate.quad(lambda x: np.sqrt(p(x) * q(x)), -10, 10)[0]
    assert sum(bhattacharyya(a, b, ridge=1e-12)) == pytest.approx(-np.log(overlap), rel=1e-5)


def test_bhattacharyya_does_not_depend_on_the_axes():
    a = gaussian(100, [0.0, 0, 0], [1.0, 2, 0.5])
    b = gaussian(80, [1.0, -1, 0], [0.5, 1, 1], 1)
    found = sum(bhattacharyya(a, b, ridge=1e-12))
    mix = torch.randn(3, 3, generator=torch.Generator().manual_seed(2))
    assert sum(bhattacharyya(a @ mix + 5, b @ mix + 5, ridge=1e-12)) == pytest.approx(found, 1e-3)
    assert sum(bhattacharyya(b, a, ridge=1e-12)) == pytest.approx(found, rel=1e-6)
    # Written out by hand with numpy
    x, y = a.double().numpy(), b.double().numpy()
    ca, cb = np.cov(x.T), np.cov(y.T)
    c, gap = (ca + cb) / 2, x.mean(0) - y.mean(0)
    mean_term = gap @ np.linalg.inv(c) @ gap / 8
    covariance_term = np.log(np.linalg.det(c) / np.sqrt(np.linalg.det(ca) * np.linalg.det(cb))) / 2
    assert bhattacharyya(a, b, ridge=1e-12) == pytest.approx((mean_term, covariance_term), rel=1e-6)


def test_equal_sets_have_distance_zero_and_flat_ones_are_regularised():
    a = gaussian(50, [0.0, 0], [1.0, 1])
    assert sum(bhattacharyya(a, a)) == pytest.approx(0, abs=1e-12)
    flat = a * torch.tensor([1.0, 0.0])
    assert np.isfinite(sum(bhattacharyya(a, flat)))
    with pytest.raises(ValueError, match="do not vary"):
        bhattacharyya(torch.ones(5, 2), torch.ones(5, 2))


def test_projection_equals_scikit_learn():
    features = gaussian(60, [1.0, 2, 3, 4], [3.0, 2, 1, 0.5])
    projection, theirs = fit_projection(features, 2), PCA(2).fit(features.double().numpy())
    np.testing.assert_allclose(
        projection(features).abs(), np.abs(theirs.transform(features.double().numpy())), atol=1e-8
    )
    np.testing.assert_allclose(projection.variance_share, theirs.explained_variance_ratio_)


def test_sets_are_ordered_by_distance_to_id():
    scale = [1.0] * 6
    sets = {
        "far": gaussian(100, [4.0] * 6, scale, 1),
        "near": gaussian(100, [0.5] * 6, scale, 2),
        "same": gaussian(100, [0.0] * 6, scale, 3),
    }
    found = separability(gaussian(300, [0.0] * 6, scale), sets)
    assert found.table["dataset"].tolist() == ["same", "near", "far"]
    assert (found.table["components"] == 6).all()
    total = found.table["mean_term"] + found.table["covariance_term"]
    np.testing.assert_allclose(found.table["bhattacharyya"], total)
    assert list(found.points) == ["id", "far", "near", "same"]
    assert found.points["far"].shape == (100, 2)
    few = separability(gaussian(300, [0.0] * 6, scale), {"few": sets["far"][:15]})
    assert few.table["components"].tolist() == [3]


def test_components_of_all_features_follow_what_separates_the_sets():
    """ID varies along the first axis only; the set lies along the second, which ID's axes miss."""
    of_id, away = (
        gaussian(200, [0.0, 0, 0], [1.0, 0.01, 0.01]),
        gaussian(200, [0.0, 9, 0], [0.1] * 3, 1),
    )
    both = torch.cat([of_id, away])
    found = separability(of_id, {"away": away}, components=2, axes="all")
    expected = PCA(2).fit(both.numpy()).transform(both.numpy())
    points = torch.cat(list(found.points.values())).numpy()
    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-4)
    assert found.projection.variance_share[0] > 0.9


def test_summary_orders_sets_and_says_which_neighbours_differ():
    rng = np.random.default_rng(0)
    degrees = {
        "c": rng.normal(0.60, 0.1, 301),
        "a": rng.normal(0.30, 0.1, 400),
        "b": rng.normal(0.305, 0.1, 400),
    }
    table = summarise_degrees(degrees, resampling=Resampling(seed=1)).set_index("dataset")
    assert table.index.tolist()[-1] == "c"
    assert table["order"].tolist() == [1, 2, 3]
    for name, values in degrees.items():
        row = table.loc[name]
        assert row["mean"] == pytest.approx(values.mean())
        assert row["median"] == pytest.approx(np.median(values))
        error = values.std(ddof=1) / np.sqrt(len(values))
        half = (row["mean_high"] - row["mean_low"]) / 2
        assert half == pytest.approx(1.96 * error, rel=0.12)
        assert row["median_low"] < row["median"] < row["median_high"]
    assert table["differs_from_next"].iloc[1]
    assert not table["differs_from_next"].iloc[0]
    assert table["differs_from_next"].isna().iloc[2]


@pytest.mark.parametrize("n", [40, 41])
def test_median_intervals_equal_those_of_resamples(n):
    rng = np.random.default_rng(n)
    values = rng.gamma(2, 1, n)
    row = summarise_degrees({"x": values}, resampling=Resampling(draws=20_000)).iloc[0]
    medians = np.median(values[rng.integers(0, n, (20_000, n))], axis=1)
    # The table's intervals are a little wider, by the small-sample correction.
    low, high = np.quantile(medians, [0.022, 0.978])
    assert row["median_low"] == pytest.approx(low, abs=0.08)
    assert row["median_high"] == pytest.approx(high, abs=0.08)


def test_sets_do_not_share_draws_and_keep_their_own():
    values = np.random.default_rng(0).normal(size=50)
    alone = summarise_degrees({"x": values}, resampling=Resampling()).iloc[0]
    both = summarise_degrees({"x": values, "y": values}, resampling=Resampling()).set_index(
        "dataset"
    )
    assert both.loc["x", "mean_low"] == alone["mean_low"]
    assert both.loc["y", "mean_low"] != alone["mean_low"]
