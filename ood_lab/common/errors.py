"""The one error class whose message is meant for the person at the keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

#: The longest text of another package's error that a message quotes.
_LONGEST = 300


class UserError(Exception):
    """Something the user gave cannot work; the message names the culprit and the remedy.

    Entry points print the message as one line, without a traceback, and exit with status 1.
    Programming errors must not use it: they keep their traceback.
    """


class Stopped(Exception):
    """The user asked for no more than what was done; the message says what that was.

    Entry points log the message and end with status 0; the run does not count as finished.
    """


def user_error_in(error: Exception) -> UserError | None:
    """The message for the user in an error from a loader worker or a spawned process.

    Those hand back the text of a traceback in which only the last lines say what happened.
    """
    messages = re.findall(r"^ood_lab\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    return UserError(messages[-1]) if messages else None


def one_line(error: BaseException) -> str:
    """The message of an error without its line breaks; without a message, the name of its class."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def reported_as(
    message: str, kinds: type[Exception] | tuple[type[Exception], ...] = Exception
) -> Iterator[None]:
    """Reports what other packages raise inside as a :class:`UserError`.

    A :class:`UserError` passes unchanged unless ``kinds`` names it.

    Args:
        message: ``{reason}`` in it becomes the text of the error, on one line, and ``{kind}`` the
            name of its class.
        kinds: the errors that are reported.
    """
    try:
        yield
    except kinds as error:
        named = kinds if isinstance(kinds, tuple) else (kinds,)
        if isinstance(error, UserError) and UserError not in named:
            raise
        text = message.replace("{kind}", type(error).__name__)
        text = text.replace("{reason}", one_line(error)[:_LONGEST])
        raise UserError(text) from error
