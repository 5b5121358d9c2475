# SPDX-License-Identifier: Apache-2.0
"""The ops on memory: results are PyTorch's, the library writes into them, and no tensor is copied.

Tensors go to the library as DLPack capsules, of any strides. The threads of a call are torch.get_num_threads() unless
it says another number, so that torch.set_num_threads and the one thread of a DataLoader's worker count here too.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch.utils import dlpack

import aft
from aft import _core

from .results import Tensors, backward_results, forward_results, out_results
from .schema import BACKWARD, CONV, FORWARD, FULL, LIBRARY, LOCAL, OPERATORS, OPTIONS, OUT, SIMPLE, Arguments, Operator

# Places among the options.
_FIRST_FLAG, _FIRST_QUERY, _THREADS = (OPTIONS.index(name) for name in ("causal", "first_query", "threads"))
# PyTorch has no type for it.
_to_dlpack: Callable[[torch.Tensor], Any] = getattr(dlpack, "to_dlpack")
# Which of w, u and x a kind of bias has.
_KINDS = {"dense": [True, False, False], "banded": [True, False, False], "factorized": [False, True, True]}
# What the library calls them.
_NUMBERS = {FULL: 0, LOCAL: 1, SIMPLE: 2, CONV: 3}


def capsule(x: Optional[torch.Tensor]) -> Any:
    """A tensor as the library takes it."""
    return None if x is None else _to_dlpack(x)


def count_writes(*tensors: Optional[torch.Tensor]) -> None:
    """A graph that has kept one of these for its backward pass has to notice."""
    for x in tensors:
        if x is not None and not x.is_inference():
            torch.autograd.graph.increment_version(x)


def cuda_stream_of(x: torch.Tensor) -> Optional[int]:
    """The handle of PyTorch's current stream on the tensor's device; None on the CPU."""
    return torch.cuda.current_stream(x.device).cuda_stream if x.device.type == "cuda" else None


def stream_of(operator: Operator, args: Arguments, state: Optional[torch.Tensor], capacity: int) -> Any:
    """The stream on these bytes: what a call's tensors and window say is all that its spec is of."""
    if state is None:
        return None
    k, v = args[1], args[2]
    d, hk, made = v.shape[-1], k.shape[-1], {"dtype": k.dtype, "slots": state.shape[0], "state": state}
    if operator is FULL:
        return aft.Stream.full(d, hk, capacity, **made)
    if operator is LOCAL:
        return aft.Stream.local(d, hk, aft.Window(args[7], args[8]), **made)
    if operator is CONV:
        return aft.Stream.conv(d, hk, args[3].shape[-1], **made)
    return aft.Stream.simple(d, hk, **made)


class _Kernels:
    """The three kernels of an operator."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.number, self.end = operator, _NUMBERS[operator], operator.bias_end
        self.has_pairs = operator in (FULL, LOCAL)
        self.defaults = {role: operator.defaults(role) for role in (FORWARD, BACKWARD, OUT)}

    def _bias(self, kind: str, tensors: Any) -> Any:
        """A bias, or its gradient, of capsules or None."""
        if not self.has_pairs:
            return capsule(tensors[0]) if tensors else None
        w, u, x = tensors
        if kind == "factorized":
            return aft.Factorized(capsule(u), capsule(x))
        return aft.Banded(capsule(w)) if kind == "banded" else capsule(w)

    def _check(self, args: Arguments) -> None:
        """What a flat bias can have wrong that no bias of the library can."""
        if not self.has_pairs:
            return
        kind, *tensors = args[3:7]
        there = [x is not None for x in tensors]
        if there != _KINDS.get(kind):
            raise ValueError(f"aft::{self.operator.name}: argument 'kind': expected 'dense' or 'banded' and w, or "
                             f"'factorized' and u and x, got '{kind}' and "
                             + (", ".join(name for name, given in zip("wux", there) if given) or "none of them"))

    def _inputs(self, args: Arguments, options: Arguments, stream: Any, slot_ids: Optional[torch.Tensor]) -> Any:
        """What forward and backward calls of the library begin with."""
        kind = args[3] if self.has_pairs else ""
        bias = self._bias(kind, args[4:7] if self.has_pairs else args[3:self.end])
        window = args[7:9] if self.operator is LOCAL else None
        q, k, v = args[:3]
        mask, key_lengths, query_lengths, query_offsets, key_offsets = [
            x if x is None else _to_dlpack(x) for x in options[:_FIRST_FLAG]]
        return (self.number, capsule(q), _to_dlpack(k), _to_dlpack(v), bias, window,
                *options[_FIRST_FLAG:_FIRST_QUERY], mask, key_lengths, query_lengths, options[_FIRST_QUERY],
                query_offsets, key_offsets, stream, capsule(slot_ids), options[_THREADS] or torch.get_num_threads(),
                cuda_stream_of(v))

    def _run(self, args: Arguments, results: Tensors, stream: Any = None,
             slot_ids: Optional[torch.Tensor] = None) -> None:
        return_lse, return_average = args[-2:]
        y, lse, average = results
        _core.forward(*self._inputs(args, args[self.end:-2], stream, slot_ids), _to_dlpack(y),
                      _to_dlpack(lse) if return_lse else None, _to_dlpack(average) if return_average else None)

    def forward(self, *args: Any) -> Tensors:
        args += self.defaults[FORWARD][len(args):]
        self._check(args)
        results = forward_results(self.operator, args)
        self._run(args, results)
        return results

    def out(self, *args: Any) -> Tensors:
        args += self.defaults[OUT][len(args):]
        self._check(args)
        y, state, slot_ids, capacity = args[-4:]
        if torch.is_inference_mode_enabled():
            # The kernel for autograd, which does it elsewhere, is not asked here; but a graph from before may go on.
            count_writes(y, state)
        results = out_results(self.operator, args)
        written = results if y is None else (y, *results[1:])
        self._run(args[:-4], written, stream_of(self.operator, args, state, capacity), slot_ids)
        return results

    def backward(self, *args: Any) -> Tensors:
        args += self.defaults[BACKWARD][len(args):]
        self._check(args)
        results = backward_results(self.operator, args)
        dy, wanted = args[self.end:self.end + 2]
        lse, average = args[-2:]
        kind = args[3] if self.has_pairs else ""
        data = (capsule(gradient) if want else None for gradient, want in zip(results[:3], wanted))
        bias = None
        if any(wanted[3:]):
            tensors = list(results[3:])
            for i, place in enumerate(self.operator.differentiable[3:]):
                # The library gives the gradients of both factors or of none.
                if kind == "factorized" and args[place] is not None and not wanted[3 + i]:
                    tensors[i] = args[place].new_empty(args[place].shape)
            bias = self._bias(kind, tensors)
        _core.backward(*self._inputs(args, args[self.end + 2:-2], None, None), capsule(dy), capsule(lse),
                       capsule(average), *data, bias)
        return results


# By the ops' names.
KERNELS: dict[str, Callable[..., Tensors]] = {}
for _operator in OPERATORS:
    _kernels = _Kernels(_operator)
    for _role, _kernel in ((FORWARD, _kernels.forward), (BACKWARD, _kernels.backward), (OUT, _kernels.out)):
        KERNELS[_operator.name + _role] = _kernel
        # That of CUDA is the same: whether it was built for tensors there is the library's to say.
        for _key in ("CPU", "CUDA"):
            LIBRARY.impl(_operator.name + _role, _kernel, _key)
