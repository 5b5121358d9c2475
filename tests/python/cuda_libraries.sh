#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cuda_libraries.sh <python>: an LD_LIBRARY_PATH with the libraries of CUDA that PyTorch links, where pip put some and a
# toolkit has the others.
set -eu
libraries=$("$1" -c 'import glob, sysconfig; print(":".join(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")))')
toolkit=${CUDA_HOME:-/usr/local/cuda}
echo "$libraries:$toolkit/lib64:$toolkit/extras/CUPTI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
