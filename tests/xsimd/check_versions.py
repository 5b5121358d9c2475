#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs a program with a version of xsimd that Debian does not have, or sees it refused.

check_versions.py <compiler> <source tree> <folder> <version> <program> [<flag>...]

The versions come from PyPI, where wheels of Pythran carry xsimd's headers: fetched into the folder once, never part of the
library. A version below 8.1 has to be refused by one error that says so.
"""

import fcntl
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

# By version of xsimd: that of Pythran, and its wheel's SHA-256.
WHEELS = {
    "8.0.5": ("0.11.0", "8fea162e6096c6a3d45613a9a5389db739bf78805e713f853c9fcc7113ab9369"),
    "10.0.0": ("0.12.1", "705a735a1baf5492779fb3ceb70ba1ccf8333b45465078b5d8168e4b4cf90cde"),
    "11.0.0": ("0.13.1", "35909272167afc2955f62f33734e460ac6c23603f0d95ceff465723109e482fd"),
    "12.1.1": ("0.15.0", "74d52f9b5fc4d307a48c7ee741dff3bcb55014f91b6fb851a22cd8f381d404d1"),
    "13.0.0": ("0.18.1", "e1d811a5843d1881f8adcc3944fe3b84c7317ebf4530617829c19c9836f18b49"),
    "14.1.0": ("0.19.0", "42ab2039b4eaec01084e92a2721a474e893047ba5ec87b14d45ee077ac883d08"),
}
OLDEST = (8, 1)


def headers(folder, version):
    """The folder to search for this version's headers."""
    place = folder / version
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            release, expected = WHEELS[version]
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                            "--only-binary", ":all:", "-d", str(place), f"pythran=={release}"], check=True)
            wheel = next(place.glob("*.whl"))
            if hashlib.sha256(wheel.read_bytes()).hexdigest() != expected:
                sys.exit(f"{wheel.name} is another file than it was")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(place, [n for n in archive.namelist() if n.startswith("pythran/xsimd/")])
            (place / "whole").touch()
    return place / "pythran"


def main():
    compiler, source, folder, version, program, *flags = sys.argv[1:]
    source, folder = pathlib.Path(source), pathlib.Path(folder)
    binary = folder / "-".join([pathlib.Path(compiler).name, pathlib.Path(program).stem, version, *(f.strip("-").replace("=", "-") for f in flags)])
    done = subprocess.run(
        [compiler, "-std=c++20", *flags, "-isystem", headers(folder, version), f"-I{source}/include", f"-I{source}/tests",
         f"-I{source}/tests/support", str(source / program), "-o", str(binary)], capture_output=True, text=True,
        check=False)
    if tuple(map(int, version.split(".")))[:2] < OLDEST:
        errors = re.findall(r"\berror: (.*)$", done.stderr, re.M)
        if len(errors) != 2 or "aft needs xsimd 8.1 or newer" not in errors[0] or "see the error above" not in errors[1]:
            sys.exit(f"xsimd {version} is not refused by one error:\n{done.stderr}")
        print(errors[0])
        return
    if done.returncode != 0:
        sys.exit(done.stderr)
    ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    print(ran.stdout)
    if f"xsimd {version}" not in ran.stdout:
        sys.exit(f"this is not xsimd {version}")
    sys.exit(ran.returncode)


if __name__ == "__main__":
    main()
