"""kcat: a driver that runs the command. It has no admin, so topics are made with confluent-kafka-python."""
import json, subprocess, time
from confluent_kafka.admin import AdminClient, NewTopic
from kit import *
from rdkit import await_leader

admin = AdminClient({'bootstrap.servers': BOOTSTRAP, 'client.id': CLIENT})


def kcat(*args, stdin=None, seconds=25):
    p = subprocess.run(['kcat', '-b', BOOTSTRAP, '-X', f'client.id={CLIENT}', *args], input=stdin, capture_output=True, timeout=seconds)
    assert p.returncode == 0, f'kcat {args[0]}: status {p.returncode}: {p.stderr.decode()[-300:]}'
    return p.stdout


def make_topic(check, parts):
    admin.create_topics([NewTopic(name(check), parts, 1)])[name(check)].result(20)
    await_leader(name(check), parts)  # before, what is sent with acks=0 is lost
    return name(check)


def produce(topic, parts, start, end, *args):
    for p in range(parts):
        lines = b''.join(b'%s:%s\n' % (key(i), value(i)) for i in range(start, end) if i % parts == p)
        kcat('-P', '-t', topic, '-p', str(p), '-K:', *args, stdin=lines)


def read_all(topic, parts, *args):
    out = [json.loads(l) for l in kcat('-C', '-t', topic, '-o', 'beginning', '-e', '-q', '-J', *args).splitlines()]
    return [[r for r in out if r['partition'] == p] for p in range(parts)]


def round_trip(check, *args):
    topic = make_topic(check, 3)
    produce(topic, 3, 0, N, *args)
    return compare([[r['payload'].encode() for r in rs] for rs in read_all(topic, 3)])


def metadata():
    d = json.loads(kcat('-L', '-J'))
    return allowed(*[(b['name'].split(':')[0], int(b['name'].split(':')[1])) for b in d['brokers']])


def headers():
    topic = make_topic('headers', 1)
    kcat('-P', '-t', topic, '-p', '0', '-H', 'h=1', '-H', 'h=2', '-H', 'null', '-H', 'empty=', stdin=b'nullkey\n')
    kcat('-P', '-t', topic, '-p', '0', '-K:', '-Z', stdin=b'nullvalue:\n')
    a, b = read_all(topic, 1)[0]
    assert a['key'] is None and a['payload'] == 'nullkey' and a['headers'] == ['h', '1', 'h', '2', 'null', None, 'empty', ''], a
    assert b['key'] == 'nullvalue' and b['payload'] is None and abs(b['ts'] / 1000 - time.time()) < 60, b
    return 'null key and value, 4 headers, timestamp'


def large():
    topic, big = make_topic('large', 1), b'x' * 900_000
    kcat('-P', '-t', topic, '-p', '0', '-D\\x01', stdin=big)
    assert read_all(topic, 1)[0][0]['payload'].encode() == big
    return '900000 bytes'


def seek():
    topic = make_topic('seek', 1)
    produce(topic, 1, 0, 100)
    for args, first, count in ((['-o', '50'], 50, 50), (['-o', '-10'], 90, 10), (['-o', '20', '-c', '5'], 20, 5)):
        got = kcat('-C', '-t', topic, '-p', '0', '-e', '-q', '-f', '%o\n', *args).split()
        assert int(got[0]) == first and len(got) == count, (args, got[:1], len(got))
    return 'offset 50, last 10, 5 from 20'


def offsets():
    topic = make_topic('offsets', 1)
    kcat('-P', '-t', topic, '-p', '0', stdin=b'a\nb\n')
    time.sleep(0.05)
    middle = int(time.time() * 1000)
    time.sleep(0.05)
    kcat('-P', '-t', topic, '-p', '0', stdin=b'c\n')
    for ts, want in ((middle, 2), (-2, 0), (-1, 3)):
        got = kcat('-Q', '-t', f'{topic}:0:{ts}').decode()
        assert got.strip().endswith(f'offset {want}'), got
    return 'by timestamp, earliest, latest'


def group(check='group', *args):
    topic, g = make_topic(check, 4), name(check)
    produce(topic, 4, 0, N)
    cmd = ['kcat', '-b', BOOTSTRAP, '-X', 'auto.offset.reset=earliest', '-u', '-f', '%p %k\n', *args, '-G', g, topic]
    out = [open(f'{g}.{i}', 'w+') for i in range(2)]
    members = [subprocess.Popen(cmd, stdout=f, stderr=subprocess.STDOUT) for f in out]

    def lines(f):
        return [l.split() for l in open(f.name).read().splitlines() if l and l[0] != '%']
    try:
        stop = time.time() + 30
        while True:
            texts = [open(f.name).read() for f in out]
            seen = {l[1] for f in out for l in lines(f)}
            last = [[l for l in t.splitlines() if 'assigned' in l][-1:] for t in texts]
            both = all(l and l[0].count(f'{topic} [') == 2 for l in last)
            if len(seen) == N and both:
                break
            assert time.time() < stop, f'not reached in 30 s: {len(seen)} records, {last}'
            time.sleep(0.1)
    finally:
        for m in members:
            m.terminate()  # which commits and leaves
        for m in members:
            m.wait(10)
    produce(topic, 4, N, N + 100)
    m = subprocess.Popen(cmd, stdout=open(f'{g}.2', 'w'), stderr=subprocess.STDOUT)
    try:
        stop = time.time() + 20
        while len(after := lines(open(f'{g}.2'))) < 100 and time.time() < stop:
            time.sleep(0.1)
        time.sleep(0.5)
        after = lines(open(f'{g}.2'))
    finally:
        m.terminate()
        m.wait(10)
    assert len(after) == 100, f'{len(after)} after the restart'
    return f'2 members, {N} records, restart read 100'


def many():
    topic = make_topic('many', 200)
    d = json.loads(kcat('-L', '-J', '-t', topic))
    assert len(d['topics'][0]['partitions']) == 200
    return '200 partitions'


def leader():
    topic, seen = make_topic('leader', 1), Seen()
    p = subprocess.Popen(['kcat', '-b', BOOTSTRAP, '-X', f'client.id={CLIENT}', '-P', '-t', topic, '-p', '0', '-X', 'enable.idempotence=true', '-X', 'linger.ms=0'],
                         stdin=subprocess.PIPE)
    for i in range(MOVING):
        p.stdin.write(value(i) + b'\n')
        p.stdin.flush()
        time.sleep(0.02)
    p.stdin.close()
    assert p.wait(30) == 0
    while seen.waiting():
        seen.add([r['payload'].encode() for r in read_all(topic, 1)[0]])
    return seen.summary()


def gap(case):
    out = kcat('-C', '-t', case['Topic'], '-p', '0', '-o', 'beginning', '-e', '-f', '%o %s\n', '-X', 'isolation.level=read_committed', '-X', 'fetch.wait.max.ms=200',
               seconds=12).decode().splitlines()
    return [(int(l.split()[0]), l.split()[1]) for l in out], -1  # -e ended it, so it saw the end


main({c: (lambda c=c: round_trip(c, '-z', c)) for c in ('none', 'gzip', 'snappy', 'lz4', 'zstd')} | {
    'idempotent': lambda: round_trip('idempotent', '-X', 'enable.idempotence=true'), 'acks0': lambda: round_trip('acks0', '-X', 'acks=0'),
    'acks1': lambda: round_trip('acks1', '-X', 'acks=1'), 'metadata': metadata, 'headers': headers, 'large': large, 'seek': seek, 'offsets': offsets,
    'group': group, 'many': many, 'leader': leader}, gap)
