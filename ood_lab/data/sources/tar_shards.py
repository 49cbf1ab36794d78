"""Images in uncompressed tar files, as WebDataset writes them, by an index of their members."""

from __future__ import annotations

import glob
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

import pandas as pd

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath, absolute
from ood_lab.common.hints import check_known, missing_path, suggestion
from ood_lab.data.sources.file_facts import Facts, file_facts
from ood_lab.data.sources.folders import NO_LABEL, in_junk
from ood_lab.data.sources.image_formats import ARRAYS, image_extensions, is_picture
from ood_lab.data.sources.image_stores import ShardMember, ShardStore

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_LABELS = ("cls", "label", "class", "txt")


#: Bytes of a label; longer files are read where they are needed.
_LONGEST = 4096


class _Part(NamedTuple):
    """A file of a sample; ``text`` where its content is known already."""

    name: str
    member: ShardMember
    text: str | None

    def read(self) -> str:
        """Its content."""
        if self.text is not None:
            return self.text
        return ShardStore({self.name: self.member}).read(self.name).decode("utf-8").strip()


def are_shards(path: str) -> bool:
    """True for a ``.tar``, a pattern of such names, and a folder that holds only them."""
    if path.endswith(_COMPRESSED):
        raise UserError(
            f"'{path}' is compressed, so its images cannot be read one by one: unpack it to .tar"
        )
    place = Path(path).expanduser()
    if path.endswith(".tar"):
        return not place.is_dir()
    if not place.is_dir():
        return False
    names = [entry.name for entry in os.scandir(place) if not entry.name.startswith(".")]
    # WebDataset leaves lists of its shards beside them, people their licences.
    if any(map(is_picture, names)):
        return False
    if any(name.endswith(".mds") for name in names):
        raise UserError(
            f"'{path}' holds shards of MosaicML's streaming, which its own class reads: "
            f"{{_target_: streaming.LocalDataset, local: {path}}}"
        )
    return any(name.endswith(".tar") for name in names)


def read_shards(
    pattern: str,
    image: str | None = None,
    label: str | None = None,
    cache_dir: StrPath | None = None,
) -> tuple[pd.DataFrame, ShardStore]:
    """Lists the images of tar shards, in the order of the shards and of the samples in them.

    The files of a sample share a name up to the first dot: ``a/0001.jpg`` and ``a/0001.cls``.
    Every image is a row, so that any number of processes reads each image once and in order. What
    is in a shard is remembered while it is the same file, unchanged.

    Args:
        pattern: a ``.tar``, a folder of them, ``DIR/train-{000..003}.tar`` or ``DIR/*.tar``.
        image: ending of the images (``jpg``); None = whatever can be opened.
        label: ending of the file with the label (``cls``), or ``json.KEY``; None = the first of
            ``cls, label, class, txt`` and ``json.label`` that is there, else the folder in the tar.
        cache_dir: see :func:`~ood_lab.data.sources.file_facts.file_facts`.

    Returns:
        Columns ``path`` (``<shard>#<name>``) and ``label`` (text), and the store.

    Raises:
        UserError: no shard, an unreadable or cut one, no image, or no such label.
    """
    index = file_facts(_shards(pattern), _index, "indexing shards", cache_dir)
    if len(broken := index[index["error"] != ""]):
        shard, error = broken.iloc[0][["path", "error"]]
        raise UserError(f"cannot read shard '{shard}': {error}; fetch or write it again")
    pictures = {image.lower()} if image else _pictures()
    members: dict[str, ShardMember] = {}
    labels: list[str] = []
    columns = ("path", "mtime_ns", "change", "files")
    for shard, time, change, files in index[[*columns]].itertuples(index=False):
        for parts in _samples(shard, (time, change), files):
            for ending, part in parts.items():
                if not (ending in pictures or ending.rpartition(".")[2] in pictures):
                    continue
                with reported_as(
                    f"'{shard}' has names that are not UTF-8: write it again", UnicodeEncodeError
                ):
                    part.name.encode()
                if not members:
                    label = _label_ending(parts, pattern, label)
                members[f"{shard}#{part.name}"] = part.member
                labels.append(_label(part.name, parts, label))
    if not members:
        samples = (_samples("", (0, 0), files) for files in index["files"])
        endings = sorted({ending for of in samples for parts in of for ending in parts})
        wanted = f"ends in '{image}'" if image else "is an image"
        raise UserError(f"in '{pattern}' no file {wanted}: {suggestion(image or 'jpg', endings)}")
    return pd.DataFrame({"path": list(members), "label": labels}), ShardStore(members)


def _samples(shard: str, version: tuple[int, int], files: str) -> Iterator[dict[str, _Part]]:
    """The parts of every sample of a shard, by ending; ``files`` as the index has them."""
    samples: dict[str, dict[str, _Part]] = {}
    for name, start, size, text in json.loads(files):
        if in_junk(name):
            continue
        folder, _, file = name.rpartition("/")
        stem, _, ending = file.partition(".")
        parts = samples.setdefault(f"{folder}/{stem}", {})
        if ending.lower() in parts:
            raise UserError(f"'{shard}' has two files '{name}': give each sample its own name")
        parts[ending.lower()] = _Part(name, ShardMember(shard, start, size, version), text)
    return iter(samples.values())


def _shards(pattern: str) -> list[str]:
    place = absolute(pattern)
    if os.path.isdir(place):
        place = os.path.join(glob.escape(place), "*.tar")
    if match := _RANGE.search(place):
        first, last = match.groups()
        numbers = range(int(first), int(last) + 1)
        files = [_RANGE.sub(f"{number:0{len(first)}}", place, 1) for number in numbers]
    else:
        files = [place] if os.path.exists(place) else sorted(glob.glob(place)) or [place]
    for file in files:
        if not os.path.exists(file):
            raise missing_path(file)
    return files


def _pictures() -> set[str]:
    return {ending.removeprefix(".") for ending in image_extensions() - set(ARRAYS)}


def _index(shard: str) -> Facts:
    """Name, place, size and text of the files in a shard; only small files have a text."""
    files: list[tuple[str, int, int, str | None]] = []
    pictures = _pictures()
    try:
        with tarfile.open(shard, "r:") as tar, open(shard, "rb") as file:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.isfile() and not PurePosixPath(name).name.startswith("."):
                    start, size = member.offset_data, member.size
                    short = size <= _LONGEST and name.rpartition(".")[2].lower() not in pictures
                    files.append((name, start, size, _text(file, start, size) if short else None))
            file.seek(-512, os.SEEK_END)
            if file.read().strip(b"\0"):
                raise tarfile.ReadError("its end is missing")
    except (tarfile.TarError, OSError, EOFError) as error:
        return {"files": "", "error": str(error)}
    return {"files": json.dumps(files), "error": ""}


def _text(shard: BinaryIO, start: int, size: int) -> str | None:
    shard.seek(start)
    try:
        return shard.read(size).decode("utf-8").strip()
    except UnicodeDecodeError:
        return None


def _label_ending(example: Mapping[str, _Part], pattern: str, label: str | None) -> str | None:
    """Where samples like this one have their label; None = in the folder."""
    record = json.loads(example["json"].read()) if "json" in example else {}
    if label is not None:
        names = [*example, *(f"json.{key}" for key in record)]
        check_known([label], names, f"'{pattern}' has no label '{{name}}'")
        return label
    label = next((ending for ending in _LABELS if ending in example), None)
    if label or record.get("label") is not None:
        return label or "json.label"
    for ending, part in example.items():
        stem, _, last = ending.rpartition(".")
        alike = [other for other in example if stem and other.startswith(f"{stem}.")]
        dotted = last in (*_LABELS, "json") and all("." in other for other in example)
        if dotted and len(alike) > 1:
            raise UserError(
                f"'{pattern}' has '{part.name}', and the name of a sample ends at its first "
                "dot: write names of samples without dots"
            )
    return None


def _label(name: str, parts: Mapping[str, _Part], label: str | None) -> str:
    """The text of the label of a sample, of which one image has this name."""
    if label is None:
        return name.split("/")[0] if "/" in name else NO_LABEL
    if label in parts:
        return parts[label].read()
    ending, _, key = label.partition(".")
    record = json.loads(parts["json"].read()) if ending == "json" and "json" in parts else {}
    return NO_LABEL if record.get(key) is None else str(record[key])
