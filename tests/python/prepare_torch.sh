#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# prepare_torch.sh <python> <folder> [<version> [<name of the test>]]: a virtual environment with PyTorch and what its
# tests import, made once. The version is what pip takes, such as ==2.4.0, and with another one than the default nothing
# for ONNX is installed, whose packages follow the newest. Where PyPI is out of reach it says `not run: <name>: <why>`,
# and the exit status is 77; with the variable AFT_PYTHON_REQUIRED set, that is a failure.
set -eu
python=$1
folder=$2
usual='==2.13.0'
version=${3:-$usual}
name=${4:-python.torch_tools}
here=$(cd "$(dirname "$0")" && pwd)
wanted=$(echo "$version" | cat - "$0" "$here/torch/requirements.txt" "$here/onnx/requirements.txt" | cksum)
[ "$(cat "$folder/whole" 2>/dev/null)" != "$wanted" ] || exit 0
rm -rf "$folder"

# PyTorch's wheel for Linux links the CUDA libraries, 3 GB of them. Where a toolkit has those of the same major version,
# only what it lacks is installed.
torch="torch$version"
dependencies=
if [ "$version" = "$usual" ] && [ -e "${CUDA_HOME:-/usr/local/cuda}/lib64/libcublas.so.13" ]; then
  dependencies=--no-deps
  torch="$torch filelock typing-extensions sympy mpmath networkx jinja2 markupsafe fsspec"
  torch="$torch nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13"
fi
compared=$(sed -n '/^\(aft-pytorch\|labml-nn\)==/p' "$here/torch/requirements.txt")
imported=$(sed '/^#/d; /^\(aft-pytorch\|labml-nn\)==/d' "$here/torch/requirements.txt")
[ "$version" != "$usual" ] || imported="$imported $(sed '/^#/d' "$here/onnx/requirements.txt")"
install() { "$folder/bin/pip" install -q --disable-pip-version-check --no-compile "$@"; }
# Each line of the lists is one requirement without blanks.
# shellcheck disable=SC2086
if ! why=$({ "$python" -m venv "$folder" && install $dependencies $torch && install $imported &&
  install --no-deps $compared; } 2>&1); then
  echo "not run: $name: PyTorch cannot be installed: $(echo "$why" | tail -n 1)"
  [ -z "${AFT_PYTHON_REQUIRED:-}" ] || exit 1
  exit 77
fi
echo "$wanted" >"$folder/whole"
