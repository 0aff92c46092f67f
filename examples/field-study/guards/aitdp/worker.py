"""aitdp at its defaults."""

from aitdp import Pipeline, Stage

pipeline = Pipeline.default()


def check(text):
    return pipeline.scan(text, stage=Stage.user_input).blocked
