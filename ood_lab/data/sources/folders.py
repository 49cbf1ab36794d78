"""Finds the images of a folder and the class each sub-folder stands for."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import filterfalse
from pathlib import Path, PurePath

import pandas as pd

from ood_lab.common.english import counted, first_of
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath, absolute
from ood_lab.common.hints import missing_path
from ood_lab.common.unicode_names import composed
from ood_lab.data.dataset import UNKNOWN
from ood_lab.data.sources.image_formats import is_picture, passed_over, pictures_among
from ood_lab.data.sources.reading_warnings import Tell, to_log

#: What an unlabelled image carries before labels become numbers.
NO_LABEL = str(UNKNOWN)


def existing_folder(folder: StrPath) -> Path:
    """The absolute path of a folder.

    Raises:
        UserError: there is none.
    """
    place = Path(absolute(folder))
    if not place.is_dir():
        raise missing_path(place)
    return place


def read_folder(folder: Path, labelled: bool, tell: Tell = to_log) -> pd.DataFrame:
    """Columns ``path`` (absolute) and ``label`` (name of the sub-folder, or ``NO_LABEL``).

    Args:
        folder: searched to any depth; hidden files and folders are skipped, and a folder that
            links lead to again is searched once.
        labelled: the sub-folders must be classes; otherwise anything goes.
        tell: receives what was skipped: files, empty folders, and images in folders that a
            system keeps for itself.

    Raises:
        UserError: loose images next to class folders, folders of splits.
    """
    search = _Search(folder)
    files = search.images()
    candidates = [path for paths in files.values() for path in paths]
    pictures = set(pictures_among(candidates))
    search.others += [path for path in candidates if path not in pictures]
    files = {name: [p for p in paths if p in pictures] for name, paths in files.items()}
    loose = files.pop(os.curdir)
    search.report(tell)
    filled = sorted(name for name, paths in files.items() if paths)
    if labelled and filled:
        if are_splits(filled):
            raise UserError(splits_message(folder, filled))
        if loose:
            raise UserError(
                f"'{folder}' holds both class folders and {len(loose)} loose image(s), such as "
                f"'{os.path.basename(loose[0])}': move them into a class folder or out"
            )
        if empty := sorted(files.keys() - filled):
            names = first_of([f"'{name}'" for name in empty], 5)
            tell(f"'{folder}': folders that contain no images are no classes: {names}")
    rows = [(path, NO_LABEL) for path in loose]
    rows += [(path, composed(name)) for name in filled for path in files[name]]
    return pd.DataFrame(rows, columns=["path", "label"])


class _Search:
    """Finds images below a folder, and remembers what it passed over."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.others: list[str] = []
        self.junk: Counter[str] = Counter()
        self.loops: list[str] = []
        # A link to a folder further up would bring everything once more.
        places = (root, *root.parents, *Path(os.path.realpath(root)).parents)
        self._searched = set(map(os.path.realpath, places))

    def is_new(self, folder: str) -> bool:
        """False for a folder that is searched anyway, under whatever name, which is noted down."""
        real = os.path.realpath(folder)
        if real in self._searched:
            self.loops.append(folder)
            return False
        self._searched.add(real)
        return True

    def images(self) -> dict[str, list[str]]:
        """Paths of the images below each sub-folder, sorted; of loose ones below ``os.curdir``."""
        paths: dict[str, list[str]] = {os.curdir: []}
        # Links are followed: data sets on shared disks are often folders of links.
        for parent, folders, names in os.walk(self.root, followlinks=True):
            self.left_out(parent, filter(is_junk, folders + names))
            below = sorted(filterfalse(is_junk, folders))
            folders[:] = [name for name in below if self.is_new(os.path.join(parent, name))]
            top = os.path.relpath(parent, self.root).split(os.sep)[0]
            if top == os.curdir:
                paths |= {name: [] for name in folders}
            for name in sorted(filterfalse(is_junk, names)):
                if not is_picture(name):
                    self.others.append(name)
                    continue
                path = os.path.join(parent, name)
                if not path.isascii() and path != path.encode("utf-8", "replace").decode():
                    raise UserError(
                        f"the name of {os.fsencode(path)!r} is not UTF-8: rename the file"
                    )
                paths[top].append(path)
        return paths

    def left_out(self, parent: str, names: Iterable[str]) -> None:
        """Counts the images in files and folders that a system keeps for itself, by name."""
        for name in names:
            place = os.path.join(parent, name)
            below = [n for _, _, files in os.walk(place) for n in files] or [name]
            kind = name if os.path.isdir(place) or not name.startswith("._") else "._*"
            count = sum(map(is_picture, below))
            if count:
                self.junk[kind] += count

    def report(self, tell: Tell) -> None:
        """Remarks on everything that was passed over."""
        if sentence := passed_over(self.others):
            tell(f"'{self.root}': {sentence}")
        if self.junk:
            names = ", ".join(f"{name} ({n:,})" for name, n in sorted(self.junk.items())[:8])
            images = counted(self.junk.total(), "image")
            tell(
                f"'{self.root}': {images} left out, which a system or program keeps for itself: "
                f"{names}",
                False,
            )
        if self.loops:
            links = counted(len(self.loops), "link")
            tell(
                f"'{self.root}': {links} back to a folder that is searched anyway, which is done "
                f"once: '{self.loops[0]}'"
            )


def instead(place: Path) -> str:
    """The contents of a source without images, as the end of a sentence."""
    if place.is_file():
        return ": it has no rows"
    files = (name for _, _, names in os.walk(place) for name in filterfalse(is_junk, names))
    sentence = passed_over(files)
    return sentence and f": {sentence}"


_TRAIN = {"train", "training", "trn", "trainval", "trainset", "traindata", "训练", "训练集"}
_HELD = {
    *("val", "valid", "validation", "valset", "dev", "devel", "development", "minival"),
    *("test", "testing", "tst", "testset", "testdata", "eval", "evaluation", "holdout", "heldout"),
    *("验证", "验证集", "测试", "测试集"),
}
_OTHERS = {"unlabeled", "unlabelled", "unsup", "unsupervised", "split", "fold"}
#: Words that stand with the name of a split and say nothing of it.
_FILLERS = {
    *("set", "data", "dataset", "image", "images", "img", "imgs", "photo", "photos", "picture"),
    *("pictures", "folder", "dir", "files", "jpg", "jpeg", "png", "full", "all", "final", "clean"),
}
_JUNK = re.compile(
    r"""(\..*                                # hidden
    |@(eadir|tmp|recycle|recently-snapshot|sharebin).*|\#(recycle|snapshot)  # NAS
    |\$recycle\.bin|recycle[rd]|system\ volume\ information|found\.\d{3}  # Windows
    |thumbs\.db|ehthumbs.*\.db|desktop\.ini
    |__macosx|network\ trash\ folder|temporary\ items|icon\r  # macOS
    |lost\+found|__pycache__)""",
    re.IGNORECASE | re.VERBOSE,
)


def is_junk(name: str) -> bool:
    """True for a file or folder that a system, a NAS or an editor keeps for itself."""
    return _JUNK.fullmatch(name) is not None


def in_junk(path: str) -> bool:
    """True for a relative path with such a name in it."""
    return any(is_junk(part) for part in PurePath(path).parts)


def are_splits(names: Collection[str]) -> bool:
    """True where folders are the splits of a dataset, not its classes.

    All are named so, or among others there are one to train with and one that is held out.
    """
    kinds = {_split(name) for name in names}
    return bool(names) and ("" not in kinds or {"train", "held out"} <= kinds)


def _split(name: str) -> str:
    """The kind of split that a name says, else nothing."""
    text = unicodedata.normalize("NFKC", name)
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).casefold()  # trainImages
    words = [word for word in re.split(r"[\W_0-9]+", text) if word[1:] and word not in _FILLERS]
    if not words or not all(word in _TRAIN | _HELD | _OTHERS for word in words):
        return "held out" if words == ["held", "out"] else ""
    return "train" if set(words) & _TRAIN else "held out" if set(words) & _HELD else "other"


def splits_message(place: object, names: Collection[str]) -> str:
    """The error for a folder of splits, with what to give instead."""
    by_split = {_split(name): name for name in sorted(names, reverse=True)}
    settings = {"train": by_split.get("train"), "test": by_split.get("held out")}
    example = " ".join(f"data.id.{key}={place}/{name}" for key, name in settings.items() if name)
    return (
        f"'{place}' holds splits ({', '.join(sorted(names))}), not classes: give each split its "
        f"own folder, such as {example or f'{place}/{min(names)}'}"
    )
