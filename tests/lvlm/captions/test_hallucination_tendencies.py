import pandas as pd
import pytest

from ood_lab.lvlm.captions.hallucination_tendencies import Clustering


def test_tendencies_group_concepts_by_what_is_made_up_beside_them():
    rows = [("a", "x")] * 3 + [("b", "x")] * 3 + [("c", "y")] * 3 + [("d", "")] * 2
    captions = pd.DataFrame(
        {
            "truth_words": [[true] for true, _ in rows],
            "flagged_nouns": [[false] if false else [] for _, false in rows],
        }
    )
    found = Clustering(groups=2).tendencies(captions)
    assert found.matrix.loc["a", "x"] == 3
    assert "d" not in found.matrix.index
    groups = found.groups.set_index("concept")["group"]
    assert groups["a"] == groups["b"] == 0  # the larger group comes first
    assert groups["c"] == 1
    assert found.silhouette == pytest.approx(1.0) or found.silhouette > 0.6
    assert found.summary["top_hallucinations"].tolist() == ["x", "y"]
    assert Clustering().tendencies(captions[captions["flagged_nouns"].str.len() == 0]) is None
