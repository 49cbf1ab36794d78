"""Images of known shift (Syn-IS): prompts measured, divided into levels, drawn by a pipeline."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from PIL import Image

from ood_lab.common.arguments import BatchSize, Count, Fields, Levels, Settings
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.english import counted
from ood_lab.common.file_records import text_sha256
from ood_lab.common.grouping import without_none
from ood_lab.evaluation.shift.shift_encoder import clip_features, load_decompositions
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.shift import ShiftMeter, imagenet21k_labels, read_texts
from ood_lab.synthesis import (
    Prompts,
    TextToImage,
    check_pipeline,
    chosen_dtype,
    keep_plan,
    keep_settings,
    licence,
    make_planned,
    read_styles,
    write_datasheet,
)
from ood_lab.synthesis.pretrained_models import Dtype
from ood_lab.synthesis.prompt_selection import make_plan

log = logging.getLogger(__name__)

MANIFEST = ["path", "label", "prompt", "style", "semantic_level", "covariate_level", "seed"]


@dataclass(frozen=True, kw_only=True)
class Synthesize(Task):
    """Writes plan, ``level_edges.json``, images, ``manifest.csv`` and ``datasheet.md`` (Syn-IS).

    1. Prompts are all labels in all styles (or ``prompts`` of them, at random).
    2. Their shift degrees are measured from CLIP's text features to the ID images, see
       :func:`~ood_lab.synthesis.measure_prompts`, and divided by edges of their own.
    3. ``per_cell`` prompts of each cell are drawn and the plan is written.
    4. What has no image yet is generated. The same command resumes a stopped run.

    ``data.ood.syn=<out>/manifest.csv`` evaluates detectors over the levels.

    Args:
        out: folder of the images; kept between runs.
        labels: text file, one per line; None = ImageNet-21K's 20,099 names.
        styles: YAML file; None = the 51 of the package.
        prompts: number drawn of all; None = all.
        id_split: ID images to measure from.
        laid: see :func:`~ood_lab.evaluation.shift.shift_encoder.load_decompositions`.
        levels: an axis.
        per_cell: images per cell; a cell with fewer prompts gets what there is.
        plan_only: stop after the plan; no pipeline is needed.
        pipeline: folder or id of a text-to-image pipeline of diffusers.
        arguments: of every call of the pipeline; null leaves one out.
        variant, dtype: of its weights; None = float16 on a GPU, float32 elsewhere.
        device: None = the first GPU, else the CPU.
        download: fetch a pipeline that is not here.
        batch_size: images per call.

    Raises:
        UserError: an option cannot work, models are missing, the folder holds another plan, or
            the disk is too small.
    """

    out: str
    labels: str | None
    styles: str | None
    prompts: Count | None
    id_split: str
    laid: str | None
    levels: Levels
    per_cell: Count
    plan_only: bool
    pipeline: str
    arguments: Settings
    variant: str | None
    dtype: Dtype
    device: str | None
    download: bool
    batch_size: BatchSize

    def run(self, ws: Workspace) -> None:
        """See the class."""
        target = chosen_device(self.device)
        weights = chosen_dtype(self.dtype, target)
        source = self.pipeline
        if not self.plan_only:
            source = check_pipeline(self.pipeline, self.variant, self.download)
        pool = Prompts(
            read_styles(self.styles),
            read_texts(self.labels) if self.labels else imagenet21k_labels(),
        )
        split = load_decompositions(ws.clip, self.laid)[0]
        features = clip_features(ws.data, ws.extractor, ws.features_root, ws.clip, [self.id_split])
        if not ws.is_main:
            return
        folder = Path(self.out).expanduser()
        basis = hashlib.sha256(split.W.numpy().tobytes())
        choice: Fields = {
            "prompts": self.prompts,
            "levels": self.levels,
            "per_cell": self.per_cell,
            "seed": ws.seed,
        }
        made_with = {
            "clip": ws.clip.name,
            "weights": split.clip["weights_sha256"],
            "decomposition": f"{split.name} {basis.hexdigest()}",
            "ID images": ws.data.splits[self.id_split].identity,
            "styles": text_sha256(repr(tuple(pool.styles))),
            "labels": text_sha256("\n".join(pool.labels)),
            **choice,
        }

        def make() -> pd.DataFrame:
            meter = ShiftMeter(split, features[self.id_split], device=target)
            encode = ws.clip.to(target).encode_text
            return make_plan(pool, encode, meter, folder, **choice)

        plan = keep_plan(folder, made_with, make)
        ws.record.plan = made_with
        note_plan(ws, plan, folder)
        if self.plan_only:
            return
        given_arguments = without_none(self.arguments)
        made_by = {"pipeline": self.pipeline, "arguments": given_arguments, "dtype": str(weights)}
        ws.clip.cpu()  # leaves the device to the pipeline
        painter = TextToImage(source, given_arguments, target, weights, self.variant, self.download)
        keep_settings(folder / "images.json", made_by)

        def paint(rows: list[int]) -> list[Image.Image | None]:
            part = plan.iloc[rows]
            prompts, negative = part["prompt"].tolist(), part["negative_prompt"].tolist()
            return painter(prompts, part["seed"].tolist(), negative)

        images = make_planned(plan, paint, folder, MANIFEST, self.batch_size, "generating images")
        counts = images.groupby(["covariate_level", "semantic_level"]).size()
        facts = {
            "images": f"{len(images):,} in {len(counts)} cells of semantic x covariate level",
            "images of a cell": f"{counts.min():,} to {counts.max():,}" if len(counts) else "none",
            "labels and styles": f"{images['label'].nunique():,} and {images['style'].nunique()}",
            "withheld by the pipeline": len(plan) - len(images),
        }
        how = {**made_with, **made_by, "edges": "level_edges.json"}
        write_datasheet(folder, "syn", facts, how, {"pipeline": licence(source)})


def note_plan(ws: Workspace, plan: pd.DataFrame, folder: Path) -> None:
    """Notes in the record, and says, how many images are planned."""
    planned = counted(len(plan), "image")
    ws.record.title = f"{planned} planned"
    ws.record.out = str(folder)
    log.info("plan of %s: %s", planned, folder / "plan.csv")
