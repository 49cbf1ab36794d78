"""The suite that checks a machine with a GPU: ``pytest -m gpu -n 0``.

``OOD_LAB_TEST_DEVICE=cpu`` runs it without one, which checks the suite and not the machine.
"""

import os

import pytest
import torch

DEVICE = os.environ.get("OOD_LAB_TEST_DEVICE", "cuda")


def pytest_collection_modifyitems(config, items):
    """Without the device one line says so, not one for every test."""
    here = [item for item in items if item.get_closest_marker("gpu")]
    if here and DEVICE == "cuda" and not torch.cuda.is_available():
        here[0].add_marker(pytest.mark.skip(reason="no CUDA device: the GPU suite checks nothing"))
        config.hook.pytest_deselected(items=here[1:])
        items[:] = [item for item in items if item not in here[1:]]


@pytest.fixture(scope="session")
def device() -> str:
    return DEVICE


@pytest.fixture(scope="session")
def accelerator() -> str:
    """Lightning's word."""
    return "gpu" if DEVICE == "cuda" else DEVICE


@pytest.fixture
def full_float32():
    """TF32 would round the products of convolutions to three digits."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before
