"""What a guard, a judge or another tool wrote, read without guessing.

Each reader takes a text that may be hostile, in time linear in its length; asking lives elsewhere.
Begin with `verdicts` (judges) and `guard` (guard models); `objects` finds their JSON.
"""
