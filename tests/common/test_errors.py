"""Errors of other packages, reported as errors of the user."""

import pytest

from ood_lab.common.errors import UserError, reported_as


def test_errors_of_others_become_one_line():
    failure = "a.json is damaged ({kind}: {reason})"
    with (
        pytest.raises(UserError, match=r"^a\.json is damaged \(ValueError: x y\)$") as caught,
        reported_as(failure, (OSError, ValueError)),
    ):
        raise ValueError("x\n  y")
    assert isinstance(caught.value.__cause__, ValueError)


def test_other_kinds_and_own_errors_pass_unchanged():
    with pytest.raises(TypeError), reported_as("never", (OSError, KeyError)):
        raise TypeError
    with pytest.raises(UserError, match=r"^mine$"), reported_as("never"):
        raise UserError("mine")


def test_an_error_without_a_text_is_named():
    with pytest.raises(UserError, match=r"^it says MemoryError$"), reported_as("it says {reason}"):
        raise MemoryError


def test_own_errors_are_reported_where_they_are_named():
    with (
        pytest.raises(UserError, match=r"^it says mine$"),
        reported_as("it says {reason}", (UserError, Exception)),
    ):
        raise UserError("mine")
