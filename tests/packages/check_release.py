#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_release.py <folder>: scripts/release builds what a release has, and refuses one that is wrong in any of its parts."""

import hashlib
import shutil
import sys

from steps import Place, clean, run

VERSION = "include/aft/core/version.hpp"


def main():
    place = Place(sys.argv[1])
    work = clean(place.folder / "work/release")
    [tag] = run("git", "tag", cwd=place.source).split()
    version = tag.removeprefix("v")
    run(place.source / "scripts/release", tag, work / "files", env={"PYTHONDONTWRITEBYTECODE": "1"})
    sums = dict(reversed(line.split()) for line in (work / "files/SHA256SUMS").read_text(encoding="utf-8").splitlines())
    wanted = {f"aft-{version}.tar.gz", f"aft-{version}-headers.tar.gz", f"libaft-dev_{version}_all.deb"}
    if set(sums) != wanted:
        sys.exit(f"a release of {sorted(sums)}, not of {sorted(wanted)}")
    for name, digest in sums.items():
        assert hashlib.sha256((work / "files" / name).read_bytes()).hexdigest() == digest, name

    # One wrong thing at a time, each committed unless the tree itself is to be wrong.
    next_version = version.rpartition(".")[0] + ".7"
    planted = (
        ("v9.9.9", None, "", "", "the tag is v9.9.9"),
        (version, None, "", "", f"the tag is {version}"),
        (f"v{next_version}", VERSION, "AFT_VERSION_PATCH 0", "AFT_VERSION_PATCH 7", f"CHANGELOG.md: has no section {next_version}"),
        (tag, "CHANGELOG.md", f"## {version}\n", f"## 99.0.0\n\n- x\n\n## {version}\n", "its first section is 99.0.0"),
        (tag, "CHANGELOG.md", f"## {version}\n", f"## {version}\n\n## 0.0.9\n", f"the section {version} has no line"),
        (tag, "meson.build", f"version: '{version}'", "version: '9.9.9'", "meson.build: its version is not"),
        (tag, "packaging/vcpkg/ports/aft/vcpkg.json", f'"{version}"', '"9.9.9"', "ports/aft/vcpkg.json: its version is not"),
        (tag, "README.md", "# aft\n", "# aft \n", "names another commit"),
        (tag, "README.md", "# aft\n", "# aft \n", "the tree is not the commit"),
    )
    for wrong_tag, name, old, new, said in planted:
        tree = work / "planted"
        shutil.rmtree(tree, ignore_errors=True)
        run("git", "clone", "-q", place.source, tree)
        if name:
            text = (tree / name).read_text(encoding="utf-8")
            assert old in text, (name, old)
            (tree / name).write_text(text.replace(old, new, 1), encoding="utf-8")
            if "not the commit" not in said:
                run("git", "-c", "user.name=aft", "-c", "user.email=aft@localhost", "commit", "-qam", said, cwd=tree)
        heard = run(tree / "scripts/release", wrong_tag, "--check", fails=True, env={"PYTHONDONTWRITEBYTECODE": "1"})
        if said not in heard:
            sys.exit(f"scripts/release {wrong_tag}: expected `{said}`, heard\n{heard}")
    print(f"a release of {len(sums)} files; {len(planted)} wrong ones refused")


if __name__ == "__main__":
    main()
