"""Train one config of the paper: python -m lnrepro.main --config=configs/draw.py

    python -m lnrepro.main --config=FILE[:VARIANT] [--config.FIELD=VALUE ...] [flags]

Every config has the variants none (embedded data, no download, seconds to two minutes
on two cores) and smoke (seconds). Those of the paper's experiments also have paper (the
paper's protocol on the paper's data, see scripts/prepare.py). The run directory holds
config.json, metrics.jsonl, TensorBoard events, checkpoints/ and artifacts/. The same
command resumes an interrupted run.
"""

import signal
import sys

if __name__ == "__main__":
    # Ctrl-C ends the imports and the compilation below at once. The training loop has a
    # handler of its own, which saves first.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Before the imports below, since libraries keep the streams that they find.
    from lnrepro import errors

    errors.open_output()

import os
import pathlib
import re

from lnrepro.engine import peers
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, exit_code, not_installed, say
from lnrepro.paths import local_path

try:
    from absl import logging

    from lnrepro.engine import config_file
except ModuleNotFoundError as e:
    say(not_installed(e, "training"), sys.stderr)
    sys.exit(UserError.exit_code)

# The compilation cache drops the programs that were not used for longest. A run of
# mnist:small leaves 0.4 MB in it on a CPU, so that this holds thousands of runs.
CACHE_BYTES = 4 * 2**30


def parser() -> Parser:
    """Return the parser of all flags but those of fields."""
    # Flags of fields, such as --config.seed, are left over and no beginnings of others.
    found = Parser(
        usage="python -m lnrepro.main --config=FILE[:VARIANT] [--config.FIELD=VALUE "
        "...] [flags]",
        description=__doc__,
        epilog="--help --config=FILE shows the variants and fields of a config.",
        add_help=False,
        allow_abbrev=False,
        fromfile_prefix_chars="@",
    )
    add = found.add_argument
    add(
        "--config",
        metavar="FILE[:VARIANT]",
        help="e.g. configs/mnist.py:paper; --config.FIELD=VALUE sets one field",
    )
    add("--workdir", help="the run directory; runs/EXPERIMENT/VARIANT-NORM-seedSEED")
    add("--resume", action="store_true", help="go on with the run in --workdir")
    add(
        "--evaluate",
        action="store_true",
        help="only evaluate the best checkpoint of --workdir",
    )
    add(
        "--check",
        action="store_true",
        help="only say whether the finished run in --workdir ends as its config file "
        "expects",
    )
    add(
        "--autotune",
        action="store_true",
        help="only measure the kernels of the config, for config.kernels = auto",
    )
    add(
        "--cpu_devices",
        type=devices,
        help="split the CPU into this many devices, to try several devices",
    )
    add(
        "--distributed",
        action="store_true",
        help="this is one of several processes, which find each other (TPU, SLURM)",
    )
    add("--coordinator", metavar="HOST:PORT", help="process 0 of several processes")
    add("--num_processes", type=int, help="their number, with --coordinator")
    add("--process_id", type=int, help="number of this one, with --coordinator")
    add("--peer_timeout", type=int, default=120, help="seconds to wait for the others")
    add("--help", "-h", action="store_true", help="show this")
    return found


def devices(text: str) -> int:
    """Parse --cpu_devices. Each device has a thread of its own for every core."""
    number = int(text)
    if not 1 <= number <= 256:
        raise ValueError
    return number


def run(argv: list[str]) -> None:
    """Parse the flags, then train or evaluate.

    Raises:
      UserError: something that the user can correct.
      RunError: the run failed.
      Stopped: a signal stopped it.
    """
    # What the parser does not know are flags of fields, or mistakes.
    flags, overrides = parser().parse_known_args(argv[1:])
    # argparse would take the last. Of a field, the last value counts.
    names = [word.partition("=")[0] for word in argv[1:] if word.startswith("-")]
    for name in names:
        if "." not in name and names.count(name) > 1:
            raise UserError(f"{name} is given twice")
    for word in overrides:
        if not re.match(r"--?(no)?config\.", word):
            raise UserError(
                f"unexpected argument {word!r}; flags are --NAME=VALUE, see --help"
            )
    if flags.help:
        say(_help(flags.config))
        return
    config = _config(flags, overrides)
    # Orbax logs the tracebacks of failed saves. The user gets them as one line, through
    # RunError.
    logging.set_verbosity(logging.FATAL)

    # Imported after the flags, so that mistakes in them are reported at once.
    import jax

    _use_compilation_cache(jax)
    if flags.cpu_devices:
        jax.config.update("jax_num_cpu_devices", flags.cpu_devices)
    # On a TPU slice and under SLURM, JAX finds the coordinator itself.
    is_one_of_several = flags.distributed or flags.coordinator
    if is_one_of_several:
        peers.initialize(
            flags.coordinator, flags.num_processes, flags.process_id, flags.peer_timeout
        )

    from lnrepro.engine import evaluate, expected, kernels, provenance, train, workdir
    from lnrepro.engine.run_config import as_json

    # Processes that differ would compute different numbers, or wait for each other.
    if is_one_of_several:
        peers.agree(
            "command",
            {
                "config": as_json(config),
                "--evaluate": flags.evaluate,
                "the commit": provenance.git_commit(),
                "the version of": provenance.versions(),
                "the setting": provenance.settings(),
                "the number of devices": jax.local_device_count(),
            },
        )
    variant = (flags.config or "").partition(":")[2]
    folder = workdir.default(config, variant)
    if flags.workdir:
        folder = local_path(flags.workdir, "--workdir")
    if flags.check:
        say(expected.check(config, flags.config or "", folder))
    elif flags.autotune:
        kernels.autotune(config, folder)
    elif flags.evaluate:
        evaluate.evaluate(config, folder)
    else:
        train.train(config, folder)


def _config(flags, overrides):
    """Return the config that is given, or that of the run in --workdir."""
    numbers = flags.num_processes, flags.process_id
    if numbers != (None, None) and not flags.coordinator:
        raise UserError("--num_processes and --process_id need --coordinator=HOST:PORT")
    if flags.check and not flags.config:
        raise UserError("--check needs the --config of the run")
    if flags.config and flags.resume:
        raise UserError("--resume takes the config of the run; leave --config out")
    if flags.config:
        return config_file.read(flags.config, overrides)
    if not flags.resume and not flags.evaluate:
        there = ", ".join(config_file.configs()) or "no configs here"
        raise UserError(f"--config is missing; there are {there}")
    if not flags.workdir:
        raise UserError(
            "--resume and --evaluate without --config need --workdir, a run directory"
        )
    if overrides:
        raise UserError(f"{overrides[0]}: a run keeps its config; leave this out")

    from lnrepro.engine import loaded_run

    return loaded_run.load_model(flags.workdir).config


def _help(config):
    """Return the text of --help, or of --help --config=FILE."""
    if config:
        from lnrepro.engine import config_help

        return config_help.text(config)
    lines = [parser().format_help(), "configs:"]
    lines += [f"  {path}" for path in config_file.configs()]
    return "\n".join(lines)


def _use_compilation_cache(jax):
    """Keep compiled programs between runs.

    The folder is JAX_COMPILATION_CACHE_DIR if that is set. It is the user's, may hold
    other programs and has no limit.
    """
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    # A pointer, other in each process, stands in programs whose kernels are split
    # over devices. What it points at is told by a digest (functional/fast/gpu).
    jax.config.update("jax_remove_custom_partitioning_ptr_from_cache_key", True)
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    except RuntimeError:
        # A user without a home folder, as in a container: nothing is kept.
        return
    folder = pathlib.Path(caches) / "lnrepro" / "xla"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
      argv: the program's name and its arguments; None takes sys.argv.

    Returns:
      The exit code, see `errors.exit_code`.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # `experiments` and `configs` are those of the current directory.
    if sys.path[:1] != [os.getcwd()]:
        sys.path.insert(0, os.getcwd())

    def run_here():
        # An orderly end would wait for a process that is gone.
        try:
            run(sys.argv if argv is None else argv)
        except Exception as e:
            peers.end_if_lost(e)
            raise

    return exit_code(run_here, "training")


if __name__ == "__main__":
    code = main()
    if code:
        peers.leave(code)
    sys.exit(code)
