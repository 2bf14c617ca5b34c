"""What the programs with librdkafka share."""
import time
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kit import BOOTSTRAP, CLIENT


def await_leader(topic, parts):
    """Until all partitions have a leader that answers."""
    stop, errors = time.time() + 60, None
    while time.time() < stop:
        # A new client each time: librdkafka remembers for a while that it did not know a topic.
        admin = AdminClient({'bootstrap.servers': BOOTSTRAP, 'client.id': CLIENT})
        fs = admin.list_offsets({TopicPartition(topic, p): OffsetSpec.latest() for p in range(parts)}).values()
        errors = [e for e in (f.exception(20) for f in fs) if e]
        if not errors:
            return
        time.sleep(0.05)
    assert False, f'the broker does not lead the topic: {errors[:1]}'
