"""Tables of images that are scored as they pass: one Parquet file for every part of a set."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.file_records import text_sha256
from ood_lab.common.files import replaced
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_pass import BlockConsumer, DatasetParts, ReadErrors
from ood_lab.schema.run_record import Facts

_METADATA = b"ood_lab"
#: Images of a part, where nobody says otherwise.
PART = 100_000


@dataclass(frozen=True)
class PartFiles:
    """Where the parts of a set lie; each appears by one rename, so it is whole or absent.

    Attributes:
        folder: of the files, on several nodes a shared one.
        parts: of the set.
        key_of: what rows of the set are made from; a file with another key is made again.
    """

    folder: Path
    parts: DatasetParts
    key_of: Callable[[range], str]

    def path(self, part: int) -> Path:
        """The file of a part."""
        return self.folder / f"part-{part:05d}.parquet"

    def missing(self) -> list[int]:
        """Numbers of the parts that are not there, or were made from something else."""
        return [part for part in self.parts.numbers if not self._is_made(part)]

    def _is_made(self, part: int) -> bool:
        try:
            return bool(self.facts(part)["key"] == self._key(part))
        except UserError:
            return False

    def _key(self, part: int) -> str:
        rows = self.parts.rows(part)
        return text_sha256(f"{self.key_of(rows)} {rows.start} {rows.stop}")

    def facts(self, part: int) -> Facts:
        """What was written with the rows of a part.

        Raises:
            UserError: the file is missing or damaged.
        """
        with self._whole(part):
            return dict(json.loads((pq.read_schema(self.path(part)).metadata or {})[_METADATA]))

    def write(self, part: int, table: pa.Table, facts: Facts) -> None:
        """Writes the rows of a part, whole or not at all."""
        text = json.dumps(facts | {"key": self._key(part)})
        table = table.replace_schema_metadata(
            {**(table.schema.metadata or {}), _METADATA: text.encode()}
        )
        with replaced(self.path(part)) as file:
            pq.write_table(table, file, write_page_checksum=True)

    def tables(self) -> Iterator[pa.Table]:
        """The parts in order, one at a time, with some columns or all.

        Raises:
            UserError: a file is missing or damaged.
        """
        for part in self.parts.numbers:
            with self._whole(part):
                # As a data set it would have a column of the folder seed=0, too.
                table = pq.ParquetFile(self.path(part), page_checksum_verification=True).read()
            yield table

    def _whole(self, part: int) -> AbstractContextManager[None]:
        problem = (
            f"'{self.path(part)}' is missing or damaged: delete it, and the same command makes it "
            "again"
        )
        return reported_as(problem, (OSError, KeyError, ValueError))

    def remove_others(self) -> None:
        """Removes parts of an earlier list that was longer."""
        current = {self.path(part) for part in self.parts.numbers}
        for file in self.folder.glob("part-*.parquet"):
            if file not in current:
                file.unlink()


class PartSink(BlockConsumer):
    """Collects the rows of a part, and writes them when it is complete."""

    def __init__(self, files: PartFiles) -> None:
        super().__init__()
        self.files = files
        self._rows: list[pd.DataFrame] = []

    @abstractmethod
    def rows(self, block: FeatureBank) -> pd.DataFrame:
        """What is kept of some images."""

    def complete(self, rows: pd.DataFrame, part: range, errors: ReadErrors) -> pa.Table:
        """The rows of a part (its row numbers in the set: ``part``) as pyarrow writes them."""
        return pa.Table.from_pandas(rows, preserve_index=False)

    def facts(self) -> Facts:
        """What is written with the rows."""
        return {}

    def block(self, rows: FeatureBank) -> None:
        """See the base class."""
        self._rows.append(self.rows(rows))

    def closed(self, part: int, errors: ReadErrors) -> None:
        """See the base class."""
        rows = pd.concat(self._rows, ignore_index=True) if self._rows else pd.DataFrame()
        self._rows = []
        table = self.complete(rows, self.files.parts.rows(part), errors)
        self.files.write(part, table, self.facts())
