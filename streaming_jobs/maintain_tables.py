"""`offsetstream maintain` for spark-submit and Databricks workflows, in the launcher's own session."""

from offsetstream.cli.submitted import maintain_tables

if __name__ == "__main__":
    maintain_tables()
