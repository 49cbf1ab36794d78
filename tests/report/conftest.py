"""One small synthetic run, shared by the tests of this folder."""

import pytest
from report_run import make_run


@pytest.fixture(scope="session")
def run():
    return make_run()
