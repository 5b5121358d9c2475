# SPDX-License-Identifier: Apache-2.0
"""Conan 2 recipe.

Headers alone unless an option asks for more, and then one package serves every setting; with `compiled` also the library
with kernels for several instruction sets, static or `shared`; with `cuda` also the headers of the CUDA part; with both the
library holds the GPU's kernels too, and nvcc is needed.
"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir


class AftRecipe(ConanFile):
    name = "aft"
    license = "Apache-2.0"
    # The paper: the project has no page of its own in public.
    url = "https://arxiv.org/abs/2105.14103"
    description = "Attention Free Transformer operators for C++20"
    topics = ("attention", "transformer", "simd", "header-only")
    settings = "os", "compiler", "build_type", "arch"
    options = {"compiled": [True, False], "shared": [True, False], "cuda": [True, False]}
    default_options = {"compiled": False, "shared": False, "cuda": False}
    exports_sources = ("CMakeLists.txt", "LICENSE", "README.md", "cmake/*", "include/*", "backends/*", "packaging/*")
    exports = "include/aft/core/version.hpp"
    test_package_folder = "packaging/conan/test_package"
    generators = "CMakeDeps"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "aft", "core", "version.hpp"))
        self.version = ".".join(re.search(rf"AFT_VERSION_{part} +(\d+)", text).group(1)
                                for part in ("MAJOR", "MINOR", "PATCH"))

    def configure(self):
        if self.options.compiled:
            self.package_type = "shared-library" if self.options.shared else "static-library"
        else:
            self.package_type = "header-library"
            self.options.rm_safe("shared")

    def requirements(self):
        # The versions that the project's tests compile (docs/developing/versioning.md).
        self.requires("xsimd/[>=8.1 <14]", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({
            "AFT_BUILD_TESTS": False, "AFT_BUILD_EXAMPLES": False, "AFT_BUILD_COMPILED": bool(self.options.compiled),
            "AFT_ENABLE_CUDA": bool(self.options.cuda), "BUILD_SHARED_LIBS": bool(self.options.get_safe("shared"))})
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        if self.options.compiled:
            cmake.build()

    def package(self):
        CMake(self).install()
        # Conan's place for licences, and its own generators in place of the files for pkg-config.
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_id(self):
        if not self.info.options.compiled:
            self.info.settings.clear()
            self.info.requires.clear()

    def package_info(self):
        # The package's own config knows about OpenMP and components; a generated one would not.
        self.cpp_info.set_property("cmake_find_mode", "none")
        headers = self.cpp_info.components["aft"]
        headers.builddirs = [os.path.join("lib", "cmake", "aft")]
        headers.set_property("pkg_config_name", "aft")
        headers.requires = ["xsimd::xsimd"]
        headers.bindirs = headers.libdirs = []
        openmp = ["-fopenmp"] if self.settings.get_safe("compiler") in ("gcc", "clang") else []
        headers.cxxflags = headers.sharedlinkflags = headers.exelinkflags = openmp
        if self.options.compiled:
            compiled = self.cpp_info.components["compiled"]
            compiled.set_property("pkg_config_name", "aft-compiled")
            compiled.libs = ["aft_compiled"]
            compiled.defines = ["AFT_COMPILED=1"] + (["AFT_COMPILED_CUDA=1"] if self.options.cuda else [])
            if not self.options.shared:
                compiled.sharedlinkflags = compiled.exelinkflags = openmp
