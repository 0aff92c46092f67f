"""Read what was exported with MLflow's own client: every run, its params, metrics and files."""

import json
import os
import sys

from mlflow import MlflowClient

client = MlflowClient(tracking_uri=os.environ["MLFLOW_TRACKING_URI"])
experiment = client.get_experiment_by_name("guardmark")
told = [
    {
        "id": run.info.run_id,
        "name": run.info.run_name,
        "status": run.info.status,
        "tags": run.data.tags,
        "params": run.data.params,
        "metrics": run.data.metrics,
        "files": sorted(each.path for each in client.list_artifacts(run.info.run_id)),
    }
    for run in client.search_runs([experiment.experiment_id], max_results=1_000)
]
if len(sys.argv) > 1:  # leave one half done, as a server that goes away does
    for run in told:
        if run["name"] == sys.argv[1]:
            client.delete_run(run["id"])
            tags = {key: run["tags"][key] for key in ("guardmark.head", "guardmark.subject")}
            client.create_run(experiment.experiment_id, tags=tags, run_name=run["name"])
sys.stdout.write(json.dumps(told) + "\n")
