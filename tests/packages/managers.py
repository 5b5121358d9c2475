# SPDX-License-Identifier: Apache-2.0
"""Routes of package managers, and of the packages that cpack makes."""

import json
import os
import pathlib
import shutil
import sys

from steps import HERE, KERNEL_FLAGS, LEVELS, Missing, clean, judge, kernel_options, once_compiled, require_headers, run, use


def conan(place, kind, compiler, work, xsimd):
    tool = place.tool("conan")
    env = {"CONAN_HOME": str(work / "a home"), "AFT_XSIMD_HEADERS": str(xsimd / "xsimd"), "CC": {"g++": "gcc", "clang++": "clang"}[compiler],
           "CXX": compiler, **once_compiled(place)}
    run(tool, "profile", "detect", env=env)
    version = run("pkg-config", "--modversion", "xsimd").strip() if shutil.which("pkg-config") else "8.1.0"
    run(tool, "create", HERE / "substitutes/xsimd", "--version", version, "--no-remote", env=env)
    variables = {"CMAKE_CXX_FLAGS_RELEASE": KERNEL_FLAGS, "AFT_COMPILED_ISAS": LEVELS}
    conf = f"tools.cmake.cmaketoolchain:extra_variables={json.dumps(variables)}"
    generator = "tools.cmake.cmaketoolchain:generator=Ninja"
    beside = f"tools.cmake.cmake_layout:test_folder={work / 'test'}"
    options = {"headers": [], "compiled": ["-o", "aft/*:compiled=True"], "cuda": ["-o", "aft/*:cuda=True"]}[kind]
    # Either kind of library, by one compiler each.
    options += ["-o", "aft/*:shared=True"] if kind == "compiled" and compiler == "g++" else []
    graph = work / "graph.json"
    said = run(tool, "create", place.source, "--no-remote", "--build=missing", "-s", "compiler.cppstd=20", "-c", conf, "-c", generator,
               "-c", beside, *options, "--format=json", f"--out-file={graph}", env=env)
    nodes = json.loads(graph.read_text(encoding="utf-8"))["graph"]["nodes"].values()
    [package] = {pathlib.Path(n["package_folder"]) for n in nodes if n["name"] == "aft" and n["package_folder"]}
    require_headers(place.source, package / "include", cuda=kind == "cuda")
    if not (package / "licenses/LICENSE").is_file():
        sys.exit(f"no licence in its folder: {package}")
    # The program's lines, which Conan shows among its own.
    return judge(said, kind)


def vcpkg(place, kind, compiler, work, _):
    port = place.source / "packaging/vcpkg/ports/aft"
    features = {"headers": "", "compiled": "compiled", "cuda": "cuda"}[kind]
    # A file, since lists do not survive the way there.
    settings = work / "settings.cmake"
    lines = [o.removeprefix("-D").split("=", 1) for o in kernel_options()[1:]] if kind == "compiled" else []
    settings.write_text("".join(f'set({name} "{value}" CACHE STRING "")\n' for name, value in lines), encoding="utf-8")
    run("cmake", f"-DPORT_FOLDER={port}", f"-DWORK={work}", f"-DFEATURES={features}", f"-DCXX={compiler}", f"-DSETTINGS={settings}",
        "-P", HERE / "substitutes/vcpkg_functions.cmake", env=once_compiled(place))
    tree = work / "packages"
    check_port(port, place.source, tree, work)
    require_headers(place.source, tree / "include", cuda=kind == "cuda")
    return use(place, kind, compiler, work, f"-DCMAKE_PREFIX_PATH={tree}")


def check_port(port, source, tree, work):
    """The rules that vcpkg holds a package to after it was built."""
    faults = []
    manifest = json.loads((port / "vcpkg.json").read_text(encoding="utf-8"))
    if manifest["name"] != port.name or "license" not in manifest:
        faults.append("the manifest has another name than the port's folder, or no licence")
    for feature in ("compiled", "cuda"):
        if not manifest["features"].get(feature, {}).get("description"):
            faults.append(f"the feature {feature} has no description")
    for name in ("share/aft/copyright", "share/aft/usage", "share/aft/aftConfig.cmake"):
        if not (tree / name).is_file():
            faults.append(f"no {name}")
    for name in ("debug/include", "debug/share", "lib/cmake", "bin", "share/pkgconfig", "share/licenses"):
        if (tree / name).exists():
            faults.append(f"{name} does not belong there")
    for folder, folders, files in os.walk(tree):
        if not folders and not files:
            faults.append(f"{folder} is empty")
    for path in (p for suffix in ("*.cmake", "*.pc") for p in tree.rglob(suffix)):
        text = path.read_text(encoding="utf-8")
        if str(work) in text or str(source) in text:
            faults.append(f"{path} names a folder of this build")
    if faults:
        sys.exit("\n".join(faults))


def deb(place, kind, compiler, work, _):
    if not shutil.which("dpkg-deb"):
        raise Missing("dpkg-deb")
    [package] = place.packed(kind, compiler).glob("*.deb")
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", package).splitlines() if line[:1] not in ("", " "))
    architecture = "all" if kind == "headers" else run("dpkg", "--print-architecture").strip()
    if (fields["Package"], fields["Architecture"]) != ("libaft-dev", architecture) or "libxsimd-dev (>= 8.1)" not in fields["Depends"]:
        sys.exit(f"{package}: {fields}")
    if kind == "compiled" and "libc6" not in fields["Depends"]:
        sys.exit(f"{package} does not depend on what its library needs: {fields['Depends']}")
    root = work / "a root"
    run("dpkg-deb", "-x", package, root)
    if not (root / "usr/share/doc/libaft-dev/copyright").is_file():
        sys.exit(f"{package} has no copyright")
    require_headers(place.source, root / "usr/include")
    return use(place, kind, compiler, work, f"-DCMAKE_PREFIX_PATH={root / 'usr'}")


def tarball(place, kind, compiler, work, _):
    [package] = place.packed(kind, compiler).glob("*.tar.gz")
    root = clean(work / "un packed")
    run("tar", "-xf", package, "-C", root)
    [prefix] = root.iterdir()
    require_headers(place.source, prefix / "include")
    return use(place, kind, compiler, work, f"-DCMAKE_PREFIX_PATH={prefix}")
