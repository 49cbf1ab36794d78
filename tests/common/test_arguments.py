"""Plain values against type hints: what to give instead, in words."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Interval
from torch import Tensor

from ood_lab.common.arguments import Count, Positive, Remedy, Seed, check_values
from ood_lab.common.errors import UserError
from ood_lab.run.building.nodes import check_finite
from ood_lab.tasks.is_ood import IsOOD

Draws = Annotated[int, Interval(ge=1, le=100)]


def taking(hint):
    def function(x):
        return x

    function.__annotations__ = {"x": hint}
    return function


FITS = [
    (int, 5),
    (int | None, None),
    (float, 1),
    (bool, True),
    (str, 2024),  # a name that YAML reads as a number
    (str | os.PathLike[str], "a/b"),
    (Path, "a/b"),
    (int | Literal["auto"], "auto"),
    (float | Tensor, 0.1),
    (tuple[float, float], [0.9, 0.999]),
    (Draws | Sequence[Draws] | None, [3, 4]),
    (Mapping[str, str | None], {"a": None}),
    (Any, "anything"),
    (Callable[..., Any], inspect),  # an object is left alone
    ("NoSuchName", "anything"),
]
DOES_NOT_FIT = [
    (int, "abc", "a whole number"),
    (int, 5.0, "a whole number"),
    (int, "5", "a whole number"),
    (int, True, "a whole number"),
    (int, None, "x=null: give a whole number"),
    (float, "0.1", "a number"),
    (bool, 1, "true or false"),
    (Literal["full", "off"], "ful", "'full' or 'off'"),
    (int | Literal["auto"], "auo", "a whole number or 'auto'"),
    (float | Tensor, "fast", "x=fast: give a number$"),
    (Sequence[str], "abc", "a list"),
    (Sequence[int], [1, 2.5], "a whole number"),
    (Count, 0, "a number from 1 on"),
    (Draws, 10**12, "a number up to 100"),
    (Draws | Sequence[Draws] | None, -3, "a number from 1 on"),
    (Positive, -0.5, "a number above 0"),
    (Seed, 2**32, "a number below 4"),
    (Annotated[int, Remedy("try y=")], "abc", "a whole number; try y="),
]


@pytest.mark.parametrize(("hint", "value"), FITS, ids=str)
def test_what_fits_is_let_through(hint, value):
    check_values(taking(hint), {"x": value, "not a parameter": "abc"}, "node")


@pytest.mark.parametrize(("hint", "value", "wanted"), DOES_NOT_FIT, ids=str)
def test_what_does_not_fit_is_named(hint, value, wanted):
    with pytest.raises(UserError, match=wanted) as caught:
        check_values(taking(hint), {"x": value}, "node")
    assert str(caught.value).startswith("node.x=")


class Parent:
    def __init__(self, k: Count = 1, n: int = 1) -> None: ...


class HandsOn(Parent):
    def __init__(self, n: str, **options: Any) -> None: ...


class Own(Parent):
    def __init__(self, j: int) -> None: ...


def test_options_that_a_class_hands_on_are_those_of_its_parent():
    check_values(HandsOn, {"n": "a name", "k": 2}, "node")
    with pytest.raises(UserError, match=r"node\.k=0"):
        check_values(HandsOn, {"k": 0}, "node")
    check_values(Own, {"k": 0}, "node")  # said elsewhere: Own takes no k


def test_a_task_of_another_has_hints_of_both_modules():
    check_values(IsOOD, {"k": 3, "report": True, "levels": 8}, "task")
    for name in ("k", "levels"):
        with pytest.raises(UserError, match=rf"task\.{name}=0"):
            check_values(IsOOD, {name: 0}, "task")


def test_not_a_number_anywhere():
    check_finite({"a": {"b": [1, 2.5, None, "nan"]}})
    with pytest.raises(UserError, match=r"a\.b\.1=nan: give a finite number"):
        check_finite({"a": {"b": [1, float("nan")]}})
    with pytest.raises(UserError, match=r"a\.lr=inf"):
        check_finite({"a": {"lr": float("inf")}})
