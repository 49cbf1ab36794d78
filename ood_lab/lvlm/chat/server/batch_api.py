"""OpenAI's Batch API: requests go up as a file, and the replies are picked up hours later.

What was sent is kept in a file next to the answers, so that no batch is submitted twice:

1. the requests are uploaded, and the id of their file is written down with their keys;
2. a batch is made of the file, and its id is written down. A process that is killed in between
   leaves a file without a batch: the next one looks for it among the server's batches;
3. what the batch said is read; requests that failed are written down, and may be sent again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import Stopped, UserError
from ood_lab.common.line_files import append_record, read_records
from ood_lab.lvlm.chat.base import one_address
from ood_lab.lvlm.chat.server.server_connection import OpenAIServer

log = logging.getLogger(__name__)

#: What OpenAI takes as one batch: requests, and bytes of their file (200 MB, less some room).
MOST_REQUESTS, MOST_BYTES = 50_000, 190_000_000
#: Seconds between two looks at a batch, at first and at most.
PAUSES_S = (5.0, 60.0)
_ENDPOINT: Final = "/v1/chat/completions"
#: What a batch is in the end; of an expired or cancelled one some requests have replies.
_ENDS = ("completed", "failed", "expired", "cancelled")


class BatchReply(NamedTuple):
    """What a batch has of a request: the body of the reply, or why there is none."""

    key: str
    body: Any
    error: str | None


class Batches:
    """The batches of one server, and the file that remembers them.

    Args:
        server: that they are sent to.
        path: the file.
    """

    def __init__(self, server: OpenAIServer, path: Path) -> None:
        self._server = server
        self._path = path
        #: Keys of the requests in each uploaded file, and the batch that was made of it.
        self._keys: dict[str, list[str]] = {}
        self._batch: dict[str, str] = {}
        self._failed: dict[str, set[str]] = {}
        for record in read_records(path) if path.is_file() else ():
            if record.get("server") == one_address(server.base_url):
                self._learn(record)

    def sent(self) -> set[str]:
        """Keys of all requests that are in a batch, and have not failed there."""
        return {key for file in self._keys for key in self._open(file)}

    def reopen(self, key: str) -> None:
        """Notes that the reply to a request is a failure: the next call sends it again."""
        for file in [file for file in self._keys if key in self._open(file)]:
            self._note({"file": file, "failed": [key]})

    def send(self, bodies: Mapping[str, Settings]) -> None:
        """Submits requests, by key, in as many batches as they need.

        Raises:
            UserError: the server rejects them, or has no such API.
        """
        for part in _parts(bodies):
            data = "".join(part.values()).encode()
            with self._told():
                client = self._server.client
                sent = client.files.create(file=("requests.jsonl", data), purpose="batch")
            self._note({"file": sent.id, "keys": list(part)})
            self._submit(sent.id)

    def replies(self, wanted: Sequence[str], wait: bool) -> Iterator[BatchReply]:
        """What the batches say of the requests with these keys, each as soon as it has arrived.

        Args:
            wanted: keys of requests that were sent.
            wait: until every batch has ended.

        Raises:
            UserError: a batch was rejected, or the server does not answer. What was sent stays
                sent: the next call picks it up.
            Stopped: some batches have not ended, and ``wait`` is false.
        """
        files = {f: keys for f in self._keys if (keys := self._open(f).intersection(wanted))}
        for file in files:
            if file not in self._batch:
                self._adopt_or_submit(file)
        pause, most = PAUSES_S
        while files:
            states = {}
            for file in list(files):
                with self._told(f"the batch {self._batch[file]}"):
                    batch = self._server.client.batches.retrieve(self._batch[file])
                if batch.status in _ENDS:
                    yield from self._results(file, batch, files.pop(file))
                else:
                    states[batch.id] = _state(batch)
            if not files:
                return
            message = "; ".join(f"{name}: {state}" for name, state in states.items())
            if not wait:
                raise Stopped(f"{message}. Repeat the command to pick up what is there by then")
            log.info("%s", message)
            time.sleep(pause)
            pause = min(1.5 * pause, most)

    def _results(self, file: str, batch: Any, wanted: set[str]) -> list[BatchReply]:
        """Replies first, then failures, which are noted so that they may be sent again."""
        if batch.status == "failed":  # as a whole, before any request was looked at
            errors = (batch.errors and batch.errors.data) or []
            reason = "; ".join(str(error.message) for error in errors) or "no reason given"
            self._note({"file": file, "failed": self._keys[file]})
            raise UserError(
                f"{self._server.base_url} rejects the batch {batch.id}: "
                f"{self._server.safe(reason)}. Once that is put right, repeat the command to send "
                "it again"
            )
        results: dict[str, BatchReply] = {}
        for name in (batch.output_file_id, batch.error_file_id):
            if name:
                with self._told(f"the file {name} of the batch {batch.id}"):
                    text = self._server.client.files.content(name).text
                records = map(json.loads, filter(str.strip, text.split("\n")))
                results |= {reply.key: reply for reply in map(self._said, records)}
        missing = f"the batch {batch.id} is {batch.status}, without a reply to this request"
        entries = [results.get(key) or BatchReply(key, None, missing) for key in self._keys[file]]
        failed = [reply for reply in entries if reply.error]
        self._note({"file": file, "failed": [reply.key for reply in failed]})
        log.info("batch %s is %s: %d replies", batch.id, batch.status, len(entries) - len(failed))
        replies = [reply for reply in entries if not reply.error]
        return [reply for reply in (*replies, *failed) if reply.key in wanted]

    def _said(self, record: Mapping[str, Any]) -> BatchReply:
        response = record.get("response") or {}
        body, status = response.get("body"), response.get("status_code")
        key = str(record.get("custom_id"))
        if status == 200 and not record.get("error"):
            return BatchReply(key, body, None)
        error = record.get("error") or (body.get("error") if isinstance(body, Mapping) else body)
        reason = error.get("message") or error if isinstance(error, Mapping) else error
        return BatchReply(key, None, self._server.safe(f"status {status} in a batch: {reason}"))

    def _adopt_or_submit(self, file: str) -> None:
        """Of a file that was sent by a process that ended before it knew its batch."""
        with self._told():
            batches = self._server.client.batches.list(limit=100)
            results = next((batch for batch in batches if batch.input_file_id == file), None)
        if results is None:
            self._submit(file)
        else:
            self._note({"file": file, "batch": results.id})

    def _submit(self, file: str) -> None:
        with self._told():
            # Not repeated where its reply is lost: the batch may be there nevertheless.
            client = self._server.client.with_options(max_retries=0)
            batch = client.batches.create(
                input_file_id=file, endpoint=_ENDPOINT, completion_window="24h"
            )
        self._note({"file": file, "batch": batch.id})
        log.info(
            "submitted the batch %s of %d requests (%s)",
            batch.id,
            len(self._keys[file]),
            self._path,
        )

    def _open(self, file: str) -> set[str]:
        return set(self._keys[file]) - self._failed.get(file, set())

    def _note(self, record: Mapping[str, Any]) -> None:
        record = {"server": one_address(self._server.base_url), **record}
        append_record(self._path, record)
        self._learn(record)

    def _learn(self, record: Mapping[str, Any]) -> None:
        file = str(record["file"])
        if "keys" in record:
            self._keys[file] = list(record["keys"])
        if "batch" in record:
            self._batch[file] = str(record["batch"])
        if "failed" in record:
            self._failed.setdefault(file, set()).update(record["failed"])

    @contextmanager
    def _told(self, what: str | None = None) -> Iterator[None]:
        """Errors of the client as one line.

        Args:
            what: the requested thing, which the server once had; None = nothing of the kind.
        """
        import openai

        base_url = self._server.base_url
        try:
            yield
        except openai.APIStatusError as error:
            cause = self._server.cause(error)
            if error.status_code in (404, 405, 501):
                if what is None:
                    raise UserError(
                        f"{base_url} has no Batch API ({cause}): remove lvlm.batch"
                    ) from None
                raise UserError(
                    f"{base_url} does not know {what} any more, or not for this key ({cause}): "
                    f"remove its lines from {self._path} to send the requests again"
                ) from None
            self._server.stop_at(error, {})
            raise UserError(f"{base_url} refuses a batch ({cause})") from None
        except openai.OpenAIError as error:
            raise UserError(
                f"the connection to {base_url} was lost ({self._server.cause(error)}): repeat the "
                "command, which resumes with what was sent"
            ) from None


def _parts(bodies: Mapping[str, Settings]) -> Iterator[dict[str, str]]:
    """Lines of request files by key, in parts that the server takes as one file each."""
    part: dict[str, str] = {}
    size = 0
    for key, body in bodies.items():
        record = {"custom_id": key, "method": "POST", "url": _ENDPOINT, "body": body}
        line = f"{json.dumps(record)}\n"
        if part and (len(part) == MOST_REQUESTS or size + len(line) > MOST_BYTES):
            yield part
            part, size = {}, 0
        part[key] = line
        size += len(line)
    if part:
        yield part


def _state(batch: Any) -> str:
    counts = batch.request_counts
    done = f", {counts.completed} of {counts.total} requests done" if counts else ""
    return f"{batch.status}{done}"
