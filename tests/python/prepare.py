#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package start from, made once and then brought up to date.

prepare.py <source> <compiler> <folder> <folder of tests/packages>

<folder>/tools is a virtual environment with what requirements.txt names, <folder>/prefix an installed aft::compiled,
and <folder>/site holds the package as pip installs it. Kernels are compiled once for this and for the packages' routes.
Where something is missing it says `not run: python.package: <why>`, and the exit status is 77; with the variable
AFT_PYTHON_REQUIRED set, that is a failure.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "packages"))
from steps import Missing, Place, kernel_options, once_compiled, run  # pylint: disable=wrong-import-position


def tools(folder):
    """A virtual environment, made anew when what it has to hold changes."""
    wanted = (HERE / "requirements.txt").read_text(encoding="utf-8")
    venv = folder / "tools"
    stamp = venv / "whole"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return venv / "bin"
    shutil.rmtree(venv, ignore_errors=True)
    try:
        run(sys.executable, "-m", "venv", venv)
        run(venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "--only-binary=:all:", "-r",
            HERE / "requirements.txt")
    except SystemExit as failed:
        raise Missing(f"venv with pytest and NumPy ({str(failed).strip().splitlines()[-1]})") from failed
    stamp.write_text(wanted, encoding="utf-8")
    return venv / "bin"


def library(source, compiler, folder, packages):
    """aft::compiled, static, as tests/packages installs it. The folder stays, so that only changes are compiled."""
    build, prefix = folder / "library", folder / "prefix"
    keeping = once_compiled(Place(packages))
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", "-DAFT_BUILD_TESTS=OFF",
        "-DAFT_BUILD_EXAMPLES=OFF", "-DBUILD_SHARED_LIBS=OFF", "-DAFT_INSTALL_CPS=OFF", *kernel_options(), env=keeping)
    run("cmake", "--build", build, env=keeping)
    run("cmake", "--install", build, "--prefix", prefix)
    return prefix


def package(source, compiler, folder, bin_folder, prefix):
    """The wheel, by the backend that pip calls, in a folder of its own."""
    site, fresh = folder / "site", folder / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    run(bin_folder / "pip", "install", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
        "--no-index", "--target", fresh, f"-Cbuild-dir={folder / 'extension'}", source / "bindings/python",
        env={"CMAKE_PREFIX_PATH": str(prefix), "CXX": compiler, "CMAKE_GENERATOR": "Ninja"})
    shutil.rmtree(site, ignore_errors=True)
    fresh.rename(site)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    source, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    folder, packages = (pathlib.Path(a).resolve() for a in sys.argv[3:])
    folder.mkdir(parents=True, exist_ok=True)
    # Tests that find no package have been refused one here.
    shutil.rmtree(folder / "site", ignore_errors=True)
    try:
        if not (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
            raise Missing("Python.h, of python3-dev")
        if not shutil.which("ninja"):
            raise Missing("ninja")
        bin_folder = tools(folder)
        package(source, compiler, folder, bin_folder, library(source, compiler, folder, packages))
    except Missing as missing:
        print(f"not run: python.package: this machine has no {missing}")
        sys.exit(1 if os.environ.get("AFT_PYTHON_REQUIRED") else 77)
    python = [str(bin_folder / "python"), "-c", "import aft; print(aft.build_info())"]
    said = subprocess.run(python, env={"PYTHONPATH": str(folder / "site")}, capture_output=True, text=True, check=True)
    print(said.stdout, end="")


if __name__ == "__main__":
    main()
