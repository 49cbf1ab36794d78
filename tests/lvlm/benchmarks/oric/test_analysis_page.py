import numpy as np
import pandas as pd

from ood_lab.lvlm.benchmarks.oric.analysis_page import context_words


def curve(*rows):
    columns = ["split", "truth", "p_context", "accuracy", "ci_low", "ci_high"]
    return pd.DataFrame([("all", *row) for row in rows], columns=columns)


def test_the_page_says_of_context_what_the_numbers_say():
    clear = curve(("yes", 0.1, 0.4, 0.3, 0.5), ("yes", 0.8, 0.7, 0.6, 0.8))
    words = context_words(clear)
    assert "40.0 [30.0, 50.0]% are seen where they are least expected" in words
    assert "expected ones are seen more often" in words
    assert "less often" in context_words(clear.assign(p_context=[0.8, 0.1]))
    same = curve(("no", 0.1, 0.9, 0.8, 1.0), ("no", 0.8, 0.85, 0.7, 0.95))
    assert "15.0 [5.0, 30.0]% where they are most expected: the intervals overlap" in context_words(
        same
    )
    assert "no intervals" in context_words(same.assign(ci_low=np.nan, ci_high=np.nan))
