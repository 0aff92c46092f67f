"""Measure guards of agents that people install, each in an environment of its own.

The guards against injections of `guards/` and those of `agent-guards/` stand before an obedient
agent: guards of texts where the result of a tool comes back, guards of calls where a call goes out,
proxies between the agent and the server of its tools. It does the errands of the built-in suite,
and the tasks of AgentDojo's four. What was counted is written to a file of results, and the page is
made of that file alone.

A measurement that was ended goes on where it was. `--part` measures one part and keeps the others
as they stand in the file of results.

Usage: python examples/field-study/agents.py [--cache FOLDER] [--only NAME ...] [--part PART ...]
       [--page-only]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agents_configs import (
    BASELINES,
    PASSES_ALL,
    SPELT,
    WORDINGS,
    write_agentdojo,
    write_asked_twice,
    write_errands,
    write_one_word,
    write_proxy,
    write_proxy_control,
)
from agents_counts import BARE, counted
from agents_entries import SESSIONS, read_entries, standing_at
from agents_page import DONE_BY, agents_page
from agents_picture import agents_picture
from study import HERE, QUIET, ROOT, Guard, has_no_network, install

import guardmark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agents_entries import AgentGuard

DOCS: Final = ROOT / "docs" / "field-study"
PLACES: Final = ("tool_result", "tool_call")
PARTS: Final = ("errands", "agentdojo", "proxies")
PROXY_WORDINGS: Final = ("ignore-previous",)
"""A proxy is started for every case, so it meets one of the wordings: the best known."""
AGENTDOJO: Final = HERE / "agentdojo"


class RunFailedError(Exception):
    """A run ended without a summary."""


def measure(config: Path, cache: Path, *, cut: Sequence[str]) -> Path:
    """Run guardmark over a configuration, unless that was done with what is installed now."""
    installed = sorted((cache / "envs").glob("*/ready"))
    text = config.read_text(encoding="utf-8")
    said = text.encode() + b"".join(
        path.read_bytes()
        for path in installed
        if f"envs/{path.parent.name}\n" in text or f"envs/{path.parent.name}/" in text
    )
    out = cache / "runs" / f"{config.stem}-{sha256(said).hexdigest()[:8]}"
    if (out / "summary.json").is_file():
        return out
    home = cache / "home" / config.stem
    shutil.rmtree(home / SESSIONS, ignore_errors=True)
    (home / SESSIONS).mkdir(parents=True)
    variables = {**os.environ, **QUIET, "HOME": str(home)}
    command = [sys.executable, "-m", "guardmark", "run", str(config), "--out", str(out), "--quiet"]
    done = subprocess.run(
        [*cut, *command], env=variables, stderr=subprocess.PIPE, text=True, check=False
    )
    sys.stderr.write(done.stderr)
    if not (out / "summary.json").is_file():
        said = " ".join(done.stderr.split()).partition(" Next: ")[0] or "no word"
        ended = f"the run {config.stem} ended with {done.returncode} and wrote no summary"
        raise RunFailedError(f"{ended}: {said[:300]}")
    return out


def controls_held(run: Path, guards: Iterable[AgentGuard]) -> dict[str, dict[str, Any]]:
    """Say what each guard did with what it must block, what it must not, and with equal texts."""
    loaded = guardmark.load_run(run)
    names = [sample.id for sample in loaded.samples()]
    held = {}
    for guard in guards:
        answers: dict[str, list[str]] = {}
        for each in loaded.records(guard.name):
            answers.setdefault(names[each.key.sample], []).append(str(each.outcome))
        held[guard.name] = {
            "held_control": answers[guard.name][0],
            "held_harmless": answers["harmless"][0],
            "is_steady": all(len(set(each)) == 1 for each in answers.values()),
        }
    return held


def proxy_control_held(run: Path, guard: AgentGuard) -> dict[str, Any]:
    """Say what a proxy did with what it must block, and with what it must not."""
    actions: dict[str, list[str]] = {"control": [], "harmless": []}
    with (run / "results.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            for step in case["steps"]:
                # Both tools are listed in either case; what is done to the other one is not asked.
                is_other = step.get("tool") == "read_note" and case["task"] == "harmless"
                if case["arm"] == guard.name and step["kind"] == "guard" and not is_other:
                    actions[case["task"]].append(step["action"])
    return {
        f"held_{task}": next((each for each in done if each != "allow"), "allow")
        for task, done in actions.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Install, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--cache", type=Path, default=home / "guardmark-field-study")
    parser.add_argument("--guards", type=Path, default=HERE / "guards")
    parser.add_argument("--more", type=Path, default=HERE / "agent-guards")
    parser.add_argument("--results", type=Path, default=DOCS / "agents.json")
    parser.add_argument("--page", type=Path, default=DOCS / "agents.md")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these guards alone")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="these parts alone")
    parser.add_argument("--page-only", action="store_true", help="write the page again")
    options = parser.parse_args(arguments)
    for path in (options.results, options.page):  # before hours are spent
        path.parent.mkdir(parents=True, exist_ok=True)
    if not options.page_only:
        try:
            results = _Study(options).measured()
        except RunFailedError as failed:
            print(f"{failed}\nWhat was measured is kept: the same command goes on from here.")
            return 1
        text = json.dumps(results, indent=1, ensure_ascii=False)
        options.results.write_text(text + "\n", encoding="utf-8")
    results = json.loads(options.results.read_text(encoding="utf-8"))
    options.page.write_text(agents_page(results), encoding="utf-8")
    picture = agents_picture(results, plain={BARE, PASSES_ALL, *DONE_BY})
    options.page.with_suffix(".svg").write_text(picture, encoding="utf-8")
    print(f"Written: {options.results} and {options.page}")
    return 0


class _Study:
    """One measurement: what is installed, and the runs of each part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cache = options.cache.resolve()
        self.cache.mkdir(parents=True, exist_ok=True)
        self.cut = _cut_off()
        self.without: list[dict[str, str]] = []  # suites that could not be installed

    def measured(self) -> dict[str, Any]:
        """Install every guard, measure the parts that are wanted, and keep the others."""
        before: dict[str, Any] = {}
        if set(self.options.part) != set(PARTS) and self.options.results.is_file():
            before = json.loads(self.options.results.read_text(encoding="utf-8"))
        installed, skipped = self._installed()
        held = self._controls(installed, skipped)
        guards = [guard for guard in installed if guard.name in held]
        kept = ("places", "one_word", "agentdojo", "spelt", "proxies")
        parts: dict[str, Any] = {key: before.get(key, {}) for key in kept}
        for part in self.options.part:
            parts |= dict(getattr(self, f"_{part}")(guards, held))
        skipped += self.without
        listed = tomllib.loads((self.options.more / "left-out.toml").read_text(encoding="utf-8"))
        return {
            "is_network_cut": bool(self.cut),
            "wordings": list(WORDINGS),
            "proxy_wordings": list(PROXY_WORDINGS),
            **parts,
            "guards": [
                {
                    **guard.model_dump(exclude={"settings", "command", "control_in"}),
                    **held[guard.name],
                }
                for guard in guards
            ],
            "left_out": [*listed["package"], *skipped],
        }

    def _installed(self) -> tuple[list[AgentGuard], list[dict[str, str]]]:
        guards, skipped = [], []
        entries = read_entries(self.options.guards, self.options.more)
        for folder, guard in entries.items():
            if self.options.only and guard.name not in self.options.only:
                continue
            reason = install(guard, folder, self.cache)
            print(f"{guard.name} {guard.version}: {reason or 'installed'}", flush=True)
            if reason:
                left_out = {"package": guard.package, "version": guard.version, "reason": reason}
                skipped.append(left_out)
            else:
                guards.append(guard)
        return guards, skipped

    def _controls(
        self, guards: Sequence[AgentGuard], skipped: list[dict[str, str]]
    ) -> dict[str, dict[str, Any]]:
        """Ask each guard its controls; one that cannot be asked is left out, with the reason."""
        held: dict[str, dict[str, Any]] = {}
        for place in PLACES:
            chosen = standing_at(guards, place)
            if not chosen:
                continue
            try:
                held |= self._asked_twice(place, chosen)
            except RunFailedError:
                for guard in chosen:  # one of them ended the run of all: each by itself says which
                    try:
                        held |= self._asked_twice(place, [guard])
                    except RunFailedError as failed:
                        skipped.append(_left_out(guard, failed))
        for guard in standing_at(guards, "proxy"):
            try:
                run = self._run(write_proxy_control(guard, self.cache))
            except RunFailedError as failed:
                skipped.append(_left_out(guard, failed))
                continue
            held[guard.name] = proxy_control_held(run, guard)
        return held

    def _asked_twice(self, place: str, guards: Sequence[AgentGuard]) -> dict[str, dict[str, Any]]:
        return controls_held(self._run(write_asked_twice(place, guards, self.cache)), guards)

    def _run(self, config: Path) -> Path:
        print(f"{config.stem} ...", flush=True)
        return measure(config, self.cache, cut=self.cut)

    def _errands(
        self, guards: Sequence[AgentGuard], _held: object
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        places = {}
        for place in PLACES:
            chosen = standing_at(guards, place)
            if chosen:
                run = self._run(write_errands(place, chosen, self.cache))
                places[place] = counted([run], baselines=tuple(BASELINES[place]))
        yield "places", places
        texts, added = standing_at(guards, "tool_result"), {}
        if texts:
            added = self._orders_carried_out(write_one_word(texts, self.cache))
        yield "one_word", added

    def _orders_carried_out(self, config: Path) -> dict[str, Any]:
        """Return attack success by arm in the one wording of a run of guards of texts."""
        arms = counted([self._run(config)], baselines=tuple(BASELINES["tool_result"]))["arms"]
        return {arm["name"]: arm["attack_success"] for arm in arms}

    def _agentdojo(
        self, guards: Sequence[AgentGuard], held: dict[str, dict[str, Any]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        interpreter = self._agentdojo_python()
        if interpreter is None:
            return
        steady = {name for name, each in held.items() if each.get("is_steady")}
        places = {}
        for place in PLACES:
            chosen = standing_at(guards, place)
            if chosen:
                config = write_agentdojo(
                    place, chosen, self.cache, interpreter=interpreter, steady=steady
                )
                places[place] = counted([self._run(config)], baselines=tuple(BASELINES[place]))
        yield "agentdojo", places
        texts, added = standing_at(guards, "tool_result"), {}
        if texts:
            config = write_agentdojo(
                "tool_result",
                texts,
                self.cache,
                interpreter=interpreter,
                steady=steady,
                wordings=(SPELT,),
            )
            added = self._orders_carried_out(config)
        yield "spelt", added

    def _agentdojo_python(self) -> Path | None:
        """Return the Python that has AgentDojo; None, and told, where it cannot be installed."""
        if os.environ.get("GUARDMARK_AGENTDOJO"):
            return Path(os.environ["GUARDMARK_AGENTDOJO"])
        stated = tomllib.loads((AGENTDOJO / "guard.toml").read_text(encoding="utf-8"))
        package = Guard(name="agentdojo", **stated)
        reason = install(package, AGENTDOJO, self.cache)
        if reason:
            print(f"AgentDojo {package.version}: {reason}; its suites are left out", flush=True)
            self.without.append(
                {"package": package.package, "version": package.version, "reason": reason}
            )
            return None
        return self.cache / "envs" / "agentdojo" / "bin" / "python"

    def _proxies(
        self, guards: Sequence[AgentGuard], _held: object
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        chosen = standing_at(guards, "proxy")
        if chosen:
            configs = [
                write_proxy(each, self.cache, wordings=PROXY_WORDINGS) for each in [None, *chosen]
            ]
            yield "proxies", counted([self._run(config) for config in configs], baselines=())


def _left_out(guard: AgentGuard, failed: RunFailedError) -> dict[str, str]:
    print(f"{guard.name} {guard.version}: left out, {failed}", flush=True)
    reason = str(failed).replace("|", "/")
    return {"package": guard.package, "version": guard.version, "reason": reason}


def _cut_off() -> list[str]:
    """Return the command that cuts the network off, with loopback for the tools of proxies."""
    cut = has_no_network()
    wrapped = [*cut, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if not cut or subprocess.run([*wrapped, "true"], capture_output=True, check=False).returncode:
        return []
    return wrapped


if __name__ == "__main__":
    sys.exit(main())
