"""Properties of names, folder layouts, prefixes of weights, and pixels, over random inputs.

``EXAMPLES=500 pytest tests/test_properties.py -n 0`` tries more of them, other ones each time.
"""

import os
import tempfile
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.sources.manifest import read_manifest
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.models import load_weights

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from PIL import Image  # noqa: E402

EXAMPLES = int(os.environ.get("EXAMPLES", "8"))
few = settings(max_examples=EXAMPLES, deadline=None, derandomize="EXAMPLES" not in os.environ)

ODD = (
    *(
        "09",
        "9",
        "1",
        "01",
        "007",
        "1e3",
        "1000",
        "nan",
        "NaN",
        "NA",
        "null",
        "None",
        "True",
        "inf",
    ),
    *("0", "00", "2", "101", "30001", "12345678901234567890", "12345678901234567891", "1.0", "1,5"),
    *("a,b", 'a"b', "it's", "#1", "[x]", "50%", "größe", "青铜", "no", "yes", "-", "--"),
)
NAME = st.one_of(
    st.sampled_from(ODD),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=8),
).map(lambda name: unicodedata.normalize("NFC", name))
#: Words that say nothing of a class, and are no names of one here.
SPLITS = ("train", "val", "test", "dev", "valid", "evaluation", "train2017", "Training set",
          "train_images", "unlabeled", "Test", "VAL")  # fmt: skip
JUNK = ("@eaDir", "$RECYCLE.BIN", "__MACOSX", ".ipynb_checkpoints", ".thumbnails", "lost+found")


def is_folder_name(name):
    plain = not set(name) & set('/\\\0:*?"<>|') and name[0] not in ".@$#_" and name[-1] != "."
    return plain and not any(word in name.casefold() for word in ("train", "val", "test", "dev"))


def picture(path, shade=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), shade).save(path)
    return path


@pytest.mark.slow
@few
@given(names=st.lists(NAME, min_size=2, max_size=5), ending=st.sampled_from(["csv", "jsonl", "pq"]))
def test_class_names_of_tables_are_what_they_are(names, ending):
    if any(name.strip() != name or name == "-1" for name in names):
        return
    with tempfile.TemporaryDirectory() as place:
        paths = [str(picture(Path(place) / f"{i}.png")) for i in range(len(names))]
        table, file = pd.DataFrame({"path": paths, "label": names}), Path(place) / f"t.{ending}"
        if ending == "csv":
            table.to_csv(file, index=False)
        elif ending == "pq":
            table.to_parquet(file)
        else:
            table.to_json(file, orient="records", lines=True)
        found, classes = read_manifest(file)
        assert [classes[label] for label in found["label"]] == names
        assert found["label"].nunique() == len(set(names))


@pytest.mark.slow
@few
@given(
    names=st.lists(NAME.filter(is_folder_name), min_size=1, max_size=4, unique_by=str.casefold),
    junk=st.lists(st.sampled_from(JUNK), max_size=2),
    depth=st.integers(0, 2),
    data=st.data(),
)
def test_class_folders_are_classes_and_nothing_else_is(names, junk, depth, data):
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "set"
        for name in names:
            picture(root.joinpath(name, *["deep"] * depth, "a.png"))
        for word in junk:
            picture(root / word / "b.png")
            picture(root / data.draw(st.sampled_from(names)) / word / "b.png")
        (root / "empty").mkdir(exist_ok=True)
        found, classes = read_manifest(root)
        assert sorted(classes) == sorted(names)
        assert [classes[label] for label in found["label"]] == sorted(names)
        assert all(path.endswith("a.png") for path in found["path"])


@pytest.mark.slow
@few
@given(names=st.lists(st.sampled_from(SPLITS), min_size=2, max_size=4, unique_by=str.casefold))
def test_splits_are_never_classes(names):
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            picture(Path(place) / name / "cat" / "a.png")
        with pytest.raises(UserError, match="split"):
            read_manifest(place)


WRAPPERS = ("module", "model", "net", "backbone", "encoder", "student")
OUTER = st.lists(st.sampled_from([*WRAPPERS, "_orig_mod", "_fsdp_wrapped_module"]), max_size=3)
INNER = st.sampled_from(["", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."])
ENTRIES = ("state_dict_ema", "ema_state_dict", "ema", "model_ema", "ema_net")
AVERAGES = st.sampled_from(["", *ENTRIES, "ema_model", "ema.module"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.fc = nn.Linear(4, 2)


@pytest.mark.slow
@few
@given(outer=OUTER, inner=INNER, average=AVERAGES, kind=st.sampled_from(["pt", "safetensors"]))
def test_weights_under_any_prefix(outer, inner, average, kind):
    torch.manual_seed(0)
    raw, averaged = Net().state_dict(), Net().state_dict()

    def named(state):
        renamed = {k.replace("body.0.", f"body.0.{inner}"): v for k, v in state.items()}
        return {".".join([*outer, k]): v for k, v in renamed.items()}

    content = named(raw)
    if "." in average or average == "ema_model" or (average and kind == "safetensors"):
        content = content | {f"{average}.{k}": v for k, v in named(averaged).items()}
    elif average:
        content = {"state_dict": content, average: named(averaged)}
    with tempfile.TemporaryDirectory() as place:
        file = f"{place}/w.{kind}"
        if kind == "pt":
            torch.save(content, file)
        else:
            from safetensors.torch import save_file

            save_file(content, file)
        net = Net()
        load_weights(net, file)
    for key, value in (averaged if average else raw).items():
        assert torch.equal(net.state_dict()[key], value), key


KINDS = {
    "1": lambda rng: rng.integers(0, 2, (6, 5)).astype(bool),
    "L": lambda rng: rng.integers(0, 256, (6, 5)).astype(np.uint8),
    "LA": lambda rng: rng.integers(0, 256, (6, 5, 2)).astype(np.uint8),
    "RGB": lambda rng: rng.integers(0, 256, (6, 5, 3)).astype(np.uint8),
    "RGBA": lambda rng: rng.integers(0, 256, (6, 5, 4)).astype(np.uint8),
    "I;16": lambda rng: rng.integers(0, 65536, (6, 5)).astype(np.uint16),
    "I": lambda rng: rng.integers(0, 65536, (6, 5)).astype(np.int32),
    "F": lambda rng: rng.uniform(-1000, 3000, (6, 5)).astype(np.float32),
}


def expected(array, low, high):
    """RGB of an array ``[H, W]`` or ``[H, W, n]`` without transparency."""
    eight = array * 255 if array.dtype == bool else array
    if eight.itemsize > 1 and array.dtype != bool:
        eight = np.clip(np.round((array.astype(float) - low) / (high - low) * 255), 0, 255)
    eight = eight[..., None] if eight.ndim == 2 else eight
    return eight[..., :3] if eight.shape[2] > 2 else eight[..., :1].repeat(3, axis=2)


@few
@given(
    kind=st.sampled_from([*KINDS, "array"]),
    channels=st.integers(1, 4),
    dtype=st.sampled_from(["u1", "u2", "i4", "f4", "f8"]),
    first=st.booleans(),
    seed=st.integers(0, 99),
)
def test_pixels_of_every_mode(kind, channels, dtype, first, seed):
    rng = np.random.default_rng(seed)
    low, high = (-1000.0, 3000.0) if kind == "F" else (0.0, 65535.0)
    with tempfile.TemporaryDirectory() as place:
        if kind == "array":
            array = rng.integers(0, 256, (6, 5, channels)).astype(dtype)
            low, high, file = 0.0, 200.0, f"{place}/a.npy"
            np.save(file, np.moveaxis(array, 2, 0) if first else array)
        else:
            array = KINDS[kind](rng)
            file = f"{place}/a.{'tif' if kind in 'IF' else 'png'}"
            Image.fromarray(array).save(file)
        image = load_rgb(file, decoding=Decoding((low, high)))
    assert (image.mode, image.size) == ("RGB", (5, 6))
    if kind in ("LA", "RGBA"):
        alpha = array[..., -1:] / 255
        paper = array[..., :-1] * alpha + 255 * (1 - alpha)
        assert np.abs(np.asarray(image) - paper).max() <= 2
    else:
        assert np.abs(np.asarray(image) - expected(array, low, high)).max() <= 1
    shown = 3 if array.ndim == 2 else array.shape[2]
    assert getattr(image, "channels", np.zeros((6, 5, 3))).shape[2] == (3 if shown == 1 else shown)
