"""The files that serve models have the form that their readers want."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SERVERS = Path(__file__).resolve().parents[2] / "examples" / "servers"


def test_every_server_of_the_compose_file_has_a_model_and_an_address_of_its_own() -> None:
    """Ports of this machine only, one for each, and versions that have to be stated."""
    services = yaml.safe_load((SERVERS / "compose.yaml").read_text(encoding="utf-8"))["services"]
    ports = [port for each in services.values() for port in each["ports"]]
    assert len(set(ports)) == len(services) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)
    for each in services.values():
        assert ":?" in each["image"]
        assert "--revision" in each["command"]
        assert each["command"][each["command"].index("--revision") + 1].endswith(":?}")


def test_selectors_of_the_manifests_find_the_pods_and_the_job_covers_all_shards() -> None:
    """A service without pods, or a shard too few, would be found out late."""
    text = (SERVERS / "kubernetes.yaml").read_text(encoding="utf-8")
    parts: dict[str, Any] = {each["kind"]: each for each in yaml.safe_load_all(text)}
    service, servers, job = (parts[kind]["spec"] for kind in ("Service", "StatefulSet", "Job"))
    labels = servers["template"]["metadata"]["labels"]
    assert service["selector"] == servers["selector"]["matchLabels"] == labels
    assert servers["serviceName"] == parts["Service"]["metadata"]["name"]
    (container,) = servers["template"]["spec"]["containers"]
    assert container["ports"][0]["containerPort"] == service["ports"][0]["port"] == 8000
    (measure,) = job["template"]["spec"]["containers"]
    assert f"--shard $((JOB_COMPLETION_INDEX + 1))/{job['completions']} " in measure["command"][-1]
