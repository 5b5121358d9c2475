# SPDX-License-Identifier: Apache-2.0
"""The ways in which aft comes to a program, and what of each is tried: one place for the tests and for the page."""

import dataclasses

COMPILERS = ("g++", "clang++")
# What of the library: kernels compiled with the program, in a library, for a GPU.
KINDS = ("headers", "compiled", "cuda")


@dataclasses.dataclass(frozen=True)
class Route:
    name: str
    what: str
    compiled: tuple[str, ...] = ("g++",)
    cuda: tuple[str, ...] = ()
    by: str = ""  # a word on how it is tried, where that is not plain

    def compilers(self, kind):
        return {"headers": COMPILERS, "compiled": self.compiled, "cuda": self.cuda}[kind]


ROUTES = (
    Route("find_package", "CMake: `find_package`, installed", COMPILERS, ("g++",)),
    Route("add_subdirectory", "CMake: `add_subdirectory`"),
    Route("fetch_content", "CMake: `FetchContent`", by="from a git repository with a tag"),
    Route("cps", "CMake 4.3 or newer: the CPS file", by="with CMake 4.4, a CPS file for Debian's xsimd, and OpenMP linked by the program"),
    Route("pkg_config", "pkg-config"),
    Route("meson", "Meson: `dependency('aft')`, installed"),
    Route("meson_subproject", "Meson: a subproject"),
    Route("conan", "Conan 2", COMPILERS, ("g++",), by="`conan create`, without a remote"),
    Route("vcpkg", "vcpkg: the overlay port", ("g++",), ("g++",), by="without vcpkg, its functions stood in for"),
    Route("deb", "Debian package", by="unpacked, not installed"),
    Route("tarball", "Tarball of `cpack`"),
)
