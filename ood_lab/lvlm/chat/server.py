"""The connection to any server that speaks OpenAI's protocol."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ood_lab.errors import UserError

if TYPE_CHECKING:
    import openai

#: Sent where no key is set: servers of one's own ask for none, the client for any.
_NO_KEY = "none"
#: Seconds that a server may take to say whether it is there.
_CHECK_S = 30.0


class OpenAIServer:
    """A client with retries, whose errors name the setting to correct and never the key.

    Requests that fail with 408, 409, 429, 5xx, a lost connection or a time-out are repeated with
    growing pauses (and those that the server asks for). The key is read from the environment, and
    appears nowhere else.

    Args:
        node: of the configuration, which messages name: ``lvlm``, ``generator``.
        base_url: of the server, usually ending in ``/v1``.
        api_key_env: name of the environment variable with the key.
        concurrency: requests under way at a time.
        retries: repetitions of a request.
        timeout_s: seconds that a request may take.
        http_client: for tests; None = the client's own.

    Raises:
        UserError: ``base_url`` is not an address, or holds a secret.
    """

    def __init__(
        self,
        node: str,
        base_url: str,
        api_key_env: str,
        concurrency: int,
        retries: int,
        timeout_s: float,
        http_client: Any = None,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UserError(
                f"{node}.base_url={base_url}: give an address as http://localhost:8000/v1"
            )
        if parts.username or parts.password or parts.query:
            # Not shown: it would end in logs and manifests.
            raise UserError(
                f"{node}.base_url holds a name, a password or a query: give the bare address, and "
                f"the key in the environment variable {api_key_env}"
            )
        self.node = node
        self.base_url = base_url
        self.api_key_env = api_key_env
        self.concurrency = concurrency
        self.retries = retries
        self.timeout_s = timeout_s
        self._http_client = http_client

    @cached_property
    def client(self) -> openai.OpenAI:
        """The client of the ``openai`` package.

        Raises:
            UserError: the package is not installed.
        """
        try:
            import openai
        except ImportError as error:
            raise UserError(f"{self.node}=openai needs openai: pip install 'ood_lab[lvlm]'") from (
                error
            )
        return openai.OpenAI(
            api_key=self._key or _NO_KEY,
            base_url=self.base_url,
            timeout=self.timeout_s,
            max_retries=self.retries,
            http_client=self._http_client or _http_client(self.concurrency),
        )

    def check(self) -> None:
        """Asks the server for its models.

        Raises:
            UserError: nobody answers, the key is refused, or what answers is no such server.
        """
        import openai

        client = self.client.with_options(max_retries=0, timeout=min(self.timeout_s, _CHECK_S))
        try:
            found = client.models.with_raw_response.list()
        except openai.APIConnectionError as error:  # time-outs included
            raise UserError(
                f"nothing answers at {self.node}.base_url={self.base_url} ({self.cause(error)}): "
                "start the server, or correct the address"
            ) from None
        except openai.APIStatusError as error:
            self.stop_at(error)  # some servers have no list of models
            return
        if "html" in found.headers.get("content-type", ""):
            raise UserError(self._no_server())

    def stop_at(self, error: openai.APIStatusError) -> None:
        """Raises where every other request would fail in the same way."""
        if error.status_code in (401, 403):
            given = "refuses the key in" if self._key else "asks for a key: set"
            raise UserError(
                f"{self.base_url} {given} the environment variable {self.api_key_env} "
                f"(status {error.status_code})"
            ) from None
        if "html" in error.response.headers.get("content-type", "") and error.status_code == 404:
            raise UserError(self._no_server()) from None

    def lacking(self, what: str, answer: object) -> str:
        """What to say of a reply that is not what was asked for.

        Raises:
            UserError: it is a web page.
        """
        if "<html" in str(answer)[:1000].lower():
            raise UserError(self._no_server())
        return self.safe(f"no {what} in the reply: {answer}")

    def cause(self, error: Exception) -> str:
        """The reason of an error in one line, without the key."""
        cause = error.__cause__ or error
        text = " ".join(str(cause).split()) or type(cause).__name__
        return self.safe(text)

    def safe(self, text: str) -> str:
        """The beginning of a text, without the key: some servers repeat it when they refuse it."""
        return (text.replace(self._key, "***") if self._key else text)[:300]

    def _no_server(self) -> str:
        return (
            f"{self.node}.base_url={self.base_url} answers with a web page, not as a server of "
            "OpenAI's protocol: its address usually ends in /v1"
        )

    @property
    def _key(self) -> str | None:
        return os.environ.get(self.api_key_env)


def _http_client(concurrency: int) -> Any:
    """One connection for each request under way, none of them closed in between."""
    import openai

    # The limits are given in the client's own types, of whichever httpx it is built on.
    limits = type(openai.DEFAULT_CONNECTION_LIMITS)
    return openai.DefaultHttpxClient(
        limits=limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    )
