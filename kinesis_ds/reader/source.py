"""The streams of one query with what reads them: the network loop and the agents."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.agent import EmbeddedAgents
from kinesis_ds.aws.transport import check_transport
from kinesis_ds.errors import OffsetError, StreamRecreatedError
from kinesis_ds.observe.counters_file import StatisticsFile
from kinesis_ds.plan.loss import stream_recreated
from kinesis_ds.plan.offsets import SourceOffset, StreamOffset
from kinesis_ds.plan.start import ShardPositions, pin_now_ms
from kinesis_ds.reader.fallbacks import Fallbacks
from kinesis_ds.reader.marker import RunMarker
from kinesis_ds.reader.open_stream import OpenStream
from kinesis_ds.reader.progress import shard_counters
from kinesis_ds.reader.source_stream import SourceStream, look_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.agent.interface import Agents
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.options.read import ReadOptions
    from kinesis_ds.plan.start import Start

logger = logging.getLogger(__name__)


class Source:
    """The streams of a query, looked up once and opened once. Close it when done.

    A stream goes from :class:`SourceStream` (looked up) to :class:`OpenStream` (being read).

    Args:
        options: What the user asked for.
        clock: For deadlines and the start of a new query.
        new_network: Makes the network loop.
        new_processes: Starts agent processes, where the user wants more than one.

    Attributes:
        open: The streams that are being read, by ARN.
        several: True if the query reads more than one stream.
        fallbacks: Counts the ranges that tasks read from Kinesis.
    """

    def __init__(
        self,
        options: ReadOptions,
        clock: Clock,
        new_network: Callable[[AwsOptions], NetworkLoop],
        new_processes: Callable[..., Agents],
    ) -> None:
        self.open: dict[str, OpenStream] = {}
        self.several = len(options.streams) > 1
        self.fallbacks = Fallbacks(options.agent_advertised_host, clock)
        self._options = options
        self._clock = clock
        self._new_network = new_network
        self._new_processes = new_processes
        self._network: NetworkLoop | None = None
        self._agents: Agents | None = None
        self._streams: dict[str, SourceStream] = {}
        self._start: SourceOffset | None = None
        self._statistics_file: StatisticsFile | None = None
        self._marker: RunMarker | None = None

    @property
    def network(self) -> NetworkLoop:
        """The loop that makes all calls, started when it is first asked for."""
        if self._network is None:
            aws = self._options.aws
            if self._options.mode == "efo":
                check_transport(aws.transport, aws.endpoint)
            self._network = self._new_network(aws)
        return self._network

    @property
    def agents(self) -> Agents:
        """The agents that read all streams, started when they are first asked for."""
        if self._agents is None:
            options = self._options
            if options.agent_processes == 1:
                self._agents = EmbeddedAgents(options.buffer_bytes, self.network, self._clock)
            else:
                self._agents = self._new_processes(
                    options.agent_processes,
                    options.buffer_bytes,
                    options.aws,
                    self.network,
                    self._clock,
                )
            if options.diagnostics_dir:
                self._statistics_file = StatisticsFile(
                    options.diagnostics_dir, "source", self.statistics
                )
        return self._agents

    @property
    def has_agents(self) -> bool:
        """True once agents were started."""
        return self._agents is not None

    def statistics(self) -> dict[str, Any]:
        """Return the counters of this source, as plain values. From any thread."""
        streams, agents = tuple(self._streams.values()), self._agents
        names = [s.info.name for s in streams] or [s.label for s in self._options.streams]
        found: dict[str, Any] = {"kind": "source", "stream": ",".join(names)}
        if streams:
            found["consumer"] = streams[0].consumer
        if agents is not None:
            found.update(agents.statistics())
            found["ranges"] = self.fallbacks.counters(found)
            found["shards"] = shard_counters(self.open.values(), several=self.several)
            found["ended_shards"] = sum(s.ended_shards for s in tuple(self.open.values()))
        return found

    # --- looking up -----------------------------------------------------------------------------

    def streams(self, *, fresh: bool = False) -> dict[str, SourceStream]:
        """Return the streams by ARN, looked up once; ``fresh``: again, if nothing reads them yet.

        Raises:
            KinesisConnectorError: A stream does not exist or cannot be read.
        """
        if not self._streams or (fresh and not self.has_agents):
            self._streams = look_up(self._options.choices, self._options, self.network, self._clock)
        return self._streams

    def streams_of(self, base: SourceOffset) -> dict[str, SourceStream]:
        """Return all streams of the query, which must have those of ``base``.

        Raises:
            OffsetError: The query does not read a stream of ``base``.
        """
        streams = self.streams()
        gone = sorted(base.streams.keys() - streams.keys())
        stay = sorted(base.streams.keys() & streams.keys())
        if gone and stay:
            raise OffsetError(
                f"The checkpoint holds positions of {len(base.streams)} streams, and the query no "
                f"longer reads {', '.join(gone)}. Going on would forget how far it was read.",
                "Name all streams of the checkpoint, or start with a new checkpointLocation; "
                f"initialPosition may then be the checkpoint's positions of {', '.join(stay)}.",
            )
        if gone:
            raise OffsetError(
                f"The checkpoint belongs to the stream {', '.join(gone)}, and the query reads "
                f"{', '.join(streams)}.",
                "Use the streams of the checkpoint, or start with a new checkpointLocation.",
            )
        return streams

    # --- where streams stand --------------------------------------------------------------------

    def start(self) -> SourceOffset:
        """Return where the query starts, decided at the first call."""
        if self._start is None:
            self._start = self.new_start()
        return self._start

    def new_start(self) -> SourceOffset:
        """Decide where a query starts that begins now, and under what name it reads."""
        options = self._options
        made_up = f"{options.consumer_prefix}{secrets.token_hex(6)}"
        offsets = {}
        for arn, stream in self.streams().items():
            info, consumer = stream.info, stream.choice.consumer or made_up
            now_ms = pin_now_ms(self._clock.wall(), info.server_time)
            start: Start | ShardPositions = options.initial_position
            if isinstance(start, ShardPositions):
                start = start.of(info.arn, stream.listed, info.created_ms)
            offsets[arn] = stream.at_start(consumer, start, now_ms)
            logger.info(
                "start pinned stream=%s consumer=%s shards=%d",
                info.name,
                consumer,
                len(offsets[arn].shards),
            )
        return SourceOffset(offsets)

    def known(self, stream: SourceStream, base: SourceOffset) -> StreamOffset:
        """Return where a stream stands in ``base``, or its start if it is not in ``base``."""
        offset = base.streams.get(stream.info.arn)
        if offset is None:
            return self.start().streams[stream.info.arn]
        return stream.checked(offset)

    # --- opening --------------------------------------------------------------------------------

    def opened(self, base: SourceOffset) -> dict[str, OpenStream]:
        """Return the streams by ARN, being read. Those that are not yet start at ``base``.

        Raises:
            OffsetError: The query does not read a stream of ``base``.
            KinesisConnectorError: A stream cannot be opened, or one delivers nothing more.
        """
        streams = self.streams_of(base)
        if streams.keys() - base.streams.keys():
            self.start()  # of a stream that was added to the query
        if self._marker is None:
            self._marker = self._mark(base)
        for arn, stream in streams.items():
            if arn not in self.open:
                self._open(stream, base)
        for opened in tuple(self.open.values()):
            try:
                opened.raise_failure()
            except StreamRecreatedError:
                self._begin_again(opened, base)
        return self.open

    def _mark(self, base: SourceOffset) -> RunMarker:
        consumers = [f"{arn} {of.consumer}" for arn, of in sorted(base.streams.items())]
        names = ", ".join(of.name for of in base.streams.values())
        endpoint = self._options.aws.endpoint or ""
        return RunMarker([endpoint, *consumers], f"stream {names}")

    def _open(self, stream: SourceStream, base: SourceOffset) -> None:
        resumed = base != self._start
        if resumed and stream.info.arn in base.streams:
            stream.log_resumed(base.streams[stream.info.arn])
        self.open[stream.info.arn] = OpenStream(
            stream, self.known(stream, base), self.agents, resumed=resumed
        )

    def _begin_again(self, opened: OpenStream, base: SourceOffset) -> None:
        """Open the new stream in place of one that was deleted, where the user wants that."""
        loss = stream_recreated(opened.source.info.name)
        loss.accept(fail_on_data_loss=self._options.fail_on_data_loss)
        choices = [opened.source.choice]
        found = look_up(choices, self._options, self.network, self._clock)
        opened.close()
        del self.open[opened.source.info.arn]
        self._streams.update(found)
        for stream in found.values():
            self._open(stream, base)

    def close(self) -> None:
        """End everything that was started. Idempotent, never raises."""
        if self._statistics_file is not None:
            self._statistics_file.close()
        for stream in self.open.values():
            stream.close()
        if self._agents is not None:
            self._agents.close()
        if self._network is not None:
            if self._options.deregister:
                for looked_up in self._streams.values():
                    looked_up.deregister()
            self._network.close()
        if self._marker is not None:
            self._marker.close()
        self._agents = self._network = self._statistics_file = self._marker = None
        self.open, self._streams = {}, {}
