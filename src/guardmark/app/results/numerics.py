"""Loading numpy for reports without waking a thread for every core."""

from __future__ import annotations

import os
import sys

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy_for_reports() -> None:
    """Import numpy with one linear-algebra thread, unless it is loaded already.

    OpenBLAS starts a thread for every core as numpy is imported; a report multiplies no
    matrices, and on two cores the idle threads cost a tenth of a short run. Only for a process
    that asks no defense any more: a defense that is measured keeps every thread it would have
    without us, since its own import of numpy comes first.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401, ICN001 - for its effect: the threads are chosen here
    finally:
        del os.environ[_THREADS]
