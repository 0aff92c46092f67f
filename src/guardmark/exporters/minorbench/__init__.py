"""Runs in the layout of minor_bench, with the definitions of that tool."""
