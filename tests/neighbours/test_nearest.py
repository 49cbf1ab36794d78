"""Which row is nearest, held against all products in float64."""

import pytest
import torch

from ood_lab.common.errors import UserError
from ood_lab.neighbours import nearest_rows


@pytest.fixture(scope="module")
def bank():
    """More rows than one block has."""
    rows = torch.randn(9000, 8, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(rows, dim=1)


def test_the_nearest_row_of_every_query(bank):
    queries = torch.randn(1500, 8, generator=torch.Generator().manual_seed(1))
    wanted = (queries.double() @ bank.double().T).argmax(dim=1)
    assert torch.equal(nearest_rows(queries, bank, torch.full((1500,), -1)), wanted)


def test_a_row_is_not_its_own_neighbour(bank):
    own = torch.tensor([0, 4095, 4096, 8999])
    products = bank[own].double() @ bank.double().T
    products[torch.arange(4), own] = -torch.inf
    assert torch.equal(nearest_rows(bank[own], bank, own), products.argmax(dim=1))
    # -1: a query that is not in the bank.
    everyone = torch.full((4,), -1)
    assert torch.equal(nearest_rows(bank[own], bank, everyone), own)


def test_of_equal_rows_the_first_counts_in_any_block():
    bank = torch.zeros(5000, 2)
    bank[[7, 4500], 0] = 1.0
    for place, nearest in ((-1, 7), (7, 4500)):
        rows = nearest_rows(torch.tensor([[1.0, 0.0]]), bank, torch.tensor([place]))
        assert rows.tolist() == [nearest]


def test_nothing_is_left_besides_the_query_itself():
    one = torch.ones(1, 2)
    with pytest.raises(UserError, match="without itself"):
        nearest_rows(one, one, torch.tensor([0]))
