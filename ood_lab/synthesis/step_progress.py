"""Steps that report the share done: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ood_lab.common.progress import Pace


@contextmanager
def progress_bar(text: str, total: int) -> Iterator[Callable[[float], None]]:
    """Takes the fraction done of ``total`` things, in [0, 1].

    Where there is no terminal, a line every 10 seconds and at the end.
    """
    console = Console(stderr=True)
    pace = Pace(total, interval=10.0)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(text, total=1.0)

        def tell(share: float) -> None:
            bar.update(task, completed=share)
            done = round(share * total)
            if pace.due or done == total:
                left = pace.left(done)
                pace.line(f"{text}: {done:,} of {total:,}" + (f", {left}" if left else ""))

        yield tell
