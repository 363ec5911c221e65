"""The web pages of the broker and of the Spark jobs.

`files` contains the files exactly as the browser receives them, without a build step.  `vendor`
contains third-party code (`vendored.toml` lists names and sources), `common` code shared by all
pages, `broker` the broker's page, and `jobs` a script for the page of each job.

This package only reads its own files, and does not depend on the rest of Leveret.
"""
