# SPDX-License-Identifier: Apache-2.0
"""What the routes share: running commands, the places of a run, and what makes a package whole."""

import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CONSUMER = pathlib.Path("packaging/consumer")
# Two levels, so that there is a choice to make. What runs is small: kernels that optimise take longer to compile than
# everything else here.
LEVELS = {"x86_64": "v2;v3", "aarch64": "neon;neon-bf16"}.get(platform.machine(), "all")
KERNEL_FLAGS = "-O0 -DNDEBUG -D_FILE_OFFSET_BITS=64"  # as Meson has it, for the same objects


class Missing(Exception):
    """A tool that this machine lacks."""


class Place:
    """The folders of a run. Spaces are in the names of what a user chooses."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.source = self.folder / "a source" / "aft"
        self.venv = self.folder / "tools"
        self.objects = self.folder / "objects"

    def prefix(self, kind, compiler):
        return self.folder / f"a prefix of {compiler}" / kind

    def packed(self, kind, compiler):
        return self.folder / f"packed by {compiler}" / kind

    def tool(self, name):
        found = self.venv / "bin" / name
        if not found.exists():
            raise Missing(f"{name} of PyPI")
        return found


def run(*command, cwd=None, env=None, fails=False):
    """Output of a command that succeeds, or, with fails, of one that must not."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    if (done.returncode != 0) != fails:
        sys.exit(f"{shlex.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}")
    return done.stdout + done.stderr


def clean(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def once_compiled(place):
    """The environment in which CMake compiles kernels and the consumer once for all routes."""
    return {"CMAKE_CXX_COMPILER_LAUNCHER": str(HERE / "compile_once.py"), "AFT_KEPT_OBJECTS": str(place.objects)}


def kernel_options():
    return ["-DAFT_BUILD_COMPILED=ON", f"-DAFT_COMPILED_ISAS={LEVELS}", "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_CXX_FLAGS_RELEASE={KERNEL_FLAGS}"]


def public_headers(source, cuda=False):
    """Every header that a package has to bring, by the name that an include has."""
    roots = ["include", "backends/cpu/include", "backends/compiled/include", *(["backends/cuda/include"] if cuda else [])]
    return {p.relative_to(source / root).as_posix() for root in roots for p in (source / root).rglob("*")
            if p.suffix in (".hpp", ".h", ".cuh")}


def lacking(source, include, cuda=False):
    return sorted(name for name in public_headers(source, cuda) if not (include / name).is_file())


def require_headers(source, include, cuda=False):
    missing = lacking(source, include, cuda)
    if missing:
        sys.exit(f"{include} lacks {len(missing)} headers: {', '.join(missing[:5])}")


def require_hidden_symbols(library):
    """Nothing is shown but the entries, and the types of errors: a lost flag would lend this library's code to its
    program."""
    shown = run("nm", "-D", "--defined-only", library).split()[2::3]
    others = [name for name in shown if not re.match(r"aft_|_ZN3aft\w*compiled_v|_ZT[IS]N3aft\d+\w+_errorE$", name)]
    if others or not shown:
        sys.exit(f"{library} shows {len(shown)} symbols, and among them {others[:5]}")


def judge(said, kind):
    """What the consumer said of itself, beyond its exit status. Returns the line about the library."""
    lines = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    library = lines.get("library", "")
    if ("of the compiled library" in library) != (kind == "compiled"):
        sys.exit(f"kernels of the wrong place for {kind}: {library}")
    if "OpenMP" not in library or "no OpenMP" in library:
        sys.exit(f"without OpenMP: {library}")
    if "v" not in lines.get("refused", "") or int(lines.get("threads", "0")) < 2:
        sys.exit(f"not refused, or one thread:\n{said}")
    return library


def use(place, kind, compiler, work, *options, env=None, cmake="cmake"):
    """The consumer as a project of CMake, from an empty folder."""
    component = {"headers": "cpu"}.get(kind, kind)
    build = clean(work / "consumer")
    env = {**once_compiled(place), **(env or {})}
    run(cmake, "-S", place.source / CONSUMER, "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Debug",
        f"-DCOMPONENT={component}", *options, env=env)
    run(cmake, "--build", build, env=env)
    return judge(run(build / "consumer", env=env), kind)
