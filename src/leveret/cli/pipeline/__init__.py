"""The commands of `leveret pipeline`, with a module for each Spark job."""
