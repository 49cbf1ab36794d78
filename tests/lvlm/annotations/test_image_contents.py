import numpy as np
import pytest
from toy_annotations import CATEGORIES, annotations

from ood_lab.lvlm.annotations.image_contents import contents_of, expected, union_areas


@pytest.fixture(scope="module")
def contents():
    return contents_of(annotations())


def test_areas_are_those_of_the_unions_in_the_order_of_the_annotations(contents):
    where = contents.entries(0)
    found = dict(zip(contents.names(contents.codes[where]), contents.areas[where], strict=True))
    assert list(found) == ["cup", "dog", "person", "car", "kite"]
    assert found == {"cup": 20, "dog": 150, "person": 1000, "car": 900, "kite": 30}
    assert contents.counts[where].tolist() == [1, 2, 1, 1, 1]


def test_union_of_many_boxes_counts_every_pixel_once():
    rng = np.random.default_rng(0)
    counts = np.array([1, 2, 5, 20])
    boxes = rng.integers(0, 30, (28, 4)).astype(float)
    page = np.zeros((4, 64, 64), bool)
    for group, (x, y, w, h) in zip(np.repeat(range(4), counts), boxes.astype(int), strict=True):
        page[group, y : y + h, x : x + w] = True
    assert union_areas(boxes, counts).tolist() == page.sum(axis=(1, 2)).tolist()


def test_expectation_leaves_the_image_itself_out(contents):
    """Cup in a, background dog, person, car: the others are b (with a cup) and c (without).

    P(cup | dog) = 1/2, P(cup | person) = 1/2, P(cup | car) = 0/1. Kite in b, where it is absent:
    P(kite | boat): no other boat, so the share of the other images with a kite, 2/3;
    P(kite | person) = 1/2.
    """
    wanted = np.zeros((2, 6), bool)
    wanted[0, [CATEGORIES.index(n) for n in ("dog", "person", "car")]] = True
    wanted[1, [CATEGORIES.index(n) for n in ("boat", "person")]] = True
    found = expected(contents.present, np.array([0, 1]), wanted)
    assert found[0, CATEGORIES.index("cup")] == pytest.approx(1 / 3)
    assert found[1, CATEGORIES.index("kite")] == pytest.approx((2 / 3 + 1 / 2) / 2)
    # An object is no context of itself: of dog, person and car, only the last two tell of the dog.
    assert found[0, CATEGORIES.index("dog")] == pytest.approx(1.0)
