"""kafka-python."""
import os, threading, time
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata
from kit import *

admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP, client_id=CLIENT)


def make_topic(check, parts):
    admin.create_topics([NewTopic(name(check), parts, 1)], wait_for_metadata=True)
    # until the broker leads it: before, acks=0 is lost and a retry without idempotence may reorder
    stop = time.time() + 60
    while True:
        try:
            admin.list_partition_offsets({TopicPartition(name(check), p): -1 for p in range(parts)})
            return name(check)
        except KafkaError:
            if time.time() > stop:
                raise
            time.sleep(0.05)


def producer(**conf):
    return KafkaProducer(bootstrap_servers=BOOTSTRAP, client_id=CLIENT, linger_ms=5, **conf)


def produce(topic, parts, start, end, **conf):
    p = producer(**conf)
    sent = [p.send(topic, value(i), key(i), partition=i % parts) for i in range(start, end)]
    p.flush(90)
    if conf.get('acks') != 0:
        [f.get(90) for f in sent]
    p.close()


def consumer(group=None, **conf):
    return KafkaConsumer(bootstrap_servers=BOOTSTRAP, client_id=CLIENT, group_id=group, auto_offset_reset='earliest',
                         enable_auto_commit=False, fetch_max_wait_ms=200, **conf)


def read_all(topic, parts, n, **conf):
    c, got, stop = consumer(**conf), [[] for _ in range(parts)], time.time() + 80
    tps = [TopicPartition(topic, p) for p in range(parts)]
    c.assign(tps)
    c.seek_to_beginning()
    ends = c.end_offsets(tps)
    while time.time() < stop:
        for tp, rs in c.poll(200).items():
            got[tp.partition] += rs
        if sum(map(len, got)) >= n and all(c.position(tp) >= ends[tp] for tp in tps):
            break
    c.close()
    return got


def round_trip(check, **conf):
    topic = make_topic(check, 3)
    produce(topic, 3, 0, N, **conf)
    return compare([[r.value for r in rs] for rs in read_all(topic, 3, N)])


def metadata():
    d = admin.describe_cluster()
    assert d['cluster_id']
    return allowed(*[(b['host'], b['port']) for b in d['brokers']]) + f", cluster {d['cluster_id']}"


def create():
    topic = make_topic('create', 3)
    d = admin.describe_topics([topic])[0]
    assert len(d['partitions']) == 3, d
    try:
        make_topic('create', 3)
        assert False, 'created twice'
    except TopicAlreadyExistsError:
        return '3 partitions; again: TopicAlreadyExists'


def headers():
    topic, now = make_topic('headers', 1), int(time.time() * 1000) - 60000
    p, hs = producer(), [('h', b'1'), ('h', b'2'), ('empty', b'')]  # the producer takes no null
    p.send(topic, b'nullkey', None, hs, 0, now)
    p.send(topic, None, b'nullvalue', None, 0, now + 1)
    p.send(topic, b'', b'', None, 0, now + 2)
    p.close()
    a, b, c = read_all(topic, 1, 3)[0]
    assert (a.key, a.value, list(map(tuple, a.headers))) == (None, b'nullkey', hs), a
    assert (b.key, b.value, c.key, c.value) == (b'nullvalue', None, b'', b'')
    assert [r.timestamp for r in (a, b, c)] == [now, now + 1, now + 2]
    return 'null and empty keys and values, 3 headers, timestamps'


def large():
    topic, big = make_topic('large', 1), os.urandom(900_000)
    p = producer()
    p.send(topic, big).get(90)
    p.close()
    assert read_all(topic, 1, 1)[0][0].value == big
    return '900000 bytes'


def poll_some(c, seconds=60):
    stop = time.time() + seconds
    while time.time() < stop:
        for rs in c.poll(200, max_records=10).values():
            return rs[0].offset


def seek():
    topic = make_topic('seek', 1)
    produce(topic, 1, 0, 100)
    c, tp = consumer(), TopicPartition(topic, 0)
    c.assign([tp])
    c.seek(tp, 0)
    assert poll_some(c) == 0
    c.pause(tp)
    assert poll_some(c, 0.6) is None, 'records while paused'
    c.resume(tp)
    c.seek(tp, 50)
    assert poll_some(c) == 50
    c.seek_to_end(tp)
    assert c.position(tp) == 100
    c.seek_to_beginning(tp)
    assert poll_some(c) == 0
    c.close()
    return 'pause, resume, seek to 50, end, beginning'


def offsets():
    topic, t = make_topic('offsets', 1), int(time.time() * 1000) - 60000
    p, c, tp = producer(), consumer(), TopicPartition(name('offsets'), 0)
    for i in range(10):
        p.send(topic, key(i), timestamp_ms=t + i * 1000, partition=0)
    p.close()
    assert c.offsets_for_times({tp: t + 4500})[tp].offset == 5
    assert c.beginning_offsets([tp])[tp] == 0 and c.end_offsets([tp])[tp] == 10
    for spec, want in ((-2, 0), (-1, 10), (-3, 9), (t + 4500, 5)):
        got = admin.list_partition_offsets({tp: spec})[tp].offset
        assert got == want, f'{spec}: {got}'
    c.close()
    return 'by timestamp, earliest, latest, max timestamp'


class Member(threading.Thread):
    """Polls in a thread of its own, until stopped; then commits (or not) and closes."""

    def __init__(self, topic, group, commit=True, **conf):
        super().__init__(daemon=True)
        self.c, self.got, self.assigned, self.stop, self.commit, self.at = consumer(group, **conf), [], set(), False, commit, {}
        self.c.subscribe([topic])
        self.rebalances = 0
        self.start()

    def run(self):
        while not self.stop:
            for rs in self.c.poll(100).values():
                self.got += [r.key for r in rs]
            a = {tp.partition for tp in self.c.assignment()}
            self.rebalances += a != self.assigned
            self.assigned = a
            self.at = {tp.partition: self.c.position(tp) for tp in self.c.assignment()}
        if self.commit:
            self.c.commit()
        self.c.close()

    def end(self):
        self.stop = True
        self.join(60)


def wait(cond, what):
    stop = time.time() + 100
    while not cond():
        assert time.time() < stop, what() + ' after 100 s'
        time.sleep(0.05)


def group():
    topic, g = make_topic('group', 4), name('group')
    produce(topic, 4, 0, N)
    a, b = Member(topic, g), Member(topic, g)
    wait(lambda: len(a.assigned) == 2 == len(b.assigned) and sum(a.at.values()) + sum(b.at.values()) == N, lambda: f'assignments {a.assigned} {b.assigned}, {a.at} {b.at}')
    assert len(set(a.got + b.got)) == N
    d = admin.describe_groups([g])[g]
    assert len(d['members']) == 2, d
    a.end()
    # One that is closed in the middle of a rebalance may stay in the group until it is thrown out, and hold up the next.
    wait(lambda: len(b.assigned) == 4, lambda: f'assignment {b.assigned} after the other has left')
    b.end()
    produce(topic, 4, N, N + 100)
    committed = admin.list_group_offsets({g: None})[g]
    lag = sum(admin.list_partition_offsets({tp: -1})[tp].offset - o.offset for tp, o in committed.items())
    assert lag == 100, f'lag {lag}'
    c = Member(topic, g)
    wait(lambda: len(c.got) >= 100 and len(c.assigned) == 4, lambda: f'{len(c.got)} records, assigned {c.assigned}, at {c.at}; alive: {c.is_alive()}, those before: {a.is_alive()} {b.is_alive()}')
    c.end()
    assert len(c.got) == 100, f'{len(c.got)} after the restart'
    return f'2 members, {N} records, lag 100, restart read 100'


def static():
    topic, g = make_topic('static', 4), name('static')
    produce(topic, 4, 0, 40)
    a, b = Member(topic, g, False, group_instance_id='one'), Member(topic, g, False, group_instance_id='two')
    wait(lambda: len(a.assigned) == 2 == len(b.assigned), lambda: f'assignments {a.assigned} {b.assigned}')
    before, count = a.assigned, b.rebalances
    a.end()
    a = Member(topic, g, False, group_instance_id='one')
    wait(lambda: len(a.assigned) == 2, lambda: f'assignment {a.assigned}')
    ids = {m['group_instance_id'] for m in admin.describe_groups([g])[g]['members']}
    assert ids == {'one', 'two'}, ids
    same = a.assigned == before and b.rebalances == count
    a.end()
    b.end()
    assert same, 'the restarted member got other partitions, or the other was rebalanced'
    return 'restart kept the partitions, without a rebalance'


def txn():
    topic, g = make_topic('txn', 1), name('txn')
    p, c = producer(transactional_id=g), consumer(g)
    p.init_transactions()
    for t in range(3):
        p.begin_transaction()
        for i in range(5):
            p.send(topic, b't%d' % t)
        if t == 0:
            p.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(3, '', -1)}, c.group_metadata())
        if t == 1:
            p.flush()
            p.abort_transaction()
        else:
            p.commit_transaction()
    p.close()
    committed = read_all(topic, 1, 10, isolation_level='read_committed')[0]
    assert [r.value for r in committed] == [b't0'] * 5 + [b't2'] * 5, len(committed)
    assert len(read_all(topic, 1, 15)[0]) == 15
    assert c.committed(TopicPartition(topic, 0)) == 3
    return '2 commits, 1 abort, offsets in a transaction'


def groups():
    topic, g, tp = make_topic('groups', 1), name('groups'), TopicPartition(name('groups'), 0)
    c = consumer(g)
    c.assign([tp])
    c.commit({tp: OffsetAndMetadata(4, 'meta', -1)})
    c.close()
    assert g in {x['group_id'] for x in admin.list_groups()}
    admin.alter_group_offsets(g, {tp: OffsetAndMetadata(7, '', -1)})
    assert admin.list_group_offsets({g: [tp]})[g][tp].offset == 7
    admin.delete_groups([g])
    assert g not in {x['group_id'] for x in admin.list_groups()}
    return 'list, alter offsets, delete'


def configs():
    topic = make_topic('configs', 1)
    admin.alter_configs([ConfigResource('TOPIC', topic, {'retention.ms': '12345678'})])
    for _ in range(1200):
        got = admin.describe_configs([ConfigResource('TOPIC', topic)], config_filter='all')['topic'][topic]['retention.ms']['value']
        if got == '12345678':
            break
        time.sleep(0.05)
    assert got == '12345678', got
    broker = str(admin.describe_cluster()['brokers'][0]['broker_id'])
    n = len(admin.describe_configs([ConfigResource('BROKER', broker)], config_filter='all')['broker'][broker])
    return f'topic retention.ms, {n} broker configs'


def partitions():
    topic = make_topic('partitions', 1)
    admin.create_partitions({topic: 4})
    for _ in range(1200):
        n = len(admin.describe_topics([topic])[0]['partitions'])
        if n == 4:
            return '1 to 4'
        time.sleep(0.05)
    assert False, n


def delrecords():
    topic, tp = make_topic('delrecords', 1), TopicPartition(name('delrecords'), 0)
    produce(topic, 1, 0, 10)
    admin.delete_records({tp: 5})
    assert admin.list_partition_offsets({tp: -2})[tp].offset == 5
    return 'first 5 of 10'


def deltopic():
    topic = make_topic('deltopic', 1)
    admin.delete_topics([topic])
    for _ in range(1200):
        if topic not in admin.list_topics():
            return
        time.sleep(0.05)
    assert False, 'still listed'


def many():
    topic = make_topic('many', 200)
    assert len(admin.describe_topics([topic])[0]['partitions']) == 200
    produce(topic, 200, 0, 200)
    return compare([[r.value for r in rs] for rs in read_all(topic, 200, 200)], 200)


def gap(case):
    c, got, tp, pos, stop = consumer(isolation_level='read_committed'), [], TopicPartition(case['Topic'], 0), -1, time.time() + 8
    c.assign([tp])
    c.seek(tp, 0)
    while pos < case['End'] and time.time() < stop:
        for rs in c.poll(200).values():
            got += [(r.offset, r.value.decode()) for r in rs]
        pos = c.position(tp)
    c.close()
    return got, pos if pos >= 0 else 'unknown'


def leader():
    topic, seen, p, c = make_topic('leader', 1), Seen(), producer(enable_idempotence=True), consumer()
    c.assign([TopicPartition(topic, 0)])
    c.seek_to_beginning()

    def take(ms):
        for rs in c.poll(ms).values():
            seen.add([r.value for r in rs])
    for i in range(MOVING):
        p.send(topic, value(i), partition=0).get(90)
        take(20)
        time.sleep(0.02)  # or all would be over before the leader moves
    while seen.waiting():
        take(300)
    p.close()
    c.close()
    return seen.summary()


main({c: (lambda c=c: round_trip(c, compression_type=None if c == 'none' else c, enable_idempotence=False)) for c in ('none', 'gzip', 'snappy', 'lz4', 'zstd')} | {
    'idempotent': lambda: round_trip('idempotent', enable_idempotence=True), 'acks0': lambda: round_trip('acks0', acks=0, enable_idempotence=False),
    'acks1': lambda: round_trip('acks1', acks=1, enable_idempotence=False), 'metadata': metadata, 'create': create, 'headers': headers, 'large': large,
    'seek': seek, 'offsets': offsets, 'group': group, 'static': static, 'txn': txn, 'groups': groups, 'configs': configs, 'partitions': partitions,
    'delrecords': delrecords, 'deltopic': deltopic, 'many': many, 'leader': leader}, gap)
