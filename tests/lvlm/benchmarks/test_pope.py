import pytest
from toy_annotations import CATEGORIES, annotations

from ood_lab.lvlm.annotations.image_contents import contents_of
from ood_lab.lvlm.benchmarks.oric.pope_sets import pope_of


@pytest.fixture(scope="module")
def contents():
    return contents_of(annotations())


def test_popularity_is_counted_in_the_drawn_images(contents):
    for seed in range(20):
        drawn = pope_of(contents, "popular", 4, seed, per_image=1)
        counts = contents.present[drawn["row"].unique()].sum(axis=0)
        for row, name in drawn.loc[drawn["label"] == "no", ["row", "object"]].to_numpy():
            absent = counts[~contents.present[row]]
            assert counts[CATEGORIES.index(name)] == absent.max()
