"""A DAG that moves new messages of the stream `orders` to a lake every hour, by spark-submit.

Copy this directory into Airflow's directory of DAGs.  The worker needs the package
`apache-airflow-providers-apache-spark`, `spark-submit` in its path, and these variables:

AIRFLOW_CONN_SPARK_DEFAULT  the master: {"conn_type": "spark", "host": "spark://spark.example",
                            "port": 7077}
LEVERET_URI                 the broker, such as amqp://reader:secret@broker.example/%2F
LEVERET_SPARK_ZIP           the path of the wheel of leveret-spark, with a name that ends in .zip
ORDERS_LAKE                 a directory that the driver and all executors reach

A run reads what came since the last one, and ends: the checkpoint in the lake knows where that was.
A checkpoint serves one query at a time, so only one run may be active.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import dag

JOB = Path(__file__).parent / "jobs" / "orders_to_lake.py"
PACKAGE = os.environ.get("LEVERET_SPARK_ZIP", "/opt/leveret_spark.zip")


@dag(
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
)
def archive_orders() -> None:
    """Submit the job.  A retry continues with the batch that failed, and doubles nothing."""
    SparkSubmitOperator(
        task_id="archive",
        application=str(JOB),
        py_files=PACKAGE,
        # Streaming reads need it in the path of the driver's JVM too.
        env_vars={"PYTHONPATH": PACKAGE},
        application_args=[os.environ.get("ORDERS_LAKE", "/data/orders")],
    )


archive_orders()
