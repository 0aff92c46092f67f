"""Read the data sets that metadata describe with mlcroissant; print what it found."""

import json
import sys

import mlcroissant

told = {}
for path in sys.argv[1:]:
    dataset = mlcroissant.Dataset(jsonld=path)
    ids = []
    for record_set in dataset.metadata.record_sets:
        records = dataset.records(record_set.uuid)
        ids += [record[f"{record_set.uuid}/id"].decode() for record in records]
    told[path] = {
        "errors": list(dataset.metadata.issues.errors),
        "name": dataset.metadata.name,
        "ids": ids,
    }
sys.stdout.write(json.dumps(told) + "\n")
