"""The pages with their addresses, who may ask for them, and what is kept until a run changes."""

from __future__ import annotations

import hmac
from dataclasses import replace
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
from guardmark.analysis.defense.bypasses import Flaw, rank_samples
from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.run import analyse_run
from guardmark.app.results.cases import CaseSelection, ToldCase, read_cases
from guardmark.app.results.highlights import read_exchanges
from guardmark.app.results.opened_run import analysis_settings
from guardmark.app.results.reading import ShownSamples, compare_runs
from guardmark.app.results.run_diff import Change, diff_runs
from guardmark.core.errors import GuardmarkError, UnknownName
from guardmark.core.values import dataclass
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

    from guardmark.analysis.defense.bypasses import ListedSample, RankedSamples
    from guardmark.app.results.run_diff import RunDiff
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
        """Return why a request is refused; None where it may be answered."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._rules.hosts:
            return _refused(421, "This address does not answer for that host.")
        if scope["method"] not in {"GET", "HEAD"}:
            return _refused(405, "These pages are for reading only.")
        is_foreign = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if is_foreign and headers.get("sec-fetch-mode") != "navigate":
            return _refused(403, "Other sites may not read these pages.")
        if self._rules.token:
            return self._unproved(scope, headers)
        return None

    def _unproved(self, scope: Scope, headers: Headers) -> Response | None:
        """Return what a request without proof of the token gets; None where it brings proof."""
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
        # Slashes in front would make the address one of another host.
        address = "/" + scope["path"].lstrip("/\\")
        rest = urlencode([pair for pair in asked if pair[0] != "token"])
        if rest:
            address += f"?{rest}"
        redirect = RedirectResponse(address, status_code=303)
        redirect.set_cookie(name, self._proof, httponly=True, samesite="strict")
        return redirect


def _same(shown: str, wanted: str) -> bool:
    return hmac.compare_digest(shown.encode(), wanted.encode())


def _refused(code: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=code)


def _marked(send: Send) -> Send:
    """Return a way to send that adds our headers to every answer."""

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

_FACETS: Final = ("defense", "category", "label", "sample_id")
_MOST_SAMPLES: Final = 100  # on one page
_MOST_TRIES: Final = 20
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
        page("/tries/{key}", site.tries),
        page("/changes", site.changes),
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
        wanted = RunFilter(**_asked(request, "words", "state", "defense"))
        listing = list_runs(self._index.entries(), wanted, number=_number(query.get("page")))
        page = render_page("list", title="Runs", subtitle="", listing=listing, wanted=wanted)
        return HTMLResponse(page)

    def one_run(self, request: Request) -> Response:
        """Show one run, with others over the same data to compare it with."""
        run = self._find(request.path_params["key"])
        if run is None:
            return _no_run()
        partners = []
        for other in self._index.entries():
            is_over_same_data = other.data_sha256 == run.data_sha256
            if other.key != run.key and is_over_same_data and not other.fault:
                partners.append(other)
        page = render_page(
            "run",
            title=run.title,
            subtitle=run.folder_beside,
            run=run,
            partners=partners[:_PARTNERS],
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
        asked = _asked(request, *_FACETS)
        flaw = request.query_params.get("flaw", "")
        kind = None
        if flaw in set(Flaw):
            kind = Flaw(flaw)
        wanted = CaseSelection(arm=asked["defense"], case_id=asked["sample_id"])
        try:
            cases = read_cases(run.folder, wanted)
        except GuardmarkError as error:
            return _message("No cases", str(error).splitlines(), code=409)
        if cases is not None:
            return _case_page(cases, is_one=bool(wanted.case_id), texts=self._texts)
        try:
            if asked["sample_id"]:
                return self._one_sample(run, asked)
            number = _number(request.query_params.get("page"))
            return self._sample_page(run, asked, kind, number=number)
        except GuardmarkError as error:
            return _message("No samples", str(error).splitlines(), code=409)

    def _one_sample(self, run: RunEntry, asked: dict[str, str]) -> Response:
        """Tell all that is stored of one sample."""
        ranked, name = self._answers.ranked(run), asked["sample_id"]
        with RecordReader(RunDir(path=run.folder).records) as reader:
            position = reader.position_of(name)
            if position is None:
                return _message("No such sample", ["The run has no sample of this id."], code=404)
            shown = ShownSamples(
                listed=ranked.read(reader, [position]),
                among=len(ranked.telling),
                exchanges=read_exchanges(reader, {name}, is_timed=True),
            )
        title = f"A sample of {run.title}"
        values = {"run": run, "shown": shown, "asked": asked, "texts": self._texts}
        return HTMLResponse(
            render_page("samples", title=title, subtitle=run.folder_beside, **values)
        )

    def _sample_page(
        self, run: RunEntry, asked: dict[str, str], kind: Flaw | None, *, number: int
    ) -> Response:
        """List one page of samples, the worst first."""
        ranked = self._answers.ranked(run)
        known = {each.arm.name for each in ranked.judged}
        if asked["defense"] not in {"", *known}:
            raise UnknownName("defense of this run", asked["defense"], known)
        positions = ranked.positions(
            flaw=kind,
            defense=asked["defense"],
            category=asked["category"],
            is_attack={"attack": True, "benign": False}.get(asked["label"]),
        )
        part = _Part.of(len(positions), number, size=_MOST_SAMPLES)
        with RecordReader(RunDir(path=run.folder).records) as reader:
            listed = ranked.read(reader, positions[part.start : part.end].tolist())
        if asked["defense"]:
            listed = tuple(_first_of(asked["defense"], each) for each in listed)
        flaw = ""
        if kind is not None:
            flaw = kind.value
        stated = _stated({**asked, "flaw": flaw})
        page = render_page(
            "samples",
            title=f"Samples of {run.title}",
            subtitle=run.folder_beside,
            run=run,
            shown=ShownSamples(listed=listed, among=len(ranked.telling), exchanges={}),
            asked=asked,
            flaw=flaw,
            texts=self._texts,
            flaws=[each.value for each in Flaw][:-1],
            categories=ranked.categories,
            total=len(positions),
            first=part.start + 1,
            number=part.number,
            pages=part.pages,
            query=lambda page: urlencode([*stated, ("page", page)], errors="replace"),
        )
        return HTMLResponse(page)

    def tries(self, request: Request) -> Response:
        """List what got through an adaptive attack; of one attack, every try."""
        run = self._find(request.path_params["key"])
        if run is None:
            return _no_run()
        from guardmark.app.results.transcripts import adaptive_bypasses, read_transcripts

        asked = _asked(request, "defense", "sample_id")
        try:
            with RecordReader(RunDir(path=run.folder).records) as reader:
                if asked["sample_id"]:
                    shown = list(
                        read_transcripts(
                            reader, defense=asked["defense"], sample_id=asked["sample_id"]
                        )
                    )
                else:
                    shown = list(adaptive_bypasses(reader, defense=asked["defense"]))
        except GuardmarkError as error:
            return _message("No tries", str(error).splitlines(), code=409)
        part = _Part.of(len(shown), _number(request.query_params.get("page")), size=_MOST_TRIES)
        stated = _stated(asked)
        page = render_page(
            "tries",
            title=f"After rewriting: {run.title}",
            subtitle=run.folder_beside,
            run=run,
            shown=shown[part.start : part.end],
            total=len(shown),
            texts=self._texts,
            defenses=[each.name for each in run.ranked if each.rewritten is not None],
            number=part.number,
            pages=part.pages,
            query=lambda page: urlencode([*stated, ("page", page)], errors="replace"),
            **asked,
        )
        return HTMLResponse(page)

    def changes(self, request: Request) -> Response:
        """List, sample by sample, what a later run answers otherwise than an earlier one."""
        known = self._find_all(_ticked(request))
        if len(known) != 2:
            return _no_run()
        before, after = known
        asked = _asked(request, "defense", "change")
        try:
            diff = self._answers.changes(before, after)
        except GuardmarkError as error:
            return _message("Not comparable", str(error).splitlines(), code=409)
        listed = []
        for changed in diff.changed:
            is_of_defense = asked["defense"] in {"", changed.defense}
            if is_of_defense and asked["change"] in {"", changed.change}:
                listed.append(changed)
        part = _Part.of(len(listed), _number(request.query_params.get("page")), size=_MOST_SAMPLES)
        stated = [("run", before.key), ("run", after.key), *_stated(asked)]
        counts = [(change, diff.count(change)) for change in Change if diff.count(change)]
        page = render_page(
            "changes",
            title="What changed, sample by sample",
            subtitle=f"From {before.path} to {after.path}",
            before=before,
            after=after,
            found=diff,
            shown=listed[part.start : part.end],
            total=len(listed),
            counts=counts,
            defenses=[renamed for _, renamed in diff.defenses],
            texts=self._texts,
            number=part.number,
            pages=part.pages,
            query=lambda page: urlencode([*stated, ("page", page)], errors="replace"),
            **asked,
        )
        return HTMLResponse(page)

    def compare(self, request: Request) -> Response:
        """Compare two runs that were ticked, on a page or as a file to keep."""
        keys = _ticked(request)
        if len(keys) != 2:
            lines = [f"Tick two runs of the list to compare them; {len(keys)} were ticked."]
            return _message("Nothing compared", lines, code=400)
        known = self._find_all(keys)
        if len(known) < len(keys):
            return _no_run()
        kind, headers = "two", dict[str, str]()
        if "file" in request.query_params:
            kind = "file"
            headers["Content-Disposition"] = "attachment; filename=comparison.html"
        try:
            return HTMLResponse(self._answers.page(kind, *known), headers=headers)
        except GuardmarkError as error:
            return _message("Not comparable", str(error).splitlines(), code=409)

    def history(self, request: Request) -> Response:
        """Show how one defense did over all runs of the folder."""
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
        """Tell a page how far its runs are, as JSON."""
        keys = request.query_params.getlist("run")[:_MOST_POLLED]
        progress = {}
        for key in keys:
            run = self._find(key)
            if run is not None:
                progress[key] = {"state": run.state, "planned": run.planned, "stored": run.stored}
        return JSONResponse(progress)

    def _find_all(self, keys: Sequence[str]) -> list[RunEntry]:
        """Return the runs of some keys that there are, the older one first."""
        known = []
        for key in keys:
            run = self._find(key)
            if run is not None:
                known.append(run)
        return sorted(known, key=lambda run: (run.created_utc, run.path))

    def _find(self, key: str) -> RunEntry | None:
        # A run begun since the last list is found by looking once more.
        run = self._index.find(key)
        if run is None:
            self._index.entries()
            run = self._index.find(key)
        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One page of a list."""

    number: int
    pages: int
    start: int
    end: int

    @classmethod
    def of(cls, total: int, number: int, *, size: int) -> _Part:
        """Return the page of a number, or the nearest there is."""
        pages = max(1, -(-total // size))
        shown = min(max(1, number), pages)
        return cls(number=shown, pages=pages, start=(shown - 1) * size, end=shown * size)


def _asked(request: Request, *names: str) -> dict[str, str]:
    """Return what the query of an address says of some names; empty for what it leaves out."""
    return {name: request.query_params.get(name, "") for name in names}


def _stated(asked: dict[str, str]) -> list[tuple[str, str]]:
    """Return what is not empty of it, for the address of another page."""
    return [(name, value) for name, value in asked.items() if value]


def _ticked(request: Request) -> list[str]:
    """Return the keys of the runs that were ticked, each once."""
    return list(dict.fromkeys(request.query_params.getlist("run")))


def _first_of(defense: str, listed: ListedSample) -> ListedSample:
    """Put the answer of the chosen defense before those of others."""
    answers = sorted(listed.answers, key=lambda each: each.defense != defense)
    return replace(listed, answers=tuple(answers))


def _number(word: str | None) -> int:
    if word and word.isascii() and word.isdigit() and len(word) < 9:
        return int(word)
    return 1


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
_KEPT_LISTS: Final = 4  # of all samples of a run


def _rank(run: RunEntry, _stamp: object) -> RankedSamples:
    with RecordReader(RunDir(path=run.folder).records) as reader:
        return rank_samples(read_frame(reader, analysis_settings(reader)))


def _diff(before: RunEntry, after: RunEntry, _stamps: object) -> RunDiff:
    return diff_runs(before.folder, after.folder)


class Answers:
    """Makes reports and comparisons once; may be asked from several threads."""

    def __init__(self, index: RunIndex, *, texts: bool) -> None:
        self._index = index
        self._texts = texts
        self._kept = lru_cache(_KEPT)(self._made)
        self._ranked = lru_cache(_KEPT_LISTS)(_rank)
        self._changes = lru_cache(_KEPT_LISTS)(_diff)

    def page(self, kind: str, *runs: RunEntry) -> str:
        """Return the `report` of a run, the comparison of `two`, or that as a `file` to keep.

        A report is made from the records: anybody may have written the file beside them.
        """
        return self._kept(kind, runs, self._stamps_of(*runs))

    def ranked(self, run: RunEntry) -> RankedSamples:
        """Return all samples of a run by how much they are worth reading."""
        return self._ranked(run, self._index.stamp(run.key))

    def changes(self, before: RunEntry, after: RunEntry) -> RunDiff:
        """Return what one run answers otherwise than another."""
        return self._changes(before, after, self._stamps_of(before, after))

    def _stamps_of(self, *runs: RunEntry) -> tuple[object, ...]:
        return tuple(self._index.stamp(run.key) for run in runs)

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
        sections = list(document.sections)
        if document.caveats:
            sections.insert(0, section("caveats", "Note", warning(document.caveats)))
        both = "&".join(f"run={run.key}" for run in runs)
        level = f"{100 * compared.all[0].confidence:g} % confidence intervals."
        subtitle = f"{document.subtitle} {level}"
        return render_sections(
            "Runs compared",
            subtitle,
            tuple(sections),
            file=f"/compare?file=1&{both}",
            changes=f"/changes?{both}",
        )
