"""The web pages of the broker and of the Spark jobs.

`files` contains the files exactly as the browser gets them: there is no build step.  `vendor`
contains third-party code (`vendored.toml` lists names and sources), `common` code shared by all
pages, `broker` the broker's page, and `jobs` a script for each job's page.

This package only reads its own files, and does not depend on the rest of Leveret.
"""
