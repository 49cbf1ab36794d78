"""Folder names that are no classes: splits of a dataset, and what systems leave between images."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from pathlib import PurePath

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
    held = next((name for name in names if _split(name) == "held out"), None)
    train = next((name for name in names if _split(name) == "train"), None)
    settings = [f"data.id.{key}={place}/{name}" for key, name in (("train", train), ("test", held))]
    options = [text for text, name in zip(settings, (train, held), strict=True) if name]
    example = " ".join(options) or f"'{place}/{next(iter(names))}'"
    return (
        f"'{place}' holds splits ({', '.join(sorted(names))}), not classes: give each split its "
        f"own folder, such as {example}"
    )
