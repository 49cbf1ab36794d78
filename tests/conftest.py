"""Two cores are shared by everything: one thread and one core a process keep its time flat."""

import atexit
import contextlib
import copy
import functools
import gc
import os
import pickle
from pathlib import Path
from unittest import mock

import omegaconf
import pytest
from hydra import version
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra.core.plugins import Plugins
from omegaconf.base import Box

from ood_lab.common import cpu_cores

if "PYTEST_XDIST_WORKER" in os.environ:  # all packages would be torn down, for ten seconds
    atexit.register(os._exit, 0)
gc.disable()  # half of the time of the collection would be this: all of it stays, see below
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("WANDB_MODE", "offline")


#: Makes what the defaults list of a file may refer to: a third of the time of a composition.
MAP = "_create_interpolation_map"
MAKE_MAP = getattr(defaults_list, MAP)
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
    """Hydra parses every file of ``conf``, its own, and each ``${...}`` in hundreds of calls."""
    Plugins.instance()  # it runs their modules again: the classes are others than one imports
    with contextlib.ExitStack() as patches:
        load = remembered(ConfigRepository.load_config)
        patches.enter_context(mock.patch.object(ConfigRepository, "load_config", load))
        patches.enter_context(mock.patch.object(defaults_list, MAP, interpolation_map))
        patches.enter_context(mock.patch.object(CachingConfigRepository, "__init__", shallow))
        merge = remembered_merge(getattr(ConfigLoaderImpl, MERGE))
        patches.enter_context(mock.patch.object(ConfigLoaderImpl, MERGE, merge))
        newer = functools.cache(version.base_at_least)  # asked 700 times a composition
        patches.enter_context(mock.patch.object(version, "base_at_least", newer))
        parse = functools.cache(omegaconf.base.parse)  # a tree of ${...} is only ever read
        for module in (omegaconf.base, omegaconf._utils):
            patches.enter_context(mock.patch.object(module, "parse", parse))
        yield


def interpolation_map(overrides, defaults, self_added):
    """In the place of Hydra's, which makes it of every file, for those that interpolate."""
    asks = any(default.is_interpolation() for default in defaults)
    return MAKE_MAP(overrides, defaults, self_added) if asks else None


@pytest.fixture(autouse=True, scope="session")
def nothing_waits_for_the_disk():
    """Each answer is on the disk before the next is asked: no test cuts the power."""
    with mock.patch.object(os, "fsync", os.fstat):
        yield


@pytest.fixture(autouse=True, scope="session")
def one_core():
    """The other has tests of its own: figures and resamples wait for no process to be forked."""
    with mock.patch.object(cpu_cores, "usable_cores", return_value=1):
        yield


def shallow(self, delegate):
    """In the place of Hydra's, which copies every entry of the store to leave its sources alone."""
    self.delegate, self.cache = copy.copy(delegate), {}


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
