"""Work on all cores, in forked processes."""

import os
from types import SimpleNamespace

import pytest
import torch

from ood_lab.common import cpu_cores
from ood_lab.common.cpu_cores import can_fork, loading_processes, on_all_cores


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
