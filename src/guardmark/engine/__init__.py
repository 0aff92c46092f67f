"""Doing: samples go through defenses, models and judges; every answer is stored once.

A plan is carried out here, with budgets, stop rules and exactly one answer a question; what a plan
names is built in `app.parts`. Begin with `runner`; `execution` makes the calls.
"""
