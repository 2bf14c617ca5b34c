package store

import (
	"encoding/json"
	"maps"
	"slices"
)

// Failback is the part of a topic's record that says how far the mirror is with a destination topic that was there before and
// is not empty. Nothing was written to that topic as long as there is one.
type Failback struct {
	Phase FailbackPhase `json:"phase"`
	// TopicID is the destination topic that is to be continued, or to be made anew.
	TopicID [16]byte `json:"topicId"` // written as hex
	// OwnOffsets: what the partition records say was mirrored is in this destination topic.
	OwnOffsets bool `json:"ownOffsets,omitempty"`
	// Own and End are, by partition, the range of offsets that only the destination has: [Own, End). They count from
	// FailbackSaving on.
	Own []int64 `json:"own,omitempty"`
	End []int64 `json:"end,omitempty"`
	// SavedID is the topic that they were saved to; it counts from FailbackDeleting on, and is zero if nothing had to be.
	SavedID [16]byte `json:"savedId"` // written as hex
	// Replicas and Settings are what the topic has that the source does not decide; it gets them again.
	Replicas int16             `json:"replicas,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
}

// FailbackPhase is a step of a failback.
type FailbackPhase string

// The phases. FailbackDeleting is written only once everything in [Own, End) was saved and read again.
const (
	FailbackCheck FailbackPhase = "check" // both logs are to be compared
	// FailbackContinuing: both logs fit, and the destination topic is being given the settings of a mirror.
	FailbackContinuing FailbackPhase = "continuing"
	FailbackDiverged   FailbackPhase = "diverged" // FAILED: somebody has to decide
	FailbackSaving     FailbackPhase = "saving"   // what only the destination has is being saved
	FailbackDeleting   FailbackPhase = "deleting" // the destination topic is to be deleted
	FailbackCreating   FailbackPhase = "creating" // it is gone, and to be made anew
)

type plainFailback Failback

type wireFailback struct {
	plainFailback
	TopicID hexID `json:"topicId"`
	SavedID hexID `json:"savedId"`
}

// MarshalJSON writes the topic IDs as hex.
func (f Failback) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireFailback{plainFailback(f), f.TopicID, f.SavedID})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Failback) UnmarshalJSON(data []byte) error {
	var w wireFailback
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*f = Failback(w.plainFailback)
	f.TopicID, f.SavedID = w.TopicID, w.SavedID
	return nil
}

func (f *Failback) clone() *Failback {
	if f == nil {
		return nil
	}
	c := *f
	c.Own, c.End = slices.Clone(f.Own), slices.Clone(f.End)
	c.Settings = maps.Clone(f.Settings)
	return &c
}

// In returns a copy in another phase.
func (f *Failback) In(phase FailbackPhase) *Failback {
	c := f.clone()
	c.Phase = phase
	return c
}
