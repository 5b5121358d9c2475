#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How large keys and biases may be before a layer's output is wrong: other packages' modules beside those of aft.torch.compat.

overflow.py --write RESULTS.json         measures and writes
overflow.py --table RESULTS.json         prints the table as Markdown
overflow.py --check RESULTS.json PAGE.md fails if the page holds another

A layer's key projection and its position bias are multiplied by a factor; everything else is as the modules begin. The exact output is
that of ours in float64, which the tests of the operators hold to their definition. Needs PyTorch, labml-nn and aft-pytorch.
"""

import copy
import importlib.util
import json
import pathlib
import sys

FACTORS = (1, 10, 30, 100, 300, 1000)
BATCH, LENGTH, CHANNELS = 4, 64, 64
MODULES = ("labml-nn AFTLocal", "labml-nn AFTLocal, causal", "aft-pytorch AFTFull", "aft-pytorch AFTLocal", "aft-pytorch AFTSimple")


def module_of(package, path):
    """One file of a package, without what else it imports."""
    found = importlib.util.find_spec(package)
    if found is None:
        sys.exit(f"{package} is not installed")
    spec = importlib.util.spec_from_file_location(f"{package}_alone", pathlib.Path(found.submodule_search_locations[0], path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pair_of(name):
    """Their layer and ours with the same weights, and the call that both take."""
    import torch  # pylint: disable=import-outside-toplevel
    from aft.torch import compat  # pylint: disable=import-outside-toplevel

    torch.manual_seed(0)
    kind = name.split()[1].rstrip(",")
    if name.startswith("labml"):
        theirs = module_of("labml_nn", "transformers/aft/__init__.py").AFTLocal(CHANNELS, LENGTH, 16)
        mine = compat.labml.AFTLocal(CHANNELS, LENGTH, 16)
        pairs = torch.ones(LENGTH, LENGTH, 1, dtype=torch.bool)
        if name.endswith("causal"):
            pairs = pairs[..., 0].tril()[..., None]

        def call(layer, x):
            x = x.transpose(0, 1)  # sequences come first there
            return layer(query=x, key=x, value=x, mask=pairs).transpose(0, 1)
    else:
        sizes = {"AFTFull": (), "AFTLocal": (CHANNELS, 16), "AFTSimple": ()}[kind]
        theirs = getattr(module_of("aft_pytorch", "aft_pytorch.py"), kind)(LENGTH, CHANNELS, *sizes)
        mine = getattr(compat.aft_pytorch, kind)(LENGTH, CHANNELS, *sizes)

        def call(layer, x):
            return layer(x)
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine, call


def scaled(layer, factor):
    import torch  # pylint: disable=import-outside-toplevel

    layer = copy.deepcopy(layer)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith(("key.", "to_k.", "pos_bias", "wbias")):
                parameter.mul_(factor)
    return layer


def measure(name):
    """For each factor how far either output is off, over the largest exact number; None where it is no finite number."""
    import torch  # pylint: disable=import-outside-toplevel

    theirs, mine, call = pair_of(name)
    x = torch.randn(BATCH, LENGTH, CHANNELS)
    rows = []
    for factor in FACTORS:
        with torch.no_grad():
            exact = call(scaled(mine, factor).double(), x.double())
            row = {"factor": factor}
            for who, layer in (("theirs", theirs), ("ours", mine)):
                y = call(scaled(layer, factor), x)
                error = float((y.double() - exact).abs().max() / exact.abs().max())
                row[who] = error if error == error and error != float("inf") else None
                row[f"{who}_lost"] = float((~y.isfinite()).double().mean())
        rows.append(row)
    return rows


def said(error, lost):
    if error is not None:
        return f"{error:.0e}"
    return f"{100 * lost:.0f} % NaN" if lost >= 0.01 else "some NaN"


def table(document):
    yield (f"PyTorch {document['torch']}, labml-nn {document['labml-nn']}, aft-pytorch {document['aft-pytorch']}; float32, {BATCH} x {LENGTH} x "
           f"{CHANNELS}. Largest error over the largest exact number:")
    yield ""
    yield "| keys and biases times | " + " | ".join(f"{name} | ours" for name in document["modules"]) + " |"
    yield "|---|" + "---|---|" * len(document["modules"])
    for i, factor in enumerate(FACTORS):
        cells = []
        for rows in document["modules"].values():
            cells += [said(rows[i]["theirs"], rows[i]["theirs_lost"]), said(rows[i]["ours"], rows[i]["ours_lost"])]
        yield f"| {factor:,} | " + " | ".join(cells) + " |"


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "--write":
        from importlib.metadata import version  # pylint: disable=import-outside-toplevel

        document = {**{name: version(name) for name in ("torch", "labml-nn", "aft-pytorch")},
                    "modules": {name: measure(name) for name in MODULES}}
        pathlib.Path(arguments[1]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return 0
    if len(arguments) < 2 or arguments[0] not in ("--table", "--check"):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = "\n".join(table(json.loads(pathlib.Path(arguments[1]).read_text(encoding="utf-8"))))
    if arguments[0] == "--table":
        print(wanted)
        return 0
    if wanted in pathlib.Path(arguments[2]).read_text(encoding="utf-8"):
        return 0
    print(f"{arguments[2]} does not hold this table:\n\n{wanted}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
