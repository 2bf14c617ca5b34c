package replication

import "fmt"

// State is the state of a mirror partition, and of a topic as the summary of its partitions (KIP-1279; PAUSED is ours).
type State int8

// The wire values of the states.
const (
	Initializing State = 0
	Preparing    State = 1
	Mirroring    State = 2
	Stopping     State = 4
	Stopped      State = 8
	Failed       State = 16
	Unknown      State = 32
	Paused       State = 64
)

var stateNames = map[State]string{
	Initializing: "INITIALIZING", Preparing: "PREPARING", Mirroring: "MIRRORING", Stopping: "STOPPING",
	Stopped: "STOPPED", Failed: "FAILED", Unknown: "UNKNOWN", Paused: "PAUSED",
}

// String returns the name that DescribeMirrors shows.
func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	return fmt.Sprintf("State(%d)", int8(s))
}
