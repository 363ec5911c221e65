"""The Spark jobs as commands, `leveret pipeline`: a file for each job."""
