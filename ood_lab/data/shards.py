"""Images in uncompressed tar files, as WebDataset writes them, by an index of their members."""

from __future__ import annotations

import glob
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pandas as pd

from ood_lab.data.folders import NO_LABEL
from ood_lab.data.formats import image_extensions
from ood_lab.data.stores import Member, ShardStore
from ood_lab.errors import UserError
from ood_lab.hints import missing_path, suggestion

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_LABELS = ("cls", "label", "class", "txt")


def are_shards(path: str) -> bool:
    """True for a ``.tar``, a pattern of such names, and a folder that holds them alone."""
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
    # WebDataset leaves lists of its shards, MosaicML's index and licences beside them.
    images = any(os.path.splitext(name)[1].lower() in image_extensions() for name in names)
    return any(name.endswith(".tar") for name in names) and not images


def read_shards(
    pattern: str, image: str | None = None, label: str | None = None
) -> tuple[pd.DataFrame, ShardStore]:
    """Lists the images of tar shards, in the order of the shards and of the samples in them.

    The files of a sample share a name up to the first dot: ``a/0001.jpg`` and ``a/0001.cls``.
    Shards are indexed once, and every image is a row, so that any number of processes reads each
    image once and in order.

    Args:
        pattern: a ``.tar``, a folder of them, ``DIR/train-{000..003}.tar`` or ``DIR/*.tar``.
        image: ending of the images (``jpg``); None = whatever can be opened.
        label: ending of the file with the label (``cls``), or ``json.KEY``; None = the first of
            ``cls, label, class, txt`` and ``json.label`` that is there, else the folder in the tar.

    Returns:
        Columns ``path`` (``<shard>#<name>``) and ``label`` (text), and the store.

    Raises:
        UserError: no shard, an unreadable or cut one, no image, or no such label.
    """
    samples: dict[str, dict[str, tuple[str, Member]]] = {}
    for shard in _shards(pattern):
        for name, member in _members(shard):
            folder, _, file = name.rpartition("/")
            stem, _, ending = file.partition(".")
            parts = samples.setdefault(f"{shard}#{folder}/{stem}", {})
            if ending.lower() in parts:
                raise UserError(f"'{shard}' has two files '{name}': give each sample its own name")
            parts[ending.lower()] = name, member
    pictures = {image.lower()} if image else {end.removeprefix(".") for end in image_extensions()}
    images = [
        (name, member, parts)
        for parts in samples.values()
        for ending, (name, member) in parts.items()
        if ending.rpartition(".")[2] in pictures or ending in pictures
    ]
    if not images:
        endings = sorted({ending for parts in samples.values() for ending in parts})
        wanted = f"ends in '{image}'" if image else "is an image"
        raise UserError(f"in '{pattern}' no file {wanted}: {suggestion(image or 'jpg', endings)}")
    store = ShardStore({f"{member.shard}#{name}": member for name, member, _ in images})
    find = _label(images[0], pattern, label, store)
    labels = [find(name, parts) for name, _, parts in images]
    return pd.DataFrame({"path": list(store.members), "label": labels}), store


def _shards(pattern: str) -> list[str]:
    place = os.path.abspath(os.path.expanduser(pattern))
    if os.path.isdir(place):
        place = os.path.join(glob.escape(place), "*.tar")
    if found := _RANGE.search(place):
        first, last = found.groups()
        numbers = range(int(first), int(last) + 1)
        files = [_RANGE.sub(f"{number:0{len(first)}}", place, 1) for number in numbers]
    else:
        files = [place] if os.path.exists(place) else sorted(glob.glob(place)) or [place]
    for file in files:
        if not os.path.exists(file):
            raise missing_path(file)
    return files


def _members(shard: str) -> Iterator[tuple[str, Member]]:
    version = os.stat(shard).st_mtime_ns
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.isfile() and not PurePosixPath(name).name.startswith("."):
                    yield name, Member(shard, member.offset_data, member.size, version)
        with open(shard, "rb") as file:
            file.seek(-512, os.SEEK_END)
            if file.read().strip(b"\0"):
                raise tarfile.ReadError("its end is missing")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"cannot read shard '{shard}': {error}; fetch or write it anew") from error


def _label(
    example: tuple[str, Member, dict[str, tuple[str, Member]]],
    pattern: str,
    label: str | None,
    store: ShardStore,
) -> Callable[[str, dict[str, tuple[str, Member]]], str]:
    """The function from the name and the parts of a sample to the text of its label."""
    _, _, parts = example
    content = ShardStore({})

    def text(part: tuple[str, Member]) -> str:
        name, member = part
        content.members = {name: member}
        return content.read(name).decode("utf-8").strip()

    def from_json(parts: dict[str, tuple[str, Member]], key: str) -> str:
        found = json.loads(text(parts["json"])) if "json" in parts else {}
        return NO_LABEL if found.get(key) is None else str(found[key])

    if label is None:
        label = next((ending for ending in _LABELS if ending in parts), None)
        if label is None and from_json(parts, "label") != NO_LABEL:
            label = "json.label"
    if label is None:
        return lambda name, _: name.split("/")[0] if "/" in name else NO_LABEL
    ending, _, key = label.partition(".")
    known = [
        *parts,
        *(f"json.{k}" for k in (json.loads(text(parts["json"])) if "json" in parts else ())),
    ]
    if label not in known:
        raise UserError(f"'{pattern}' has no label '{label}': {suggestion(label, known)}")
    if ending == "json" and key:
        return lambda _, parts: from_json(parts, key)
    return lambda _, parts: text(parts[label]) if label in parts else NO_LABEL
