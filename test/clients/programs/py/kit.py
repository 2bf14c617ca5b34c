"""What every Python client program shares; the same as go/kit/kit.go."""
import json, os, time, traceback


class Skip(Exception):
    pass


BOOTSTRAP, CLIENT, N = os.environ['BOOTSTRAP'], os.environ['CLIENT'], int(os.environ.get('N', 2000))


def main(checks, gap=None):
    """checks: name -> function. gap(case) reads a log to its end and returns ([(offset, value)], position or -1)."""
    for name in os.environ['CHECKS'].split(','):
        print('@start', name, flush=True)
        fn = checks.get(name)
        if name.startswith('gaps:') and gap:
            fn = lambda: run_gap(name[5:], gap)
        try:
            if not fn:
                raise Skip('the client has no API for it')
            report('pass', name, fn() or '')
        except Skip as e:
            report('skip', name, e)
        except BaseException as e:
            traceback.print_exc()
            report('fail', name, f'{type(e).__name__}: {e}')
    os._exit(0)  # whatever threads a client left


def report(what, name, text):
    print(f'@{what}', name, str(text).replace('\n', ' | '), flush=True)


def run_gap(label, gap):
    case = next(c for c in json.load(open(os.environ['GAPS'])) if c['Label'] == label)
    got, pos = gap(case)
    want = [(r['Offset'], r['Value']) for r in case['Records'] or []]
    summary = f"{len(got)}/{len(want)} records, position {pos}/{case['End']}"
    assert got == want, f'{summary}: {[g for g in got if g not in want][:3]} unexpected, {[w for w in want if w not in got][:3]} missing'
    assert pos in (-1, case['End']), summary
    return summary


def name(check):
    return f"kc-{os.environ['RUNID']}-{CLIENT}-{check}"


def key(i):
    return b'k%d' % i


def value(i):
    return b'v%d-' % i + b'abcdefghij' * 10


def compare(by_partition, n=N):
    """by_partition: a list of values per partition; record i was sent to partition i % len(by_partition)."""
    parts = len(by_partition)
    for p, values in enumerate(by_partition):
        want = [value(i) for i in range(p, n, parts)]
        assert values == want, f'partition {p}: {len(values)} records of {len(want)}, or out of order'
    return f'{n} records in {parts} partitions'


MOVING = 250  # records of the check "leader", written one by one while the runner moves the partition's leader


class Seen:
    """The values that the check "leader" has read: all must come; a client that is not idempotent may write some twice."""

    def __init__(self):
        self.values, self.twice, self.stop = set(), 0, time.time() + 200

    def add(self, values):
        for v in values:
            self.twice += v in self.values
            self.values.add(v)

    def waiting(self):
        return len(self.values) < MOVING and time.time() < self.stop

    def summary(self):
        missing = [i for i in range(MOVING) if value(i) not in self.values]
        assert not missing, f'{len(self.values)} of {MOVING} records read, not record {missing[0]}'
        return f'{MOVING} records, {self.twice} of them twice'


def allowed(*addresses):
    """Each (host, port) must be one of $ALLOWED."""
    ranges = []
    for a in os.environ['ALLOWED'].split(','):
        host, ports = a.rsplit(':', 1)
        low, _, high = ports.partition('-')
        ranges.append((host, int(low), int(high or low)))
    for host, port in addresses:
        assert any(h == host and lo <= port <= hi for h, lo, hi in ranges), f"LEAK: address {host}:{port} is not in {os.environ['ALLOWED']}"
    return ', '.join(sorted({f'{h}:{p}' for h, p in addresses}))
