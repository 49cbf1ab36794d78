"""Edges, levels, cells and their files."""

import numpy as np
import pytest
import torch

from ood_lab.common.errors import UserError
from ood_lab.schema.image_columns import cell_name, cell_of_file
from ood_lab.shift import (
    Edges,
    cell_counts,
    load_edges,
    pool_edges,
    save_edges,
)


def pool(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    return rng.beta(4, 5, n).astype(np.float32), rng.gamma(2, 0.1, n).astype(np.float32)


def test_levels_partition_the_pool():
    semantic, covariate = pool()
    edges = pool_edges(torch.from_numpy(semantic), covariate)
    assert edges.shape == (8, 8)
    sem, cov = edges.levels(semantic, covariate)
    counts = cell_counts(cov, sem, edges.shape)
    assert counts.sum() == len(semantic)
    # Outer levels hold the shares the quantiles say, inner edges are evenly spaced.
    share = counts.sum(axis=0) / len(semantic)
    assert share[0] == pytest.approx(0.0865, abs=1e-3)
    assert share[-1] == pytest.approx(1 - 0.9261, abs=1e-3)
    share = counts.sum(axis=1) / len(semantic)
    assert share[0] == pytest.approx(0.0909, abs=1e-3)
    assert share[-1] == pytest.approx(1 - 0.9962, abs=1e-3)
    np.testing.assert_allclose(np.diff(edges.semantic), np.diff(edges.semantic)[0])
    for level in range(8):
        low = -np.inf if level == 0 else edges.semantic[level - 1]
        high = np.inf if level == 7 else edges.semantic[level]
        assert ((semantic >= low) & (semantic < high))[sem == level].all()
        assert ((semantic >= low) & (semantic < high)).sum() == counts[:, level].sum()


def test_a_degree_on_an_edge_belongs_above_as_torch_says():
    edges, degrees = (0.25, 0.5), [0.0, 0.25, 0.3, 0.5, 2.0]
    semantic, covariate = Edges(edges, (1.0,)).levels(degrees, degrees)
    assert (semantic.tolist(), covariate.tolist()) == ([0, 1, 1, 2, 2], [0, 0, 0, 0, 1])
    theirs = torch.bucketize(torch.tensor(degrees), torch.tensor(edges), right=True)
    assert theirs.tolist() == [0, 1, 1, 2, 2]


def test_edges_round_trip_exactly(tmp_path):
    edges = pool_edges(*pool())
    save_edges(tmp_path / "level_edges.json", edges)
    assert load_edges(tmp_path / "level_edges.json") == edges
    (tmp_path / "other.json").write_text('{"semantic": [0.1]}')
    with pytest.raises(UserError, match=r"other\.json"):
        load_edges(tmp_path / "other.json")
    with pytest.raises(UserError, match=r"none\.json"):
        load_edges(tmp_path / "none.json")


def test_degenerate_pools_and_edges_are_refused():
    semantic, covariate = pool(100)
    with pytest.raises(UserError, match=r"all covariate shift degrees .* equal 0\.5"):
        pool_edges(semantic, np.full(100, 0.5))
    with pytest.raises(UserError, match="levels=2"):
        pool_edges(semantic, covariate, levels=2)
    for wrong in ((), (0.2, 0.2), (0.3, 0.1), (float("nan"),)):
        with pytest.raises(UserError, match=r"edges\.covariate"):
            Edges((0.1,), wrong)


def test_counts_of_cells():
    counts = cell_counts([0, 0, 2, 0], [1, 1, 0, 2], (3, 3))
    assert counts.tolist() == [[0, 2, 1], [0, 0, 0], [1, 0, 0]]


def test_cell_names():
    assert cell_name(3, 5) == "cov_3_sem_5"
    assert cell_of_file("cov_3_sem_5.txt") == (3, 5)
    assert cell_of_file("test_imagenet.txt") is None
