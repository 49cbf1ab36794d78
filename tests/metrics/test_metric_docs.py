"""The examples on the page about metrics are what the functions return."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference/metrics.md"


def test_the_examples_of_the_metrics_page():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert not failed
    assert tried >= 17
