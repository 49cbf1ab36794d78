"""Data sets in the formats of Hugging Face's ``datasets``."""

from __future__ import annotations

from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.hints import suggestion

_SAVED = ("state.json", "dataset_dict.json")


def is_saved(path: str) -> bool:
    """True for a folder that ``save_to_disk`` wrote."""
    return any((Path(path).expanduser() / name).is_file() for name in _SAVED)


def holds_images(path: str) -> bool:
    """True for a Parquet file with encoded images in it, as Hugging Face's ``datasets`` writes."""
    place = Path(path).expanduser()
    if place.suffix.lower() not in (".parquet", ".pq") or not place.is_file():
        return False
    try:
        schema = pq.read_schema(place)
    except (pa.ArrowException, OSError):  # the reader of tables names the fault
        return False
    structs = [field for field in schema if pa.types.is_struct(field.type)]
    encoded = any(field.type.get_field_index("bytes") >= 0 for field in structs)
    # A table of files may have images beside their paths.
    rest = {field.name.strip().casefold() for field in schema if field not in structs}
    return encoded and "path" not in rest


def load(
    path: str, split: str | None = None, config: str | None = None, download: bool = False
) -> Any:
    """One split of a data set.

    Args:
        path: a folder that ``save_to_disk`` wrote, of Parquet files or of images, a Parquet file,
            or a name on the hub.
        split: one of several.
        config: one of several configurations of a folder, or of a data set on the hub.
        download: a name on the hub may be fetched.

    Raises:
        UserError: there is no such folder, split or package.
    """
    with reported_as("this needs Hugging Face's datasets: pip install 'ood_lab[hf]'", ImportError):
        import datasets
    place = Path(path).expanduser()
    if is_saved(path):
        dataset = datasets.load_from_disk(str(place))
    elif place.is_file():
        dataset = datasets.load_dataset("parquet", data_files={"train": escape(str(place))})
    elif place.is_dir() or download:
        dataset = datasets.load_dataset(str(place), config)
    else:
        raise UserError(
            f"'{path}' is no file or folder here; if it is a name on the hub, download: true "
            "fetches it"
        )
    if not isinstance(dataset, Mapping):
        if split not in (None, str(dataset.split)):
            raise UserError(f"'{path}' has no split '{split}': it is one set, leave split out")
        return dataset
    if split is None and len(dataset) == 1:
        return next(iter(dataset.values()))
    if split not in dataset:
        which = f"no split '{split}'" if split else "several splits; name one with split:"
        raise UserError(f"'{path}' has {which}; {suggestion(split or '', dataset)}")
    return dataset[split]
