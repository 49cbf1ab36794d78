"""AMBER's and ODE's published data, where the machine has them, and four small images."""

from pathlib import Path

import pytest

from ood_lab.lvlm.concepts.concepts import Attribute, Concepts

SHARED = Path(__file__).parents[2].parent / "shared/data/ode"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the published data is not here")

SMALL = Concepts(
    name="small",
    truth=[
        ["sky", "dog", "person"],
        ["sky", "ship", "ship", "person"],
        ["dog", "person"],
        ["sea", "boat"],
    ],
    hallu=[["cat", "sun"], ["bird"], ["cat", "dog"], ["person"]],
    types={
        **dict.fromkeys(("dog", "person", "ship", "boat", "cat", "bird"), "entity"),
        **dict.fromkeys(("sky", "sea", "sun"), "environment"),
    },
    states={"dog": [Attribute("wet", "dry")]},
    actions={"dog": [Attribute("run", "sit")], "person": [Attribute("wave", "stand")]},
    associates={"boat": ["ship"], "person": ["man", "people"], "dog": []},
)
