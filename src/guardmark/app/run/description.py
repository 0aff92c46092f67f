"""What was run, as files: configuration, data and environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.manifest import DataManifest
    from guardmark.store.run_dir import RunDir


def write_description(
    folder: RunDir,
    *,
    config: Mapping[str, Any],
    data: Sequence[DataManifest],
    environment: Mapping[str, object],
) -> None:
    """Write what was run: configuration, data and environment."""
    import yaml

    folder.write_text(
        folder.resolved_config.name,
        yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True),
    )
    folder.write_text(folder.data_manifest.name, _json([_data_json(m) for m in data]))
    folder.write_text(folder.environment.name, _json(environment))


def _data_json(manifest: DataManifest) -> dict[str, object]:
    return {
        "name": manifest.name,
        "version": manifest.version,
        "sha256": manifest.sha256,
        "attacks": manifest.attacks,
        "benign": manifest.benign,
        "files": dict(manifest.files),
        "mapping": dict(manifest.mapping),
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False) + "\n"
