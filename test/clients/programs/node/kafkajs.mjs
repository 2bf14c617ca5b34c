// kafkajs
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { BOOTSTRAP, CLIENT, N, allowed, compare, key, leader, main, name, range, require, sleep, until, value } from './kit.mjs'

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
CompressionCodecs[CompressionTypes.LZ4] = () => ({ compress: e => lz4.compressFrame(e.buffer), decompress: b => lz4.decompressFrame(b) })
const zstd = await new Promise(r => require('zstd-codec').ZstdCodec.run(z => r(new z.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async e => Buffer.from(zstd.compress(e.buffer)),
  decompress: async b => Buffer.from(zstd.decompress(b))
})

const kafka = new Kafka({ clientId: CLIENT, brokers: [BOOTSTRAP], logLevel: logLevel.ERROR })
const admin = kafka.admin()
await admin.connect()
const seen = new Map() // the brokers that requests went to
const watch = c => (c.on(c.events.REQUEST, e => seen.set(e.payload.broker, 1)), c)
watch(admin)

async function makeTopic(check, partitions) {
  await admin.createTopics({ topics: [{ topic: name(check), numPartitions: partitions }], waitForLeaders: false })
  // Brokers know a new topic and its leaders later than the controller, and a partial failure makes the producer send twice.
  let error
  const known = async () => (await admin.fetchTopicMetadata({ topics: [name(check)] })).topics[0].partitions.length === partitions && admin.fetchTopicOffsets(name(check))
  await until(() => error, () => known().catch(e => void (error = e)), 80000)
  return name(check)
}
async function send(topic, messages, options = {}, producerOptions = {}) {
  const p = watch(kafka.producer(producerOptions))
  await p.connect()
  for (let i = 0; i < messages.length; i += 500) await p.send({ topic, messages: messages.slice(i, i + 500), ...options })
  await p.disconnect()
}
const messages = (parts, from, to) => range(from, to).map(i => ({ key: key(i), value: value(i), partition: i % parts }))

/** A group member that notes what it reads. */
class Member {
  got = []
  assigned = []
  constructor(topic, groupId, options = {}) {
    this.c = watch(kafka.consumer({ groupId, maxWaitTimeInMs: 200, rebalanceTimeout: 10000, ...options }))
    this.c.on(this.c.events.GROUP_JOIN, e => (this.assigned = e.payload.memberAssignment[topic] ?? []))
    this.ready = (async () => {
      await this.c.connect()
      await this.c.subscribe({ topic, fromBeginning: true })
      await this.c.run({ eachMessage: async ({ partition, message }) => void this.got.push({ ...message, partition }) })
    })()
  }
}
let reads = 0
async function readAll(topic, parts, n, options) {
  const m = new Member(topic, name('read') + reads++, options)
  await m.ready
  await until(() => `${m.got.length} of ${n} records`, () => m.got.length >= n, 80000)
  await sleep(100)
  await m.c.disconnect()
  return range(0, parts).map(p => m.got.filter(x => x.partition === p))
}
async function roundTrip(check, options, producerOptions) {
  const topic = await makeTopic(check, 3)
  await send(topic, messages(3, 0, N), options, producerOptions)
  return compare((await readAll(topic, 3, N)).map(ms => ms.map(m => m.value)))
}

async function metadata() {
  const d = await admin.describeCluster()
  return allowed(d.brokers.map(b => [b.host, b.port])) + `, cluster ${d.clusterId}`
}
async function coordinator() { // no API tells it, so: the brokers that a group's requests went to
  await send(await makeTopic('coordinator', 1), messages(1, 0, 1))
  await readAll(name('coordinator'), 1, 1)
  return 'requests went to ' + allowed([...seen.keys()].map(a => [a.split(':')[0], Number(a.split(':')[1])]))
}
async function create() {
  const topic = await makeTopic('create', 3)
  const d = await admin.fetchTopicMetadata({ topics: [topic] })
  assert.equal(d.topics[0].partitions.length, 3)
  assert.equal(await admin.createTopics({ topics: [{ topic }] }), false, 'created twice')
  return '3 partitions; again: false'
}
async function headers() {
  const topic = await makeTopic('headers', 1), now = Date.now() - 60000
  await send(topic, [
    { key: null, value: 'nullkey', timestamp: String(now), headers: { h: ['1', '2'], empty: '' } },
    { key: 'nullvalue', value: null, timestamp: String(now + 1) },
    { key: '', value: '', timestamp: String(now + 2) }
  ])
  const [a, b, c] = (await readAll(topic, 1, 3))[0]
  assert.deepEqual([a.key, String(a.value), a.headers.h.map(String), String(a.headers.empty)], [null, 'nullkey', ['1', '2'], ''])
  assert.deepEqual([String(b.key), b.value, String(c.key), String(c.value)], ['nullvalue', null, '', ''])
  assert.deepEqual([a, b, c].map(m => Number(m.timestamp)), [now, now + 1, now + 2])
  return 'null and empty keys and values, headers (no null header value), timestamps'
}
async function large() {
  const topic = await makeTopic('large', 1), big = crypto.randomBytes(900_000)
  await send(topic, [{ value: big }])
  assert((await readAll(topic, 1, 1))[0][0].value.equals(big))
  return '900000 bytes'
}
async function seek() {
  const topic = await makeTopic('seek', 1)
  await send(topic, messages(1, 0, 100))
  const m = new Member(topic, name('seek'))
  await m.ready
  await until(() => m.got.length, () => m.got.length === 100)
  m.c.pause([{ topic }])
  m.c.seek({ topic, partition: 0, offset: '50' })
  await sleep(600)
  assert.equal(m.got.length, 100, 'records while paused')
  m.c.resume([{ topic }])
  await until(() => m.got.length, () => m.got.length === 150)
  assert.equal(m.got[100].offset, '50')
  await m.c.disconnect()
  return 'pause, resume, seek to 50'
}
async function offsets() {
  const topic = await makeTopic('offsets', 1), t = Date.now() - 60000
  await send(topic, range(0, 10).map(i => ({ value: key(i), timestamp: String(t + i * 1000) })))
  assert.equal((await admin.fetchTopicOffsetsByTimestamp(topic, t + 4500))[0].offset, '5')
  const [o] = await admin.fetchTopicOffsets(topic)
  assert.deepEqual([o.low, o.high], ['0', '10'])
  return 'by timestamp, earliest, latest'
}
async function group() {
  const topic = await makeTopic('group', 4), groupId = name('group')
  await send(topic, messages(4, 0, N))
  const a = new Member(topic, groupId), b = new Member(topic, groupId)
  await Promise.all([a.ready, b.ready])
  const keys = () => new Set([...a.got, ...b.got].map(m => String(m.key))).size
  await until(() => `assignments ${a.assigned} ${b.assigned}, ${keys()} records`, () => a.assigned.length === 2 && b.assigned.length === 2 && keys() === N)
  assert.equal((await admin.describeGroups([groupId])).groups[0].members.length, 2)
  const committed = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions.reduce((s, p) => s + Math.max(0, Number(p.offset)), 0)
  await sleep(300)
  await Promise.all([a.c.disconnect(), b.c.disconnect()]) // which commits
  await send(topic, messages(4, N, N + 100))
  const ends = (await admin.fetchTopicOffsets(topic)).reduce((s, p) => s + Number(p.high), 0)
  assert.equal(ends - await committed(), 100, 'lag')
  const c = new Member(topic, groupId)
  await c.ready
  await until(() => `${c.got.length} records`, () => c.got.length >= 100)
  await sleep(300)
  await c.c.disconnect()
  assert.equal(c.got.length, 100, `${c.got.length} after the restart`)
  return `2 members, ${N} records, lag 100, restart read 100`
}
async function txn() {
  const topic = await makeTopic('txn', 1), groupId = name('txn')
  const p = kafka.producer({ transactionalId: groupId, maxInFlightRequests: 1, idempotent: true })
  await p.connect()
  for (const t of range(0, 3)) {
    const tx = await p.transaction()
    await tx.send({ topic, messages: range(0, 5).map(() => ({ value: `t${t}` })) })
    if (t === 0) await tx.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: '3' }] }] })
    await (t === 1 ? tx.abort() : tx.commit())
  }
  await p.disconnect()
  const committed = (await readAll(topic, 1, 10))[0].map(m => String(m.value))
  assert.deepEqual(committed, [...Array(5).fill('t0'), ...Array(5).fill('t2')])
  assert.equal((await readAll(topic, 1, 15, { readUncommitted: true }))[0].length, 15)
  assert.equal((await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset, '3')
  return '2 commits, 1 abort, offsets in a transaction'
}
async function groups() {
  const topic = await makeTopic('groups', 1), groupId = name('groups')
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '4' }] })
  assert.equal((await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset, '4')
  assert((await admin.listGroups()).groups.some(g => g.groupId === groupId), 'not listed')
  assert.equal((await admin.describeGroups([groupId])).groups[0].state, 'Empty')
  await admin.deleteGroups([groupId])
  assert(!(await admin.listGroups()).groups.some(g => g.groupId === groupId), 'still listed')
  return 'list, describe, set offsets, delete'
}
async function configs() {
  const topic = await makeTopic('configs', 1), resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '12345678' }] }] })
  const get = async () => (await admin.describeConfigs({ resources: [resource] })).resources[0].configEntries.find(e => e.configName === 'retention.ms').configValue
  await until(() => 'retention.ms', async () => (await get()) === '12345678', 60000)
  return 'topic retention.ms'
}
async function partitions() {
  const topic = await makeTopic('partitions', 1)
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
  await until(() => 'partitions', async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 4, 60000)
  return '1 to 4'
}
async function delrecords() {
  const topic = await makeTopic('delrecords', 1)
  await send(topic, messages(1, 0, 10))
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '5' }] })
  assert.equal((await admin.fetchTopicOffsets(topic))[0].low, '5')
  return 'first 5 of 10'
}
async function deltopic() {
  const topic = await makeTopic('deltopic', 1)
  await admin.deleteTopics({ topics: [topic] })
  await until(() => 'still listed', async () => !(await admin.listTopics()).includes(topic), 60000)
}
async function many() {
  const topic = await makeTopic('many', 200)
  assert.equal((await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length, 200)
  await send(topic, messages(200, 0, 200))
  return compare((await readAll(topic, 200, 200)).map(ms => ms.map(m => m.value)), 200)
}

async function moved() {
  const topic = await makeTopic('leader', 1)
  const m = new Member(topic, name('leader'), { retry: { retries: 20 } }), p = watch(kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: { retries: 20 } }))
  await Promise.all([m.ready, p.connect()])
  const sum = await leader(i => p.send({ topic, messages: [{ value: value(i), partition: 0 }] }), () => m.got)
  await Promise.all([m.c.disconnect(), p.disconnect()])
  return sum
}

/** kafkajs tells no position; the committed offset is the nearest to it, and the runner's proxy notes the fetch offset. */
async function gap(c) {
  const groupId = name('gap-') + c.Label, got = [], k = kafka.consumer({ groupId, maxWaitTimeInMs: 200, retry: { retries: 2 } })
  let crash
  k.on(k.events.CRASH, e => (crash = e.payload.error))
  await k.connect()
  await k.subscribe({ topic: c.Topic, fromBeginning: true })
  await k.run({ eachMessage: async ({ message }) => void got.push([Number(message.offset), String(message.value)]) })
  const want = c.Records?.length ?? 0
  for (const end = Date.now() + 8000; got.length < want && !crash && Date.now() < end;) await sleep(50)
  await sleep(800)
  await k.disconnect()
  const committed = (await admin.fetchOffsets({ groupId, topics: [c.Topic] }))[0].partitions[0]?.offset
  await admin.deleteGroups([groupId])
  if (crash) throw new Error(`${got.length}/${want} records: ${crash.message}`)
  return { got, position: -1, note: `committed ${committed}` }
}

main({
  none: () => roundTrip('none'), gzip: () => roundTrip('gzip', { compression: CompressionTypes.GZIP }),
  snappy: () => roundTrip('snappy', { compression: CompressionTypes.Snappy }), lz4: () => roundTrip('lz4', { compression: CompressionTypes.LZ4 }),
  zstd: () => roundTrip('zstd', { compression: CompressionTypes.ZSTD }), idempotent: () => roundTrip('idempotent', {}, { idempotent: true, maxInFlightRequests: 1 }),
  acks0: () => roundTrip('acks0', { acks: 0 }), acks1: () => roundTrip('acks1', { acks: 1 }),
  metadata, coordinator, create, headers, large, seek, offsets, group, txn, groups, configs, partitions, delrecords, deltopic, many, leader: moved
}, gap)
