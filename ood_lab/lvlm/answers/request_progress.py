"""Progress of the requests: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich import get_console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ood_lab.common.progress import Pace
from ood_lab.lvlm.chat.base import Reply

#: Cost of the tokens of a reply; None where it is unknown.
CostOf = Callable[[Mapping[str, int]], float | None]


@contextmanager
def asking_progress(total: int, cost_of: CostOf | None = None) -> Iterator[Callable[[Reply], None]]:
    """Takes each reply as it comes; reports count, rate, failures, cost and the time that is left.

    Where there is no terminal, a line every 10 seconds and at the end.

    Args:
        total: replies to come.
        cost_of: of the usage of a reply; None = the cost is not reported.
    """
    console, pace = get_console(), Pace(total, interval=10.0)
    count, failed, cost = 0, 0, 0.0
    columns = (
        TextColumn("asking"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("asking", total=total, facts="")

        def tell(reply: Reply) -> None:
            nonlocal count, failed, cost
            count += 1
            failed += reply.error is not None
            cost += (cost_of(reply.usage) or 0.0) if cost_of else 0.0
            rate = count / max(pace.elapsed, 1e-6)
            facts = [
                f"{rate:.3g} a second",
                f"{failed:,} failed" if failed else "",
                f"cost {cost:.2f}" if cost else "",
            ]
            words = ", ".join(filter(None, facts))
            bar.update(task, completed=count, facts=words)
            if pace.due or count == total:
                parts = [f"asked {count} of {total} questions", words, pace.left(count)]
                pace.line(", ".join(filter(None, parts)))

        yield tell
