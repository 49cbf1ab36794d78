"""A decomposition as one file: plain float32 ``W`` and a description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.tensor_file import TensorFile
from ood_lab.shift.laid import Decomposition
from ood_lab.shift.level_edges import Edges

FILE = TensorFile(
    kind="decomposition",
    key="ood_lab_decomposition",
    format=1,
    source="model=laid",
    remedy="train it again with model=laid",
)


def save_decomposition(path: StrPath, decomposition: Decomposition) -> None:
    """Writes a safetensors file with ``W [l, s + c] float32``, whole or not at all.

    The metadata hold one JSON text with the name, the CLIP's identity, k, edges and details.

    Raises:
        UserError: the file cannot be written.
    """
    description = {
        "name": decomposition.name,
        "semantic_width": decomposition.semantic_width,
        "clip": dict(decomposition.clip),
        "k": decomposition.k,
        "edges": None if decomposition.edges is None else asdict(decomposition.edges),
        "details": dict(decomposition.details),
    }
    FILE.write(Path(path), {"W": decomposition.W.float().cpu()}, description)


def load_decomposition(path: StrPath, clip: Mapping[str, str] | None = None) -> Decomposition:
    """Reads a file of :func:`save_decomposition`.

    Args:
        path: the file.
        clip: identity of the CLIP whose features will be split; the file must be made for it.

    Raises:
        UserError: no such file, another kind of file, a damaged one, or one of another CLIP.
    """
    place = Path(path)
    description, tensors = FILE.read(place)
    with FILE.whole(place):
        edges = description["edges"]
        decomposition = Decomposition(
            str(description["name"]),
            tensors["W"],
            int(description["semantic_width"]),
            dict(description["clip"]),
            int(description["k"]),
            None if edges is None else Edges(**edges),
            dict(description["details"]),
        )
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
