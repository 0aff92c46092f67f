"""Build the documentation site from the pages as they stand in the repository.

    python scripts/build_site.py [FOLDER]

The README is the home page. Pages are copied to FOLDER/pages (default: build/site), lists of each
shelf, the Python interface and the packed examples are written beside them, and Zensical builds
them with strict links into FOLDER/site. A gallery that lies in FOLDER/gallery is shipped with it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

ROOT = Path(__file__).resolve().parents[1]
SHELVES = {
    "tutorial": "Tutorial",
    "how-to": "How-to",
    "reference": "Reference",
    "explanation": "Explanation",
    "decisions": "Decisions",
}
"""Folder of pages to its name in the navigation, in the order shown."""
_OF_PROJECT = frozenset({"decisions"})
"""Shelves that people need who change guardmark: they stand under *Project*."""
CARDS = "src/guardmark/datasets/builtin/core-{}/CARD.md"
# Page of the site to the file it is made from, for pages that lie outside of docs/.
OUTSIDE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security-policy.md": "SECURITY.md",
    "data-card.md": CARDS.format(1),
    "data-card-2.md": CARDS.format(2),
}
EXAMPLES = "examples.zip"  # what a link to the folder of examples leads to
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")
SETTINGS = """\
[project]
site_name = "guardmark"
site_description = "Does this AI defense work, and how sure can you be of it?"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
extra_css = ["assets/site.css"]
extra_javascript = ["assets/site.js"]
nav = {nav}

[project.theme]
language = "en"
font = false
features = [
  "content.code.copy", "navigation.indexes", "navigation.footer", "navigation.top", "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"

[project.markdown_extensions]
admonition = {{}}
attr_list = {{}}
tables = {{}}
toc.permalink = true
pymdownx.highlight.pygments_lang_class = true
pymdownx.inlinehilite = {{}}
pymdownx.superfences = {{}}

[project.plugins.mkdocstrings.handlers.python]
paths = [{source}]
inventories = []

[project.plugins.mkdocstrings.handlers.python.options]
docstring_style = "google"
show_root_heading = true
show_root_full_path = false
show_source = false
heading_level = 2
separate_signature = true
show_signature_annotations = true
"""


def title(page: Path) -> str:
    """Return the first heading of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    heading = next(line for line in lines if line.startswith("# "))
    return heading.removeprefix("# ").strip()


def stage(pages: Path) -> None:
    """Copy every page to where the site has it, and bend the links to those that moved."""
    shutil.copytree(ROOT / "docs", pages)
    places = {source: page for page, source in OUTSIDE.items()}
    for page in pages.rglob("*.md"):
        inside = page.relative_to(pages)
        up = "../" * (len(inside.parts) - 1)

        def bent(
            match: re.Match[str], folder: Path = ROOT / "docs" / inside.parent, up: str = up
        ) -> str:
            target = (folder / match[2]).resolve()
            if target == ROOT / "examples":
                return f"{match[1]}{up}{EXAMPLES}"
            if target.is_dir() and not (target / "index.md").exists():
                return f"{match[1]}{match[2].rstrip('/')}/index.md"
            name = target.relative_to(ROOT).as_posix()
            return f"{match[1]}{up}{places[name]}" if name in places else match[0]

        page.write_text(LINK.sub(bent, page.read_text(encoding="utf-8")), encoding="utf-8")
    for name, source in OUTSIDE.items():
        (pages / name).write_text(_from_outside(source, places), encoding="utf-8")


def _from_outside(source: str, places: dict[str, str]) -> str:
    folder = (ROOT / source).parent

    def bent(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        name = target.relative_to(ROOT).as_posix()
        if name in places:
            return match[1] + places[name]
        if name == "examples":
            return match[1] + EXAMPLES
        inside = name.removeprefix("docs/")
        return f"{match[1]}{inside}/index.md" if target.is_dir() else match[1] + inside

    return LINK.sub(bent, (ROOT / source).read_text(encoding="utf-8"))


def pack_examples(pages: Path) -> None:
    """Pack the examples that pages name: who installed the package has no checkout."""
    with ZipFile(pages / EXAMPLES, "w", ZIP_DEFLATED) as pack:
        for path in sorted((ROOT / "examples").rglob("*")):
            inside = path.relative_to(ROOT)
            if path.is_file() and not {"field-study", "__pycache__"} & set(inside.parts):
                pack.write(path, inside)


def write_lists(pages: Path) -> None:
    """Write the page of the Python interface, and a list of the pages of each shelf."""
    sys.path.insert(0, str(ROOT / "src"))
    from guardmark import __all__ as names

    blocks = "".join(f"::: guardmark.{name}\n\n" for name in names)
    head = "# Python, name by name\n\nAs the docstrings say it. An overview: [Python](python.md)."
    (pages / "reference" / "api.md").write_text(f"{head}\n\n{blocks}", encoding="utf-8")
    for folder, name in SHELVES.items():
        lines = [
            f"- [{title(page)}]({page.name})" for page in sorted((pages / folder).glob("*.md"))
        ]
        text = "\n".join([f"# {name}", "", *lines, ""])
        (pages / folder / "index.md").write_text(text, encoding="utf-8")


def navigation(pages: Path) -> str:
    """Return the navigation as TOML."""

    def entry(name: str, path: str) -> str:
        return f"{{{json.dumps(name)} = {json.dumps(path)}}}"

    items = [entry("Home", "index.md")]
    if (pages / "gallery").exists():
        items.append(entry("Gallery", "gallery/index.md"))
    of_project: list[str] = []
    for folder, name in SHELVES.items():
        shelf = sorted(p for p in (pages / folder).glob("*.md") if p.name != "index.md")
        inner = [json.dumps(f"{folder}/index.md")]
        inner += [entry(title(page), f"{folder}/{page.name}") for page in shelf]
        shelf_of = of_project if folder in _OF_PROJECT else items
        shelf_of.append(f"{{{json.dumps(name)} = [{', '.join(inner)}]}}")
    studies = [
        entry("Guards of texts", "field-study/README.md"),
        entry("Guards of agents", "field-study/agents.md"),
    ]
    items.append(f"{{{json.dumps('Field studies')} = [{', '.join(studies)}]}}")
    items.append(entry("Glossary", "glossary.md"))
    rest = {"Changelog": "changelog.md", "Contributing": "contributing.md"}
    rest |= {"Security": "security-policy.md", "Data card": "data-card-2.md"}
    rest |= {"Data card, version 1": "data-card.md"}
    of_project = [*(entry(*each) for each in rest.items()), *of_project]
    items.append(f"{{{json.dumps('Project')} = [{', '.join(of_project)}]}}")
    return f"[{', '.join(items)}]"


def show_board(pages: Path) -> None:
    """Lead from the field study to the board of its cards, which the gallery holds."""
    page = pages / "field-study" / "README.md"
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition("\n## ")
    link = (
        "**[All cards on a board](../gallery/guards/index.html)**: tables, pictures, a page each."
    )
    page.write_text(f"{head}\n{link}\n\n## {rest}", encoding="utf-8")


def main() -> None:
    """Stage the pages and have the site built."""
    home = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    pages = home / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    stage(pages)
    write_lists(pages)
    pack_examples(pages)
    if (home / "gallery").exists():
        shutil.copytree(home / "gallery", pages / "gallery")
        show_board(pages)
    settings = home / "zensical.toml"
    settings.write_text(
        SETTINGS.format(nav=navigation(pages), source=json.dumps(str(ROOT / "src"))),
        encoding="utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "-f",
        str(settings),
    ]
    sys.exit(subprocess.run(command, cwd=home, check=False).returncode)


if __name__ == "__main__":
    main()
