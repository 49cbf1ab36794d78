"""Two cores are shared by everything: one thread a process keeps the tests' time flat."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("WANDB_MODE", "offline")


def pytest_collection_modifyitems(items):
    """Tests that call the real scripts, or compose whole configurations, are no quick look."""
    whole = ("cli", "compose", "composed", "initialize_config_dir")
    for item in items:
        if any(name in vars(item.module) for name in ("call", *whole)):
            item.add_marker("integration")
    # Longest first: otherwise the last file keeps one process busy while the others idle.
    items.sort(key=lambda item: item.get_closest_marker("integration") is None)
