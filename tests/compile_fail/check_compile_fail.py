#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles one case twice: with AFT_CONTROL it must compile, without it the named error must be all that is said.

The first line with an error has to say it, since that is the one that people read, and all of it fits on a screen.

A case says `// expect: <part of the message>` and, where flags are the mistake, `// flags: <flags>`, which the control
is compiled without. The control proves that the mistake, and not a typing slip beside it, is what is refused.
The library comes from a header that is compiled ahead, which flags of a case's own rule out.
"""

import re
import subprocess
import sys

MOST_LINES = 15


def compile_case(compiler, source, flags):
    # A fixed language and no line breaks keep the message on one line, as it is searched for.
    done = subprocess.run([compiler, "-fsyntax-only", "-fmessage-length=0", *flags, source],
                          capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/local/bin"},
                          check=False)
    return done.returncode, done.stderr


def main():
    compiler, source, header, *common = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    expected = re.findall(r"^// expect: (.*)$", text, re.M)
    extra = [flag for line in re.findall(r"^// flags: (.*)$", text, re.M) for flag in line.split()]
    if not expected:
        sys.exit(f"{source} does not say what to expect")

    ahead = ["-include", header]
    code, log = compile_case(compiler, source, [*common, *ahead, "-DAFT_CONTROL"])
    if code != 0:
        sys.exit(f"the control does not compile:\n{log}")
    code, log = compile_case(compiler, source, [*common, *(extra or ahead)])
    if code == 0:
        sys.exit("the mistake compiles")
    # One mistake in several arguments is one message.
    errors = sorted(set(re.findall(r"^.*\berror: (.*)$", log, re.M)))
    missing = [message for message in expected if not any(message in error for error in errors)]
    if missing:
        sys.exit(f"no error says {missing}:\n{log}")
    if len(errors) != len(expected):
        sys.exit(f"{len(errors)} errors where {len(expected)} would tell all:\n" + "\n".join(errors))
    first = re.search(r"^.*\berror: (.*)$", log, re.M).group(1)
    if expected[0] not in first:
        sys.exit(f"the first error does not say {expected[0]!r}:\n{log}")
    # The header that is compiled ahead is a line of this test's own.
    lines = [line for line in log.splitlines() if not line.startswith(f"In file included from {header}")]
    if len(lines) > MOST_LINES:
        sys.exit(f"{len(lines)} lines, {MOST_LINES} are enough:\n{log}")
    print("\n".join(errors))


if __name__ == "__main__":
    main()
