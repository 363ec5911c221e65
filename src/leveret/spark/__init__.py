"""The PySpark data source: streams and queues as tables."""
