"""The web pages: the broker's own, and the parts that the Spark jobs' pages share.

The files of the pages are in `files`, exactly as the browser gets them: there is no build step.
`vendor` contains third-party code (`vendored.toml` lists names and sources), `common` code shared
by all pages, `broker` the broker's page, and `jobs` a script for each job's page.

This room reads files of the package and does not depend on the rest of Leveret.
"""
