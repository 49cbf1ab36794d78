"""The published data is read once."""

import pytest
from ode_data import SHARED

from ood_lab.lvlm.benchmarks.ode.construction.amber_concepts import AmberConcepts


@pytest.fixture(scope="session")
def amber():
    return AmberConcepts(str(SHARED)).read()
