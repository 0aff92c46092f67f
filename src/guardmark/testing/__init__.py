"""What pytest and the authors of plug-ins use: a fixture for tests, and contracts to keep.

Tests of guardmark itself live in `tests`. Begin with `contracts`; `foreign` holds readers of other
tools' files to their laws, `reading` those of judges' answers.
"""
