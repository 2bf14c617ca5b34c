"""aiokafka."""
import asyncio, os, time
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import OffsetAndMetadata
from kit import *

loop = asyncio.new_event_loop()


class Admin:
    async def __aenter__(self):
        self.a = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP, client_id=CLIENT)
        await self.a.start()
        return self.a

    async def __aexit__(self, *e):
        await self.a.close()


async def make_topic(check, parts):
    async with Admin() as a:
        r = await a.create_topics([NewTopic(name(check), parts, 1)])
        assert all(e[1] == 0 for e in r.topic_errors), r
        for _ in range(50):
            d = (await a.describe_topics([name(check)]))[0]
            if len(d['partitions']) == parts and all(p['leader'] >= 0 for p in d['partitions']):
                break
            await asyncio.sleep(0.05)
    async with consumer() as c:  # until the broker leads it: before, acks=0 is lost and a retry without idempotence may reorder
        await c.end_offsets([TopicPartition(name(check), p) for p in range(parts)])
    return name(check)


def producer(**conf):
    return AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, client_id=CLIENT, linger_ms=5, **conf)


async def produce(topic, parts, start, end, **conf):
    async with producer(**conf) as p:
        for f in [await p.send(topic, value(i), key(i), partition=i % parts) for i in range(start, end)]:
            await f


def consumer(*topics, group=None, **conf):
    return AIOKafkaConsumer(*topics, bootstrap_servers=BOOTSTRAP, client_id=CLIENT, group_id=group, auto_offset_reset='earliest',
                            enable_auto_commit=False, fetch_max_wait_ms=200, **conf)


async def read_all(topic, parts, n, **conf):
    got, stop, tps = [[] for _ in range(parts)], time.time() + 20, [TopicPartition(topic, p) for p in range(parts)]
    async with consumer(**conf) as c:
        c.assign(tps)
        await c.seek_to_beginning()
        ends = await c.end_offsets(tps)
        while time.time() < stop:
            for tp, rs in (await c.getmany(timeout_ms=200)).items():
                got[tp.partition] += rs
            if sum(map(len, got)) >= n and all([await c.position(tp) >= ends[tp] for tp in tps]):
                break
    return got


async def round_trip(check, **conf):
    topic = await make_topic(check, 3)
    await produce(topic, 3, 0, N, **conf)
    return compare([[r.value for r in rs] for rs in await read_all(topic, 3, N)])


async def metadata():
    async with Admin() as a:
        d = await a.describe_cluster()
        return allowed(*[(b['host'], b['port']) for b in d['brokers']]) + f", cluster {d['cluster_id']}"


async def coordinator():
    async with Admin() as a:
        node = await a.find_coordinator(name('coordinator'))
        assert node in {b['node_id'] for b in (await a.describe_cluster())['brokers']}
        return f'group coordinator is node {node} (no address in the API)'


async def create():
    topic = await make_topic('create', 3)
    async with Admin() as a:
        assert len((await a.describe_topics([topic]))[0]['partitions']) == 3
        try:
            r = await a.create_topics([NewTopic(topic, 3, 1)])
            assert r.topic_errors[0][1] == 36, r
        except Exception as e:
            assert 'Exists' in type(e).__name__ or 'Exists' in str(e), e
    return '3 partitions; again: TopicAlreadyExists'


async def headers():
    topic, now = await make_topic('headers', 1), int(time.time() * 1000) - 60000
    hs = [('h', b'1'), ('h', b'2'), ('null', None), ('empty', b'')]
    async with producer() as p:
        await p.send_and_wait(topic, b'nullkey', None, 0, now, hs)
        await p.send_and_wait(topic, None, b'nullvalue', 0, now + 1)
        await p.send_and_wait(topic, b'', b'', 0, now + 2)
    a, b, c = (await read_all(topic, 1, 3))[0]
    assert (a.key, a.value, list(a.headers)) == (None, b'nullkey', hs), a
    assert (b.key, b.value, c.key, c.value) == (b'nullvalue', None, b'', b'')
    assert [r.timestamp for r in (a, b, c)] == [now, now + 1, now + 2]
    return 'null and empty keys and values, 4 headers, timestamps'


async def large():
    topic, big = await make_topic('large', 1), os.urandom(900_000)
    async with producer() as p:
        await p.send_and_wait(topic, big)
    assert (await read_all(topic, 1, 1))[0][0].value == big
    return '900000 bytes'


async def poll_some(c, seconds=10):
    stop = time.time() + seconds
    while time.time() < stop:
        for rs in (await c.getmany(timeout_ms=200, max_records=10)).values():
            return rs[0].offset


async def seek():
    topic = await make_topic('seek', 1)
    await produce(topic, 1, 0, 100)
    tp = TopicPartition(topic, 0)
    async with consumer() as c:
        c.assign([tp])
        c.seek(tp, 0)
        assert await poll_some(c) == 0
        c.pause(tp)
        assert await poll_some(c, 0.6) is None, 'records while paused'
        c.resume(tp)
        c.seek(tp, 50)
        assert await poll_some(c) == 50
        await c.seek_to_end(tp)
        assert await c.position(tp) == 100
        await c.seek_to_beginning(tp)
        assert await poll_some(c) == 0
    return 'pause, resume, seek to 50, end, beginning'


async def offsets():
    topic, t = await make_topic('offsets', 1), int(time.time() * 1000) - 60000
    tp = TopicPartition(topic, 0)
    async with producer() as p:
        for i in range(10):
            await p.send_and_wait(topic, key(i), timestamp_ms=t + i * 1000, partition=0)
    async with consumer() as c:
        assert (await c.offsets_for_times({tp: t + 4500}))[tp].offset == 5
        assert (await c.beginning_offsets([tp]))[tp] == 0 and (await c.end_offsets([tp]))[tp] == 10
    return 'by timestamp, earliest, latest'


class Revoked(ConsumerRebalanceListener):
    def __init__(self):
        self.count = 0

    async def on_partitions_revoked(self, revoked):
        self.count += 1

    async def on_partitions_assigned(self, assigned):
        pass


async def poll_all(cs, got, done):
    stop = time.time() + 25
    while not await done():
        assert time.time() < stop, f'not reached in 25 s: assignments {[len(c.assignment()) for c in cs]}, {len(got)} records'
        for rs in await asyncio.gather(*[c.getmany(timeout_ms=100) for c in cs]):
            got += [r.key for v in rs.values() for r in v]


async def positions(*cs):
    return sum([await c.position(tp) for c in cs for tp in c.assignment()])


async def group():
    topic, g, got = await make_topic('group', 4), name('group'), []
    await produce(topic, 4, 0, N)
    a, b = consumer(topic, group=g), consumer(topic, group=g)
    await asyncio.gather(a.start(), b.start())

    async def done():
        return len(a.assignment()) == 2 == len(b.assignment()) and await positions(a, b) == N
    await poll_all([a, b], got, done)
    assert len(set(got)) == N
    await a.commit()
    await b.commit()
    async with Admin() as adm:
        d = (await adm.describe_consumer_groups([g]))[0].groups[0]
        assert len(d[5]) == 2, d
    await asyncio.gather(a.stop(), b.stop())
    await produce(topic, 4, N, N + 100)
    async with Admin() as adm, consumer() as probe:
        committed = await adm.list_consumer_group_offsets(g)
        lag = sum((await probe.end_offsets(list(committed))).values()) - sum(o.offset for o in committed.values())
        assert lag == 100, f'lag {lag}'
    after = []
    async with consumer(topic, group=g) as c:
        async def restarted():
            return len(after) >= 100 and len(c.assignment()) == 4
        await poll_all([c], after, restarted)
        await c.commit()
    assert len(after) == 100, f'{len(after)} after the restart'
    return f'2 members, {N} records, lag 100, restart read 100'


async def static():
    topic, g = await make_topic('static', 4), name('static')
    revoked = Revoked()
    a, b = consumer(group=g, group_instance_id='one'), consumer(group=g, group_instance_id='two')
    a.subscribe([topic])
    b.subscribe([topic], listener=revoked)
    await asyncio.gather(a.start(), b.start())

    async def both():
        return len(a.assignment()) == 2 == len(b.assignment())
    await poll_all([a, b], [], both)
    before, count = a.assignment(), revoked.count
    await a.stop()
    a = consumer(topic, group=g, group_instance_id='one')
    await a.start()
    await poll_all([a, b], [], both)
    same = a.assignment() == before and revoked.count == count
    await asyncio.gather(a.stop(), b.stop())
    assert same, 'the restarted member got other partitions, or the other was rebalanced'
    return 'restart kept the partitions, without a rebalance'


async def txn():
    topic, g = await make_topic('txn', 1), name('txn')
    tp = TopicPartition(topic, 0)
    async with producer(transactional_id=g) as p:
        for t in range(3):
            await p.begin_transaction()
            for i in range(5):
                await p.send_and_wait(topic, b't%d' % t)
            if t == 0:
                await p.send_offsets_to_transaction({tp: OffsetAndMetadata(3, '')}, g)
            await (p.abort_transaction() if t == 1 else p.commit_transaction())
    committed = (await read_all(topic, 1, 10, isolation_level='read_committed'))[0]
    assert [r.value for r in committed] == [b't0'] * 5 + [b't2'] * 5, len(committed)
    assert len((await read_all(topic, 1, 15))[0]) == 15
    async with consumer(group=g) as c:
        assert await c.committed(tp) == 3
    return '2 commits, 1 abort, offsets in a transaction'


async def groups():
    topic, g = await make_topic('groups', 1), name('groups')
    tp = TopicPartition(topic, 0)
    async with consumer(group=g) as c:
        c.assign([tp])
        await c.commit({tp: OffsetAndMetadata(4, 'meta')})
        assert await c.committed(tp) == 4
    async with Admin() as a:
        assert g in {x[0] for x in await a.list_consumer_groups()}
        assert (await a.list_consumer_group_offsets(g))[tp].offset == 4
        await a.describe_consumer_groups([g])
    return 'list, describe, offsets'


async def configs():
    topic = await make_topic('configs', 1)
    async with Admin() as a:
        await a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {'retention.ms': '12345678'})])
        for _ in range(50):
            r = await a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            got = {e[0]: e[1] for e in r[0].resources[0][4]}['retention.ms']
            if got == '12345678':
                break
            await asyncio.sleep(0.05)
        assert got == '12345678', got
    return 'topic retention.ms'


async def partitions():
    topic = await make_topic('partitions', 1)
    async with Admin() as a:
        await a.create_partitions({topic: NewPartitions(4)})
        for _ in range(50):
            n = len((await a.describe_topics([topic]))[0]['partitions'])
            if n == 4:
                return '1 to 4'
            await asyncio.sleep(0.05)
    assert False, n


async def delrecords():
    topic = await make_topic('delrecords', 1)
    await produce(topic, 1, 0, 10)
    tp = TopicPartition(topic, 0)
    async with Admin() as a, consumer() as c:
        await a.delete_records({tp: RecordsToDelete(5)})
        assert (await c.beginning_offsets([tp]))[tp] == 5
    return 'first 5 of 10'


async def deltopic():
    topic = await make_topic('deltopic', 1)
    async with Admin() as a:
        await a.delete_topics([topic])
        for _ in range(50):
            if topic not in await a.list_topics():
                return
            await asyncio.sleep(0.05)
    assert False, 'still listed'


async def many():
    topic = await make_topic('many', 200)
    await produce(topic, 200, 0, 200)
    return compare([[r.value for r in rs] for rs in await read_all(topic, 200, 200)], 200)


async def leader():
    topic, seen = await make_topic('leader', 1), Seen()
    async with producer(enable_idempotence=True) as p, consumer() as c:
        c.assign([TopicPartition(topic, 0)])
        await c.seek_to_beginning()

        async def take(ms):
            for rs in (await c.getmany(timeout_ms=ms)).values():
                seen.add([r.value for r in rs])
        for i in range(MOVING):
            await asyncio.wait_for(p.send_and_wait(topic, value(i), partition=0), 30)
            await take(20)
            await asyncio.sleep(0.02)  # or all would be over before the leader moves
        while seen.waiting():
            await take(300)
    return seen.summary()


async def gap_read(case):
    got, tp, pos, stop = [], TopicPartition(case['Topic'], 0), -1, time.time() + 8
    async with consumer(isolation_level='read_committed') as c:
        c.assign([tp])
        c.seek(tp, 0)
        while pos < case['End'] and time.time() < stop:
            for rs in (await c.getmany(timeout_ms=200)).values():
                got += [(r.offset, r.value.decode()) for r in rs]
            pos = await c.position(tp)
    return got, pos


def run(fn, *a, **kw):
    return lambda: loop.run_until_complete(fn(*a, **kw))


main({c: run(round_trip, c, compression_type=None if c == 'none' else c) for c in ('none', 'gzip', 'snappy', 'lz4', 'zstd')} | {
    'idempotent': run(round_trip, 'idempotent', enable_idempotence=True), 'acks0': run(round_trip, 'acks0', acks=0), 'acks1': run(round_trip, 'acks1', acks=1)} | {
    f.__name__: run(f) for f in (metadata, coordinator, create, headers, large, seek, offsets, group, static, txn, groups, configs, partitions, delrecords, deltopic, many, leader)
}, lambda case: loop.run_until_complete(gap_read(case)))
