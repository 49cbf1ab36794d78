"""Images, folders and tables as people have them: sound ones, each with one to three oddities.

An oddity changes what lies on the disk. What is meant stays the same, unless the oddity says so.
"""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from pictures import picture

CLASSES = ("cat", "dog", "owl")
EACH = 5
NAMES = ("it's", "50%", "a:b", "end ", "2023", "off", "a,b", "größe", "[x]", "null ", "#1", "a b")


@dataclass
class Source:
    """What is given as ``data.id.train``, and what a person means by it.

    ``images`` are meant to be there, ``labelled`` of them with a class; ``said`` has words of which
    one has to be in what is said (``""`` = nothing need be said), ``oddities`` what was done.
    """

    folder: Path
    path: Path
    images: int = len(CLASSES) * EACH
    labelled: int = len(CLASSES) * EACH
    said: list[str] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)


def sound_folder(root: Path, rng: random.Random) -> Source:
    """Class folders of small pictures of many formats."""
    folder = root / rng.choice(["id", "id", *NAMES])
    formats = ("png", "jpg", "JPG", "webp", "gif", "bmp", "tiff", "jpeg")
    for c, name in enumerate(CLASSES):
        for i in range(EACH):
            picture(folder / name / f"{i}.{rng.choice(formats)}", seed=100 * c + i)
    return Source(folder, folder)


def files_of(source: Source) -> list[Path]:
    """The pictures, links left out."""
    return sorted(p for p in source.folder.rglob("*.*") if p.is_file() and not p.is_symlink())


# Oddities of folders.


def loop(source: Source, rng: random.Random) -> None:
    above = rng.choice([source.folder, source.folder.parent, source.folder / "cat"])
    (source.folder / rng.choice(["cat", "dog"]) / "back").symlink_to(above)
    source.said.append("back to a folder")


def loop_beside(source: Source, rng: random.Random) -> None:
    (source.folder / "more").symlink_to(source.folder)
    source.said.append("back to a folder")


def other_file(source: Source, rng: random.Random) -> None:
    name = rng.choice(["x.heic", "x.svg", "x.HEIF", "IMG_7", "x.cr2", "x.mp4", "x.npy"])
    (source.folder / "dog" / name).write_bytes(b"no picture")
    source.said.append(Path(name).suffix.lower() or "without an ending")
    if name.lower().endswith(("heic", "heif")):
        source.said += ["cannot be read", "unreadable"]  # where pillow-heif opens them


def companion(source: Source, rng: random.Random) -> None:
    (source.folder / "dog" / rng.choice(["x.txt", "x.json", ".DS_Store", "Thumbs.db"])).touch()


def broken(source: Source, rng: random.Random) -> None:
    file = rng.choice(files_of(source))
    whole = file.read_bytes()
    kept = rng.choice([0, 1, 10, len(whole) // 2, len(whole) * 9 // 10])
    file.write_bytes(rng.choice([whole[:kept], b"<html>404</html>"]))
    source.said += ["cannot be read", "unreadable"]


def other_content(source: Source, rng: random.Random) -> None:
    """A picture under the ending of another format is one all the same."""
    file = rng.choice(files_of(source))
    file.rename(file.with_suffix(rng.choice([".png", ".jpg", ".webp"])))


def copy(source: Source, rng: random.Random) -> None:
    file = rng.choice(files_of(source))
    place = source.folder / rng.choice(CLASSES) / f"copy of {file.name}"
    shutil.copy(file, place)
    source.images += 1
    source.labelled += 1
    source.said.append("in it")


def dangling(source: Source, rng: random.Random) -> None:
    (source.folder / "cat" / "gone.jpg").symlink_to(source.folder / "nowhere.jpg")
    source.said += ["cannot be read", "unreadable"]


def deep(source: Source, rng: random.Random) -> None:
    file = rng.choice(files_of(source))
    place = file.parent / rng.choice(NAMES) / "deep"
    place.mkdir(parents=True)
    file.rename(place / file.name)


def odd_name(source: Source, rng: random.Random) -> None:
    file = rng.choice(files_of(source))
    file.rename(
        file.parent / (rng.choice(["a\nb", "ü" * 60, "a'b", "  x", "x ", "%d"]) + file.suffix)
    )


def not_utf8(source: Source, rng: random.Random) -> None:
    file = rng.choice(files_of(source))
    os.rename(file, os.fsencode(file.parent) + b"/\xff" + os.fsencode(file.suffix))
    source.said.append("UTF-8")


def empty_class(source: Source, rng: random.Random) -> None:
    (source.folder / "yak").mkdir()
    source.said.append("contains no images")


def loose(source: Source, rng: random.Random) -> None:
    picture(source.folder / "loose.png", seed=77)
    source.said.append("loose")


def tiny(source: Source, rng: random.Random) -> None:
    file = rng.choice(files_of(source))
    file.unlink()
    picture(file.with_suffix(".png"), seed=8, size=(1, 1))
    source.said.append("below 8 pixels")


OF_FOLDERS: list[Callable[[Source, random.Random], None]] = [
    *(loop, loop_beside, other_file, companion, broken, other_content, copy, dangling, deep),
    *(odd_name, not_utf8, empty_class, loose, tiny),
]


# Oddities of tables. The table is written as text, so that any of it can be odd.


def table_of(source: Source, rng: random.Random) -> Source:
    """A table of the pictures, with up to three oddities."""
    rows = [(p.relative_to(source.folder).as_posix(), p.parent.name) for p in files_of(source)]
    rng.shuffle(rows)
    table = pd.DataFrame(rows, columns=["path", "label"])
    changes = rng.choice([[], [OF_VALUES], [OF_HEADERS], [OF_VALUES, OF_HEADERS]])
    for change in map(rng.choice, changes):  # what the columns are called comes last
        table = change(table, source, rng)
        source.oddities.append(change.__name__)
    source.path = source.folder.parent / rng.choice(["list", *NAMES])
    write = rng.choice([as_csv, as_csv, as_csv, as_tsv, as_parquet])
    source.oddities.append(write.__name__)
    write(table, source, rng)
    return source


def header(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    odd = {"path": [" path", "Path", "PATH ", "\u00a0path"], "label": ["Label", " label ", "LABEL"]}
    return table.rename(columns={c: rng.choice(odd[c]) for c in table if c in odd})


def other_word(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    word = rng.choice(["class", "target", "lable", "labels", "Class"])
    source.said.append(word)
    return table.rename(columns={"label": word})


def other_path(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said.append("is read as path")
    return table.rename(columns={"path": rng.choice(["file", "image", "filename"])})


def two_labels(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said += ["may be 'label'", "'Label'"]
    return table.rename(columns={"label": "Label"}).assign(LABEL=1)


def more_columns(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said.append("camera")
    return table.assign(camera="x")


def no_path(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said += ["has no path", "missing", "(no path)"]  # stop or skip
    return table.assign(path=table["path"].where(table.index != 3, rng.choice(["", None, " "])))


def no_label(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said.append("no label in 1 of")
    return table.assign(label=table["label"].where(table.index != 3, rng.choice(["", None, " "])))


def gone(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said += ["missing", "have no image and are skipped"]  # stop or skip
    return table.assign(path=table["path"].where(table.index != 2, "gone/1.png"))


def twice(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said.append("listed twice")
    source.images += 1
    source.labelled += 1
    return pd.concat([table, table.head(1)], ignore_index=True)


def blanks(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    return table.assign(path=table["path"] + " ", label=" " + table["label"] + "  ")


def windows(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    return table.assign(path=table["path"].str.replace("/", "\\"))


def absolute(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    return table.assign(path=[f"{source.folder}/{p}" for p in table["path"]])


def numbers(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    position = {name: i for i, name in enumerate(CLASSES)}
    return table.assign(label=[position.get(name, name) for name in table["label"]])


def fractions(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said.append("not whole")
    return table.assign(label=[0.5 + i for i in range(len(table))])


def capitals(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said.append("upper and lower case")
    return table.assign(label=["CAT" if i == 0 else n for i, n in enumerate(table["label"])])


def no_rows(table: pd.DataFrame, source: Source, rng: random.Random) -> pd.DataFrame:
    source.said.append("no rows")
    return table.head(0)


OF_VALUES = [
    *(more_columns, no_path, no_label, gone, twice, blanks, windows, absolute, numbers, fractions),
    *(capitals, no_rows),
]
OF_HEADERS = [header, header, other_word, other_path, two_labels]


def as_csv(table: pd.DataFrame, source: Source, rng: random.Random) -> None:
    sep = rng.choice([",", ",", ", ", ";", "\t"])
    lines = [sep.join("" if pd.isna(v) else str(v) for v in row) for row in table.to_numpy()]
    lines = [sep.join(map(str, table)), *lines]
    if rng.random() < 0.15 and len(lines) > 1:
        lines[1] += f"{sep}x{sep}y"
        source.said += ["more cells", "cannot read"]
    if rng.random() < 0.1:
        lines.insert(2, "")
    text = rng.choice(["\n", "\r\n"]).join(lines) + rng.choice(["\n", ""])
    source.path = source.path.with_name(source.path.name + rng.choice([".csv", ".CSV"]))
    encoding = rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"])
    if encoding == "utf-16" or (encoding == "latin-1" and not text.isascii()):
        source.said.append("UTF-8")
    source.path.write_bytes(text.encode(encoding, "replace"))
    if encoding == "latin-1":
        source.said.append("")


def as_tsv(table: pd.DataFrame, source: Source, rng: random.Random) -> None:
    source.path = source.path.with_name(source.path.name + ".tsv")
    table.to_csv(source.path, sep="\t", index=rng.random() < 0.2)


def as_parquet(table: pd.DataFrame, source: Source, rng: random.Random) -> None:
    source.path = source.path.with_name(source.path.name + rng.choice([".parquet", ".pq"]))
    first, second = table.columns[:2]
    kind = rng.choice(["text", "bytes", "index", "category", "structs"])
    if kind == "bytes":
        table = table.assign(**{first: [None if p is None else p.encode() for p in table[first]]})
    elif kind == "index":
        table = table.set_index(first)
    elif kind == "category":
        table = table.assign(**{second: table[second].astype(str).astype("category")})
    elif kind == "structs" and len(table):
        table = table.assign(**{first: [{"bytes": b"x", "path": None}] * len(table)})
        source.said += ["cannot be read", "unreadable"]
    table.to_parquet(source.path)


def draw(root: Path, rng: random.Random) -> Source:
    """A folder, or a table, with its oddities."""
    source = sound_folder(root, rng)
    if rng.random() < 0.55:
        return table_of(source, rng)
    for change in rng.sample(OF_FOLDERS, rng.choice((1, 1, 2, 3))):
        change(source, rng)
        source.oddities.append(change.__name__)
    return source
