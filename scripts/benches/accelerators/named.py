"""Programs by the words that name them.

    python -m scripts.benches.accelerators.named WORDS

compiles the program, for `bundles.schedules`.
"""

import sys
from collections.abc import Sequence

from scripts.benches.accelerators import analysis, steps


def compile_named(words: Sequence[str]) -> analysis.Compiled:
    """Compile the program that words name.

    Args:
      words: "cell", device, cell, shape, label; or "program", device, program, label;
        or "config", device, config, number of devices, "ours" or "direct", flags such
        as "--config.norm=none".
    """
    kind, device, *rest = words
    if kind != "config":
        *of_kind, label = rest
        functions = analysis.functions(device, kind, *of_kind)
        return analysis.compile_function(device, functions[label])
    config, count, version, *flags = rest
    return steps.compile_step(device, config, int(count), version, flags)


if __name__ == "__main__":
    compile_named(sys.argv[1:])
