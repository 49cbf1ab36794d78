"""A local server of OpenAI's Batch API whose replies a test decides."""

import email
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class BatchServer:
    """Keeps files and batches while its context is open.

    Args:
        reply: makes ``(status, body)`` of the body of a request in a batch.

    Attributes:
        files: content of each file by id.
        batches: by id, as the protocol shows them.
        done: whether batches are completed when they are looked at.
        loses: a batch is made, and the connection lost before its id is told.
        url: address of its ``/v1``.
    """

    def __init__(self, reply: Callable[[dict], tuple[int, dict]]):
        self.reply = reply
        self.files: dict[str, str] = {}
        self.batches: dict[str, dict] = {}
        self.done, self.loses, self.refuses = True, False, None
        self.looks = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                parts = self.path.split("?")[0].strip("/").split("/")[1:]
                if parts == ["models"]:
                    self.send({"object": "list", "data": []})
                elif parts == ["batches"]:
                    found = list(outer.batches.values())
                    self.send({"object": "list", "data": found, "has_more": False})
                elif parts[0] == "batches" and parts[1] in outer.batches:
                    outer.looks += 1
                    self.send(outer.look(outer.batches[parts[1]]))
                elif parts[0] == "files" and parts[1] in outer.files:
                    self.send(outer.files[parts[1]])
                else:
                    self.send({"error": {"message": "no such thing"}}, 404)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/files":
                    kind = self.headers["content-type"].encode()
                    message = email.message_from_bytes(b"content-type: " + kind + b"\n\n" + body)
                    parts = {
                        part.get_param("name", header="content-disposition"): part
                        for part in message.get_payload()
                    }
                    assert parts["purpose"].get_payload() == "batch"
                    name = outer.keep(parts["file"].get_payload(decode=True).decode())
                    about = {"id": name, "object": "file", "bytes": 1, "created_at": 1}
                    self.send({**about, "filename": "x", "purpose": "batch", "status": "processed"})
                elif self.path == "/v1/batches":
                    batch = outer.submit(json.loads(body))
                    if outer.loses:
                        self.close_connection = True
                    else:
                        self.send(batch)
                else:
                    self.send({"error": {"message": "only batches here"}}, 404)

            def send(self, content, status=200):
                data = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                kind = "text/plain" if isinstance(content, str) else "application/json"
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def keep(self, content: str) -> str:
        """A new file."""
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name

    def submit(self, asked: dict) -> dict:
        """A new batch."""
        assert asked["endpoint"] == "/v1/chat/completions"
        name = f"batch_{len(self.batches)}"
        batch = {"id": name, "object": "batch", "created_at": 1, "status": "in_progress", **asked}
        self.batches[name] = batch
        return batch

    def look(self, batch: dict) -> dict:
        """Ends a batch, where batches end."""
        if self.refuses:
            return batch | {"status": "failed", "errors": {"data": [{"message": self.refuses}]}}
        if self.done and batch["status"] == "in_progress":
            lines: dict[bool, list[str]] = {True: [], False: []}
            for line in self.files[batch["input_file_id"]].splitlines():
                request = json.loads(line)
                status, body = self.reply(request["body"])
                response = {"status_code": status, "request_id": "r", "body": body}
                record = {"id": "x", "custom_id": request["custom_id"], "response": response}
                lines[status == 200].append(json.dumps({**record, "error": None}))
            batch["status"] = "completed"
            for good, name in ((True, "output_file_id"), (False, "error_file_id")):
                if lines[good]:
                    batch[name] = self.keep("\n".join(reversed(lines[good])) + "\n")
        return batch

    def __enter__(self):
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
