"""k-th nearest neighbours against brute force in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ood_lab.common.errors import UserError
from ood_lab.neighbours import NeighbourSearch, Rows

#: Several blocks, the last of them short.
ROWS = 33_003
#: What the sums of 16 products may lose in float32.
TOLERANCE = 1e-6


def unit(n, d=16, seed=0, centre=0.0):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, generator=generator) + centre)


def kth(queries, bank, k, **options):
    return NeighbourSearch(bank, k).product(queries, **options)


def brute(queries, bank, k):
    products = queries.double().numpy() @ bank.double().numpy().T
    return -np.sort(-products, axis=1)[:, k - 1]


def equal(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("k", "centre"), [(1, 0.0), (10, 1.0), (50, 0.0), (1000, 0.5)])
def test_the_search_equals_brute_force(k, centre):
    bank, queries = unit(ROWS, centre=centre), unit(60, seed=1, centre=centre)
    equal(kth(queries, bank, k), brute(queries, bank, k))


def test_scaled_rows_and_offsets():
    generator = torch.Generator().manual_seed(0)
    bank, queries = unit(ROWS), unit(40, seed=1)
    scale = 0.5 + torch.rand(ROWS, generator=generator)
    offset = 0.1 * torch.randn(ROWS, generator=generator)
    products = queries.double() @ (bank * scale[:, None]).double().T + offset
    expected = products.sort(dim=1, descending=True).values[:, 29]
    equal(NeighbourSearch(Rows(bank, scale, offset), 30).product(queries), expected)


def test_near_ties_are_ranked_exactly():
    # Thousands of rows whose products with a query differ by little.
    generator = torch.Generator().manual_seed(0)
    base, queries = unit(5), unit(5)
    near = base.repeat_interleave(ROWS // 5 + 1, dim=0)[:ROWS]
    for noise in (1e-4, 1e-2, 1e-1):
        bank = F.normalize(near + noise * torch.randn(ROWS, 16, generator=generator))
        equal(kth(queries, bank, 10), brute(queries, bank, 10))


def test_duplicates_and_the_rows_of_the_last_block():
    bank = unit(ROWS)
    bank[100:400] = bank[100]
    last = bank[-10:]
    queries = torch.cat([bank[100:101], last, unit(3, seed=1)])
    equal(kth(queries, bank, 1)[:-3], 1)
    equal(kth(queries, bank, 10), brute(queries, bank, 10))


def test_neighbours_side_by_side_in_the_bank_are_found():
    bank, query = unit(ROWS), unit(1, seed=5)
    bank[160:170] = F.normalize(query + 0.02 * unit(10, seed=6))
    equal(kth(query, bank, 10), brute(query, bank, 10))


def test_a_result_does_not_depend_on_the_other_queries():
    bank, queries = unit(ROWS), unit(3000, seed=1)
    search = NeighbourSearch(bank, 20)
    whole = search.product(queries)
    equal(search.product(queries[2990:]), whole[2990:])
    twins = search.product(queries[:1].expand(2500, -1))
    assert len(twins.unique()) == 1  # equal rows tie, whatever block they are in


def test_a_bank_in_a_mapped_file(tmp_path):
    path, bank = str(tmp_path / "bank"), unit(ROWS)
    mapped = torch.from_file(path, shared=True, size=bank.numel()).view(bank.shape)
    mapped.copy_(bank)
    equal(kth(unit(5, seed=1), mapped, 10), brute(unit(5, seed=1), bank, 10))


def test_blocks_of_queries():
    bank, queries = unit(50), unit(9000, seed=1)
    equal(kth(queries, bank, 3), brute(queries, bank, 3))


def test_a_short_last_block_takes_nothing_from_the_one_before():
    # 4,096 rows are ranked at a time: the nearest lie in the first block, few rows in the second.
    bank, queries = unit(4100), unit(20, seed=1)
    bank[:50] = F.normalize(queries[0] + 0.1 * unit(50, seed=2))
    for k in (1, 30, 4090, 4100):
        equal(kth(queries, bank, k), brute(queries, bank, k))


def test_tiny_banks_and_wrong_k():
    bank = unit(3)
    equal(kth(bank, bank, 3), brute(bank, bank, 3))
    assert kth(unit(0), bank, 1).shape == (0,)
    assert kth(unit(0), unit(ROWS), 1).shape == (0,)
    with pytest.raises(UserError, match=r"k=4 .*has 3 images"):
        kth(bank, bank, 4)
    with pytest.raises(UserError, match="k=0"):
        kth(bank, bank, 0)


@pytest.mark.parametrize("rows", [300, ROWS])
def test_a_query_that_is_not_finite_gets_nan_and_harms_no_other(rows):
    bank, queries = unit(rows), unit(6, seed=1)
    queries[1, 3], queries[4] = torch.nan, torch.nan
    found = kth(queries, bank, 10)
    assert found.isnan().tolist() == [False, True, False, False, True, False]
    fine = ~found.isnan()
    equal(found[fine], brute(queries[fine], bank, 10))


def test_a_bank_that_is_not_finite_gives_nan():
    bank = unit(ROWS)
    bank[5] = torch.nan
    assert kth(unit(4, seed=1), bank, 10).isnan().all()


def test_reduced_precision_settings_do_not_leak_in():
    bank, queries = unit(500), unit(30, seed=1)
    torch.set_float32_matmul_precision("medium")
    try:
        found = kth(queries, bank, 10)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    equal(found, brute(queries, bank, 10))
