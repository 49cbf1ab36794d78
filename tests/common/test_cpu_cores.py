"""Work on all cores, in forked processes."""

import os

import pytest

from ood_lab.common.cpu_cores import can_fork, on_all_cores


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
