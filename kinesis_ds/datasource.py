"""The entry point that Spark sees: ``format("kinesis")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter

from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.wire.schema import check_source_schema, source_ddl

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceWriter
    from pyspark.sql.types import StructType


class KinesisDataSource(DataSource):
    """Reads and writes Amazon Kinesis Data Streams.

    Options are checked when the query is built; see ``docs/reference/options.md``. Source and sink
    are imported only when they are used: Spark starts one process just to find this class, and
    another one just to read its schema.
    """

    @classmethod
    def name(cls) -> str:
        return "kinesis"

    def schema(self) -> str:
        from kinesis_ds.agent.listening import check_host  # noqa: PLC0415

        options = parse_read_options(self.options, None)
        # Here and not in streamReader: what that raises, PySpark hides behind an error of its own.
        check_host(options.agent_host)
        return source_ddl(metadata=options.metadata)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kinesis_ds.reader.stream import KinesisStreamReader  # noqa: PLC0415

        options = parse_read_options(self.options, "stream")
        check_source_schema(schema, metadata=options.metadata)
        return KinesisStreamReader(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from kinesis_ds.writer.stream import make_stream_writer  # noqa: PLC0415

        return make_stream_writer(self.options, schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        from kinesis_ds.reader.batch import KinesisBatchReader  # noqa: PLC0415

        options = parse_read_options(self.options, "batch")
        check_source_schema(schema, metadata=options.metadata)
        return KinesisBatchReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kinesis_ds.writer.batch import make_batch_writer  # noqa: PLC0415

        return make_batch_writer(self.options, schema, overwrite=overwrite)
