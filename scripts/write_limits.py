"""Write the table of limits into `docs/reference/limits.md`."""

from __future__ import annotations

from pathlib import Path

from guardmark.core.limits import limits_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "limits.md"


def main() -> None:
    """Replace what stands below the head of the table."""
    head = PAGE.read_text(encoding="utf-8").partition("| what |")[0]
    PAGE.write_text(f"{head}{limits_table()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
