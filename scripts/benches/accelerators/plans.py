"""Optimiser steps of configs on described devices: memory, time, collectives, hours."""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from jax.errors import JaxRuntimeError

from lnrepro.engine import config_file, experiment
from scripts.benches import records
from scripts.benches.accelerators import analysis, devices, named, steps
from scripts.benches.accelerators.analysis import Report

# What stands beside every estimate.
LEFT_OUT = (
    "Estimates leave out: evaluations and checkpoints, batches that the host makes, "
    "the time to start a call, collectives between chips, and other lengths than those "
    "of the made-up batch. A TPU's time is its compiler's estimate of cycles. A GPU's "
    "is a sum over kernels of the largest of 3 us, traffic and arithmetic at the peak "
    "rates."
)
COLUMNS = (
    "config",
    "version",
    "fits",
    "needed GB",
    "kernels",
    "M cycles",
    "ms a step",
    "collectives",
    "largest loops: trips x kernels (cycles)",
    "compile s",
)


class Step(NamedTuple):
    """An optimiser step.

    Attributes:
      report: what is known of it; None where the compiler finds no memory for it.
      message: the compiler's message then, or "".
    """

    report: Report | None
    message: str = ""


def compile_step(
    device: str, config: str, count: int, version: str, flags: Sequence[str] = ()
) -> Step:
    """Compile a step and read it; for the arguments see `steps.compile_step`.

    Raises:
      UserError: a config that is not possible, or a program that cannot be read.
    """
    words = ("config", device, config, str(count), version, *flags)
    try:
        compiled = named.compile_named(words)
    except JaxRuntimeError as e:
        # A TPU's compiler places all arrays, and stops where they do not fit.
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        return Step(None, str(e).splitlines()[0])
    return Step(analysis.report(device, compiled, words))


def main(args: argparse.Namespace) -> int:
    """Compile the configs of `--configs`, print tables and write the record.

    Returns:
      0.
    """
    title = f"{args.devices} {args.device}, an optimiser step"
    print(f"{title}\n\n| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|", flush=True)
    ratios, details, protocols = {}, {}, []
    for name in args.configs:
        config = config_file.read(name)
        found = {}
        for label, (version, flags) in _versions(args, config).items():
            step = compile_step(args.device, name, args.devices, version, flags)
            print(f"| {' | '.join(_row(name, label, step))} |", flush=True)
            if step.report:
                found[label] = step.report
        details[name] = {v: report.as_json() for v, report in found.items()}
        direct = found.get("direct")
        for label, report in found.items():
            if direct and label != "direct":
                what = "cycles" if report.cycles else "kernels"
                ratio = analysis.ratio(report, direct)
                ratios[f"{what}, {name}, {label} / direct"] = ratio
        if "ours" in found:
            protocols.append(_protocol(name, config, found["ours"], args.devices))
        # Programs take minutes to compile, so what there is is kept.
        benchmark = f"compiled steps, {args.devices} {args.device}"
        records.write(args.json, benchmark, ratios, details, f"described {args.device}")
    print()
    for name, ratio in ratios.items():
        print(f"- {name}: {ratio:.3f}")
    for line in protocols:
        print(line)
    print(f"\n{LEFT_OUT}")
    return 0


def _versions(args, config):
    """{label: (version for `compile_step`, flags)} of what is compared."""
    versions = {"ours": ("ours", ())}
    # Kernels and the direct versions are for one device.
    if args.devices == 1 and steps.has_direct(config):
        if devices.get(args.device).platform == "tpu":
            versions["ours, Pallas"] = "ours", ("--config.pallas=True",)
        versions["direct"] = "direct", ()
    return versions


def _row(name, version, step):
    report = step.report
    if report is None:
        return [name, version, f"no: {step.message[:160]}", *[""] * 7]
    loops = sorted(report.loops, key=lambda x: -x.trips * (x.cycles or x.kernels))
    shown = analysis.loops_text(loops[:3])
    collectives = [
        f"{times:.0f} {kind} ({size / 1e6:.1f} MB)"
        for kind, (times, size) in report.collectives.items()
    ]
    return [
        name,
        version,
        "yes" if report.fits else "NO",
        f"{report.needed / 1e9:.2f}",
        f"{report.kernels:,.0f}",
        f"{report.cycles / 1e6:.2f}" if report.cycles else "",
        f"{1e3 * report.seconds:.2f}",
        ", ".join(collectives),
        shown,
        f"{report.compile_s:.0f}",
    ]


def _protocol(name, config, report, count):
    """Return the line about the device-hours of the paper's runs of a config."""
    n_steps = experiment.total_steps(config)
    n_runs = len(_sweep(name))
    hours = n_runs * n_steps * report.seconds * count / 3600
    return (
        f"{name}: {n_runs} runs of {n_steps:,} steps are {hours:,.1f} device-hours, "
        f"all at the time of norm={config.norm}"
    )


def _sweep(name):
    """Return the overrides of the runs of the paper's sweep."""
    return config_file.load_module(name.partition(":")[0]).sweep("")
