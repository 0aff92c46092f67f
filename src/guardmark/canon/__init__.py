"""One versioned canonical form of a text, and visible forms of hidden characters.

Attacks, their checks and repairs share it; operators that rewrite live in `attacks`. Begin with
`steps`; `visible` shows what a person could not see.
"""
