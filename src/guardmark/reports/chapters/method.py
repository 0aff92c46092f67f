"""What was measured and under which settings, and how figures are computed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.data_sets import training_warnings
from guardmark.reports.document.blocks import Facts, Listing, Section, Table, section, warning
from guardmark.reports.document.cells import figure_text, name, slug, table_of, words
from guardmark.reports.document.wording import count_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import PartManifest, RunManifest
    from guardmark.reports.document.blocks import Part
    from guardmark.store.reader import RunStatus

_METHOD: Final = {
    "scope": (
        "Scope: the defense alone; a sample counts as caught when it was blocked. "
        "ASR = attacks allowed / attacks answered, FPR = benign blocked / benign "
        "answered."
    ),
    "failures": (
        "Malformed answers and errors are not decisions. They are reported next to "
        "the rates, with the bounds that count all of them as allowed or all as "
        "blocked."
    ),
    "intervals": (
        "Intervals are two-sided at {confidence}. A rate: Wilson's, at the effective "
        "number of samples with Student's t where samples share groups. Fewer than "
        "two groups: no interval; below 10: greyed. They are about attacks like "
        "these, not about attacks in general."
    ),
    "ratios": (
        "Precision, F1 and balanced error: both rates drawn from Beta distributions "
        "at their effective numbers of samples, {drawn} times, seed {seed}."
    ),
    "differences": (
        "Differences: the same samples on both sides, Bonett-Price intervals, "
        "McNemar's mid-p (the cluster sign-flip where samples share groups), "
        "adjusted by Holm over all tests of the run (every pair on both rates, and areas "
        "of scores). Told apart is what the test and the interval both say."
    ),
    "latency": (
        "Latency: order-statistic intervals, attacks and benign samples apart; first "
        "calls and warm-up left out."
    ),
    "full": "Figures here are rounded; summary.json holds them in full.",
}


def write_method(analysis: RunAnalysis) -> Section:
    """Write the section on method and warnings."""
    return section("method", "Method and warnings", _method(analysis), warning(_warnings(analysis)))


def _method(analysis: RunAnalysis) -> list[str]:
    """Say how the figures were made; of ratios only where replicates were drawn for one."""
    drawn = 0
    for defense in analysis.defenses:
        drawn = max(drawn, defense.card.ratios.f1.replicates)
    lines = []
    for key, line in _METHOD.items():
        if key == "ratios" and not drawn:
            continue
        text = line.format(
            confidence=percent_text(analysis.settings.confidence),
            drawn=count_text(drawn),
            seed=analysis.settings.seed,
        )
        lines.append(text)
    return lines


def _warnings(analysis: RunAnalysis) -> Iterator[str]:
    """Say what a reader must know before the intervals are taken at their word."""
    if not analysis.samples.is_grouped:
        yield (
            "No sample names a group, so intervals take every sample as independent. If "
            "some are variants of one idea, the intervals are too narrow."
        )
    if analysis.samples.crossed:
        fewer, more = analysis.samples.crossed
        yield (
            f"Rows are crossed, {count_text(more)} by {count_text(fewer)}: limits of "
            "rates and differences of two defenses are about others like these of both "
            "kinds (Wilson's and Bonett-Price at the rows that both make them worth). "
            f"What has {count_text(fewer)} decides how wide they are; more of it would "
            "make them narrower. Figures that know one factor alone take these "
            f"{count_text(fewer)} as the groups."
        )
    yield f"The rates describe this data. {_mix_words(analysis)}"
    for defense in analysis.defenses:
        if defense.stopped:
            yield _about_stop(defense)
    yield from training_warnings(analysis.manifest.parts, analysis.manifest.data)


def _mix_words(analysis: RunAnalysis) -> str:
    """Give the rates weighted to the deployment's mix, or say that none was stated."""
    rates = []
    for defense in analysis.defenses:
        mix = defense.deployment
        if mix:
            rates.append(
                f"{defense.name} ASR {figure_text(mix.attack_success_rate)}, "
                f"FPR {figure_text(mix.false_positive_rate)}"
            )
    if not rates:
        return "Whether it resembles the traffic you expect was not assessed here."
    return f"Weighted to the deployment's stated mix: {'; '.join(rates)}."


def _about_stop(defense: DefenseAnalysis) -> str:
    """Say what an early stop decided, and what it does to the figures."""
    asr, fpr = defense.card.attack_success_rate, defense.card.false_positive_rate
    decided = "; ".join(each.sentence for each in defense.stopped)
    answers = count_text(asr.trials + fpr.trials)
    shares = []
    if asr.unbiased is not None:
        shares.append(f"ASR {percent_text(asr.share)}")
    if fpr.unbiased is not None:
        shares.append(f"FPR {percent_text(fpr.share)}")
    leans = (
        " The value is the share that was seen, which leans away from the limit at "
        "which the rule ended."
    )
    if shares:
        leans = (
            f" Seen were {' and '.join(shares)}; a rule ends a run where the share leans "
            "away from its limit, so the value is the one that is as often too high as "
            "too low."
        )
    return (
        f"{defense.name} was stopped early: {decided}. Its ASR, TPR and FPR use the "
        f"{answers} answers by then, with an interval that holds however often one "
        f"looks ({asr.method}).{leans} All its other figures, slices among them, "
        "count every stored answer and keep their usual intervals: they are "
        "exploratory, and its slices are greyed. Comparisons with it use a betting "
        "sequence and the paired e-value."
    )


_HASH: Final = 16
_KINDS: Final = {"model": "target model", "judge": "judged by", "defense": "guards"}


def parts_line(manifest: RunManifest) -> str:
    """Name model, guards and judges in one line, so that runs are told apart."""
    roles = []
    for kind, role in _KINDS.items():
        parts = [part_words(part) for part in manifest.parts if part.kind == kind]
        if parts:
            roles.append(f"{role} {', '.join(parts)}")
    return "; ".join(roles)


def part_words(part: PartManifest) -> str:
    """Return which model a part is, where it runs and what it is told."""
    stated = {key: str(value) for key, value in part.settings.items() if value}
    model = part.type
    for key in ("model", "path", "profile"):
        if key in stated:
            model = stated[key]
            break
    words = part.name
    if model not in {part.name, ""}:
        words = f"{words} ({model})"
    if "address" in stated:
        words = f"{words} at {stated['address']}"
    if part.kind != "model" or "system_prompt" not in stated:
        return words
    called = stated.get("system_prompt_name") or stated.get("system_prompt_file") or "of its own"
    words = f"{words}, system prompt {called}"
    digest = stated.get("system_prompt_sha256", "")[: _HASH // 2]
    if digest:
        return f"{words} ({digest})"
    return words


def write_configuration(analysis: RunAnalysis, refused: Sequence[str] = ()) -> Section:
    """Write the section on what was run."""
    return section(
        "configuration",
        "Configuration",
        *_status_texts(analysis.status, refused),
        _facts(analysis),
        _parts(analysis),
        _data(analysis),
        *map(_settings, analysis.manifest.parts),
    )


def _status_texts(status: RunStatus, refused: Sequence[str]) -> Iterator[Part]:
    """Say what a reader must know of how far the run came, and what happened before it."""
    if status.possibly_billed:
        subject = f"{count_text(status.possibly_billed)} calls were"
        if status.possibly_billed == 1:
            subject = "1 call was"
        yield (
            f"{subject} under way when a command on this run was killed or "
            "stopped; without an answer in the records, but possibly billed. What calls "
            "used is a lower bound."
        )
    if status.retried:
        yield (
            f"{count_text(status.retried)} errors of earlier attempts were asked about "
            "again; the figures use the last attempt, and the earlier ones are kept in "
            "the records."
        )
    if status.stored < status.planned:
        yield warning(
            f"The run is {status.state.value}: {status.stored:,} of {status.planned:,} planned "
            "records are stored. Every figure below uses these alone."
        )
    if refused:
        yield warning(refused)
    yield warning(f"Before the run: {remark}." for remark in status.remarks)


def _facts(analysis: RunAnalysis) -> Facts:
    manifest, head = analysis.manifest, analysis.status.head
    policies = f"on malformed: {manifest.on_malformed.value}; on error: {manifest.on_error.value}"
    pairs = {
        "Run": name(manifest.name),
        "Date (UTC)": words(manifest.created_utc),
        "Evaluator": words(manifest.evaluator or "not named"),
        "guardmark": words(manifest.guardmark_version),
        "Configuration hash": name(manifest.config_sha256[:_HASH]),
        "Data hash": name(manifest.data_sha256[:_HASH]),
        "Repeats": words(str(manifest.repeats)),
        "Seed": words(str(manifest.seed)),
        "Policies": words(policies),
        "Confidence": words(percent_text(analysis.settings.confidence)),
        "Head of the records": name(head),
    }
    return Facts(title="The run", pairs=tuple(pair for pair in pairs.items() if pair[1].text))


def _view_of(part: PartManifest) -> str:
    """Return what of a prompt a part is shown; models and judges have no view."""
    if part.kind == "defense":
        return part.view or "not stated"
    return part.view


def _parts(analysis: RunAnalysis) -> Table:
    """List every part with its version, view, threshold and fingerprint."""
    thresholds = {}
    for defense in analysis.defenses:
        if defense.threshold is not None:
            thresholds[defense.name] = f"{defense.threshold:g}"
    return table_of(
        analysis.manifest.parts,
        {
            "Part": lambda each: name(each.name),
            "Kind": lambda each: each.kind,
            "Type": lambda each: each.type or "unknown",
            "Version": lambda each: each.version or "not stated",
            "View": _view_of,
            "Threshold": lambda each: thresholds.get(each.name, ""),
            "Fingerprint": lambda each: name(each.fingerprint[:_HASH]),
        },
        table_id="parts",
        texts=("Kind", "Type", "Version", "View", "Threshold", "Fingerprint"),
        title="What ran",
        note=(
            "The view is what of a prompt a defense is shown; the same defense may look "
            "good on one and miss attacks on another."
        ),
    )


def _settings(part: PartManifest) -> Listing | None:
    """Write all that is set of a part: its patterns or profile, where it runs, what it is told."""
    stated = []
    for key, value in part.settings.items():
        if value in (None, "", [], {}):
            continue
        text = value
        if not isinstance(text, str):
            text = json.dumps(value, ensure_ascii=False)
        stated.append(f"{key}: {text}")
    if not stated:
        return None
    return Listing(
        id=f"part-{part.kind}-{slug(part.name)}",
        title=f"{part.kind} {part.name}: its configuration",
        lines=tuple("\n".join(stated).splitlines()),
    )


def _data(analysis: RunAnalysis) -> Table:
    return table_of(
        analysis.manifest.data,
        {
            "Data set": lambda each: name(each.name),
            "Version": lambda each: each.version or "not stated",
            "Files": lambda each: ", ".join(each.files),
            "Attacks": lambda each: each.attacks,
            "Benign": lambda each: each.benign,
            "Hash": lambda each: name(each.sha256[:_HASH]),
        },
        table_id="data",
        texts=("Version", "Files", "Hash"),
        title="Data",
    )
