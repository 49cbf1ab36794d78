"""What tests of several files of this package share."""

import pytest


@pytest.fixture(scope="module")
def huggingface_cache(tmp_path_factory):
    """Hugging Face's own copies of Parquet files and folders lie in a folder of the test."""
    place = str(tmp_path_factory.mktemp("huggingface"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", place)
        patch.setenv("HF_DATASETS_CACHE", place)  # of processes that are started
        yield place
