package store

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRecord reads any record that a state log may hold. What can be read is written again as it was read, in clear and sealed, and is
// still the record of its key.
func FuzzRecord(f *testing.F) {
	id := [16]byte{0xde, 15: 1}
	for _, seed := range []struct {
		key   Key
		value any
	}{
		{MirrorKey("m"), &Mirror{Name: "m", Config: map[string]string{"a": "b", "ssl.key.password": "x"}, SourceClusterID: "c", CreatedMs: 1}},
		{TopicKey("m", "t"), &Topic{Mirror: "m", Name: "t", Partitions: 1, ProducerID: 5, PastProducerIDs: []int64{4}, DestinationID: id, OriginID: id,
			Failback: &Failback{Phase: FailbackSaving, TopicID: id, Own: []int64{3}, SavedID: id, Settings: map[string]string{"a": "b"}}}},
		{PartitionKey("m", "t", 3), &Partition{Mirror: "m", Topic: "t", Partition: 3, State: 8, LastMirrored: 7, SourceEpochs: []SourceEpoch{{Epoch: 2}}}},
		{ACLsKey("m"), &ACLs{Mirror: "m", Added: []byte{1, 2, 3, 4, 5, 6, 7, 8}}},
		{ClaimKey("t"), &Claim{Topic: "t", Mirror: "m", ProducerID: 7, Confirmed: true, ClaimedMs: 9}},
		{TopicIDKey("t"), &TopicID{Name: "t", SourceID: id}},
		{Key{Kind: KindProducer, Partition: 4, ID: 9}, &Producer{ID: 9}},
	} {
		value, err := encode(seed.key, seed.value, nil)
		require.NoError(f, err)
		f.Add(seed.key.String(), value)
	}
	f.Add("v1/mirror/m", []byte(`{"v":1,"name":"m","config":{"password":"enc:v1:AAAA"}}`))
	f.Add("v1/mirror/m", []byte(`{"v":2}`))
	seal, err := newSealer(bytes.Repeat([]byte{7}, 32))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		key, ok := parseKey(text)
		if !ok {
			return
		}
		require.Equal(t, text, key.String())
		value, err := decode(key, data, nil)
		if errors.Is(err, ErrNewer) || err != nil && key.Kind != KindMirror {
			require.Nil(t, value)
		}
		if err != nil {
			return
		}
		clear := encoded(t, key, value, nil)
		for _, s := range []*sealer{nil, seal} {
			back, err := decode(key, encoded(t, key, value, s), s)
			require.NoError(t, err)
			require.Equal(t, string(clear), string(encoded(t, key, back, nil)))
		}
		if c := clone(value); c != nil {
			require.Equal(t, string(clear), string(encoded(t, key, c, nil)))
		}
	})
}

func encoded(t *testing.T, key Key, value any, seal *sealer) []byte {
	t.Helper()
	data, err := encode(key, value, seal)
	require.NoError(t, err)
	return data
}

// FuzzNonce: a nonce counts at one offset only.
func FuzzNonce(f *testing.F) {
	f.Add("writer/1/42", int64(42))
	f.Add("a/b/c/1/0", int64(0))
	f.Add("", int64(-1))
	f.Fuzz(func(t *testing.T, nonce string, offset int64) {
		at := logRecord{nonce: nonce, offset: offset}
		if other := (logRecord{nonce: nonce, offset: offset + 1}); at.valid() {
			require.False(t, other.valid())
		}
		made := logRecord{nonce: makeNonce(nonce, 3, offset), offset: offset}
		require.True(t, made.valid())
	})
}
