#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C++ blocks of documents, as programs: blocks.py <out> <before> <document>...

A block with main() is a program of its own, <out>/program_<n>.cpp. All other blocks are statements: <out>/blocks.cpp has a
function for each, after the declarations in the file <before>, so that the headers are read once for all of them.
Comments above a block say more: <!-- before --> puts it in front of the page's later blocks, outside any function;
<!-- run --> has it run, and the text block that follows is what it prints, all of which lands in <out>/expected.txt.
Errors name the document's own lines.
"""

import pathlib
import re
import sys

FENCE = re.compile(r"^(<!-- (?P<mark>[a-z]+) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)


def blocks_of(path):
    """(mark, line, code, text block that follows) of each C++ block."""
    text = path.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for i, match in enumerate(found):
        if match["language"] != "cpp":
            continue
        printed = ""
        if match["mark"] == "run":
            if i + 1 == len(found) or found[i + 1]["language"] != "text":
                sys.exit(f"{path}: a block that runs needs a text block after it, with what it prints")
            printed = found[i + 1]["code"]
        yield match["mark"] or "", text.count("\n", 0, match.start("code")) + 1, match["code"], printed


def main():
    out, before = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    headers, parts, calls, expected, programs = [], [], [], [], 0
    for name in sys.argv[3:]:
        path = pathlib.Path(name)
        page = "page_" + re.sub(r"\W", "_", "_".join(path.parts[-2:]))
        parts.append(f"namespace {page} {{")
        for mark, line, code, printed in blocks_of(path):
            where = f'#line {line} "{path}"\n'
            if "int main(" in code:
                (out / f"program_{programs}.cpp").write_text(where + code, encoding="utf-8")
                programs += 1
                continue
            headers += re.findall(r"^#include .*", code, re.M)
            code = re.sub(r"^#include .*", "", code, flags=re.M)
            if mark == "before":
                parts.append(where + code)
                continue
            parts.append(f"void block_{line}() {{\n{where}{code}}}")
            if mark == "run":
                calls.append(f"  {page}::block_{line}();")
                expected.append(printed)
        parts.append("}")
    headers = "\n".join(dict.fromkeys(headers))
    (out / "blocks.cpp").write_text("\n".join([headers, before.read_text(encoding="utf-8"), *parts, "int main() {", *calls,
                                               "}", ""]), encoding="utf-8")
    (out / "expected.txt").write_text("".join(expected), encoding="utf-8")
    print(programs)


if __name__ == "__main__":
    main()
