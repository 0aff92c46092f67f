"""Reports: chapters put figures into one document without a format, renderers draw it.

No figure is computed here. Begin with `chapters.run_document`, which lines up the chapters; then
`document.blocks`, and `render` for HTML, Markdown, terminal and JSON.
"""
