"""Work on all cores, in forked processes."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from ood_lab.common import cpu_cores
from ood_lab.common.cpu_cores import (
    can_fork,
    fitting_processes,
    loading_processes,
    on_all_cores,
    out_of_shared_memory,
)
from ood_lab.common.errors import UserError


def test_answers_keep_their_order_and_their_errors() -> None:
    def halved(number: int) -> tuple[int, int]:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2, os.getpid()

    with on_all_cores(halved, [0, 3, 4], processes=2) as answers:
        assert answers[2]()[0] == 2
        with pytest.raises(ValueError, match="3 is odd"):
            answers[1]()
        number, process = answers[0]()
    assert number == 0
    assert (process != os.getpid()) == can_fork()


def test_one_process_works_when_it_is_asked() -> None:
    done: list[str] = []
    with on_all_cores(done.append, ["a", "b"], processes=1) as answers:
        answers[1]()
    assert done == ["b"]


@pytest.mark.parametrize(
    ("device", "chosen", "batches", "processes"),
    [
        ("cpu", 2, 1000, 2),  # the network needs the cores
        ("cuda", 2, 1000, 6),  # a core each, of 12 cores and two devices
        ("cuda", 7, 1000, 7),
        ("cuda", 1, 6, 3),  # a process for two batches
        ("cuda", 0, 1000, 0),  # as the user wants it
    ],
)
def test_a_gpu_does_not_wait_for_images(monkeypatch, device, chosen, batches, processes) -> None:
    strategy = SimpleNamespace(root_device=torch.device(device))
    monkeypatch.setattr(cpu_cores, "usable_cores", lambda: 12)
    trainer = SimpleNamespace(strategy=strategy, num_devices=2)
    assert loading_processes(trainer, chosen, batches) == processes


@pytest.mark.skipif(sys.platform != "linux", reason="of /dev/shm")
@pytest.mark.parametrize(
    ("free", "sharing", "processes"),
    [(10_000, 1, 4), (600, 1, 2), (600, 3, 0), (399, 1, 0), (0, 1, 0)],
)
def test_processes_share_what_memory_there_is(
    monkeypatch: pytest.MonkeyPatch, free: int, sharing: int, processes: int
) -> None:
    monkeypatch.setattr(cpu_cores, "shared_memory", lambda: free)
    said: list[str] = []
    monkeypatch.setattr(cpu_cores.log, "warning", said.append)
    cpu_cores._say_once.cache_clear()
    sample = {"image": torch.zeros(5, dtype=torch.float32)}
    assert fitting_processes(4, 5, lambda: sample, sharing) == processes
    assert bool(said) == (processes < 4)

    def unreadable() -> dict[str, torch.Tensor]:
        raise UserError("no image")

    assert fitting_processes(4, 5, unreadable) == 4
    assert fitting_processes(0, 5, unreadable) == 0


def test_errors_for_want_of_shared_memory_are_explained() -> None:
    killed = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that \
dataloader's workers are out of shared memory."
    for text in (killed, "unable to write to file </torch_25_1>: No space left on device (28)"):
        assert "--shm-size" in str(out_of_shared_memory(RuntimeError(text)))
    assert out_of_shared_memory(RuntimeError("shapes differ")) is None
