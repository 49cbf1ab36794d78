"""Materials on other shapes: of ID test on objects, or of objects on ID test (ShiftedBronzes)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from annotated_types import Ge
from PIL import Image

from ood_lab.common.arguments import Count, Settings
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.file_records import text_sha256
from ood_lab.common.grouping import without_none
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.transforms.background_replacement import mask_files
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.synthesis import (
    MaterialTransfer,
    check_transfer,
    chosen_dtype,
    fit_mask,
    fit_size,
    image_seed,
    keep_plan,
    keep_settings,
    licence,
    make_planned,
    write_datasheet,
)
from ood_lab.synthesis.material_transfer import PROMPT
from ood_lab.synthesis.pretrained_models import Dtype
from ood_lab.synthesis.transfer_images import (
    class_words,
    id_test_contents,
    load_materials,
    outside_materials,
    read_contents,
)
from ood_lab.tasks.synthesize import note_plan

#: Value of ``task.content``: the images of ID test.
ID_TEST = "id_test"
MANIFEST = ["path", "label", "content", "exemplar", "exemplar_label", "seed"]


@dataclass(frozen=True, kw_only=True)
class Transfer(Task):
    """Writes ``plan.csv``, images, ``manifest.csv`` and ``datasheet.md``.

    Every content image is repainted with the material of ``per_content`` exemplars, see
    :class:`~ood_lab.synthesis.MaterialTransfer`. With ``content=id_test``, shapes are of ID test
    and exemplars from outside the ID data. Otherwise, **exemplars are ID test images**, and none
    may be among the training or validation images (by the sha256 of its file): a detector must not
    have seen its material. A copy that was saved again has another sha256 and is not detected.

    Args:
        out: folder of the images; kept between runs.
        content: folder, table or list of the images that give the shapes; their labels are kept;
            ``id_test`` = all ID test images.
        exemplars: folder, table or list; None = all ID test images.
        per_content: exemplars of a content image, at random.
        masks: folder with a mask per content image, of the same name up to the ending; white =
            foreground.
        pipeline: folder of a Stable Diffusion (XL) pipeline.
        controlnet: folder of a depth ControlNet of the same family.
        depth: folder of a depth estimator.
        ip_adapter: ``folder``, and ``weights`` and ``image_encoder`` inside it.
        arguments: of every call of the pipeline; null leaves one out.
        size: of the longer side.
        variant: of the pipeline's weights.
        dtype: of the weights; None = float16 on a GPU, float32 elsewhere.
        device: None = the first GPU, else the CPU.
        plan_only: stop after the plan; no model is needed.

    Raises:
        UserError: models, masks or images are missing, an exemplar is not of ID test or also
            elsewhere in the ID data, the folder holds another plan, or the disk is too small.
    """

    out: str
    content: str
    exemplars: str | None
    per_content: Count
    masks: str | None
    pipeline: str | None
    controlnet: str | None
    depth: str | None
    ip_adapter: Mapping[str, str | None]
    arguments: Settings
    size: Annotated[int, Ge(8)]
    variant: str | None
    dtype: Dtype
    device: str | None
    plan_only: bool

    def run(self, ws: Workspace) -> None:
        """See the class."""
        if not ws.is_main:
            return
        target = chosen_device(self.device)
        weights = chosen_dtype(self.dtype, target)
        folders = {"pipeline": self.pipeline, "controlnet": self.controlnet, "depth": self.depth}
        models = {} if self.plan_only else check_transfer(folders, self.ip_adapter)
        if not self.plan_only and self.masks is None:
            raise UserError("what is foreground? Give a mask of each content image: task.masks=DIR")
        shapes = self.content == ID_TEST
        contents = id_test_contents(ws.data) if shapes else read_contents(self.content)
        paths, mask_of = contents["path"].tolist(), {}
        if self.masks:
            mask_of = dict(zip(paths, mask_files(paths, self.masks, "task.masks"), strict=True))
        of = outside_materials if shapes else load_materials
        materials = of(ws.data, self.exemplars)
        folder = Path(self.out).expanduser()
        if self.per_content > len(materials):
            raise UserError(
                f"task.per_content={self.per_content}, but there are {len(materials)} exemplars: "
                "lower it"
            )
        made_with = {
            "content": str(self.content),
            "contents": text_sha256("\n".join(contents["path"])),
            "exemplars": text_sha256("\n".join(materials.table["path"])),
            "per_content": self.per_content,
            "seed": ws.seed,
            "size": self.size,
        }
        plan = keep_plan(folder, made_with, lambda: self._plan(contents, materials, ws.seed))
        note_plan(ws, plan, folder)
        if self.plan_only:
            return
        options = without_none(self.arguments)
        made_by = {**models, "prompt": PROMPT, "arguments": options, "dtype": str(weights)}
        adapter = {key: str(value) for key, value in self.ip_adapter.items()}
        model = MaterialTransfer(models, adapter, options, target, weights, self.variant)

        def make(rows: list[int]) -> list[Image.Image | None]:
            row = plan.iloc[rows[0]]
            image = fit_size(load_rgb(row["content"]), self.size)
            with reported_as(f"content image '{row['content']}': {{reason}}", UserError):
                mask = fit_mask(load_rgb(mask_of[row["content"]]), image.size)
            exemplar = materials.load_image(int(row["exemplar_row"]))
            return [model(image, exemplar, mask, int(row["seed"]))]

        keep_settings(folder / "images.json", made_by)
        # One at a time: the IP-Adapter reads several exemplars as views of one.
        images = make_planned(
            plan, make, folder, MANIFEST, 1, "transferring materials", self.size * self.size
        )
        facts = {
            "images": f"{len(images):,}",
            "content images": f"{images['content'].nunique():,}",
            "exemplars": f"{images['exemplar'].nunique():,}, "
            + ("none of ID" if shapes else "only ID test images"),
            "withheld by the pipeline": len(plan) - len(images),
        }
        licences = {name: licence(source) for name, source in models.items()}
        from_id, other = ("shapes", "materials") if shapes else ("materials", "objects")
        write_datasheet(folder, "transferred", facts, made_by, licences, own=from_id, other=other)

    def _plan(self, contents: pd.DataFrame, materials: ImageDataset, seed: int) -> pd.DataFrame:
        rows = []
        labels = class_words(materials.labels.tolist(), materials.classes)
        pairs = zip(contents["path"], contents["label"], strict=True)
        for number, (path, label) in enumerate(pairs):
            draw = np.random.default_rng([seed, number])
            positions = draw.choice(len(materials), self.per_content, replace=False)
            for position in np.sort(positions).tolist():
                rows.append(
                    {
                        "file": f"images/{number:06d}_{position:06d}.jpg",
                        "label": label,
                        "content": path,
                        "exemplar": materials.address(position),
                        "exemplar_row": position,
                        "exemplar_label": labels[position],
                        "seed": image_seed(seed, number * len(materials) + position),
                    }
                )
        return pd.DataFrame(rows)
