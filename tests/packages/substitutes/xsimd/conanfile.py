# SPDX-License-Identifier: Apache-2.0
"""Debian's xsimd as a Conan package, so that the recipe of aft can be tried without a network."""

import os
import shutil

from conan import ConanFile


class XsimdOfDebian(ConanFile):
    name = "xsimd"
    description = "The headers that Debian installed"
    license = "BSD-3-Clause"
    package_type = "header-library"

    def package(self):
        shutil.copytree(os.environ["AFT_XSIMD_HEADERS"], os.path.join(self.package_folder, "include", "xsimd"))

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # As the recipe of ConanCenter names them.
        self.cpp_info.set_property("cmake_file_name", "xsimd")
        self.cpp_info.set_property("cmake_target_name", "xsimd")
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
