# SPDX-License-Identifier: Apache-2.0
"""Curves of a training run."""


def smoothed(values, weight):
    """A running mean that forgets: single batches differ by more than the mixers do."""
    result, mean, total = [], 0.0, 0.0
    for value in values:
        mean = (1 - weight) * mean + weight * value
        total = (1 - weight) * total + weight
        result.append(mean / total)
    return result
