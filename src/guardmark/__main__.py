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
        from guardmark.cli import main as carry_out
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Answers so far are saved.\n")
        sys.exit(130)
    carry_out()


if __name__ == "__main__":
    main()
