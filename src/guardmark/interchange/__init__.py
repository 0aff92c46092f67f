"""Files of other tools, one file or package a tool, in both directions.

Reading turns what a tool wrote into samples, decisions, answers and verdicts; writing turns a run
into what the tool reads. What guardmark asks or counts itself does not live here.
Begin with `importers`: the table of what can be read; `imported` holds the values every reader
returns. The table of what can be written stands in `app.results.exporting`.
"""
