"""k-th nearest neighbours: brute force, candidates and their certificate."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ood_lab.errors import UserError
from ood_lab.shift import (
    Decomposition,
    NeighbourSearch,
    ShiftMeter,
    neighbours,
    polar_factor,
    undecomposed,
)
from ood_lab.shift.candidates import GROUP, CandidateSearch

CLIP = {"name": "toy", "weights_sha256": "a" * 64}
#: Large enough for the candidate pass, and no multiple of a group.
ROWS = 17_003


def unit(n, d=16, seed=0, centre=0.0):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, generator=generator) + centre)


def kth_distance(queries, bank, k, **options):
    return NeighbourSearch(bank, k).distance(queries, **options)


def brute(queries, bank, k, skip=0):
    distances = 1 - queries.double().numpy() @ bank.double().numpy().T
    return np.sort(distances, axis=1)[:, k - 1 + skip]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("k", "centre"), [(1, 0.0), (10, 1.0), (40, 0.0)])
def test_candidates_equal_brute_force(dtype, k, centre):
    bank, queries = unit(ROWS, centre=centre), unit(60, seed=1, centre=centre)
    found = NeighbourSearch(bank, k, dtype=dtype).distance(queries)
    np.testing.assert_allclose(found, brute(queries, bank, k), atol=1e-6)


def test_most_queries_are_certified_where_neighbours_are_spread():
    bank, queries = unit(ROWS), unit(200, seed=1)
    products, certified = CandidateSearch(bank, 10, torch.bfloat16).nth_product(queries, 10)
    assert certified.float().mean() > 0.9
    expected = 1 - brute(queries, bank, 10)
    np.testing.assert_allclose(products[certified], expected[certified], atol=1e-6)


def test_certificate_is_sound_among_near_ties():
    # Thousands of rows whose products with a query differ by less than bfloat16 can tell.
    generator = torch.Generator().manual_seed(0)
    base, queries = unit(5), unit(5)
    near = base.repeat_interleave(ROWS // 5 + 1, dim=0)[:ROWS]
    for noise in (1e-4, 1e-3, 1e-2, 3e-2, 1e-1):
        bank = F.normalize(near + noise * torch.randn(ROWS, 16, generator=generator))
        search = CandidateSearch(bank, 10, torch.bfloat16)
        products, certified = search.nth_product(queries, 10)
        expected = 1 - brute(queries, bank, 10)
        np.testing.assert_allclose(products[certified], expected[certified], atol=1e-6)
        if noise < 1e-2:
            assert not certified.any()
        found = NeighbourSearch(bank, 10, dtype=torch.bfloat16).distance(queries)
        np.testing.assert_allclose(found, 1 - expected, atol=1e-6)


def test_error_bound_covers_every_product():
    bank, queries = unit(4096, 64, centre=0.5), unit(50, 64, seed=1, centre=0.5)
    search = CandidateSearch(bank, 1, torch.bfloat16)
    rough = queries.bfloat16()
    found = (rough @ (bank - search.mean).bfloat16().T).double()
    exact = queries.double() @ (bank.double() - search.mean.double()).T
    bound = 2.0**-8 * found.abs() + search._slack(queries, rough)[:, None].double()
    error = (found - exact).abs()
    assert (error <= bound).all()
    # And is no empty promise.
    assert error.max() > bound.median() / 20


def test_duplicates_and_the_rows_after_the_last_group():
    bank = unit(ROWS)
    bank[100:400] = bank[100]
    last = bank[-(ROWS % GROUP) :]
    queries = torch.cat([bank[100:101], last, unit(3, seed=1)])
    for dtype in (torch.float32, torch.bfloat16):
        found = NeighbourSearch(bank, 1, dtype=dtype).distance(queries)
        np.testing.assert_allclose(found[:-3], 0, atol=1e-6)
        found = NeighbourSearch(bank, 10, dtype=dtype).distance(queries)
        np.testing.assert_allclose(found, brute(queries, bank, 10), atol=1e-6)


def test_neighbours_side_by_side_in_the_bank_are_found():
    # All ten nearest in one group of 16 rows: the maxima of ten groups say little about them.
    bank, query = unit(ROWS), unit(1, seed=5)
    bank[160:170] = F.normalize(query + 0.02 * torch.randn(10, 16))
    found = NeighbourSearch(bank, 10, dtype=torch.bfloat16).distance(query)
    np.testing.assert_allclose(found, brute(query, bank, 10), atol=1e-6)


@pytest.mark.parametrize("rows", [300, ROWS])
def test_self_matches_do_not_count(rows):
    bank = unit(rows)
    bank[7] = bank[3]  # a true duplicate still counts as a neighbour
    queries = bank[:40]
    found = kth_distance(queries, bank, 1, in_bank=True)
    assert found[3] < 1e-6
    np.testing.assert_allclose(found, brute(queries, bank, 1, skip=1), atol=1e-6)
    found = kth_distance(queries, bank, 10, in_bank=True)
    distances = 1 - queries.double() @ bank.double().T
    distances[torch.arange(40), torch.arange(40)] = torch.inf
    np.testing.assert_allclose(found, distances.sort(dim=1).values[:, 9], atol=1e-6)


def test_blocks_of_queries_and_progress():
    bank, queries, shares = unit(50), unit(9000, seed=1), []
    found = kth_distance(queries, bank, 3, progress=shares.append)
    np.testing.assert_allclose(found, brute(queries, bank, 3), atol=1e-6)
    assert len(shares) == 2
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_tiny_banks_and_wrong_k():
    bank = unit(3)
    np.testing.assert_allclose(kth_distance(bank, bank, 3), brute(bank, bank, 3), atol=1e-6)
    assert kth_distance(unit(0), bank, 1).shape == (0,)
    with pytest.raises(UserError, match=r"k=4 .*has 3 images"):
        kth_distance(bank, bank, 4)
    with pytest.raises(UserError, match="without itself"):
        kth_distance(bank, bank, 3, in_bank=True)
    with pytest.raises(UserError, match="k=0"):
        kth_distance(bank, bank, 0)


def test_rows_not_of_length_one_are_refused():
    bank = unit(20)
    with pytest.raises(ValueError, match="queries: expected rows of length 1, 1 are not"):
        kth_distance(torch.cat([bank[:2], torch.full((1, 16), torch.nan)]), bank, 1)
    with pytest.raises(ValueError, match="bank"):
        kth_distance(bank, 2 * bank, 1)


def test_reduced_precision_settings_do_not_leak_in():
    bank, queries = unit(500), unit(30, seed=1)
    torch.set_float32_matmul_precision("medium")
    try:
        found = kth_distance(queries, bank, 10)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    np.testing.assert_allclose(found, brute(queries, bank, 10), atol=1e-6)


def test_half_precision_is_given_up_where_it_certifies_nothing():
    bank = F.normalize(unit(1) + 1e-4 * torch.randn(ROWS, 16))
    search = NeighbourSearch(bank, 10, dtype=torch.bfloat16)
    for _ in range(2):
        found = search.distance(bank[:20])
        np.testing.assert_allclose(found, brute(bank[:20], bank, 10), atol=1e-6)
    assert search._dtypes == [torch.float32]


@pytest.mark.parametrize("wins", [True, False])
def test_faiss_takes_over_only_where_bfloat16_is_slow_and_faiss_fast(monkeypatch, wins):
    pytest.importorskip("faiss")
    used = []
    searched = neighbours.faiss_nth_product
    monkeypatch.setattr(neighbours, "fastest_dtype", lambda device: torch.float32)
    monkeypatch.setattr(neighbours, "_faiss_wins", lambda: wins)
    monkeypatch.setattr(
        neighbours, "faiss_nth_product", lambda *a: used.append(len(a[0])) or searched(*a)
    )
    bank = unit(ROWS)
    for in_bank in (False, True):
        found = kth_distance(bank[:50], bank, 10, in_bank=in_bank)
        np.testing.assert_allclose(found, brute(bank[:50], bank, 10, skip=in_bank), atol=1e-6)
    assert used == ([50, 50] if wins else [])
    kth_distance(bank[:5], bank[:300], 3)  # too small a bank to be worth it
    NeighbourSearch(bank, 3, dtype=torch.float32).distance(bank[:5])  # asked for by name
    assert used == ([50, 50] if wins else [])


def test_degrees_of_both_halves():
    W = polar_factor(torch.randn(12, 12))
    split = Decomposition("laid", W, 6, CLIP, k=2)
    bank, features, shares = torch.randn(30, 12), torch.randn(7, 12), []
    degrees = ShiftMeter(split, bank)(features, progress=shares.append)
    halves = zip(split.split(features), split.split(bank), strict=True)
    expected = [brute(q, b, 2) for q, b in halves]
    np.testing.assert_allclose(degrees.semantic, expected[0], atol=1e-6)
    np.testing.assert_allclose(degrees.covariate, expected[1], atol=1e-6)
    assert shares == [0.5, 1]
    one_half_at_a_time = ShiftMeter(split, bank, resident=False)
    for _ in range(2):
        for again, first in zip(one_half_at_a_time(features), degrees, strict=True):
            assert torch.equal(again, first)
    # A rotation within the halves, and the length of the features, change nothing.
    turn = torch.block_diag(polar_factor(torch.randn(6, 6)), polar_factor(torch.randn(6, 6)))
    turned = ShiftMeter(Decomposition("laid", W @ turn, 6, CLIP, k=2), 3 * bank)(features)
    np.testing.assert_allclose(turned.semantic, degrees.semantic, atol=1e-5)
    np.testing.assert_allclose(turned.covariate, degrees.covariate, atol=1e-5)


def test_undecomposed_degrees_are_equal():
    bank = torch.randn(30, 12)
    degrees = ShiftMeter(undecomposed(12, CLIP), bank, k=3)(bank[:5], in_bank=True)
    assert torch.equal(degrees.semantic, degrees.covariate)
    expected = brute(F.normalize(bank[:5]), F.normalize(bank), 3, skip=1)
    np.testing.assert_allclose(degrees.semantic, expected, atol=1e-6)
