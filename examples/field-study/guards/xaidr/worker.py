"""xaidr in the mode that blocks; what it only flags goes through, as its README says."""

from xaidr import Sensor

sensor = Sensor(agent_id="study", enforcement_mode="block")


def check(text):
    result = sensor.scan(text, direction="input")
    return result.action in {"blocked", "approval_required"}, result.score
