"""Reads partition 0 of topics with librdkafka. Arguments: bootstrap, isolation level, then topic=end ..."""
import sys
import time
import zlib

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

bootstrap, isolation, ends = sys.argv[1], sys.argv[2], {}
for argument in sys.argv[3:]:
    topic, _, end = argument.rpartition("=")
    ends[topic] = int(end)


def text(b):
    if b is None:
        return "-"
    if len(b) > 200:
        return f"#{len(b)}:{zlib.crc32(b)}"
    return "x" + b.hex()


consumer = Consumer({
    "bootstrap.servers": bootstrap, "isolation.level": isolation, "group.id": "unused", "enable.auto.commit": False,
    "auto.offset.reset": "error", "enable.partition.eof": True, "fetch.wait.max.ms": 100,
})
consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in ends])
reached, lines, deadline = {}, [], time.monotonic() + 480
while any(reached.get(topic, -1) < end for topic, end in ends.items()) and time.monotonic() < deadline:
    for m in consumer.consume(10000, 0.2):
        if m.error() and m.error().code() == KafkaError._PARTITION_EOF:
            reached[m.topic()] = m.offset()
        elif m.error():
            sys.exit(f"{m.topic()}: {m.error()}")
        else:
            headers = "".join(f" {text(k.encode())}={text(v)}" for k, v in m.headers() or [])
            lines.append(f"{m.topic()} {m.offset()} {m.timestamp()[1]} {text(m.key())} {text(m.value())}{headers}")
consumer.close()
lines += [f"{topic} end {reached.get(topic, -1)}" for topic in ends]
print("\n".join(lines))
