"""alt-profanity-check at its defaults."""

from profanity_check import predict, predict_prob


def check(text):
    return bool(predict([text])[0]), float(predict_prob([text])[0])
