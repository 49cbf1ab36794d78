"""The results table: its rows, its numbers, its missing cells."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ood_lab.common import cpu_cores
from ood_lab.metrics import (
    Evaluation,
    aupr,
    auroc,
    best_detectors,
    dad,
    delong,
    delong_p_values,
    fpr_at_tpr,
    results_of,
    significance_of,
)
from ood_lab.metrics.resampling import stratified_bootstrap
from ood_lab.metrics.results_rows import KIND
from ood_lab.schema.results import CORE

DETECTORS = ["weak", "strong"]
ORDER = ["near", "mid", "far"]
RNG = np.random.default_rng(0)


def part(name, n, shift, semantic=-1, covariate=-1):
    label = RNG.integers(0, 4, n) if name == "test" else np.full(n, -1)
    return pd.DataFrame(
        {
            "dataset": name,
            "index": range(n),
            "path": [f"{name}/{i}.png" for i in range(n)],
            "label": label,
            "pred": np.where(np.arange(n) % 10 == 0, 9, label),
            "semantic_level": semantic,
            "covariate_level": covariate,
            "weak": RNG.normal(0.5 * shift, 1, n),
            "strong": RNG.normal(1.5 * shift, 1, n),
        }
    )


# One cell has too few samples, one does not exist.
CELLS = {(s, c): 30 for s in range(3) for c in range(3)} | {(1, 2): 4}
del CELLS[2, 2]
SCORES = pd.concat(
    [
        part("grid", n, 0.5 * s + 0.3 * c, s, c) if name == "grid" else part(name, n, s)
        for name, n, s, c in [
            ("far", 110, 2, None),
            ("test", 200, 0, None),
            ("near", 120, 0.5, None),
            ("mid", 130, 1, None),
            ("other", 100, 1, None),
            *(("grid", n, s, c) for (s, c), n in CELLS.items()),
        ]
    ],
    ignore_index=True,
)


def results_table(scores, detectors, model, **options):
    return results_of(Evaluation(scores, detectors, **options), model)


OPTIONS = {"seed": 3, "shift_order": ORDER, "n_bootstrap": 60}


@pytest.fixture(scope="module")
def table():
    return results_table(SCORES, DETECTORS, model="net", **OPTIONS)


def of(name, detector, rows=None):
    rows = SCORES["dataset"] == name if rows is None else rows
    return SCORES.loc[rows, detector].to_numpy()


def cell(semantic, covariate):
    return (
        (SCORES["dataset"] == "grid")
        & (SCORES["semantic_level"] == semantic)
        & (SCORES["covariate_level"] == covariate)
    )


def pick(table, **where):
    for column, value in where.items():
        same = table[column].isna() if value is None else table[column] == value
        table = table[same]
    return table


def one(table, **where):
    row = pick(table, **where)
    assert len(row) == 1, (where, row)
    return row.iloc[0]


WHOLE = {"semantic_level": None, "covariate_level": None}


def test_columns_and_constants(table):
    assert list(table.columns) == [*CORE, *KIND.keys]
    assert set(table["model"]) == {"net"}
    assert set(table["seed"]) == {3}
    assert set(table["n_id"]) == {200}
    assert table.attrs["fpr95_positive"] == "ood"
    keys = [c for c in table if c not in ("value", "ci_low", "ci_high")]
    assert not table.duplicated(keys).any()


@pytest.mark.parametrize("positive", ["ood", "id"])
def test_set_rows_are_the_metrics(positive):
    table = results_table(SCORES, DETECTORS, model="net", fpr95_positive=positive, **OPTIONS)
    method = {"ood": "trapezoid", "id": "average_precision"}[positive]
    for ood in [*ORDER, "other", "grid"]:
        for detector in DETECTORS:
            i, o = of("test", detector), of(ood, detector)
            expected = {
                "auroc": auroc(i, o),
                "fpr95_id_positive": fpr_at_tpr(i, o, positive="id"),
                "fpr95_ood_positive": fpr_at_tpr(i, o, positive="ood"),
                "aupr_in": aupr(i, o, "in", method),
                "aupr_out": aupr(i, o, "out", method),
            }
            expected["fpr95"] = expected[f"fpr95_{positive}_positive"]
            rows = pick(table, dataset=ood, detector=detector, **WHOLE).set_index("metric")
            for metric, value in expected.items():
                assert rows.loc[metric, "value"] == pytest.approx(value)
                assert rows.loc[metric, "n_ood"] == len(o)
                assert 0 <= rows.loc[metric, "ci_low"] < rows.loc[metric, "ci_high"] <= 1


def test_shift_level_is_the_place_in_the_order(table):
    levels = table.dropna(subset="dataset").groupby("dataset")["shift_level"].unique()
    assert [levels[name].tolist() for name in ORDER] == [[1], [2], [3]]
    assert np.isnan(levels["other"]).all()
    assert np.isnan(levels["grid"]).all()


def test_dad_is_over_the_headline_fpr_in_shift_order(table):
    for detector in DETECTORS:
        fpr = [
            one(table, dataset=o, detector=detector, metric="fpr95", **WHOLE)["value"]
            for o in ORDER
        ]
        row = one(table, detector=detector, metric="dad")
        assert row["value"] == dad(fpr)
        assert row["n_ood"] == 360
        assert pd.isna(row["dataset"])
        assert 0 <= row["ci_low"] <= row["ci_high"] <= 3


def test_cells_and_the_ones_with_too_few_samples(table):
    for (s, c), n in CELLS.items():
        row = one(table, detector="weak", metric="auroc", semantic_level=s, covariate_level=c)
        assert row["n_ood"] == n
        if n < 10:
            assert np.isnan([row["value"], row["ci_low"], row["ci_high"]]).all()
        else:
            value = auroc(of("test", "weak"), of(None, "weak", cell(s, c)))
            assert row["value"] == pytest.approx(value)
            assert row["ci_low"] < value < row["ci_high"]
    assert not len(pick(table, semantic_level=2, covariate_level=2))
    assert set(pick(table, semantic_level=0, covariate_level=0)["metric"]) == {
        *("auroc", "fpr95", "fpr95_id_positive", "fpr95_ood_positive", "aupr_in", "aupr_out")
    }


@pytest.mark.parametrize("metric", ["auroc", "fpr95", "aupr_in", "aupr_out"])
def test_levels_average_their_present_cells_and_trends_follow(table, metric):
    def cell_value(s, c):
        i, o = of("test", "strong"), of(None, "strong", cell(s, c))
        if metric.startswith("aupr"):
            return aupr(i, o, metric.removeprefix("aupr_"), "trapezoid")
        return auroc(i, o) if metric == "auroc" else fpr_at_tpr(i, o)

    enough = [key for key, n in CELLS.items() if n >= 10]
    means = [np.mean([cell_value(s, c) for s, c in enough if s == level]) for level in range(3)]
    rows = pick(table, dataset="grid", detector="strong", metric=metric, covariate_level=None)
    rows = rows.dropna(subset="semantic_level").sort_values("semantic_level")
    np.testing.assert_allclose(rows["value"], means)
    assert rows["n_ood"].tolist() == [90, 64, 60]
    fit = stats.linregress(range(3), means)
    where = {"dataset": "grid", "detector": "strong"}
    correlation = one(table, metric=f"correlation_semantic_{metric}", **where)
    assert correlation["value"] == pytest.approx(fit.rvalue)
    assert np.isnan([correlation["ci_low"], correlation["ci_high"]]).all()
    sensitivity = one(table, metric=f"sensitivity_semantic_{metric}", **where)
    assert sensitivity["value"] == pytest.approx(abs(fit.slope))
    assert sensitivity["ci_low"] < sensitivity["value"] < sensitivity["ci_high"]
    assert len(pick(table, metric=f"correlation_covariate_{metric}")) == 2


def test_id_accuracy_with_wilsons_interval(table):
    row = one(table, metric="id_accuracy")
    interval = stats.binomtest(180, 200).proportion_ci(method="wilson")
    assert row["value"] == pytest.approx(0.9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((interval.low, interval.high))
    assert pd.isna(row["detector"])
    unlabelled = SCORES.assign(label=-1)
    table = results_table(unlabelled, DETECTORS, model="net", seed=0, n_bootstrap=5)
    assert not len(pick(table, metric="id_accuracy"))
    assert not len(pick(table, metric="dad"))  # no order, no DAD


def test_one_axis_only_and_missing_levels():
    one_axis = SCORES.assign(
        covariate_level=np.nan, semantic_level=SCORES["semantic_level"].replace(-1, pd.NA)
    )
    one_axis["semantic_level"] = one_axis["semantic_level"].astype("Int64")
    table = results_table(one_axis, DETECTORS, model="net", seed=0, n_bootstrap=20)
    rows = pick(table, detector="weak", metric="auroc", semantic_level=1)
    assert len(rows) == 1
    in_level = (SCORES["dataset"] == "grid") & (SCORES["semantic_level"] == 1)
    assert rows["value"].item() == pytest.approx(auroc(of("test", "weak"), of(0, "weak", in_level)))
    assert not table["metric"].str.contains("covariate").any()
    none = SCORES.drop(columns=["semantic_level", "covariate_level"])
    table = results_table(none, DETECTORS, model="net", seed=0, n_bootstrap=20)
    assert table["semantic_level"].isna().all()
    assert len(pick(table, dataset="grid", metric="auroc")) == 2


def test_the_same_seed_gives_the_same_table(table):
    again = results_table(SCORES, DETECTORS, model="net", **OPTIONS)
    pd.testing.assert_frame_equal(table, again)
    shuffled = SCORES.sample(frac=1, random_state=0)
    moved = results_table(shuffled, DETECTORS, model="net", **OPTIONS)
    keys = ["detector", "dataset", "metric", "semantic_level", "covariate_level"]
    left, right = (t.sort_values(keys)["value"].to_numpy() for t in (table, moved))
    np.testing.assert_allclose(left, right)


def test_significance_and_best():
    table = significance_of(Evaluation(SCORES, DETECTORS, **OPTIONS))
    row = one(table, dataset="far", metric="auroc")
    both = [SCORES.loc[SCORES["dataset"] == n, DETECTORS].to_numpy() for n in ("test", "far")]
    assert row["p_value"] == pytest.approx(delong_p_values(*delong(*both))[0, 1])
    assert row["p_holm"] == row["p_value"]  # one pair
    assert row["test"] == "delong"
    assert row["difference"] == pytest.approx(row["value_a"] - row["value_b"])
    assert set(pick(table, metric="fpr95")["test"]) == {"bootstrap"}
    assert one(table, dataset=None, metric="mean_auroc")["test"] == "bootstrap"
    assert len(table) == (5 + 1) * 4 + 1  # four metrics on five sets and their mean, DAD
    best = best_detectors(Evaluation(SCORES, DETECTORS, **OPTIONS))
    for metric in ("auroc", "fpr95"):
        marks = pick(best, dataset="far", metric=metric).set_index("detector")["best"]
        assert marks.to_dict() == {"weak": False, "strong": True}


def test_tables_of_one_evaluation_equal_the_single_calls(table):
    evaluation = Evaluation(SCORES, DETECTORS, **OPTIONS)
    assert [of_set.dataset for of_set in evaluation.levels] == ["grid"]
    pd.testing.assert_frame_equal(results_of(evaluation, "net"), table)


@pytest.mark.slow
def test_processes_give_the_table_of_one(table, monkeypatch):
    monkeypatch.setattr(stratified_bootstrap, "_LITTLE", 0)
    monkeypatch.setattr(stratified_bootstrap, "_PART", 20_000)
    monkeypatch.setattr(stratified_bootstrap, "BATCH_SAMPLES", 1500)
    monkeypatch.setattr(cpu_cores, "usable_cores", lambda: 2)
    again = results_table(SCORES, DETECTORS, model="net", **OPTIONS)
    pd.testing.assert_frame_equal(table, again, check_exact=True)


def test_cells_that_are_all_too_small_have_their_counts():
    table = results_table(SCORES, DETECTORS, model="net", n_bootstrap=5, min_count=31)
    rows = table.dropna(subset="semantic_level")
    assert rows["value"].isna().all()
    assert set(pick(rows, semantic_level=1, covariate_level=2)["n_ood"]) == {4}


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (SCORES, {"id_name": "val"}, "no rows of the ID set 'val'; it has"),
        (SCORES[SCORES["dataset"] == "test"], {}, "at least one OOD set"),
        (SCORES, {"shift_order": ["near", "nearby"]}, "no OOD set 'nearby'"),
        (SCORES, {"fpr95_positive": "ours"}, "fpr95_positive: expected 'ood' or 'id'"),
        (SCORES.drop(columns="weak"), {}, r"no column \['weak'\]"),
        (
            SCORES.assign(weak=SCORES["weak"].where(SCORES["dataset"] != "mid")),
            {},
            "detector 'weak': 130 scores are NaN, first in 'mid'",
        ),
    ],
)
def test_bad_input_is_named(scores, options, message):
    with pytest.raises(ValueError, match=message):
        results_table(scores, DETECTORS, model="net", seed=0, **options)


def small_table(n_id, n_ood, shift=1.5, **options):
    scores = pd.concat([part("test", n_id, 0), part("few", n_ood, shift), part("many", 150, 1)])
    return results_table(scores, DETECTORS, "net", seed=0, n_bootstrap=50, **options)


@pytest.mark.parametrize(("n", "known"), [(1, set()), (2, {"auroc", "fpr95_ood_positive"})])
def test_a_set_of_one_or_two_images_has_a_wide_interval_or_none(n, known):
    table = small_table(150, n)
    rows = pick(table, dataset="few", detector="strong").set_index("metric")
    for metric in ("auroc", "fpr95_ood_positive", "aupr_in", "aupr_out"):
        assert np.isfinite(rows.loc[metric, "value"])
        assert np.isfinite(rows.loc[metric, "ci_low"]) == (metric in known)
    for metric in known:
        assert rows.loc[metric, "ci_high"] - rows.loc[metric, "ci_low"] > 0.3
    if n == 2:
        assert (
            rows.loc["fpr95_ood_positive", "ci_high"] == 1
        )  # nothing bounds the threshold from below


def test_few_id_images_bound_no_threshold_of_theirs():
    rows = pick(small_table(30, 150), dataset="few", detector="strong").set_index("metric")
    assert rows.loc["fpr95_id_positive", "ci_high"] == 1
    assert rows.loc["fpr95_ood_positive", "ci_high"] < 1
    assert np.isnan(rows.loc["aupr_out", "ci_low"])


def test_draws_that_are_all_the_same_are_no_certainty():
    rows = pick(small_table(150, 150, shift=9), dataset="few", detector="strong").set_index(
        "metric"
    )
    for metric in ("fpr95_id_positive", "fpr95_ood_positive"):
        assert rows.loc[metric, "value"] == rows.loc[metric, "ci_low"] == 0
        # About the rule of three: none of 150.
        assert 0.015 < rows.loc[metric, "ci_high"] < 0.04


def test_the_mean_is_over_the_sets_without_the_grid_and_has_an_interval(table):
    for detector in DETECTORS:
        for metric in ("auroc", "fpr95", "aupr_in"):
            whole = pick(table, detector=detector, metric=metric, **WHOLE)
            cells = whole[whole["dataset"].isin([*ORDER, "other"])]
            row = one(table, detector=detector, metric=f"mean_{metric}")
            assert row["value"] == pytest.approx(cells["value"].mean())
            assert row["ci_low"] < row["value"] < row["ci_high"]
            # Sets of their own images: narrower than the widest.
            widths = cells["ci_high"] - cells["ci_low"]
            assert row["ci_high"] - row["ci_low"] < widths.max()
            assert row["n_ood"] == cells["n_ood"].sum()
    one_set = SCORES[SCORES["dataset"].isin(["test", "far"])]
    alone = results_table(one_set, DETECTORS, "net", seed=0, n_bootstrap=5)
    assert not alone["metric"].str.startswith("mean_").any()


@pytest.mark.slow
@pytest.mark.parametrize("positive", ["ood", "id"])
def test_dad_of_groups_by_mean_fpr95(positive):
    groups = {"little": ["near"], "much": ["far", "other", "mid"]}
    options = OPTIONS | {"shift_order": (), "groups": groups, "fpr95_positive": positive}
    table = results_table(SCORES, DETECTORS, model="net", **options)
    for detector in DETECTORS:
        i = of("test", detector)
        parts = [[of(name, detector) for name in names] for names in groups.values()]
        means = [np.mean([fpr_at_tpr(i, o, positive=positive) for o in part]) for part in parts]
        row = one(table, detector=detector, metric="dad_of_means")
        assert row["value"] == float(means[0] > means[1])
        assert 0 <= row["ci_low"] <= row["value"] <= row["ci_high"] <= 1
        assert row["n_ood"] == 120 + 110 + 100 + 130
    one_each = options | {"groups": {"little": ["near"], "much": ["far"]}}
    alone = results_table(SCORES, DETECTORS, model="net", **one_each)
    assert not alone["metric"].str.startswith("dad_").any()


LARGER = {None: (1, 2), 2: (2,), 1: (1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("start", LARGER)
@pytest.mark.parametrize("metric", ["auroc", "fpr95"])
def test_all_cells_and_larger_semantic_shift_as_means_and_as_one_set(metric, start):
    options = OPTIONS | {"larger_semantic_from": start, "n_bootstrap": 20}
    table = results_table(SCORES, DETECTORS, model="net", **options)
    function = auroc if metric == "auroc" else fpr_at_tpr

    def cells(levels, fewest=10):
        return [cell(s, c) for (s, c), n in CELLS.items() if s in levels and n >= fewest]

    parts = {"all": (0, 1, 2), "larger_semantic": LARGER[start]}
    for detector in DETECTORS:
        i = of("test", detector)
        for name, levels in parts.items():
            where = {"detector": detector, "dataset": "grid", **WHOLE}
            mean = f"{name}_cells_{metric}" if name == "all" else f"{name}_{metric}"
            row = one(table, metric=mean, **where)
            values = [function(i, of(None, detector, x)) for x in cells(levels)]
            assert row["value"] == pytest.approx(np.mean(values))
            assert row["ci_low"] < row["value"] < row["ci_high"]
            n = sum(n for (s, _), n in CELLS.items() if s in levels)
            assert row["n_ood"] == n
            row = one(table, metric=f"{name}_images_{metric}", **where)
            images = np.concatenate([of(None, detector, x) for x in cells(levels, fewest=0)])
            assert row["n_ood"] == len(images) == n  # cells with few images, too
            assert row["value"] == pytest.approx(function(i, images))
            assert row["ci_low"] < row["value"] < row["ci_high"]
        whole = one(table, metric=metric, **where)
        every = one(table, metric=f"all_images_{metric}", **where)
        ends = ["value", "ci_low", "ci_high", "n_ood"]
        assert every[ends].tolist() == whole[ends].tolist()


def test_no_level_is_large_enough():
    options = OPTIONS | {"larger_semantic_from": 9, "n_bootstrap": 5}
    table = results_table(SCORES, DETECTORS, model="net", **options)
    rows = table[table["metric"].str.startswith("larger_semantic")]
    assert len(rows) == 8 * 2
    assert rows["value"].isna().all()
    assert (rows["n_ood"] == 0).all()
