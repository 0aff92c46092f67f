"""Logs of Inspect, read into a run and written from one."""
