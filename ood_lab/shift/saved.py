"""A decomposition as one file: plain float32 ``W`` and a description."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ood_lab.errors import UserError
from ood_lab.io import replaced
from ood_lab.shift.edges import Edges
from ood_lab.shift.laid import Decomposition

#: Entry of the metadata that makes a safetensors file one of ours.
KEY = "ood_lab_decomposition"
#: Raised when the file's content changes.
FORMAT = 1


def save_decomposition(path: str | os.PathLike[str], decomposition: Decomposition) -> None:
    """Writes a safetensors file with ``W [l, s + c] float32``, whole or not at all.

    The metadata hold one JSON text with the name, the CLIP's identity, k, edges and details.

    Raises:
        UserError: the file cannot be written.
    """
    place = Path(path)
    description = {
        "format": FORMAT,
        "name": decomposition.name,
        "semantic_width": decomposition.semantic_width,
        "clip": dict(decomposition.clip),
        "k": decomposition.k,
        "edges": None if decomposition.edges is None else asdict(decomposition.edges),
        "details": dict(decomposition.details),
    }
    tensors = {"W": decomposition.W.float().cpu().contiguous()}
    try:
        with replaced(place) as file:
            save_file(tensors, file, metadata={KEY: json.dumps(description)})
    except (OSError, SafetensorError) as error:
        raise UserError(f"decomposition '{place}' cannot be written: {error}") from error


def load_decomposition(
    path: str | os.PathLike[str], clip: Mapping[str, str] | None = None
) -> Decomposition:
    """Reads a file of :func:`save_decomposition`.

    Args:
        path: the file.
        clip: identity of the CLIP whose features will be split; the file must be made for it.

    Raises:
        UserError: no such file, another kind of file, a damaged one, or one of another CLIP.
    """
    place = Path(path)
    if not place.is_file():
        raise UserError(f"decomposition '{place}' does not exist: write one with model=laid")
    description, W = _read(place)
    if description.get("format") != FORMAT:
        raise UserError(
            f"decomposition '{place}' has format {description.get('format')}, this version reads "
            f"{FORMAT}: train it again with model=laid"
        )
    try:
        edges = description["edges"]
        decomposition = Decomposition(
            str(description["name"]),
            W,
            int(description["semantic_width"]),
            dict(description["clip"]),
            int(description["k"]),
            None if edges is None else Edges(**edges),
            dict(description["details"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"decomposition '{place}' is damaged ({type(error).__name__}: {error}): train it again "
            "with model=laid"
        ) from error
    if clip is not None:
        _check_clip(place, decomposition.clip, clip)
    return decomposition


def _check_clip(place: Path, made_for: Mapping[str, str], used: Mapping[str, str]) -> None:
    # The same weights may have been loaded by another name: from a file, or by their tag.
    if made_for["weights_sha256"] != used["weights_sha256"]:
        raise UserError(
            f"decomposition '{place}' was made for the CLIP '{made_for['name']}' (weights "
            f"{made_for['weights_sha256'][:12]}), this run uses '{used['name']}' (weights "
            f"{used['weights_sha256'][:12]}): train it again with model=laid and this clip"
        )


def _read(place: Path) -> tuple[dict[str, Any], Tensor]:
    try:
        with safe_open(place, framework="pt") as file:
            description = json.loads((file.metadata() or {})[KEY])
            W = file.get_tensor("W")
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(
            f"'{place}' is not a decomposition, or it is damaged: give a file that model=laid wrote"
        ) from error
    return (description if isinstance(description, dict) else {}), W
