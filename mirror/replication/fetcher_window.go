package replication

import "time"

// The window of a fetcher: how much one request asks for of one partition. There is one request at a time, so over a long
// way it must bring as much as passes in a round trip (Little's law), or the way there and back is what limits. Near by,
// mirror.fetch.max.bytes is far more than that; over 100 ms, ten times as much is needed for farRate. It is bounded by
// mirror.fetch.response.max.bytes, and by what the Budget has.

// farRate is what the partitions that have something should get over any distance, in bytes per second together. With
// what a transfer itself takes, about half of it remains.
const farRate = 128 << 20

// roundTrip is the shortest time of late between a request and its answer with data: how far away the broker is.
type roundTrip struct {
	least, before time.Duration // of this interval and the one before; 0: none
	since         time.Time     // when this interval began
}

// roundTripInterval is how soon a way that has become longer is noticed.
const roundTripInterval = 30 * time.Second

func (r *roundTrip) add(took time.Duration, now time.Time) {
	if now.Sub(r.since) > roundTripInterval {
		r.before, r.least, r.since = r.least, 0, now
	}
	if r.least == 0 || took < r.least {
		r.least = took
	}
}

func (r *roundTrip) estimate() time.Duration {
	if r.least == 0 || r.before > 0 && r.before < r.least {
		return r.before
	}
	return r.least
}

// window is the most bytes of one partition in a fetch. busy is how many partitions had data in the last answer that had
// any.
func (c *fetcherConfig) window(trip time.Duration, busy int) int32 {
	need := int64(farRate*trip.Seconds()) / int64(max(busy, 1))
	return max(c.options.MaxBytes, int32(min(need, int64(c.options.ResponseMax))))
}
