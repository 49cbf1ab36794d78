"""Checks of datasets: broken and shared files, sizes, formats, and what tells a set apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any, Literal

import numpy as np
import pandas as pd
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from ood_lab.common.arguments import Positive
from ood_lab.common.english import counted, first_of
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.grouping import without_keys
from ood_lab.common.random_streams import stream
from ood_lab.data.checks.check_report import (
    CheckReport,
    Finding,
    Overlap,
    SetSummary,
    hashed,
    listed_files,
    twins_of,
)
from ood_lab.data.checks.label_checks import count_by_class
from ood_lab.data.dataset import ID_SPLITS, UNKNOWN, ImageDataset, Splits
from ood_lab.data.sources.file_facts import Facts, file_facts, unreadable
from ood_lab.data.sources.image_files import (
    DECODING,
    FileDataset,
    Identify,
    PixelRange,
    load_rgb,
    pixel_values,
    reason,
)
from ood_lab.data.sources.image_formats import register_formats
from ood_lab.data.sources.image_stores import Store
from ood_lab.data.sources.pixel_decoding import PERCENTILES, TOP, WHOLE, Decoding
from ood_lab.metrics.ood import auroc
from ood_lab.schema.arrays import spaced_rows
from ood_lab.schema.image_statistics import FORMAT
from ood_lab.schema.results import Tables

#: ``auto`` decodes every file up to this many, else a sample of ``SAMPLE``.
FULL_UP_TO = 50_000
SAMPLE = 5_000
#: Pixels of a side below which an image cannot show much.
TINY = 8
#: Mean of the luminance table at quality 50.
_ANNEX_K = 57.625


@dataclass(frozen=True)
class Checking:
    """What is checked before any work, how files are known again, and how they are decoded.

    Args:
        check: ``auto``, ``full``, ``headers`` or ``off``, see :func:`check_data`.
        on_broken: ``stop`` at an unreadable image, or ``skip`` it.
        identify: ``content`` or ``stat``, see
            :class:`~ood_lab.data.sources.image_files.FileDataset`.
        cache_dir: folder that remembers facts of unchanged files; None = nothing is remembered.
        pixel_range: values that become black and white in images of more than 8 bits, see
            :func:`~ood_lab.data.sources.pixel_decoding.range_of`; one pair for all sets.
        max_megapixels: larger images are read reduced where their format can be, else rejected.
    """

    check: Literal["auto", "full", "headers", "off"] = "auto"
    on_broken: Literal["stop", "skip"] = "stop"
    identify: Identify = "content"
    cache_dir: StrPath | None = None
    pixel_range: PixelRange = "auto"
    max_megapixels: Positive = 250


def check_data(
    splits: Splits,
    checking: Checking,
    seed: int = 0,
    ood: Sequence[str] | None = None,
) -> CheckReport:
    """Checks counts and classes of every set, and the files of those that have files.

    - Unreadable files: decoded (``full``), only opened (``headers``), not touched (``off``).
      ``auto`` decodes everything up to 50,000 files; above, it opens every file and decodes a
      seeded sample of 5,000, and the report says so.
    - The same content (sha256) in two of train, val and test, in ID and an OOD set, or, where
      every file is decoded, twice within a set. Only files of equal size are compared.
    - Images with a side of fewer than 8 pixels.
    - A difference between an OOD set and ID test that a detector could use instead of the
      content: file format or share of grey images (20 points), or size (the area by itself ranks
      OOD above or below ID with AUROC >= 80%, and the medians differ by a factor >= 1.25 a side);
      and such a difference in size between ID train and ID test.

    Args:
        splits: ``train``, ``val``, ``test``, then the other sets by name.
        checking: how much of each file is read; ``on_broken="skip"`` lists the unreadable
            rows in ``report.broken`` instead.
        seed: of the sample.
        ood: the OOD sets that are evaluated, which must not be told from ID by their files; None =
            all but train, val and test.

    Raises:
        UserError: unreadable files, where these stop; a set without a readable file.
    """
    sets = {name: data for name, data in splits.items() if isinstance(data, FileDataset)}
    files = listed_files(sets)
    full = checking.check == "full" or (checking.check == "auto" and len(files) <= FULL_UP_TO)
    decoding = next((data.decoding for data in sets.values()), DECODING)
    facts, notes = _look_at(files, sets, decoding, checking, full, seed)
    failed = facts[facts["error"] != ""].groupby("split")
    broken = {str(name): part["row"].tolist() for name, part in failed}
    if broken and checking.on_broken == "stop":
        text = unreadable(facts, "images")
        raise UserError(f"{text}. Repair or remove them, or set data.on_broken=skip")
    if lost := next(
        (name for name, rows in broken.items() if len(rows) == len(splits[name])), None
    ):
        text = unreadable(facts[facts["split"] == lost], f"images of {lost}")
        raise UserError(f"{text}. Repair or remove them, without them it is empty")
    by_set = hashed(facts, sets, full) if checking.check != "off" else {}
    readable = _readable(facts)
    tiny = readable[readable[["width", "height"]].min(axis=1) < TINY]
    large = readable[readable["width"] * readable["height"] > decoding.max_megapixels * 1e6]
    limit = f"data.max_megapixels={decoding.max_megapixels:g}"
    return CheckReport(
        sets=[_summary(n, d, facts[facts["split"] == n]) for n, d in splits.items()],
        overlaps=_overlaps(by_set),
        differences=[
            *(_copies(by_set, splits) if full else ()),
            *_empty_classes(splits),
            *_by_set(tiny, f"with a side below {TINY} pixels", "remove what is not a picture"),
            *_by_set(large, "that are read reduced", f"{limit} is the limit"),
            *(nearly_black(sets, readable) if checking.check != "off" else ()),
            *shortcuts(
                readable[readable["split"].isin([*ID_SPLITS, *(splits if ood is None else ood)])]
            ),
        ],
        notes=notes,
        broken=broken,
        files=file_statistics(readable).drop_duplicates("path"),
    )


#: Of a file that nobody has looked at.
_UNSEEN: Facts = {
    "format": "",
    "width": 0,
    "height": 0,
    "grey": np.nan,
    "quality": np.nan,
    "error": "",
}


def _look_at(
    files: pd.DataFrame,
    sets: Mapping[str, FileDataset],
    decoding: Decoding,
    checking: Checking,
    full: bool,
    seed: int,
) -> tuple[pd.DataFrame, list[str]]:
    """Adds ``bytes, format, width, height, quality, grey, error``, and says how they were found."""
    if checking.check == "off" or files.empty:
        notes = [] if files.empty else ["files were not looked at (data.check=off)"]
        return files.assign(bytes=0, **_UNSEEN), notes
    decoded = np.full(len(files), full)
    if checking.check == "auto" and not full:
        sample = stream(seed, "decoded files").choice(len(files), SAMPLE, replace=False)
        decoded[sample] = True
    parts = []
    stores = files["split"].map({name: data.store for name, data in sets.items()})
    groups: Any = files.groupby([decoded, stores], sort=False)
    for (deep, store), part in groups:
        look = partial(_look, deep=deep, store=store, decoding=decoding)
        kind = "checking images" if deep else "checking headers"
        if decoding != DECODING:  # what is readable in one way need not be in another
            kind += f" {decoding.pixel_range or ''} up to {decoding.max_megapixels:g} megapixels"
        seen = file_facts(part["path"], look, kind, checking.cache_dir, store)
        parts.append(part.assign(**seen.drop(columns="path").set_index(part.index)))
    notes = [
        f"{int(decoded.sum()):,} of {len(files):,} files were decoded, the rest only opened; "
        "copies within a set were not looked for"
    ]
    return pd.concat(parts).sort_index(), [] if full else notes


def _look(path: str, deep: bool, store: Store, decoding: Decoding) -> Facts:
    facts = dict(_UNSEEN)
    try:
        register_formats()
        with store.open(path) as image:
            facts |= {"format": image.format or "", "width": image.width, "height": image.height}
            tables = image.quantization if isinstance(image, JpegImageFile) else None
            facts["quality"] = jpeg_quality(tables)
        if deep:
            facts["grey"] = float(_is_grey(load_rgb(path, store, decoding)))
    except Exception as error:  # as in load_rgb, whose own error names the path once more
        facts["error"] = reason(error.__cause__ or error, path)
    return facts


def jpeg_quality(tables: Mapping[int, Sequence[int]] | None) -> float:
    """Quality of a JPEG from its quantisation tables, 1 to 100; 100 of what has no such tables.

    The luminance table of quality q is that of Annex K of the standard (ITU-T T.81), mean 57.6,
    times ``50 / q`` below 50 and ``2 - q / 50`` above, which is solved for q (libjpeg's scale).
    """
    if not tables:
        return 100.0
    scale = float(np.mean(tables[0])) / _ANNEX_K
    return min(100.0, 50 / scale) if scale > 1 else max(50.0, 100 - 50 * scale)


def _is_grey(image: Image.Image) -> bool:
    """No pixel of a coarse grid has any colour to speak of (JPEG leaves a level or two)."""
    step = max(1, min(image.size) // 64)
    pixels = np.asarray(image)[::step, ::step].astype(np.int16)
    return bool(np.ptp(pixels, axis=2).max() <= 3)


def _readable(facts: pd.DataFrame) -> pd.DataFrame:
    return facts[(facts["error"] == "") & (facts["width"] > 0)]


def _overlaps(by_set: Tables) -> list[Overlap]:
    pairs = [*combinations(ID_SPLITS, 2), *product(["ID"], without_keys(by_set, ID_SPLITS))]
    overlaps = [twins_of(first, second, by_set) for first, second in pairs]
    return [overlap for overlap in overlaps if overlap]


def _copies(by_set: Tables, splits: Splits) -> Iterable[Finding]:
    """The same content twice within a set: its images are fewer than it seems to have."""
    for name, part in by_set.items():
        copies = part[part.duplicated("sha256")]
        if copies.empty:
            continue
        copy = copies.iloc[0]
        twin = part[part["sha256"] == copy["sha256"]].iloc[0]
        labelled = part.assign(label=splits[name].labels.numpy()[part["row"].to_numpy(int)])
        labels = labelled[labelled["label"] != UNKNOWN].groupby("sha256")["label"].nunique()
        torn = int((labels > 1).sum())
        cases = f", with 2 labels in {counted(torn, 'case')}" if torn else ""
        same = "is listed twice" if copy["path"] == twin["path"] else f"= {twin['path']}"
        yield Finding(
            f"{counted(len(copies), 'image')} of {name} with the content of another one in it"
            f"{cases}: {copy['path']} {same}",
            (name,),
        )


def _summary(name: str, data: ImageDataset, facts: pd.DataFrame) -> SetSummary:
    counts = count_by_class(data)
    per_class = size = sides = common = None
    if counts is not None and counts.any():
        per_class = int(counts.min()), int(counts.max())
    seen = _readable(facts)
    if len(seen):
        middle = seen.iloc[(seen["width"] * seen["height"]).argsort().iloc[len(seen) // 2]]
        size = int(middle["width"]), int(middle["height"])
        edges = seen[["width", "height"]]
        common = size if (edges == edges.iloc[0]).all(axis=None) else None
        sides = int(edges.to_numpy().min()), int(edges.to_numpy().max())
    grey = seen["grey"].mean()
    return SetSummary(
        name=name,
        images=len(data),
        classes=0 if counts is None else int((counts > 0).sum()),
        per_class=per_class,
        median_size=size,
        common_size=common,
        sides=sides,
        formats=shares_of_formats(seen),
        grey=None if np.isnan(grey) else float(grey),
        broken=int((facts["error"] != "").sum()),
    )


def _by_set(facts: pd.DataFrame, which: str, remark: str) -> Iterable[Finding]:
    """A finding for every set that has such images."""
    for name, part in facts.groupby("split", sort=False):
        first = part.iloc[0]
        yield Finding(
            f"images of {name} {which}: {len(part):,}, such as '{first['path']}' "
            f"({first['width']}×{first['height']}); {remark}",
            (str(name),),
        )


def _empty_classes(splits: Splits) -> Iterable[Finding]:
    for name in ID_SPLITS:
        counts = count_by_class(splits[name]) if name in splits else None
        if counts is not None and counts.any() and not counts.all():
            empty = [splits[name].classes[i] for i in np.flatnonzero(counts == 0)]
            yield Finding(
                f"{len(empty)} of {len(counts)} classes have no image in {name}: {first_of(empty)}",
                (name,),
            )


#: Images of a set that are looked at.
DARK_SAMPLE = 16
#: Share of the range from black to white below which 99.9% of the pixels are nearly black.
DARK = 16 / 255


def nearly_black(sets: Mapping[str, FileDataset], readable: pd.DataFrame) -> Iterable[Finding]:
    """Names the sets that are nearly black, and those whose deep pixels are clipped.

    Args:
        sets: those of files.
        readable: ``split, row`` of the images that can be read.
    """
    for name, part in readable.groupby("split", sort=False):
        data = sets[str(name)]
        chosen = spaced_rows(len(part), DARK_SAMPLE)
        paths = part["path"].iloc[chosen].tolist()
        values = pixel_values(paths, data.store, data.decoding, data.cache_dir)
        if len(values):
            yield from _dark(data, values)
            yield from _clipped(data, values[values["deep"].astype(bool)])


def _dark(data: FileDataset, values: pd.DataFrame) -> Iterable[Finding]:
    low, high = data.decoding.pixel_range or WHOLE
    deep = values["deep"].astype(bool)
    brightest = values["top"].where(~deep, (values["top"] - low) / (high - low) * 255).max() / 255
    if brightest < DARK:
        yield Finding(
            f"images of {data.name} are nearly black: {TOP}% of the pixels are below "
            f"{max(0, brightest):.1%} of white, as where 12 bits are saved in 16, or masks in the "
            "place of images; data.pixel_range=[low,high] sets the range of images of more than "
            "8 bits",
            (data.name,),
        )


def _clipped(data: FileDataset, deep: pd.DataFrame) -> Iterable[Finding]:
    if data.decoding.pixel_range is None or deep.empty:
        return
    low, high = data.decoding.pixel_range
    slack = (high - low) / 100  # the percentiles of a single image differ from those of the sample
    outside = (deep["low"] < low - slack) | (deep["high"] > high + slack)
    if outside.any():
        yield Finding(
            f"pixels of {data.name} are outside of {low:g} to {high:g} and become black or white, "
            f"more than {PERCENTILES[0]}% of them in {outside.mean():.0%} of the images: "
            "data.pixel_range=[low,high] sets another range",
            (data.name,),
        )


#: Differences that are worth a line: share of images, ratio of median sides, AUROC of the size.
SHARE, RATIO, SEPARATION = 0.2, 1.25, 0.8


def shortcuts(facts: pd.DataFrame) -> Iterable[Finding]:
    """Compares each OOD set with ID test, and the size of the training images.

    Args:
        facts: one row a readable file: ``split, path, format, width, height, quality``
            and ``grey`` (0, 1 or NaN).

    Yields:
        A finding for each difference, with its figures.
    """
    inside = facts[facts["split"] == "test"]
    if inside.empty:
        return
    for sizes in _by_size(facts[facts["split"] == "train"], inside, ("train", "test")):
        yield Finding(
            f"train can be told from test by {sizes}. Detectors are fitted on train, and may call "
            "ID test images OOD for their size",
            ("test",),
        )
    for name, outside in facts[~facts["split"].isin(ID_SPLITS)].groupby("split", sort=False):
        of_format = _by_format(inside, outside, str(name))
        for difference in (*of_format, *_by_size(inside, outside, ("ID", str(name)))):
            yield Finding(f"{name} can be told from ID by {difference}", (str(name),))


def file_statistics(facts: pd.DataFrame) -> pd.DataFrame:
    """Statistics of files, see :data:`~ood_lab.schema.image_statistics.FILES`.

    Args:
        facts: ``path, format, width, height, grey, quality`` of readable files.

    Returns:
        ``path``, the statistics, and of every format a column that is 1 for its files; NaN where
        something is not known.
    """
    from_file = facts["format"] != ""  # of images that arrive decoded nobody knows the format
    statistics = pd.DataFrame({"path": facts["path"]})
    statistics["size"] = (facts["width"] * facts["height"]).astype(float) ** 0.5
    statistics["aspect ratio"] = facts["width"] / facts["height"]
    statistics["JPEG quality"] = facts["quality"].astype(float).where(from_file)
    statistics["grey"] = facts["grey"].astype(float)
    for name in sorted(set(facts.loc[from_file, "format"])):
        statistics[f"{FORMAT}{name}"] = (facts["format"] == name).astype(float).where(from_file)
    return statistics


def _by_format(inside: pd.DataFrame, outside: pd.DataFrame, name: str) -> Iterable[str]:
    a, b = (pd.Series(shares_of_formats(part), dtype=float) for part in (inside, outside))
    if len(a) and len(b) and (a.sub(b, fill_value=0).abs() > SHARE).any():
        yield f"file format: ID {_shares(a)}, {name} {_shares(b)}"
    id_grey, grey = inside["grey"].mean(), outside["grey"].mean()
    if abs(id_grey - grey) > SHARE:
        yield f"colour: ID {id_grey:.0%} grey images, {name} {grey:.0%}"


def shares_of_formats(facts: pd.DataFrame) -> dict[str, float]:
    """Share of each known file format, largest first."""
    formats = facts.loc[facts["format"] != "", "format"]
    return {str(name): share for name, share in formats.value_counts(normalize=True).items()}


def _shares(formats: pd.Series) -> str:
    return ", ".join(f"{share:.0%} {name}" for name, share in formats.head(2).items())


def _by_size(inside: pd.DataFrame, outside: pd.DataFrame, names: tuple[str, str]) -> Iterable[str]:
    if inside.empty:
        return
    a, b = (file_statistics(part)["size"] for part in (inside, outside))
    area = auroc(a.to_numpy(), b.to_numpy())
    ratio = b.median() / a.median()
    if max(area, 1 - area) >= SEPARATION and max(ratio, 1 / ratio) >= RATIO:
        yield (
            f"size, AUROC {max(area, 1 - area):.0%}: "
            f"{names[0]} {a.median():.0f} px (median side), {names[1]} {b.median():.0f} px"
        )
