# SPDX-License-Identifier: Apache-2.0
"""Routes of build systems: CMake, pkg-config, Meson."""

import json
import os
import shlex
import shutil
import sys

from steps import CONSUMER, HERE, KERNEL_FLAGS, LEVELS, Missing, clean, judge, kernel_options, once_compiled, require_headers, require_hidden_symbols, run, use


def prefixes(place, kind, compiler):
    """Installed packages that serve a kind; those with the library come as either kind of it."""
    names = ("headers",) if kind == "headers" else ("static", "shared")
    return [place.prefix(name, compiler) for name in names]


def find_package(place, kind, compiler, work, _):
    if kind == "cuda":
        return find_cuda(place, compiler, work)
    for prefix in prefixes(place, kind, compiler):
        require_headers(place.source, prefix / "include")
        said = use(place, kind, compiler, work, f"-DCMAKE_PREFIX_PATH={prefix}")
    if kind == "compiled":
        require_hidden_symbols(place.prefix("shared", compiler) / "lib/libaft_compiled.so")
    return said


def find_cuda(place, compiler, work):
    """Installed with its headers for CUDA; a program links the runtime. Kernels and nvcc are what the lane cuda tries."""
    build, prefix = work / "build", work / "a prefix"
    run("cmake", "-S", place.source, "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", "-DAFT_BUILD_TESTS=OFF",
        "-DAFT_BUILD_EXAMPLES=OFF", "-DAFT_ENABLE_CUDA=ON")
    run("cmake", "--install", build, "--prefix", prefix)
    require_headers(place.source, prefix / "include", cuda=True)
    return use(place, "cuda", compiler, work, f"-DCMAKE_PREFIX_PATH={prefix}")


def add_subdirectory(place, kind, compiler, work, _):
    more = kernel_options() if kind == "compiled" else []
    return use(place, kind, compiler, work, "-DROUTE=add_subdirectory", f"-DAFT_SOURCE={place.source}", *more)


def fetch_content(place, kind, compiler, work, _):
    more = kernel_options() if kind == "compiled" else []
    tag = run("git", "tag", cwd=place.source).strip()
    return use(place, kind, compiler, work, "-DROUTE=FetchContent", f"-DAFT_REPOSITORY=file://{place.source}", f"-DAFT_TAG={tag}", *more)


def cps(place, kind, compiler, work, xsimd):
    """The file by its shape, and by the one tool that reads it. Debian's xsimd has none, so that one is written here."""
    prefix = place.prefix("cps", compiler)
    told = json.loads((prefix / "lib/cps/aft/aft.cps").read_text(encoding="utf-8"))
    if (told["name"], told["components"]["aft"]["type"], told["components"]["compiled"]["type"]) != ("aft", "interface", "dylib"):
        sys.exit(f"aft.cps tells of something else: {told}")
    for part in told["components"].values():
        for path in (*part["includes"], part.get("location", "@prefix@")):
            if not path.startswith("@prefix@") or not (prefix / path.removeprefix("@prefix@/")).exists() and path != "@prefix@":
                sys.exit(f"aft.cps names {path}, which is not there")
    if list(place.prefix("shared", compiler).rglob("*.cps")):
        sys.exit("a CPS file is installed that nobody asked for")
    dependency = clean(work / "xsimd/lib/cps/xsimd")
    component = {"type": "interface", "includes": [str(xsimd)]}
    (dependency / "xsimd.cps").write_text(json.dumps({
        "cps_version": "0.13.0", "name": "xsimd", "version": "8.1.0", "compat_version": "8.1.0", "version_schema": "simple",
        "cps_path": "@prefix@/lib/cps/xsimd", "components": {"xsimd": component}}), encoding="utf-8")
    cmake = place.tool("cmake")
    # CMake 4.4 reads everything of the file but its flags.
    openmp = ["-DLINK_OPENMP=ON"] if kind == "headers" else []
    said = use(place, kind, compiler, work, f"-DCMAKE_PREFIX_PATH={prefix};{work / 'xsimd'}", *openmp, cmake=cmake)
    if "lib/cps/aft" not in (work / "consumer/CMakeCache.txt").read_text(encoding="utf-8"):
        sys.exit("the package was not found by its CPS file")
    return said


def flags(prefix, package, *what):
    if not shutil.which("pkg-config"):
        raise Missing("pkg-config")
    return shlex.split(run("pkg-config", *what, package, env={"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}))


def compile_by_hand(place, compiler, work, compile_flags, link_flags):
    """The consumer's library and program, as a makefile would."""
    here = place.source / CONSUMER
    command = [HERE / "compile_once.py", compiler, "-std=c++20", "-g", *compile_flags, "-c"]
    run(*command, "-fPIC", "-fvisibility=hidden", here / "calls.cpp", "-o", work / "calls.o", env=once_compiled(place))
    run(compiler, "-shared", work / "calls.o", "-o", work / "libcalls.so", *link_flags)
    run(*command, here / "main.cpp", "-o", work / "main.o", env=once_compiled(place))
    run(compiler, work / "main.o", "-o", work / "consumer", work / "libcalls.so", *link_flags, f"-Wl,-rpath,{work}")


def pkg_config(place, kind, compiler, work, _):
    package = "aft-compiled" if kind == "compiled" else "aft"
    for prefix in prefixes(place, kind, compiler):
        to_compile, to_link = flags(prefix, package, "--cflags"), flags(prefix, package, "--libs")
        if str(prefix / "include") not in [os.path.realpath(f[2:]) for f in to_compile]:
            sys.exit(f"the package is not found where it lies: {to_compile}")
        compile_by_hand(place, compiler, work, to_compile, to_link)
        run_with = {"LD_LIBRARY_PATH": str(prefix / "lib")}
        said = judge(run(work / "consumer", env=run_with), kind)
    if kind == "headers" and compiler == "g++":
        # Without the flag for OpenMP the program has to notice.
        compile_by_hand(place, compiler, work, [f for f in to_compile if f != "-fopenmp"], [])
        if "OpenMP was lost" not in run(work / "consumer", fails=True):
            sys.exit("a program without OpenMP failed for another reason")
    return said


def meson_project(place, kind, compiler, work, source, *options, env=None):
    tool = place.tool("meson")
    # In front of the compiler as CMake's launcher is; Meson takes a list.
    command = shlex.join([str(HERE / "compile_once.py"), compiler])
    env = {"CXX": command, **once_compiled(place), **(env or {})}
    build = work / "build"
    run(tool, "setup", build, source, f"-Dpackage={'aft-compiled' if kind == 'compiled' else 'aft'}", *options, env=env)
    run(tool, "compile", "-C", build, env=env)
    return judge(run(build / "consumer", env=env), kind)


def meson(place, kind, compiler, work, _):
    for prefix in prefixes(place, kind, compiler):
        clean(work)
        said = meson_project(place, kind, compiler, work, place.source / CONSUMER, "-Dbuildtype=debug",
                             env={"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib")})
    return said


def meson_subproject(place, kind, compiler, work, _):
    mine = work / "a project"
    shutil.copytree(place.source / CONSUMER, mine)
    (mine / "subprojects").mkdir()
    (mine / "subprojects/aft").symlink_to(place.source)
    more = []
    if kind == "compiled":
        isas = ",".join(f"'{isa}'" for isa in LEVELS.split(";"))
        more = [f"-Daft:compiled_isas=[{isas}]"]
    # As KERNEL_FLAGS are to CMake.
    assert KERNEL_FLAGS.startswith("-O0 -DNDEBUG")
    said = meson_project(place, kind, compiler, work, mine, "--force-fallback-for=aft,aft-compiled", "-Dbuildtype=plain", "-Doptimization=0",
                         "-Db_ndebug=true", "-Daft:buildtype=plain", "-Daft:b_ndebug=true", *more)
    if kind == "compiled":
        require_hidden_symbols(work / "build/subprojects/aft/backends/compiled/libaft_compiled.so")
    return said
