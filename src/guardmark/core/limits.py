"""How much something may hold that somebody else wrote: one number for each thing.

Configuration, data, imports, answers and run folders read their limits here. `TABLE` states them
in words; `docs/reference/limits.md` is written from it by `scripts/write_limits.py`.
"""

from __future__ import annotations

from typing import Final

from guardmark.core.values import dataclass

MIB: Final = 1 << 20

LEAST_ADDRESS_SPACE: Final = 256 * MIB
MOST_TEXT_BYTES: Final = 64 * MIB
MOST_PROGRAM_BYTES: Final = 4 * MIB
MOST_YAML_VALUES: Final = 200_000
LONGEST_NUMBER: Final = 400
MOST_DEFENSES: Final = 500
MOST_PREVALENCES: Final = 100
MOST_REPEATS: Final = 10_000
HIGHEST_CONFIDENCE: Final = 0.999999
LEAST_MARGIN: Final = 1e-6
LONGEST_WAIT_S: Final = 86_400.0
MOST_MISTAKES: Final = 5
LONGEST_MISTAKE: Final = 300

LONGEST_DATA_LINE: Final = 64 * MIB
LONGEST_HEADER: Final = 1 * MIB
MOST_IMAGE_BYTES: Final = 20 * MIB
LONGEST_SAMPLE_NAME: Final = 10_000

MOST_IMPORTED_BYTES: Final = 1 << 30
MOST_DECISION_BYTES: Final = 256 * MIB
MOST_WEIGHT_BYTES: Final = 256 * MIB

USUAL_ANSWER_MIB: Final = 8
MOST_ANSWER_MIB: Final = 32  # a line of a cassette holds an answer
MOST_VALUES_OF_AN_ANSWER: Final = 100_000
MOST_CALLS_OF_AN_ANSWER: Final = 100
MOST_SEARCHED_VALUES: Final = 20_000
MOST_SEARCHED_LEVELS: Final = 100
LONGEST_CASSETTE_LINE: Final = 64 * MIB

LONGEST_NAME: Final = 1_000
MOST_LAYERS: Final = 2_000
MOST_PARTS: Final = 2_000
MOST_DECLARED_CATEGORIES: Final = 10_000
MOST_DESCRIPTION_BYTES: Final = 1 * MIB
MOST_ATTEMPTS: Final = 1_000
MOST_CATEGORIES: Final = 2_000
LONGEST_EVIDENCE: Final = 16 * MIB
LONGEST_MANIFEST: Final = 16 * MIB
MOST_SEAL_BYTES: Final = 16 * MIB
MOST_LOG_BYTES: Final = 64 * MIB
MOST_SUMMARY_BYTES: Final = 64 * MIB
MOST_SIGNATURE_BYTES: Final = 16 << 10
MOST_CARD_BYTES: Final = 8 * MIB
MOST_CARDS: Final = 2_000
MOST_PUBLISHED_BYTES: Final = 16 * MIB


def memory_limit() -> int | None:
    """Return how many bytes of address space this process may take, or None without a limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    limits = [resource.getrlimit(kind)[0] for kind in kinds]
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One line of the table of limits.

    Attributes:
        what: What is limited.
        most: The limit, as people write it.
        read_by: What reads it: every command, configuration, data, imports, answers or run folders.
    """

    what: str
    most: str
    read_by: str


def _mib(size: int) -> str:
    return f"{size // MIB:,} MiB"


def _of(read_by: str, *limits: tuple[str, str]) -> tuple[Limit, ...]:
    return tuple(Limit(what=what, most=most, read_by=read_by) for what, most in limits)


TABLE: Final = (
    *_of(
        "every command",
        ("address space (`ulimit -v`) or data (`ulimit -d`), at least", _mib(LEAST_ADDRESS_SPACE)),
    ),
    *_of(
        "configuration",
        (
            "a configuration, rubric, policy or list, each read whole, from a pipe too",
            _mib(MOST_TEXT_BYTES),
        ),
        ("a Python file that a target names", _mib(MOST_PROGRAM_BYTES)),
        ("values of a YAML file, aliases counted each time", f"{MOST_YAML_VALUES:,}"),
        ("characters of a number in YAML", f"{LONGEST_NUMBER}"),
        ("defenses", f"{MOST_DEFENSES}"),
        ("values of `stats.prevalence`", f"{MOST_PREVALENCES}"),
        ("`stats.confidence`", f"{HIGHEST_CONFIDENCE:f}"),
        (
            "`stats.margin`, `stats.non_inferiority_margin` and margins of commands, at least",
            f"{LEAST_MARGIN:f}",
        ),
        ("time between two calls that a `rate` may lead to", f"{LONGEST_WAIT_S / 3600:g} hours"),
        ("repeats of a run", f"{MOST_REPEATS:,}"),
        (
            f"lines of an error about settings, each of at most {LONGEST_MISTAKE} characters",
            f"{MOST_MISTAKES}",
        ),
    ),
    *_of(
        "data",
        (
            "a line of data, of a table or of labels, a JSON document that is read whole",
            _mib(LONGEST_DATA_LINE),
        ),
        ("the header of a table, in data, imports and decisions", _mib(LONGEST_HEADER)),
        ("a YAML data file", _mib(MOST_TEXT_BYTES)),
        ("a file of stored decisions", _mib(MOST_DECISION_BYTES)),
        ("a file of fitted weights (`ngram`)", _mib(MOST_WEIGHT_BYTES)),
        ("an image", _mib(MOST_IMAGE_BYTES)),
        (
            "characters of an id, a group, a category or another facet of a sample",
            f"{LONGEST_SAMPLE_NAME:,}",
        ),
    ),
    *_of("imports", ("a file of another tool, as it is and unpacked", _mib(MOST_IMPORTED_BYTES))),
    *_of(
        "answers",
        (
            f"an answer of a service (`max_answer_mib`, at most {MOST_ANSWER_MIB} MiB)",
            _mib(USUAL_ANSWER_MIB * MIB),
        ),
        (
            "commas and brackets of one answer of a part, or of one line of one that streams",
            f"{MOST_VALUES_OF_AN_ANSWER:,}",
        ),
        (
            f"lines of an answer that streams, for each {USUAL_ANSWER_MIB} MiB of `max_answer_mib`",
            f"{MOST_VALUES_OF_AN_ANSWER:,}",
        ),
        ("calls of tools in one answer of an agent's model", f"{MOST_CALLS_OF_AN_ANSWER}"),
        (
            "values of an answer that a path with `..` or a condition looks through",
            f"{MOST_SEARCHED_VALUES:,}",
        ),
        ("levels of such an answer", f"{MOST_SEARCHED_LEVELS}"),
        ("a line of a cassette or of a trace of tries", _mib(LONGEST_CASSETTE_LINE)),
    ),
    *_of(
        "run folders",
        ("defenses, arms of a pipeline included", f"{MOST_DEFENSES}"),
        ("layers: judgings, seeds of an attack, audits", f"{MOST_LAYERS:,}"),
        ("characters of the name of a defense or a layer", f"{LONGEST_NAME:,}"),
        (
            "characters of an id, a group, a category or another facet of a sample",
            f"{LONGEST_SAMPLE_NAME:,}",
        ),
        ("attempts in the evidence of one record", f"{MOST_ATTEMPTS:,}"),
        ("categories in the evidence of one record", f"{MOST_CATEGORIES:,}"),
        ("the evidence of one record", _mib(LONGEST_EVIDENCE)),
        ("the manifest", _mib(LONGEST_MANIFEST)),
        ("parts in the manifest, and data sets", f"{MOST_PARTS:,}"),
        ("categories that the manifest declares", f"{MOST_DECLARED_CATEGORIES:,}"),
        (
            "`config.resolved.yaml` and `data_manifest.json` that `verify` reads",
            _mib(MOST_DESCRIPTION_BYTES),
        ),
        ("values of prevalence in the manifest", f"{MOST_PREVALENCES}"),
        ("seals that are read", _mib(MOST_SEAL_BYTES)),
        ("a `run.log` that is sealed", _mib(MOST_LOG_BYTES)),
        ("a `summary.json` that `view` reads", _mib(MOST_SUMMARY_BYTES)),
        (
            "signature and key of `verify --public-key` and `card --sign`",
            f"{MOST_SIGNATURE_BYTES >> 10} KiB",
        ),
        ("a card", _mib(MOST_CARD_BYTES)),
        ("cards of a board", f"{MOST_CARDS:,}"),
        ("results that others published, and the memory of a board", _mib(MOST_PUBLISHED_BYTES)),
    ),
)
"""Every limit, in the order of the page."""


def limits_table() -> str:
    """Return the table as it stands in the page."""
    rows = [f"| {limit.what} | {limit.most} | {limit.read_by} |" for limit in TABLE]
    return "\n".join(["| what | limit | read by |", "|---|---|---|", *rows])
