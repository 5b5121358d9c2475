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


def draw_losses(axes, data, weight, label):
    """Training losses over steps, and over seconds, on two axes that share theirs; label(run) is what the legend says."""
    for run in data["results"]:
        losses = smoothed(run["train_bits"], weight)
        axes[0].plot(range(1, len(losses) + 1), losses, label=label(run))
        axes[1].plot(run["seconds"], losses)
    for axis, title in zip(axes, ("steps", f"seconds on {data['threads']} threads")):
        axis.set_xlabel(title)
        axis.grid(alpha=0.25)
    axes[0].legend(frameon=False)
