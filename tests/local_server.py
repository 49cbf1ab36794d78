"""A web server on this machine whose replies a test decides."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalServer:
    """Answers requests of several threads while its context is open.

    Args:
        reply: makes ``(status, content)`` or ``(status, content, headers)`` of a path and what
            was posted to it; content is text, bytes, or what JSON is made of.
        models: the same for everything that is got.

    Attributes:
        asked: contents of all POST requests, in the order in which they came.
        url: address of its ``/v1``.
    """

    def __init__(self, reply: Callable[[str, Any], tuple], models: tuple = (200, {"data": []})):
        self.reply, self.models = reply, models
        self.asked: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.send(*outer.models)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(body)
                self.send(*outer.reply(self.path, body))

            def send(self, status, content, headers=None):
                if not isinstance(content, bytes):
                    content = (
                        content if isinstance(content, str) else json.dumps(content)
                    ).encode()
                kind = "text/html" if content.startswith(b"<") else "application/json"
                self.send_response(status)
                for name, value in {"content-type": kind, **(headers or {})}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
