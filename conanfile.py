# SPDX-License-Identifier: Apache-2.0
"""Conan 2 recipe: headers only, so one package serves every setting."""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import load


class AftRecipe(ConanFile):
    name = "aft"
    license = "Apache-2.0"
    description = "Attention Free Transformer operators for C++20"
    topics = ("attention", "transformer", "simd", "header-only")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    exports_sources = ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "backends/*")
    exports = "include/aft/core/version.hpp"
    generators = "CMakeDeps"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "aft", "core", "version.hpp"))
        self.version = ".".join(re.search(rf"AFT_VERSION_{part} +(\d+)", text).group(1)
                                for part in ("MAJOR", "MINOR", "PATCH"))

    def requirements(self):
        self.requires("xsimd/[>=8.1]", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.variables["AFT_BUILD_TESTS"] = False
        toolchain.variables["AFT_BUILD_EXAMPLES"] = False
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # The package's own config knows about OpenMP and components; a generated one would not.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "aft"))
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
