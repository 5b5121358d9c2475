#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh <python> [<folder that holds the package aft> [<folder> <module>...]]: the tests of aft.torch in this folder or
# in another, which need PyTorch and the modules. 77 without them.
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -gt 1 ]; then
  PYTHONPATH=$2${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONPATH
fi
tests=$here
modules="import torch; torch.zeros(1)"
if [ $# -gt 2 ]; then
  tests=$3
  shift 3
  for module; do
    modules="$modules; import $module"
  done
fi
name=python.$(basename "$tests")
# Those of CUDA that PyTorch links, where pip put some and a toolkit has the others.
libraries=$("$python" -c 'import glob, sysconfig; print(":".join(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")))')
toolkit=${CUDA_HOME:-/usr/local/cuda}
LD_LIBRARY_PATH=$libraries:$toolkit/lib64:$toolkit/extras/CUPTI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
if ! why=$("$python" -c "$modules" 2>&1); then
  echo "not run: $name: the modules cannot be imported: $(echo "$why" | tail -n 1)"
  [ -z "${AFT_PYTHON_REQUIRED:-}" ] || exit 1
  exit 77
fi
# Threads that wait for work do not spin: tests have many short calls, and machines that run tests other work.
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export OMP_WAIT_POLICY
exec "$python" -m pytest -q -p no:cacheprovider "$tests"
