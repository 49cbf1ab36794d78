"""Two cores are shared by everything: one thread a process keeps its time flat."""

import atexit
import os

if "PYTEST_XDIST_WORKER" in os.environ:  # all packages would be torn down, for ten seconds
    atexit.register(os._exit, 0)
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
