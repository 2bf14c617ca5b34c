package handlers

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// While a topic is cut over (mirror/cutover.go), requests that write to it are not refused but wait: with them, as at a
// broker that is slow, whatever is behind them on their connection. So they go on the moment the topic is writable,
// in their order, and whatever the client's number of retries is. Before the client's own patience is over it gets an error
// that all clients retry, and the connection ends: what it sent behind must not go on before that is there.
//
// The error is NOT_ENOUGH_REPLICAS: nothing was written, and the leader is no other, so nobody asks for metadata.

// waitMost bounds how long one request waits. It is shorter than what clients give a request (30 s, librdkafka 60 s).
const waitMost = 20 * time.Second

// patience is how long a request may wait whose client has told a broker to answer within so many milliseconds.
func patience(timeoutMillis int32) time.Duration {
	return min(max(time.Duration(timeoutMillis)*time.Millisecond*4/5, time.Second), waitMost)
}

// waitFor decides that a request waits for the topics of a cut-over, or returns false: there is none, or it has waited for
// long enough.
func waitFor(r *request, until time.Time, most time.Duration) (proxy.Decision, bool) {
	left := min(time.Until(until), most-r.Waited)
	if left <= 0 {
		return proxy.Decision{}, false
	}
	return proxy.Decision{Wait: &proxy.Wait{Until: r.topics.Replaced(), For: left}}, true
}

// waits is until when producers to one of the topics wait, the zero time if they do not.
type waits struct{ until time.Time }

func (w *waits) add(t *mirror.Topic) {
	if t != nil && t.ReadOnly && t.WritersWait.After(w.until) {
		w.until = t.WritersWait
	}
}

// now reports whether they wait still.
func (w *waits) now() bool { return time.Now().Before(w.until) }

// waitCode is the error at the end of the patience.
var waitCode = kerr.NotEnoughReplicas.Code

const waitMessage = "a topic of this request is being cut over (mirrorgate mirrors cutover); nothing was written: try again"
