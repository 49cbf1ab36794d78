"""Reads an offline W&B run back: its file is a LevelDB log of protobuf records."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from wandb.proto import wandb_internal_pb2 as pb

BLOCK, HEADER, FULL, LAST = 32768, 7, 1, 4


def records(path: Path) -> Iterator[pb.Record]:
    data, position, parts = path.read_bytes(), HEADER, b""
    while position + HEADER <= len(data):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + HEADER])
        position += HEADER
        parts += data[position : position + length]
        position += length
        if kind in (FULL, LAST):
            record = pb.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def read_run(folder: Path) -> dict:
    """``{"run", "summary", "exit_code", "table"}`` of the one offline run below ``folder``."""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    summary, run, code = {}, None, None
    until = time.monotonic() + 30  # W&B's own process writes it, and may be behind
    while code is None and time.monotonic() < until:
        time.sleep(0.05)
        code = next((r.exit.exit_code for r in records(path) if r.HasField("exit")), None)
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
        elif kind == "summary":
            for item in record.summary.update:
                summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    tables = sorted(path.parent.glob("files/media/table/results*.json"))
    table = json.loads(tables[0].read_text()) if tables else None
    return {"run": run, "summary": summary, "exit_code": code, "table": table}
