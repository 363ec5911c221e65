"""The pages that people look at: the broker's own, and the parts of those of the Spark jobs.

The files of the pages are in `files`, as the browser gets them: there is no build step.  `vendor`
holds what others wrote (`vendored.toml` says what and from where), `common` what all pages share,
`broker` the broker's page, and `jobs` a script for each job's page.

This room reads files of the package and knows nothing of the rest of Leveret.
"""
