"""Images of more than 8 bits and of many pixels: one range for all sets, a limit that is ours."""

import struct
import zlib

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ood_lab import deploy
from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.sources.pixel_decoding import Decoding, range_of


def deep(root, low, high, dtype, ending="png", each=8):
    """Class folders of noise from ``low`` to ``high``, which both occur."""
    rng = np.random.default_rng(0)
    for name in "ab":
        (root / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.uniform(low, high, (16, 16))
            pixels[0, :2] = low, high
            Image.fromarray(pixels.astype(dtype)).save(root / name / f"{i}.{ending}")
    return root


def module(root, **options):
    data = FolderDataModule({"train": str(root)}, {}, split=[0.5, 0.25, 0.25], **options)
    data.setup()
    return data


def spread(data):
    pixels = np.asarray(data.splits["train"].load_image(0))
    return int(pixels.min()), int(pixels.max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high", "dtype", "ending", "options", "said"),
    [
        (0, 65535, np.uint16, "png", {}, ""),
        (0, 4095, np.uint16, "png", {}, "read as 12 bits, 0 to 4095"),
        (0, 1023, np.uint16, "tif", {}, "read as 10 bits"),
        (0, 255, np.int32, "tif", {}, "read as 8 bits"),
        (0, 1, np.float32, "tif", {}, "0 to 1 become black to white"),
        (-1000, 1500, np.float32, "tif", {"pixel_range": [-1000, 1500]}, ""),
        (-1000, 1500, np.int32, "tif", {"pixel_range": [-1000, 1500]}, ""),
        (0, 255, np.uint8, "png", {"pixel_range": [0, 4095]}, ""),  # 8 bits stay as they are
    ],
)
def test_the_range_fills_black_to_white(tmp_path, low, high, dtype, ending, options, said):
    data = module(deep(tmp_path / "set", low, high, dtype, ending), **options)
    assert spread(data) == (0, 255)
    warnings = " ".join(data.report.warnings)
    assert said in warnings
    assert bool(said) == bool(warnings)


@pytest.mark.parametrize(
    ("low", "high", "dtype", "options", "match"),
    [
        (-1000, 1500, np.float32, {}, r"pixel_range=\[-1000,1500\] or percentile"),
        (0, 300, np.float32, {}, "without a fixed range"),
        (-5, 200, np.int32, {}, "beyond 16 bits"),
        (0, 10**6, np.int32, {}, "beyond 16 bits"),
        (0, 9, np.uint16, {"pixel_range": [9, 0]}, "low < high"),
        (0, 9, np.uint16, {"pixel_range": "some"}, "'auto' or 'percentile' or a list"),
        (0, 9, np.uint16, {"max_megapixels": 0}, "above 0"),
    ],
)
def test_a_range_that_cannot_be_known(tmp_path, low, high, dtype, options, match):
    with pytest.raises(UserError, match=match):
        module(deep(tmp_path / "set", low, high, dtype, "tif"), **options)


def test_percentiles_and_the_identity(tmp_path):
    root = deep(tmp_path / "set", -1000, 1500, np.float32, "tif")
    by = {
        str(range_): module(root, pixel_range=range_)
        for range_ in ("percentile", [-1000, 1500], [-1000, 2000])
    }
    assert spread(by["percentile"]) == (0, 255)
    assert len({data.splits["train"].identity for data in by.values()}) == 3
    eight = deep(tmp_path / "eight", 0, 255, np.uint8)
    ids = [module(eight, pixel_range=r).splits["train"].identity for r in ("auto", "percentile")]
    assert ids[0] == ids[1]


def test_all_sets_have_the_range_of_train(tmp_path):
    root = deep(tmp_path / "set", 0, 4095, np.uint16)
    far = deep(tmp_path / "far", 0, 65535, np.uint16)
    data = FolderDataModule({"train": str(root)}, {"far": str(far)})
    data.setup()
    assert data.splits["far"].decoding == data.splits["train"].decoding
    assert "pixels of far are outside of 0 to 4095" in " ".join(data.report.warnings)


def test_sets_that_are_nearly_black_are_named(tmp_path):
    data = module(deep(tmp_path / "set", 0, 12, np.uint8))
    assert "images of train are nearly black" in " ".join(data.report.warnings)


def test_large_images_are_read_reduced_or_refused_by_name(tmp_path):
    image = Image.fromarray(np.full((1200, 1600, 3), 90, np.uint8))
    for name in ("a.jpg", "a.png"):
        image.save(tmp_path / name)
    pages = [image.resize((1600 // n, 1200 // n)) for n in (1, 2, 4)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    small = Decoding(max_megapixels=0.5)
    assert load_rgb(tmp_path / "a.jpg", decoding=small).size == (800, 600)
    assert load_rgb(tmp_path / "a.tif", decoding=small).size == (800, 600)
    with pytest.raises(UserError, match=r"a.png.*1,600 × 1,200 .*data.max_megapixels=2 reads"):
        load_rgb(tmp_path / "a.png", decoding=small)
    assert load_rgb(tmp_path / "a.png").size == (1600, 1200)


def test_reduced_images_are_counted(tmp_path):
    root = deep(tmp_path / "set", 0, 255, np.uint8)
    Image.fromarray(np.full((1200, 1600, 3), 90, np.uint8)).save(root / "a" / "x.jpg")
    data = module(root, max_megapixels=0.5)
    assert "that are read reduced: 1" in " ".join(data.report.warnings)


def colours_of_16_bits(path, pixels):
    """A PNG or TIFF, which Pillow cannot write: its parts by hand."""
    height, width, _ = pixels.shape
    if path.suffix == ".png":

        def chunk(kind, data):
            body = kind + data
            return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

        rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
        head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
        path.write_bytes(
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b"")
        )
        return
    data = pixels.astype("<u2").tobytes()
    depths = 8 + len(data)
    tags = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, 3, depths), (259, 3, 1, 1),
            (262, 3, 1, 2), (273, 4, 1, 8), (277, 3, 1, 3), (278, 3, 1, height),
            (279, 4, 1, len(data)), (284, 3, 1, 1)]  # fmt: skip
    path.write_bytes(
        struct.pack("<2sHI", b"II", 42, depths + 6)
        + data
        + struct.pack("<3H", 16, 16, 16)
        + struct.pack("<H", len(tags))
        + b"".join(struct.pack("<HHII", *tag) for tag in tags)
        + struct.pack("<I", 0)
    )


@pytest.mark.parametrize("ending", ["png", "tif"])
@pytest.mark.parametrize(("high", "said"), [(4095, "read as 12 bits"), (65535, "")])
def test_colours_of_more_than_8_bits(tmp_path, ending, high, said):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, high + 1, (8, 16, 16, 3))
    pixels[:, 0, :2] = [[0], [high]]
    for name, part in (("a", pixels[:4]), ("b", pixels[4:])):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i, one in enumerate(part):
            colours_of_16_bits(tmp_path / "set" / name / f"{i}.{ending}", one)
    data = module(tmp_path / "set")
    assert said in " ".join(data.report.warnings)
    seen = {np.asarray(data.splits[s].load_image(i)).tobytes()
            for s in ("train", "val", "test") for i in range(len(data.splits[s]))}  # fmt: skip
    levels = (pixels * (255 / high)).round()
    assert seen == {one.astype(np.uint8).tobytes() for one in levels}


def png_of_16_bits(path, pixels):
    """Writes ``[H, W, n] uint16`` as PNG: grey with transparency for n = 2, RGBA for n = 4."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width, n = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, {2: 4, 4: 6}[n], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))
    return path


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("high", [16383, None])
def test_the_range_is_of_the_colours_and_transparency_has_its_own(tmp_path, n, high):
    pixels = np.random.default_rng(0).integers(0, 16384, (6, 5, n)).astype(np.uint16)
    pixels[..., -1] *= 4
    picture = load_rgb(
        png_of_16_bits(tmp_path / "a.png", pixels),
        decoding=Decoding(None if high is None else (0.0, high)),
    )
    opaque = pixels[..., -1:] / 65535
    expected = pixels[..., :-1] * (255 / (high or 65535)) * opaque + 255 * (1 - opaque)
    assert abs(np.asarray(picture) - expected).max() < 2.5
    if high is not None:  # Pillow keeps the upper 8 bits, of which 14 bits leave little
        with pytest.raises(ValueError, match="colours of 16 bits"):
            deploy.read_rgb(tmp_path / "a.png", (0.0, high))


@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_tiff_that_pillow_reads_wrongly(tmp_path, byteorder):
    tifffile = pytest.importorskip("tifffile")
    pixels = np.random.default_rng(0).integers(0, 65536, (3, 6, 5)).astype(np.uint16)
    file, options = tmp_path / "a.tif", {"byteorder": byteorder}
    tifffile.imwrite(file, pixels, photometric="rgb", planarconfig="separate", **options)
    assert abs(np.asarray(load_rgb(file)) - np.moveaxis(pixels, 0, 2) / 257).max() <= 0.51
    tifffile.imwrite(file, pixels[0], photometric="miniswhite", **options)
    assert abs(np.asarray(load_rgb(file))[..., 0] - (255 - pixels[0] / 257)).max() <= 0.51
    tifffile.imwrite(file, pixels[0].astype(np.float32), photometric="miniswhite", **options)
    with pytest.raises(UserError, match="0 is white"):
        load_rgb(file)


def test_hot_pixels_do_not_set_the_range():
    dim = {"least": 0.0, "floats": False, "deep": True, "low": 0.0, "high": 9e3}
    rows = [dim | {"most": 12_000.0, "solid": 12_000.0} for _ in range(30)]
    single = range_of(pd.DataFrame([*rows, rows[0] | {"most": 65535.0}]), "auto")
    assert single[0] == (0, 16383)
    assert "all but single ones up to 12000" in single[1]
    bright = rows[0] | {"most": 65535.0, "solid": 60_000.0}
    few = range_of(pd.DataFrame([*rows, bright]), "auto")
    assert few[0] is None
    assert "[0,16383]" in few[1]
    assert range_of(pd.DataFrame([bright] * 30), "auto") == (None, "")
