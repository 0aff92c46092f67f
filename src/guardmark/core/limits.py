"""How much a file may hold that somebody else wrote: one number for each thing, told in one page.

`docs/reference/limits.md` names each of them; a test holds the page against this file.
"""

from __future__ import annotations

from typing import Final

MOST_TEXT_BYTES: Final = 64 << 20  # of a configuration, a rubric, a policy, a list: read whole
MOST_DEFENSES: Final = 500  # of a configuration
MOST_PREVALENCES: Final = 100  # values of stats.prevalence
LEAST_MARGIN: Final = 1e-6  # of stats.margin and stats.non_inferiority_margin
MOST_MISTAKES: Final = 5  # lines of one error, the last one counts the others
LONGEST_MISTAKE: Final = 300  # characters of one of these lines
LONGEST_NUMBER: Final = 400  # characters of a number in YAML
MOST_VALUES_OF_AN_ANSWER: Final = 100_000  # commas and brackets of the body of one answer
MOST_SEARCHED_VALUES: Final = 20_000  # values of an answer that a path with .. or [?] looks through
MOST_SEARCHED_LEVELS: Final = 100  # levels of lists and objects that such a path looks through
LONGEST_WAIT_S: Final = 86_400.0  # between two calls of a rate
