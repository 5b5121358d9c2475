# SPDX-License-Identifier: Apache-2.0
"""What has grown since the committed counts, and what else differs."""


def instructions(figures):
    """Of a turn of the main loop; of a product for its multiply-adds, so that a longer turn is no growth by itself."""
    return figures["loop"] / figures["multiply_adds"] if figures.get("tensor") else figures["loop"]


def kernel_changes(before, now):
    """Lines that begin with `grew` or `changed`."""
    for name in sorted(before.keys() | now.keys()):
        for arch in sorted(before.get(name, {}).keys() | now.get(name, {}).keys()):
            old, new = before.get(name, {}).get(arch), now.get(name, {}).get(arch)
            if old == new:
                continue
            if old is None or new is None:
                yield f"changed: {arch} {name} is {'new' if old is None else 'gone'}"
                continue
            grown = instructions(new) > instructions(old) or new.get("results_loop", 0) > old.get("results_loop", 0)
            yield (f"{'grew' if grown else 'changed'}: {arch} {name}: a turn of {old['loop']} instructions for "
                   f"{old['multiply_adds']} multiply-adds has {new['loop']} for {new['multiply_adds']}; the loop of results "
                   f"{old.get('results_loop', 0)}, {new.get('results_loop', 0)}")


def call_changes(before, now):
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if old == new:
            continue
        if old is None or new is None:
            yield f"changed: {key} is {'new' if old is None else 'gone'}"
            continue
        grown = any(len(new[device]) > len(old[device]) for device in ("warpgroups", "mma"))
        grown = grown or new["scratch"] + new["cleared"] > old["scratch"] + old["cleared"]
        yield (f"{'grew' if grown else 'changed'}: {key}: {len(old['warpgroups'])} launches and {old['scratch']} bytes of "
               f"scratch are {len(new['warpgroups'])} and {new['scratch']}")


def changes(before, now):
    """All of them. Under another nvcc kernels are other code, and only what the host launches compares."""
    found = list(call_changes(before["calls"], now["calls"]))
    if before["nvcc"] == now["nvcc"]:
        found += kernel_changes(before["kernels"], now["kernels"])
    return found
