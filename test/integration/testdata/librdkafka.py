"""What an application does with confluent-kafka (librdkafka). usage: librdkafka.py BOOTSTRAP RECORDS

RECORDS are in the mirror topic "catalog". Prints "ok STEP" after each step; any surprise ends it.
"""
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

bootstrap, catalog_records = sys.argv[1], int(sys.argv[2])
common = {"bootstrap.servers": bootstrap}
admin = AdminClient(common)


def done(step):
    print("ok", step, flush=True)


def eventually(what, condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def create(topic, partitions):
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    eventually(f"{topic} is known", lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == partitions)

    def leads():
        ends = admin.list_offsets({TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)})
        return not any(end.exception(30) for end in ends.values())

    eventually(f"{topic} has leaders", leads)


def produce(topic, records, **config):
    failed = []
    producer = Producer(common | config)
    for i in range(records):
        producer.produce(topic, f"value-{i}", f"key-{i}", headers=[("n", str(i)), ("null", None)], on_delivery=lambda error, _: error and failed.append(error))
        producer.poll(0)
    left = producer.flush(60)
    if failed or left:
        sys.exit(f"{topic}: {len(failed)} failed, {left} unsent: {failed[:1]}")


def read(topic, records, **config):
    """Reads records as a group, commits and leaves."""
    consumer = Consumer(common | {"auto.offset.reset": "earliest", "enable.auto.commit": False} | config)
    consumer.subscribe([topic])
    got, deadline = [], time.monotonic() + 60
    while len(got) < records:
        if time.monotonic() > deadline:
            sys.exit(f"{topic}: {len(got)} of {records} records in 60 s")
        message = consumer.poll(0.2)
        if message is None:  # a message without a value is false, too
            continue
        if message.error():
            sys.exit(f"{topic}: {message.error()}")
        got.append(message)
    consumer.commit(asynchronous=False)
    consumer.close()
    return got


create("librdkafka", 3)
resource = ConfigResource(ResourceType.TOPIC, "librdkafka", incremental_configs=[
    ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)])
admin.incremental_alter_configs([resource])[resource].result(30)
resource = ConfigResource(ResourceType.TOPIC, "librdkafka")
eventually("the config is set", lambda: admin.describe_configs([resource])[resource].result(30)["retention.ms"].value == "86400000")
admin.create_partitions([NewPartitions("librdkafka", 4)])["librdkafka"].result(30)
eventually("there are 4 partitions", lambda: len(admin.list_topics("librdkafka", timeout=10).topics["librdkafka"].partitions) == 4)
cluster = admin.describe_cluster().result(30)
host = bootstrap.rpartition(":")[0]
if any(node.host != host for node in [*cluster.nodes, cluster.controller]):
    sys.exit(f"DescribeCluster names {[(n.host, n.port) for n in cluster.nodes]}")
done("admin")

for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
    produce("librdkafka", 200, **{"compression.type": codec, "enable.idempotence": codec == "zstd"})
done("produce")

messages = read("librdkafka", 1000, **{"group.id": "librdkafka"})
if {m.headers()[1] for m in messages} != {("null", None)}:
    sys.exit("headers were changed")
done("consume")

produce("librdkafka", 50)
again = read("librdkafka", 50, **{"group.id": "librdkafka"})
if len({(m.partition(), m.offset()) for m in messages + again}) != 1050:
    sys.exit("the group read records twice")
if admin.describe_consumer_groups(["librdkafka"])["librdkafka"].result(30).coordinator.host != host:
    sys.exit("the coordinator is not at the gateway")
read("librdkafka", 1050, **{"group.id": "librdkafka-848", "group.protocol": "consumer"})
done("group")

create("librdkafka-out", 1)
producer = Producer(common | {"transactional.id": "librdkafka"})
producer.init_transactions(30)
for commit in [False, True]:
    producer.begin_transaction()
    producer.produce("librdkafka-out", f"commit={commit}")
    producer.flush(30)
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)
if read("librdkafka-out", 1, **{"group.id": "librdkafka-out", "isolation.level": "read_committed"})[0].value() != b"commit=True":
    sys.exit("an aborted record was read")
done("transactions")

for protocol in ["classic", "consumer"]:
    mirrored = read("catalog", catalog_records, **{"group.id": f"librdkafka-catalog-{protocol}", "group.protocol": protocol})
    if len({(m.partition(), m.offset()) for m in mirrored}) != catalog_records:
        sys.exit("records of the mirror topic twice or missing")
done("mirror")

errors = []
producer = Producer(common | {"message.timeout.ms": 20000})
producer.produce("catalog", b"x", on_delivery=lambda error, _: errors.append(error))
producer.flush(30)
if [e and e.code() for e in errors] != [KafkaError.POLICY_VIOLATION]:
    sys.exit(f"writing to a mirror topic: {errors}")
try:
    admin.delete_topics(["catalog"])["catalog"].result(30)
    sys.exit("a mirror topic was deleted")
except KafkaException as e:
    if e.args[0].code() != KafkaError.POLICY_VIOLATION:
        sys.exit(f"deleting a mirror topic: {e}")
done("readonly")
