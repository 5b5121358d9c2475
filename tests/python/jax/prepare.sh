#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# prepare.sh <python> <folder>: a virtual environment with JAX and what its tests import, made once. 77 where PyPI is out of reach;
# with the variable AFT_PYTHON_REQUIRED set, that is a failure.
set -eu
[ ! -e "$2/whole" ] || exit 0
rm -rf "$2"
if ! why=$({ "$1" -m venv "$2" && "$2/bin/pip" install -q --disable-pip-version-check "jax>=0.4.34" ml_dtypes mypy numpy pytest; } 2>&1); then
  echo "not run: python.jax_tools: JAX cannot be installed: $(echo "$why" | tail -n 1)"
  [ -z "${AFT_PYTHON_REQUIRED:-}" ] || exit 1
  exit 77
fi
touch "$2/whole"
