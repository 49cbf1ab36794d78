"""One trainer, network and data set a test."""

import lightning
import pytest
from feature_toys import TinyBackbone, TinyImages, make_trainer


@pytest.fixture
def trainer() -> lightning.Trainer:
    return make_trainer()


@pytest.fixture
def backbone() -> TinyBackbone:
    return TinyBackbone()


@pytest.fixture
def images() -> TinyImages:
    return TinyImages()
