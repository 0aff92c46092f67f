"""Files inside a zip file, also where they are packed with Zstandard, as Inspect does today."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from zipfile import ZipFile

ZSTANDARD: Final = 93
"""Number of the method in a zip file; the standard library reads it from Python 3.14 on."""

_LOCAL_HEADER: Final = struct.Struct("<4s5H3I2H")


def read_member(packed: ZipFile, data: bytes, name: str) -> bytes:
    """Unpack one file."""
    entry = packed.getinfo(name)
    if entry.compress_type != ZSTANDARD:
        return packed.read(name)
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ConfigError(
            "The log is packed with Zstandard, which needs pyarrow.\n"
            "Next: pip install 'guardmark[parquet]', or unpack it: "
            "inspect log convert FILE --to json --output-dir DIR"
        ) from error
    # The lengths of name and extra field stand before the content once more, and may differ.
    head = _LOCAL_HEADER.unpack_from(data, entry.header_offset)
    begin = entry.header_offset + _LOCAL_HEADER.size + head[-2] + head[-1]
    content = data[begin : begin + entry.compress_size]
    if not entry.file_size:
        return b""
    found: bytes = pa.Codec("zstd").decompress(
        content, decompressed_size=entry.file_size, asbytes=True
    )
    return found
