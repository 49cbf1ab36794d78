"""`data.background`: the objects stay, what is behind them changes, in the chosen sets alone."""

import zlib

import numpy as np
import pytest
from pictures import folders, picture
from PIL import Image

from ood_lab.builtin.vessels import OtherPlaces
from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule

pytestmark = pytest.mark.integration  # whole networks of a library

GREEN, BLUE = (0, 200, 0), (0, 0, 200)


def vessels(**options):
    sizes = {"train": 44, "val": 22, "test": 22, "per_shift_set": 2, "per_cell": 0}
    data = VesselsDataModule(**{**sizes, **options})
    data.setup()
    return data


def pixels(data, name, row):
    return np.asarray(data.splits[name].load_image(row))


def test_vessels_keep_their_pixels_and_stand_elsewhere():
    origin, replaced = vessels(), vessels(background="replaced")
    for row in (0, 7, 43):
        mask = origin.splits["train"].load_mask(row)
        here, there = pixels(origin, "train", row), pixels(replaced, "train", row)
        np.testing.assert_array_equal(there[mask], here[mask])
        rng = np.random.default_rng([0, zlib.crc32(f"train/{row}".encode())])
        behind = np.asarray(OtherPlaces().draw(rng, (64, 64)))
        np.testing.assert_array_equal(there[~mask], behind[~mask])
        assert np.abs(there[~mask].astype(int) - here[~mask]).mean() > 10
        np.testing.assert_array_equal(pixels(replaced, "train", row), there)


def test_only_the_chosen_sets_are_other_data():
    origin, replaced = vessels(), vessels(background="replaced")
    again = vessels(background="replaced", background_sets=["train", "general"])

    def changed(a, b):
        return {name for name in a.splits if a.splits[name].identity != b.splits[name].identity}

    assert changed(origin, replaced) == {"train"}
    assert changed(replaced, again) == {"general"}
    assert changed(replaced, vessels(background="replaced")) == set()
    assert replaced.splits["train"].table.equals(origin.splits["train"].table)
    assert "train: backgrounds of 44 images replaced" in replaced.report.notes


def test_a_choice_of_few_images_has_the_backgrounds_of_all():
    every = vessels(background="replaced")
    few = vessels(background="replaced", shots=1, shot_seed=5)
    assert len(few.splits["train"]) == 11
    rows = {path: row for row, path in enumerate(every.splits["train"].table["path"])}
    for row, path in enumerate(few.splits["train"].table["path"]):
        expected = pixels(every, "train", rows[path])
        np.testing.assert_array_equal(pixels(few, "train", row), expected)


@pytest.fixture
def photos(tmp_path):
    """Noise with a mask of its left half; two plain backgrounds of other shapes."""
    folders(tmp_path / "train", each=5)
    for i in range(3):
        picture(tmp_path / "near" / f"{i}.jpg", seed=900 + i)
    left = Image.new("L", (16, 16))
    left.paste(255, (0, 0, 8, 16))
    for image in (tmp_path / "train").rglob("*.jpg"):
        mask = tmp_path / "masks" / image.parent.name / f"{image.stem}.png"
        mask.parent.mkdir(parents=True, exist_ok=True)
        left.save(mask)
    (tmp_path / "places").mkdir()
    Image.new("RGB", (40, 10), GREEN).save(tmp_path / "places" / "a.png")
    Image.new("RGB", (8, 90), BLUE).save(tmp_path / "places" / "b.png")
    return tmp_path


def module(root, train=None, **options):
    options = {"background": "replaced", "background_source": root / "places", **options}
    train = str(train or root / "train")
    return FolderDataModule({"train": train}, {"near": str(root / "near")}, **options)


def check_left_halves(root, data):
    data.setup()
    train, seen = data.splits["train"], set()
    for row, path in enumerate(train.table["path"]):
        made = np.asarray(train.load_image(row))
        with Image.open(path) as original:
            np.testing.assert_array_equal(made[:, :8], np.asarray(original)[:, :8])
        (behind,) = {tuple(map(int, pixel)) for pixel in made[:, 8:].reshape(-1, 3)}
        seen.add(behind)
    assert seen == {GREEN, BLUE}


def test_masks_in_a_folder(photos):
    data = module(photos, masks=photos / "masks")
    check_left_halves(photos, data)
    np.testing.assert_array_equal(
        pixels(data, "val", 0), np.asarray(Image.open(data.splits["val"].table["path"][0]))
    )


def test_masks_in_a_table_and_of_zeros_and_ones(photos):
    lines = ["path,label,mask"]
    for image in sorted((photos / "train").rglob("*.jpg")):
        name = f"{image.parent.name}/{image.stem}"
        lines.append(f"train/{name}.jpg,{image.parent.name},masks/{name}.png")
        mask = np.asarray(Image.open(photos / "masks" / f"{name}.png"))
        Image.fromarray(mask // 255).save(photos / "masks" / f"{name}.png")
    (photos / "list.csv").write_text("\n".join(lines))
    check_left_halves(photos, module(photos, train=photos / "list.csv"))


@pytest.mark.slow
def test_masks_and_places_are_part_of_the_identity(photos):
    def identity():
        data = module(photos, masks=photos / "masks")
        data.setup()
        return data.splits["train"].identity

    first = identity()
    assert identity() == first
    for mask in (photos / "masks" / "cat").iterdir():
        Image.new("L", (16, 16), 255).save(mask)
    second = identity()
    Image.new("RGB", (40, 10), (9, 9, 9)).save(photos / "places" / "a.png")
    assert len({first, second, identity()}) == 3


def small(root):
    for mask in (root / "masks").rglob("*.png"):
        Image.new("L", (8, 16), 255).save(mask)


def black(root):
    for mask in (root / "masks").rglob("*.png"):
        Image.new("L", (16, 16)).save(mask)


def fewer(root):
    (root / "masks" / "cat" / "000.png").unlink()
    (root / "masks" / "cat" / "001.png").unlink()
    (root / "masks" / "cat" / "002.png").unlink()


WRONG = {
    "kind": ({"background": "other"}, None, "give 'origin' or 'replaced'"),
    "no source": ({"background_source": None}, None, "data.background_source=DIR"),
    "no such source": ({"background_source": "nowhere"}, None, "does not exist"),
    "no masks": ({"masks": None}, None, "data.masks=DIR"),
    "set": ({"background_sets": ["trian"]}, None, "did you mean 'train'"),
    "mask missing": ({}, fewer, "has no mask for"),
    "mask size": ({}, small, "8 x 16 pixels"),
    "masks empty": ({}, black, "white must mark the object"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_remedy(case, photos):
    options, spoil, named = WRONG[case]
    if spoil:
        spoil(photos)
    with pytest.raises(UserError) as error:
        module(photos, **{"masks": photos / "masks", **options}).setup()
    assert named in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def picture_of(folder):
    return Image.open(picture(folder / "x.png", seed=1, size=(80, 48))).convert("RGB")
