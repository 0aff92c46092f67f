"""Write `manifest.json` beside each built-in data set: version, counts and hashes.

Run it after a change of built-in data, raise the version in `datasets/builtin/sets.toml` first, and
put the new hash into the data card. A test compares all three with the files.

Usage: python scripts/seal_builtin.py [--check]
"""

from __future__ import annotations

import json
import sys

from guardmark.app.croissant import describe_dataset, metadata_text
from guardmark.app.data import FileOptions, open_data
from guardmark.datasets.builtin import BUILTIN_SETS, BuiltinSet
from guardmark.datasets.settings import data_sha256


def seal_text(builtin: BuiltinSet) -> str:
    """Return the text of a set's `manifest.json`.

    Args:
        builtin: The set.
    """
    manifests = open_data([f"builtin:{builtin.target}"], FileOptions()).loaded.manifests
    files = {
        name.rpartition("/")[2]: {
            "attacks": manifest.attacks,
            "benign": manifest.benign,
            "content_sha256": manifest.sha256,
            "file_sha256": file_hash,
        }
        for manifest in manifests
        for name, file_hash in manifest.files.items()
    }
    document = {
        "name": builtin.name,
        "version": builtin.version,
        "sha256": data_sha256(manifests),
        "attacks": sum(manifest.attacks for manifest in manifests),
        "benign": sum(manifest.benign for manifest in manifests),
        "files": files,
    }
    return json.dumps(document, indent=2) + "\n"


def main() -> int:
    """Write or, with `--check`, compare every manifest.

    Returns:
        0, or 1 when a comparison found a difference.
    """
    only_check = "--check" in sys.argv[1:]
    differing = 0
    for builtin in BUILTIN_SETS:
        metadata = metadata_text(describe_dataset(f"builtin:{builtin.target}"))
        texts = {"manifest.json": seal_text(builtin), "croissant.json": metadata}
        for name, text in texts.items():
            path = builtin.folder / name
            same = path.is_file() and path.read_text(encoding="utf-8") == text
            if not same and not only_check:
                path.write_text(text, encoding="utf-8")
            differing += not same
            stamp = "unchanged" if same else "differs" if only_check else "written"
            print(f"{builtin.name} {builtin.version} {name}: {stamp}")
    return int(only_check and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
