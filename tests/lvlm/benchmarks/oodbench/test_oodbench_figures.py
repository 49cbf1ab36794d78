"""Figures of OODBench over categories, numbers of image-text models, and models."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import curve_fit

from ood_lab.lvlm.statistics.figures import exponential_trend
from ood_lab.tasks.oodbench_ablation import lines_over_number


def test_a_line_a_model_over_the_number_of_image_text_models():
    rows = [
        {"model": m, "detectors": k, "split": s, "metric": metric, "value": 0.1 * k + own}
        for m, own in (("a", 0.1), ("b", 0.2))
        for k in (1, 2, 3)
        for s in ("id", "ood_h")
        for metric in ("accuracy", "f1")
    ]
    table = pd.DataFrame(rows).assign(ci_low=0.0, ci_high=1.0)
    grid = lines_over_number(table).axes
    titles = ["Acc on ID (%)", "Acc on OOD-H (%)", "F1 on ID (%)", "F1 on OOD-H (%)"]
    assert [axes.get_title() for axes in grid] == titles
    for axes in grid:
        lines = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
        assert lines["a"].tolist() == pytest.approx(np.array([[1, 20], [2, 30], [3, 40]]))
        assert lines["b"][:, 1] == pytest.approx([30, 40, 50])


def test_an_exponential_trend_is_that_of_scipy_where_all_points_are_on_it():
    x = np.arange(5.0)
    y = 3 * np.exp(0.4 * x)
    (a, b), _ = curve_fit(lambda x, a, b: a * np.exp(b * x), x, y)
    assert exponential_trend(x, y) == pytest.approx(a * np.exp(b * x))
    lower = np.append(y[:-1], -1.0)  # a loss below zero has no logarithm
    assert exponential_trend(x, lower)[:4] == pytest.approx(y[:4])
    assert exponential_trend(x[:3], np.array([1.0, -1.0, 2.0])) is None
