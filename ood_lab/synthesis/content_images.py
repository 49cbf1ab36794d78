"""Images that give their shapes, and what of them is foreground."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.data.sources.image_formats import image_extensions
from ood_lab.data.sources.manifest import read_manifest
from ood_lab.synthesis import check_model


def read_contents(source: str) -> pd.DataFrame:
    """Columns ``path, label`` of the content images; the label is a name, or nothing."""
    table, names = read_manifest(source)
    words = dict(enumerate(names))
    return pd.DataFrame(
        {"path": table["path"], "label": [words.get(label, "") for label in table["label"]]}
    )


def id_test_contents(data: OODDataModule) -> pd.DataFrame:
    """The same columns of the ID test images.

    Raises:
        UserError: they are no files.
    """
    data.setup()
    test = data.splits["test"]
    paths = test.paths if isinstance(test, FileDataset) else []
    if not paths or not Path(paths[0]).is_file():
        raise UserError("task.content=id_test: the ID test images of this data are not files")
    words = dict(enumerate(test.classes))
    return pd.DataFrame({"path": paths, "label": [words.get(x, "") for x in test.labels.tolist()]})


def check_masks(masks: str | None, segmenter: str | None) -> None:
    """Raises ``UserError`` unless there is one complete source of foregrounds."""
    if (masks is None) == (segmenter is None):
        raise UserError(
            "what is foreground? Give task.masks=DIR or task.segmenter=DIR, one of them"
        )
    if segmenter is not None:
        check_model({"task.segmenter": segmenter})


def find_masks(masks: str, contents: pd.DataFrame) -> dict[str, str]:
    """The mask of each content image, by its path; images of one name share a mask.

    Raises:
        UserError: no such folder, or content images without a mask.
    """
    place = Path(masks).expanduser()
    if not place.is_dir():
        raise UserError(f"task.masks={masks} is not a directory")
    mask_of = {p.stem: str(p) for p in place.iterdir() if p.suffix.lower() in image_extensions()}
    stems = {path: Path(path).stem for path in contents["path"]}
    lacking = [path for path, stem in stems.items() if stem not in mask_of]
    if lacking:
        raise UserError(
            f"'{masks}' has no mask for {len(lacking)} of {len(stems)} content images: "
            f"{', '.join(Path(path).name for path in lacking[:5])}"
            + (", ..." if len(lacking) > 5 else "")
        )
    return {path: mask_of[stem] for path, stem in stems.items()}
