package clients

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// leaders moves the only replica of partition 0 of every topic whose name ends in "-leader" from broker to broker: so its leader changes several times during the check of that name, and requests go to brokers that do not lead it any more.
type leaders struct {
	admin   *kadm.Client
	brokers int

	mu    sync.Mutex
	moves map[string]int // topic → how many moves were completed
	last  map[string]int32
}

// mostMoves is how often a topic's leader moves: some clients wait longer each time, and would never find one that moves for ever.
const mostMoves = 10

// moveLeaders runs until the end of the test, by an address where no login is needed.
func moveLeaders(t *testing.T, bootstrap string, brokers int) *leaders {
	l := &leaders{admin: harness.Admin(t, bootstrap), brokers: brokers, moves: map[string]int{}, last: map[string]int32{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(400 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				l.step(ctx)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

// step counts the moves that are complete and asks for the next ones. An error shows as a leader that does not move.
func (l *leaders) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	topics, err := l.admin.ListTopics(ctx)
	if err != nil {
		return
	}
	var next kadm.AlterPartitionAssignmentsReq
	for topic, detail := range topics {
		p, ok := detail.Partitions[0]
		if !strings.HasSuffix(topic, "-"+leaderCheck) || !ok || len(p.Replicas) != 1 || p.Leader != p.Replicas[0] {
			continue
		}
		if l.count(topic, p.Leader) == mostMoves {
			continue
		}
		next.Assign(topic, 0, []int32{p.Leader%int32(l.brokers) + 1})
	}
	if len(next) > 0 {
		_, _ = l.admin.AlterPartitionAssignments(ctx, next)
	}
}

// count returns how many moves were completed.
func (l *leaders) count(topic string, leader int32) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, seen := l.last[topic]; seen && before != leader {
		l.moves[topic]++
	}
	l.last[topic] = leader
	return l.moves[topic]
}

// judge takes a check's pass back if the leader did not move.
func (l *leaders) judge(got result, topic string) result {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.moves[topic]
	if n == 0 {
		return result{Outcome: "fail", Text: "the leader of " + topic + " did not move during the check: " + got.Text}
	}
	got.Text = fmt.Sprintf("%s; the leader moved %d times", got.Text, n)
	return got
}

// total is how many moves of leaders were completed.
func (l *leaders) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := 0
	for _, n := range l.moves {
		sum += n
	}
	return sum
}
