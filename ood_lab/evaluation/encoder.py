"""The CLIP that measures shift: its features of every set, and the decompositions of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from ood_lab.clip import ClipModel, clip_backbone, shipped_folder
from ood_lab.data.datamodule import OODDataModule
from ood_lab.errors import UserError
from ood_lab.evaluation.banks import Extraction
from ood_lab.shift import Decomposition, load_decomposition, undecomposed

log = logging.getLogger(__name__)

#: Files that ``model=laid`` writes, the one that measures first.
FILES = ("laid.safetensors", "pca.safetensors")


def load_decompositions(clip: ClipModel, laid: str | None) -> list[Decomposition]:
    """LAID, PCA and the undecomposed CLIP, in this order.

    Args:
        clip: whose features they split.
        laid: folder that ``train.py model=laid`` wrote, or its run folder; None = the one shipped
            with the CLIP.

    Raises:
        UserError: nothing is shipped with this CLIP, a file is missing, or made for another CLIP.
    """
    folder = Path(laid) if laid else shipped_folder(clip.name)
    if folder is None:
        raise UserError(
            f"no LAID matrix comes with the CLIP '{clip.name}': train one with "
            "train.py model=laid clip=..., and give its run folder as task.laid=RUN"
        )
    if (folder / "laid").is_dir():
        folder = folder / "laid"
    identity = clip.identity
    loaded = [load_decomposition(folder / file, identity) for file in FILES]
    return [*loaded, undecomposed(clip.embed_dim, identity, loaded[0].k)]


def clip_features(
    data: OODDataModule, trainer: Trainer, root: Path, clip: ClipModel, splits: Sequence[str]
) -> dict[str, Tensor]:
    """Normalised image features of sets, ``[n, d]`` each, from the feature bank where it has them.

    Warns where the CLIP knows only images of another kind. Empty on the other ranks, which have
    done their share of the pass.

    Args:
        data: set up.
        trainer: extracts.
        root: folder of all feature banks.
        clip: makes the features.
        splits: names of the sets.
    """
    warn_if_foreign(clip, data)
    backbone = clip_backbone(clip, data.classes or ["object"])
    return Extraction(data, backbone, trainer, root).features(splits)


def foreign(clip: ClipModel, data: OODDataModule) -> str | None:
    """What to say where the CLIP knows only the builtin images, and the data are others."""
    if not (clip.knows and data.sources):
        return None
    return (
        f"the CLIP '{clip.name}' knows {clip.knows}: of these images it knows nothing, and all "
        "that rests on it means nothing; choose a real one with clip=..."
    )


@rank_zero_only
def warn_if_foreign(clip: ClipModel, data: OODDataModule) -> None:
    """Warns where the CLIP knows only the builtin images, and the data are others."""
    if said := foreign(clip, data):
        log.warning(said)
