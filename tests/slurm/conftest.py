import pytest
from slurm_cluster import missing, running


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    if lacking := missing():
        pytest.skip(f"SLURM is not installed: no {lacking[0]}")
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
