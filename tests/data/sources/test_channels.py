"""Images of any number of channels: read whole by a network that takes as many, RGB for others."""

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from torch import nn
from torchvision.transforms import CenterCrop, ColorJitter, RandomHorizontalFlip

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.folders import read_folder
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.data.transforms.synthetic_ood import SyntheticOOD
from ood_lab.models import module_backbone
from ood_lab.models.image_transforms import evaluation_transform, train_transform

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 255, (20, 24, 6)).astype(np.uint8)


def saved(path, array, **options):
    """A file of one of the kinds."""
    if path.suffix == ".tif":
        tifffile = pytest.importorskip("tifffile")
        kind = {"photometric": "minisblack", "planarconfig": "contig"}
        tifffile.imwrite(path, array, **kind | options)
    elif path.suffix == ".npz":
        np.savez(path, image=array, label=1)
    else:
        np.save(path, array)
    return path


@pytest.mark.parametrize("ending", ["npy", "npz", "tif"])
@pytest.mark.parametrize("n", [2, 4, 6])
def test_all_channels_are_read(tmp_path, ending, n):
    array = BYTES[..., :n]
    image = load_rgb(saved(tmp_path / f"a.{ending}", array))
    assert (image.mode, image.size) == ("RGB", (24, 20))
    assert np.array_equal(image.channels, array)
    shown = array[..., :3] if n > 2 else np.repeat(array[..., :1], 3, axis=2)
    assert np.array_equal(np.asarray(image), shown)
    assert not hasattr(image.resize((8, 8)), "channels")


def test_ranges_and_orders(tmp_path):
    deep = saved(tmp_path / "deep.npy", BYTES.astype(np.uint16) * 16)
    image = load_rgb(deep, decoding=Decoding((0, 4080)))
    np.testing.assert_allclose(image.channels, BYTES / 255, atol=1e-6)
    floats = saved(tmp_path / "floats.npy", np.moveaxis(BYTES / 255, 2, 0))
    with pytest.raises(UserError, match=r"data.pixel_range=\[low,high\]"):
        load_rgb(floats)
    image = load_rgb(floats, decoding=Decoding((0, 1)))
    np.testing.assert_allclose(image.channels, BYTES / 255, atol=1e-6)
    assert np.array_equal(np.asarray(image), BYTES[..., :3])
    for array in (BYTES[..., 0], BYTES[..., :3], BYTES[..., 0] > 99):
        assert not hasattr(load_rgb(saved(tmp_path / "plain.npy", array)), "channels")


def test_what_is_no_image_is_said(tmp_path):
    with pytest.raises(UserError, match=r"array \[3\] of float64, no image"):
        load_rgb(saved(tmp_path / "a.npy", np.zeros(3)))
    np.savez(tmp_path / "a.npz", x=1, y=2)
    with pytest.raises(UserError, match="arrays x, y: call one of them 'image'"):
        load_rgb(tmp_path / "a.npz")
    tiff = saved(tmp_path / "a.tif", BYTES)
    tiff.write_bytes(tiff.read_bytes()[:600])
    with pytest.raises(UserError, match="cannot identify image file"):
        load_rgb(tiff)


def test_transparency_is_a_fourth_channel_and_paper_to_the_eye(tmp_path):
    array = RNG.integers(0, 255, (20, 24, 4)).astype(np.uint8)
    Image.fromarray(array, "RGBA").save(tmp_path / "a.png")
    image = load_rgb(tmp_path / "a.png")
    assert np.array_equal(image.channels, array)
    paper = Image.alpha_composite(Image.new("RGBA", (24, 20), "white"), Image.fromarray(array))
    assert image.tobytes() == paper.convert("RGB").tobytes()


def network(channels, **options):
    net = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return module_backbone(nn.Sequential(*net, nn.Linear(4, 2)), "3", 2, input_size=16, **options)


def folder(root, array=lambda i: BYTES, ending="npy"):
    for name in "ab":
        (root / name).mkdir(parents=True)
        for i in range(6):
            saved(root / name / f"{i}.{ending}", array(i))
    return root


@pytest.mark.parametrize("channels", [2, 5, 6])
def test_a_network_gets_as_many_as_its_first_layer_takes(tmp_path, channels):
    backbone = network(channels)
    assert backbone.data_config["input_size"] == (channels, 16, 16)
    assert len(backbone.data_config["mean"]) == channels
    root = folder(tmp_path / "a", lambda i: np.roll(BYTES[:, :20, :channels], i, 0))
    data = FolderDataModule({"train": str(root)}, {})
    steps = [RandomHorizontalFlip(1.0)]
    data.use_transform(eval=backbone.transform, train=train_transform(backbone, steps))
    image = data.splits["test"][0]["image"]
    assert backbone(image[None]).logits.shape == (1, 2)
    batch = next(iter(data.train_dataloader()))
    plain = data.splits["train"][int(batch["index"][0])]["image"]
    torch.testing.assert_close(batch["image"][0], plain.flip(-1), rtol=0, atol=1e-5)
    assert f"training images have {channels} channels" in " ".join(data.report.notes)
    sized = train_transform(backbone, geometry=[CenterCrop(16)])
    assert sized(data.load_image("train", 0)).shape == (channels, 16, 16)


def test_other_channels_and_transforms_of_rgb_are_refused(tmp_path):
    data = FolderDataModule({"train": str(folder(tmp_path / "a"))}, {})
    with pytest.raises(UserError, match=r"images of train: the network takes 5 channels.*has 6"):
        data.use_transform(eval=network(5).transform)
    with pytest.raises(UserError, match=r"ColorJitter takes RGB images, and .* takes 6 channels"):
        train_transform(network(6), [ColorJitter(hue=0.1)])
    with pytest.raises(UserError, match="must be one number or 6"):
        network(6, mean=[0.5, 0.5])


def test_corruptions_treat_three_channels_at_a_time(tmp_path):
    kinds = SyntheticOOD(kind="corruptions", corruptions=["contrast"], severities=[3])
    data = FolderDataModule({"train": str(folder(tmp_path / "a"))}, {}, synthetic_ood=kinds)
    data.use_transform(eval=network(6).transform)
    image = data.splits["corrupted"].load_image(0)
    assert image.channels.shape == BYTES.shape
    assert np.array_equal(image.channels[..., :3], np.asarray(image))
    assert image.channels[..., 3:].std() < 0.6 * BYTES[..., 3:].std()
    assert data.splits["corrupted"][0]["image"].shape == (6, 16, 16)


def test_arrays_beside_pictures_are_no_images(tmp_path):
    root = folder(tmp_path / "a")
    Image.fromarray(BYTES[..., :3]).save(root / "a" / "x.png")
    np.save(root / "labels.npy", np.arange(3))
    remarks = []
    table = read_folder(root, True, lambda text, doubtful=True: remarks.append(text))
    assert [(path[-7:], label) for path, label in table.itertuples(index=False)] == [
        ("a/x.png", "a")
    ]
    assert "13 .npy" in remarks[0]


def test_pages_and_grey_images_are_said(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(4):
            page = Image.fromarray(np.roll(BYTES[..., "ab".index(name)], i, 0))
            page.save(tmp_path / name / f"{i}.tif", save_all=True, append_images=[page])
    data = FolderDataModule({"train": str(tmp_path)}, {}, split=[0.5, 0.25, 0.25])
    data.setup()
    assert "100% of 4 training images have several pages" in " ".join(data.report.warnings)
    assert "all ID images are grey" in " ".join(data.report.notes)


def test_the_two_last_steps_of_timm_are_one_with_the_same_numbers():
    settings = {"input_size": (3, 18, 16), "mean": (0.1, 0.4, 0.7), "std": (0.2, 0.3, 0.9)}
    image = Image.fromarray(BYTES[..., :3].copy())
    steps, own = create_transform(**settings), evaluation_transform(settings)
    assert repr(own) == repr(steps)
    assert torch.equal(own(image), steps(image))


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((11, 11, 30), 30), ((30, 11, 11), 30), ((11, 12, 30), 30), ((3, 9, 80), 3), ((9, 7, 4), 4)],
)
def test_which_axis_is_that_of_channels(tmp_path, shape, channels):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint8))
    picture = load_rgb(tmp_path / "a.npy")
    found = getattr(picture, "channels", np.zeros((*picture.size[::-1], 3)))
    assert found.shape == ((*shape[1:], channels) if shape[0] == channels else shape)
