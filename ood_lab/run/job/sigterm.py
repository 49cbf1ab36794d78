"""SIGTERM, by which SLURM ends a job at its time limit, and ``kill`` any command."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ood_lab.common.errors import UserError
from ood_lab.run.commandline.terminal_output import ENDED, TERMINATED, Terminated


@contextmanager
def terminable() -> Iterator[None]:
    """Raises :class:`Terminated` where SIGTERM meets the block, or in place of what that breaks.

    SIGTERM mostly reaches the processes that load images as well, and their end is an error here.
    Where a launcher has a handler of its own, as that of SLURM jobs, which may run again, that
    decides when the block ends, and hears of an error as one.

    Raises:
        Terminated: SIGTERM has come.
        UserError: the same, in place of an error that the launcher is to hear of.
    """
    process, came = os.getpid(), False
    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if os.getpid() != process:  # forked: it has nothing to leave behind
            os._exit(TERMINATED)
        first, came = not came, True
        if callable(before):
            before(number, frame)
        elif first:  # what a first one has begun to close, a second would leave open
            raise Terminated(TERMINATED)

    # Python has signals handled, and handlers set, in its main thread alone.
    in_main = threading.current_thread() is threading.main_thread()
    heard = in_main and before is not signal.SIG_IGN
    if heard:
        signal.signal(signal.SIGTERM, handle)
    try:
        yield
    except Terminated:
        raise
    except BaseException as error:
        if not came and not _is_lightnings(error):
            raise
        if isinstance(error, Exception) and callable(before):
            raise UserError(ENDED) from None
        raise Terminated(
            getattr(error, "code", TERMINATED) if callable(before) else TERMINATED
        ) from None
    finally:
        if heard:
            signal.signal(signal.SIGTERM, before)


def _is_lightnings(error: BaseException) -> bool:
    """Whether another process of a training has had the signal, which Lightning tells them all."""
    if not isinstance(error, SystemExit):
        return False
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    return isinstance(error, SIGTERMException)
