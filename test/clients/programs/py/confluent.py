"""confluent-kafka-python (librdkafka)."""
import os, socket, struct, time
from confluent_kafka import (Consumer, Producer, ShareConsumer, TopicPartition, KafkaException, KafkaError, ConsumerGroupTopicPartitions, TopicCollection,
                             OFFSET_BEGINNING)
from confluent_kafka.admin import (AdminClient, NewTopic, NewPartitions, ConfigResource, ConfigEntry, ResourceType, AlterConfigOpType, OffsetSpec)
from kit import *
from rdkit import await_leader

admin = AdminClient({'bootstrap.servers': BOOTSTRAP, 'client.id': CLIENT})


def make_topic(check, parts):
    admin.create_topics([NewTopic(name(check), parts, 1)])[name(check)].result(60)
    for _ in range(1200):  # librdkafka has a metadata cache of its own
        if len(admin.list_topics(name(check), timeout=60).topics[name(check)].partitions) == parts:
            break
        time.sleep(0.05)
    # until the broker leads it: before, acks=0 is lost and a retry without idempotence may reorder
    await_leader(name(check), parts)
    return name(check)


def produce(topic, parts, start, end, **conf):
    p = Producer({'bootstrap.servers': BOOTSTRAP, 'client.id': CLIENT, 'linger.ms': 5} | {k.replace('_', '.'): v for k, v in conf.items()})
    errors = []
    for i in range(start, end):
        p.produce(topic, value(i), key(i), partition=i % parts, on_delivery=lambda e, m: e and errors.append(e))
        p.poll(0)
    left = p.flush(90)
    assert not errors and not left, f'{len(errors)} errors, {left} unsent: {errors[:1]}'


def consumer(group=None, **conf):
    return Consumer({'bootstrap.servers': BOOTSTRAP, 'client.id': CLIENT, 'group.id': group or name('none'), 'auto.offset.reset': 'earliest',
                     'enable.auto.commit': False, 'enable.partition.eof': True, 'fetch.wait.max.ms': 200} | {k.replace('_', '.'): v for k, v in conf.items()})


def read_all(topic, parts, **conf):
    """Returns the messages of each partition, read until each one's EOF."""
    c, got, eof, stop = consumer(**conf), [[] for _ in range(parts)], set(), time.time() + 80
    c.assign([TopicPartition(topic, p, 0) for p in range(parts)])
    while len(eof) < parts and time.time() < stop:
        for m in c.consume(500, 0.3):
            if m.error() and m.error().code() == KafkaError._PARTITION_EOF:
                eof.add(m.partition())
            elif m.error():
                raise KafkaException(m.error())
            else:
                got[m.partition()].append(m)
    c.close()
    return got


def round_trip(check, **conf):
    topic = make_topic(check, 3)
    produce(topic, 3, 0, N, **conf)
    return compare([[m.value() for m in ms] for ms in read_all(topic, 3)])


def metadata():
    md = admin.list_topics(timeout=60)
    d = admin.describe_cluster().result(60)
    assert d.cluster_id == md.cluster_id
    return allowed(*[(b.host, b.port) for b in md.brokers.values()], *[(n.host, n.port) for n in d.nodes], (d.controller.host, d.controller.port))


def coordinator():
    c = consumer(name('coordinator'))
    topic = make_topic('coordinator', 1)
    c.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    n = admin.describe_consumer_groups([name('coordinator')])[name('coordinator')].result(60).coordinator
    return 'group ' + allowed((n.host, n.port))


def create():
    topic = make_topic('create', 3)
    d = admin.describe_topics(TopicCollection([topic]))[topic].result(60)
    assert len(d.partitions) == 3
    allowed(*[(n.host, n.port) for p in d.partitions for n in [p.leader, *p.replicas, *p.isr]])
    try:
        make_topic('create', 3)
        assert False, 'created twice'
    except KafkaException as e:
        assert e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, e
    return '3 partitions; again: TOPIC_ALREADY_EXISTS'


def headers():
    topic, now = make_topic('headers', 1), int(time.time() * 1000) - 60000
    p = Producer({'bootstrap.servers': BOOTSTRAP})
    hs = [('h', b'1'), ('h', b'2'), ('null', None), ('empty', b'')]
    p.produce(topic, b'nullkey', None, 0, timestamp=now, headers=hs)
    p.produce(topic, None, b'nullvalue', 0, timestamp=now + 1)
    p.produce(topic, b'', b'', 0, timestamp=now + 2)
    p.flush(90)
    a, b, c = read_all(topic, 1)[0]
    assert (a.key(), a.value(), a.headers()) == (None, b'nullkey', hs), a.headers()
    assert (b.key(), b.value()) == (b'nullvalue', None)
    assert (c.key(), c.value()) == (b'', b'')
    assert [m.timestamp()[1] for m in (a, b, c)] == [now, now + 1, now + 2]
    return 'null and empty keys and values, 4 headers, timestamps'


def large():
    topic, big = make_topic('large', 1), os.urandom(900_000)
    p = Producer({'bootstrap.servers': BOOTSTRAP})
    p.produce(topic, big)
    assert p.flush(90) == 0
    assert read_all(topic, 1)[0][0].value() == big
    return '900000 bytes'


def poll_some(c, seconds=60):
    stop = time.time() + seconds
    while time.time() < stop:
        m = c.poll(0.2)
        if m and not m.error():
            return m


def seek():
    topic = make_topic('seek', 1)
    produce(topic, 1, 0, 100)
    c, tp = consumer(), TopicPartition(topic, 0)
    c.assign([TopicPartition(topic, 0, 0)])
    assert poll_some(c).offset() == 0
    c.pause([tp])
    assert poll_some(c, 0.6) is None, 'records while paused'
    c.resume([tp])
    c.seek(TopicPartition(topic, 0, 50))
    assert poll_some(c).offset() == 50
    assert c.get_watermark_offsets(tp) == (0, 100)
    c.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert poll_some(c).offset() == 0
    c.close()
    return 'pause, resume, seek to 50 and the beginning'


def offsets():
    topic, t = make_topic('offsets', 1), int(time.time() * 1000) - 60000
    p = Producer({'bootstrap.servers': BOOTSTRAP})
    for i in range(10):
        p.produce(topic, key(i), timestamp=t + i * 1000, partition=0)
    p.flush(90)
    c = consumer()
    assert c.offsets_for_times([TopicPartition(topic, 0, t + 4500)], timeout=60)[0].offset == 5
    tp = TopicPartition(topic, 0)
    for spec, want in [(OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 10), (OffsetSpec.max_timestamp(), 9), (OffsetSpec.for_timestamp(t + 4500), 5)]:
        got = admin.list_offsets({tp: spec})[tp].result(60).offset
        assert got == want, f'{spec}: {got}'
    return 'by timestamp, earliest, latest, max timestamp'


def poll_both(cs, got, done):
    stop = time.time() + 100
    while not done():
        assert time.time() < stop, f'not reached in 25 s: assignments {[len(c.assignment()) for c in cs]}, {len(got)} records'
        for c in cs:
            for m in c.consume(500, 0.1):
                if not m.error():
                    got.append(m)


def positions(*cs):
    return sum(max(tp.offset, 0) for c in cs for tp in c.position(c.assignment()))


def group(check='group', **conf):
    topic, g, got = make_topic(check, 4), name(check), []
    produce(topic, 4, 0, N)
    a, b = consumer(g, **conf), consumer(g, **conf)
    a.subscribe([topic])
    b.subscribe([topic])
    poll_both([a, b], got, lambda: len(a.assignment()) == 2 == len(b.assignment()) and positions(a, b) == N)
    assert len({m.key() for m in got}) == N
    d = admin.describe_consumer_groups([g])[g].result(60)
    assert len(d.members) == 2
    a.commit(asynchronous=False)
    b.commit(asynchronous=False)
    a.close()
    b.close()
    produce(topic, 4, N, N + 100)
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(g)])[g].result(60).topic_partitions
    ends = [admin.list_offsets({tp: OffsetSpec.latest()})[tp].result(60).offset for tp in committed]
    lag = sum(ends) - sum(tp.offset for tp in committed)
    assert lag == 100, f'lag {lag}'
    c, after = consumer(g, **conf), []
    c.subscribe([topic])
    poll_both([c], after, lambda: len(after) >= 100 and len(c.assignment()) == 4)
    c.close()
    assert len(after) == 100, f'{len(after)} after the restart'
    return f'2 members, {N} records, lag 100, restart read 100'


def static():
    topic, g, got = make_topic('static', 4), name('static'), []
    produce(topic, 4, 0, 40)
    revoked = []
    a, b = consumer(g, group_instance_id='one'), consumer(g, group_instance_id='two')
    a.subscribe([topic])
    b.subscribe([topic], on_revoke=lambda c, tps: revoked.append(tps))
    poll_both([a, b], got, lambda: len(a.assignment()) == 2 == len(b.assignment()))
    before, count = {tp.partition for tp in a.assignment()}, len(revoked)
    a.close()
    a = consumer(g, group_instance_id='one')
    a.subscribe([topic])
    poll_both([a, b], got, lambda: len(a.assignment()) == 2)
    assert {tp.partition for tp in a.assignment()} == before and len(revoked) == count
    ids = {m.group_instance_id for m in admin.describe_consumer_groups([g])[g].result(60).members}
    assert ids == {'one', 'two'}, ids
    a.close()
    b.close()
    return 'restart kept the partitions, without a rebalance'


def txn():
    topic, g = make_topic('txn', 1), name('txn')
    p, c = Producer({'bootstrap.servers': BOOTSTRAP, 'transactional.id': g}), consumer(g)
    p.init_transactions(20)
    for t in range(3):
        p.begin_transaction()
        for i in range(5):
            p.produce(topic, b't%d' % t)
        if t == 0:
            p.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], c.consumer_group_metadata(), 20)
        if t == 1:
            p.flush()
            p.abort_transaction(20)
        else:
            p.commit_transaction(20)
    committed, everything = read_all(topic, 1)[0], read_all(topic, 1, isolation_level='read_uncommitted')[0]
    assert [m.value() for m in committed] == [b't0'] * 5 + [b't2'] * 5, len(committed)
    assert len(everything) == 15
    assert c.committed([TopicPartition(topic, 0)], 10)[0].offset == 3
    return '2 commits, 1 abort, offsets in a transaction'


SHARE_FETCH = 78


def offered():
    """The API keys that the broker offers, which the library does not tell."""
    host, port = BOOTSTRAP.rsplit(':', 1)
    with socket.create_connection((host, int(port))) as s, s.makefile('rb') as answers:
        s.sendall(struct.pack('>ihhih', 10, 18, 0, 1, -1))
        answer = answers.read(struct.unpack('>i', answers.read(4))[0])
    return {struct.unpack_from('>h', answer, 10 + 6 * i)[0] for i in range(struct.unpack_from('>i', answer, 6)[0])}


def share():
    if SHARE_FETCH not in offered():
        raise Skip('share.version is not enabled on the cluster')
    topic, g, seen, begun, stop = make_topic('share', 3), name('share'), set(), set(), time.time() + 75
    r = ConfigResource(ResourceType.GROUP, g, incremental_configs=[ConfigEntry('share.auto.offset.reset', 'earliest', incremental_operation=AlterConfigOpType.SET)])
    admin.incremental_alter_configs([r])[r].result(60)
    cs = [ShareConsumer({'bootstrap.servers': BOOTSTRAP, 'client.id': CLIENT, 'group.id': g}) for _ in range(2)]
    for c in cs:
        c.subscribe([topic])

    def poll():
        for c in cs:
            for m in c.poll(0.2) or []:
                if not m.error():
                    seen.add(m.key())
                    begun.add(m.partition())
    while len(begun) < 3 and time.time() < stop:  # a broker that has not heard of the group's config yet begins a partition at its end
        produce(topic, 3, N, N + 3)
        poll()
    produce(topic, 3, 0, N)
    while any(key(i) not in seen for i in range(N)) and time.time() < stop:
        poll()
    for c in cs:
        c.close()
    missing = [i for i in range(N) if key(i) not in seen]
    assert not missing, f'{len(missing)} records are missing; partitions {begun} gave any'
    return f'{N} records, 2 share consumers'


def groups():
    topic, g = make_topic('groups', 1), name('groups')
    c = consumer(g)
    c.commit(offsets=[TopicPartition(topic, 0, 4, 'meta')], asynchronous=False)
    assert g in {x.group_id for x in admin.list_consumer_groups().result(60).valid}
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(g, [TopicPartition(topic, 0, 7)])])[g].result(60)
    assert c.committed([TopicPartition(topic, 0)], 10)[0].offset == 7
    c.close()
    admin.delete_consumer_groups([g])[g].result(60)
    assert g not in {x.group_id for x in admin.list_consumer_groups().result(60).valid}
    return 'list, alter offsets, delete'


def configs():
    topic = make_topic('configs', 1)
    r = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[ConfigEntry('retention.ms', '12345678', incremental_operation=AlterConfigOpType.SET)])
    admin.incremental_alter_configs([r])[r].result(60)
    for _ in range(1200):
        q = ConfigResource(ResourceType.TOPIC, topic)
        v = admin.describe_configs([q])[q].result(60)['retention.ms'].value
        if v == '12345678':
            break
        time.sleep(0.05)
    assert v == '12345678', v
    q = ConfigResource(ResourceType.BROKER, str(admin.describe_cluster().result(60).nodes[0].id))
    return f"topic retention.ms, {len(admin.describe_configs([q])[q].result(60))} broker configs"


def partitions():
    topic = make_topic('partitions', 1)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    for _ in range(1200):
        n = len(admin.list_topics(topic, timeout=60).topics[topic].partitions)
        if n == 4:
            return '1 to 4'
        time.sleep(0.05)
    assert False, n


def delrecords():
    topic, tp = make_topic('delrecords', 1), TopicPartition(name('delrecords'), 0)
    produce(topic, 1, 0, 10)
    low = admin.delete_records([TopicPartition(topic, 0, 5)])[tp].result(60).low_watermark
    assert low == 5 and admin.list_offsets({tp: OffsetSpec.earliest()})[tp].result(60).offset == 5
    return 'first 5 of 10'


def deltopic():
    topic = make_topic('deltopic', 1)
    admin.delete_topics([topic])[topic].result(60)
    for _ in range(1200):
        if topic not in admin.list_topics(timeout=60).topics:
            return
        time.sleep(0.05)
    assert False, 'still listed'


def many():
    topic = make_topic('many', 200)
    md = admin.list_topics(topic, timeout=60)
    assert {p.leader for p in md.topics[topic].partitions.values()} <= set(md.brokers)
    produce(topic, 200, 0, 200)
    return compare([[m.value() for m in ms] for ms in read_all(topic, 200)], 200)


def gap(case):
    c, got, end, stop = consumer(), [], -1, time.time() + 10
    c.assign([TopicPartition(case['Topic'], 0, 0)])
    while end < 0 and time.time() < stop:
        for m in c.consume(100, 0.3):
            if m.error() and m.error().code() == KafkaError._PARTITION_EOF:
                end = m.offset()  # position() is that of the last message, so the EOF event's offset it is
            elif m.error():
                raise KafkaException(m.error())
            else:
                got.append((m.offset(), m.value().decode()))
    c.close()
    return got, end if end >= 0 else f'no EOF, {c}'


def leader():
    topic, seen = make_topic('leader', 1), Seen()
    p, c = Producer({'bootstrap.servers': BOOTSTRAP, 'client.id': CLIENT, 'enable.idempotence': True, 'linger.ms': 0}), consumer(enable_partition_eof=False)
    c.assign([TopicPartition(topic, 0, 0)])

    def take(seconds):
        seen.add([m.value() for m in c.consume(500, seconds) if not m.error()])
    for i in range(MOVING):
        p.produce(topic, value(i))
        assert p.flush(90) == 0, f'record {i} is not acknowledged'
        take(0.02)
    while seen.waiting():
        take(0.3)
    c.close()
    return seen.summary()


main({c: (lambda c=c: round_trip(c, compression_type=c)) for c in ('none', 'gzip', 'snappy', 'lz4', 'zstd')} | {
    'idempotent': lambda: round_trip('idempotent', enable_idempotence=True),
    'acks0': lambda: round_trip('acks0', acks=0), 'acks1': lambda: round_trip('acks1', acks=1),
    'group848': lambda: group('group848', group_protocol='consumer'),
    'metadata': metadata, 'coordinator': coordinator, 'create': create, 'headers': headers, 'large': large, 'seek': seek, 'offsets': offsets,
    'group': group, 'static': static, 'txn': txn, 'share': share, 'groups': groups, 'configs': configs, 'partitions': partitions, 'delrecords': delrecords,
    'deltopic': deltopic, 'many': many, 'leader': leader}, gap)
