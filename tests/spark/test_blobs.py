"""BLOBs are referred to from Spark by their ids."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.nodes import Node

SCHEMA = "value BINARY, blobs ARRAY<BIGINT>"


def test_references_to_blobs_go_through_spark(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        scans = log.create_topic(topic, streams=2)
        blobs = [scans.put_blob(b"scan %d" % number) for number in range(3)]
        for number, blob in enumerate(blobs):
            scans.append(b"%d" % number, blobs=(blob, 1))
        copy = log.create_topic(f"{topic}-copy")

        reader = spark.read.format("tidelog").option("endpoint", node.url(topic))
        frame = reader.schema(SCHEMA).load()
        assert sorted((int(row.value), row.blobs) for row in frame.collect()) == [
            (number, [blob, 1]) for number, blob in enumerate(blobs)
        ]
        writer = frame.write.format("tidelog").mode("append")
        writer.option("endpoint", node.url(copy.name)).save()

        assert {record.value: record.blobs for record in copy.read()} == {
            b"%d" % number: (blob, 1) for number, blob in enumerate(blobs)
        }
        assert scans.collect_blobs(0).deleted == 0
        assert [scans.open_blob(blob).read() for blob in blobs] == [b"scan 0", b"scan 1", b"scan 2"]
