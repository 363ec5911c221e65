"""The journal: records gathered into groups, the files on disk, and scans of the files."""
