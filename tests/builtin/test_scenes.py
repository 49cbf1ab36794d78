import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ood_lab.builtin.scenes import (
    PLACES,
    SHIFTS,
    STYLES,
    THINGS,
    ObjectRequest,
    ScenesDataset,
    ScenesGrid,
    ShiftedScenes,
    level_of,
    render,
    sample_scene,
    things_at,
    visible,
)
from ood_lab.builtin.scenes.canvas import Canvas
from ood_lab.builtin.scenes.datamodule import ScenesDataModule
from ood_lab.builtin.scenes.painted_parts import COLOURS
from ood_lab.builtin.scenes.scene_sampling import MAX_HIDDEN
from ood_lab.builtin.scenes.sprite import Look, draw
from ood_lab.builtin.scenes.things import ABSTRACT, FAMILIAR, UNFAMILIAR
from ood_lab.builtin.vessels.datasets import GRID
from ood_lab.builtin.vessels.scene import generator
from ood_lab.common.errors import UserError


def scenes(n, seed=0, **options):
    return [sample_scene(generator(seed, i, "test"), **options) for i in range(n)]


def visible_share(found):
    """Share of the object's pixels that nothing hides."""
    return found.area / found.item.sprite.mask.sum()


def painted(scene, seed=0):
    return render(scene, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def many():
    return [scene for level in range(6) for scene in scenes(50, level, semantic_level=level)]


@pytest.fixture(scope="module")
def seen(many):
    return [visible(scene) for scene in many]


def test_there_is_enough_to_see():
    assert len(PLACES) >= 12
    assert len(FAMILIAR) >= 30
    assert set().union(*(place.prior for place in PLACES.values())) == set(FAMILIAR)
    assert sum(bool(thing.states.words) for thing in THINGS.values()) >= 12
    for name, thing in THINGS.items():
        assert set(thing.colours) <= set(COLOURS), name


def test_every_level_has_things_in_every_place():
    for place in PLACES:
        found = [things_at(place, level) for level in range(6)]
        assert all(found), place
        assert sorted(sum(found, ())) == sorted(THINGS)
    assert level_of("mug", "kitchen") == 0
    assert level_of("suitcase", "kitchen") == 1  # a bedroom has some
    assert level_of("axe", "kitchen") == 2  # a workshop is indoors
    assert level_of("boat", "kitchen") == 3
    assert level_of("jue", "kitchen") == 4
    assert level_of("spiral", "kitchen") == 5


def test_images_repeat_whatever_the_order_and_the_workers():
    def dataset():
        data = ScenesDataset("train", 24, 3, breaks=0.5, restyled=0.5)
        data.transform = lambda image: torch.from_numpy(np.array(image))
        return data

    first = dataset()
    alone = np.stack([np.asarray(first.load_image(i)) for i in range(24)])
    assert alone.shape == (24, 96, 96, 3)
    assert len({pixels.tobytes() for pixels in alone}) == 24
    again = dataset()
    for index in reversed(range(24)):
        np.testing.assert_array_equal(again.load_image(index), alone[index])
        assert again.scene(index) == first.scene(index)
    assert again.identity == first.identity
    for batch in DataLoader(dataset(), 5, shuffle=True, num_workers=2):
        np.testing.assert_array_equal(batch["image"], alone[batch["index"]])


def test_a_row_does_not_depend_on_the_number_of_rows():
    few, many = ScenesDataset("train", 12, 5, breaks=0.4), ScenesDataset("train", 40, 5, breaks=0.4)
    assert few.table.equals(many.table.head(12))
    assert few.scene(11) == many.scene(11)


def test_identity_follows_every_parameter():
    variants = [
        ScenesDataset("train", 60, 0),
        ScenesDataset("train", 61, 0),
        ScenesDataset("train", 60, 1),
        ScenesDataset("val", 60, 0),
        ScenesDataset("train", 60, 0, size=128),
        ScenesDataset("train", 60, 0, breaks=0.5),
        ScenesDataset("train", 60, 0, restyled=0.5),
        ScenesGrid("train", 60, 0),
        *(ShiftedScenes(kind, 60, 0) for kind in SHIFTS),
    ]
    assert len({data.identity for data in variants}) == len(variants)


@pytest.mark.slow
def test_boxes_areas_and_counts_are_those_of_the_pixels(many, seen):
    for scene, objects in zip(many, seen, strict=True):
        assert len(objects) == len(scene.items)
        together = np.zeros((96, 96), int)
        for found in objects:
            rows, columns = np.nonzero(found.mask)
            left, top, width, height = found.box
            assert (left, top) == (columns.min(), rows.min())
            assert (left + width - 1, top + height - 1) == (columns.max(), rows.max())
            assert found.area == len(rows)
            together += found.mask
        assert together.max() <= 1  # a pixel shows one object


@pytest.mark.slow
def test_nothing_is_hidden_by_more_than_the_bound(seen):
    shares = np.array([visible_share(found) for objects in seen for found in objects])
    assert shares.min() >= 1 - MAX_HIDDEN
    assert (shares < 1).mean() > 0.1  # but some objects do stand before others


def test_numbers_and_sizes_of_objects(seen):
    counts = Counter(len(objects) for objects in seen)
    assert set(counts) == set(range(2, 9))
    boxes = np.array([found.box[2:] for objects in seen for found in objects]).max(1)
    whole = np.array([visible_share(found) == 1 for objects in seen for found in objects])
    assert boxes[whole].min() == 5
    assert 46 <= boxes.max() <= 53  # half of 96, and what proportions and lean add
    assert (boxes < 12).mean() > 0.2
    assert (boxes > 24).mean() > 0.2
    several = [Counter(found.item.look.thing for found in objects) for objects in seen]
    assert np.mean([count.most_common(1)[0][1] > 1 for count in several]) > 0.3


def test_levels_are_those_asked_for(many):
    assert [scene.semantic_level for scene in many] == [i // 50 for i in range(300)]
    strange = [
        sum(level_of(item.look.thing, scene.place) == 4 for item in scene.items)
        for scene in many[200:250]
    ]
    assert min(strange) >= 1
    assert all(
        item.look.thing in UNFAMILIAR
        for scene in many[200:250]
        for item in scene.items
        if level_of(item.look.thing, scene.place)
    )
    assert {item.look.thing for scene in many[250:] for item in scene.items} & set(ABSTRACT)


def test_the_prior_of_a_place_is_what_is_found_there():
    found = Counter(
        item.look.thing
        for scene in scenes(150, place="street", objects=(5, 5))
        for item in scene.items
    )
    prior = PLACES["street"].prior
    assert set(found) == set(prior)
    # Groups make the frequent ones more frequent still.
    assert found["car"] > found["bird"]
    other = {item.look.thing for scene in scenes(60, place="kitchen") for item in scene.items}
    assert not other & {"car", "traffic light", "person"}


@pytest.mark.parametrize("style", STYLES)
def test_every_style_paints_objects_that_can_be_told_from_the_ground(style):
    # The object is found: painted with and without it, its pixels differ and the others hardly.
    wish = [ObjectRequest("umbrella", "red", "open", length=40)]
    scene = sample_scene(
        generator(0, 0, "x"), place="park", style=style, wanted=wish, objects=(1, 1)
    )
    with_it = painted(scene).astype(float)
    assert with_it.shape == (96, 96, 3)
    empty = painted(type(scene)(scene.place, style, 96, scene.setting, ())).astype(float)
    change = np.abs(with_it - empty).max(-1)
    inside = visible(scene)[0].mask
    assert change[inside].mean() > 25
    assert change[inside].mean() > 3 * change[~inside].mean()


def test_styles_have_all_covariate_levels():
    assert {style.level for style in STYLES.values()} == set(range(6))
    assert painted(scenes(1, style="mosaic", size=128)[0]).shape == (128, 128, 3)


@pytest.mark.parametrize("place", PLACES)
def test_backdrops_leave_no_pixel_out(place):
    white = np.ones((3, 1, 1), np.float32)
    for size, lift in product((64, 96, 100, 128), (-0.03, 0.0, 0.013, 0.03)):
        canvas = Canvas(size, lift, white, np.random.default_rng(0))
        PLACES[place].paint(canvas)
        assert (canvas.image.max(0) > 0).all()
        assert np.isfinite(canvas.image).all()


def test_forced_content_is_there_and_looks_as_wished():
    wishes = [
        ObjectRequest("umbrella", "red", "open", length=30),
        ObjectRequest("dog", "black", "sit"),
        ObjectRequest("mug", "brown"),
    ]
    for index in range(20):
        rng = generator(index, 0, "wish")
        scene = sample_scene(rng, place="beach", wanted=wishes, objects=(0, 3))
        assert scene.place == "beach"
        shown = sorted((item.look.thing, *scene.attributes(item).values()) for item in scene.items)
        # A mug has no state; colours may be ones that the thing never has by itself.
        assert shown == [("dog", "black", "sit"), ("mug", "brown"), ("umbrella", "red", "open")]
        assert scene.semantic_level == 3  # the mug
        umbrella = next(s for s in visible(scene) if s.item.look.thing == "umbrella")
        assert visible_share(umbrella) == 1 or umbrella.box[3] <= 34
        red = painted(scene)[umbrella.mask].astype(float).mean(0)
        assert red[0] > 1.8 * red[1:].max()


def test_a_crowd_of_wishes_finds_room():
    wishes = [ObjectRequest("house", length=48)] * 8
    for index in range(5):
        scene = sample_scene(generator(index, 0, "crowd"), place="mountains", wanted=wishes)
        assert len(scene.items) == 8
        assert min(visible_share(found) for found in visible(scene)) >= 1 - MAX_HIDDEN


def test_attributes_say_only_what_the_picture_shows():
    light, tree = ObjectRequest("traffic light", state="red"), ObjectRequest("tree", state="bare")
    options = {
        "place": "street",
        "wanted": [light, ObjectRequest("car", "blue"), tree],
        "objects": (0, 3),
    }

    def attributes(style):
        (scene,) = scenes(1, style=style, **options)
        return {item.look.thing: scene.attributes(item) for item in scene.items}

    bare = {"state": "bare"}
    shown = {"traffic light": {"state": "red"}, "car": {"colour": "blue"}, "tree": bare}
    assert attributes("photo") == shown
    assert attributes("sketch") == {"traffic light": {}, "car": {}, "tree": bare}
    assert attributes("grey") == attributes("sketch")


@pytest.mark.parametrize(
    ("name", "state"), [(n, t.states.words) for n, t in THINGS.items() if t.states.words]
)
def test_states_can_be_seen(name, state):
    colour = THINGS[name].colours[0] if THINGS[name].colours else ""

    def picture(word, size):
        sprite = draw(Look(name, colour, word, size))
        canvas = np.full((3, size, size), 0.5, np.float32)
        rows, columns = sprite.alpha.shape
        part = canvas[:, sprite.top : sprite.top + rows, sprite.left : sprite.left + columns]
        part += sprite.alpha * (sprite.colour - part)
        return canvas, sprite.mask.sum()

    for size in (16, 32):
        (one, pixels), (other, _) = picture(state[0], size), picture(state[1], size)
        assert (np.abs(one - other).max(0) > 0.15).sum() > 0.08 * pixels


def test_id_sets_are_labelled_by_place_and_expected():
    data = ScenesDataset("test", 45, 0)
    assert data.classes == list(PLACES)
    assert [data.classes[label] for label in data.labels] == data.table["place"].tolist()
    assert (data.table["place"].value_counts() == 3).all()
    assert (data.table[["semantic_level", "covariate_level"]] == 0).all(axis=None)
    mask = data.load_mask(0)
    assert mask.sum() == sum(found.area for found in data.objects(0))


def test_shares_of_breaks_and_styles():
    table = ScenesDataset("test", 600, 0, breaks=0.3, restyled=0.5).table
    assert 0.24 < (table["semantic_level"] > 0).mean() < 0.36
    assert 0.44 < (table["covariate_level"] > 0).mean() < 0.56
    assert set(table["semantic_level"]) == set(table["covariate_level"]) == set(range(6))


def test_grid_covers_every_cell_but_the_id_one():
    data = ScenesGrid("grid", 70, 0)
    counts = data.table.groupby(["semantic_level", "covariate_level"]).size()
    assert set(counts.index) == set(product(range(6), range(6))) - {(0, 0)} == set(GRID)
    assert (counts == 2).all()
    assert (data.labels == -1).all()
    assert data.classes == []
    for index in range(35):
        scene = data.scene(index)
        row = data.table.iloc[index]
        assert scene.semantic_level == row["semantic_level"]
        assert scene.covariate_level == row["covariate_level"]


@pytest.mark.parametrize(
    ("kind", "semantic", "covariate"),
    [
        ("out_of_place", {1, 2, 3}, {0}),
        ("unfamiliar", {4, 5}, {0}),
        ("restyled", {0}, {1, 2, 3, 4, 5}),
    ],
)
def test_shifted_sets_hold_their_levels(kind, semantic, covariate):
    data = ShiftedScenes(kind, 30, 0)
    assert set(data.table["true_semantic_level"]) == semantic
    assert set(data.table["true_covariate_level"]) == covariate
    assert "semantic_level" not in data.table
    assert (data.labels == -1).all()


def test_statistics_are_those_stored():
    # Another numpy may draw other streams, so that no single image may be compared.
    data = ScenesDataset("stored", 75, 0, restyled=0.3)
    pixels = np.stack([np.asarray(data.load_image(i)) for i in range(75)]) / 255.0
    stats = np.r_[pixels.mean((0, 1, 2)), pixels.std((0, 1, 2))]
    np.testing.assert_allclose(stats, STORED, atol=0.05)


STORED = [0.646, 0.667, 0.630, 0.253, 0.248, 0.277]


@pytest.mark.parametrize(
    ("build", "culprit"),
    [
        (lambda: ScenesDataset("train", 5, 0, size=97), "multiple of 4 from 64 to 256"),
    ],
)
def test_mistakes_are_one_line(build, culprit):
    with pytest.raises(UserError, match=re.escape(culprit)) as error:
        build()
    assert "\n" not in str(error.value)


def test_names_are_singular_and_can_be_asked_for():
    assert all(re.fullmatch(r"[a-z]+( [a-z]+)?", name) for name in THINGS)
    assert not any(name.endswith("s") and not name.endswith("ss") for name in THINGS)


def test_module_has_id_sets_shifted_sets_and_the_grid():
    data = ScenesDataModule(train=30, val=15, test=15, per_shift_set=6, per_cell=2)
    data.setup()
    sizes = {name: len(split) for name, split in data.splits.items()}
    assert sizes == {"train": 30, "val": 15, "test": 15, **dict.fromkeys(SHIFTS, 6), "grid": 70}
    assert data.ood_names == [*SHIFTS, "grid"]
    assert data.shift_order == []
    assert data.classes == list(PLACES)
    data.use_transform(eval=lambda image: torch.from_numpy(np.array(image)))
    (batch,) = data.predict_loader("test")
    assert batch["image"].shape == (15, 96, 96, 3)
    bare = ScenesDataModule(train=15, val=15, test=15, per_shift_set=1, per_cell=0)
    bare.setup()
    assert "grid" not in bare.splits
