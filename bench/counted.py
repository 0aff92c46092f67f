"""Run a guardmark command, and say at the end of standard error how many functions it called.

`python bench/counted.py WORD...`; with `GUARDMARK_CALLS=FILE` the profile is kept in that file.
Figures of latency are left out: how far the report looks into times depends on the times, so that
two runs alike differ by some 50,000 calls there.
"""

from __future__ import annotations

import cProfile
import os
import sys
from functools import wraps
from time import process_time
from typing import TYPE_CHECKING, Any

from guardmark.analysis.defense import latency
from guardmark.cli import main
from guardmark.stats import quantiles

if TYPE_CHECKING:
    from collections.abc import Callable

# CPU time: on a busy machine the clock on the wall says little.
profile = cProfile.Profile(process_time)
within: list[Callable[..., Any]] = []  # calls under way that are not counted


def _uncounted(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        within.append(function)
        profile.disable()
        try:
            return function(*given, **named)
        finally:
            within.pop()
            if not within:  # one of them calls the other
                profile.enable()

    return call


# Before any module of the reports takes these names over.
quantiles.ranks_of = _uncounted(quantiles.ranks_of)
latency.measure_latency = _uncounted(latency.measure_latency)
code: object = 0
profile.enable()
try:
    main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
finally:
    profile.disable()
if kept := os.environ.get("GUARDMARK_CALLS"):
    profile.dump_stats(kept)
print(sum(entry.callcount for entry in profile.getstats()), file=sys.stderr)
sys.exit(code if isinstance(code, int | None) else 1)
