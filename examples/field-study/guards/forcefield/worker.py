"""forcefield at its defaults, telemetry off."""

import forcefield

guard = forcefield.Guard(telemetry=False)


def check(text):
    result = guard.scan(text)
    return result.blocked, result.risk_score
