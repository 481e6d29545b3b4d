from pyspark.sql import SparkSession

from offsetstream.stream.state.columns import partition_number_column


def test_the_number_of_each_partition(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(number,) for number in (0, 1, 2, 49)], "offsets_partition INT")
    found = rows.select(
        "offsets_partition",
        partition_number_column({0: 5, 2: 2**40, 3: 1}, -1).alias("some"),
        partition_number_column({}, 7).alias("none"),
    ).collect()
    assert {row.offsets_partition: (row.some, row.none) for row in found} == {
        0: (5, 7),
        1: (-1, 7),
        2: (2**40, 7),
        49: (-1, 7),
    }


def test_numbers_that_are_all_small_and_a_default_that_is_not(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(0,), (1,)], "offsets_partition INT")
    found = rows.select(partition_number_column({0: 1}, 2**40).alias("number")).collect()
    assert sorted(row.number for row in found) == [1, 2**40]
