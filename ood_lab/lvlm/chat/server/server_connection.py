"""The connection to any server that speaks OpenAI's protocol."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from ood_lab.common.arguments import Count, Natural, Positive, Settings
from ood_lab.common.credentials import check_secret
from ood_lab.common.errors import UserError, one_line, reported_as
from ood_lab.common.hints import suggestion
from ood_lab.common.progress import duration
from ood_lab.lvlm.chat.server.throttle import FailedAttempt, Throttle, retry_after

if TYPE_CHECKING:
    import openai

log = logging.getLogger(__name__)

#: Sent where no key is set: servers of one's own ask for none, the client for any.
_NO_KEY = "none"
#: Characters from which on a key is hidden inside words, too, and what is there in its place.
_LONG_KEY, _HIDDEN = 8, "***"
_Answer = TypeVar("_Answer")
#: Seconds that a server may take to say whether it is there.
_CHECK_S = 15.0
#: Longest pause that a server may ask for before a request is repeated; the client's own bound.
_LONGEST_PAUSE_S = 60.0
#: Status of a request whose reply may be under way yet.
_TIME_OUTS = (408, 504, 524)
#: Fields in which requests differ.
_OF_ONE_REQUEST = ("messages", "prompt", "negative_prompt")


#: What is wrong with one request alone: its text or its image.
_OWN_FAULT = re.compile(
    r"context.{0,3}length|too long|content_(?:policy|filter)|moderation|\bimage"
    r"|\binputs\b.{0,3}tokens",
    re.IGNORECASE,
)


@dataclass(eq=False)
class OpenAIServer:
    """A client with retries, whose errors name the setting to correct and never the key.

    Requests that fail with 408, 409, 429, 5xx or a lost connection are repeated with growing pauses
    (and those that the server asks for). What gets no reply in time is sent once more only: the
    server may charge for both. The key is read from the environment, and appears nowhere else.

    Args:
        model: name of the model, as the server knows it.
        base_url: of the server, usually ending in ``/v1``.
        api_key_env: name of the environment variable with the key.
        concurrency: requests under way at a time.
        retries: repetitions of a request.
        timeout_s: seconds that a request may take; a model that reasons takes minutes.
        http_client: for tests; None = the client's own.

    Raises:
        UserError: ``base_url`` is not an address, or a setting holds a secret.
    """

    model: str
    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: Count = 8
    retries: Natural = 5
    timeout_s: Positive = 600.0
    http_client: Any = None
    #: Node of the configuration that messages name.
    node: ClassVar[str]

    def __post_init__(self) -> None:
        check_secret(f"{self.node}.base_url", self.base_url)
        check_secret(f"{self.node}.api_key_env", self.api_key_env)
        try:
            parts = urlsplit(self.base_url)
            bad = parts.scheme not in ("http", "https") or not parts.netloc or parts.port == 0
        except ValueError:
            bad = True
        if bad:
            raise UserError(
                f"{self.node}.base_url={self.base_url}: give an address as http://localhost:8000/v1"
            )
        self.base_url = self.base_url.rstrip("/")
        self._models: list[str] = []
        self._warned = False
        self.throttle = Throttle(self.concurrency, self.retries)

    @cached_property
    def client(self) -> openai.OpenAI:
        """The client of the ``openai`` package.

        Raises:
            UserError: the package is not installed.
        """
        with reported_as(
            f"{self.node}=openai needs openai: pip install 'ood_lab[lvlm]'", ImportError
        ):
            import openai
        # One connection for each request under way, none of them closed in between. The limits are
        # given in the client's own types, of whichever httpx it is built on.
        limits = type(openai.DEFAULT_CONNECTION_LIMITS)(
            max_connections=self.concurrency, max_keepalive_connections=self.concurrency
        )
        return openai.OpenAI(
            api_key=self._key or _NO_KEY,
            base_url=self.base_url,
            timeout=openai.Timeout(self.timeout_s, connect=min(self.timeout_s, _CHECK_S)),
            max_retries=self.retries,
            http_client=self.http_client or openai.DefaultHttpxClient(limits=limits),
        )

    def check(self) -> None:
        """Asks the server for its models.

        Raises:
            UserError: there is no response, the key is rejected, or what answers is no such server.
        """
        import openai

        client = self.client.with_options(max_retries=0, timeout=min(self.timeout_s, _CHECK_S))
        try:
            results = client.models.with_raw_response.list()
        except openai.APIConnectionError as error:  # time-outs included
            raise UserError(
                f"nothing answers at {self.node}.base_url={self.base_url} ({self.cause(error)}): "
                "start the server, or correct the address"
            ) from None
        except openai.APIStatusError as error:
            if error.status_code in (401, 403) or self._is_page(error):
                self.stop_at(error, {})
            return  # some servers have no list of models
        if "html" in results.headers.get("content-type", ""):
            raise UserError(self._no_server())
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # for messages alone
            self._models = [str(item["id"]) for item in results.http_response.json()["data"]]

    def answer(
        self,
        path: str,
        body: Callable[[], Settings],
        read: Callable[[Any], _Answer],
        estimate: Callable[[], str],
    ) -> tuple[_Answer, int]:
        """What is read from the answer to a request, and how often it was repeated.

        Args:
            path: of the request.
            body: makes what is sent.
            read: of the answer; raises a FailedAttempt where that is none.
            estimate: says what the request costs.

        Raises:
            UserError: every other request would fail, too.
            FailedAttempt: there is no answer.
        """
        import openai

        def attempt() -> _Answer:
            sent = body()
            try:
                # Not ``chat.completions.create``: that walks through request and reply by their
                # types, which takes longer than to send the one and read the other.
                client = self.client.with_options(max_retries=0)
                return read(client.post(path, body=sent, cast_to=object))
            except openai.APIStatusError as error:
                status = error.status_code
                # Once a request was answered, one that is bad is a matter of its own.
                if status not in (400, 422) or not self.throttle.answered:
                    self.stop_at(error, sent)
                failed = FailedAttempt(
                    self.cause(error),
                    again=status in (408, 409, 429) or status >= 500,
                    rejected=status == 429,
                    late=status in _TIME_OUTS,
                    headers=error.response.headers,
                    body=str(error.body),
                )
            except (openai.OpenAIError, ValueError) as error:  # no connection, broken JSON
                late = isinstance(error, openai.APITimeoutError)
                late = late and type(error.__cause__).__name__ != "ConnectTimeout"
                failed = FailedAttempt(self.cause(error), late=late)
            if failed.late:
                failed.message = (
                    f"no reply in time ({self.node}.timeout_s={self.timeout_s:g}; {failed.message})"
                )
                if self.retries and not self._warned:
                    self._warned = True
                    log.warning(
                        "%s: the request is sent once more, as are others without a reply in time; "
                        "the server may charge twice (each time for %s)",
                        failed.message,
                        estimate(),
                    )
            raise failed

        try:
            return self.throttle.answer(attempt)
        except FailedAttempt as error:
            if error.late:
                several = " twice" if error.timeouts > 1 else ""
                error.message += f": sent{several}, and the server may charge for it{several}"
            raise

    def stop_at(self, error: openai.APIStatusError, body: Settings) -> None:
        """Raises where every other request would fail in the same way, at once or for long.

        Args:
            error: what came back, retries included.
            body: of the request; what all requests have in common is all of it but the texts.
        """
        status = error.status_code
        if status in (401, 403):
            verb = "rejects the key in" if self._key else "asks for a key: set"
            raise UserError(
                f"{self.base_url} {verb} the environment variable {self.api_key_env} "
                f"(status {status})"
            ) from None
        if status == 404:
            if self._is_page(error):
                raise UserError(self._no_server()) from None
            model = str(body.get("model", ""))
            hint = f": {suggestion(model, self._models)}" if self._models else ""
            raise UserError(
                f"{self.base_url} does not know {self.node}.model={model} ({self.cause(error)})"
                f"{hint}"
            ) from None
        if status in (400, 422) and (name := self._refused(error, body)):
            raise UserError(
                f"{self.base_url} rejects '{name}', which every request has: "
                f"{self._remedy(name)} ({self.cause(error)})"
            ) from None
        if status == 429:
            self._stop_at_limit(error)

    def _refused(self, error: openai.APIStatusError, body: Settings) -> str | None:
        """The field common to all requests that a server finds fault with; None if there is none.

        Servers name it in ``param``, or only in their message. A text that is too long is a matter
        of its own request.
        """
        reply = str(error.body or "") + str(error)
        if _OWN_FAULT.search(reply):
            return None
        common = [name for name in body if name not in _OF_ONE_REQUEST]
        if error.param in common:
            return error.param
        # "This model's image limit" names no field.
        return next(
            (item for item in common if re.search(rf"\b{re.escape(item)}(?!'s)['\"`]", reply)), None
        )

    def _remedy(self, name: str) -> str:
        node = self.node
        if name == "max_tokens":
            return f"set {node}.max_tokens=null {node}.max_completion_tokens=4096"
        name = "logprobs" if name == "top_logprobs" else name
        if name in ("temperature", "seed", "max_completion_tokens", "logprobs"):
            return f"set {node}.{name}=null, so that it is not sent"
        return f"correct {node}.{name}" if name == "model" else f"remove it from {node}.extra_body"

    def _stop_at_limit(self, error: openai.APIStatusError) -> None:
        """Raises where an overloaded server wants a longer pause than a retry makes."""
        if "insufficient_quota" in str(error.body):
            raise UserError(
                f"{self.base_url} has no quota left for this key ({self.cause(error)}): answers "
                "that came before are kept"
            ) from None
        seconds = retry_after(error.response.headers, 0.0)
        if seconds > _LONGEST_PAUSE_S:
            raise UserError(
                f"{self.base_url} takes no more requests for {duration(seconds)} "
                f"({self.cause(error)}): answers that came before are kept; repeat the command then"
            ) from None

    def lacking(self, what: str, answer: object) -> str:
        """What to say of a reply that is not the requested thing.

        Raises:
            UserError: it is a web page.
        """
        if "<html" in str(answer)[:1000].lower():
            raise UserError(self._no_server())
        return self.safe(f"no {what} in the reply: {answer}")

    def cause(self, error: Exception) -> str:
        """The reason of an error in one line, without the key."""
        return self.safe(one_line(error.__cause__ or error))

    def safe(self, text: str) -> str:
        """The beginning of an error, without the key: some servers repeat it when they reject it.

        A short key may be part of any word, and is hidden as a word of its own.
        """
        text = text.encode("utf-8", "replace").decode()
        if key := self._key:
            borders = ("", "") if len(key) >= _LONG_KEY else (r"(?<![^\W_])", r"(?![^\W_])")
            text = re.sub(re.escape(key).join(borders), _HIDDEN, text)
        return text[:300]

    @staticmethod
    def _is_page(error: openai.APIStatusError) -> bool:
        return "html" in error.response.headers.get("content-type", "")

    def _no_server(self) -> str:
        return (
            f"{self.node}.base_url={self.base_url} answers with a web page, not as a server of "
            "OpenAI's protocol: its address usually ends in /v1"
        )

    @property
    def _key(self) -> str | None:
        return os.environ.get(self.api_key_env)
