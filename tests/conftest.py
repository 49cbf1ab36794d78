"""Two cores are shared by everything: one thread a process keeps the tests' time flat."""

import os
import pickle
from pathlib import Path
from unittest import mock

import pytest
from hydra._internal.core_plugins.file_config_source import FileConfigSource

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("WANDB_MODE", "offline")


def pytest_collection_modifyitems(items):
    """What is no quick look, by what a file of tests imports.

    It calls the real scripts, composes whole configurations, trains, starts processes, or draws
    figures, pages and terminal output.
    """
    scripts = {"call", "cli", "compose", "composed", "initialize_config_dir"}
    whole = scripts | {"Trainer", "make_trainer", "L", "lightning", "subprocess", "multiprocessing"}
    for item in items:
        names = vars(item.module)
        drawn = any(
            str(getattr(value, "__module__", "")).startswith(
                ("ood_lab.report", "rich", "matplotlib")
            )
            for value in names.values()
        )
        if drawn or whole & names.keys():
            item.add_marker("integration")
    # Longest first: otherwise the last file keeps one process busy while the others idle.
    items.sort(key=lambda item: item.get_closest_marker("integration") is None)


@pytest.fixture(autouse=True, scope="session")
def composing_is_fast():
    """Hydra parses every file of ``conf`` for each of hundreds of calls."""
    known = {}
    load = FileConfigSource.load_config

    def load_config(self, config_path):
        file = Path(self.path, self._normalize_file_name(config_path))
        try:
            facts = file.stat()
        except OSError:
            return load(self, config_path)
        key = self.provider, file, facts.st_mtime_ns, facts.st_size, facts.st_ino
        if key not in known:
            known[key] = pickle.dumps(load(self, config_path))
        return pickle.loads(known[key])

    with mock.patch.object(FileConfigSource, "load_config", load_config):
        yield
