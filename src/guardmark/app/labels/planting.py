"""The verb `judge --quality`: signs of an unreliable judge, and judges shown planted answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.pipeline.frame import judge_layers
from guardmark.analysis.pipeline.injection import read_injection
from guardmark.analysis.pipeline.judges import JudgesAssessed, assess_judge
from guardmark.analysis.settings import AnalysisSettings
from guardmark.app.labels.judging import (
    limit_session,
    load_judges,
    plan_of_judging,
    tell_of_a_kill,
)
from guardmark.app.parts.building import build_judges, close_parts, open_services
from guardmark.app.results.opened_run import find_run
from guardmark.app.results.reporting import report
from guardmark.app.run.run_folder import utc_text
from guardmark.engine.execution.process import keep_working_directory, run_on_loop
from guardmark.engine.planted import ask_about_planted
from guardmark.engine.probing import probe_judge
from guardmark.reports.chapters.judge_quality import quality_document
from guardmark.reports.render.json.documents import figures_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.seals import note_seals
from guardmark.store.spent import SPENT, keep_spending

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.run.running import Session
    from guardmark.engine.plan import BuiltPart


def ask_planted_answers(run: Path, config: Path, session: Session) -> tuple[str, ...]:
    """Show the judges of a configuration planted answers, and keep what they say; return notes."""
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        manifest = reader.manifest()
    loaded = load_judges(config, manifest, announce=session.announce)
    limit_session(loaded, session)
    with (
        folder.lock(started=utc_text(session.now)),
        RecordWriter(folder.records) as writer,
        keep_spending(folder.file(SPENT), session.meter) as has_spent,
    ):
        tell_of_a_kill(writer, session, has_spent=has_spent)
        with keep_working_directory():
            work = _ask_each(writer, loaded, session)
            notes = run_on_loop(work, uvloop=bool(loaded.config.run.uvloop))
    report(folder.path)
    return notes


async def _ask_each(
    writer: RecordWriter, loaded: LoadedConfig, session: Session
) -> tuple[str, ...]:
    services = open_services(loaded, meter=session.meter)
    parts: list[BuiltPart] = []
    notes: list[str] = []
    try:
        parts.extend(build_judges(loaded, services))
        for built in parts:
            notes += await probe_judge(built)
        for built in parts:
            session.announce(f"Showing planted answers to the judge {built.manifest.name}")
            plan = plan_of_judging(loaded, built, session)
            layer = await ask_about_planted(plan, writer, judge=built.part, stop=session.stop)
            if layer is None:
                break
    finally:
        await close_parts((built.part for built in parts), services)
    return tuple(notes)


def report_quality(run: Path) -> JudgesAssessed:
    """Look for signs that a judge of a run is not to be trusted; nothing is called."""
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        layers, people = judge_layers(reader)
        judged = [layer for layer in layers if layer not in people]
        planted = read_injection(reader, AnalysisSettings.of(reader.manifest()).confidence)
        wanted = judged if judged or planted else ["run"]
        assessed = JudgesAssessed(
            judges=tuple(assess_judge(reader, layer) for layer in wanted), planted=planted
        )
    folder.write_text("judge_quality.json", figures_json(assessed))
    folder.write_text("judge_quality.md", render_markdown(quality_document(assessed)))
    note_seals(folder.path)
    return assessed
