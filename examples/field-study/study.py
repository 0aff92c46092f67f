"""Measure guards that people install from package registries, each in an environment of its own.

For each folder in `guards/`: make an environment outside of the checkout, install what is locked
there, and leave it out with the reason where that fails. Then measure all of them over the same
data without a network, and write one page, a card for each and a board. Their code never runs in
the environment of guardmark.

Usage: python examples/field-study/study.py [--cache FOLDER] [--public FOLDER] [--only NAME ...]
       [--attack NAME ... | --no-attack]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field
from results import quick_ones, write_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
INSTALL_S: Final = 900
MOST_ROWS: Final = 1_000
"""Rows of each label that are taken of public data."""
BUDGETS: Final = (16, 64)
"""Tries for each attack, when a guard is attacked by someone who watches its answers."""
ATTACKED: Final = 40
"""Rows over which that is done: every guard is asked thousands of times about them."""
QUIET: Final = {"DO_NOT_TRACK": "1", "ANONYMIZED_TELEMETRY": "false"}

PUBLIC: Final[dict[str, dict[str, Sequence[str]]]] = {
    "injection": {
        "attack": (
            *("deepset_prompt_injections", "jbb_artifacts", "jailbreakllms", "bipia_email_test"),
            *("giskard_prompt_injections", "openai_guardrails_demo", "prompt_extraction"),
        ),
        "benign": (
            *("deepset_prompt_injections", "openai_guardrails_demo", "bipia_email_test"),
            *("xstest_prompts", "mt_bench", "arena_hard_v01", "self_instruct_user"),
        ),
    },
    "profanity": {
        "attack": ("hatecheck",),
        "benign": ("mt_bench", "arena_hard_v01", "self_instruct_user"),
    },
}
"""Files of public data by the purpose of a guard: a filter of words is not asked about injections.

Requests that are merely harmful fit neither purpose. Of HateCheck only what names a slur or swears
is taken: the rest is hate without such words, or such words without hate.
"""
WORDED: Final = ("slur_h", "profanity_h")

Line = Annotated[str, Field(min_length=3, pattern=r"^[^\n|]+$")]


class Guard(BaseModel):
    """One `guard.toml`: what is measured, and what its own documentation says of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    package: Annotated[str, Field(pattern=r"^[@/a-zA-Z0-9._-]+$")]
    version: Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.]*$")]
    registry: Literal["pypi", "npm"]
    licence: Line
    kind: Literal["rules", "word list", "n-gram model"]
    purpose: Literal["injection", "profanity", "actions"]
    decides: Line
    claim: Line
    source: Line
    settings: dict[str, Any] = {}


class Skipped(BaseModel):
    """A guard that was not measured, and why."""

    name: str
    reason: str


def read_guards(folder: Path) -> list[Guard]:
    """Read every entry below a folder."""
    paths = sorted(folder.glob("*/guard.toml"))
    return [
        Guard(name=path.parent.name, **tomllib.loads(path.read_text(encoding="utf-8")))
        for path in paths
    ]


def install(guard: Guard, source: Path, cache: Path) -> str:
    """Make the environment of a guard, unless it is there; return why it cannot be, or nothing."""
    folder = cache / "envs" / guard.name
    files = sorted(path for path in source.iterdir() if path.name != "guard.toml")
    stated = sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
    ready = folder / "ready"
    if ready.is_file() and ready.read_text(encoding="utf-8") == stated:
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in files:
        shutil.copy(path, folder)
    for command in _commands(guard, folder):
        reason = _failure(command, folder)
        if reason:
            return reason
    ready.write_text(stated, encoding="utf-8")
    return ""


def _commands(guard: Guard, folder: Path) -> Iterator[list[str]]:
    """Only what is locked, by hash; no script of a package runs while it is installed."""
    if guard.registry == "npm":
        yield ["npm", "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"]
        return
    yield [sys.executable, "-m", "venv", str(folder)]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes"]
    yield [*pip, "--only-binary", ":all:", "-r", "requirements.lock"]


def _failure(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{Path(command[0]).name}: {type(error).__name__}"
    if done.returncode == 0:
        return ""
    said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in said if "error" in line.lower()]
    last = (errors or said or ["no word"])[-1]
    return f"{Path(command[0]).name} ended with {done.returncode}: {last[:160]}".replace("|", "/")


def write_public(folder: Path, cache: Path) -> dict[str, Path]:
    """Draw whole groups of public rows for each purpose, in an order by hash; texts stay there."""
    paths = {}
    for purpose, files in PUBLIC.items():
        rows = [
            row
            for label, names in files.items()
            for row in _drawn(_rows(folder, names, label), label)
        ]
        if rows:
            paths[purpose] = cache / "data" / f"{purpose}.jsonl"
            paths[purpose].parent.mkdir(parents=True, exist_ok=True)
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            paths[purpose].write_text(lines, encoding="utf-8")
    return paths


def _rows(folder: Path, names: Iterable[str], label: str) -> Iterator[dict[str, Any]]:
    for name in names:
        for path in sorted(folder.glob(f"{name}.jsonl*")):
            opened = gzip.open if path.suffix == ".gz" else open
            with opened(path, "rt", encoding="utf-8") as file:
                rows = [json.loads(line) for line in file]
            yield from (
                {
                    "id": f"{name}/{row['id']}",
                    "text": row["text"],
                    "label": label,
                    "category": row["category"],
                    "source": name,
                    "group": f"{name}/{row['group']}",
                }
                for row in rows
                if row["is_attack"] is (label == "attack")
                and row["kind"] != "harmful_request"
                and (name != "hatecheck" or row["subcategory"] in WORDED)
            )


def _drawn(rows: Iterable[dict[str, Any]], label: str) -> list[dict[str, Any]]:
    """Take whole groups until there are enough rows; each text once."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], {})[row["text"]] = row
    taken: list[dict[str, Any]] = []
    for name in sorted(groups, key=lambda group: sha256(f"{label} {group}".encode()).hexdigest()):
        if len(taken) + len(groups[name]) <= MOST_ROWS:
            taken += groups[name].values()
    if label == "benign":
        return [{key: row[key] for key in row if key != "category"} for row in taken]
    return taken


def write_config(name: str, guards: Sequence[Guard], data: Mapping[str, str], cache: Path) -> Path:
    """Write the configuration of one run beside the environments."""
    config = {
        "version": 1,
        "name": f"field-study-{name}",
        "data": [dict(data)],
        "defenses": {guard.name: _defense(guard) for guard in guards},
        "run": {"seed": 7},
        "latency": {"mode": "isolated"},  # at full load one would time the queue, not a guard
        "report": ["html", "md", "json"],
    }
    path = cache / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path


def _defense(guard: Guard) -> dict[str, Any]:
    folder = f"envs/{guard.name}"
    usual = {"timeout_s": 20, "variables": sorted(QUIET), **guard.settings}
    if guard.registry == "npm":
        return {"type": "command", "command": ["node", f"{folder}/worker.mjs"], **usual}
    return {"type": "python", "target": f"{folder}/worker.py:check", "env": folder, **usual}


def has_no_network() -> list[str]:
    """Return the command that cuts the network off from what follows, or nothing."""
    cut = ["unshare", "--map-root-user", "--net", "--"]
    if shutil.which(cut[0]) is None:
        return []
    return (
        [] if subprocess.run([*cut, "true"], capture_output=True, check=False).returncode else cut
    )


def measure(config: Path, cache: Path, *, cut: Sequence[str], budget: int = 0) -> Path:
    """Run guardmark over one configuration; what was measured before is not asked again.

    With a budget it then attacks the guards, over a few rows.
    """
    key, home = sha256(config.read_bytes()).hexdigest()[:8], cache / "home"
    out = cache / "runs" / f"{config.stem}-{key}"  # other guards or settings are another run
    home.mkdir(exist_ok=True)
    # The folder of what these programs write by themselves is not that of the person.
    variables = {**os.environ, **QUIET, "HOME": str(home)}
    limit = ["--limit", str(ATTACKED)] if budget else []
    commands = [["run", str(config), "--out", str(out), "--no-texts", *limit]]
    if budget:
        commands.append(["adapt", str(out), "--config", str(config), "--budget", str(budget)])
    for each in commands:
        subprocess.run([*cut, sys.executable, "-m", "guardmark", *each], env=variables, check=True)
    return out


def publish(runs: Mapping[str, Path], cards: Path, board: Path) -> None:
    """Write a card of every guard of every run, and a board of all of them."""
    shutil.rmtree(cards, ignore_errors=True)
    for name, run in runs.items():
        again = ["--again", "make field-study"]
        _guardmark("card", str(run), "--to", "json", "-o", str(cards / name), *again)
    for path in cards.rglob("*.card.json"):  # on one line each: they are kept in the repository
        content = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.rmtree(board, ignore_errors=True)
    _guardmark("board", str(cards), "-o", str(board))


def _guardmark(*command: str) -> None:
    subprocess.run([sys.executable, "-m", "guardmark", *command], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Install, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--cache", type=Path, default=home / "guardmark-field-study")
    parser.add_argument("--guards", type=Path, default=HERE / "guards")
    parser.add_argument("--public", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "field-study" / "README.md")
    parser.add_argument("--cards", type=Path, default=ROOT / "docs" / "field-study" / "cards")
    parser.add_argument("--board", type=Path, default=ROOT / "build" / "field-study")
    parser.add_argument("--attack", nargs="+", metavar="NAME", help="attack these, not all quick")
    parser.add_argument("--no-attack", action="store_true", help="leave the adaptive attacks out")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these guards alone")
    options = parser.parse_args(arguments)
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    guards, skipped = [], []
    for guard in read_guards(options.guards):
        if options.only and guard.name not in options.only:
            continue
        reason = install(guard, options.guards / guard.name, cache)
        print(f"{guard.name} {guard.version}: {reason or 'installed'}", flush=True)
        skipped += [Skipped(name=guard.name, reason=reason)] if reason else []
        guards += [] if reason else [guard]
    if not guards:
        print("No guard could be installed; nothing is measured.")
        return 1
    cut = has_no_network()
    runs = {}
    public = write_public(options.public, cache)
    for name, chosen, data in _plans(guards, public):
        runs[name] = measure(write_config(name, chosen, data, cache), cache, cut=cut)
    attacked = {}
    if not options.no_attack:
        plans = {name: plan for name, *plan in _plans(guards, public) if name != "words"}
        name = "public" if "public" in plans else "core"
        chosen, data = plans.get(name, ([], {}))
        wanted = options.attack or quick_ones(runs[name]) if chosen else ()
        chosen = [guard for guard in chosen if guard.name in wanted]
        for budget in BUDGETS if chosen else ():
            config = write_config(f"attacked-{budget}", chosen, data, cache)
            attacked[budget] = measure(config, cache, cut=cut, budget=budget)
    write_page(
        options.page,
        runs,
        guards=[each.model_dump() for each in guards],
        skipped=[each.model_dump() for each in skipped],
        is_cut=bool(cut),
        attacked=attacked,
    )
    publish(runs, options.cards, options.board)
    print(f"Written: {options.page}, {options.cards} and {options.board / 'index.html'}")
    return 0


def _plans(
    guards: Sequence[Guard], public: Mapping[str, Path]
) -> Iterator[tuple[str, Sequence[Guard], Mapping[str, str]]]:
    """Yield each run: a name, the guards whose purpose the data fit, and the data."""
    for purpose, plan in (("injection", "core"), ("injection", "public"), ("profanity", "words")):
        chosen = [guard for guard in guards if guard.purpose == purpose]
        data = {"builtin": "core"} if plan == "core" else {}
        if plan != "core" and purpose in public:
            data = {"path": str(public[purpose]), "name": f"public-{purpose}"}
        if chosen and data:
            yield plan, chosen, data


if __name__ == "__main__":
    sys.exit(main())
