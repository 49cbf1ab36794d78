"""The CLIP that measures shift: its features of every set, and the decompositions of them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from ood_lab.clip import ClipModel, clip_backbone, shipped_folder
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import json_sha256
from ood_lab.common.files import write_text
from ood_lab.common.stage_times import Stages
from ood_lab.common.tensor_file import Tensors
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ImageDataset
from ood_lab.evaluation.id_accuracy import Chance
from ood_lab.evaluation.split_features import Extraction
from ood_lab.shift import (
    Decomposition,
    FeatureGrid,
    LaidTraining,
    encode_grid,
    imagenet21k_labels,
    imagenet_templates,
    load_decomposition,
    pca_decomposition,
    save_decomposition,
    undecomposed,
)

log = logging.getLogger(__name__)

#: Files that ``model=laid`` writes, the one that measures first.
FILES = ("laid.safetensors", "pca.safetensors")
#: What is measured on texts that were held out.
HELD_OUT = "held_out.json"
#: Labels of ImageNet-21K, at equal steps, and epochs of LAID's training for a CLIP without it.
LABELS, EPOCHS = 1000, 10


def has_matrices(clip: ClipModel) -> bool:
    """True where the matrices of a CLIP come with this package."""
    folder = shipped_folder(clip.name)
    return folder is not None and (folder / FILES[0]).exists()


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


def learnt(clip: ClipModel, root: Path) -> Path:
    """The folder with the matrices of a CLIP, which are learnt from texts where it has none.

    They belong only to the weights: all runs share them.

    Args:
        clip: whose features they split.
        root: folder of all matrices that were learnt.
    """
    key = json_sha256([dict(clip.identity), LABELS, EPOCHS])[:10]
    name = re.sub(r"[^\w.-]+", "-", clip.name)
    folder = root / f"{name}-{key}"
    if not (folder / HELD_OUT).exists():
        names, templates = imagenet21k_labels(), imagenet_templates()
        labels = [names[place * len(names) // LABELS] for place in range(LABELS)]
        words = f"{len(labels)} labels x {len(templates)} templates"
        log.info("learning LAID for '%s' from %s", clip.name, words)
        grid = encode_grid(labels, templates, clip.encode_text)
        module = LaidTraining(grid, clip.identity)
        trainer = Trainer(
            max_epochs=EPOCHS,
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
        )
        trainer.fit(module)
        save_matrices(folder, module, grid, clip.identity)
        accuracies = {
            k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("val/")
        }
        write_text(json.dumps(accuracies, indent=1), folder / HELD_OUT)  # last: all else is there
    return folder


def save_matrices(
    folder: Path, module: LaidTraining, grid: FeatureGrid, identity: Mapping[str, str]
) -> Decomposition:
    """Writes the matrices of LAID and of PCA; returns that of LAID."""
    decomposition = module.decomposition()
    save_decomposition(folder / FILES[0], decomposition)
    save_decomposition(folder / FILES[1], pca_decomposition(grid, identity, k=decomposition.k))
    return decomposition


def clip_features(
    data: OODDataModule,
    trainer: Trainer,
    root: Path,
    clip: ClipModel,
    splits: Sequence[str],
    stages: Stages | None = None,
    images: Sequence[ImageDataset] = (),
) -> Tensors:
    """Normalised image features of sets, ``[n, d]`` each, from the feature bank where it has them.

    Warns where the CLIP knows only images of another kind. Empty on the other ranks, which have
    done their share of the pass.

    Args:
        data: set up.
        trainer: extracts.
        root: folder of all feature banks.
        clip: makes the features.
        splits: names of the sets.
        stages: records the duration of the pass.
        images: sets that are made of ID test.
    """
    warn_if_foreign(clip, data)
    backbone = clip_backbone(clip, data.classes or ["object"])
    return Extraction(data, backbone, trainer, root, stages or Stages()).features(splits, images)


def foreign(clip: ClipModel, data: OODDataModule) -> str | None:
    """What to say where the CLIP knows only some builtin images, and the data are others."""
    if knows_images(clip.knows, data):
        return None
    return (
        f"the CLIP '{clip.name}' knows {clip.knows}: of these images it knows nothing, and all "
        "that rests on it means nothing; choose a real one with clip=..."
    )


def unknowing(clip: ClipModel, data: OODDataModule, features: Tensor) -> str | None:
    """What to say where a CLIP does not tell the ID classes apart by their names.

    Args:
        clip: which does not say itself what it knows.
        data: set up.
        features: of ID test, ``[n, d]``, normalised.
    """
    labels = data.splits["test"].labels
    labelled = labels >= 0
    if clip.knows or len(data.classes) < 2 or not labelled.any():
        return None
    with torch.no_grad():
        head = clip_backbone(clip, data.classes).head
        assert head is not None
        named = head(features.float()).argmax(dim=1)
    accuracy = float((named == labels)[labelled].double().mean())
    chance = Chance.of(labels, len(data.classes))
    if not chance.reached(accuracy):
        return None
    return (
        f"the CLIP '{clip.name}' names the class of {accuracy:.1%} of ID test, no better than "
        f"chance ({chance.words(data.classes)}): it does not know these images or class "
        "names. Its semantic and covariate shift mean nothing; choose another with clip=..., or "
        "task.distance=features"
    )


def knows_images(knows: str | None, data: OODDataModule) -> bool:
    """False for a model that ``knows`` only other data than these."""
    return not knows or (data.rendered is not None and data.rendered in knows)


@rank_zero_only
def warn_if_foreign(clip: ClipModel, data: OODDataModule) -> None:
    """Warns where the CLIP knows only some builtin images, and the data are others."""
    if doubt := foreign(clip, data):
        log.warning(doubt)
