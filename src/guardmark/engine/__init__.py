"""Doing: samples go through defenses, models and judges; every answer is stored once."""
