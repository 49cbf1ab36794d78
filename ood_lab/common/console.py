"""Printing messages, which are broken between words only."""

from __future__ import annotations

import io
import re
import sys

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text


def print_anywhere() -> None:
    """Characters that the terminal does not have are replaced: no result is lost for one."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_line(line: Text | str, console: Console) -> None:
    """Prints a message: broken between words on a terminal, and not at all in a file or a pipe.

    No word is broken, so that a path can be copied and searched for.
    """
    text = Text(line) if isinstance(line, str) else line
    for part in _lines(text, console.width) if console.is_terminal else [text]:
        console.print(part, soft_wrap=True)


def _lines(text: Text, width: int) -> list[Text]:
    """The text broken before words that would go beyond ``width``; rich breaks long words, too."""
    breaks, column = [], 0
    for word in re.finditer(r"\S+\s*", text.plain):
        if column and column + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            column = 0
        column += cell_len(word[0])
    lines = list(text.divide(breaks))
    for line in lines:
        line.rstrip()
    return lines
