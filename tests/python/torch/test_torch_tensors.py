# SPDX-License-Identifier: Apache-2.0
"""Tensors as they come: strides, sizes of 0, types under autocast, devices, and arguments that do not fit."""

import ctypes
import importlib
import types

import pytest
import rounding
import torch
from tensor_cases import KINDS, names

import aft
import aft.torch

# Places among the arguments of the extension's forward.
THREADS, CUDA_STREAM = 18, 19


def _spread(x, step):
    """The same numbers with gaps between them: every axis has a stride of its own."""
    wide = torch.zeros([n * step for n in x.shape], dtype=x.dtype)
    view = wide[tuple(slice(None, None, step) for _ in x.shape)]
    view.copy_(x)
    return view


LAYOUTS = {
    "gaps": lambda x: _spread(x, 2),
    "time-last": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "offset": lambda x: torch.cat([torch.zeros(3, dtype=x.dtype), x.flatten()])[3:].view(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("case", KINDS, ids=names(KINDS))
def test_layouts(case, layout):
    plain = case.tensors(torch.float32, requires_grad=True)
    laid = [layout(x.detach()).requires_grad_() for x in plain]
    mine, other = case.call(*laid), case.call(*plain)
    assert torch.equal(mine, other) and mine.is_contiguous()
    dy = torch.randn(other.shape, generator=torch.Generator().manual_seed(2))
    other_gradients = torch.autograd.grad(other, plain, dy)
    assert all(map(torch.equal, torch.autograd.grad(mine, laid, layout(dy)), other_gradients))


def test_broadcast_inputs():
    """Expanded tensors have strides of 0; a gradient of them is summed by autograd, as of any op."""
    q, k, v, w = (x.requires_grad_() for x in KINDS[0].tensors())
    one, heads = k[:1].detach().requires_grad_(), w.detach()[None].requires_grad_()
    y = aft.torch.full(q, one.expand_as(k), v, heads.expand(2, 5, 5))
    other = aft.torch.full(q, one.repeat(2, 1, 1), v, heads.repeat(2, 1, 1))
    assert torch.equal(y, other)
    mine, others = (torch.autograd.grad(result.sum(), [one, heads]) for result in (y, other))
    assert all(map(torch.equal, mine, others))


def test_views_that_are_negative():
    """PyTorch may keep a minus sign in a bit of the tensor, where its memory has none."""
    x = torch.randn(2, 5, 4)
    negative = torch.view_as_complex(torch.randn(2, 5, 4, 2)).conj().imag
    assert negative.is_neg()
    assert torch.equal(aft.torch.simple(negative, x, negative), aft.torch.simple(negative + 0, x, negative + 0))


def test_nothing_is_copied():
    """A call's memory is that of its results."""
    q = torch.randn(1, 4096, 64).transpose(0, 1)
    peaks = torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU])
    with peaks:
        aft.torch.simple(q.transpose(0, 1), q.transpose(0, 1), q.transpose(0, 1), threads=1)
    allocated = sum(event.self_cpu_memory_usage for event in peaks.key_averages() if event.self_cpu_memory_usage > 0)
    assert allocated == q.numel() * q.element_size()


@pytest.mark.parametrize("shape", [(0, 5, 4), (2, 0, 4), (2, 5, 0)])
def test_sizes_of_zero(shape):
    x = torch.zeros(shape, requires_grad=True)
    bias = torch.zeros(shape[1], shape[1], requires_grad=True)
    for y in (aft.torch.full(x, x, x, bias), aft.torch.simple(x, x, x),
              aft.torch.local(x, x, x, bias, aft.strict(2))):
        assert y.shape == shape
        y.sum().backward()
    assert x.grad.shape == shape and bias.grad.shape == bias.shape


def test_no_keys():
    q, none = torch.ones(2, 3, 4), torch.ones(2, 0, 4)
    y, lse = aft.torch.full(q, none, none, torch.ones(3, 0), return_lse=True)
    assert (y == 0).all() and (lse == -torch.inf).all()


@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
def test_autocast(short):
    for case in KINDS:
        tensors = case.tensors(torch.float32, requires_grad=True)
        with torch.autocast("cpu", dtype=short):
            y = case.call(*tensors)
            assert y.dtype == (tensors[0] @ torch.ones(4, 4)).dtype == short
        by_hand = case.call(*(x.to(short) for x in tensors[:3]), *tensors[3:])
        assert torch.equal(y, by_hand)
        y.float().square().sum().backward()
        for x in tensors:
            assert x.grad.dtype == torch.float32 and x.grad.isfinite().all() and x.grad.any()


def test_autocast_of_mixed_and_double_tensors():
    case = KINDS[0]
    q, k, v, w = case.tensors(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = aft.torch.full(q.bfloat16(), k, v, w.half())
        assert torch.equal(y, aft.torch.full(q.bfloat16(), k.bfloat16(), v.bfloat16(), w.half().bfloat16()))
        assert aft.torch.full(*case.tensors()).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        assert case.call(q, k, v, w).dtype == torch.float32


def test_masks_and_lengths_of_any_kind():
    q, k, v, w = KINDS[0].tensors(torch.float32)
    seen = torch.tensor([1, 1, 0, 1, 0])
    those = (q, k[:, seen == 1], v[:, seen == 1], w[:, seen == 1])
    expected, exact = aft.torch.full(*those), aft.torch.full(*(x.double() for x in those))
    for mask in (seen.bool(), seen.to(torch.uint8), seen.to(torch.int8), seen.bool().expand(2, 5, 5)):
        rounding.expect(aft.torch.full(q, k, v, w, mask=mask), exact, expected)
    by_list = aft.torch.full(q, k, v, w, key_lengths=[2, 4], query_lengths=(5, 1))
    for kind in (torch.int32, torch.int64):
        lengths = {"key_lengths": torch.tensor([2, 4], dtype=kind), "query_lengths": torch.tensor([5, 1], dtype=kind)}
        assert torch.equal(aft.torch.full(q, k, v, w, **lengths), by_list)
    assert not by_list[1, 1:].any()


WRONG = [
    (lambda x, w: aft.torch.full(x, x[:, :3], x, w), "'v'"),
    (lambda x, w: aft.torch.full(x, x, x, w[:3]), "'w' of bias"),
    (lambda x, w: aft.torch.full(x, x, x, w.expand(3, 5, 5)), "'w' of bias"),
    (lambda x, w: aft.torch.full(x, x, x, w, gate="softmax"), "'sigmoid', 'none'"),
    (lambda x, w: aft.torch.full(x, x.double(), x, w), "'k'"),
    (lambda x, w: aft.torch.full(x, x, x, w, mask=torch.ones(4, dtype=torch.bool)), "'mask'"),
    (lambda x, w: aft.torch.full(x, x, x, w, first_query=-1), "first_query"),
    (lambda x, w: aft.torch.full(x, x, x, w, outside="excluded"), "outside"),
    (lambda x, w: aft.torch.conv(x, x, x, torch.ones(3, 2)), "'filter'"),
    (lambda x, w: aft.torch.simple(x, x.long(), x), "'k'"),
]


@pytest.mark.parametrize("call, text", WRONG, ids=range(len(WRONG)))
def test_arguments_that_do_not_fit(call, text):
    x = torch.ones(2, 5, 4)
    with pytest.raises(ValueError, match=text):
        call(x, torch.ones(5, 5))


def test_a_sparse_filter_is_for_the_calls_on_arrays():
    x, taps = torch.ones(2, 5, 4), torch.zeros(2, 1, dtype=torch.int32)
    sparse = aft.SparseFilter(taps, torch.zeros(2, 1))
    with pytest.raises(TypeError, match="aft.torch.conv: a SparseFilter"):
        aft.torch.conv(x, x, x, sparse)
    assert torch.equal(aft.conv(x, x, x, sparse), aft.simple(x, x, x))


def test_nothing_is_written_by_a_call_that_fails():
    x, out = torch.ones(2, 5, 4), torch.full((2, 5, 4), 7.0)
    with pytest.raises(ValueError, match="'w' of bias"):
        aft.torch.full(x, x, x, torch.ones(4, 5), out=out)
    with pytest.raises(ValueError, match="'out'|'y'"):
        aft.torch.full(x, x, x, torch.ones(5, 5), out=out[:1])
    assert (out == 7).all()


def test_other_devices():
    """Nothing computes on a device that the package was not built for; shapes alone are no work of a device's."""
    meta = torch.ones(2, 5, 4, device="meta")
    assert aft.torch.simple(meta, meta, meta).device.type == "meta"
    x = torch.ones(2, 5, 4)
    with pytest.raises(ValueError, match="'k'.*on cpu as 'v', got one on meta"):
        aft.torch.simple(x, meta, x)


def test_threads_are_those_of_torch(monkeypatch):
    """One thread where torch has one, as in a worker of a DataLoader; a number of the call's own goes before."""
    seen = []
    real = aft._core.forward
    monkeypatch.setattr(aft._core, "forward", lambda *args: seen.append(args[THREADS]) or real(*args))
    q = torch.randn(2, 300, 16)
    threads = torch.get_num_threads()
    results = [aft.torch.simple(q, q, q)]
    try:
        torch.set_num_threads(1)
        results.append(aft.torch.simple(q, q, q))
        results.append(aft.torch.simple(q, q, q, threads=3))
    finally:
        torch.set_num_threads(threads)
    assert seen == [threads, 1, 3]
    assert all(torch.equal(results[0], result) for result in results)


def test_calls_are_on_the_current_stream_of_their_device(monkeypatch):
    """What is handed over for tensors of a GPU, which need none to be looked at; memory of the host has no stream."""
    asked, seen = [], []
    monkeypatch.setattr(torch.cuda, "current_stream",
                        lambda device: asked.append(device) or types.SimpleNamespace(cuda_stream=4711))
    kernels = importlib.import_module("aft.torch.ops.kernels")
    there = torch.device("cuda", 1)
    assert kernels.cuda_stream_of(types.SimpleNamespace(device=there)) == 4711 and asked == [there]
    real = aft._core.forward
    monkeypatch.setattr(aft._core, "forward", lambda *args: seen.append(args[CUDA_STREAM]) or real(*args))
    q = torch.randn(2, 5, 4)
    y = aft.torch.simple(q, q, q)
    monkeypatch.setattr(kernels, "cuda_stream_of", lambda x: 4711)
    assert torch.equal(aft.torch.simple(q, q, q), y)
    assert seen == [None, 4711]


def test_the_current_stream_lies_where_the_extension_reads_it():
    """The last of DLPack's functions, asked for the host, which has none; of a GPU it would be PyTorch's current one."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        # Then torch.cuda.current_stream says it.
        assert tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10)
        return
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = (ctypes.c_size_t * 7).from_address(get(capsule, b"dlpack_exchange_api"))
    assert table[0] & 0xffffffff == 1 and all(table[2:])
    current = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))(table[6])
    stream = ctypes.c_void_p(1)
    assert current(1, 0, ctypes.byref(stream)) == 0 and stream.value is None


def test_arguments_that_are_none_of_theirs():
    """Each is named, and no number is cut to a whole one."""
    q, w = torch.randn(2, 5, 4), torch.zeros(5, 5)
    for call, text in ((lambda: aft.torch.simple(q, q, q, key_lengths=[2.5, 3]), "argument 'key_lengths': expected whole"),
                       (lambda: aft.torch.simple(q, q, q, query_lengths=(1, 0.5)), "argument 'query_lengths'"),
                       (lambda: aft.torch.simple(q, None, q), "argument 'k': expected a tensor, got NoneType"),
                       (lambda: aft.torch.simple([1], q, q), "argument 'q': expected a tensor, got list"),
                       (lambda: aft.torch.local(q, q, q, w, 3), "argument 'window': expected an aft.Window, got 3"),
                       (lambda: aft.torch.simple(q, q, q, causal=True, stream=3), "argument 'stream'")):
        with pytest.raises(TypeError) as raised:
            call()
        assert text in str(raised.value)
    assert torch.equal(aft.torch.local(q, q, q, w, (2, 1)), aft.torch.local(q, q, q, w, aft.Window(2, 1)))
    assert aft.torch.simple(q[:0], q[:0], q[:0], key_lengths=[]).shape == (0, 5, 4)


def test_lists_lie_where_they_are_read():
    """Beside the data, offsets on the host, whatever torch.set_default_device says."""
    q = torch.randn(2, 5, 4)
    expected = (aft.torch.simple(q, q, q, key_lengths=[4, 5]), aft.torch.simple(q[0], q[0], q[0], query_offsets=[0, 2, 5]))
    torch.set_default_device("meta")
    try:
        got = (aft.torch.simple(q, q, q, key_lengths=[4, 5]), aft.torch.simple(q[0], q[0], q[0], query_offsets=[0, 2, 5]))
    finally:
        torch.set_default_device(None)
    for mine, one in zip(got, expected):
        assert torch.equal(mine, one)


def test_a_graph_notices_what_is_written():
    """As it does of PyTorch's own functions with out=, inference mode or not."""
    for mode in (torch.no_grad, torch.inference_mode):
        x = torch.randn(2, 5, 4)
        w = torch.randn(2, 5, 4, requires_grad=True)
        z = (x * w).sum()
        with mode():
            aft.torch.simple(torch.zeros_like(x), x.clone(), x.clone(), out=x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()


def test_out_with_a_history():
    """Its gradient would be that of numbers which are not there any more."""
    q = torch.randn(2, 5, 4)
    out = torch.zeros(2, 5, 4, requires_grad=True)
    for place in (out, out * 2):
        before = place.detach().clone()
        with pytest.raises(RuntimeError, match="has no gradient"):
            aft.torch.simple(q, q, q, out=place)
        assert torch.equal(place.detach(), before)
    with torch.no_grad():
        assert aft.torch.simple(q, q, q, out=out) is out
