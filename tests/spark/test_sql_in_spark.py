from pyspark.sql import SparkSession

from offsetstream.stream.records import partition_number


def test_each_partition_gets_its_number(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(number,) for number in (0, 1, 2, 49)], "offsets_partition INT")
    found = rows.selectExpr(
        "offsets_partition",
        f"{partition_number({0: 5, 2: 2**40, 3: 1}, -1)} AS some",
        f"{partition_number({}, 7)} AS none",
    ).collect()
    assert {row.offsets_partition: (row.some, row.none) for row in found} == {
        0: (5, 7),
        1: (-1, 7),
        2: (2**40, 7),
        49: (-1, 7),
    }


def test_small_numbers_with_a_large_default(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(0,), (1,)], "offsets_partition INT")
    found = rows.selectExpr(f"{partition_number({0: 1}, 2**40)} AS number").collect()
    assert sorted(row.number for row in found) == [1, 2**40]
