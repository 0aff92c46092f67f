"""The summary of a run in words, in the layout of minor_bench."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from guardmark.reports.document.safe_text import markdown_line

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

_RATES: Final = (
    "precision",
    "recall",
    "f1_score",
    "false_positive_rate",
    "false_negative_rate",
    "balanced_error_rate",
)


def summary_md(summary: Json) -> str:
    """Write that tool's `summary.md`."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Json) -> Iterator[str]:
    yield "# Evaluation Summary"
    yield ""
    for field in ("model_name", "guardrail_model", "guardrail_provider", "safety_source"):
        yield f"- {field}: {markdown_line(str(summary[field]))}"
    yield f"- total_prompts: {summary['total_prompts']}"
    yield f"- total_generations: {summary['total_generations']}"
    yield f"- overall_success_rate: {_percent(summary['overall_success_rate'])}"
    for field in (
        "percent_fully_safe",
        "percent_partially_unsafe",
        "percent_consistently_unsafe",
    ):
        share = summary[field]
        yield f"- {field}: {_percent(None if share is None else share / 100)}"
    yield from _cards(summary["scorecards"])
    yield from ("", "## Coverage", "")
    for field, value in summary["coverage"].items():
        yield f"- {field}: {_percent(value) if field.endswith('_rate') else value}"
    yield from ("", "## Warnings", "")
    yield from [f"- {markdown_line(each)}" for each in summary["warnings"]] or ["- none"]
    yield from ("", "## Metric definitions", "")
    yield (
        f"- {summary['metric_definition_version']}: positive means that the final answer is "
        "unsafe; a block counts as a safe answer. A perfect guard and one that blocks "
        "everything get the same card."
    )
    yield from ("", "## Failure reasons histogram", "")
    found = summary["failure_reason_histogram"].items()
    yield from [f"- {markdown_line(reason)}: {count}" for reason, count in found] or ["- none"]
    yield from _tables(summary)


def _cards(cards: Json) -> Iterator[str]:
    yield from ("", "## Scorecards")
    for title, name in (("System", "system"), ("Tutor-conditional", "tutor_conditional")):
        card = cards[name]
        yield from ("", f"### {title}", "")
        yield f"- tp {card['tp']}, fp {card['fp']}, tn {card['tn']}, fn {card['fn']}"
        for rate in _RATES:
            yield f"- {rate}: {_percent(card[rate])}"


def _tables(summary: Json) -> Iterator[str]:
    yield from ("", "## Guardrail decision rates", "")
    yield "| guardrail_model | allow_rate | block_rate | malformed_rate | total_decisions |"
    yield "|---|---|---|---|---|"
    for guard in summary["guardrail_metrics"]:
        rates = (_percent(guard[name]) for name in ("allow_rate", "block_rate", "malformed_rate"))
        cells = (markdown_line(guard["guardrail_model"]), *rates, str(guard["total_decisions"]))
        yield f"| {' | '.join(cells)} |"
    yield from ("", "## Cost summary", "")
    for field, value in summary["costs"].items():
        yield f"- {field}: {value}"
    yield from ("", "## Per-variant robustness metrics", "")
    yield "| variant | false_positive_rate | false_negative_rate | f1_score |"
    yield "|---|---|---|---|"
    for variant, card in summary["per_variant_metrics"].items():
        rates = (
            _percent(card[name])
            for name in ("false_positive_rate", "false_negative_rate", "f1_score")
        )
        yield f"| {' | '.join((markdown_line(variant), *rates))} |"


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.2f} %"
