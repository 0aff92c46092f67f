"""What services of a run refused by name, and how their addresses answered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError
from guardmark.net.service import ENDPOINTS, traffic_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter
    from guardmark.store.run_dir import RunDir

_MOST_READ: Final = 1 << 20  # of a file that anybody may have made
_REFUSED_FIELDS: Final = "refused-fields/"
"""How the names of layers begin that say which field of its requests a server refused."""
_NO_SCORE: Final = "; no score: the server gives no token probabilities"


def note_refused_fields(writer: RecordWriter, refused: Mapping[str, Any]) -> list[str]:
    """Store which fields each service refused by name, and say it, a sentence for each."""
    sentences = []
    for address, fields in refused.items():
        for name, instead in fields.items():
            consequence = "it was left out"
            if instead:
                consequence = f"{instead} was sent instead"
            if name == "top_logprobs":
                consequence += _NO_SCORE
            sentences.append(f"{address} refuses {name}: {consequence}")
    for sentence in sentences:
        writer.add_layer(f"{_REFUSED_FIELDS}{sentence}", {})
    return sentences


def refused_fields(reader: RecordReader) -> tuple[str, ...]:
    """Return these sentences of a run."""
    sentences = []
    for layer in reader.layers():
        if layer.startswith(_REFUSED_FIELDS):
            sentences.append(layer.removeprefix(_REFUSED_FIELDS))
    return tuple(sentences)


def read_endpoints(folder: RunDir) -> tuple[str, ...]:
    """Read how each of several addresses of a service answered, a line for each command."""
    path = folder.file(ENDPOINTS)
    if not path.is_file():
        return ()
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_READ).splitlines()
        return tuple(traffic_text(json.loads(line)) for line in lines)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is not as guardmark wrote it.\nNext: remove it.") from error
