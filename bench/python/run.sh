#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh: builds the Python package with kernels for every processor, measures it beside NumPy and PyTorch, and puts what
# came of it into bench/results/python and the pages. scripts/bench --python calls it. AFT_TORCH_PYTHON names an
# interpreter with PyTorch; without one PyTorch is installed from PyPI.
set -eu
cd "$(dirname "$0")/../.."
build=$PWD/build/bench/python
results=bench/results/python
mkdir -p "$build" "$results"

cmake -S . -B "$build/library" -G Ninja -DCMAKE_BUILD_TYPE=Release -DAFT_BUILD_COMPILED=ON -DBUILD_SHARED_LIBS=OFF \
  -DAFT_BUILD_TESTS=OFF -DAFT_BUILD_EXAMPLES=OFF >"$build/library.log"
cmake --build "$build/library" >>"$build/library.log"
cmake --install "$build/library" --prefix "$build/prefix" >>"$build/library.log"
python=${AFT_TORCH_PYTHON:-}
if [ -z "$python" ]; then
  AFT_PYTHON_REQUIRED=1 sh tests/python/prepare_torch.sh "$(command -v python3)" "$build/tools"
  python=$build/tools/bin/python
fi
# Into a folder of its own: the interpreter may be somebody else's.
rm -rf "$build/site"
CMAKE_PREFIX_PATH=$build/prefix "$python" -m pip install -q --disable-pip-version-check --no-deps --target "$build/site" \
  -Cbuild-dir="$build/extension" ./bindings/python

PYTHONPATH=$build/site
LD_LIBRARY_PATH=$(sh tests/python/cuda_libraries.sh "$python")
export PYTHONPATH LD_LIBRARY_PATH
"$python" bench/python/overhead.py "$build/prefix" "$results/overhead.json"
"$python" bench/python/torch_overhead.py "$results/torch_overhead.json"
"$python" bench/python/races.py "$results/races.json" --length 128 --threads 1
"$python" bench/python/alternation.py "$results/alternation.json"
"$python" bench/python/page.py
