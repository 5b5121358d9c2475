#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the library where something that it needs is missing, or for a processor it is not made for: one error has to
say what.

Arguments: the compiler, the folder of the headers, that of the CPU backend's, a folder to work in. What is missing is
taken out of the compiler's own search path by folders of links that leave it out.
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys

STOP = "see the error above"


def search_path(compiler):
    log = subprocess.run([compiler, "-std=c++20", "-E", "-v", "-x", "c++", "/dev/null"], capture_output=True, text=True,
                         check=True).stderr
    listed = log.split("#include <...> search starts here:")[1].split("End of search list.")[0]
    return [pathlib.Path(line.strip()) for line in listed.splitlines() if line.strip()]


def without(name, folders, work):
    """Flags that search the same folders, but for what is called so in them."""
    flags = ["-nostdinc", "-nostdinc++"]
    for number, folder in enumerate(folders):
        if (folder / name).exists():
            links = work / f"{name}-{number}"
            shutil.rmtree(links, ignore_errors=True)
            links.mkdir(parents=True)
            for entry in folder.iterdir():
                if entry.name != name:
                    (links / entry.name).symlink_to(entry)
            folder = links
        flags += ["-isystem", str(folder)]
    return flags


def expect(what, compiler, flags, message):
    done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-fmessage-length=0", *flags, "-x", "c++", "-"],
                          input="#include <aft/aft.hpp>\nint main() {}\n", capture_output=True, text=True,
                          env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/local/bin"}, check=False)
    errors = re.findall(r"\berror: (.*)$", done.stderr, re.M)
    if len(errors) != 2 or message not in errors[0] or STOP not in errors[1]:
        sys.exit(f"without {what} the compiler says:\n{done.stderr}")
    print(f"without {what}: {errors[0]}")


def xsimd_for_no_processor(work):
    """xsimd as it is where it knows no vectors, which is on no machine that runs this: its configuration says so."""
    folder = work / "no_vectors" / "xsimd"
    (folder / "config").mkdir(parents=True)
    (folder / "xsimd.hpp").write_text("#error the vectors were not asked about\n", encoding="utf-8")
    (folder / "config" / "xsimd_config.hpp").write_text(
        "#define XSIMD_VERSION_MAJOR 13\n#define XSIMD_VERSION_MINOR 0\n#define XSIMD_NO_SUPPORTED_ARCHITECTURE\n",
        encoding="utf-8")
    return str(folder.parent)


def main():
    compiler, headers, backend, work = sys.argv[1:]
    work = pathlib.Path(work)
    shutil.rmtree(work, ignore_errors=True)
    folders = search_path(compiler)
    library = [f"-I{headers}", f"-I{backend}"]
    expect("xsimd", compiler, [*library, *without("xsimd", folders, work)], "Debian: libxsimd-dev")
    expect("omp.h", compiler, [*library, "-fopenmp", *without("omp.h", folders, work)], "libomp-dev")
    shutil.copytree(headers, work / "vendored" / "include")
    expect("vectors", compiler, [f"-I{xsimd_for_no_processor(work)}", *library], "define AFT_EMULATED_SIMD")
    if platform.machine() in ("x86_64", "AMD64"):
        expect("arithmetic in float", compiler, ["-m32", "-march=i686", *library], "-msse2 -mfpmath=sse")
        expect("need of plain numbers", compiler, ["-mavx", "-DAFT_EMULATED_SIMD", "-DXSIMD_VERSION_MAJOR=13",
                                                   "-DXSIMD_CONFIG_HPP", *library], "compiled for AVX")
    expect("backends/", compiler, [f"-I{work / 'vendored' / 'include'}"], "copy backends/cpu/include too")


if __name__ == "__main__":
    main()
