"""Train one config of the paper: python -m lnrepro.main --config=configs/draw.py

    python -m lnrepro.main --config=FILE[:VARIANT] [--config.FIELD=VALUE ...] [flags]

Every config has these variants: none (embedded data, no download, minutes on two
cores), paper (the paper's protocol on the paper's data, see scripts/prepare.py) and
smoke (seconds). The run directory holds config.json, metrics.jsonl, TensorBoard events,
checkpoints/ and artifacts/. The same command resumes an interrupted run.
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

import ast
import importlib.util
import os
import pathlib
import re
import threading

from lnrepro.engine import peers
from lnrepro.errors import UserError, exit_code, not_installed, say

try:
    from absl import flags, logging
    from ml_collections import ConfigDict

    from lnrepro.engine import config_file
    from lnrepro.paths import local_path
except ModuleNotFoundError as e:
    print(not_installed(e, "training"), file=sys.stderr)
    sys.exit(UserError.exit_code)

_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "FILE[:VARIANT], e.g. configs/mnist.py:paper. --config.FIELD=VALUE sets one field.",
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "The run directory; runs/EXPERIMENT/VARIANT-NORM-seedSEED by default.",
)
_EVALUATE = flags.DEFINE_boolean(
    "evaluate", False, "Only evaluate the best checkpoint of --workdir."
)
_CHECK = flags.DEFINE_boolean(
    "check",
    False,
    "Only say whether the finished run in --workdir ends as its config file expects.",
)
_AUTOTUNE = flags.DEFINE_boolean(
    "autotune",
    False,
    "Only measure the kernels of the config's recurrences, for config.kernels = auto.",
)
_RESUME = flags.DEFINE_boolean(
    "resume", False, "Go on with the run in --workdir, with its config."
)
_DEVICES = flags.DEFINE_integer(
    "cpu_devices",
    0,
    "Split the CPU into this many devices, to try several devices.",
    lower_bound=0,
    # Each device has a thread of its own for every core.
    upper_bound=256,
)
_DISTRIBUTED = flags.DEFINE_boolean(
    "distributed",
    False,
    "This is one of several processes, which find each other (TPU, SLURM).",
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "HOST:PORT of process 0; implies --distributed."
)
_PROCESSES = flags.DEFINE_integer(
    "num_processes", None, "Number of processes, with --coordinator.", lower_bound=1
)
_PROCESS = flags.DEFINE_integer(
    "process_id", None, "Number of this process, with --coordinator.", lower_bound=0
)
_TIMEOUT = flags.DEFINE_integer(
    "peer_timeout", 120, "Seconds to wait for the other processes.", lower_bound=1
)
_MODULE = flags.FLAGS.find_module_defining_flag("config")
_FLAGS = flags.FLAGS.get_flags_for_module(_MODULE)
# A flag that is given twice is refused. Otherwise the last one would count.
for _flag in _FLAGS:
    _flag.allow_overwrite = False

HELP_FLAGS = {"--help", "-help", "-h"}
# The compilation cache drops the programs that were not used for longest. A run of
# mnist:small leaves 0.4 MB in it on a CPU, so that this holds thousands of runs.
CACHE_BYTES = 4 * 2**30


def run(argv: list[str]) -> None:
    """Parse the flags, then train or evaluate.

    Raises:
      UserError: something that the user can correct.
      RunError: the run failed.
      Stopped: a signal stopped it.
    """
    config = _parse(argv)
    # Orbax logs the tracebacks of failed saves. The user gets them as one line, through
    # RunError.
    logging.set_verbosity(logging.FATAL)

    # Imported after the flags, so that mistakes in them are reported at once.
    import jax

    _use_compilation_cache(jax)
    if _DEVICES.value:
        try:
            jax.config.update("jax_num_cpu_devices", _DEVICES.value)
        except RuntimeError:
            raise UserError(
                "--cpu_devices: JAX is in use in this process already; start the "
                "trainer in a process of its own"
            ) from None
    if _DISTRIBUTED.value or _COORDINATOR.value:
        peers.initialize(
            _COORDINATOR.value, _PROCESSES.value, _PROCESS.value, _TIMEOUT.value
        )

    from lnrepro.engine import evaluate, expected, provenance, train, workdir
    from lnrepro.engine.run_config import as_json

    if _DISTRIBUTED.value or _COORDINATOR.value:
        peers.agree(
            "command",
            {
                "config": as_json(config),
                "--evaluate": _EVALUATE.value,
                "the commit": provenance.git_commit(),
                "the version of": provenance.versions(),
                "the setting": provenance.settings(),
                "the number of devices": jax.local_device_count(),
            },
        )
    variant = (_CONFIG.value or "").partition(":")[2]
    folder = _workdir() or workdir.default(config, variant)
    if _CHECK.value:
        say(expected.check(config, _CONFIG.value or "", folder))
    elif _AUTOTUNE.value:
        train.autotune(config, folder)
    elif _EVALUATE.value:
        evaluate.evaluate(config, folder)
    else:
        train.train(config, folder)


def _workdir() -> pathlib.Path | None:
    """Return the folder that --workdir names, None without it."""
    if not _WORKDIR.value:
        return None
    return local_path(_WORKDIR.value, "--workdir")


def _parse(argv):
    """Parse the flags and return the config."""
    overrides = _read_flags(argv)
    for holder in (_PROCESSES, _PROCESS):
        if holder.value is not None and not _COORDINATOR.value:
            raise UserError(f"--{holder.name} needs --coordinator=HOST:PORT")
    if _CHECK.value and not _CONFIG.value:
        raise UserError("--check needs the --config of the run")
    if _CONFIG.value and _RESUME.value:
        raise UserError("--resume takes the config of the run; leave --config out")
    if not _CONFIG.value and (_RESUME.value or _EVALUATE.value):
        return _config_of_run(overrides)
    if not _CONFIG.value:
        there = ", ".join(config_file.configs()) or "no configs here"
        raise UserError(f"--config is missing; there are {there}")
    return config_file.read(_CONFIG.value, overrides)


def _read_flags(argv):
    """Parse the flags, those of a --flagfile too; return those of fields."""
    # A notebook may call `main` several times.
    for flag in _FLAGS:
        flag.unparse()
    try:
        words = flags.FLAGS.read_flags_from_files(argv[1:])
        overrides = [word for word in words if re.match(r"--?(no)?config\.", word)]
        others = [word for word in words if word not in overrides]
        rest = flags.FLAGS([argv[0], *others])
    except flags.Error as e:
        raise UserError(" ".join(str(e).split())) from None
    if len(rest) > 1:
        raise UserError(
            f"unexpected argument {rest[1]!r}; flags are --NAME=VALUE, see --help"
        )
    return overrides


def _config_of_run(overrides):
    """Return the config of the run in --workdir."""
    folder = _workdir()
    if not folder:
        raise UserError(
            "--resume and --evaluate without --config need --workdir, a run directory"
        )
    if overrides:
        raise UserError(f"{overrides[0]}: a run keeps its config; leave this out")

    from lnrepro.engine import loaded_run

    return loaded_run.load_model(folder).config


def _help(argv):
    """Return the text of --help, or of --help --config=FILE."""
    _read_flags([word for word in argv if word not in HELP_FLAGS])
    if _CONFIG.value:
        from lnrepro.engine import config_help

        return config_help.text(_CONFIG.value)
    lines = [__doc__, "--help --config=FILE shows the variants and fields of a config."]
    lines += ["", "configs:"]
    for path in config_file.configs():
        source = pathlib.Path(path).read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(source)) or ""
        first_line = docstring.partition("\n")[0]
        lines.append(f"  {path:<32} {first_line}")
    # Its first line is the path of this file.
    described = flags.FLAGS.module_help(_MODULE).partition(":\n")[2]
    return "\n".join([*lines, "", "flags:", described])


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
    # JAX needs filelock for a limit.
    if importlib.util.find_spec("filelock"):
        jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
      argv: the program's name and its arguments; None takes sys.argv.

    Returns:
      The exit code, see `errors.exit_code`.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return exit_code(lambda: _main(sys.argv if argv is None else argv), "training")


def _main(argv):
    """Show the help, or train."""
    # `experiments` and `configs` are those of the current directory.
    if sys.path[:1] != [os.getcwd()]:
        sys.path.insert(0, os.getcwd())
    if not HELP_FLAGS.isdisjoint(argv):
        say(_help(argv))
        return
    try:
        run(argv)
    except AttributeError as e:
        if not isinstance(e.obj, ConfigDict):
            raise
        # The experiment reads it.
        there = ", ".join(e.obj)
        raise UserError(
            f"the config has no field {e.name!r} (beside {there}); add it to the "
            "config file"
        ) from e
    except Exception as e:
        peers.end_if_lost(e)
        raise


def _exit(code):
    """Exit, and after a failure without waiting for threads.

    When a save fails, Orbax's threads may wait for each other for many minutes, and
    Python waits for them.
    """
    if code:
        sys.stdout.flush()
        sys.stderr.flush()
        peers.leave(code)
    threads = [t for t in threading.enumerate() if t is not threading.main_thread()]
    if code and not all(t.daemon for t in threads):
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _exit(main())
