"""Guard cards: what a run shows of one defense or arm, as one value that travels without the run.

`card.py` holds the value and makes it from a run, `cohort.py` says which cards may be compared,
`claims.py` holds what makers and others published and sets it beside what was measured,
`consistency.py` checks a card that came from elsewhere, `ranking.py` sorts cards of one cohort into
tiers.
"""
