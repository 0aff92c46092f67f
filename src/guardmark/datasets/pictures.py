"""Samples with their text drawn as a picture, for defenses and models that look at images.

Drawn with the one font of fixed width that Pillow carries as pixels, so the same everywhere. Each
picture is read back by looking its cells up: no letter of the text is lost, which is tier V1.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from guardmark.canon.steps import skeleton
from guardmark.core.errors import needs
from guardmark.core.sample import Image

if TYPE_CHECKING:
    from guardmark.core.sample import Sample

_WIDE, _HIGH = 8, 12  # pixels of a cell; no character of the font reaches over it
_COLUMNS, _LINES, _SCALE = 64, 80, 2
"""Most that is drawn: services shrink pictures above about 2,048 pixels, and letters blur."""


@cache
def _cells() -> dict[str, Any]:
    """Return the picture of each character; of two that look the same, the usual one last."""
    with needs("Drawing texts needs Pillow", "image"):
        from PIL import Image as Images
        from PIL import ImageDraw, ImageFont
    cells = {}
    font = ImageFont.load_default_imagefont()
    for code in (*range(0xFF, 0xA0, -1), *range(0x7E, 0x1F, -1)):
        cells[chr(code)] = cell = Images.new("1", (_WIDE, _HIGH), 1)
        ImageDraw.Draw(cell).text((1, 0), chr(code), font=font, fill=0)
    return cells


def draw(text: str) -> Any:
    """Draw a text black on white, a pixel a dot, with an empty cell around."""
    cells = _cells()
    lines: list[str] = []
    for paragraph in text.splitlines():
        lines += wrap(paragraph, _COLUMNS) or [""]
    del lines[_LINES:]
    columns = max(map(len, lines), default=0) + 2
    picture = cells[" "].resize((columns * _WIDE, (len(lines) + 2) * _HIGH))
    for row, line in enumerate(lines, start=1):
        for column, char in enumerate(line, start=1):
            picture.paste(cells.get(char, cells[" "]), (column * _WIDE, row * _HIGH))
    return picture


def read(picture: Any) -> str:
    """Return what a picture of `draw` says, cell by cell."""
    known = {cell.tobytes(): char for char, cell in _cells().items()}
    characters = []
    for y in range(0, picture.height, _HIGH):
        for x in range(0, picture.width, _WIDE):
            cell = picture.crop((x, y, x + _WIDE, y + _HIGH))
            characters.append(known[cell.tobytes()])
    return "".join(characters)


def as_picture(sample: Sample) -> Sample | None:
    """Return the variant whose text is a picture; None where the picture would lose some of it."""
    text = sample.prompt.text
    wanted = skeleton(text)
    is_known = all(char in _cells() or char.isspace() for char in text)
    if not wanted or not is_known:
        return None
    drawn = draw(text)
    if skeleton(read(drawn)) != wanted:
        return None
    file = BytesIO()
    drawn.resize((drawn.width * _SCALE, drawn.height * _SCALE)).save(file, "PNG")
    content = file.getvalue()
    url = f"data:image/png;base64,{b64encode(content).decode()}"
    image = Image(sha256=sha256(content).hexdigest(), media_type="image/png", place=url)
    variant = f"{sample.variant}+picture"
    if sample.variant == "original":
        variant = "picture"
    return replace(
        sample,
        id=f"{sample.id}-picture",
        prompt=sample.prompt.with_text("", image),
        variant=variant,
        group=sample.lineage,
        must_keep=(),  # of the text, which is none any more
        spans=(),
        metadata={**sample.metadata, "tier": "V1"},
    )
