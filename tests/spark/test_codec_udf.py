"""The codec's UDF in a Spark job that uses nothing else of offsetstream."""

import pyarrow as pa
from pyspark.sql import SparkSession

from offsetstream.codec import DECODED_SCHEMA, decode_records
from offsetstream.codec.udf import decode_udf
from tests.unit.codec.test_decode_records import sample


def test_spark_decodes_like_arrow(spark: SparkSession) -> None:
    records = sample(400)
    rows = [(number, *record) for number, record in enumerate(records)]
    frame = spark.createDataFrame(rows, "number int, key binary, value binary").repartition(3)
    decoded = frame.select("number", decode_udf("key", "value").alias("decoded")).select("number", "decoded.*")
    table = decoded.orderBy("number").drop("number").toArrow()
    expected = decode_records([key for key, _ in records], [value for _, value in records])
    assert table.to_pylist() == pa.Table.from_batches([expected]).to_pylist()
    assert table.schema.names == DECODED_SCHEMA.names


def test_a_filter_on_a_field_decodes_once(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"\0\3\0\1g", None)], "key binary, value binary")
    decoded = frame.select(decode_udf("key", "value").alias("decoded")).select("decoded.*").where("group_id = 'g'")
    plan = decoded._jdf.queryExecution().executedPlan().toString()
    assert plan.count("ArrowEvalPython") == 1
    assert [row.key_json for row in decoded.collect()] == ['{"type":3,"data":{"groupId":"g"}}']
