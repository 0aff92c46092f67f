"""What was measured and under which settings, and how figures are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import Facts, Section, Table, section, warning
from guardmark.reports.document.cells import name, table_of, words
from guardmark.reports.document.wording import count_text, percent_text, say, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import PartManifest, RunManifest


def write_method(analysis: RunAnalysis) -> Section:
    """Write the section on method and warnings."""
    return section("method", "Method and warnings", _method(analysis), warning(_warnings(analysis)))


def _method(analysis: RunAnalysis) -> list[str]:
    drawn = max((each.card.ratios.f1.replicates for each in analysis.defenses), default=0)
    figures = {
        "confidence": percent_text(analysis.settings.confidence),
        "drawn": count_text(drawn),
        "seed": analysis.settings.seed,
    }
    lines = words_of("method").items()
    return [line.format(**figures) for key, line in lines if drawn or key != "ratios"]


def _warnings(analysis: RunAnalysis) -> Iterator[str]:
    if not analysis.samples.is_grouped:
        yield (
            "No sample names a group, so intervals take every sample as independent. If some "
            "are variants of one idea, the intervals are too narrow."
        )
    yield f"The rates describe this data. {_mix_words(analysis)}"
    yield from (_about_stop(each) for each in analysis.defenses if each.stopped)


def _mix_words(analysis: RunAnalysis) -> str:
    weighted = [(each.name, each.deployment) for each in analysis.defenses if each.deployment]
    if not weighted:
        return "Whether it resembles the traffic you expect was not assessed here."
    rates = "; ".join(
        f"{name} ASR {percent_text(mix.attack_success_rate.value)} (worth "
        f"{count_text(round(mix.worth_attacks))} attacks), FPR "
        f"{percent_text(mix.false_positive_rate.value)} (worth "
        f"{count_text(round(mix.worth_benign))} benign samples)"
        for name, mix in weighted
    )
    return f"Weighted to the deployment's stated mix, without interval: {rates}."


def _about_stop(defense: DefenseAnalysis) -> str:
    asr, fpr = defense.card.attack_success_rate, defense.card.false_positive_rate
    decided = "; ".join(each.sentence for each in defense.stopped)
    return say(
        "stopped",
        defense=defense.name,
        decided=decided,
        answers=count_text(asr.trials + fpr.trials),
        method=asr.method,
    )


_HASH = 16


def parts_line(manifest: RunManifest) -> str:
    """Name model, system prompt, judges and guards in one line, so that runs are told apart."""
    named = [
        f"{_KINDS[part.kind]} {_part_words(part)}" for part in manifest.parts if part.kind in _KINDS
    ]
    return "; ".join(named)


_KINDS: Final = {"model": "target model", "judge": "judged by"}


def _part_words(part: PartManifest) -> str:
    """Return which model a part is, where it runs and what it is told."""
    stated = {key: str(value) for key, value in part.settings.items() if value}
    model = next((stated[key] for key in ("model", "path", "profile") if key in stated), part.type)
    words = model if model == part.name else f"{part.name} ({model})"
    prompt = next(
        (stated[key] for key in ("system_prompt_name", "system_prompt_file") if key in stated),
        "of its own" if "system_prompt" in stated else "",
    )
    return f"{words}, system prompt {prompt}" if prompt else words


def write_configuration(analysis: RunAnalysis) -> Section:
    """Write the section on what was run."""
    status = analysis.status
    calls = count_text(status.possibly_billed)
    billed = say("billed", calls=calls, were=" was" if calls == "1" else "s were")
    retried = say("retried", count=count_text(status.retried))
    partial = say("partial", run=status)
    return section(
        *("configuration", "Configuration"),
        billed if status.possibly_billed else None,
        retried if status.retried else None,
        warning(partial) if status.stored < status.planned else None,
        *(_facts(analysis), _defenses(analysis), _data(analysis)),
    )


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


def _defenses(analysis: RunAnalysis) -> Table:
    return table_of(
        analysis.defenses,
        {
            "Defense": lambda each: name(each.part.name),
            "Type": lambda each: each.part.type or "unknown",
            "Version": lambda each: each.part.version or "not stated",
            "View": lambda each: each.part.view or "not stated",
            "Threshold": lambda each: "" if each.threshold is None else f"{each.threshold:g}",
            "Fingerprint": lambda each: name(each.part.fingerprint[:_HASH]),
        },
        table_id="defenses",
        texts=("Type", "Version", "View", "Threshold", "Fingerprint"),
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
    )
