"""Whether a run folder still is what its configuration, data and weights would make."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ood_lab.run import checkpoints, inputs

if TYPE_CHECKING:
    from ood_lab.run.workspace import Workspace

log = logging.getLogger(__name__)


def changes_of(ws: Workspace) -> list[str]:
    """What the run folder was made from and is no longer the same, in words.

    Empty where nothing was made yet or ``force`` makes it anew, and where what it was made from is
    gone: its results can then be neither checked nor made again.

    Raises:
        UserError: the note of it is damaged, or the data has become unusable.
    """
    if ws.cfg.force:
        return []
    if not (ws.folder / inputs.FILE).exists():
        return ["nothing says what it was made from"] * ws.run_folder.done
    paths = named_paths(ws)
    found = inputs.compare(ws.folder, paths, ws.code)
    others = [f"{key}={paths[key]}" for key in found.others]
    return others + (_changed_sets(ws, found.data) if found.data else [])


def named_paths(ws: Workspace) -> dict[str, Path]:
    """Files and folders that the settings name, by key; see :func:`inputs.named_paths`."""
    ckpt = ws.cfg.get("ckpt")
    weights = checkpoints.weights_file(Path(ckpt)) if ckpt else None
    return inputs.named_paths(ws.settings, weights, ws.folder)


def _changed_sets(ws: Workspace, suspects: Sequence[str]) -> list[str]:
    """Sets whose identity is not the noted one, with the first files that made them suspect."""
    noted = inputs.noted_identities(ws.folder)
    sources = ws.build("data").sources if noted else {}
    if gone := [str(path) for path in sources.values() if not path.exists()]:
        log.warning("the data of %s cannot be compared: %s is no longer there", ws.folder, gone[0])
        return []
    splits = ws.sets.splits if noted else {}
    changed = [n for n in noted if n not in splits or splits[n].identity != noted[n]]
    more = f" and {len(suspects) - 3} more" if len(suspects) > 3 else ""
    return [f"data {', '.join(changed)} ({', '.join(suspects[:3])}{more})"] if changed else []
