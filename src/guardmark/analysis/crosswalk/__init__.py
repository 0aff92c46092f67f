"""A run beside a framework: which figure is evidence for which item.

Nothing here says that anything conforms to anything.
"""
