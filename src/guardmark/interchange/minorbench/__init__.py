"""Runs in the layout of minor_bench, read and written with the definitions of that tool."""
