"""The page docs/reference/records.md: the file of the records, from the schema that writes it."""

from __future__ import annotations

from pathlib import Path

from guardmark.store import schema

HEAD = """\
# The file of the records

<!-- Written by scripts/write_reference.py; edit store/schema.sql, not this page. -->

Everything that a run observed stands in `records.sqlite`, one SQLite database. Reports,
comparisons and exports are computed from it. To read records elsewhere, [export a
run](../how-to/export-a-run.md); this page is for those who read the file itself, and open it
without writing.

The view `results` holds every record with words in place of numbers:

```sql
SELECT defense, outcome, count(*) FROM results WHERE label = 'attack' GROUP BY 1, 2
```
"""
VERSIONS = """
## Version

`PRAGMA application_id` is {application} (`GMR1`), `PRAGMA user_version` is {version}. A file whose
`application_id` is {unreleased} (`GMRK`) was written before the first release: it is refused, with
an error that says so. From the first release on, every guardmark reads what a released one wrote.
Numbers and words of the lists below keep their places; new words are appended.
"""
NAMES = """
## What a call is stored under

A call is a row of `records`: which part answered, what it was shown, and what came back. `stage`
says whether a guard, the target model or a judge answered; `layer` is `run`, or the name of a
later judging. Arms are no rows: they are worked out from the calls, which they share.

| `defense` | what was asked |
|---|---|
| `words` | the guard `words`, about the sample |
| `none` | with stage `model` or `judge`: model and judges, about the sample as it is |
| `leaks@output` | the guard `leaks` behind the model, about the answer |
| `docs@context 2` | the guard `docs` about a document of the sample |
| `none after mask` | the same as `none`, about the text that the guard `mask` wrote |
| `leaks@output after 200 characters` | the guard, about so many characters of the answer |

`details` holds what few records have: the text (of an answer, or the one that a guard lets go on)
and the evidence as JSON. Evidence that many records share stands once in `sayings`. Each commit
is a row of `batches` with the hash of what it holds and of the batch before.
"""
FLAGS = {
    schema.FLAG_AMORTISED: "the latency is a share of a batch's time",
    schema.FLAG_COLD: "first call of the part in a process",
    schema.FLAG_CACHED: "the answer came from the cache",
    schema.FLAG_TRUNCATED: "the input was cut to fit the part",
    schema.FLAG_PLANNED: "the latency counts from the planned send time (open loop)",
    schema.FLAG_SHARED: "the answer of the first repeat, which stands for this one too",
    schema.FLAG_REWRITTEN: "another text goes on; it stands in `details`",
}


def records_page() -> str:
    """Return the page as Markdown."""
    application = f"0x{schema.APPLICATION_ID:X}"
    versions = VERSIONS.format(
        application=application,
        unreleased=f"0x{schema.UNRELEASED_APPLICATION_ID:X}",
        version=schema.SCHEMA_VERSION,
    )
    parts = [HEAD, versions, NAMES]
    parts.append(
        "\n## Numbers and their words\n\nThe table `words` of each file holds them too.\n\n"
    )
    parts.append("| column | words, from 0 |\n|---|---|\n")
    for kind, words in schema.WORDS.items():
        listed = ", ".join(f"`{word}`" for word in words)
        parts.append(f"| `{kind}` | {listed} |\n")
    parts.append("\n`flags` is a sum:\n\n| flag | meaning |\n|--:|---|\n")
    for flag, meaning in FLAGS.items():
        parts.append(f"| {flag} | {meaning} |\n")
    parts.append("\n## Tables\n\n```sql\n")
    script = Path(schema.__file__).with_name("schema.sql").read_text(encoding="utf-8").strip()
    parts.append(f"{script}\n```\n")
    return "".join(parts)
