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

python=${AFT_TORCH_PYTHON:-}
if [ -z "$python" ]; then
  AFT_PYTHON_REQUIRED=1 sh tests/python/prepare_torch.sh "$(command -v python3)" "$build/tools"
  python=$build/tools/bin/python
fi
# Builds the library and, on it, the package that the others measure.
"$python" bench/python/install_time.py "$python" "$build" "$results/install_time.json"

PYTHONPATH=$build/site
LD_LIBRARY_PATH=$(sh tests/python/cuda_libraries.sh "$python")
export PYTHONPATH LD_LIBRARY_PATH
"$python" bench/python/overhead.py "$build/prefix" "$results/overhead.json"
"$python" bench/python/torch_overhead.py "$results/torch_overhead.json"
"$python" bench/python/races.py "$results/races.json"
"$python" bench/python/alternation.py "$results/alternation.json"
"$python" bench/python/two_threads.py "$results/two_threads.json"
"$python" bench/python/page.py
