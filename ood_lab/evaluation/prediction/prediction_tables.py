"""Verdicts on new images: as one table, or, of a great many, as Parquet parts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from lightning.pytorch import Trainer

from ood_lab.data.sources.image_lists import Listing
from ood_lab.data.transforms.subsets import even_rows
from ood_lab.detectors.base import checked_score
from ood_lab.detectors.deployment.calibration import CalibratedDetectors
from ood_lab.evaluation.prediction.table_parts import PartFiles, PartSink
from ood_lab.evaluation.prediction.unlabelled_images import ReadableImages
from ood_lab.evaluation.shift.statistics_column import IDRange
from ood_lab.evaluation.streaming_scores import identity_of
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_pass import ReadErrors
from ood_lab.features.moments import digest_of
from ood_lab.report.detection.image_strips import EXTREMES
from ood_lab.report.detection.prediction_summary import FIRST, Judged
from ood_lab.shift import STATISTICS_VERSION

#: Images whose scores are drawn, where there are more.
DRAWN = 20_000
#: Column that says in which statistics an image is beyond all ID images.
BEYOND = "beyond_id"


def verdicts(
    bank: FeatureBank, ready: CalibratedDetectors, id_range: IDRange | None
) -> pd.DataFrame:
    """Column ``predicted``, and of every detector ``_score``, ``_p_value`` and ``_is_ood``.

    Without logits, nothing is predicted. Where ID images are available, ``beyond_id`` says what
    an image is more than all of them.
    """
    classes = next(iter(ready.values())).classes
    # A head of other classes than the data's (a pretrained one) has no names here.
    named = len(classes) == bank.num_classes

    def word(label: int) -> str:
        if label < 0:  # the network gives features only
            return ""
        return classes[label] if named else f"class {label}"

    columns: dict[str, Any] = {"predicted": list(map(word, bank.predictions.tolist()))}
    for name, calibrated in ready.items():
        scores = checked_score(calibrated.detector, bank)
        columns[f"{name}_score"] = scores.numpy()
        columns[f"{name}_p_value"] = calibrated.p_values(scores).numpy()
        columns[f"{name}_is_ood"] = pd.array(calibrated.is_ood(scores).tolist(), dtype="boolean")
    if id_range is not None:
        columns[BEYOND] = id_range.beyond(bank)
    return pd.DataFrame(columns)


def predictions(
    images: ReadableImages, bank: FeatureBank, ready: CalibratedDetectors, id_range: IDRange | None
) -> pd.DataFrame:
    """A row an image; unreadable ones have no values but an ``error``."""
    rows = verdicts(bank, ready, id_range).set_index(pd.Index(images.rows))
    return images.table[["path"]].join(rows).assign(error=images.table["error"])


class PredictionSink(PartSink):
    """The same rows as :func:`predictions`, in parts.

    Args:
        files: to write.
        images: that pass.
        ready: fitted.
        own: range of the ID images; None = not available.
        trainer: of the pass.
    """

    def __init__(
        self,
        files: PartFiles,
        images: Listing,
        ready: CalibratedDetectors,
        id_range: IDRange | None,
        trainer: Trainer,
    ) -> None:
        super().__init__(files)
        self._images, self._ready, self._own = images, ready, id_range

    def rows(self, block: FeatureBank) -> pd.DataFrame:
        """See the base class."""
        return verdicts(block, self._ready, self._own).assign(row=block.index.numpy())

    def complete(self, rows: pd.DataFrame, part: range, errors: ReadErrors) -> pa.Table:
        """See the base class."""
        addresses = [self._images.address(row) for row in part]
        columns = rows.set_index("row") if len(rows) else rows
        table = pd.DataFrame({"path": addresses}, index=pd.Index(part)).join(columns)
        table["error"] = [errors.get(row, "") for row in part]
        fields = [("path", pa.string()), ("predicted", pa.string())]
        for name in self._ready:
            fields += [(f"{name}_score", pa.float64()), (f"{name}_p_value", pa.float64())]
            fields += [(f"{name}_is_ood", pa.bool_())]
        if self._own is not None:
            fields.append((BEYOND, pa.string()))
        schema = pa.schema([*fields, ("error", pa.string())])
        return pa.Table.from_pandas(table.reindex(columns=schema.names), schema, False)


def made_by(
    ready: CalibratedDetectors,
    fitted_on: Mapping[str, str] | None,
    seed: int,
    thresholds_of: str | None = None,
) -> str:
    """What verdicts are made by, in text that is the same whenever it is made again.

    ``fitted_on``: identities of the ID sets by split; None = the detectors were read from files.
    ``thresholds_of``: what thresholds are made of; None = they are given, or made of alpha.
    """
    settings = identity_of({name: c.detector for name, c in ready.items()}, fitted_on or {})
    contents = {
        name: digest_of(c.id_tensors | c.detector.fitted)
        for name, c in ready.items()
        if fitted_on is None
    }
    rules = {
        name: (c.given_threshold if thresholds_of is None else thresholds_of)
        if c.alpha is None
        else {"alpha": c.alpha}
        for name, c in ready.items()
    }
    read = None if fitted_on is None else STATISTICS_VERSION
    return json.dumps([settings, contents, rules, seed, read], sort_keys=True)


def judged_in_parts(files: PartFiles, names: Sequence[str]) -> Judged:
    """What the page and the terminal say of all parts, read one at a time."""
    n = files.parts.images
    sampled = even_rows(n, DRAWN)
    flagged, broken, start = dict.fromkeys(names, 0), 0, 0
    shown: list[pd.DataFrame] = []
    ends: dict[tuple[str, bool], pd.DataFrame] = {}
    for table in (part.to_pandas() for part in files.tables()):
        table.index = pd.RangeIndex(start, start + len(table))
        start += len(table)
        read = table[table["error"] == ""]
        broken += len(table) - len(read)
        for name in names:
            flagged[name] += int(read[f"{name}_is_ood"].sum())
            for highest in (True, False):
                # Of equal scores the first image is the first, and from the other end the last.
                rows = pd.concat([ends.get((name, highest)), read]).sort_index(ascending=highest)
                rows = rows.sort_values(f"{name}_score", ascending=not highest, kind="stable")
                ends[name, highest] = rows.head(EXTREMES)
        some = sampled[(sampled >= table.index[0]) & (sampled <= table.index[-1])]
        shown += [table.loc[some], table.head(max(0, FIRST - table.index[0]))]
    kept = pd.concat([pd.concat(shown), *ends.values()])
    kept = kept[~kept.index.duplicated()].sort_index()
    return Judged(
        kept, n, broken, flagged, kept.loc[sampled] if n > DRAWN else None, "predictions/*.parquet"
    )
