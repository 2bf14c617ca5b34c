// What both Node client programs share; the same as go/kit/kit.go.
import fs from 'node:fs'
import { createRequire } from 'node:module'
import assert from 'node:assert/strict'

const env = process.env
export const require = createRequire(`${env.NODE_DIR}/`)
export const { BOOTSTRAP, CLIENT } = env
export const N = Number(env.N || 2000)
export class Skip extends Error {}
export const sleep = ms => new Promise(r => setTimeout(r, ms))
export const name = check => `kc-${env.RUNID}-${CLIENT}-${check}`
export const key = i => `k${i}`
export const value = i => `v${i}-${'abcdefghij'.repeat(10)}`
export const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i)

/** checks: name -> async function. gap(case) reads a log to its end: {got: [[offset, value]], position: number or -1, note}. */
export async function main(checks, gap) {
  let current
  const report = (what, text) => console.log(`@${what} ${current} ${String(text ?? '').replaceAll('\n', ' | ')}`)
  for (const n of env.CHECKS.split(',')) {
    current = n
    console.log(`@start ${n}`)
    const fn = n.startsWith('gaps:') ? () => runGap(n.slice(5), gap) : checks[n]
    try {
      if (!fn) throw new Skip('the client has no API for it')
      report('pass', await fn())
    } catch (e) {
      console.error(e)
      report(e instanceof Skip ? 'skip' : 'fail', e instanceof Skip ? e.message : `${e.name}: ${e.message} ${(e.errors ?? []).map(x => x.message)}`)
    }
  }
  process.exit(0)
}

async function runGap(label, gap) {
  const c = JSON.parse(fs.readFileSync(env.GAPS)).find(c => c.Label === label)
  const { got, position, note } = await gap(c)
  const want = (c.Records ?? []).map(r => [r.Offset, r.Value])
  const sum = `${got.length}/${want.length} records, position ${position}/${c.End}${note ? ', ' + note : ''}`
  if (JSON.stringify(got) !== JSON.stringify(want) || (position !== -1 && position !== c.End)) throw new Error(sum)
  return sum
}

/** by: a list of values per partition; record i was sent to partition i % by.length. */
export function compare(by, n = N) {
  by.forEach((values, p) => {
    const want = range(0, n).filter(i => i % by.length === p).map(value)
    assert.equal(values.length, want.length, `partition ${p}: ${values.length} records, not ${want.length}`)
    values.forEach((v, k) => assert.equal(String(v), want[k], `partition ${p} record ${k} differs`))
  })
  return `${n} records in ${by.length} partitions`
}

export const MOVING = 250 // records of the check "leader"

/** The check "leader": records are written one by one while the runner moves the partition's leader; got is what a reader collects. */
export async function leader(write, got) {
  for (const i of range(0, MOVING)) {
    await write(i)
    await sleep(20)
  }
  const values = () => new Set(got().map(m => String(m.value)))
  await until(() => `${values().size} of ${MOVING} records read`, () => values().size >= MOVING, 160000)
  const all = values()
  for (const i of range(0, MOVING)) assert(all.has(value(i)), `record ${i} was not read`)
  return `${MOVING} records, ${got().length - MOVING} of them twice`
}

export function allowed(addresses) {
  for (const [host, port] of addresses) {
    const ok = env.ALLOWED.split(',').some(a => {
      const [h, ports] = a.split(':'), [low, high] = ports.split('-')
      return h === host && port >= Number(low) && port <= Number(high ?? low)
    })
    if (!ok) throw new Error(`LEAK: address ${host}:${port} is not in ${env.ALLOWED}`)
  }
  return [...new Set(addresses.map(a => a.join(':')))].join(', ')
}

export async function until(what, cond, ms = 100000) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(50)) if (await cond()) return
  throw new Error(`not reached in ${ms / 1000} s: ${what()}`)
}
