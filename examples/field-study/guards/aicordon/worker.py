"""Picket, the local detector of aicordon."""

from aicordon import picket

detector = picket.load()


def check(text):
    return detector.check(text).flagged
