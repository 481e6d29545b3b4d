"""The streaming job for spark-submit and Databricks: `offsetstream run` in the launcher's own session."""

from offsetstream.cli.submitted import materialize_offsets

if __name__ == "__main__":
    materialize_offsets()
