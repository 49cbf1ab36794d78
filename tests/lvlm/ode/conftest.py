"""The published data is read once."""

import pytest
from tests.lvlm.ode.data import SHARED

from ood_lab.lvlm.ode.amber import AmberConcepts


@pytest.fixture(scope="session")
def amber():
    return AmberConcepts(str(SHARED)).read()
