"""Two cores are shared by everything: one thread and one core a process keep its time flat."""

import atexit
import contextlib
import gc
import os
import pickle
from pathlib import Path
from unittest import mock

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.plugins import Plugins
from omegaconf.base import Box

if "PYTEST_XDIST_WORKER" in os.environ:  # all packages would be torn down, for ten seconds
    atexit.register(os._exit, 0)
gc.disable()  # half of the time of the collection would be this: all of it stays, see below
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("WANDB_MODE", "offline")


#: Merges the files of a defaults list: half of what is left.
MERGE = "_compose_config_from_defaults_list"


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


def pytest_collection_finish():
    """All that was imported stays: the search for garbage need not look at it again and again."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # some packages look at the end whether anything is left
    gc.enable()
    gc.set_threshold(50_000)


@pytest.fixture(autouse=True, scope="session")
def composing_is_fast():
    """Hydra parses and merges the files of ``conf`` and its own in hundreds of calls."""
    Plugins.instance()  # it runs their modules again: the classes are others than one imports
    with contextlib.ExitStack() as patches:
        load = remembered(ConfigRepository.load_config)
        patches.enter_context(mock.patch.object(ConfigRepository, "load_config", load))
        merge = remembered_merge(getattr(ConfigLoaderImpl, MERGE))
        patches.enter_context(mock.patch.object(ConfigLoaderImpl, MERGE, merge))
        yield


def remembered_merge(merge):
    """``merge`` of a configuration, which merges the same files once while they are the same."""
    known = {}

    def merged(self, defaults, repo):
        files = [(d.config_path, d.package, *content_of(repo, d.config_path)) for d in defaults]
        key = tuple(files)
        if key not in known:
            # OmegaConf would do this to all of it after every node.
            with mock.patch.object(Box, "_re_parent", return_value=None):
                config = merge(self, defaults=defaults, repo=repo)
            config._re_parent()
            known[key] = pickle.dumps(config)
        return pickle.loads(known[key])

    return merged


def content_of(repo, config_path):
    """What tells the content of a file of the configuration, or of an entry of the store."""
    found = repo.load_config(config_path)
    scheme, _, place = found.path.partition("://")
    if scheme != "file":
        return found.path, scheme == "structured" and str(found.config)
    return facts_of(Path(place, f"{config_path.removesuffix('.yaml')}.yaml"))


def remembered(load):
    """``load_config`` of all sources, which reads a file again only where it has changed."""
    known = {}

    def load_config(self, config_path):
        name = f"{config_path.removesuffix('.yaml')}.yaml"
        places = [(s.scheme(), s.path) for s in self.sources]
        # Hydra's own, pkg://hydra.conf, are no files that tests write.
        files = [facts_of(Path(place, name)) for scheme, place in places if scheme == "file"]
        key = config_path, *places, *files
        if key not in known:
            known[key] = pickle.dumps(load(self, config_path))
        return pickle.loads(known[key])

    return load_config


def facts_of(file):
    """What changes with the content of a file."""
    try:
        facts = file.stat()
    except OSError:
        return None
    return str(file), facts.st_mtime_ns, facts.st_size, facts.st_ino
