#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh <python> [<folder that holds the package aft> [<folder or file of tests> <module that they import>...]]
# Tests on PyTorch, by default those of this folder. 77 without it, and without one of the modules.
set -eu
python=$1
tests=$(cd "$(dirname "$0")" && pwd)
shift
if [ $# -gt 0 ]; then
  PYTHONPATH=$1${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONPATH
  shift
fi
if [ $# -gt 0 ]; then
  tests=$1
  shift
fi
folder=$tests
[ -d "$tests" ] || folder=$(dirname "$tests")
name=python.$(basename "$folder")
LD_LIBRARY_PATH=$(sh "$(dirname "$0")/../cuda_libraries.sh" "$python")
export LD_LIBRARY_PATH
program='import importlib, sys, torch; torch.zeros(1); [importlib.import_module(name) for name in sys.argv[1:]]'
if ! why=$("$python" -c "$program" "$@" 2>&1); then
  echo "not run: $name: PyTorch${*:+, or $*,} cannot be imported: $(echo "$why" | tail -n 1)"
  [ -z "${AFT_PYTHON_REQUIRED:-}" ] || exit 1
  exit 77
fi
# Threads that wait for work do not spin: tests have many short calls, and machines that run tests other work.
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export OMP_WAIT_POLICY
exec "$python" -m pytest -q -p no:cacheprovider "$tests"
