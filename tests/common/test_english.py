"""Numbers with what they count."""

import pytest

from ood_lab.common.english import counted


@pytest.mark.parametrize(
    ("n", "noun", "words"),
    [
        (1, "epoch", "1 epoch"),
        (0, "optimiser step", "0 optimiser steps"),
        (1024, "image", "1,024 images"),
        (2, "class", "2 classes"),
        (3, "copy", "3 copies"),
        (3, "key", "3 keys"),
        (5, "epoch", "5 epochs"),
        (5, "batch", "5 batches"),
    ],
)
def test_nouns_agree_with_their_number(n, noun, words):
    assert counted(n, noun) == words
