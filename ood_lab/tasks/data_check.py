"""What the data is, whether it is there, what the check says of it, and its classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import file_sha256
from ood_lab.common.files import write_csv
from ood_lab.common.hints import missing_path
from ood_lab.data.checks.label_checks import class_table, count_table
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.report.rendering.blocks import Block, Text
from ood_lab.report.rendering.table import Head, Table, name_cell, plain_table
from ood_lab.report.rendering.terminal import print_whole
from ood_lab.run.job.workspace import Task, Workspace

#: Of more classes only the smallest and the largest are printed.
_MAX_CLASSES = 40
_ENDS = 10


@dataclass(frozen=True, kw_only=True)
class DataCheck(Task):
    """Prints licence, source and expected tree, which sets are present, the check and the classes.

    ``classes.csv`` in the run folder has the images of every class in train, val and test,
    ``counts.csv`` those of every class, level, shape, characteristic and folder by category and
    dataset; ``figures/counts_<label>`` shows them.
    Nothing is downloaded and no backbone is built, unless ``unusual`` asks for it.

    Args:
        unusual: also ``id_images.csv`` and ``unusual_images.html``, of train and what is split
            off it: broken or wrong files are among the images that are the most unusual to the
            network, see :func:`~ood_lab.evaluation.run_page.unusual_training_images`.

    Raises:
        UserError: a set is missing, a list is not the expected one, or the check finds an error.
    """

    unusual: bool

    def run(self, ws: Workspace) -> None:
        """See the class."""
        data = ws.new_data()
        print_whole([Text(str(data.name), "title"), *_facts(data)])
        wrong: list[str] = []
        rows = []
        incomplete = data.missing_images()
        for name, path in data.sources.items():
            state, digest = _state(path, (data.info.get("sha256") or {}).get(name))
            state = f"incomplete: {incomplete[name]}" if name in incomplete else state
            tone: Literal["", "bad"] = "" if state == "present" else "bad"
            rows.append([name_cell(text, tone=tone) for text in (name, path, state, digest)])
            if tone:
                wrong.append(f"{name} is {state}")
        if rows:
            heads = map(Head, ("set", "path", "state", "sha256 of the list"))
            print_whole([Table("Sources", list(heads), rows)])
        missing = [path for path in data.sources.values() if not path.exists()]
        if wrong:
            nearest = f" ({missing_path(missing[0])})" if missing else ""
            raise UserError(
                f"{len(wrong)} of {len(data.sources)} sources: {'; '.join(wrong)}{nearest}"
            )
        data = ws.data  # set up, which prints the check
        if len(classes := class_table(data.splits)):
            write_csv(classes, ws.folder / "classes.csv")
            print_whole(_classes(classes, ws.folder / "classes.csv"))
        counts = pd.concat([count_table(data.splits), data.further_counts()], ignore_index=True)
        if len(counts):
            from ood_lab.report.detection.class_figures import count_figures  # slow to load
            from ood_lab.report.rendering.drawing import write_all

            write_csv(counts, ws.folder / "counts.csv")
            write_all(ws.folder / "figures", list(count_figures(counts)))
        if self.unusual:
            self._unusual_images(ws)

    def _unusual_images(self, ws: Workspace) -> None:
        """Looks at all ID images that were not given as test or val through the network."""
        # What needs the network is slow to load.
        from ood_lab.evaluation.prediction.calibration import pool
        from ood_lab.evaluation.run_page import MOST, unusual_training_images
        from ood_lab.evaluation.split_features import Extraction
        from ood_lab.report.detection.image_strips import ID_IMAGES, write_unusual_images

        data, backbone = ws.data, ws.load_backbone(ws.data.classes, fit=False)
        pool(data, learned=False)
        n = len(data.splits["train"])
        if "features" not in backbone.gives or not 1 < n <= MOST:
            raise UserError(
                f"task.unusual=true needs a network with features and 2 to {MOST:,} training "
                f"images: {backbone.name} and {n:,} do not fit"
            )
        extraction = Extraction(data, backbone, ws.extractor, ws.features_root, ws.stages)
        bank = extraction.of_sets(["train"]).get("train")
        if not ws.is_main:
            return
        unusual = unusual_training_images(data, bank)
        assert unusual is not None  # as was checked before the pass
        write_csv(unusual.table, ws.folder / ID_IMAGES)
        write_unusual_images(ws.folder / "unusual_images.html", unusual, str(data.name))


def _facts(data: OODDataModule) -> Iterator[Text]:
    """The metadata of the data set's YAML."""
    words = {None: "not stated", True: "yes", False: "no"}
    for key in ("licence", "source", "redistribute", "tree"):
        value = data.info.get(key)
        yield Text(f"{key}: {words.get(value, value)}")


def _classes(classes: pd.DataFrame, file: Path) -> list[Block]:
    """Names and counts: all of them, or of many the classes with the fewest and most images."""
    title = f"{counted(len(classes), 'class')}, images of each"
    if len(classes) <= _MAX_CLASSES:
        return [plain_table(title, classes.to_dict("records"))]
    by_size = classes.sort_values("train", kind="stable").to_dict("records")
    return [
        plain_table(f"{title}: the {_ENDS} with the fewest training images", by_size[:_ENDS]),
        plain_table(f"the {_ENDS} with the most", by_size[-_ENDS:]),
        Text(f"all {len(classes):,} classes: {file}", "note"),
    ]


def _state(path: Path, expected: str | None) -> tuple[str, str]:
    """``present``, ``missing`` or ``not the expected list``, and the sha256 of a list file."""
    if not path.is_file():
        return "present" if path.exists() else "missing", ""
    digest = file_sha256(path)
    return "present" if expected in (None, "", digest) else "not the expected list", digest
