"""What a run says of the data it read, in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from guardmark.core.manifest import DataManifest


def describe_data(manifests: Sequence[DataManifest], builtin: Collection[str]) -> Iterable[str]:
    """Say what was read and which field of a file was taken for what."""
    for name in dict.fromkeys(m.name for m in manifests if m.name in builtin):
        files = [m for m in manifests if m.name == name]
        yield f"Read {name} version {files[0].version}: {_counts(files)}"
    for manifest in manifests:
        if manifest.name in builtin:
            continue
        taken = ", ".join(
            f"{field} from {path}" if field != path else field
            for field, path in manifest.mapping.items()
        )
        rows = f"{_counts([manifest])} (taken: {taken})" if taken else "no row passes the filter"
        yield f"Read {', '.join(manifest.files)}: {rows}"


def _counts(manifests: Sequence[DataManifest]) -> str:
    attacks = sum(manifest.attacks for manifest in manifests)
    benign = sum(manifest.benign for manifest in manifests)
    return f"{attacks:,} attacks, {benign:,} benign"
