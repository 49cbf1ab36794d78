import torch

from ood_lab.common.tensor_arithmetic import (
    all_finite,
    full_precision,
    largest_difference,
    permutation,
    random_numbers,
    squared_norms,
)


def test_rows_are_measured_and_compared():
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert squared_norms(rows).tolist() == [25.0, 0.0]
    assert largest_difference(rows, rows - 1) == 1.0
    assert all_finite(rows)
    assert not all_finite(rows / 0)


def test_a_seed_draws_the_same_numbers_again():
    order = permutation(50, 3)
    assert sorted(order.tolist()) == list(range(50))
    assert order.equal(torch.randperm(50, generator=random_numbers(3)))
    assert not order.equal(permutation(50, 4))


def test_full_precision_ends_mixed_precision():
    x = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        with full_precision(x):
            assert (x @ x).dtype == torch.float32
