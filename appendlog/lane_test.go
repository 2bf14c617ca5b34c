package appendlog

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
)

// changingLanes makes every other 2,000 offsets Bulk.
func changingLanes(from int64) bool { return from/2000%2 == 1 }

// TestBulkLane: a broker that does not get on with Bulk batches takes the others all the same, as they come over another
// connection, and none of its requests has both.
func TestBulkLane(t *testing.T) {
	const bulkRecords, each = 50, 30
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	held := make(chan struct{}, 100)
	null := startNullBroker(t, 2)
	null.producing = func(req *kmsg.ProduceRequest) {
		kinds := map[bool]int{}
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				kinds[binary.BigEndian.Uint32(p.Records[57:]) == bulkRecords]++
			}
		}
		if len(kinds) > 1 {
			t.Errorf("a request has bulk batches and others: %v", kinds)
		}
		if kinds[true] > 0 {
			held <- struct{}{}
			<-hold
		}
	}
	c, err := NewClient(Config{Broker: broker.Config{Bootstrap: []string{null.l.Addr().String()}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer release()
	copiers := make([]*copier, 2)
	for i, size := range []int64{bulkRecords, 1} {
		copiers[i] = newCopier(t, each*size, fixed(size))
		copiers[i].bulk = func(int64) bool { return size == bulkRecords }
	}
	copiers[0].open(c, Partition{Topic: "t", Partition: 0, ProducerID: 1})
	select {
	case <-held:
	case <-time.After(2 * time.Minute):
		t.Fatal("no bulk batch was sent")
	}
	copiers[1].open(c, Partition{Topic: "t", Partition: 1, ProducerID: 1})
	copiers[1].waitCopied()
	copiers[0].mu.Lock()
	acked := copiers[0].acked
	copiers[0].mu.Unlock()
	if acked != 0 {
		t.Errorf("bulk batches up to %d were acknowledged while they were held", acked)
	}
	release()
	copiers[0].waitCopied()
}
