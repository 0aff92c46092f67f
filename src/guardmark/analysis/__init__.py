"""From records to figures: rates, slices, scores, latency, comparisons, gates, by topic.

Formulas come from `stats`; words and tables are written in `reports.chapters`. Begin with `run`,
which computes everything a report says, then `defense.scorecard`.
"""
