"""Error messages that name the nearest thing that does exist."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.grouping import grouped
from ood_lab.common.unicode_names import composed, remark


def nearest(word: str, options: Iterable[str], cutoff: float = 0.5) -> list[str]:
    """Up to three options that are close to ``word``, in whatever case, the closest first.

    Args:
        word: as typed.
        options: what there is.
        cutoff: least similarity, from 0 (anything) to 1 (equal).
    """
    by_lower = grouped((option.lower(), option) for option in dict.fromkeys(options))
    close = difflib.get_close_matches(word.lower(), by_lower, cutoff=cutoff)
    return [option for name in close for option in by_lower[name]][:3]


def suggestion(word: str, options: Iterable[str], shown: int = 5) -> str:
    """``did you mean 'x'?`` when an option is close to ``word``, else the first options."""
    names = list(options)
    same = next((name for name in names if name != word and composed(name) == composed(word)), None)
    if same:
        return f"'{same}' has its accents in another Unicode form (NFC, NFD): copy that name"
    if close := nearest(word, names, 0.6):
        return f"did you mean '{close[0]}'?"
    if not names:
        return "there is none"
    more = f", ... ({len(names)} in all)" if len(names) > shown else ""
    return f"there is: {', '.join(names[:shown])}{more}"


def check_known(names: Iterable[str | None], options: Collection[object], problem: str) -> None:
    """Rejects the first name that is not known; None is skipped.

    Args:
        names: as typed.
        options: what there is.
        problem: with ``{name}`` for the name; the nearest known one follows.

    Raises:
        UserError: see ``problem``.
    """
    for name in names:
        if name is not None and name not in options:
            near = suggestion(name, map(str, options))
            raise UserError(f"{problem.replace('{name}', name)}: {near}")


def missing_path(path: StrPath) -> UserError:
    """The error for a path that does not exist, with the nearest one that does."""
    if other := remark(os.fspath(path)):
        return UserError(f"'{path}' does not exist{other}")
    wanted = Path(os.path.abspath(path))
    parent = next((p for p in wanted.parents if os.path.isdir(p)), Path(wanted.anchor))
    first, *rest = wanted.relative_to(parent).parts
    names = sorted(p.name for p in parent.iterdir() if not p.name.startswith("."))
    for match in nearest(first, names, 0.6):
        similar = parent / match
        full = similar.joinpath(*rest)
        return UserError(
            f"'{path}' does not exist; nearest: '{full if os.path.exists(full) else similar}'"
        )
    return UserError(f"'{path}' does not exist; in '{parent}' {suggestion(first, names)}")
