#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long `pip install ./bindings/python` takes, beside an aft::compiled that is installed and from nothing.

install_time.py <python> <folder> <file.json>

From nothing pip builds the kernels of every level as aft::compiled does, and may take a minute more than that. Beside an installed one it
may take a minute. Nothing is left from an earlier run, and no compiler's cache is asked; tools that pip needs for a build come from
wherever PyPI is, and are part of the time. In <folder> are then `prefix`, the library, and `site`, the package that was built on it.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from record import git, processor, two_columns

TOP = pathlib.Path(__file__).resolve().parents[2]


def seconds(*commands, **variables):
    """Of these commands, one after the other. What they print is shown when one fails."""
    begin = time.perf_counter()
    for command in commands:
        done = subprocess.run([str(c) for c in command], cwd=TOP, env={**os.environ, **variables}, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            sys.exit(done.stdout[-4000:] + done.stderr[-4000:])
    return round(time.perf_counter() - begin, 1)


def table(record):
    """Lines of the page."""
    head = (f"Seconds on {record['cores']} cores of {record['processor']}, without a cache, downloads included, commit "
            f"`{record['commit'][:12]}`, {record['date']}:")
    return two_columns(head, "what", "s", record["seconds"])


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    python, folder, file = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])
    for name in ("library", "prefix", "site", "alone"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(CCACHE_DISABLE="1", PIP_DISABLE_PIP_VERSION_CHECK="1", CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()))
    os.environ.pop("CMAKE_PREFIX_PATH", None)
    before = round(os.getloadavg()[0], 1)

    library = folder / "library"
    configure = ("cmake", "-S", ".", "-B", library, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DAFT_BUILD_COMPILED=ON",
                 "-DBUILD_SHARED_LIBS=OFF", "-DAFT_BUILD_TESTS=OFF", "-DAFT_BUILD_EXAMPLES=OFF")
    install = (python, "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "./bindings/python", "--target")
    prefix = folder / "prefix"
    took = {"the build of aft::compiled alone": seconds(configure, ("cmake", "--build", library),
                                                        ("cmake", "--install", library, "--prefix", prefix)),
            "pip install, aft::compiled installed already": seconds((*install, folder / "site"), CMAKE_PREFIX_PATH=str(prefix)),
            "pip install, from nothing": seconds((*install, folder / "alone"))}
    record = {"seconds": took, "processor": processor(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d", time.gmtime()),
              "commit": git("rev-parse", "HEAD"), "load_before": before}
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for what, time_of_it in took.items():
        print(f"{what}: {time_of_it} s")


if __name__ == "__main__":
    main()
