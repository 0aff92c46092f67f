"""Pages over many runs, served on this machine.

Everything a page shows is a chapter of `reports` or a figure of `analysis`; nothing is computed
here. Begin with `server`, then `pages`.
"""
