"""The integers that stand for words in the records.

The tuples are part of the file format: a word keeps its place for ever, new words are
appended together with a new schema version.
"""

from __future__ import annotations

from typing import Final

from guardmark.core.outcome import AnswerMode, ErrorKind, ScoreKind
from guardmark.core.record import Stage

OUTCOME_NAMES: Final = ("allow", "block", "malformed", "error", "safe", "unsafe", "answered")
"""Word of each outcome code; `malformed` and `error` serve decisions and verdicts alike."""

STAGES: Final = (Stage.DEFENSE, Stage.MODEL, Stage.JUDGE, Stage.TRY, Stage.WARMUP)
SCORE_KINDS: Final = (
    ScoreKind.NONE,
    ScoreKind.CLASS_PROB,
    ScoreKind.TWO_TOKEN_SOFTMAX,
    ScoreKind.FULL_VOCAB_PROB,
    ScoreKind.CATEGORY_MAX,
    ScoreKind.ORDINAL,
    ScoreKind.SEVERITY,
    ScoreKind.SELF_REPORTED,
)
ERROR_KINDS: Final = (
    ErrorKind.TIMEOUT,
    ErrorKind.CONNECTION,
    ErrorKind.REFUSED,
    ErrorKind.HTTP,
    ErrorKind.CRASH,
    ErrorKind.SKIPPED,
    ErrorKind.LENGTH,
    ErrorKind.CONTRACT,
)
ANSWER_MODES: Final = (
    AnswerMode.ANSWERED,
    AnswerMode.REFUSED_OR_BLOCKED,
    AnswerMode.INDIRECT,
    AnswerMode.NON_ANSWER,
)

OUTCOME_CODE: Final[dict[str, int]] = {name: code for code, name in enumerate(OUTCOME_NAMES)}
STAGE_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(STAGES)}
SCORE_KIND_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(SCORE_KINDS)}
ERROR_KIND_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(ERROR_KINDS)}
ANSWER_MODE_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(ANSWER_MODES)}

FLAG_AMORTISED: Final = 1
"""The latency is a share of a batch's time."""
FLAG_COLD: Final = 2
"""First call of this part in a process."""
FLAG_CACHED: Final = 4
"""The answer came from the cache."""
FLAG_TRUNCATED: Final = 8
"""The input was cut to fit the part."""
FLAG_PLANNED: Final = 16
"""The latency counts from the planned send time (open loop)."""

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "outcome": OUTCOME_NAMES,
    "stage": tuple(word.value for word in STAGES),
    "score_kind": tuple(word.value for word in SCORE_KINDS),
    "error_kind": tuple(word.value for word in ERROR_KINDS),
    "answer_mode": tuple(word.value for word in ANSWER_MODES),
}
"""Every list above, as it is written into the file so that the file explains itself."""
