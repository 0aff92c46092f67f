"""The pages with their addresses, who may ask for them, and what is kept until a run changes."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from guardmark.analysis.compare.runs_compared import Wanted
from guardmark.analysis.defense.bypasses import Flaw
from guardmark.analysis.run import analyse_run
from guardmark.app.results.cases import CaseSelection, ToldCase, read_cases
from guardmark.app.results.opened_run import analysis_settings
from guardmark.app.results.reading import Selection, compare_runs, show
from guardmark.core.errors import GuardmarkError
from guardmark.reports.chapters.comparison import comparison_document
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import section, warning
from guardmark.reports.render.html.page import render_html
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir
from guardmark.view.index import RunFilter, list_runs
from guardmark.view.making import PageMaker
from guardmark.view.pages import history_sections, render_page, render_sections, script, style

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from guardmark.view.index import RunEntry, RunIndex


PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Pages load their own style and script, and nothing else from anywhere."""

_HEADERS: Final = {
    "Content-Security-Policy": PAGE_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Who may ask."""

    hosts: frozenset[str]
    token: str = ""


class Gatekeeper:
    """Lets only permitted requests through, and marks every answer."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules
        self._proof = sha256(f"guardmark view {rules.token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, _marked(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._rules.hosts:
            return _refused(421, "This address does not answer for that host.")
        if scope["method"] not in {"GET", "HEAD"}:
            return _refused(405, "These pages are for reading only.")
        is_foreign = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if is_foreign and headers.get("sec-fetch-mode") != "navigate":
            return _refused(403, "Other sites may not read these pages.")
        return self._unproved(scope, headers) if self._rules.token else None

    def _unproved(self, scope: Scope, headers: Headers) -> Response | None:
        name = f"guardmark-view-{scope['server'][1]}"
        cookies = cookie_parser(headers.get("cookie", ""))
        if _same(cookies.get(name, ""), self._proof):
            return None
        if _same(headers.get("authorization", ""), f"Bearer {self._rules.token}"):
            return None
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = [value for key, value in asked if key == "token"]
        if len(shown) != 1 or not _same(shown[0], self._rules.token):
            return _refused(401, "Open the address with ?token=... once; the token is missing.")
        rest = urlencode([pair for pair in asked if pair[0] != "token"])
        # Slashes in front would make the address one of another host.
        path = "/" + scope["path"].lstrip("/\\")
        there = RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)
        there.set_cookie(name, self._proof, httponly=True, samesite="strict")
        return there


def _same(shown: str, wanted: str) -> bool:
    return hmac.compare_digest(shown.encode(), wanted.encode())


def _refused(code: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=code)


def _marked(send: Send) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return marked


REPORT_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""A report tells words that anybody may have written: should one ever become a script, it has an
origin of its own, reads no other page and reaches no host."""

_FACETS: Final = ("defense", "category", "sample_id")
_MOST_SAMPLES: Final = 200
_PARTNERS: Final = 8
_MOST_POLLED: Final = 60


def build_site(index: RunIndex, rules: Rules, *, texts: bool = True) -> Gatekeeper:
    """Build the pages over runs."""
    site = _Site(index, texts=texts)
    maker = PageMaker()

    def page(path: str, handler: Callable[[Request], Response]) -> Route:
        async def answer(request: Request) -> Response:
            return await maker.make(handler, request)

        return Route(path, answer)

    routes = [
        page("/", site.all_runs),
        page("/run/{key}", site.one_run),
        page("/report/{key}", site.report),
        page("/samples/{key}", site.samples),
        page("/compare", site.compare),
        page("/history", site.history),
        page("/progress", site.progress),
        Route("/style.css", lambda _: Response(style(), media_type="text/css")),
        Route("/script.js", lambda _: Response(script(), media_type="text/javascript")),
    ]
    missing = _message("Nothing here", ["There is no page at this address."], code=404)
    app = Starlette(routes=routes, exception_handlers={404: lambda *_: missing})
    return Gatekeeper(app, rules)


class _Site:
    """Answers requests; every method runs in a thread of its own."""

    def __init__(self, index: RunIndex, *, texts: bool) -> None:
        self._index = index
        self._answers = Answers(index, texts=texts)
        self._texts = texts

    def all_runs(self, request: Request) -> Response:
        query = request.query_params
        wanted = RunFilter(**{name: query.get(name, "") for name in ("words", "state", "defense")})
        listing = list_runs(self._index.entries(), wanted, number=_number(query.get("page")))
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
        title = run.name or run.path
        page = render_page(
            "run", title=title, subtitle=run.path, run=run, partners=partners[:_PARTNERS]
        )
        return HTMLResponse(page)

    def report(self, request: Request) -> Response:
        run = self._find(request.path_params["key"])
        if run is None:
            return _no_run()
        try:
            page = self._answers.page("report", run)
        except GuardmarkError as error:
            return _message("No report", str(error).splitlines(), code=409)
        return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY})

    def samples(self, request: Request) -> Response:
        """List what became of samples, by defense; of one sample, tell all that is stored."""
        run = self._find(request.path_params["key"])
        if run is None:
            return _no_run()
        asked = {each: request.query_params.get(each, "") for each in _FACETS}
        flaw = request.query_params.get("flaw", "")
        kind = Flaw(flaw) if flaw in set(Flaw) else None
        wanted = CaseSelection(arm=asked["defense"], case_id=asked["sample_id"])
        try:
            cases = read_cases(run.folder, wanted)
        except GuardmarkError as error:
            return _message("No cases", str(error).splitlines(), code=409)
        if cases is not None:
            return _case_page(cases, is_one=bool(wanted.case_id), texts=self._texts)
        chosen = Selection(
            flaw=kind,
            is_system=False,
            defense=asked["defense"],
            category=asked["category"],
            sample_id=asked["sample_id"],
        )
        try:
            shown = show(run.folder, chosen, most=_MOST_SAMPLES)
        except GuardmarkError as error:
            return _message("No samples", str(error).splitlines(), code=409)
        values = {"run": run, "shown": shown, "asked": asked, "flaw": flaw, "texts": self._texts}
        values |= {"flaws": [each.value for each in Flaw][:-1], "most": _MOST_SAMPLES}
        title = f"Samples of {run.name or run.path}"
        return HTMLResponse(render_page("samples", title=title, subtitle=run.path, **values))

    def compare(self, request: Request) -> Response:
        keys = list(dict.fromkeys(request.query_params.getlist("run")))
        if len(keys) != 2:
            lines = [f"Tick two runs of the list to compare them; {len(keys)} were ticked."]
            return _message("Nothing compared", lines, code=400)
        runs = [self._find(key) for key in keys]
        known = sorted(
            (run for run in runs if run is not None), key=lambda run: (run.created_utc, run.path)
        )
        if len(known) < len(keys):
            return _no_run()
        is_file = "file" in request.query_params
        headers = {"Content-Disposition": "attachment; filename=comparison.html"} if is_file else {}
        try:
            page = self._answers.page("file" if is_file else "two", *known)
            return HTMLResponse(page, headers=headers)
        except GuardmarkError as error:
            return _message("Not comparable", str(error).splitlines(), code=409)

    def history(self, request: Request) -> Response:
        defense = request.query_params.get("defense", "")
        entries = self._index.entries()
        sections = history_sections(entries, defense)
        if not sections:
            lines = [f"No finished run in this folder tells rates of {defense!r}."]
            return _message("No history", lines, code=404)
        subtitle = (
            "Rates of every run with their confidence intervals, oldest on top. Rates over "
            "different data stand apart: they are not comparable."
        )
        return HTMLResponse(render_sections(f"{defense} over time", subtitle, sections))

    def progress(self, request: Request) -> Response:
        keys = request.query_params.getlist("run")[:_MOST_POLLED]
        runs = {key: run for key in keys if (run := self._find(key)) is not None}
        return JSONResponse(
            {
                key: {"state": run.state, "planned": run.planned, "stored": run.stored}
                for key, run in runs.items()
            }
        )

    def _find(self, key: str) -> RunEntry | None:
        # A run begun since the last list is found by looking once more.
        run = self._index.find(key)
        if run is None:
            self._index.entries()
            run = self._index.find(key)
        return run


def _number(word: str | None) -> int:
    return int(word) if word and word.isascii() and word.isdigit() and len(word) < 9 else 1


def _message(title: str, lines: Sequence[str], *, code: int) -> Response:
    page = render_page("message", title=title, subtitle="", lines=lines)
    return HTMLResponse(page, status_code=code)


def _case_page(cases: Sequence[ToldCase], *, is_one: bool, texts: bool) -> Response:
    """Show cases of agents, a line each; one case as a story in every arm."""
    lines = []
    for case in cases[:_MOST_SAMPLES]:
        lines.append(f"{case.id} in {case.arm}: {case.outcome}")
        if is_one and texts:
            lines += [f"{head}: {text}" for head, text in case.story]
    shown = min(len(cases), _MOST_SAMPLES)
    title = f"{shown:,} of {len(cases):,} cases"
    return _message(title, lines or ["No case of this kind."], code=200)


def _no_run() -> Response:
    lines = ["There is no such run; it may have been moved or removed."]
    return _message("No such run", lines, code=404)


_LISTED: Final = 20
_KEPT: Final = 16


class Answers:
    """Makes reports and comparisons once; may be asked from several threads."""

    def __init__(self, index: RunIndex, *, texts: bool) -> None:
        self._index = index
        self._texts = texts
        self._kept = lru_cache(_KEPT)(self._made)

    def page(self, kind: str, *runs: RunEntry) -> str:
        """Return the `report` of a run, the comparison of `two`, or that as a `file` to keep.

        A report is made from the records: anybody may have written the file beside them.
        """
        return self._kept(kind, runs, tuple(self._index.stamp(run.key) for run in runs))

    def _made(self, kind: str, runs: tuple[RunEntry, ...], _stamps: object) -> str:
        if kind != "report":
            return self._compared(kind, runs)
        with RecordReader(RunDir(path=runs[0].folder).records) as reader:
            document = build_document(analyse_run(reader, analysis_settings(reader)))
        return render_html(document, texts=self._texts)

    def _compared(self, kind: str, runs: Sequence[RunEntry]) -> str:
        wanted = Wanted(listed=_LISTED, latency=False)
        compared = compare_runs([run.folder for run in runs], wanted)
        document = comparison_document(compared, texts=self._texts)
        if kind == "file":
            return render_html(document, texts=self._texts)
        caveats = section("caveats", "Note", warning(document.caveats))
        sections = (*([caveats] if document.caveats else []), *document.sections)
        file = "&".join(["/compare?file=1", *(f"run={run.key}" for run in runs)])
        level = f"{100 * compared.all[0].confidence:g} % confidence intervals."
        subtitle = f"{document.subtitle} {level}"
        return render_sections("Runs compared", subtitle, sections, file=file)
