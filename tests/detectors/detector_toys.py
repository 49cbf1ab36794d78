"""What the detector tests share."""

from dataclasses import replace

import torch

from ood_lab.features.bank import FeatureBank


def close(actual, expected, tolerance=1e-9):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def identity_head(c):
    return torch.eye(c), torch.zeros(c)


def random_head(c, d):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(c, d, generator=generator), torch.randn(c, generator=generator)


def logits_bank(rows) -> FeatureBank:
    """Features are the logits, under the identity as head."""
    logits = torch.tensor(rows)
    n, c = logits.shape
    return FeatureBank(logits, logits, torch.zeros(n).long(), torch.arange(n), *identity_head(c))


def relabelled(bank, labels) -> FeatureBank:
    return replace(bank, labels=labels)


def arrays(bank):
    """Features, logits, weight and bias of the head, float64."""
    return [
        values.double().numpy()
        for values in (bank.features, bank.logits, bank.head_weight, bank.head_bias)
    ]
