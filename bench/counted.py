"""Run a guardmark command, and say at the end of standard error how many functions it called.

`python bench/counted.py WORD...`; with `GUARDMARK_CALLS=FILE` the profile is kept in that file.
"""

from __future__ import annotations

import cProfile
import os
import sys
from time import process_time

from guardmark.cli import main

# CPU time: on a busy machine the clock on the wall says little.
profile = cProfile.Profile(process_time)
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
