#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header includes what of the standard library it names, itself or through headers of the project.

check_standard_names.py <source folder>    every header of the library
check_standard_names.py --bites            a header that forgot one, or names what nobody knows, is found

A compiler takes a name from wherever it comes, and one standard library's headers bring names along that another's do
not. So this asks for more than that a header compiles alone, and it needs no compiler: tests/headers compiles each
header with all standard headers in sight, which takes a third of the time.
"""

import pathlib
import posixpath
import re
import sys
import tempfile

HOMES = {
    "algorithm": "adjacent_find all_of binary_search copy copy_n equal fill fill_n max min sort unique",
    "array": "array",
    "atomic": "atomic memory_order_relaxed",
    "bit": "bit_cast countr_zero",
    "bitset": "bitset",
    "cfenv": "fegetenv fenv_t fesetenv",
    "cstdio": "snprintf",
    "cmath": "abs copysign exp expm1 fabs floor frexp ilogb isfinite isnan ldexp log log1p log2 nearbyint signbit sqrt tanh",
    "concepts": "convertible_to integral",
    "cstddef": "byte max_align_t size_t",
    "cstdint": "int32_t int64_t int8_t uint16_t uint32_t uint64_t uint8_t uintptr_t",
    "condition_variable": "condition_variable",
    "cstring": "memcpy memmove memset strlen strncpy",
    "deque": "deque",
    "exception": "exception",
    "functional": "function",
    "initializer_list": "initializer_list",
    "iterator": "size",
    "limits": "numeric_limits",
    "map": "map",
    "memory": "addressof construct_at make_shared make_unique shared_ptr unique_ptr",
    "memory_resource": "pmr",
    "mutex": "lock_guard mutex unique_lock",
    "new": "bad_alloc launder",
    "numeric": "gcd lcm",
    "optional": "optional",
    "span": "as_bytes as_writable_bytes span",
    "stdexcept": "invalid_argument runtime_error",
    "string": "string to_string",
    "thread": "this_thread",
    "tuple": "apply tuple",
    "type_traits": "common_type_t conditional_t decay_t integral_constant is_arithmetic_v is_array_v is_class_v is_const_v is_constructible_v "
                   "is_convertible_v is_enum_v is_integral_v is_invocable_v is_lvalue_reference_v "
                   "is_nothrow_invocable_v is_object_v is_pointer_v is_reference_v is_same_v is_signed_v is_trivially_copyable_v "
                   "is_trivially_destructible_v is_union_v is_volatile_v remove_cv_t remove_cvref_t remove_pointer_t "
                   "remove_reference_t type_identity",
    "utility": "as_const declval exchange index_sequence integer_sequence make_index_sequence make_integer_sequence move pair "
               "swap",
    "vector": "vector",
}
HOME = {name: header for header, names in HOMES.items() for name in names.split()}
# Names that several headers promise: of these any will do.
ALSO = {"size_t": {"cstring", "memory", "string", "vector"}, "size": {"array", "span", "string", "vector"},
        "pair": {"map"}}
# Behind a test of the standard library's version, which their own headers are included after.
CONDITIONAL = {"mdspan", "float16_t", "bfloat16_t"}
ROOTS = ("include", "backends/cpu/include", "backends/cuda/include")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


class Tree:
    def __init__(self, root):
        self.headers = {}
        for folder in ROOTS:
            base = root / folder
            for path in sorted([*base.rglob("*.hpp"), *base.rglob("*.cuh")]):
                self.headers[path.relative_to(base).as_posix()] = path.read_text()
        self.seen = {}

    def standard(self, name, above=()):
        """The standard headers that come with this header through headers of the project."""
        if name in self.seen or name in above:
            return self.seen.get(name, set())
        found = set()
        for kind, target in INCLUDE.findall(self.headers[name]):
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if beside in self.headers and kind == '"':
                found |= self.standard(beside, (*above, name))
            elif target in self.headers:
                found |= self.standard(target, (*above, name))
            elif kind == "<" and "/" not in target:
                found.add(target)
        self.seen[name] = found
        return found

    def faults(self):
        for name, text in self.headers.items():
            # Strings go: error messages name types. What is left of an include is no use of a name.
            used = set(re.findall(r"\bstd::(\w+)", COMMENT.sub("", text)))
            for std in sorted(used - CONDITIONAL):
                if std not in HOME:
                    yield f"{name}: std::{std} is in no list of check_standard_names.py"
                elif not ({HOME[std]} | ALSO.get(std, set())) & self.standard(name):
                    yield f"{name}: std::{std} without <{HOME[std]}>"


def bites():
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder) / "include" / "aft"
        base.mkdir(parents=True)
        (base / "kept.hpp").write_text("#include <vector>\nstd::vector<int> x;\n")
        (base / "lent.hpp").write_text('#include "kept.hpp"\nstd::vector<int> y;  // not std::list\n')
        (base / "forgot.hpp").write_text('#include "kept.hpp"\nstd::optional<int> z;\n')
        (base / "unknown.hpp").write_text("#include <list>\nstd::list<int> u;\n")
        found = list(Tree(pathlib.Path(folder)).faults())
    expected = ["aft/forgot.hpp: std::optional without <optional>",
                "aft/unknown.hpp: std::list is in no list of check_standard_names.py"]
    if found != expected:
        sys.exit(f"found {found}, not {expected}")


def main():
    if sys.argv[1] == "--bites":
        bites()
        return
    tree = Tree(pathlib.Path(sys.argv[1]))
    found = list(tree.faults())
    print("\n".join(found))
    print(f"{len(tree.headers)} headers, {len(found)} faults")
    sys.exit(1 if found or not tree.headers else 0)


if __name__ == "__main__":
    main()
