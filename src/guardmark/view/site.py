"""The pages and their addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from guardmark.core.errors import GuardmarkError
from guardmark.view.answers import Answers
from guardmark.view.gatekeeper import Gatekeeper, Rules
from guardmark.view.history import history_sections
from guardmark.view.listing import RunFilter, list_runs
from guardmark.view.pages import render_page, render_sections, script, style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from guardmark.view.entries import RunEntry
    from guardmark.view.index import RunIndex

REPORT_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""A report is a file that anybody may have laid there: whatever its script is, it has an origin
of its own, reads no other page and reaches no host. A report's own policy is narrower still."""

_PARTNERS: Final = 8
_MOST_POLLED: Final = 60


def build_site(index: RunIndex, rules: Rules, *, texts: bool = True) -> Gatekeeper:
    """Build the pages over runs."""
    site = _Site(index, texts=texts)
    routes = [
        Route("/", site.all_runs),
        Route("/run/{key}", site.one_run),
        Route("/report/{key}", site.report),
        Route("/compare", site.compare),
        Route("/history", site.history),
        Route("/progress", site.progress),
        Route("/style.css", _style),
        Route("/script.js", _script),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _nothing_here})
    return Gatekeeper(app, rules)


class _Site:
    """Answers requests; every method runs in a thread of its own."""

    def __init__(self, index: RunIndex, *, texts: bool) -> None:
        self._index = index
        self._answers = Answers(index, texts=texts)

    def all_runs(self, request: Request) -> Response:
        said = request.query_params
        wanted = RunFilter(
            words=said.get("words", ""),
            state=said.get("state", ""),
            defense=said.get("defense", ""),
        )
        listing = list_runs(self._index.entries(), wanted, number=_number(said.get("page")))
        page = render_page("list", title="Runs", subtitle="", listing=listing, wanted=wanted)
        return HTMLResponse(page)

    def one_run(self, request: Request) -> Response:
        run = self._find(request.path_params["key"])
        if run is None:
            return _no_run()
        partners = [
            each
            for each in self._index.entries()
            if each.key != run.key and each.data_sha256 == run.data_sha256 and not each.fault
        ]
        title = run.name or run.place
        page = render_page(
            "run", title=title, subtitle=run.place, run=run, partners=partners[:_PARTNERS]
        )
        return HTMLResponse(page)

    def report(self, request: Request) -> Response:
        run = self._find(request.path_params["key"])
        if run is None:
            return _no_run()
        try:
            page = self._answers.report(run)
        except GuardmarkError as error:
            return _message("No report", str(error).splitlines(), code=409)
        return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY})

    def compare(self, request: Request) -> Response:
        keys = list(dict.fromkeys(request.query_params.getlist("run")))
        if len(keys) != 2:
            lines = [f"Tick two runs of the list to compare them; {len(keys)} were ticked."]
            return _message("Nothing compared", lines, code=400)
        runs = [self._find(key) for key in keys]
        found = sorted(
            (run for run in runs if run is not None), key=lambda run: (run.created_utc, run.place)
        )
        if len(found) < len(keys):
            return _no_run()
        try:
            return HTMLResponse(self._answers.comparison(found))
        except GuardmarkError as error:
            return _message("Not comparable", str(error).splitlines(), code=409)

    def history(self, request: Request) -> Response:
        defense = request.query_params.get("defense", "")
        entries = self._index.entries()
        sections = history_sections(entries, defense)
        if not sections:
            lines = [f"No finished run below this folder tells rates of {defense!r}."]
            return _message("No history", lines, code=404)
        subtitle = (
            "Rates of every run with their confidence intervals, oldest on top. Rates over "
            "different data stand apart: they are not comparable."
        )
        return HTMLResponse(render_sections(f"{defense} over time", subtitle, sections))

    def progress(self, request: Request) -> Response:
        keys = request.query_params.getlist("run")[:_MOST_POLLED]
        found = {key: run for key in keys if (run := self._find(key)) is not None}
        return JSONResponse(
            {
                key: {"state": run.state, "planned": run.planned, "stored": run.stored}
                for key, run in found.items()
            }
        )

    def _find(self, key: str) -> RunEntry | None:
        # A run begun since the last list is found by looking once more.
        run = self._index.find(key)
        if run is None:
            self._index.entries()
            run = self._index.find(key)
        return run


def _number(said: str | None) -> int:
    return int(said) if said and said.isascii() and said.isdigit() and len(said) < 9 else 1


def _message(title: str, lines: Sequence[str], *, code: int) -> Response:
    page = render_page("message", title=title, subtitle="", lines=lines)
    return HTMLResponse(page, status_code=code)


def _no_run() -> Response:
    lines = ["There is no such run; it may have been moved or removed."]
    return _message("No such run", lines, code=404)


def _nothing_here(_request: Request, _error: Exception) -> Response:
    return _message("Nothing here", ["There is no page at this address."], code=404)


def _style(_request: Request) -> Response:
    return Response(style(), media_type="text/css")


def _script(_request: Request) -> Response:
    return Response(script(), media_type="text/javascript")
