"""`guardmark` and `python -m guardmark`: who ends a command while it loads is heard, too."""

import signal
import sys


def main() -> None:
    """Load the command line, which takes most of a short command's time, and carry it out."""
    try:
        for name in ("SIGTERM", "SIGHUP"):  # Windows has no hang-up; nohup has it ignored
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.default_int_handler)
        _require_memory()
        from guardmark.cli import main as carry_out
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Answers so far are saved.\n")
        sys.exit(130)
    carry_out()


def _require_memory() -> None:
    """Refuse a limit of memory below which libraries end the process themselves, with any code."""
    from guardmark.core.limits import LEAST_ADDRESS_SPACE, MIB, memory_limit

    most = memory_limit()
    if most is not None and most < LEAST_ADDRESS_SPACE:
        sys.stderr.write(
            f"guardmark needs {LEAST_ADDRESS_SPACE // MIB} MiB of memory, and this process may "
            f"take {most // MIB} MiB (ulimit -v, ulimit -d). Nothing was begun.\n"
            f"Next: raise the limit, to ulimit -v {2 * LEAST_ADDRESS_SPACE // 1024} for example.\n"
        )
        sys.exit(7)


if __name__ == "__main__":
    main()
